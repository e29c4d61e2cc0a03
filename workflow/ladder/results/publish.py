"""Publishing: a run's records into the archive of its device, and the published tables made from it anew.

Records are merged by key: what the run did not measure stays as it was published, and older records of a cell stay in
the archive. With `only`, the archive keeps the records of one commit; git has the others.
"""

import functools
import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from pandas import DataFrame

from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.runs import Run
from ladder.gpu.discovery import slug_of
from ladder.measure.choice import decide
from ladder.measure.host import tree, tree_of, tree_with, unknown_commits
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records, read_store
from ladder.model.cell import COUNTERS, cell_name
from ladder.model.errors import LadderError
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.intervals import abba_ratios, ratio_interval
from ladder.model.plan import Plan, tasks_as_compiled
from ladder.model.plan_file import read_facts, read_plan
from ladder.model.record import Record, Session
from ladder.model.schemas import SWEEP_TABLES
from ladder.results import tables
from ladder.results.collect import OTHER_CODE, accounts_of, collect_sweep, merge
from ladder.results.published_records import (
    public,
    read_archive,
    read_archive_file,
    write_archive,
)
from ladder.results.statistics import listed

_ROUNDED = 1e-3
"""Records hold times to 0.1 ns: of 8,906 published ones no speed-up differs from that of its times by over 6e-5."""
_CLOCKS_DIFFER_S = 3600


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `target` after the block; where the block fails, `target` stays.

    A kill between the two renames leaves `target` moved aside. A run refuses that; the next publication moves it back.
    Raises LadderError where another process publishes there.
    """
    target = target.resolve()  # a link to it stays
    fresh, aside = (
        target.with_name(f".{target.name}.new"),
        PublishedFolder(target).aside,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        fresh.mkdir()
    except FileExistsError:
        raise LadderError(
            f"{fresh}: another process publishes. If it was killed, remove this folder, and publish again"
        ) from None
    try:
        _move_back(aside, target)
        yield fresh
        if target.exists():
            target.rename(aside)
        fresh.rename(target)
    finally:
        _move_back(aside, target)
        shutil.rmtree(fresh, ignore_errors=True)


def _move_back(aside: Path, target: Path) -> None:
    """Undo a swap that did not end, and remove what a swap moved aside that did."""
    if aside.exists() and not target.exists():
        aside.rename(target)
    shutil.rmtree(aside, ignore_errors=True)


@dataclass(frozen=True)
class Publication:
    """What a run adds to what is published of its device: views of its sweeps over its own records, and the archive.

    `only`: the tree of the commit that every record must be measured from; `archive` has no other records then.
    """

    run: Run
    folder: RunFolder
    published: PublishedFolder
    views: Mapping[str, PlanRecords]
    records: Records
    archive: Records
    only: Mapping[str, Any] | None = None

    @functools.cached_property
    def chosen(self) -> list[Record]:
        """Records of the run that stand for a cell of its plans, with those of other sessions that count as well."""
        chosen: dict[int, Record] = {}
        for view in self.views.values():
            for _, task in view.launched():
                counters = [COUNTERS] if task.counted else []
                for regime in (*view.plan.regimes_of(task), *counters):
                    record = view.current_record(task, regime)
                    for sibling in view.same_conditions(record) if record else []:
                        chosen[id(sibling)] = sibling
                        choice = view.choice(sibling)
                        if choice is not None:
                            chosen[id(choice)] = choice
        return list(chosen.values())

    @functools.cached_property
    def additions(self) -> list[Record]:
        """The chosen records that are not in the archive yet."""
        archived = {
            (record.key, record.session, record.time) for record in self.archive
        }
        return [
            record
            for record in self.chosen
            if (record.key, record.session, record.time) not in archived
        ]

    @functools.cached_property
    def sessions(self) -> dict[str, Session]:
        """Sessions of the chosen records; a commit is named where its tree is the session's.

        A host without git knows only the digest of its tree; with local changes, the commit has another tree.
        """
        trees, sessions = self._trees_by_digest(), {}
        for name in dict.fromkeys(record.session for record in self.chosen):
            session = self.records.sessions.get(name, Session(name, ""))
            digest = session.tree.get("digest")
            if digest and not _names_its_commit(session):
                if digest not in trees:
                    trees[digest] = tree_with(self.run.project.root, digest)
                session = replace(session, tree=trees[digest] or session.tree)
            sessions[name] = session
        return sessions

    def _trees_by_digest(self) -> dict[str, Mapping[str, Any] | None]:
        """Trees whose commit needs no search: those published, however old, that of `only`, and this checkout's.

        None for a checkout with local changes: no commit has its tree.
        """
        published = filter(_names_its_commit, self.archive.sessions.values())
        trees: dict[str, Mapping[str, Any] | None] = {
            session.tree["digest"]: session.tree for session in published
        }
        if self.only is not None:
            trees[self.only["digest"]] = self.only
        here = tree(self.run.project.root)
        if here["clean"]:
            trees[here["digest"]] = here
        trees.setdefault(here["digest"], None)
        return trees

    def objections(self) -> list[str]:
        """Why this should not be published; empty where nothing speaks against it."""
        objections = [*self._objections_to_plans(), *self._objections_to_losses()]
        if self.run.measures or self.only:
            return [
                *objections,
                *self._objections_to_cells(),
                *self._objections_to_sessions(),
            ]
        if not self.additions:
            objections.append(
                "nothing new to publish: a run without a GPU adds no record"
            )
        return objections

    def _objections_to_plans(self) -> Iterator[str]:
        run = self.run
        for name, view in self.views.items():
            tasks = plan_sweep(run.every_sweep[name], run.config, run.arch).tasks
            if view.plan.tasks != tasks_as_compiled(tasks, view.plan.variants):
                yield f"the plan of {name} is not that of its file"

    def _objections_to_losses(self) -> Iterator[str]:
        """Published rows that the new publication would lack."""
        kept, why = (
            {*self.run.every_sweep},
            f"without a file in {self.run.project.sweeps}",
        )
        if self.only:
            kept, why = {*self.views}, "and not a sweep of this run"
        sweeps = published_column(self.published, "timings", "sweep")
        if lost := [name for name in sweeps if name not in kept]:
            yield f"{listed(lost, 5)}: published, {why}: its rows would go"

    def _objections_to_cells(self) -> Iterator[str]:
        """Cells without a record of this checkout, and records that are wrong or do not follow from their times."""
        named = [
            (cell_name(record.variant, record.cell), record) for record in self.chosen
        ]
        timed = [
            (name, record) for name, record in named if record.cell.regime != COUNTERS
        ]
        good = [
            (name, record.result) for name, record in timed if record.status == "ok"
        ]
        checks = [(name, result.get("check") or {}) for name, result in good]
        latest = _latest()
        cells = {
            "not measured by this checkout: its code, settings or kernels are others": self._unmeasured(),
            "with an incorrect result": [
                name for name, record in timed if record.status == "incorrect"
            ],
            "timed but not verified": [
                name for name, check in checks if check.get("max_error") is None
            ],
            "with an error above its bound": [
                name for name, check in checks if error_is_above_bound(check)
            ],
            "whose speed-up is not that of its times": [
                name for name, result in good if not follows(result)
            ],
            "with a time in the future": [
                name for name, record in timed if record.time > latest
            ],
        }
        for what, names in cells.items():
            if names:
                yield f"{len(names)} cell(s) {what}: {listed(names, 5)}"
        if not timed and not self.archive.by_cell:
            yield "it has no timings at all"

    def _unmeasured(self) -> list[str]:
        """Cells of the plans that no record stands for."""
        names = []
        for sweep, view in self.views.items():
            if self.only:
                view = replace(view, records=self.published_records)
            for _, task in view.launched():
                if view.current_record(task) is None:
                    names.append(f"{sweep}: {task.variant} at {dict(task.cell.size)}")
        return names

    def _objections_to_sessions(self) -> Iterator[str]:
        """Sessions on another GPU, in the future, of an unknown checkout, or of another commit than `only`."""
        device, sessions = self.folder.root.name, self.sessions.values()
        for session in sessions:
            slug = slug_of(str(session.gpu.get("name")))
            if slug != device and not slug.startswith(f"{device}-mig-"):
                yield f"the session {session.id} is on {session.gpu.get('name')!r}, which is not {device}"
            if session.started > _latest():
                yield f"the session {session.id} began in the future, at {session.started}"
        unnamed = [
            str(session.tree.get("digest"))[:16]
            for session in sessions
            if not session.tree.get("commit")
        ]
        for digest in dict.fromkeys(unnamed):
            yield f"no commit is known for the tree of digest {digest} it was measured from"
        if self.only is not None:
            others = [
                session.id for session in sessions if not is_of(session, self.only)
            ]
            if others:
                commit = self.only["commit"][:12]
                yield f"the session(s) {listed(others, 3)} are not of {commit} without local changes"
        root = self.run.project.root
        commits = [
            str(session.tree["commit"])
            for session in sessions
            if session.tree.get("commit")
        ]
        if unknown := unknown_commits(root, commits):
            yield (
                f"the commit(s) {listed(unknown, 3)} are not in the git repository {root}: fetch them, or publish from "
                "the checkout that measured"
            )

    @functools.cached_property
    def published_records(self) -> Records:
        """Archive and additions. A GPU has one UUID, in sessions of the archive and in new ones."""
        sessions = {**self.archive.sessions, **self.sessions}
        return Records().add(
            (*map(public, sessions.values()), *self.archive, *self.additions)
        )

    def frames(self) -> dict[str, DataFrame]:
        """The tables of the device with this published, in the order of the project's sweeps."""
        parts = {}
        for name in self.run.every_sweep:
            if name in self.views:
                part = self._sweep_frames(self.views[name])
            elif self.only:
                continue
            else:
                part = kept_rows(name, self.published, SWEEP_TABLES)
            if len(part["timings"]):
                parts[name] = part
        return merge(parts)

    def _sweep_frames(self, view: PlanRecords) -> dict[str, DataFrame]:
        """Tables of a sweep of the run. Notes of the profiler and jobs stay as published where the run has none."""
        jobs, profile = accounts_of(self.folder, view.plan)
        kept = kept_rows(view.plan.sweep, self.published, ("notes", "jobs"))
        if profile is None:  # all other notes are made from records
            notes = kept["notes"][kept["notes"]["stage"] == "profile"]
            profile = {
                "notes": notes[notes["subject"] != OTHER_CODE].to_dict("records")
            }
        plan = self._with_published_facts(view.plan)
        view = replace(view, plan=plan, records=self.published_records, fall_back=True)
        part = collect_sweep(view, jobs, profile)
        return part if jobs else part | {"jobs": kept["jobs"]}

    def _with_published_facts(self, plan: Plan) -> Plan:
        """The plan, with published facts of the variants whose compiler this run lacked."""
        # With the bindings of CUDA, which tables are read without.
        from ladder.build.triton_request import MISSING
        from ladder.build.variants import CompileRequests, variant_facts

        lacking = {
            name
            for name, facts in plan.variants.items()
            if facts.get("reason") == MISSING
        }
        if not lacking:
            return plan
        run, published = self.run, read_facts(self.published.facts)
        sweep, options = run.every_sweep[plan.sweep], run.config.compile.options
        requests = CompileRequests(sweep, run.project.include, run.arch, options)
        facts = {}
        for variant, request in requests.variants.items():
            key = request.keys[-1]
            if variant.id in lacking and key in published:
                facts[variant.id] = variant_facts(variant, request, published[key])
        tasks = tasks_as_compiled(
            plan.tasks, {name: facts.get(name, {}) for name in plan.variants}
        )
        return replace(plan, variants={**plan.variants, **facts}, tasks=tasks)

    def write_records(self, fresh: PublishedFolder) -> None:
        """The archive with the run's records added, in a file of their own."""
        for path in sorted(self.published.records.glob("*.parquet")):
            self._write_archived(path, fresh.records / path.name)
        if self.additions:
            used = [
                self.sessions[name]
                for name in dict.fromkeys(record.session for record in self.additions)
            ]
            began = (
                min(record.time for record in self.additions)
                .replace("-", "")
                .replace(":", "")
            )
            last = max(used, key=lambda session: session.started).tree
            commit = str(last.get("commit") or last.get("digest") or "unknown")[:12]
            write_archive(
                fresh.records / f"{began}-{commit}.parquet", self.additions, used
            )

    def _write_archived(self, path: Path, target: Path) -> None:
        """Copy a file of the archive; with `only`, its records of this commit."""
        target.parent.mkdir(exist_ok=True)
        if (only := self.only) is not None:
            archived = read_archive_file(path)
            kept = archived.of_sessions(lambda session: is_of(session, only))
            if any(record.session not in kept.sessions for record in archived):
                if kept.by_cell:
                    write_archive(target, [*kept], kept.sessions.values())
                return
        shutil.copyfile(path, target)


def error_is_above_bound(check: Mapping[str, Any]) -> bool:
    error, bound = check.get("max_error"), check.get("error_bound")
    return error is not None and (bound is None or error > bound)


def follows(result: Mapping[str, Any]) -> bool:
    """Whether a speed-up with its interval, or a choice, follows from its times."""
    if candidates := result.get("candidates"):
        fewest = min(len(candidate["us"]) for candidate in candidates)
        if len(candidates) > 1 and fewest < 4:
            return False  # an interval takes two groups
        return all(result[name] == value for name, value in decide(candidates).items())
    variant_us, reference_us = result["variant_us"], result["reference_us"]
    if len(variant_us) != len(reference_us):
        return False
    ratios = abba_ratios(variant_us, reference_us)
    if len(ratios) < 2:
        return False
    recorded = [
        result.get(name, 0.0) for name in ("speedup", "speedup_low", "speedup_high")
    ]
    computed = ratio_interval(ratios)
    return all(
        math.isclose(*pair, rel_tol=_ROUNDED)
        for pair in zip(recorded, computed, strict=True)
    )


def _latest() -> str:
    """Later times are in the future, whichever host measured."""
    return time.strftime(
        "%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + _CLOCKS_DIFFER_S)
    )


def published_column(published: PublishedFolder, table: str, column: str) -> list[str]:
    """Each value of one column of a published table, which may have the columns of another release."""
    path = published.tables / f"{table}.csv"
    if not path.is_file():
        return []
    try:
        return list(
            pd.read_csv(path, usecols=[column], dtype=str)[column].dropna().unique()
        )
    except ValueError as error:
        raise LadderError(f"{path}: not a CSV table of {table}: {error}") from error


def _names_its_commit(session: Session) -> bool:
    """Whether the commit that a session names has the session's tree."""
    return bool(
        session.tree.get("digest")
        and session.tree.get("commit")
        and session.tree.get("clean")
    )


def is_of(session: Session, wanted: Mapping[str, Any]) -> bool:
    """Whether a session was measured from a commit's tree: from the commit, or from another one with the same tree."""
    of_commit = session.tree.get("commit") == wanted["commit"] and bool(
        session.tree.get("clean")
    )
    return of_commit or session.tree.get("digest") == wanted["digest"]


def load_publication(
    run: Run, folder: RunFolder, published: PublishedFolder, only: str = ""
) -> Publication:
    """A run's plans, facts and records; with `only`, a commit, those of this commit from run and archive.

    Raises LadderError where a plan or an account is missing, or records of a published session.
    """
    published.refuse_half()
    records, views = read_store(folder.records), {}
    for name in run.sweeps:
        # What a run for one commit did not measure may be in the archive.
        measured = (
            only or not run.measures or folder.account("measured", name).is_file()
        )
        if not folder.plan(name).is_file() or not measured:
            raise LadderError(
                f"{folder.root}: the sweep {name} is not measured; the run is not complete"
            )
        views[name] = PlanRecords(read_plan(folder.plan(name)), records)
    archive = read_archive(published.records)
    sessions = published_column(published, "sessions", "session")
    if lost := sorted({*sessions} - {*archive.sessions}):
        raise LadderError(
            f"{published.records}: the sessions {listed(lost, 3)} of {published.tables / 'sessions.csv'} are in none "
            "of its files; restore them, such as by `git restore`"
        )
    if not only:
        return Publication(run, folder, published, views, records, archive)
    wanted = tree_of(run.project.root, only)
    archive = archive.of_sessions(lambda session: is_of(session, wanted))
    return Publication(run, folder, published, views, records, archive, wanted)


def kept_rows(
    name: str, folder: PublishedFolder, wanted: Sequence[str]
) -> dict[str, DataFrame]:
    """Published rows of a sweep, table by table; none of a table that is not there."""
    kept = {}
    for table in wanted:
        rows = tables.read(table, folder.tables, required=False)
        kept[table] = rows[rows["sweep"] == name]
    return kept


def copy_beside(source: RunFolder, target: RunFolder) -> None:
    """Copy what is of no sweep: which kernels the sanitizer has seen, and how long a whole tuning sweep took."""
    for file, place in (
        (source.sanitizer, target.sanitizer),
        (source.throughput, target.throughput),
    ):
        if file.is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)

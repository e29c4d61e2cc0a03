"""Publishing: a run's records into the archive of its device, and the published tables made from it anew.

Records are merged by key: what the run did not measure stays as it was published, and older records of a cell stay in
the archive. With `only`, the archive keeps the records of one commit; git has the others.
"""

import functools
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.runs import Run
from ladder.gpu.discovery import slug_of
from ladder.measure.choice import decide
from ladder.measure.host import tree_of, tree_with, unknown_commits
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records, read_store
from ladder.model.cell import COUNTERS, cell_name
from ladder.model.errors import LadderError
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.intervals import abba_ratios, ratio_interval
from ladder.model.plan import Plan, tasks_as_compiled
from ladder.model.plan_file import read_facts, read_plan
from ladder.model.record import Record, Session
from ladder.model.schemas import SWEEP_TABLES, Fields
from ladder.results import tables
from ladder.results.collect import OTHER_CODE, accounts_of, collect_sweep, merge
from ladder.results.published_records import (
    public,
    read_archive,
    read_archive_file,
    write_archive,
)
from ladder.results.statistics import listed, records

_ROUNDED = 1e-3
"""Records hold times to 0.1 ns: of 8,906 published ones no speed-up differs from that of its times by over 6e-5."""


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `target` after the block; where the block fails, `target` stays.

    A kill between the two renames leaves `target` moved aside. A run refuses that; the next publication moves it back.
    Raises LadderError where another process publishes there.
    """
    target = target.resolve()  # a link to it stays
    fresh = target.with_name(f".{target.name}.new")
    aside = PublishedFolder(target).aside
    try:
        fresh.mkdir(parents=True)
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
    published: PublishedFolder
    views: Mapping[str, PlanRecords]
    records: Records
    archive: Records
    only: Fields | None = None

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
                        choice = view.decision_behind(sibling)
                        if choice is not None:
                            chosen[id(choice)] = choice
        return list(chosen.values())

    @functools.cached_property
    def additions(self) -> list[Record]:
        """The chosen records that are not in the archive yet."""
        archived = {_identity(record) for record in self.archive}
        return [record for record in self.chosen if _identity(record) not in archived]

    @functools.cached_property
    def sessions(self) -> dict[str, Session]:
        """Sessions of the chosen records; a commit is named where its tree is the session's.

        A host without git knows only the digest of its tree; with local changes, the commit has another tree.
        """
        trees: dict[str, Fields | None] = {
            session.tree["digest"]: session.tree
            for session in self.archive.sessions.values()
            if _names_its_commit(session)
        }
        if self.only is not None:
            trees[self.only["digest"]] = self.only
        sessions = {}
        for name in dict.fromkeys(record.session for record in self.chosen):
            session = self.records.sessions.get(name, Session(name, ""))
            digest = session.tree.get("digest")
            if digest and not _names_its_commit(session):
                if digest not in trees:
                    trees[digest] = tree_with(self.run.project.root, digest)
                session = replace(session, tree=trees[digest] or session.tree)
            sessions[name] = session
        return sessions

    def objections(self) -> list[str]:
        """Why this should not be published; empty where nothing speaks against it."""
        objections = [*self._objections_to_plans(), *self._objections_to_losses()]
        if self.run.measures or self.only:
            objections += self._objections_to_cells()
            objections += self._objections_to_sessions()
        elif not self.additions:
            objections.append(
                "nothing new to publish: a run without a GPU adds no record"
            )
        return objections

    def _objections_to_plans(self) -> Iterator[str]:
        run = self.run
        for name, view in self.views.items():
            plan = plan_sweep(run.every_sweep[name], run.config, run.arch)
            if view.plan.tasks != tasks_as_compiled(plan.tasks, view.plan.variants):
                yield f"the plan of {name} is not that of its file"

    def _objections_to_losses(self) -> Iterator[str]:
        """Published rows that the new publication would lack."""
        kept = {*self.run.every_sweep}
        why = f"without a file in {self.run.project.sweeps}"
        if self.only:
            kept, why = {*self.views}, "and not a sweep of this run"
        sweeps = published_column(self.published, "timings", "sweep")
        lost = [name for name in sweeps if name not in kept]
        if lost:
            yield f"{listed(lost, 5)}: published, {why}: its rows would go"

    def _objections_to_cells(self) -> Iterator[str]:
        """Cells without a record of this checkout, and records that are wrong or do not follow from their times."""
        cells = defaultdict[str, list[str]](list)
        unmeasured = (
            "not measured by this checkout: its code, settings or kernels are others"
        )
        cells[unmeasured] = self._unmeasured()
        for record in self.chosen:
            if record.cell.regime != COUNTERS:
                for fault in _faults(record):
                    cells[fault].append(cell_name(record.variant, record.cell))
        for fault, names in cells.items():
            if names:
                yield f"{len(names)} cell(s) {fault}: {listed(names, 5)}"

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
        """Sessions on another GPU, of an unknown checkout, or of another commit than `only`."""
        device, root = self.run.device, self.run.project.root
        unnamed, commits = dict[str, None](), []
        for session in self.sessions.values():
            gpu, tree = session.gpu.get("name"), session.tree
            slug = slug_of(str(gpu))
            if slug != device and not slug.startswith(f"{device}-mig-"):
                yield f"the session {session.id} is on {gpu!r}, which is not {device}"
            if tree.get("commit"):
                commits.append(str(tree["commit"]))
            else:
                unnamed[str(tree.get("digest"))[:16]] = None
        for digest in unnamed:
            yield f"no commit is known for the tree of digest {digest} it was measured from"
        if self.only is not None:
            sessions = self.sessions.values()
            others = [
                session.id for session in sessions if not is_of(session, self.only)
            ]
            if others:
                commit = self.only["commit"][:12]
                yield f"the session(s) {listed(others, 3)} are not of {commit} without local changes"
        unknown = unknown_commits(root, commits)
        if unknown:
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

    def frames(self) -> tables.Frames:
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

    def _sweep_frames(self, view: PlanRecords) -> tables.Frames:
        """Tables of a sweep of the run. Notes of the profiler and jobs stay as published where the run has none."""
        job, profile = accounts_of(self.run.folder, view.plan.sweep)
        kept = kept_rows(view.plan.sweep, self.published, ("notes", "jobs"))
        if profile is None:  # all other notes are made from records
            notes = kept["notes"]
            notes = notes[notes["stage"] == "profile"]
            profile = {"notes": records(notes[notes["subject"] != OTHER_CODE])}
        plan = self._with_published_facts(view.plan)
        view = replace(view, plan=plan, records=self.published_records, fall_back=True)
        part = collect_sweep(view, job, profile)
        return part if job else part | {"jobs": kept["jobs"]}

    def _with_published_facts(self, plan: Plan) -> Plan:
        """The plan, with published facts of the variants whose compiler this run lacked."""
        # With the bindings of CUDA, which tables are read without.
        from ladder.build.triton_request import MISSING
        from ladder.build.variants import variant_facts

        reasons = {facts.get("reason") for facts in plan.variants.values()}
        if MISSING not in reasons:
            return plan
        run, published = self.run, read_facts(self.published.facts)
        requests = run.requests(run.every_sweep[plan.sweep])
        variants = dict(plan.variants)
        # Facts that launches follow from; in the plan others have them already.
        compiled: dict[str, Fields] = {name: {} for name in variants}
        for variant, request in requests.variants.items():
            known = published.get(request.keys[-1])
            if known and variants[variant.id].get("reason") == MISSING:
                facts = variant_facts(variant, request, known)
                variants[variant.id] = compiled[variant.id] = facts
        tasks = tasks_as_compiled(plan.tasks, compiled)
        return replace(plan, variants=variants, tasks=tasks)

    def write_records(self, fresh: PublishedFolder) -> None:
        """The archive with the run's records added, in a file of their own."""
        for path in sorted(self.published.records.glob("*.parquet")):
            self._write_archived(path, fresh.records / path.name)
        if not self.additions:
            return
        names = dict.fromkeys(record.session for record in self.additions)
        sessions = [self.sessions[name] for name in names]
        began = min(record.time for record in self.additions)
        began = began.replace("-", "").replace(":", "")
        tree = max(sessions, key=lambda session: session.started).tree
        commit = str(tree.get("commit") or tree.get("digest") or "unknown")[:12]
        path = fresh.records / f"{began}-{commit}.parquet"
        write_archive(path, self.additions, sessions)

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


def _identity(record: Record) -> tuple[str, str, str]:
    return record.key, record.session, record.time


def _faults(record: Record) -> Iterator[str]:
    """What of a record speaks against publishing it."""
    if record.status == "incorrect":
        yield "with an incorrect result"
    if record.status != "ok":
        return
    check = record.result.get("check") or {}
    if check.get("max_error") is None:
        yield "timed but not verified"
    elif not check["max_error"] <= check.get("error_bound", 0.0):
        yield "with an error above its bound"
    if not follows(record.result):
        yield "whose speed-up is not that of its times"


def follows(result: Fields) -> bool:
    """Whether a speed-up with its interval, or a choice, follows from its times."""
    candidates = result.get("candidates")
    if candidates:
        if len(candidates) > 1 and min(len(row["us"]) for row in candidates) < 4:
            return False  # an interval takes two groups of pairs
        return decide(candidates).items() <= result.items()
    variant_us, reference_us = result["variant_us"], result["reference_us"]
    if len(variant_us) != len(reference_us):
        return False
    ratios = abba_ratios(variant_us, reference_us)
    if len(ratios) < 2:
        return False
    names = ("speedup", "speedup_low", "speedup_high")
    recorded = [result.get(name, 0.0) for name in names]
    return bool(np.allclose(recorded, ratio_interval(ratios), rtol=_ROUNDED, atol=0.0))


def published_column(published: PublishedFolder, table: str, column: str) -> list[str]:
    """Each value of one column of a published table, which may have the columns of another release."""
    path = published.tables / f"{table}.csv"
    if not path.is_file():
        return []
    try:
        values = pd.read_csv(path, usecols=[column], dtype=str)[column]
    except ValueError as error:
        raise LadderError(f"{path}: not a CSV table of {table}: {error}") from error
    return list(values.dropna().unique())


def _names_its_commit(session: Session) -> bool:
    """Whether the commit that a session names has the session's tree."""
    tree = session.tree
    return bool(tree.get("digest") and tree.get("commit") and tree.get("clean"))


def is_of(session: Session, wanted: Fields) -> bool:
    """Whether a session was measured from a commit's tree: from the commit, or from another one with the same tree."""
    tree = session.tree
    from_commit = tree.get("commit") == wanted["commit"] and tree.get("clean")
    return bool(from_commit or tree.get("digest") == wanted["digest"])


def load_publication(run: Run, published: PublishedFolder, only: str) -> Publication:
    """A run's plans, facts and records; with `only`, a commit, those of this commit from run and archive.

    Raises LadderError where a plan or an account is missing, or records of a published session.
    """
    published.refuse_half()
    folder = run.folder
    records, views = read_store(folder.records), {}
    for name in run.sweeps:
        needed = [folder.plan(name)]
        # What a run for one commit did not measure may be in the archive.
        if run.measures and not only:
            needed.append(folder.account("measured", name))
        if not all(path.is_file() for path in needed):
            raise LadderError(
                f"{folder.root}: the sweep {name} is not measured; the run is not complete"
            )
        views[name] = PlanRecords(read_plan(folder.plan(name)), records)
    archive = read_archive(published.records)
    sessions = published_column(published, "sessions", "session")
    lost = sorted({*sessions} - {*archive.sessions})
    if lost:
        raise LadderError(
            f"{published.records}: the sessions {listed(lost, 3)} of {published.tables / 'sessions.csv'} are in none "
            "of its files; restore them, such as by `git restore`"
        )
    if not only:
        return Publication(run, published, views, records, archive)
    tree = tree_of(run.project.root, only)
    archive = archive.of_sessions(lambda session: is_of(session, tree))
    return Publication(run, published, views, records, archive, tree)


def kept_rows(
    name: str, folder: PublishedFolder, wanted: Sequence[str]
) -> tables.Frames:
    """Published rows of a sweep, table by table; none of a table that is not there."""
    frames = {
        table: tables.read(table, folder.tables, required=False) for table in wanted
    }
    return tables.of_sweep(frames, name, wanted)


def copy_beside(source: RunFolder, target: RunFolder) -> None:
    """Copy what is of no sweep: which kernels the sanitizer has seen."""
    if source.sanitizer.is_file():
        target.sanitizer.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.sanitizer, target.sanitizer)

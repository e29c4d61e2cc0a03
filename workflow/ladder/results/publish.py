"""Publishing: a run's records into the archive of its device, and the published tables made from it anew.

Records are merged by key: what the run did not measure stays as it was published, and what was published before stays
in the archive. Or what was measured from one commit takes the place of all else, of which a history stays.
"""

import functools
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

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
from ladder.results.history import write_history
from ladder.results.published_records import (
    public,
    public_uuid,
    read_archive,
    read_archive_file,
    write_archive,
)
from ladder.results.statistics import listed

_ROUNDED = 1e-3
"""Records hold times to 0.1 ns: of 8,906 published ones no speed-up differs from that of its times by over 6e-5."""
_CLOCKS_DIFFER_S = 3600
_OF_NO_SWEEP = ("clock_nvbench", "zeros", "sanitizer")
_MADE_BY = "the commands clock, zeros and sanitize make them"
_PLAIN = str.maketrans("", "", "-:")  # of a time, for names of files


@dataclass(frozen=True)
class Publication:
    """What a run adds to what is published of its device: views of its sweeps over its own records, and the archive.

    `only`: the tree of the commit that all of it must be measured from, if any; the archive has its records alone.
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
        """Records of the run that stand for a cell of its plans, and those alike from other sessions."""
        found: dict[int, Record] = {}
        for view in self.views.values():
            for _, task in view.launched():
                for regime in (*view.plan.regimes_of(task), *([COUNTERS] if task.counted else [])):
                    record = view.current_record(task, regime)
                    alike = view.same_conditions(record) if record else []
                    choices = [choice for one in alike if (choice := view.choice(one)) is not None]
                    found |= {id(one): one for one in (*alike, *choices)}
        return list(found.values())

    @functools.cached_property
    def additions(self) -> list[Record]:
        """The chosen records that are not in the archive yet."""
        known = {(one.key, one.session, one.time) for one in self.archive}
        return [one for one in self.chosen if (one.key, one.session, one.time) not in known]

    @functools.cached_property
    def sessions(self) -> dict[str, Session]:
        """Sessions of the chosen records; a commit is named where its tree is the session's.

        A host without git knows the digest of its tree only, and one with local changes no commit that holds it.
        """
        root, found = self.run.project.root, {}
        here = tree(root)
        known: dict[str, Mapping[str, Any] | None] = {here["digest"]: here if here["clean"] else None}
        if self.only is not None:
            known.setdefault(self.only["digest"], self.only)
        for one in self.archive.sessions.values():  # what was published before, however old its commit is
            if one.tree.get("digest") and one.tree.get("commit") and one.tree.get("clean"):
                known.setdefault(one.tree["digest"], one.tree)
        for name in dict.fromkeys(record.session for record in self.chosen):
            session = self.records.sessions.get(name, Session(name, ""))
            digest = session.tree.get("digest")
            if digest and not (session.tree.get("commit") and session.tree.get("clean")):
                if digest not in known:
                    known[digest] = tree_with(root, digest)
                session = replace(session, tree=known[digest] or session.tree)
            found[name] = session
        return found

    def objections(self) -> list[str]:
        """Why this should not be published; empty where nothing speaks against it."""
        run, found, missing = self.run, list[str](), list[str]()
        for name, view in self.views.items():
            of_file = plan_sweep(run.every_sweep[name], run.config, run.arch).tasks
            if view.plan.tasks != tasks_as_compiled(of_file, view.plan.variants):
                found.append(f"the plan of {name} is not that of its file")
            known = replace(view, records=self.published_records) if self.only else view
            unknown = [task for _, task in known.launched() if known.current_record(task) is None]
            missing += [f"{name}: {task.variant} at {dict(task.cell.size)}" for task in unknown]
        names = published_column(self.published, "timings", "sweep")
        kept, why = {*run.every_sweep}, f"without a file in {run.project.sweeps}"
        if self.only:
            kept, why = {*self.views}, "and not a sweep of this run"
        if gone := [name for name in names if name not in kept]:
            found.append(f"{listed(gone, 5)}: published, {why}: its rows would go")
        of_no_sweep = {*_OF_NO_SWEEP} & {*_tables_of(self.published)}
        if self.only and (gone := sorted(of_no_sweep - {*_tables_of(self.folder)})):
            found.append(
                f"{listed(gone, 5)}: published, and not in {self.folder.tables}: would go; {_MADE_BY}"
            )
        if not run.measures and not self.only:
            if not self.additions:
                found.append("nothing new to publish: a run without a GPU adds no record")
            return found
        timed = [
            (cell_name(one.variant, one.cell), one) for one in self.chosen if one.cell.regime != COUNTERS
        ]
        good, latest = [(name, one.result) for name, one in timed if one.status == "ok"], _latest()
        checks = [(name, one.get("check") or {}) for name, one in good]
        cells = {
            "not measured by this checkout: its code, settings or kernels are others": missing,
            "with an incorrect result": [name for name, one in timed if one.status == "incorrect"],
            "timed but not verified": [name for name, check in checks if check.get("max_error") is None],
            "with an error above its bound": [name for name, check in checks if error_is_above_bound(check)],
            "whose speed-up is not that of its times": [name for name, one in good if not follows(one)],
            "with a time in the future": [name for name, one in timed if one.time > latest],
        }
        found += [f"{len(each)} cell(s) {what}: {listed(each, 5)}" for what, each in cells.items() if each]
        if not timed and not self.archive.by_cell:
            return [*found, "it has no timings at all"]
        return [*found, *self._objections_to_sessions()]

    def _objections_to_sessions(self) -> Iterator[str]:
        """Sessions on another GPU, in the future, from a checkout that this repository does not know, or not from the
        commit that all must be from.
        """
        device, sessions = self.folder.root.name, self.sessions.values()
        for one in sessions:
            slug = slug_of(str(one.gpu.get("name")))
            if slug != device and not slug.startswith(f"{device}-mig-"):
                yield f"the session {one.id} is on {one.gpu.get('name')!r}, which is not {device}"
            if one.started > _latest():
                yield f"the session {one.id} began in the future, at {one.started}"
        trees = [one.tree for one in sessions if not one.tree.get("commit")]
        for digest in dict.fromkeys(str(one.get("digest"))[:16] for one in trees):
            yield f"no commit is known for the tree of digest {digest} it was measured from"
        only = self.only
        if only is not None and (others := [one.id for one in sessions if not is_of(one, only)]):
            yield f"the session(s) {listed(others, 3)} are not of {only['commit'][:12]} without local changes"
        root = self.run.project.root
        commits = [str(one.tree["commit"]) for one in sessions if one.tree.get("commit")]
        if unknown := unknown_commits(root, commits):
            yield (
                f"the commit(s) {listed(unknown, 3)} are not in the git repository {root}: fetch them, or publish from "
                "the checkout that measured"
            )

    @functools.cached_property
    def published_records(self) -> Records:
        """Archive and additions. The same GPU has one UUID, be its session in the archive or new."""
        sessions = {**self.archive.sessions, **self.sessions}
        return Records().add((*map(public, sessions.values()), *self.archive, *self.additions))

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables of the device with this published, in the order of the project's sweeps."""
        parts = {}
        for name in self.run.every_sweep:
            if name not in self.views:
                if not self.only:
                    parts[name] = kept_rows(name, self.published, SWEEP_TABLES)
                continue
            view = self.views[name]
            plan = self._with_published_facts(view.plan)
            view = replace(view, plan=plan, records=self.published_records, fall_back=True)
            jobs, profile = accounts_of(self.folder, view.plan)
            kept = kept_rows(name, self.published, ("notes", "jobs"))
            if profile is None:  # all other notes are made from records
                notes = kept["notes"][kept["notes"]["stage"] == "profile"]
                profile = {"notes": notes[notes["subject"] != OTHER_CODE].to_dict("records")}
            parts[name] = collect_sweep(view, jobs, profile)
            if not jobs:
                parts[name]["jobs"] = kept["jobs"]
        measured = {name: part for name, part in parts.items() if len(part["timings"])}
        return merge(measured, os.cpu_count() or 1)

    def _with_published_facts(self, plan: Plan) -> Plan:
        """A plan in which variants whose compiler this run lacked are as they were published."""
        # With the bindings of CUDA, which tables are read without.
        from ladder.build.triton_request import MISSING
        from ladder.build.variants import CompileRequests, variant_facts

        lacking = {name for name, facts in plan.variants.items() if facts.get("reason") == MISSING}
        if not lacking:
            return plan
        run, published = self.run, read_facts(self.published.facts)
        asked = CompileRequests(
            run.every_sweep[plan.sweep], run.project.include, run.arch, run.config.compile.options
        )
        facts = {
            variant.id: variant_facts(variant, request, published[request.keys[-1]])
            for variant, request in asked.variants.items()
            if variant.id in lacking and request.keys[-1] in published
        }
        tasks = tasks_as_compiled(plan.tasks, {name: facts.get(name, {}) for name in plan.variants})
        return replace(plan, variants={**plan.variants, **facts}, tasks=tasks)

    def write_records(self, fresh: PublishedFolder) -> None:
        """The archive with the run's records added, in a file of their own. Of records that are not of the commit that
        all must be from a history stays."""
        if self.published.history.is_dir():
            shutil.copytree(self.published.history, fresh.history)
        left = Records()
        for path in sorted(self.published.records.glob("*.parquet")):
            every = read_archive_file(path)
            kept = every.of_sessions(lambda one: not self.only or is_of(one, self.only))
            if others := [one for one in every if one.session not in kept.sessions]:
                left.add((*every.sessions.values(), *others))
                if kept.by_cell:
                    write_archive(fresh.records / path.name, [*kept], kept.sessions.values())
            else:
                fresh.records.mkdir(exist_ok=True)
                shutil.copyfile(path, fresh.records / path.name)
        if left.by_cell:
            ended = max(one.time for one in left).translate(_PLAIN)
            write_history(fresh.history / f"{ended}.parquet", left)
        if self.additions:
            used = [self.sessions[name] for name in {record.session: None for record in self.additions}]
            began = min(one.time for one in self.additions).translate(_PLAIN)
            last = max(used, key=lambda session: session.started).tree
            commit = str(last.get("commit") or last.get("digest") or "unknown")[:12]
            write_archive(fresh.records / f"{began}-{commit}.parquet", self.additions, used)


def error_is_above_bound(check: Mapping[str, Any]) -> bool:
    error, bound = check.get("max_error"), check.get("error_bound")
    return error is not None and (bound is None or error > bound)


def follows(result: Mapping[str, Any]) -> bool:
    """Whether a speed-up with its interval, or a choice, follows from its times."""
    if candidates := result.get("candidates"):
        fewest = min(len(one["us"]) for one in candidates)
        if len(candidates) > 1 and fewest < 4:
            return False  # an interval takes two groups
        decided = decide(candidates)
        return all(result[name] == value for name, value in decided.items())
    own, reference = result["variant_us"], result["reference_us"]
    if len(own) != len(reference):
        return False
    ratios = abba_ratios(own, reference)
    if len(ratios) < 2:
        return False
    made = ratio_interval(ratios)
    said = (result.get(name, 0.0) for name in ("speedup", "speedup_low", "speedup_high"))
    return all(math.isclose(one, other, rel_tol=_ROUNDED) for one, other in zip(said, made, strict=True))


def _latest() -> str:
    """Later times are in the future, whichever host measured."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + _CLOCKS_DIFFER_S))


def published_column(published: PublishedFolder, table: str, column: str) -> list[str]:
    """Each value of one column of a published table, which may have the columns of an earlier release."""
    path = published.tables / f"{table}.csv"
    if not path.is_file():
        return []
    try:
        return list(pd.read_csv(path, usecols=[column], dtype=str)[column].dropna().unique())
    except ValueError as error:
        raise LadderError(f"{path}: not a CSV table of {table}: {error}") from error


def is_of(session: Session, wanted: Mapping[str, Any]) -> bool:
    """Whether a session was measured from a commit's tree: from the commit, or from another one with the same tree."""
    own = session.tree
    of_commit = own.get("commit") == wanted["commit"] and bool(own.get("clean"))
    return of_commit or own.get("digest") == wanted["digest"]


def load_publication(run: Run, folder: RunFolder, published: PublishedFolder, only: str = "") -> Publication:
    """A run's plans, facts and records. Raises LadderError where something is missing that it consists of.

    `only`: a commit; what was measured from it, by the run or before, is all that is published.
    """
    published.refuse_half()
    records, views = read_store(folder.records), {}
    for name in run.sweeps:
        # What a run for one commit did not measure may be in the archive.
        measured = only or not run.measures or folder.account("measured", name).is_file()
        if not folder.plan(name).is_file() or not measured:
            raise LadderError(f"{folder.root}: the sweep {name} is not measured; the run is not complete")
        views[name] = PlanRecords(read_plan(folder.plan(name)), records)
    archive = read_archive(published.records)
    if lost := sorted({*published_column(published, "sessions", "session")} - {*archive.sessions}):
        raise LadderError(
            f"{published.records}: the sessions {listed(lost, 3)} of {published.tables / 'sessions.csv'} are in none "
            "of its files; restore them, such as by `git restore`"
        )
    wanted = tree_of(run.project.root, only) if only else None
    if wanted is not None:
        archive = archive.of_sessions(lambda one: is_of(one, wanted))
    return Publication(run, folder, published, views, records, archive, wanted)


def kept_rows(name: str, folder: PublishedFolder, wanted: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Published rows of a sweep, table by table; none of a table that is not there."""
    found = {table: tables.read(table, folder.tables, required=False) for table in wanted}
    return {table: rows[rows["sweep"] == name] for table, rows in found.items()}


def _tables_of(folder: RunFolder) -> list[str]:
    """Which tables of no sweep are there."""
    return [name for name in _OF_NO_SWEEP if (folder.tables / f"{name}.csv").is_file()]


def copy_checks(source: RunFolder, target: RunFolder) -> None:
    """Copy what is of no sweep: checks of the timer, times with zeros, what the sanitizer found, tables of earlier
    releases, with GPUs as published."""
    target.tables.mkdir(parents=True, exist_ok=True)
    for name in _tables_of(source):
        found = tables.read(name, source.tables)
        if "gpu_uuid" in found:
            uuids = found["gpu_uuid"].map(public_uuid, na_action="ignore")
            found["gpu_uuid"] = uuids.astype(found["gpu_uuid"].dtype)
        tables.write({name: found}, target.tables)
    if source.throughput.is_file():
        shutil.copyfile(source.throughput, target.throughput)

"""Publishing: a run's records into the archive of its device, and the published tables made from it anew.

Records are merged by key: what the run did not measure stays as it was published, and what was published before
stays in the archive.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.runs import Run
from ladder.measure.conditions import compiled
from ladder.measure.host import tree
from ladder.measure.store import Records, read_store
from ladder.model.cell import COUNTERS
from ladder.model.errors import LadderError
from ladder.model.files import read_json
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan import Plan, read_plan
from ladder.model.record import Record, Session
from ladder.model.schemas import SWEEP_TABLES
from ladder.results import tables
from ladder.results.archive import read_archive, write_archive
from ladder.results.collect import collect_sweep, merge
from ladder.results.compare import name_of
from ladder.results.statistics import count
from ladder.measure.view import View

CLOCK_TABLES = ("clock_nvbench", "clock_aa")
_SHOWN = 5


@dataclass(frozen=True)
class Publication:
    """What a run adds to what is published of its device."""

    run: Run
    views: Mapping[str, View]
    """Of the run's sweeps, over its own records."""
    archive: Records
    """What was published before."""

    def chosen(self) -> list[Record]:
        """Records of the run that stand for a cell of its plans, and those alike from other sessions."""
        found: dict[int, Record] = {}
        for view in self.views.values():
            for _, task in view.launched():
                for regime in (*view.plan.regimes, *([COUNTERS] if task.counted else [])):
                    record = view.find(task, regime)
                    found |= {id(one): one for one in (view.alike(record) if record else ())}
        return list(found.values())

    def missing(self) -> list[str]:
        """Cells without a record under the conditions of this checkout."""
        return [
            f"{view.plan.sweep}: {task.variant} at {dict(task.cell.size)}"
            for view in self.views.values()
            for _, task in view.launched()
            if view.find(task) is None
        ]

    def sessions(self) -> dict[str, Session]:
        """Sessions of the chosen records; the commit of this checkout is named where the trees are the same.

        A host without git knows the digest of its tree only, and one with local changes no commit that holds it.
        """
        here = tree(self.run.project.root)
        found = {}
        for record in self.chosen():
            session = self._session(record.session)
            known = session.tree.get("commit") and session.tree.get("clean")
            if not known and here["clean"] and session.tree.get("digest") == here["digest"]:
                session = replace(session, tree=here)
            found[session.id] = session
        return found

    def _session(self, name: str) -> Session:
        for view in self.views.values():
            if name in view.records.sessions:
                return view.records.sessions[name]
        return Session(name, "")

    def objections(self) -> list[str]:
        """Why this should not be published; empty where nothing speaks against it."""
        config, arch = self.run.config, self.run.arch
        found = [
            f"the plan of {name} is not that of its file"
            for name, view in self.views.items()
            if view.plan.tasks != plan_sweep(self.run.every_sweep[name], config, arch).tasks
        ]
        timed = [one for one in self.chosen() if one.cell.regime != COUNTERS]
        if not self.run.measures:
            return found
        wrong = [name_of(one) for one in timed if one.status == "incorrect"]
        unchecked = [
            name_of(one)
            for one in timed
            if one.status == "ok" and (one.result.get("check") or {}).get("max_error") is None
        ]
        for names, what in (
            (self.missing(), "not measured by this checkout: its code, settings or kernels are others"),
            (wrong, "with an incorrect result"),
            (unchecked, "timed but not verified"),
        ):
            if names:
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                found.append(f"{count(len(names), 'cell')} {what}: {'; '.join(names[:_SHOWN])}{more}")
        if not timed:
            found.append("it has no timings at all")
        homeless = {one.tree.get("digest") for one in self.sessions().values() if not one.tree.get("commit")}
        if homeless:
            digests = ", ".join(str(digest)[:16] for digest in homeless)
            found.append(f"no commit is known for the tree it was measured from (digest {digests})")
        return found

    def additions(self) -> list[Record]:
        """Records that are not in the archive yet."""
        known = {(one.key, one.session, one.time) for one in self.archive}
        return [one for one in self.chosen() if (one.key, one.session, one.time) not in known]


def load_publication(run: Run, folder: RunFolder, published: PublishedFolder) -> Publication:
    """A run's plans, facts and records. Raises LadderError where something is missing that it consists of."""
    records = read_store(folder.records)
    views = {}
    for name in run.sweeps:
        measured = not run.measures or folder.account("measured", name).is_file()
        if not folder.plan(name).is_file() or not measured:
            raise LadderError(f"{folder.root}: the sweep {name} is not measured; the run is not complete")
        plan = read_plan(folder.plan(name))
        views[name] = View(plan, compiled(plan, folder), records)
    return Publication(run, views, read_archive(published.records))


def rows_of_sweep(name: str, folder: PublishedFolder, names: Iterable[str]) -> dict[str, pd.DataFrame]:
    """Published rows of a sweep, table by table; none of a table that is not there."""
    found = {}
    for table in names:
        there = tables.exists(table, folder.tables)
        rows = tables.read(table, folder.tables) if there else tables.frame(table, [])
        found[table] = rows[(rows["sweep"] == name).fillna(False)].reset_index(drop=True)
    return found


def _kept(name: str, old: PublishedFolder) -> dict[str, pd.DataFrame]:
    """Published tables of a sweep that the run is not about."""
    found = rows_of_sweep(name, old, [table for table in SWEEP_TABLES if table != "resources"])
    resources = tables.frame("resources", [])
    if tables.exists("resources", old.tables):
        resources = tables.read("resources", old.tables)
        named = set(found["timings"]["variant"]) | set(found["timings"]["reference"].dropna())
        resources = resources[resources["variant"].isin(named)]
    return found | {"resources": resources}


def published_frames(
    publication: Publication, folder: RunFolder, old: PublishedFolder
) -> dict[str, pd.DataFrame]:
    """The tables of a device after a publication, in the order of the project's sweeps."""
    both = Records(sessions={**publication.archive.sessions, **publication.sessions()})
    for record in (*publication.archive, *publication.additions()):
        both.add(record)
    both.sort()
    parts: dict[str, dict[str, pd.DataFrame]] = {}
    for name in publication.run.every_sweep:
        view = publication.views.get(name)
        if view is None:
            parts[name] = _kept(name, old)
            continue
        accounts = read_json(folder.account("measured", name)), read_json(folder.account("profiled", name))
        parts[name] = collect_sweep(replace(view, records=both, earlier=True), *accounts)
        if not publication.run.measures:
            parts[name] |= rows_of_sweep(name, old, ("notes", "jobs"))
    return merge({name: part for name, part in parts.items() if len(part["timings"])})


def copy_clock(source: RunFolder, target: RunFolder) -> None:
    """Take over what the checks of the timer said, where they were made."""
    for name in CLOCK_TABLES:
        for path in (source.tables / f"{name}.csv", source.tables / f"{name}.parquet"):
            if path.is_file():
                target.tables.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target.tables / path.name)
    if source.throughput.is_file():
        shutil.copyfile(source.throughput, target.throughput)


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `target` by renaming once the block is done: nobody reads half of it."""
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        yield fresh
        if target.exists():
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)


def write_records(publication: Publication, old: PublishedFolder, fresh: PublishedFolder) -> None:
    """The archive with the run's records added, in a file of their own."""
    if old.records.is_dir():
        shutil.copytree(old.records, fresh.records)
    additions = publication.additions()
    if additions:
        sessions = publication.sessions()
        used = [sessions[name] for name in dict.fromkeys(record.session for record in additions)]
        first, last = min(one.time for one in additions), max(used, key=lambda session: session.started)
        commit = str(last.tree.get("commit") or last.tree.get("digest") or "unknown")[:12]
        name = f"{first.replace('-', '').replace(':', '')}-{commit}.parquet"
        write_archive(fresh.records / name, additions, used)

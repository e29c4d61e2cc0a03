"""Steps that read records and tables: they need neither a GPU nor the compiler."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from ladder.cli.options import Folder, PlanFile, Published, SweepNames, folder_of, project
from ladder.measure import host
from ladder.measure.conditions import compiled
from ladder.measure.store import Records, read_store
from ladder.measure.view import View
from ladder.model.files import read_json, write_json
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan import Plan, read_plan
from ladder.model.schemas import SWEEP_TABLES
from ladder.results import tables
from ladder.results.archive import read_archive
from ladder.results.collect import changed_sources, collect_sweep
from ladder.results.collect import merge as merge_frames
from ladder.results.environment import measured_on
from ladder.results.publish import copy_clock
from ladder.results.statistics import records as rows_of


def records_of(folder: RunFolder, published: Path | None, plans: Iterable[Plan] = ()) -> Records:
    """The run's store, or where nothing is measured the published records, of the plans' kernels or all."""
    if published is None:
        return read_store(folder.records)
    kernels = {task.cell.kernel for plan in plans for task in plan.tasks}
    return read_archive(PublishedFolder(published).records, kernels or None)


def _stand_in(view: View, published: PublishedFolder) -> dict[str, Any]:
    """Tables of a sweep from published records: what they leave open becomes a note."""
    frames = collect_sweep(view)
    name = view.plan.sweep
    notes = [
        {"sweep": name, "stage": "published", "subject": row["subject"], "reason": "not in the published run"}
        for row in rows_of(frames["notes"])
        if row["stage"] == "measure"
    ]
    notes += [
        {
            "sweep": name,
            "stage": "published",
            "subject": kernel,
            "reason": f"source differs from the published run's ({count} variants)",
        }
        for kernel, count in changed_sources(view).items()
    ]
    if not view.records.by_cell:
        reason = f"no published measurements in {published.root.name}"
        notes = [{"sweep": name, "stage": "published", "subject": name, "reason": reason}]
    parts = {"notes": [tables.frame("notes", notes)], "jobs": []}
    for table, own in parts.items():
        if tables.exists(table, published.tables):
            old = tables.read(table, published.tables)
            own.insert(0, old[(old["sweep"] == name).fillna(False)])
        frames[table] = tables.concat(own, table).reset_index(drop=True)
    return frames


def collect(plan: PlanFile, published: Published = None) -> None:
    """Turn the records of a sweep into tables: sweeps/NAME/*.csv and .parquet."""
    folder, given = folder_of(plan), read_plan(plan)
    made, records = compiled(given, folder), records_of(folder, published, [given])
    if published is not None:
        frames = _stand_in(View(given, made, records, earlier=True), PublishedFolder(published))
    else:
        accounts = (
            read_json(folder.account("measured", given.sweep)),
            read_json(folder.account("profiled", given.sweep)),
        )
        frames = collect_sweep(View(given, made, records), *accounts)
    tables.write_all(frames, folder.sweep(given.sweep))
    counts = frames["timings"]["status"].value_counts()
    summary = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no timings"
    logging.info("%s: %d rows: %s", given.sweep, len(frames["timings"]), summary)


def merge(folder_: Folder, sweeps: SweepNames, published: Published = None) -> None:
    """Join the tables of all sweeps of a run."""
    folder = RunFolder(folder_)
    parts = {
        name: {table: tables.read(table, folder.sweep(name)) for table in SWEEP_TABLES} for name in sweeps
    }
    tables.write_all(merge_frames(parts), folder.tables)
    if published is not None:
        copy_clock(PublishedFolder(published), folder)


def environment(
    context: typer.Context,
    folder_: Folder,
    arch: Annotated[str, typer.Option(help="Architecture it was compiled for.")],
    published: Published = None,
) -> None:
    """Record where a run's numbers were measured, from their records, and what analysed them."""
    folder = RunFolder(folder_)
    sessions = tables.read("sessions", folder.tables)["session"].dropna().unique()
    measured = measured_on(read_store(folder.records), sessions)
    document = here(project(context).root, folder.root.name, arch, folder) | measured
    document |= {"timings_from": "measured" if measured else "none", "published": None}
    if published is not None and (source := read_json(PublishedFolder(published).environment)) is not None:
        same = reproduced(PublishedFolder(published), folder)
        document |= {"timings_from": "published", "published": source, "reproduced_cubins": same}
    write_json(folder.environment, document)


def here(root: Path, device: str, arch: str, folder: RunFolder) -> dict[str, Any]:
    """What analysed a run: this host, its software and this checkout."""
    facts = next((read_json(path) for path in sorted(folder.cubins.glob("*.json"))), None) or {}
    return {
        "device": device,
        "arch": arch,
        "gpu": None,
        "gpus": [],
        **host.versions(),
        "nvrtc": facts.get("nvrtc"),
        "ncu": host.ncu_version(),
        "host": host.host(),
        "tree": host.tree(root),
        "started": host.now(),
        "finished": host.now(),
        "reproduced_cubins": None,
    }


def reproduced(published: PublishedFolder, folder: RunFolder) -> dict[str, int] | None:
    """How many of the published variants compile here to the very same cubin; None where none is published."""
    if not tables.exists("resources", published.tables):
        return None
    resources = tables.read("resources", published.tables)
    found = [
        (digest, (read_json(folder.facts(variant)) or {}).get("cubin_sha256"))
        for variant, digest in zip(resources["variant"], resources["cubin_sha256"], strict=True)
        if isinstance(digest, str) and folder.facts(variant).is_file()
    ]
    return {"same": sum(one == other for one, other in found), "of": len(found)}

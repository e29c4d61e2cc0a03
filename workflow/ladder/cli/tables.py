"""Steps that read records and tables: they need neither a GPU nor the compiler."""

import logging
from typing import Annotated

import pandas as pd
import typer

from ladder.cli.options import Folder, PlanFile, Published, SweepNames, folder_of, project
from ladder.measure.store import read_store
from ladder.measure.view import View
from ladder.model.files import read_json, write_json
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan import read_plan
from ladder.model.schemas import SWEEP_TABLES
from ladder.results import tables
from ladder.results.archive import records_of
from ladder.results.collect import changed_sources, collect_sweep
from ladder.results.collect import merge as merge_frames
from ladder.results.environment import analysed_here, measured_on, reproduced
from ladder.results.publish import copy_clock, kept_rows


def _stand_in(view: View, published: PublishedFolder) -> dict[str, pd.DataFrame]:
    """Tables of a sweep from published records: what they leave open becomes a note."""
    name, frames = view.plan.sweep, collect_sweep(view)
    missing = frames["notes"][frames["notes"]["stage"] == "measure"]["subject"]
    said = [(subject, "not in the published run") for subject in missing]
    for kernel, variants in changed_sources(view).items():
        said.append((kernel, f"source differs from the published run's ({variants} variants)"))
    if not view.records.by_cell:
        said = [(name, f"no published measurements in {published.root.name}")]
    rows = [{"sweep": name, "stage": "published", "subject": one, "reason": why} for one, why in said]
    kept = kept_rows(name, published, ("notes", "jobs"))
    return frames | kept | {"notes": tables.concat([kept["notes"], tables.frame("notes", rows)], "notes")}


def collect(plan: PlanFile, published: Published = None) -> None:
    """Turn the records of a sweep into tables: sweeps/NAME/*.csv and .parquet."""
    folder, given = folder_of(plan), read_plan(plan)
    view = View(given, records_of(folder, published, [given]), published is not None)
    if published is not None:
        frames = _stand_in(view, PublishedFolder(published))
    else:
        accounts = [read_json(folder.account(job, given.sweep)) for job in ("measured", "profiled")]
        frames = collect_sweep(view, *accounts)
    tables.write(frames, folder.sweep(given.sweep))
    counts = frames["timings"]["status"].value_counts()
    summary = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no timings"
    logging.info("%s: %d rows: %s", given.sweep, len(frames["timings"]), summary)


def merge(folder_: Folder, sweeps: SweepNames, published: Published = None) -> None:
    """Join the tables of all sweeps of a run."""
    folder = RunFolder(folder_)
    parts = {
        name: {table: tables.read(table, folder.sweep(name)) for table in SWEEP_TABLES} for name in sweeps
    }
    tables.write(merge_frames(parts), folder.tables)
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
    measured = measured_on(read_store(folder.records), tables.read("sessions", folder.tables))
    document = analysed_here(project(context).root, folder.root.name, arch) | measured
    document |= {"timings_from": "measured" if measured else "none", "published": None}
    if published is not None and (source := read_json(PublishedFolder(published).environment)) is not None:
        same = reproduced(PublishedFolder(published), folder)
        document |= {"timings_from": "published", "published": source, "reproduced_cubins": same}
    write_json(folder.environment, document)

"""Steps from records to tables, verdicts, figures and report: they need neither a GPU nor the compiler.

Slow imports stand inside the step that needs them.
"""

import logging
import re
from typing import Annotated

import pandas as pd
import typer

from ladder.cli.load import sweeps_of
from ladder.cli.options import (
    Beside,
    Folder,
    Into,
    Published,
    SweepNames,
    project,
    with_tables,
)
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import read_store
from ladder.model.document import AN_ARCH, ARCH
from ladder.model.errors import refuse
from ladder.model.files import replace_file, write_json
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan_file import read_plan
from ladder.model.schemas import SAMPLES, SWEEP_TABLES
from ladder.results import tables
from ladder.results.collect import accounts_of, changed_code, collect_sweep, merge
from ladder.results.environment import (
    analysed_here,
    measured_on,
    read_environment,
    reproduced,
)
from ladder.results.publish import copy_beside, kept_rows
from ladder.results.published_records import records_of, write_samples
from ladder.results.run_data import RunData
from ladder.results.statistics import count


def _stand_in(view: PlanRecords, published: PublishedFolder) -> dict[str, pd.DataFrame]:
    """Tables of a sweep from published records; a note says what these lack."""
    sweep, frames = view.plan.sweep, collect_sweep(view)
    notes = frames["notes"]
    missing = notes["subject"][notes["stage"] == "measure"]
    reasons = [(subject, "not in the published run") for subject in missing]
    for kernel, variants in changed_code(view).items():
        number = count(variants, "variant")
        reason = f"machine code differs from the published run's ({number})"
        reasons.append((kernel, reason))
    if not view.records.by_cell:
        reasons = [(sweep, f"no published measurements in {published.root.name}")]
    rows = []
    for subject, reason in reasons:
        row = {"sweep": sweep, "stage": "published"}
        rows.append(row | {"subject": subject, "reason": reason})
    kept = kept_rows(sweep, published, ("notes", "jobs"))
    added = tables.frame("notes", rows)
    kept["notes"] = tables.concat([kept["notes"], added], "notes")
    return frames | kept


def collect(
    folder_: Folder,
    sweeps: SweepNames,
    published: Published = None,
    into: Into = None,
) -> None:
    """Turn the records of sweeps into tables: tables/*.csv and .parquet."""
    folder = RunFolder(folder_)
    plans = [read_plan(folder.plan(name)) for name in sweeps]
    records = records_of(folder, published, plans)
    parts = {}
    for done, plan in enumerate(plans, 1):
        view = PlanRecords(plan, records, published is not None)
        if published:
            frames = _stand_in(view, PublishedFolder(published))
        else:
            frames = collect_sweep(view, *accounts_of(folder, plan.sweep))
        counts = frames["timings"]["status"].value_counts()
        statuses = [f"{number} {status}" for status, number in counts.items()]
        summary = ", ".join(statuses) or "no timings"
        logging.info("[%d/%d] %s: %s", done, len(plans), plan.sweep, summary)
        parts[plan.sweep] = frames
    target = into or folder.tables
    tables.write(merge(parts), target)
    write_samples(target / SAMPLES, records)
    if published is not None and into is None:
        copy_beside(PublishedFolder(published), folder)


def environment(
    context: typer.Context,
    folder_: Folder,
    arch: Annotated[str, typer.Option(help="Architecture it was compiled for.")],
    published: Published = None,
) -> None:
    """Record where a run's numbers were measured, from their records, and what analysed them."""
    folder = RunFolder(folder_)
    if not re.fullmatch(ARCH, arch):
        raise refuse("command line", "--arch", arch, AN_ARCH)
    records = read_store(folder.records)
    measured = measured_on(records, tables.read("sessions", folder.tables))
    document = analysed_here(project(context).root, folder.root.name, arch) | measured
    document |= {"timings_from": "measured" if measured else "none", "published": None}
    if published is not None and not (source := PublishedFolder(published)).is_empty:
        document |= {"timings_from": "published", "published": read_environment(source)}
        document["reproduced_cubins"] = reproduced(source, folder)
    write_json(folder.environment, document)


def claims(context: typer.Context, folder_: Folder, names: SweepNames) -> None:
    """Decide the claims from the tables."""
    from ladder.claims.ledger import decide_tables
    from ladder.results.statistics import records

    verdicts = decide_tables(RunFolder(folder_).tables, sweeps_of(context, names))
    for row in records(verdicts):
        logging.info("%s: %s: %s", row["id"], row["verdict"], row["part"])


def figures(
    context: typer.Context,
    folder_: Folder,
    sweeps: SweepNames,
    published: Published = None,
    into: Into = None,
    jobs: Annotated[int, typer.Option(min=1, help="Sweeps at once.")] = 1,
) -> None:
    """Draw the figures of sweeps from their tables, as figures/SWEEP-INDEX-KIND.png."""
    from ladder.report.answers import titles
    from ladder.report.figures.registry import draw_sweeps
    from ladder.report.links import Links

    folder = RunFolder(folder_)
    source = into or folder.tables
    frames = {table: tables.read(table, source) for table in SWEEP_TABLES}
    environment = measured_on(records_of(folder, published, []), frames["sessions"])
    if published is not None:
        environment = {"published": environment, "timings_from": "published"}
    data = RunData(sweeps_of(context, sweeps), frames, environment)
    titles_ = titles(data, Links(folder, folder.root, data))
    drawn = draw_sweeps(data.parts.values(), into or folder.figures, jobs, titles_)
    for done, name in enumerate(drawn, 1):
        logging.info("[%d/%d] %s", done, len(data.parts), name)


def report(
    context: typer.Context, folder_: Folder, sweeps: SweepNames, beside: Beside = None
) -> None:
    """Write report.md, evidence.md, methodology.md, sweeps/NAME.md, and index.html, which holds all tables."""
    from ladder.page.document import render
    from ladder.report.document import write

    folder = RunFolder(folder_)
    paths = {name: folder.plan(name) for name in sweeps}
    plans = {name: read_plan(path) for name, path in paths.items() if path.is_file()}
    runs = [*map(with_tables, beside or ())]
    data = RunData.read(folder, sweeps_of(context, sweeps))
    others = [(run, RunData.read(run, data.sweeps)) for run in runs]
    write(folder, data, plans, beside=others)
    page = render(folder, data, project(context).root, others)
    replace_file(folder.page, page.encode("utf-8"))

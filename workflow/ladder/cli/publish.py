"""The step that changes what is published."""

import logging
import os
from typing import Annotated

import typer

from ladder.catalogue.runs import Run
from ladder.claims.ledger import decide_tables
from ladder.cli.build import compiled_facts
from ladder.cli.load import run_of
from ladder.cli.options import Config, Configfile, project
from ladder.measure.host import commit_of
from ladder.model.errors import LadderError
from ladder.model.files import replace_file, write_json
from ladder.model.folders import NO_GPU, PublishedFolder
from ladder.model.plan_file import facts_to_json
from ladder.page.document import render
from ladder.report.answers import titles
from ladder.report.devices import label_of
from ladder.report.document import write
from ladder.report.figures.registry import draw_sweeps
from ladder.report.links import Links
from ladder.results import tables
from ladder.results.environment import analysed_here, measured_on
from ladder.results.publish import Publication, copy_beside, load_publication, replaced
from ladder.results.published_records import read_archive
from ladder.results.run_data import RunData


def publish(
    context: typer.Context,
    run: Annotated[
        str, typer.Argument(help="Name of the run (folder under results/).")
    ],
    device: Annotated[
        str, typer.Argument(help="Device folder of the run, such as nvidia-h200.")
    ],
    configfile: Configfile = None,
    config: Config = None,
    only: Annotated[
        str,
        typer.Option(
            metavar="COMMIT",
            help="Publish what this commit measured, and nothing else.",
        ),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Publish in spite of objections.")
    ] = False,
) -> None:
    """Merge a run's records into what is published of its device, and make the published tables and report anew.

    A run without a GPU adds no records and is refused: with `--force` the published tables are made again from the
    archive. With `--only` the archive keeps the records of one commit, and tables are of these alone.
    """
    checkout = project(context)
    folder = checkout.run(run, device)
    if not folder.root.is_dir():
        raise LadderError(f"{folder.root}: no such run")
    chosen = "none" if device == NO_GPU else device
    loaded = run_of(context, configfile, config, run=run, device=chosen)
    commit = commit_of(checkout.root, only) if only else ""
    target = checkout.published(device if loaded.measures else loaded.config.published)
    with replaced(target.root) as place:
        publication = load_publication(loaded, target, commit)
        objections = publication.objections()
        if objections and not force:
            why = f"(--force overrides): {'; '.join(objections)}"
            raise LadderError(f"{folder.root} is not published {why}")
        fresh = PublishedFolder(place)
        _write_tables(publication, fresh)
        _write_pages(loaded, fresh, target)
    logging.info("published in %s", target.root)


def _write_tables(publication: Publication, fresh: PublishedFolder) -> None:
    """Records, tables, environment and facts. Raises LadderError where no cell has a result."""
    run, target = publication.run, publication.published
    publication.write_records(fresh)
    for source in (target, run.folder):
        copy_beside(source, fresh)
    frames = publication.frames()
    if not (frames["timings"]["status"] == "ok").any():
        why = "is not published: no cell of its sweeps has a result"
        raise LadderError(f"{run.folder.root} {why}")
    tables.write(frames, fresh.tables)
    records = read_archive(fresh.records)
    environment = analysed_here(run.project.root, target.root.name, run.arch)
    environment |= measured_on(records, frames["sessions"])
    environment |= {"timings_from": "measured", "published": None}
    write_json(fresh.environment, environment)
    replace_file(fresh.facts, facts_to_json(compiled_facts(run, target)))


def _write_pages(run: Run, fresh: PublishedFolder, target: PublishedFolder) -> None:
    """Verdicts of the claims, figures, report and page, from the tables in `fresh`."""
    root = run.project.root
    published = {*tables.read("timings", fresh.tables)["sweep"]}
    sweeps = {
        name: sweep for name, sweep in run.every_sweep.items() if name in published
    }
    decide_tables(fresh.tables, sweeps)
    data = RunData.read(fresh, sweeps)
    named = titles(data, Links(fresh, fresh.root, data))
    list(draw_sweeps(data.parts.values(), fresh.figures, os.cpu_count() or 1, named))
    others = []
    for folder in run.project.publications():
        if folder.root != target.root:
            others.append((folder, RunData.read(folder, sweeps)))
    write(fresh, data, run.plans, run.folder.root, others)
    name = label_of(target)
    replace_file(fresh.page, render(fresh, data, root, others, name).encode("utf-8"))

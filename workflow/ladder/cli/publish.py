"""The step that changes what is published."""

import logging
from collections.abc import Mapping
from typing import Annotated, Any

import pandas as pd
import typer

from ladder.claims.decide import decide_tables
from ladder.claims.ledger import load_claims
from ladder.cli.options import Config, Configfile, project, run_of
from ladder.model.errors import LadderError
from ladder.model.files import replace_file, write_json
from ladder.model.folders import NO_GPU, PublishedFolder
from ladder.report.document import render
from ladder.report.figures.registry import draw_sweep
from ladder.results import tables
from ladder.results.archive import read_archive
from ladder.results.environment import analysed_here, measured_on
from ladder.results.publish import Publication, copy_clock, load_publication, replaced


def publish(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Name of the run (folder under results/).")],
    device: Annotated[str, typer.Argument(help="Device folder of the run, such as nvidia-h200.")],
    configfile: Configfile = None,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Publish in spite of objections.")] = False,
) -> None:
    """Merge a run's records into what is published of its device, and make the published tables and report anew.

    A run without a GPU adds no records: what is published is made anew from its archive.
    """
    own = project(context)
    folder = own.run(run, device)
    if not folder.root.is_dir():
        raise LadderError(f"{folder.root}: no such run")
    over = {"run": run, "device": "none" if device == NO_GPU else device}
    given = run_of(context, configfile, config, over)
    target = own.published(device if given.measures else given.config.published)
    publication = load_publication(given, folder, target)
    if (against := publication.objections()) and not force:
        raise LadderError(f"{folder.root} is not published (--force overrides): " + "; ".join(against))
    frames = publication.frames()
    with replaced(target.root) as place:
        fresh = PublishedFolder(place)
        publication.write_records(fresh)
        tables.write_all(frames, fresh.tables)
        for source in (target, folder):
            copy_clock(source, fresh)
        measured = measured_on(read_archive(fresh.records), frames["sessions"]["session"].dropna().unique())
        about = analysed_here(own.root, target.root.name, given.arch, folder) | measured
        about |= {"timings_from": "measured", "published": None}
        write_json(fresh.environment, about)
        _finish(publication, frames, fresh, about)
    logging.info("published in %s", target.root)


def _finish(
    publication: Publication,
    frames: Mapping[str, pd.DataFrame],
    fresh: PublishedFolder,
    environment: Mapping[str, Any],
) -> None:
    """Claims, figures and report of the tables in `fresh`; figures of sweeps that the run is not about stay."""
    run, old = publication.run, publication.published
    published = set(frames["timings"]["sweep"])
    sweeps = {name: sweep for name, sweep in run.every_sweep.items() if name in published}
    variants = {name: [variant.id for variant in sweep.variants] for name, sweep in sweeps.items()}
    decide_tables(load_claims(run.project.claims, run.every_sweep), fresh.tables, variants)
    for name, sweep in sweeps.items():
        if name in publication.views:
            by_sweep = {table: rows for table, rows in frames.items() if "sweep" in rows}
            own = {table: rows[(rows["sweep"] == name).fillna(False)] for table, rows in by_sweep.items()}
            chosen = frames["resources"]["variant"].isin(variants[name])
            draw_sweep(sweep, own | {"resources": frames["resources"][chosen]}, environment, fresh)
            continue
        for figure in sweep.figure_names():
            if old.figure(name, figure).is_file():
                replace_file(fresh.figure(name, figure), old.figure(name, figure).read_bytes())
    replace_file(fresh.report, render(fresh, sweeps, run.plans, run.folder.root).encode("utf-8"))

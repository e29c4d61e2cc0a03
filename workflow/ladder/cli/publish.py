"""Steps that change what is published."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from ladder.catalogue.runs import Run
from ladder.claims.decide import decide_tables
from ladder.claims.ledger import load_claims
from ladder.cli.options import Config, Configfile, project, run_of, sweeps_of
from ladder.cli.tables import here
from ladder.model.errors import LadderError
from ladder.model.files import replace_file, write_json
from ladder.model.folders import NO_GPU, PublishedFolder
from ladder.report.document import render
from ladder.report.figures.registry import draw_sweep
from ladder.results import tables
from ladder.results.archive import read_archive, write_archive
from ladder.results.environment import measured_on
from ladder.results.first_release import import_tables
from ladder.results.publish import (
    copy_clock,
    load_publication,
    published_frames,
    replaced,
    write_records,
)


def publish(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="Name of the run (folder under results/).")],
    device: Annotated[str, typer.Argument(help="Device folder of the run, such as nvidia-h200.")],
    configfile: Configfile = None,
    config: Config = None,
    force: Annotated[bool, typer.Option("--force", help="Publish in spite of objections.")] = False,
) -> None:
    """Merge a run's records into what is published of its device, and make the published tables and report anew."""
    own = project(context)
    folder = own.run(run, device)
    if not folder.root.is_dir():
        raise LadderError(f"{folder.root}: no such run")
    given = run_of(
        context, configfile, config, {"run": run, "device": "none" if device == NO_GPU else device}
    )
    target = own.published(device if given.measures else given.config.published)
    publication = load_publication(given, folder, target)
    against = publication.objections()
    if against and not force:
        raise LadderError(f"{folder.root} is not published (--force overrides): " + "; ".join(against))
    frames = published_frames(publication, folder, target)
    with replaced(target.root) as place:
        fresh = PublishedFolder(place)
        write_records(publication, target, fresh)
        tables.write_all(frames, fresh.tables)
        copy_clock(target, fresh)
        copy_clock(folder, fresh)
        records = read_archive(fresh.records)
        measured = measured_on(records, frames["sessions"]["session"].dropna().unique())
        about = here(own.root, target.root.name, given.arch, folder) | measured
        write_json(fresh.environment, about | {"timings_from": "measured", "published": None})
        _finish(given, frames, (target, fresh), about, set(publication.views))
    logging.info("published in %s", target.root)


def _finish(
    run: Run,
    frames: Mapping[str, pd.DataFrame],
    folders: tuple[PublishedFolder, PublishedFolder],
    environment: Mapping[str, Any],
    drawn: set[str],
) -> None:
    """Claims, figures and report of the tables in the second folder; figures of sweeps not drawn are the first's."""
    old, fresh = folders
    published = set(frames["timings"]["sweep"])
    sweeps = {name: sweep for name, sweep in run.every_sweep.items() if name in published}
    variants = {name: [variant.id for variant in sweep.variants] for name, sweep in sweeps.items()}
    decide_tables(load_claims(run.project.claims, run.every_sweep), fresh.tables, variants)
    for name, sweep in sweeps.items():
        if name in drawn:
            own = {
                table: rows[(rows["sweep"] == name).fillna(False)]
                for table, rows in frames.items()
                if "sweep" in rows
            }
            resources = frames["resources"]
            own["resources"] = resources[resources["variant"].isin(variants[name])]
            draw_sweep(sweep, own, environment, fresh)
        else:
            for figure in sweep.figure_names():
                if old.figure(name, figure).is_file():
                    replace_file(fresh.figure(name, figure), old.figure(name, figure).read_bytes())
    replace_file(fresh.report, render(fresh, sweeps, run.plans, run.folder.root).encode("utf-8"))


def import_(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Published tables of the first release.")],
    device: Annotated[str, typer.Option(help="Device to whose archive they are added.")] = "nvidia-h200",
) -> None:
    """Add published tables of the first release to a device's archive, as of an unknown session."""
    records = import_tables(folder, sweeps_of(context, None))
    session = next(iter(records.sessions.values()))
    commit = str(session.tree.get("commit") or "unknown")[:12]
    name = f"{session.id.removeprefix('imported-')}-{commit}.parquet"
    write_archive(project(context).published(device).records / name, list(records), [session])
    logging.info("%s: %d records", name, len(list(records)))

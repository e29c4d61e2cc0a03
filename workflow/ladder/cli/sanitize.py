"""The step that looks for races and for wrong accesses of memory."""

import logging
from collections import Counter
from typing import Annotated

import typer

from ladder.catalogue.sanitizer_sweeps import sanitizer_sweeps
from ladder.cli.build import compiled, write_plan
from ladder.cli.load import run_of
from ladder.cli.options import Arch, Config, Configfile, Folder, Jobs
from ladder.measure import sanitizer
from ladder.measure.process_lifetime import end_with_parent
from ladder.model.errors import refuse_unknown
from ladder.model.files import read_json, write_json
from ladder.model.folders import RunFolder
from ladder.model.schemas import TableRow


def sanitize(
    context: typer.Context,
    folder_: Folder,
    arch: Arch = None,
    jobs: Jobs = 1,
    kernel: Annotated[
        list[str] | None, typer.Option(help="This kernel alone; may be repeated.")
    ] = None,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Run compute-sanitizer over every kernel at a small size, and write sanitizer.json."""
    end_with_parent()
    folder, rows = RunFolder(folder_), list[TableRow]()
    run = run_of(context, configfile, config, arch=arch)
    for name in kernel or ():
        refuse_unknown("command line", "kernel", name, run.catalog, "no such kernel")
    gpus, program = sanitizer.needed()
    catalog = {name: run.catalog[name] for name in kernel or run.catalog}
    for sweep in sanitizer_sweeps(catalog):
        plan = compiled(run, sweep, jobs)
        path = write_plan(plan, folder)
        rows += sanitizer.sanitize(path, plan, run.project.root, gpus, program)
    before = (read_json(folder.sanitizer) or {}) if kernel else {}
    write_json(folder.sanitizer, before | sanitizer.by_kernel(rows))
    outcomes = Counter((row["tool"], row["status"]) for row in rows)
    for (tool, status), number in outcomes.items():
        logging.info("%s: %d %s", tool, number, status)

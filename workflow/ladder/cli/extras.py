"""The step that measures what no sweep does."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
import typer

from ladder.catalogue import extras as asked
from ladder.catalogue.config import ExtrasConfig
from ladder.cli.build import compiled, write_plan
from ladder.cli.load import run_of
from ladder.cli.options import Arch, Config, Configfile, Folder, Jobs
from ladder.measure.extras import TABLES, measure_extras, tasks_of
from ladder.measure.process_lifetime import end_with_parent
from ladder.measure.store import Records, read_store
from ladder.measure.view import View
from ladder.model.errors import LadderError
from ladder.model.folders import RunFolder
from ladder.model.plan_file import read_plan
from ladder.model.sweep import Sweep
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.collect import collect_sweep


def timings_of(folder: RunFolder, records: Records, published: RunFolder, name: str) -> pd.DataFrame:
    """Timings of a sweep from the run's `records`; if there are none, as published."""
    path = folder.plan(name)
    if path.is_file():
        own = collect_sweep(View(read_plan(path), records))["timings"]
        if len(own):
            return own
    rows = tables.read("timings", published.tables, required=False)
    return rows[rows["sweep"] == name]


def choices(timings: pd.DataFrame, name: str, regime: str, sizes: Sequence[int]) -> Iterator[asked.Choice]:
    """The fastest variant of a sweep in each dtype at each of the sizes, as far as `timings` know it."""
    rows = stats.against_references(stats.ok_rows(timings, regime))
    for size in sizes:
        for _, own in stats.at_size(rows, asked.cube(size)).groupby("dtype", sort=False):
            yield name, str(stats.fastest(own)["variant"]), size


def chosen_of(
    given: ExtrasConfig, sweeps: Mapping[str, Sweep], folder: RunFolder, published: RunFolder
) -> list[asked.Choice]:
    """The fastest of every sweep that extras are about; the log names a sweep that has none."""
    found, records = list[asked.Choice](), read_store(folder.records)
    for name in given.sweeps:
        timings, regime = timings_of(folder, records, published, name), sweeps[name].regimes[0]
        own = list(choices(timings, name, regime, given.beta_sizes))
        if not own:
            sizes = ", ".join(map(str, given.beta_sizes))
            logging.warning("%s is left out: nothing of it was timed at %s, here or before", name, sizes)
        found += own
    return found


def extras(
    context: typer.Context,
    folder_: Folder,
    arch: Arch = None,
    jobs: Jobs = 1,
    configfile: Configfile = None,
    config: Config = None,
) -> None:
    """Measure errors of FP32 GEMMs by kind of inputs, and C = A B + C, with the fastest kernels on a GPU.

    The fastest by the run's records; of a sweep that it has not timed, by the published ones.
    """
    end_with_parent()
    folder, run = RunFolder(folder_), run_of(context, configfile, config, arch=arch)
    own, given = run.project, run.config.extras
    chosen = chosen_of(given, run.every_sweep, folder, own.published(run.config.published))
    if (sweep := asked.extra_sweep(given, run.every_sweep, chosen)) is None:
        raise LadderError(
            f"none of {', '.join(given.sweeps)} was timed at {given.beta_sizes}, here or before"
        )
    plan = compiled(own, sweep, run.config, run.arch, jobs)
    path = write_plan(plan, folder)
    errors = tasks_of(plan, asked.error_sizes(given), given.error_dtypes)
    beside = tasks_of(plan, [asked.cube(size) for size in given.beta_sizes])
    tasks = dict(zip(TABLES, (errors, beside), strict=True))
    sweeps = {variant: name for name, variant, _ in reversed(chosen)}
    for table, rows in measure_extras(path, plan, own.root, tasks, given.error_inputs).items():
        named = [row | {"sweep": sweeps.get(row.get("variant", ""))} for row in rows]
        tables.write({table: tables.frame(table, named)}, folder.tables)
        logging.info("%s: %d rows", table, len(named))

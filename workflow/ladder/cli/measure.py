"""Steps that need a GPU."""

from typing import Annotated

import typer

from ladder.cli.options import PlanFile, folder_of, project
from ladder.measure import job, profile_job, zeros_job
from ladder.measure.process_lifetime import end_with_parent
from ladder.model.plan_file import read_plan


def measure(
    context: typer.Context,
    plan: PlanFile,
    share: Annotated[int, typer.Option(help="One of measure.split shares of the variants; 0 is all.")] = 0,
) -> None:
    """Verify and time the cells of a sweep on a GPU: those that the run's store does not have yet.

    Statuses are data, so only a broken set-up is an error.
    """
    end_with_parent()
    job.measure(plan, read_plan(plan), folder_of(plan), project(context).root, share)


def profile(context: typer.Context, plan: PlanFile) -> None:
    """Collect Nsight Compute counters for a sweep; what cannot be had becomes a note."""
    end_with_parent()
    profile_job.count(plan, read_plan(plan), folder_of(plan), project(context).root)


def zeros(
    context: typer.Context,
    plan: PlanFile,
    dtype: Annotated[str, typer.Option(help="Of the kernels.")] = "bf16",
) -> None:
    """Time a sweep's fastest kernels and their references with zeros in place of random numbers.

    At each size cold and sustained, in turns with random numbers. The rows are a table of their own, which no kernel is
    chosen by: what zeros take is no time of a product that anybody wants.
    """
    from ladder.results import tables  # pandas, which measuring does without

    end_with_parent()
    folder = folder_of(plan)
    rows = zeros_job.time_zeros(plan, read_plan(plan), folder, project(context).root, dtype)
    tables.write({"zeros": tables.frame("zeros", rows)}, folder.tables)

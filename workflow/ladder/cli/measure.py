"""Steps that need a GPU."""

import typer

from ladder.cli.options import PlanFile, folder_of, project
from ladder.measure import job, profile_job
from ladder.measure.process_lifetime import end_with_parent
from ladder.model.plan_file import read_plan


def measure(context: typer.Context, plan: PlanFile) -> None:
    """Verify and time the cells of a sweep on a GPU: those that the run's store does not have yet.

    Statuses are data, so only a broken set-up is an error.
    """
    end_with_parent()
    job.measure(plan, read_plan(plan), folder_of(plan), project(context).root)


def profile(context: typer.Context, plan: PlanFile) -> None:
    """Collect Nsight Compute counters for a sweep; what cannot be had becomes a note."""
    end_with_parent()
    profile_job.count(plan, read_plan(plan), folder_of(plan), project(context).root)

"""What the timer is tried on."""

from dataclasses import dataclass
from typing import Any

from ladder.model.cell import size_label
from ladder.model.plan import Plan, Task

TableRow = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A measured task that the timer is tried on, by its index in the plan, and its recorded median in µs."""

    index: int
    task: Task
    name: str
    median_us: float


def subject(plan: Plan, index: int, median_us: float) -> Subject:
    """A task of a plan as a subject."""
    task = plan.tasks[index]
    return Subject(index, task, f"{task.variant} at {size_label(task.cell.size)}", median_us)

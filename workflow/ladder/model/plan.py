"""The measuring plan of a sweep: every task with its launch geometry worked out, as JSON that a worker can follow.

It is all that measuring needs to know of the documents, and what the key of a record is made of.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ladder.model.cell import Cell
from ladder.model.errors import LadderError
from ladder.model.files import replace_file
from ladder.model.problem import ParamValue

L2_PROMOTIONS = ("none", "64B", "128B", "256B")
"""What the L2 may fetch from memory for a TMA copy that asks for less."""


@dataclass(frozen=True)
class Launch:
    """How a variant is launched at one size: blocks, threads, blocks a cluster, bytes of dynamic shared memory."""

    variant: str
    """Names its cubin and facts."""
    params: Mapping[str, ParamValue]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    shared_bytes: int
    arguments: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Task:
    """A variant at a size: verified once, and timed in every regime of the plan."""

    variant: str
    cell: Cell
    """In the plan's first regime."""
    rung: str
    absent: str | None
    """Why there is nothing to measure; None where there is a launch."""
    launch: Launch | None
    reference: Launch | None
    """The kernel it is timed against; None where libraries are the reference."""
    counted: bool
    """Whether the profiler looks at it too."""


@dataclass(frozen=True)
class Plan:
    """What a sweep asks for on an architecture, in measuring order."""

    sweep: str
    problem: str
    arch: str
    regimes: tuple[str, ...]
    settings: Mapping[str, float | int | None]
    """Settings that a measurement depends on."""
    throttle_share: float
    """A cell is throttled where its SM clock lies by more than this share below the session's first."""
    counter_groups: tuple[str, ...]
    tasks: tuple[Task, ...]

    @property
    def variants(self) -> list[str]:
        """Every variant that is launched, references included, without repetition."""
        launches = [launch for task in self.tasks for launch in (task.launch, task.reference)]
        return list(dict.fromkeys(launch.variant for launch in launches if launch is not None))


@functools.cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_json(plan: Plan) -> bytes:
    """A plan with one task a line, so that a difference between two plans reads well."""
    tasks = ",\n".join(_adapter(Task).dump_json(task).decode() for task in plan.tasks)
    head = _adapter(Plan).dump_json(plan, exclude={"tasks"}, indent=1).decode()
    return (head.removesuffix("\n}") + f',\n "tasks": [\n{tasks}\n ]\n}}\n').encode()


def write_plan(plan: Plan, path: Path) -> None:
    """Replace `path` by the plan."""
    replace_file(path, to_json(plan))


def read_plan(path: Path) -> Plan:
    """Read a plan written by write_plan. Raises LadderError for a missing file, or one that holds no plan."""
    try:
        plan: Plan = _adapter(Plan).validate_json(path.read_bytes())
    except OSError as error:
        raise LadderError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise LadderError(f"{path}: not a plan: {where or 'the document'}: {first['msg']}") from error
    return plan

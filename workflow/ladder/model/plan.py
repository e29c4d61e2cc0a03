"""The measuring plan of a sweep: all that measuring knows of the documents, and what keys of records hold."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field

from ladder.model.cell import SUSTAINED, Cell, External
from ladder.model.definition import Definition
from ladder.model.problem import ParamValue

L2_PROMOTIONS = ("none", "64B", "128B", "256B")
"""What the L2 fetches from memory for a TMA copy of fewer bytes."""
_PROMOTION = "128B"  # of Triton's own tensor maps


@dataclass(frozen=True)
class Geometry:
    """Blocks, threads a block, blocks a cluster, and bytes of dynamic shared memory a block."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None
    shared_bytes: int


@dataclass(frozen=True)
class Launch(Geometry):
    """How a variant is launched at one size; `variant` names its cubin and facts."""

    variant: str
    params: Mapping[str, ParamValue]
    arguments: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Edge:
    """A size at which a variant is only verified.

    `nan_at_alpha_zero`: whether NaN in the inputs may reach the output where alpha is 0.
    """

    size: Mapping[str, int]
    launch: Launch
    nan_at_alpha_zero: bool = False


@dataclass(frozen=True)
class Task:
    """A variant at a size: verified once, and timed in every regime of the plan.

    `cell` is that of the first regime; `absent` says why there is no launch; `reference` is the kernel it is timed
    against, None where libraries are; `counted` says whether it is profiled, `sustained` whether in that regime too,
    `repeated` whether in several sessions. `baseline` is the rung that the variant is paired with;
    it is empty in the task that is timed against the sweep's own reference.
    `errors`: whether its largest errors are looked at for each of ERROR_INPUTS.
    """

    variant: str
    cell: Cell
    rung: str
    absent: str | None
    launch: Launch | None
    reference: Launch | None
    counted: bool
    sustained: bool = False
    repeated: bool = False
    baseline: str = ""
    errors: bool = False

    @property
    def beside(self) -> bool:
        """Whether it is timed beside the sweep's own cells: against a baseline."""
        return bool(self.baseline)


@dataclass(frozen=True)
class Plan:
    """The cells of a sweep on an architecture, in measuring order, and what was compiled for it.

    A measurement depends on `settings`, and not on `job`, which says how the jobs go about it. `harness` and `variants`
    are facts, by dtype and by id; `cubin` among them names a file in the cache of cubins. `choices`: cells
    without a kernel, each of which chooses the reference of tasks in a regime. `edges`: by id, where else variants are
    verified. `external`: by name, references that come from files. `definition`: of a problem of one's own.
    """

    sweep: str
    problem: str
    arch: str
    regimes: Annotated[tuple[str, ...], Field(min_length=1)]
    settings: Mapping[str, float | int | None]
    job: Mapping[str, Any]
    counter_groups: tuple[str, ...]
    tasks: tuple[Task, ...]
    choices: tuple[Cell, ...] = ()
    harness: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    edges: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)
    external: Mapping[str, External] = field(default_factory=dict)
    definition: Definition | None = None

    def regimes_of(self, task: Task) -> tuple[str, ...]:
        """The regimes that a task is timed in."""
        usual = self.regimes[:1] if task.beside else self.regimes
        return (
            *usual,
            *([SUSTAINED] if task.sustained and SUSTAINED not in usual else []),
        )

    def broken(self, task: Task) -> str | None:
        """Why the task's own variant did not compile, or None."""
        facts = self.variants[task.launch.variant] if task.launch else {}
        return str(facts.get("reason")) if facts.get("status", "ok") != "ok" else None


def as_compiled(launch: Launch, facts: Mapping[str, Any]) -> Launch:
    """A launch as Triton's compiler wants it: its threads and shared memory, descriptors with the swizzle it chose,
    each followed by extents and strides, and null for the memory that the kernel does not need."""
    if "hidden_pointers" not in facts:
        return launch
    maps, arguments = iter(facts["tensor_maps"]), list[Mapping[str, Any]]()
    for argument in launch.arguments:
        if "tensor_map" not in argument:
            arguments.append(argument)
            continue
        arguments.append(
            {
                "tensor_map": argument["tensor_map"],
                **next(maps),
                "l2_promotion": _PROMOTION,
            }
        )
        shape = argument["shape"]
        arguments += [{"value": extent, "type": "int32"} for extent in shape]
        arguments += [
            {"value": math.prod(shape[axis:]), "type": "int64"}
            for axis in range(1, len(shape) + 1)
        ]
    arguments += [{"value": 0, "type": "int64"}] * facts["hidden_pointers"]
    block = {"block": (facts["threads"], 1, 1), "shared_bytes": facts["shared_bytes"]}
    return replace(launch, **block, arguments=tuple(arguments))


def tasks_as_compiled(
    tasks: Iterable[Task], facts: Mapping[str, Mapping[str, Any]]
) -> tuple[Task, ...]:
    """Tasks with the launches that follow from the facts of their variants."""
    compiled = []
    for task in tasks:
        launch, reference = (
            each and as_compiled(each, facts[each.variant])
            for each in (task.launch, task.reference)
        )
        compiled.append(replace(task, launch=launch, reference=reference))
    return tuple(compiled)

"""The measuring plan of a sweep, as JSON: all that measuring knows of the documents, and what keys of records hold."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, create_model

from ladder.model.cell import Cell, External
from ladder.model.document import reading
from ladder.model.errors import refuse_unknown
from ladder.model.problem import ParamValue
from ladder.model.schemas import SCHEMAS, STATUSES, SUSTAINED

L2_PROMOTIONS = ("none", "64B", "128B", "256B")
"""What the L2 fetches from memory for a TMA copy of fewer bytes."""


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
    `repeated` whether in several sessions. `baseline` is the rung that the reference is, in a task that pairs the two
    besides the one of the sweep's own reference.
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


@dataclass(frozen=True)
class Plan:
    """The cells of a sweep on an architecture, in measuring order, and what was compiled for it.

    A measurement depends on `settings`, and not on `job`, which says how the jobs go about it. `harness` and `variants`
    are facts, by dtype and by id; `cubin` among them names a file in the cache of cubins. `edges`: by id, where else
    variants are verified. `external`: by name, references that come from files.
    """

    sweep: str
    problem: str
    arch: str
    regimes: Annotated[tuple[str, ...], Field(min_length=1)]
    settings: Mapping[str, float | int | None]
    job: Mapping[str, Any]
    counter_groups: tuple[str, ...]
    tasks: tuple[Task, ...]
    harness: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    edges: Mapping[str, tuple[Edge, ...]] = field(default_factory=dict)
    external: Mapping[str, External] = field(default_factory=dict)

    def regimes_of(self, task: Task) -> tuple[str, ...]:
        """Those that a task is timed in."""
        own = self.regimes[:1] if task.baseline else self.regimes
        return (*own, *([SUSTAINED] if task.sustained and SUSTAINED not in own else []))

    def broken(self, task: Task) -> str | None:
        """Why the task's own variant did not compile, or None."""
        facts = self.variants[task.launch.variant] if task.launch else {}
        return str(facts.get("reason")) if facts.get("status", "ok") != "ok" else None


_PLAN, _TASK, _EDGES = TypeAdapter(Plan), TypeAdapter(Task), TypeAdapter(tuple[Edge, ...])


def _facts(**needed: Any) -> Any:
    """Facts as pydantic takes them: the columns of resources.csv, as far as they are given, and what else there is."""
    kinds: Any = {"text": str, "int": Annotated[int, Field(ge=0, lt=2**63)], "float": float}
    fields: Any = {name: (kinds[kind] | None, None) for name, kind in SCHEMAS["resources"].items()}
    fields |= {"params": (Mapping[str, ParamValue], {}), "symbols": (Mapping[str, str], {})}
    fields |= {
        "cubin": (Annotated[str, Field(pattern="^[^/]+$")] | None, None),
        "status": (Literal[STATUSES], ...),
    }
    return create_model("Facts", __config__=ConfigDict(extra="allow", allow_inf_nan=False), **fields | needed)


_NEEDED: Any = {"params": (Mapping[str, ParamValue], ...), "layout": (str, ...)}
_HARNESSES: Any = dict[Literal["harness"], dict[str, _facts()]]  # type: ignore[misc]
_VARIANTS: Any = dict[Literal["variants"], dict[str, _facts(**_NEEDED)]]  # type: ignore[misc]
_COMPILED = {"harness": TypeAdapter[Any](_HARNESSES), "variants": TypeAdapter[Any](_VARIANTS)}


def to_json(plan: Plan) -> bytes:
    """A plan with one task and one variant a line, so that a difference between two plans reads well."""
    head = _PLAN.dump_json(plan, exclude={"tasks", "variants", "edges"}, indent=1).removesuffix(b"\n}")
    variants = ",\n".join(f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in plan.variants.items())
    edges = b",\n".join(
        b"%s: %s" % (json.dumps(name).encode(), _EDGES.dump_json(of)) for name, of in plan.edges.items()
    )
    tasks = b",\n".join(_TASK.dump_json(task) for task in plan.tasks)
    form = b'%s,\n "variants": {\n%s\n },\n "edges": {\n%s\n },\n "tasks": [\n%s\n ]\n}\n'
    return form % (head, variants.encode(), edges, tasks)


def read_plan(path: Path) -> Plan:
    """Read what to_json made. Raises LadderError where it holds no plan, or another sweep's."""
    with reading(path):
        plan = _PLAN.validate_json(path.read_bytes())
        for name, kind in _COMPILED.items():
            kind.validate_python({name: getattr(plan, name)})
    refuse_unknown(path, "sweep", plan.sweep, [path.stem])
    for launch in (each for task in plan.tasks for each in (task.launch, task.reference) if each):
        refuse_unknown(path, "tasks: launch.variant", launch.variant, plan.variants)
    return plan

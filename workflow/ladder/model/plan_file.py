"""The files of plans and facts: JSON with a task or a kernel a line, held to its types where it is read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, create_model

from ladder.model.cell import Cell
from ladder.model.document import reading
from ladder.model.errors import refuse_unknown
from ladder.model.files import read_bytes, read_json
from ladder.model.plan import Edge, Plan, Task
from ladder.model.problem import ParamValue
from ladder.model.schemas import SCHEMAS, STATUSES

_PLAN, _TASK, _EDGES = (
    TypeAdapter(Plan),
    TypeAdapter(Task),
    TypeAdapter(tuple[Edge, ...]),
)
_CELL = TypeAdapter(Cell)


def _facts(**needed: Any) -> Any:
    """Facts as pydantic takes them: the columns of resources.csv, as far as they are given, and what else there is."""
    kinds: Any = {
        "text": str,
        "int": Annotated[int, Field(ge=0, lt=2**63)],
        "float": float,
    }
    fields: Any = {
        name: (kinds[kind] | None, None) for name, kind in SCHEMAS["resources"].items()
    }
    fields |= {
        "params": (Mapping[str, ParamValue], {}),
        "symbols": (Mapping[str, str], {}),
    }
    fields |= {
        "cubin": (Annotated[str, Field(pattern="^[^/]+$")] | None, None),
        "status": (Literal[STATUSES], ...),
    }
    return create_model(
        "Facts",
        __config__=ConfigDict(extra="allow", allow_inf_nan=False),
        **fields | needed,
    )


_NEEDED: Any = {"params": (Mapping[str, ParamValue], ...), "layout": (str, ...)}
_HARNESSES: Any = dict[Literal["harness"], dict[str, _facts()]]  # type: ignore[misc]
_VARIANTS: Any = dict[Literal["variants"], dict[str, _facts(**_NEEDED)]]  # type: ignore[misc]
_COMPILED = {
    "harness": TypeAdapter[Any](_HARNESSES),
    "variants": TypeAdapter[Any](_VARIANTS),
}
_COUNT = (Annotated[int, Field(ge=0, lt=2**31)], ...)
_COUNTED = ("registers", "shared_bytes_static", "spill_store_bytes")
_GOOD = _facts(
    status=(Literal["ok"], ...),
    symbols=(Mapping[str, str], ...),
    **dict.fromkeys(_COUNTED, _COUNT),
)
_FAILED = _facts(
    status=(Literal[tuple(one for one in STATUSES if one != "ok")], ...),
    reason=(str, ...),
)
_BY_STATUS: Any = Annotated[_GOOD | _FAILED, Field(discriminator="status")]
_BY_KEY = TypeAdapter[Any](dict[str, _BY_STATUS])


def to_json(plan: Plan) -> bytes:
    """A plan with one task and one variant a line, so that a difference between two plans reads well."""
    head = _PLAN.dump_json(
        plan, exclude={"tasks", "choices", "variants", "edges"}, indent=1
    ).removesuffix(b"\n}")
    variants = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(facts)}"
        for name, facts in plan.variants.items()
    )
    edges = b",\n".join(
        b"%s: %s" % (json.dumps(name).encode(), _EDGES.dump_json(of))
        for name, of in plan.edges.items()
    )
    choices = b",\n".join(_CELL.dump_json(cell) for cell in plan.choices)
    tasks = b",\n".join(_TASK.dump_json(task) for task in plan.tasks)
    form = b'%s,\n "variants": {\n%s\n },\n "edges": {\n%s\n },\n "choices": [\n%s\n ],\n "tasks": [\n%s\n ]\n}\n'
    return form % (head, variants.encode(), edges, choices, tasks)


def facts_to_json(facts: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Facts by the key of their request, with one kernel a line."""
    lines = (f"{json.dumps(key)}: {json.dumps(facts[key])}" for key in sorted(facts))
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def read_facts(path: Path) -> dict[str, dict[str, Any]]:
    """Read what facts_to_json made; empty where there is no file. Raises LadderError where it holds something else."""
    found = read_json(path) or {}
    with reading(path):
        _BY_KEY.validate_python(found)
    return found


def read_plan(path: Path) -> Plan:
    """Read what to_json made. Raises LadderError where it holds no plan, or another sweep's."""
    with reading(path):
        plan = _PLAN.validate_json(read_bytes(path))
        for name, kind in _COMPILED.items():
            kind.validate_python({name: getattr(plan, name)})
    refuse_unknown(path, "sweep", plan.sweep, [path.stem])
    for launch in (
        each for task in plan.tasks for each in (task.launch, task.reference) if each
    ):
        refuse_unknown(path, "tasks: launch.variant", launch.variant, plan.variants)
    return plan

"""The files of plans and facts: JSON with a task or a kernel a line, held to its types where it is read."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, create_model

from ladder.model.document import reading
from ladder.model.errors import refuse_unknown
from ladder.model.files import read_bytes, read_json
from ladder.model.plan import Plan
from ladder.model.problem import ParamValue
from ladder.model.schemas import SCHEMAS, STATUSES

_KINDS: Any = {
    "text": str,
    "int": Annotated[int, Field(ge=0, lt=2**63)],
    "float": float,
}
_COLUMNS: Any = {
    name: (_KINDS[kind] | None, None) for name, kind in SCHEMAS["resources"].items()
}
_PARAMS = Mapping[str, ParamValue]
_SYMBOLS = Mapping[str, str]
_FACTS: Any = {
    **_COLUMNS,
    "params": (_PARAMS, {}),
    "symbols": (_SYMBOLS, {}),
    "cubin": (Annotated[str, Field(pattern="^[^/]+$")] | None, None),
    "status": (Literal[STATUSES], ...),
}


def _facts(**needed: Any) -> Any:
    """Facts as pydantic takes them: what is `needed`, columns of resources.csv, and what else there is."""
    config = ConfigDict(extra="allow", allow_inf_nan=False)
    return create_model("Facts", __config__=config, **_FACTS | needed)


_HARNESS = _facts()
_VARIANT = _facts(params=(_PARAMS, ...), layout=(str, ...))
_COMPILED = create_model(
    "Compiled",
    harness=(dict[str, _HARNESS], ...),  # type: ignore[valid-type]
    variants=(dict[str, _VARIANT], ...),  # type: ignore[valid-type]
)
_COUNT = (Annotated[int, Field(ge=0, lt=2**31)], ...)
_GOOD = _facts(
    status=(Literal["ok"], ...),
    symbols=(_SYMBOLS, ...),
    registers=_COUNT,
    shared_bytes_static=_COUNT,
    spill_store_bytes=_COUNT,
)
_FAILURES: Any = tuple(status for status in STATUSES if status != "ok")
_FAILED = _facts(status=(Literal[_FAILURES], ...), reason=(str, ...))
_BY_STATUS: Any = Annotated[_GOOD | _FAILED, Field(discriminator="status")]
_BY_KEY = TypeAdapter[Any](dict[str, _BY_STATUS])
_PLAN = TypeAdapter(Plan)


def _one_a_line(items: Any) -> str:
    """JSON with each item of a mapping or a list in a line, so that a difference between two files reads well."""
    if isinstance(items, Mapping):
        lines = [f"{json.dumps(key)}: {json.dumps(items[key])}" for key in items]
        return "{\n" + ",\n".join(lines) + "\n}"
    if isinstance(items, list):
        return "[\n" + ",\n".join(map(json.dumps, items)) + "\n]"
    return json.dumps(items)


def to_json(plan: Plan) -> bytes:
    """A plan with one task and one variant a line."""
    fields = _PLAN.dump_python(plan, mode="json")
    parts = [f'"{name}": {_one_a_line(fields[name])}' for name in fields]
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def facts_to_json(facts: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Facts by the key of their request, with one kernel a line."""
    return (_one_a_line(dict(sorted(facts.items()))) + "\n").encode()


def read_facts(path: Path) -> dict[str, dict[str, Any]]:
    """Read what facts_to_json made; empty where there is no file. Raises LadderError where it holds something else."""
    facts = read_json(path) or {}
    with reading(path):
        _BY_KEY.validate_python(facts)
    return facts


def read_plan(path: Path) -> Plan:
    """Read what to_json made. Raises LadderError where it holds no plan, or another sweep's."""
    with reading(path):
        plan = _PLAN.validate_json(read_bytes(path))
        _COMPILED.model_validate(vars(plan))
    refuse_unknown(path, "sweep", plan.sweep, [path.stem])
    for task in plan.tasks:
        for launch in filter(None, (task.launch, task.reference)):
            refuse_unknown(path, "tasks: launch.variant", launch.variant, plan.variants)
    return plan

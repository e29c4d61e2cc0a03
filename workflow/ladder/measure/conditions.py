"""What a record's key is made of besides its cell: the conditions it was measured under."""

import functools
import importlib.metadata
from typing import Any

from ladder.model.cell import COUNTERS, TIMING_VERSION, Cell
from ladder.model.files import digest_json
from ladder.model.plan import Launch, Plan, Task
from ladder.problems.registry import PROBLEMS

SETTINGS = (
    "precision",
    "min_pairs",
    "max_pairs",
    "cell_seconds",
    "seed",
    "lock_clocks",
)
# cuBLAS goes by nvmath.
PACKAGES = ("cuda-core", "cuda-bindings", "nvmath-python", "cupti-python")
_LETTERS = 16  # of a digest, in a record


def code_versions(problem: str, regime: str) -> dict[str, int]:
    """Versions of the code that checks a problem and times a regime; nobody checks launches that are counted."""
    versions = {"timing": TIMING_VERSION[regime]}
    if regime != COUNTERS:
        versions["check"] = PROBLEMS[problem].check_version
    return versions


def _launch(plan: Plan, launch: Launch) -> dict[str, str]:
    """What a launch is made of. A variant that did not compile has no machine code: it is measured once it has."""
    geometry = {**vars(launch)}
    del geometry["params"]
    machine_code = plan.variants[geometry.pop("variant")].get("machine_code", "")
    digest = digest_json(geometry)
    return {"machine_code": machine_code[:_LETTERS], "launch": digest[:_LETTERS]}


def choice_conditions(plan: Plan, choice: Cell) -> dict[str, Any]:
    """Conditions of the choice of a reference that follow from the checkout: those of its tasks but for the variant."""
    conditions: dict[str, Any] = {**code_versions(plan.problem, choice.regime)}
    names = list(SETTINGS)
    libraries = choice.reference.libraries
    if choice.regime == COUNTERS:
        names = ["seed"]
    if choice.regime == "warm":
        names.append("warm_below_us")
    if any(name.startswith("cublaslt") for name in libraries):
        names.append("lt_heuristics")
    conditions["settings"] = {name: plan.settings[name] for name in names}
    for name in libraries:
        if name in plan.external:
            digest = plan.external[name].digest[:_LETTERS]
            conditions.setdefault("external", {})[name] = digest
    return conditions


def tree_conditions(plan: Plan, task: Task, regime: str) -> dict[str, Any]:
    """Conditions that follow from the checkout, for one regime of a task that is launched."""
    assert task.launch is not None
    conditions = choice_conditions(plan, task.cell.in_regime(regime))
    conditions |= _launch(plan, task.launch)
    if regime == COUNTERS:
        return conditions | {"groups": list(plan.counter_groups)}
    if task.errors:
        conditions["errors"] = True
    if task.reference:
        conditions["reference"] = _launch(plan, task.reference)
    return conditions


def host_conditions(problem: str, gpu: str, driver: str | None) -> dict[str, str]:
    """Conditions that the measuring host adds: GPU model, driver, and versions of what launches, times and answers."""
    versions = {
        name: package_version(name) or "system" for name in PROBLEMS[problem].packages
    }
    versions |= {name: package_version(name) or "none" for name in PACKAGES}
    return {"gpu": gpu, "driver": driver or "unknown", **versions}


@functools.cache
def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

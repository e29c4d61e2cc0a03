"""What a record's key is made of besides its cell: the conditions it was measured under."""

import functools
import importlib.metadata
from dataclasses import replace
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
PACKAGES = (
    "cuda-core",
    "cuda-bindings",
    "nvmath-python",
    "cupti-python",
)  # cuBLAS goes by nvmath
_LETTERS = 16  # of a digest, in a record


def code_versions(problem: str, regime: str) -> dict[str, int]:
    """Versions of the code that checks a problem and times a regime; nobody checks launches that are counted."""
    timing = {"timing": TIMING_VERSION[regime]}
    return (
        timing
        if regime == COUNTERS
        else {"check": PROBLEMS[problem].check_version, **timing}
    )


def _launch(plan: Plan, launch: Launch) -> dict[str, str]:
    """What a launch is made of. A variant that did not compile has no machine code: it is measured once it has."""
    geometry = {
        name: value
        for name, value in vars(launch).items()
        if name not in ("variant", "params")
    }
    machine_code = plan.variants[launch.variant].get("machine_code", "")[:_LETTERS]
    return {"machine_code": machine_code, "launch": digest_json(geometry)[:_LETTERS]}


def choice_conditions(plan: Plan, choice: Cell) -> dict[str, Any]:
    """Conditions of the choice of a reference that follow from the checkout: those of its tasks but for the variant."""
    names = ["seed"] if choice.regime == COUNTERS else list(SETTINGS)
    names += ["warm_below_us"] if choice.regime == "warm" else []
    chooses = any(name.startswith("cublaslt") for name in choice.reference.libraries)
    names += ["lt_heuristics"] if chooses and choice.regime != COUNTERS else []
    conditions: dict[str, Any] = {**code_versions(plan.problem, choice.regime)}
    conditions["settings"] = {name: plan.settings[name] for name in names}
    external = [name for name in choice.reference.libraries if name in plan.external]
    if external and choice.regime != COUNTERS:
        conditions["external"] = {
            name: plan.external[name].digest[:_LETTERS] for name in external
        }
    return conditions


def tree_conditions(plan: Plan, task: Task, regime: str) -> dict[str, Any]:
    """Conditions that follow from the checkout, for one regime of a task that is launched."""
    assert task.launch is not None
    conditions = {
        **_launch(plan, task.launch),
        **choice_conditions(plan, replace(task.cell, regime=regime)),
    }
    if regime == COUNTERS:
        return conditions | {"groups": list(plan.counter_groups)}
    conditions |= {"errors": True} if task.errors else {}
    return conditions | (
        {"reference": _launch(plan, task.reference)} if task.reference else {}
    )


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

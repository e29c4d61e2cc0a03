"""What a record's key is made of besides its cell: the conditions it was measured under."""

import functools
import importlib.metadata
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ladder.model import code
from ladder.model.cell import COUNTERS, Cell
from ladder.model.files import digest_json, read_json
from ladder.model.plan import Launch, Plan, Task
from ladder.problems.registry import PROBLEMS

SETTINGS = ("precision", "min_pairs", "max_pairs", "cell_seconds", "seed", "lock_clocks")
PACKAGES = ("cuda-core", "cuda-bindings", "nvmath-python", "cupti-python")  # cuBLAS goes by nvmath
TIMER = ("gpu/timing.py", "gpu/stamps.py", "model/intervals.py")
"""Code that times launches and says when to stop; it decides nothing about what is right."""
EQUIVALENT = code.PACKAGE / "measure" / "equivalent_timers.json"
"""Pairs of timers that were seen to read alike (measure/equivalence.py); none where it is missing."""
_STARTING = ("measure/gpu_job.py", "measure/process.py")  # what starts a task in a process of its own
_LETTERS = 16  # of a digest, in a record


@functools.cache
def measuring_code(problem: str, regime: str) -> dict[str, str]:
    """Digests of the code that measures cells of a problem: `timing` of the timer, `check` of all else.

    So what is new counts as code that checks, unless it is listed. Of counters, all of it launches for the profiler.
    """
    task = "ladder.measure.traced" if regime == COUNTERS else "ladder.measure.worker"
    # The bench finds the problem's module by its name.
    files = measuring_files(task, f"ladder.problems.{problem}.instance")
    check = _digest(one for one in files if one not in TIMER)
    return {"check": check, "timing": first_alike(_digest(TIMER), EQUIVALENT)}


def first_alike(timing: str, file: Path) -> str:
    """The digest of the oldest timer that reads as one does, by what was noted in a file; itself where none does."""
    known = (read_json(file) or {"equivalent": []})["equivalent"]
    older = {one["new"]: one["old"] for one in known}
    while timing in older:
        timing = older.pop(timing)
    return timing


def measuring_files(*modules: str) -> list[str]:
    """Files of the package, sorted, that what modules measure depends on."""
    return [path.relative_to(code.PACKAGE).as_posix() for path in code.digested(modules)]


def timer_validation_files() -> list[str]:
    """Files of the package that hold the timer against NVBench."""
    return [*measuring_files("ladder.measure.timer_validation"), *_STARTING]


def timer_validation_code() -> str:
    """Digest of the code that holds the timer against NVBench."""
    return _digest(timer_validation_files())


def _digest(files: Iterable[str]) -> str:
    return code.digest_of(code.PACKAGE / one for one in files)[:_LETTERS]


def _launch(plan: Plan, launch: Launch) -> dict[str, str]:
    """What a launch is made of. A variant that did not compile has no machine code: it is measured once it has."""
    geometry = {name: value for name, value in vars(launch).items() if name not in ("variant", "params")}
    machine_code = plan.variants[launch.variant].get("machine_code", "")[:_LETTERS]
    return {"machine_code": machine_code, "launch": digest_json(geometry)[:_LETTERS]}


def choice_conditions(plan: Plan, choice: Cell) -> dict[str, Any]:
    """Conditions of the choice of a reference that follow from the checkout: those of its tasks but for the variant."""
    names = ["seed"] if choice.regime == COUNTERS else list(SETTINGS)
    names += ["warm_below_us"] if choice.regime == "warm" else []
    chooses = any(name.startswith("cublaslt") for name in choice.reference.libraries)
    names += ["lt_heuristics"] if chooses and choice.regime != COUNTERS else []
    conditions: dict[str, Any] = {**measuring_code(plan.problem, choice.regime)}
    conditions["settings"] = {name: plan.settings[name] for name in names}
    conditions["harness"] = plan.harness.get(choice.dtype, {}).get("machine_code", "")[:_LETTERS]
    external = [name for name in choice.reference.libraries if name in plan.external]
    if external and choice.regime != COUNTERS:
        conditions["external"] = {name: plan.external[name].digest[:_LETTERS] for name in external}
    return conditions


def tree_conditions(plan: Plan, task: Task, regime: str) -> dict[str, Any]:
    """Conditions that follow from the checkout, for one regime of a task that is launched."""
    assert task.launch is not None
    conditions = {**_launch(plan, task.launch), **choice_conditions(plan, replace(task.cell, regime=regime))}
    if regime == COUNTERS:
        return conditions | {"groups": list(plan.counter_groups)}
    conditions |= {"errors": True} if task.errors else {}
    return conditions | ({"reference": _launch(plan, task.reference)} if task.reference else {})


def host_conditions(problem: str, gpu: str, driver: str | None) -> dict[str, str]:
    """Conditions that the measuring host adds: GPU model, driver, and versions of what launches, times and answers."""
    versions = {name: package_version(name) or "system" for name in PROBLEMS[problem].packages}
    versions |= {name: package_version(name) or "none" for name in PACKAGES}
    return {"gpu": gpu, "driver": driver or "unknown", **versions}


@functools.cache
def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

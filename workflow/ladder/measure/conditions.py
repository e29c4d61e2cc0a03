"""What a record's key is made of besides its cell: the conditions it was measured under."""

import functools
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ladder.gpu.card import driver_version
from ladder.model import code
from ladder.model.cell import COUNTERS
from ladder.model.errors import LadderError
from ladder.model.files import digest_json, read_json
from ladder.model.folders import RunFolder
from ladder.model.plan import Launch, Plan, Task
from ladder.problems.registry import PROBLEMS

_OF_TIMING = ("precision", "min_pairs", "max_pairs", "cell_seconds", "seed", "lock_clocks")
_LETTERS = 16
"""Of a digest, in a record."""


@functools.cache
def measuring_code(problem: str, regime: str) -> str:
    """Digest of the code that verifies and times (or launches for the profiler) cells of a problem."""
    process = "ladder.measure.profile_worker" if regime == COUNTERS else "ladder.measure.worker"
    # The worker finds the problem's module by its name.
    return code.digest(process, f"ladder.problems.{problem}.instance")[:_LETTERS]


def _settings(plan: Plan, task: Task, regime: str) -> dict[str, Any]:
    names = ["seed"] if regime == COUNTERS else list(_OF_TIMING)
    names += ["warm_below_us"] if regime == "warm" else []
    names += ["lt_heuristics"] if "cublaslt" in task.cell.reference.libraries and regime != COUNTERS else []
    return {name: plan.settings[name] for name in names}


@dataclass(frozen=True)
class Compiled:
    """What was compiled for a plan: the facts of its variants, and the digest of the harness's machine code."""

    facts: Mapping[str, Mapping[str, Any]]
    harness: str

    def broken(self, task: Task) -> str | None:
        """Why the task's own variant did not compile, or None."""
        facts = self.facts[task.launch.variant] if task.launch else {}
        return str(facts.get("reason")) if facts.get("status", "ok") != "ok" else None

    def launch(self, launch: Launch) -> dict[str, str]:
        """What a launch is made of. A variant that did not compile has no machine code: it is measured once it has."""
        geometry = {
            name: value for name, value in asdict(launch).items() if name not in ("variant", "params")
        }
        machine_code = self.facts[launch.variant].get("machine_code", "")[:_LETTERS]
        return {"machine_code": machine_code, "launch": digest_json(geometry)[:_LETTERS]}


def compiled(plan: Plan, folder: RunFolder) -> Compiled:
    """What was compiled for `plan` in `folder`. Raises LadderError for a variant or harness that was not."""
    facts: dict[str, dict[str, Any]] = {}
    for variant in plan.variants:
        path = folder.facts(variant)
        if (found := read_json(path)) is None:
            raise LadderError(f"{path}: missing; compile the variant {variant} first")
        facts[variant] = found
    harness = folder.harness(plan.problem)
    if not harness.is_file():
        raise LadderError(f"{harness}: missing; compile the harness of {plan.problem} first")
    with harness.open("rb") as lines:
        return Compiled(facts, json.loads(lines.readline())["machine_code"])


def tree_conditions(plan: Plan, task: Task, regime: str, made: Compiled) -> dict[str, Any]:
    """Conditions that follow from the checkout, for one regime of a task that is launched."""
    assert task.launch is not None
    settings = {"settings": _settings(plan, task, regime)}
    digests = {"code": measuring_code(plan.problem, regime), "harness": made.harness[:_LETTERS]}
    conditions: dict[str, Any] = {**digests, **made.launch(task.launch), **settings}
    if regime == COUNTERS:
        return conditions | {"groups": list(plan.counter_groups)}
    return conditions | ({"reference": made.launch(task.reference)} if task.reference else {})


def host_conditions(problem: str, gpu: str, driver: str | None) -> dict[str, str]:
    """Conditions that the measuring host adds: GPU model, driver, and the libraries that the problem uses."""
    versions = {name: package_version(name) or "system" for name in PROBLEMS[problem].packages}
    return {"gpu": gpu, "driver": driver or "unknown", **versions}


def known_conditions(problem: str) -> dict[str, Any]:
    """What a problem's measurements depend on besides plans and cubins, as far as this host can tell."""
    code = {regime: measuring_code(problem, regime) for regime in ("", COUNTERS)}
    return {"code": code, **host_conditions(problem, "", driver_version())}


def package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

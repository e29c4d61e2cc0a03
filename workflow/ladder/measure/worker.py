"""The measuring worker: one process, one context, task after task as the supervisor asks.

Started by the supervisor as `python -m ladder.measure.worker PLAN CUBINS HARNESS`. Requests are JSON lines on
standard input, {"task": INDEX, "regimes": [...]}; answers are JSON lines on standard output, {"hello": …} once and
{"results": …} per task, by regime. An answer with "fatal": true says that the context is lost and the worker
leaves.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ladder.gpu.device import Launcher, OutOfDeviceMemory
from ladder.gpu.instance import Check, Instance
from ladder.gpu.timing import Pairs, StoppingRule
from ladder.measure import references
from ladder.measure.bench import Bench, CellOutcome
from ladder.measure.parents import die_with_parent
from ladder.model.intervals import median
from ladder.model.plan import Launch, Plan, Task, read_plan

_OBSERVED_LAUNCHES = 9

_MISTAKES = (TypeError, AttributeError, LookupError, NameError, AssertionError, ValueError)
"""What a fault of this program raises, not a kernel: such an error must stop the run, not become a status."""

Result = dict[str, Any]


def stopping_rule(plan: Plan) -> StoppingRule:
    """When a plan's cells have enough pairs."""
    given = plan.settings
    least, most = int(given["min_pairs"] or 0), int(given["max_pairs"] or 0)
    return StoppingRule(float(given["precision"] or 0), least, most, float(given["cell_seconds"] or 0))


class Worker:
    """Answers for the tasks of one plan."""

    def __init__(self, plan: Plan, cubins: Path, harness: Path) -> None:
        self.plan = plan
        self.bench = Bench(plan, cubins, harness)
        self.rule = stopping_rule(plan)

    def measure(self, task: Task, regimes: Sequence[str]) -> dict[str, Result]:
        """Verify a task, time it in some regimes, and verify it again. Returns a result a regime.

        A CUDA failure leaves by exception.
        """
        bench = self.bench
        assert task.launch is not None
        instance = bench.instance(task.cell)
        loaded, before = bench.verified(task.launch, instance)
        bench.verify_beta(task.launch, instance)
        launchers = references.references(bench, task, instance)
        name, times = references.fastest(bench, launchers)
        timed = self._timed(loaded, launchers[name], regimes)
        after = bench.check(loaded, task.launch, instance)
        if not after.correct:
            raise CellOutcome("incorrect", f"after timing, though right before: {after}")
        common = {
            "reference": name,
            "check": _check(before, after),
            "references": times,
            "notes": references.notes(bench),
            "copy_us": references.copy_us(bench, instance),
            "observations": self._observations(loaded, task.launch, instance),
        }
        return {regime: _result(pairs, common) for regime, pairs in timed.items()}

    def _timed(
        self, variant: Launcher, reference: Launcher, regimes: Sequence[str]
    ) -> dict[str, Pairs | CellOutcome]:
        """Pairs by regime, or why there are none; warm comes last and for short kernels only."""
        timer, single = self.bench.timer, [regime for regime in regimes if regime != "warm"]
        found: dict[str, Pairs | CellOutcome] = {}
        for regime in single:
            pairs = timer.singly(variant, reference, self.rule, regime)
            found[regime], single_us = pairs, median(pairs.variant_us)
        if "warm" in regimes:
            single_us = single_us if single else timer.first(variant)
            limit = float(self.plan.settings["warm_below_us"] or 0)
            found["warm"] = (
                timer.in_graphs(variant, reference, self.rule, single_us)
                if single_us < limit
                else CellOutcome("unsupported", f"warm is for kernels below {limit:g} us")
            )
        return found

    def _observations(self, loaded: Launcher, launch: Launch, instance: Instance) -> list[Result]:
        samples: dict[tuple[str, str], list[float]] = {}
        for seen in range(_OBSERVED_LAUNCHES):
            loaded()
            found = instance.observations(launch.params)
            if seen == 0 and not found:
                return []
            for observation in found:
                samples.setdefault((observation.metric, observation.unit), []).append(observation.value)
        return [
            {"metric": metric, "unit": unit, "value": median(values)}
            for (metric, unit), values in samples.items()
        ]

    def answer(self, index: int, regimes: Sequence[str]) -> dict[str, Any]:
        """The results of one task, whatever happens in it."""
        task, bench = self.plan.tasks[index], self.bench
        start, busy_before = time.perf_counter(), bench.timer.busy_us
        fatal = False
        try:
            results = self.measure(task, regimes)
        except CellOutcome as outcome:
            results = _failures(regimes, outcome.status, outcome.reason)
        except OutOfDeviceMemory as error:
            bench.release()
            results = _failures(regimes, "unsupported", str(error))
        except _MISTAKES:
            raise
        except Exception as error:
            results = _failures(regimes, "launch_error", f"{type(error).__name__}: {error}")
            fatal = not self._context_lives()
        gpu_s = round((bench.timer.busy_us - busy_before) / 1e6, 6)
        wall_s = round(time.perf_counter() - start, 6)
        return {"results": results, "fatal": fatal, "gpu_s": gpu_s, "wall_s": wall_s}

    def _context_lives(self) -> bool:
        try:
            self.bench.gpu.sync()
            self.bench.release()
        except Exception:
            return False
        return True


def _failures(regimes: Sequence[str], status: str, reason: str) -> dict[str, Result]:
    return {regime: {"status": status, "reason": reason} for regime in regimes}


def _check(before: Check, after: Check) -> dict[str, float]:
    worst = max(before.max_error, after.max_error)
    return {"max_error": worst, "error_bound": before.error_bound}


def _result(pairs: Pairs | CellOutcome, common: Result) -> Result:
    if isinstance(pairs, CellOutcome):
        return {"status": pairs.status, "reason": pairs.reason}
    speedup, low, high = pairs.speedup()
    return {
        "status": "ok",
        "reason": "",
        "variant_us": [round(time, 4) for time in pairs.variant_us],
        "reference_us": [round(time, 4) for time in pairs.reference_us],
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
        "stopped_by": pairs.stopped_by,
        **common,
    }


def main() -> int:
    """Serve until standard input ends."""
    die_with_parent()
    # Libraries may print; the protocol has the original standard output to itself.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    plan, cubins, harness = (Path(word) for word in sys.argv[1:4])
    worker = Worker(read_plan(plan), cubins, harness)
    hello = {"pid": os.getpid(), "gpu": worker.bench.facts()}
    print(json.dumps({"hello": hello}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            answer = worker.answer(request["task"], request["regimes"])
        except _MISTAKES:
            print(json.dumps({"mistake": traceback.format_exc()}), file=answers, flush=True)
            raise
        print(json.dumps(answer), file=answers, flush=True)
        if answer["fatal"]:
            return 70
    return 0


if __name__ == "__main__":
    sys.exit(main())

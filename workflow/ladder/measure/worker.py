"""The measuring worker: one process, one context, task after task as the supervisor sends them.

Started as `python -m ladder.measure.worker PLAN CUBINS PIPE`. Through the pipe come (task index, regimes);
back go {"hello": …} once, and per task {"results": …} by regime. With "fatal" the context is lost, and it leaves.
"""

import os
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ladder.gpu.device import Launcher, OutOfDeviceMemory
from ladder.gpu.instance import Instance
from ladder.gpu.timing import Pairs, StoppingRule
from ladder.measure.bench import Bench, CellOutcome
from ladder.measure.parents import die_with_parent
from ladder.model.intervals import median
from ladder.model.plan import Launch, Plan, Task, read_plan

_OBSERVED_LAUNCHES = 9

_MISTAKES = (TypeError, AttributeError, LookupError, NameError, AssertionError, ValueError, OSError)
"""What a fault of this program or a missing cubin raises, not a kernel: it must stop the run, not become a status."""

Result = dict[str, Any]
Timed = dict[str, Pairs | CellOutcome]


def stopping_rule(plan: Plan) -> StoppingRule:
    given = plan.settings
    least, most = int(given["min_pairs"] or 0), int(given["max_pairs"] or 0)
    return StoppingRule(float(given["precision"] or 0), least, most, float(given["cell_seconds"] or 0))


class Worker:
    """Answers for the tasks of one plan."""

    def __init__(self, plan: Plan, cubins: Path) -> None:
        self.plan, self.rule = plan, stopping_rule(plan)
        self.bench = Bench(plan, cubins)

    def measure(self, task: Task, regimes: Sequence[str]) -> dict[str, Result]:
        """Verify a task, time it in some regimes, verify it again: a result a regime. Raises what CUDA ran into."""
        bench = self.bench
        assert task.launch is not None
        instance = bench.instance(task.cell)
        loaded, before = bench.verified(task.launch, instance)
        bench.verify_beta(task.launch, instance)
        launchers = bench.references(task, instance)
        name, times = bench.fastest(launchers)
        timed = self._timed(loaded, launchers[name], regimes)
        after = bench.check(loaded, task.launch, instance)
        if not after.correct:
            raise CellOutcome("incorrect", f"after timing, though right before: {after}")
        worst = max(before.max_error, after.max_error)
        common = {
            "reference": name,
            "check": {"max_error": worst, "error_bound": before.error_bound},
            "references": times,
            "notes": bench.notes(),
            "copy_us": bench.copy_us(instance),
            "observations": self._observations(loaded, task.launch, instance),
        }
        return {regime: _result(pairs, common) for regime, pairs in timed.items()}

    def _timed(self, variant: Launcher, reference: Launcher, regimes: Sequence[str]) -> Timed:
        """Pairs by regime, or why there are none; warm comes last and for short kernels only."""
        timer, limit = self.bench.timer, float(self.plan.settings["warm_below_us"] or 0)
        found: Timed = {}
        single_us = None
        for regime in (regime for regime in regimes if regime != "warm"):
            found[regime] = pairs = timer.singly(variant, reference, self.rule, regime)
            single_us = median(pairs.variant_us)
        if "warm" in regimes:
            single_us = timer.first(variant) if single_us is None else single_us
            if single_us < limit:
                found["warm"] = timer.in_graphs(variant, reference, self.rule, single_us)
            else:
                found["warm"] = CellOutcome("unsupported", f"warm is for kernels below {limit:g} us")
        return found

    def _observations(self, loaded: Launcher, launch: Launch, instance: Instance) -> list[Result]:
        samples: dict[tuple[str, str], list[float]] = {}
        for _ in range(_OBSERVED_LAUNCHES):
            loaded()
            if not (found := instance.observations(launch.params)):
                break
            for metric, value in found.items():
                samples.setdefault(metric, []).append(value)
        return [{"metric": name, "unit": unit, "value": median(of)} for (name, unit), of in samples.items()]

    def answer(self, index: int, regimes: Sequence[str]) -> dict[str, Any]:
        task, bench = self.plan.tasks[index], self.bench
        start, busy_before, fatal = time.perf_counter(), bench.timer.busy_us, False
        try:
            results = self.measure(task, regimes)
        except CellOutcome as outcome:
            results, fatal = dict.fromkeys(regimes, outcome.result), outcome.spoilt
        except OutOfDeviceMemory as error:
            bench.release()
            results = dict.fromkeys(regimes, CellOutcome("unsupported", str(error)).result)
        except _MISTAKES:
            raise
        except Exception as error:
            failure = CellOutcome("launch_error", f"{type(error).__name__}: {error}")
            results = dict.fromkeys(regimes, failure.result)
            fatal = not self._context_lives()
        spent = {"gpu_s": (bench.timer.busy_us - busy_before) / 1e6, "wall_s": time.perf_counter() - start}
        return {"results": results, "fatal": fatal} | {name: round(value, 6) for name, value in spent.items()}

    def _context_lives(self) -> bool:
        try:
            self.bench.gpu.sync()
            self.bench.release()
        except Exception:
            return False
        return True


def _result(pairs: Pairs | CellOutcome, common: Result) -> Result:
    if isinstance(pairs, CellOutcome):
        return pairs.result
    speedup, low, high = pairs.speedup()
    found: Result = {"status": "ok", "reason": "", "stopped_by": pairs.stopped_by}
    found |= {"speedup": speedup, "speedup_low": low, "speedup_high": high}
    for name in ("variant_us", "reference_us"):
        found[name] = [round(time, 4) for time in getattr(pairs, name)]
    return found | common


def main() -> int:
    """Serve until the supervisor closes the pipe."""
    die_with_parent()
    plan, cubins = (Path(word) for word in sys.argv[1:3])
    pipe, worker = Connection(int(sys.argv[3])), Worker(read_plan(plan), cubins)
    pipe.send({"hello": {"pid": os.getpid(), "gpu": worker.bench.facts()}})
    while True:
        try:
            index, regimes = pipe.recv()
        except EOFError:
            return 0
        try:
            answer = worker.answer(index, regimes)
        except _MISTAKES:
            pipe.send({"mistake": traceback.format_exc()})
            raise
        pipe.send(answer)
        if answer["fatal"]:
            return 70


if __name__ == "__main__":
    sys.exit(main())

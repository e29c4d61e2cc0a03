"""The measuring worker: one process, one context, cell after cell as the supervisor asks.

Started by the supervisor as `python -m ladder.worker PLAN CUBINS HARNESS`. Requests are JSON lines on standard input,
{"cell": INDEX}; answers are JSON lines on standard output, {"hello": …} once and {"result": …} per cell. A result with
"fatal": true says that the context is lost and the worker leaves.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ladder.device import Gpu, Loaded, OutOfDeviceMemory
from ladder.errors import LadderError
from ladder.intervals import median
from ladder.plan import read_plan
from ladder.problems import problem_named
from ladder.problems.base import Check, Instance
from ladder.timing import Pairs, StoppingRule, measure_cold, measure_warm, quick_time, quick_times

_BETA = 0.5
_OBSERVED_LAUNCHES = 9
_WARM_UP_S = 0.15
"""The clocks of an idle GPU take about 0.1 s to rise."""

_SPARE_BYTES = 256 * 1024 * 1024


_MISTAKES = (TypeError, AttributeError, LookupError, NameError, AssertionError, ValueError)
"""What a fault of this program raises, not a kernel: such an error must stop the run, not become a status."""


class CellOutcome(Exception):
    """Ends a cell with a status other than ok."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends, so that no orphan goes on measuring."""
    parent = os.getppid()
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:  # The parent went before the request was in place.
        sys.exit(1)


class Worker:
    """Holds the GPU and the instance of the current size."""

    def __init__(self, plan: Mapping[str, Any], cubins: Path, harness: Path) -> None:
        self.plan = plan
        self.cubins = cubins
        self.problem = problem_named(plan["problem"])
        self.settings = plan["settings"]
        self.gpu = Gpu(harness)
        self.gpu.lt_heuristics = self.settings["lt_heuristics"]
        self.instance: Instance | None = None
        self.group: tuple[Any, ...] | None = None
        self.beta_checked: set[str] = set()
        # What is known for the current instance: library launchers, quick times, the copy's time.
        self.known: dict[Any, Any] = {}
        if "cublas" in self.problem.libraries:
            _ = self.gpu.libraries  # Made now, so that the first cell does not pay for it.
        self.gpu.warm_up(_WARM_UP_S)

    def _instance(self, cell: Mapping[str, Any]) -> Instance:
        group = (cell["dtype"], cell["layout"], *sorted(cell["size"].items()))
        if group != self.group or self.instance is None:
            self.release()
            needed = self.problem.device_bytes(cell["size"], cell["dtype"])
            free = self.gpu.free_bytes() - _SPARE_BYTES
            if needed > free:
                raise CellOutcome("unsupported", f"needs {needed} bytes of device memory, {free} are free")
            self.instance = self.problem.instance(
                self.gpu, cell["size"], cell["dtype"], cell["layout"], self.settings["seed"]
            )
            self.group = group
        return self.instance

    def loaded(self, index: int) -> Loaded:
        """A cell's kernel, ready to launch, without verifying it."""
        cell = self.plan["cells"][index]
        return self._load(cell["launch"], self._instance(cell))

    def release(self) -> None:
        """Free the current instance."""
        if self.instance is not None:
            self.instance.close()
        self.instance, self.group, self.known = None, None, {}

    def _load(self, launch: Mapping[str, Any], instance: Instance) -> Loaded:
        path = self.cubins / f"{launch['variant']}.cubin"
        cubin = path.read_bytes()
        if not cubin:
            facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            raise CellOutcome("compile_error", facts["reason"])
        threads = launch["block"][0] * launch["block"][1] * launch["block"][2]
        if threads > self.gpu.block_threads:
            raise CellOutcome(
                "launch_error", f"a block of {threads} threads; the device takes {self.gpu.block_threads}"
            )
        shared = launch["shared_bytes"] + self.gpu.static_shared_bytes(cubin)
        if shared > self.gpu.block_shared_bytes:
            raise CellOutcome(
                "unsupported",
                f"needs {shared} bytes of shared memory per block, "
                f"the device has {self.gpu.block_shared_bytes}",
            )
        return self.gpu.load(cubin, launch, instance)

    def _verified(
        self, launch: Mapping[str, Any], instance: Instance, whose: str = ""
    ) -> tuple[Loaded, Check]:
        """Load, run once on poisoned outputs and check. Raises CellOutcome for a wrong result."""
        loaded = self._load(launch, instance)
        check = self._run_and_check(loaded, launch, instance)
        if not check.correct:
            raise CellOutcome("incorrect", f"{whose}{_wrong(check)}")
        return loaded, check

    def _run_and_check(self, loaded: Loaded, launch: Mapping[str, Any], instance: Instance) -> Check:
        with self.gpu.working():
            instance.poison_outputs()
            loaded()
            self.gpu.sync()
            return instance.check(launch["params"])

    def _verify_beta(self, launch: Mapping[str, Any], instance: Instance) -> None:
        if not self.problem.has_beta or launch["variant"] in self.beta_checked:
            return
        instance.use_beta(_BETA)
        try:
            check = self._run_and_check(self._load(launch, instance), launch, instance)
        finally:
            instance.use_beta(0.0)
        if not check.correct:
            raise CellOutcome("incorrect", f"with beta = {_BETA}: {_wrong(check)}")
        self.beta_checked.add(launch["variant"])

    def _references(self, cell: Mapping[str, Any], instance: Instance) -> dict[str, Callable[[], None]]:
        """Launchers of the cell's references by name; one that a library lacks is left out, with a note."""
        found: dict[str, Callable[[], None]] = {}
        for reference in cell["references"]:
            if "library" in reference:
                name = reference["library"]
                if name not in self.known:
                    try:
                        self.known[name] = instance.library(name, cell["launch"]["params"])
                    except LadderError as error:
                        self.known[name] = None
                        self.known[("note", name)] = str(error)
                launcher = self.known[name]
            else:
                name = reference["variant"]
                if name not in self.known:
                    loaded, _ = self._verified(reference, instance, f"the reference {name}: ")
                    self.known[name] = loaded
                launcher = self.known[name]
            if launcher is not None:
                found[name] = launcher
        if not found:
            raise CellOutcome("unsupported", "no reference: " + "; ".join(self._notes()))
        return found

    def _notes(self) -> list[str]:
        return [f"{key[1]}: {text}" for key, text in self.known.items() if isinstance(key, tuple)]

    def _fastest(self, references: Mapping[str, Callable[[], None]]) -> tuple[str, dict[str, float]]:
        known = "times of " + ", ".join(references)
        if known not in self.known:
            found = quick_times(self.gpu, list(references.values()))
            self.known[known] = dict(zip(references, found, strict=True))
        times: dict[str, float] = self.known[known]
        return min(times, key=lambda name: times[name]), times

    def measure(self, cell: Mapping[str, Any]) -> dict[str, Any]:
        """Verify and time one cell. Returns its result; a CUDA failure leaves by exception."""
        instance = self._instance(cell)
        launch = cell["launch"]
        loaded, check = self._verified(launch, instance)
        self._verify_beta(launch, instance)
        references = self._references(cell, instance)
        name, times = self._fastest(references)
        settings = self.settings
        rule = StoppingRule(
            settings["precision"], settings["min_pairs"], settings["max_pairs"], settings["cell_seconds"]
        )
        regimes = {}
        cold = measure_cold(self.gpu, loaded, references[name], rule)
        if "cold" in self.plan["regimes"]:
            regimes["cold"] = _regime(cold, name)
        if "clean" in self.plan["regimes"]:
            clean = measure_cold(self.gpu, loaded, references[name], rule, clean=True)
            regimes["clean"] = _regime(clean, name)
        cold_us = median(cold.variant_us)
        if "warm" in self.plan["regimes"] and cold_us < settings["warm_below_us"]:
            regimes["warm"] = _regime(measure_warm(self.gpu, loaded, references[name], rule, cold_us), name)
        again = self._run_and_check(loaded, launch, instance)
        if not again.correct:
            raise CellOutcome("incorrect", f"after timing, though right before: {_wrong(again)}")
        return {
            "status": "ok",
            "reason": "",
            "check": {
                "max_error": max(check.max_error, again.max_error),
                "error_bound": check.error_bound,
                "detail": "",
            },
            "regimes": regimes,
            "references": times,
            "notes": self._notes(),
            "copy_us": self._copy_us(cell, instance),
            "observations": self._observations(loaded, launch, instance),
        }

    def _copy_us(self, cell: Mapping[str, Any], instance: Instance) -> float | None:
        if "copy" not in self.problem.libraries:
            return None
        if "copy_us" not in self.known:
            copy = instance.library("copy", cell["launch"]["params"])
            self.known["copy_us"] = quick_time(self.gpu, copy)
        copied: float = self.known["copy_us"]
        return copied

    def _observations(
        self, loaded: Loaded, launch: Mapping[str, Any], instance: Instance
    ) -> list[dict[str, Any]]:
        samples: dict[tuple[str, str], list[float]] = {}
        for seen in range(_OBSERVED_LAUNCHES):
            loaded()
            found = instance.observations(launch["params"])
            if seen == 0 and not found:
                return []
            for observation in found:
                samples.setdefault((observation.metric, observation.unit), []).append(observation.value)
        return [
            {"metric": metric, "unit": unit, "value": median(values)}
            for (metric, unit), values in samples.items()
        ]

    def answer(self, index: int) -> dict[str, Any]:
        """The result of one cell, whatever happens in it."""
        cell = self.plan["cells"][index]
        start = time.perf_counter()
        busy_before = self.gpu.busy_us
        fatal = False
        try:
            result = self.measure(cell)
        except CellOutcome as outcome:
            result = {"status": outcome.status, "reason": outcome.reason}
        except OutOfDeviceMemory as error:
            self.release()
            result = {"status": "unsupported", "reason": str(error)}
        except _MISTAKES:
            raise
        except Exception as error:
            result = {"status": "launch_error", "reason": f"{type(error).__name__}: {error}"}
            fatal = not self._context_lives()
        result["gpu_s"] = round((self.gpu.busy_us - busy_before) / 1e6, 6)
        result["wall_s"] = round(time.perf_counter() - start, 6)
        return {"result": result, "fatal": fatal}

    def _context_lives(self) -> bool:
        try:
            self.gpu.sync()
            self.release()
        except Exception:
            return False
        return True


def _wrong(check: Check) -> str:
    return check.detail or f"largest normalised error {check.max_error:.3g}, allowed {check.error_bound:.3g}"


def _regime(pairs: Pairs, reference: str) -> dict[str, Any]:
    speedup, low, high = pairs.speedup()
    return {
        "variant_us": [round(time, 4) for time in pairs.variant_us],
        "reference_us": [round(time, 4) for time in pairs.reference_us],
        "reference": reference,
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
        "stopped_by": pairs.stopped_by,
    }


def main() -> int:
    """Serve until standard input ends."""
    die_with_parent()
    # Libraries may print; the protocol has the original standard output to itself.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    plan, cubins, harness = (Path(word) for word in sys.argv[1:4])
    worker = Worker(read_plan(plan), cubins, harness)
    print(json.dumps({"hello": {"pid": os.getpid()}}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line)["cell"])
        except _MISTAKES:
            print(json.dumps({"mistake": traceback.format_exc()}), file=answers, flush=True)
            raise
        print(json.dumps(answer), file=answers, flush=True)
        if answer["fatal"]:
            return 70
    return 0


if __name__ == "__main__":
    sys.exit(main())

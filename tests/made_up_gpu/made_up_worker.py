"""The measuring worker of a made-up GPU: its times follow from the cell, and nothing is launched.

Behind the first cell of a process it waits while the file named by MADE_UP_HOLD is there.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ladder.gpu.timing import Pairs
from ladder.measure import process, worker
from ladder.measure.choice import decide

FACTS = {
    "name": "Made-up GPU",
    "compute_capability": "9.0",
    "sms": 132,
    "l2_bytes": 62_914_560,
    "boost_clock_mhz": 1980.0,
    "fp32_peak_tflops": 66.9,
    "tensor_peak_tflops": {"bf16": 1070.5},
    "copy_gbytes_per_s": 4000.0,
    "clock_floor_us": 2.0,
}

_CHECK = {"max_error": 0.0, "error_bound": 1.0, "launches": 12}


class Bench:
    """As much of the bench as the worker's loop needs."""

    def __init__(self, plan: Any, cubins: Path) -> None:
        self.timer = SimpleNamespace(busy_us=0.0, checking_us=0.0)

    def facts(self) -> dict[str, Any]:
        return FACTS


class Worker(worker.Worker):
    """Answers at once."""

    done = 0

    def choose(self, assignment: Any) -> dict[str, Any]:
        choice = self.plan.choices[assignment.index]
        one = {
            "reference": choice.reference.libraries[0],
            "algorithm": "",
            "us": [10.0] * 12,
        }
        found = {
            "status": "ok",
            "reason": "",
            "candidates": [one],
            "references": {one["reference"]: 10.0},
        }
        found |= {
            "stopped_by": "precision",
            "clock": "events",
            "notes": [],
            "check": _CHECK,
        }
        return {choice.regime: found | decide([one])}

    def measure(self, assignment: Any) -> dict[str, Any]:
        task = self.plan.tasks[assignment.index]
        regimes = assignment.regimes
        hold = Path(os.environ.get("MADE_UP_HOLD", "/nowhere"))
        while self.done and hold.exists():
            time.sleep(0.05)
        self.done += 1
        common: dict[str, Any] = {"reference": "copy", "algorithm": ""}
        common |= {"check": _CHECK, "notes": []}
        common |= {"copy_us": 10.0, "observations": []}
        found = {}
        for regime in regimes:
            numbers = random.Random(f"{task.cell.id} {regime}")
            own, other = (
                [base * numbers.gauss(1, 0.001) for _ in range(12)]
                for base in (12.0, 10.0)
            )
            against = assignment.against.get(regime, {})
            found[regime] = worker._result(
                Pairs(own, other, "precision"), {**common, **against}
            )
        return found


if __name__ == "__main__":
    worker.BenchWithReferences, worker.Worker = Bench, Worker  # type: ignore[assignment,misc]
    sys.exit(process.main())

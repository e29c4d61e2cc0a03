"""The program ncu runs: launch each chosen cell once within the profiler's range.

Started as `python -m ladder.profile_worker PLAN CUBINS HARNESS INDICES`, INDICES being a JSON list.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cuda.bindings import driver

from ladder.device import checked
from ladder.plan import read_plan
from ladder.worker import Worker, die_with_parent


def main() -> int:
    """One unprofiled launch warms up each kernel, so that loading it is not in the counters."""
    die_with_parent()
    plan, cubins, harness = (Path(word) for word in sys.argv[1:4])
    worker = Worker(read_plan(plan), cubins, harness)
    for index in json.loads(sys.argv[4]):
        launch = worker.loaded(index)
        launch()
        worker.gpu.sync()
        checked(driver.cuProfilerStart())
        launch()
        worker.gpu.sync()
        checked(driver.cuProfilerStop())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The program ncu runs: launch each chosen task once within the profiler's range.

Started as `python -m ladder.measure.profile_worker PLAN CUBINS INDICES`, INDICES being a JSON list.
"""

import json
import sys
from pathlib import Path

from cuda.bindings import driver

from ladder.gpu.device import checked
from ladder.measure.bench import Bench
from ladder.measure.parents import die_with_parent
from ladder.model.plan import read_plan


def main() -> int:
    """One unprofiled launch warms up each kernel, so that loading it is not in the counters."""
    die_with_parent()
    plan, cubins = read_plan(Path(sys.argv[1])), Path(sys.argv[2])
    bench = Bench(plan, cubins, traced=True)
    for index in json.loads(sys.argv[3]):
        launch = bench.loaded(plan.tasks[index])
        launch()
        bench.gpu.sync()
        checked(driver.cuProfilerStart())
        launch()
        bench.gpu.sync()
        checked(driver.cuProfilerStop())
    return 0


if __name__ == "__main__":
    sys.exit(main())

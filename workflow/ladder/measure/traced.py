"""The launches that a tool watches: ncu counts in them, compute-sanitizer looks for races and wrong accesses.

Programs of `ladder.measure.process`, whose request is a list of indices of tasks in the plan.
"""

import faulthandler
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cuda.bindings import driver
from cuda.core import Buffer

from ladder.gpu.device import checked
from ladder.measure.bench import Bench, CellOutcome
from ladder.model.plan import Plan, Task


def profile(plan: Plan, cubins: Path, indices: Sequence[int]) -> None:
    """Launch each task once within the profiler's range.

    An unprofiled launch warms up each kernel, so that loading it is not in the counters.
    """
    bench = Bench(plan, cubins, traced=True)
    for index in indices:
        launch = bench.loaded(plan.tasks[index])
        launch()
        bench.gpu.sync()
        checked(driver.cuProfilerStart())
        launch()
        bench.gpu.sync()
        checked(driver.cuProfilerStop())


def sanitize(plan: Plan, cubins: Path, indices: Sequence[int]) -> None:
    """Launch each task, and again with beta where the problem has one.

    Prints a line of JSON as a task begins and one with its status. Raises SystemExit after a failed launch, whose
    context is of no use.
    """
    bench = Bench(plan, cubins, traced=True)
    for index in indices:
        print(json.dumps({"index": index, "status": "begun"}), flush=True)
        faulthandler.dump_traceback_later(plan.job["deadline_s"], exit=True)
        result = {"status": "clean"}
        try:
            _launch_unguarded(bench, plan.tasks[index])
        except CellOutcome as outcome:
            result = outcome.result
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            result = {"status": "launch_error", "reason": reason}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"index": index, **result}), flush=True)
        if result["status"] == "launch_error":
            sys.exit(1)


def _launch_unguarded(bench: Bench, task: Task) -> None:
    """Launch a task on buffers without guards: inputs are drawn, outputs are not. Raises what goes wrong."""
    instance = bench.instance(task.cell)
    addresses = list[int]()
    for name, tensor in instance.tensors.items():
        size = tensor.buffer.size
        address = int(checked(driver.cuMemAlloc(size)))
        bare = Buffer.from_handle(address, size)
        instance.tensors[name] = replace(tensor, buffer=bare, whole=bare)
        addresses.append(address)
    instance.fill_inputs(0)
    bench.loaded(task)()
    bench.gpu.sync()
    if "beta" in bench.problem.scalars:
        instance.use_scalars(1.0, 0.5)
        instance.fill_inputs(0)
        instance.poison_outputs()
        bench.loaded(task)()
        bench.gpu.sync()
    bench.release()
    for address in addresses:
        checked(driver.cuMemFree(address))

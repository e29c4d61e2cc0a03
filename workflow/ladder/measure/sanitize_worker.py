"""The program compute-sanitizer runs: launch each chosen task once, and again with beta if there is one.

Started as `python -m ladder.measure.sanitize_worker PLAN CUBINS INDICES`, a JSON list. It prints a line of
JSON as a task begins and one with its status, and leaves after a failed launch, whose context is of no use.
"""

import faulthandler
import json
import sys
from dataclasses import replace
from pathlib import Path

from cuda.bindings import driver
from cuda.core import Buffer

from ladder.gpu.device import checked
from ladder.measure.bench import Bench, CellOutcome
from ladder.measure.parents import die_with_parent
from ladder.model.plan import Task, read_plan


def launch(bench: Bench, task: Task) -> None:
    """Launch a task on buffers without guards: inputs are drawn, outputs are not. Raises what goes wrong."""
    instance = bench.instance(task.cell)
    for name, tensor in instance.tensors.items():
        bare = Buffer.from_handle(int(checked(driver.cuMemAlloc(tensor.buffer.size))), tensor.buffer.size)
        instance.tensors[name] = replace(tensor, buffer=bare, whole=bare)
    addresses = [tensor.pointer for tensor in instance.tensors.values()]
    instance.fill_inputs(0)
    bench.loaded(task)()
    bench.gpu.sync()
    if "beta" in bench.problem.scalars:
        instance.use_scalars(1.0, 0.5)
        instance.poison_outputs()
        bench.loaded(task)()
        bench.gpu.sync()
    bench.release()
    for address in addresses:
        checked(driver.cuMemFree(address))


def main() -> None:
    die_with_parent()
    plan = read_plan(Path(sys.argv[1]))
    bench = Bench(plan, Path(sys.argv[2]), traced=True)
    for index in json.loads(sys.argv[3]):
        outcome = {"status": "clean"}
        print(json.dumps({"index": index, "status": "begun"}), flush=True)
        faulthandler.dump_traceback_later(plan.job["deadline_s"], exit=True)
        try:
            launch(bench, plan.tasks[index])
        except CellOutcome as other:
            outcome = other.result
        except Exception as error:
            outcome = {"status": "launch_error", "reason": f"{type(error).__name__}: {error}"}
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"index": index, **outcome}), flush=True)
        if outcome["status"] == "launch_error":
            sys.exit(1)


if __name__ == "__main__":
    main()

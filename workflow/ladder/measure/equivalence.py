"""Whether a timer that was only rewritten reads as the old one: both measure the same cells in turns, on one GPU."""

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ladder.gpu.clocks import locked_clocks
from ladder.gpu.discovery import find_gpus, of_one_model
from ladder.measure import conditions
from ladder.measure.conditions import measuring_code
from ladder.measure.gpu_job import GpuProgram, gpu_program
from ladder.measure.plan_records import PlanRecords
from ladder.measure.request import Request
from ladder.measure.schedule import Schedule
from ladder.measure.store import now, read_store
from ladder.measure.supervisor import Supervisor, WorkerProcess
from ladder.model.cell import cell_name
from ladder.model.errors import LadderError
from ladder.model.files import read_json, write_json
from ladder.model.folders import RunFolder
from ladder.model.intervals import median
from ladder.model.plan import Plan

MOST_SHIFT = 0.002
"""By how much the mean of a class may have moved, as a share, for two timers to count as one."""
PAIRS = 30  # of measurements of a class
_CELLS = 5  # of a class
_HALF = 2.05  # standard errors of a mean to either end of its 95 % interval, from 29 degrees of freedom
_EDGES_US = (20, 100, 1000)

Places = dict[str, list[tuple[int, str]]]
"""Class -> its sample: tasks by their index in the plan, with a regime."""
Measure = Callable[[int, str], Mapping[str, Any]]
"""Measures a task in a regime: its result."""


@dataclass(frozen=True)
class Shift:
    """By how much the mean of a class moved, as a share, with the ends of its 95 % interval.

    quantity: time, of the variant, or speedup.
    """

    of: str
    quantity: str
    pairs: int
    mean: float
    low: float
    high: float

    @property
    def small(self) -> bool:
        """Whether the interval lies within MOST_SHIFT."""
        return max(abs(self.low), abs(self.high)) <= MOST_SHIFT


def sample(view: PlanRecords) -> Places:
    """Some measured cells of each class: regime, how long a launch takes, and whether the reference is a library."""
    found = Places()
    for index, task in view.launched():
        for regime in view.plan.regimes_of(task):
            record = view.current_record(task, regime)
            if record is not None and record.status == "ok" and "variant_us" in record.result:
                us = median(record.result["variant_us"])
                span = sum(us >= edge for edge in _EDGES_US)
                against = "kernel" if task.reference else "library"
                lasting = f"over {_EDGES_US[span - 1]} us" if span else f"below {_EDGES_US[0]} us"
                found.setdefault(f"{against}, {lasting}, {regime}", []).append((index, regime))
    spread = {name: max(1, len(places) // _CELLS) for name, places in found.items()}
    return {name: list(islice(places, 0, None, spread[name]))[:_CELLS] for name, places in found.items()}


def shifts(places: Places, old: Measure, new: Measure) -> Iterator[Shift]:
    """Of each class two shifts, from pairs of measurements in turns: old, new, new, old."""
    for name, cells in places.items():
        logs: dict[str, list[float]] = {"time": [], "speedup": []}
        for number in range(PAIRS):
            place = cells[number // 2 % len(cells)]
            order = (old, new) if number % 2 == 0 else (new, old)
            both = {one: one(*place) for one in order}
            times = (median(both[one]["variant_us"]) for one in (new, old))
            logs["time"].append(math.log(next(times) / next(times)))
            logs["speedup"].append(math.log(both[new]["speedup"] / both[old]["speedup"]))
        for quantity, values in logs.items():
            mean, half = fmean(values), _HALF * stdev(values) / math.sqrt(len(values))
            yield Shift(name, quantity, len(values), *(math.expm1(mean + end) for end in (0.0, -half, half)))


def codes_of(checkout: Path, problem: str) -> dict[str, str]:
    """Digests of the measuring code of another checkout. Raises LadderError where it does not say."""
    ask = "import json, sys; from ladder.measure.conditions import measuring_code as code; "
    ask += "print(json.dumps(code(sys.argv[1], '')))"
    command = [sys.executable, "-c", ask, problem]
    done = subprocess.run(
        command, env=environment_of(checkout, os.environ), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LadderError(f"{checkout}: no checkout with two digests of measuring code: {done.stderr[-500:]}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def environment_of(checkout: Path, given: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds the package of a checkout, and all others where it did."""
    known = given.get("PYTHONPATH", "").split(os.pathsep)
    others = [one for one in known if one and not (Path(one) / "ladder").is_dir()]
    return {**given, "PYTHONPATH": os.pathsep.join([str((checkout / "workflow").resolve()), *others])}


def refuse_other_checks(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Raises LadderError unless the timers differ, and nothing else of the code that measures."""
    if old["check"] != new["check"]:
        why = "code that checks is never declared equivalent; measure again"
        raise LadderError(
            f"the checkouts differ in the code that checks ({old['check']}, {new['check']}): {why}"
        )
    if old["timing"] == new["timing"]:
        raise LadderError(f"the timers of both checkouts are one already ({new['timing']})")


@contextmanager
def _measuring(program: GpuProgram, schedule: Schedule, checkout: Path) -> Iterator[Measure]:
    """What measures with the code of a checkout, in a worker of its own, against the references that were chosen."""
    plan = schedule.plan
    environment = environment_of(checkout, program.environment)
    start = partial(WorkerProcess, program.command, environment, [program.lock])
    supervisor = Supervisor(start, plan.job["deadline_s"], lambda _: None)

    def measure(index: int, regime: str) -> Mapping[str, Any]:
        task = plan.tasks[index]
        against = schedule.against(task, regime)
        request = Request(index, [regime], against={regime: against} if against else {})
        result: Mapping[str, Any] = supervisor.measure(request)["results"][regime]
        if result["status"] != "ok":
            name = cell_name(task.variant, task.cell.in_regime(regime))
            raise LadderError(f"{name} with {checkout}: {result['status']}: {result['reason']}")
        return result

    try:
        yield measure
    finally:
        supervisor.leave()


def compare_timers(plans: Mapping[Path, Plan], folder: RunFolder, root: Path, old: Path) -> list[Shift]:
    """How the timer of `root` reads beside that of the checkout `old`, on cells that a run has measured.

    If all shifts are small, it is noted in measure/equivalent_timers.json, and what the old one measured stands.

    Raises LadderError without a GPU, where the code that checks differs too, or where a cell gives no result.
    """
    store, timers = read_store(folder.records), dict[str, tuple[str, str]]()
    for plan in plans.values():
        was, is_ = codes_of(old, plan.problem), measuring_code(plan.problem, "")
        refuse_other_checks(was, is_)
        timers[plan.problem] = was["timing"], is_["timing"]
    found: dict[tuple[str, str], list[Shift]] = {both: [] for both in timers.values()}
    gpus = of_one_model(find_gpus(), folder.root.name)
    for path, plan in plans.items():
        schedule = Schedule(PlanRecords(plan, store), None)
        if not (places := sample(schedule.view)):
            raise LadderError(
                f"{path}: nothing of it was measured in this run that timers could be compared on"
            )
        with gpu_program("measure", path, plan, root, gpus) as program:
            gpu = program.gpu
            with (
                locked_clocks(gpu.uuid, plan.settings["lock_clocks"]),
                _measuring(program, schedule, old) as before,
                _measuring(program, schedule, root) as after,
            ):
                for shift in shifts(places, before, after):
                    logging.info(
                        "%s: %s: %+.3f %% (%+.3f to %+.3f)",
                        shift.of,
                        shift.quantity,
                        *(100 * end for end in (shift.mean, shift.low, shift.high)),
                    )
                    found[timers[plan.problem]].append(shift)
        gpus = [gpu]
    every = [shift for of in found.values() for shift in of]
    if all(shift.small for shift in every):
        for both, of in found.items():
            note_equivalent(conditions.EQUIVALENT, *both, gpu.name, of)
        logging.info("both timers count as one: commit %s", conditions.EQUIVALENT)
    else:
        logging.info("the timers do not read alike: what was measured by the one before does not stand")
    return every


def note_equivalent(file: Path, old: str, new: str, gpu: str, found: Sequence[Shift]) -> None:
    """Note in a file that two digests of timers count as one."""
    known = read_json(file) or {"equivalent": []}
    evidence = {"old": old, "new": new, "gpu": gpu, "day": now()[:10], "shifts": [*map(asdict, found)]}
    write_json(file, {"equivalent": [*known["equivalent"], evidence]})

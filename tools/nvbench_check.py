"""Holds the timer against NVBench before a publication, and writes docs/nvbench.csv.

    PYTHONPATH=workflow python tools/nvbench_check.py results/main/DEVICE/plans/fp32_ladder.json …

It needs a GPU that nothing else uses, the records of a run with these plans, and cuda-bench. Measured cells from a few
us to 20 ms are the subjects. NVBench flushes the L2 by a memset, whose lines are still to be written to memory; so does
this script, and both time by events. Our times come from ahead of NVBench and from behind it. Columns of the table:
medians in us, the 95 % interval of ours, NVBench's relative standard deviation; difference = ours / NVBench - 1.
"""

import csv
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ladder.gpu.device import FLUSHED
from ladder.gpu.discovery import find_gpus, of_one_model
from ladder.gpu.lock import one_gpu
from ladder.gpu.timing import Pairs
from ladder.measure.bench import REFERENCE, Bench
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import read_store
from ladder.measure.watch import CheckedSide, LaunchChecker
from ladder.model.cell import size_label
from ladder.model.errors import LadderError
from ladder.model.folders import RunFolder
from ladder.model.intervals import median, median_interval
from ladder.model.plan import Plan, Task
from ladder.model.plan_file import read_plan

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs/nvbench.csv"
TARGETS_US = (4.0, 7.0, 15.0, 50.0, 100.0, 250.0, 1000.0, 3000.0, 10000.0, 20000.0)
CLOSE = 2.0
"""A cell stands for a target if its time is within this factor of it."""
PRIMED_BELOW_US = 300.0
"""Shorter kernels run once ahead of the flush, as in NVBench's loop, so that their instructions are cached."""

ROWS_OF = "--rows-of"
"""Ahead of a plan: only that one, in this process."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A measured task that the timer is tried on, with its recorded median."""

    task: Task
    median_us: float

    @property
    def name(self) -> str:
        return f"{self.task.variant} at {size_label(self.task.cell.size)}"


def measured(view: PlanRecords) -> list[Subject]:
    """Every task of a plan that has a time in the plan's first regime."""
    subjects = []
    for _, task in view.launched():
        record = view.current_record(task)
        if record is not None and record.status == "ok":
            subjects.append(Subject(task, median(record.result["variant_us"])))
    return subjects


def nearest(subjects: Sequence[Subject], targets: Sequence[float]) -> list[Subject]:
    """For each target the subject whose time is nearest by ratio; each once, in order of time."""
    chosen: dict[str, Subject] = {}
    for target in targets if subjects else ():
        best = min(
            subjects, key=lambda subject: abs(math.log(subject.median_us / target))
        )
        if abs(math.log(best.median_us / target)) < math.log(CLOSE):
            chosen[best.name] = best
    return sorted(chosen.values(), key=lambda subject: subject.median_us)


class OurTimer:
    """Times one subject, as both sides of the pairs, after a flush alone. Every launch is verified."""

    def __init__(self, bench: Bench, subject: Subject) -> None:
        instance, launch = bench.instance(subject.task.cell), subject.task.launch
        assert launch is not None
        self.bench, self.rule, self.subject = bench, bench.rule, subject
        self.kernel = bench.verified(launch)[0]
        self.checker = LaunchChecker(instance)
        self.side = CheckedSide(launch.params, instance.error_bound(launch.params))
        with instance.writing_to(REFERENCE):
            same_kernel = bench.loaded(subject.task)
        self.here = self.checker.single_launch(self.kernel, self.side, 0)
        self.there = self.checker.single_launch(same_kernel, self.side, REFERENCE)

    def pairs(self) -> Pairs:
        """Times by events. Raises LadderError for a wrong launch."""
        pairs = self.bench.timer.pairs(
            (self.here, self.there),
            self.rule,
            FLUSHED,
            twice=self.subject.median_us < PRIMED_BELOW_US,
            swapped=(self.there, self.here),
        )
        self.checker.collect_results()
        if self.side.wrong:
            raise LadderError(f"{self.subject.name}: {self.side}")
        return pairs


def compare(plan: Plan, cubins: Path, subjects: Sequence[Subject]) -> list[Row]:
    """A row a subject. NVBench runs once in a process, hence with all subjects of a plan."""
    import cuda.bench as nvbench
    from cuda.core import Stream

    bench = Bench(plan, cubins)
    by_name = {subject.name: subject for subject in subjects}
    ours: dict[str, list[Pairs]] = {}

    def run_subject(state: Any) -> None:
        name = state.get_string("subject")
        timer = OurTimer(bench, by_name[name])
        kernel: Any = timer.kernel

        def launch_once(launch: Any) -> None:
            stream = Stream.from_handle(launch.get_stream().addressof())
            kernel.func(stream, *kernel.args[1:])

        before = timer.pairs()
        state.exec(launch_once, batched=False)
        ours[name] = [before, timer.pairs()]

    nvbench.register(run_subject).set_name("subjects").add_string_axis(
        "subject", list(by_name)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks(["nvbench", "--json", str(path), "--quiet"])
        theirs = nvbench_times(json.loads(path.read_text(encoding="utf-8")))
    return [
        row_of(by_name[name], ours[name], *theirs[name])
        for name in ours
        if name in theirs
    ]


def row_of(
    subject: Subject, sides: Sequence[Pairs], nvbench_us: float, noise: float
) -> Row:
    """The mean of both of our readings stands for the moment between them, when NVBench ran."""
    medians = [median(pairs.variant_us) for pairs in sides]
    intervals = [median_interval(pairs.variant_us) for pairs in sides]
    return {
        "subject": subject.name,
        "dtype": subject.task.cell.dtype,
        "median_us": fmean(medians),
        "median_us_low": fmean(low for low, _ in intervals),
        "median_us_high": fmean(high for _, high in intervals),
        "nvbench_us": nvbench_us,
        "nvbench_noise": noise,
        "difference": fmean(medians) / nvbench_us - 1,
    }


def nvbench_times(document: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Subject -> (cold median in us, its relative standard deviation) from NVBench's JSON; names what it skipped."""
    times = {}
    for state in document["benchmarks"][0]["states"]:
        subject = next(
            axis["value"] for axis in state["axis_values"] if axis["name"] == "subject"
        )
        values = {}
        for summary in state["summaries"] or ():
            for item in summary["data"]:
                if item["name"] == "value":
                    values[summary["tag"]] = item["value"]
        try:
            median_s = float(values["nv/cold/time/gpu/median"])
            noise = float(values["nv/cold/time/gpu/stdev/relative"])
        except KeyError:
            reason = state.get("skip_reason") or "no reason given"
            print(f"NVBench has no time of {subject}: {reason}", file=sys.stderr)
            continue
        times[subject] = median_s * 1e6, noise
    return times


def check_plan(path: Path) -> list[Row]:
    """Rows of one plan, from one GPU. Raises LadderError without a GPU or without a measured cell."""
    plan, folder = read_plan(path), RunFolder(path.resolve().parents[1])
    view = PlanRecords(plan, read_store(folder.records))
    subjects = nearest(measured(view), TARGETS_US)
    if not subjects:
        raise LadderError(f"{path}: the run has no time of its cells")
    with one_gpu(of_one_model(find_gpus(), folder.root.name)) as (gpu, _):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
        rows = compare(plan, ROOT / plan.job["cubins"], subjects)
    return [
        {"gpu": gpu.name, "gpu_uuid": gpu.uuid, "sweep": plan.sweep, **row}
        for row in rows
    ]


def main(paths: Sequence[str]) -> None:
    """Check each plan in a process of its own, which prints its rows as JSON, and write the table of all."""
    if paths[0] == ROWS_OF:
        print(json.dumps(check_plan(Path(paths[1]))))
        return
    rows: list[Row] = []
    for path in paths:
        command = [sys.executable, __file__, ROWS_OF, path]
        answer = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        rows += json.loads(answer.splitlines()[-1])
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    steady = [abs(row["difference"]) for row in rows if row["nvbench_us"] >= 100]
    print(f"{TABLE}: from 100 us on they differ by at most {max(steady):.2%}")


if __name__ == "__main__":
    main(sys.argv[1:])

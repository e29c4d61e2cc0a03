"""Is the timer right? The same kernels timed by NVBench."""

import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ladder.gpu.timing import DEVICE, Pairs, StoppingRule
from ladder.measure.bench import REFERENCE, Bench
from ladder.measure.subjects import Subject, TableRow, subject
from ladder.measure.watch import CheckedSide, LaunchChecker
from ladder.measure.worker import stopping_rule
from ladder.model.errors import LadderError
from ladder.model.intervals import median, median_interval
from ladder.model.plan import Plan

REGIME = "dirty"  # NVBench flushes the L2 by a memset


class Itself:
    """Times a subject as variant and as reference, every launch verified."""

    def __init__(self, bench: Bench, rule: StoppingRule, subject: Subject) -> None:
        self.bench, self.rule, self.subject = bench, rule, subject
        instance, launch = bench.instance(subject.task.cell), subject.task.launch
        assert launch is not None
        self.kernel, self.checker = bench.verified(launch, instance)[0], LaunchChecker(instance)
        with instance.writing_to(REFERENCE):
            other = bench.loaded(subject.task)
        self.side = CheckedSide(launch.params, instance.error_bound(launch.params))
        here = self.checker.single_launch(self.kernel, self.side, 0)
        there = self.checker.single_launch(other, self.side, REFERENCE)
        self.sides, self.swapped = (here, there), (there, here)

    def pairs(self, events: bool = False) -> Pairs:
        """By the clock that decides at this length, or by events. Raises LadderError for a wrong launch."""
        pairs = self.bench.timer.time_single_launches(
            self.sides, self.swapped, self.rule, REGIME, self.subject.median_us, events
        )
        self.checker.collect_results()
        if self.side.wrong:
            raise LadderError(f"{self.subject.name}: {self.side}")
        return pairs


def against_nvbench(bench: Bench, rule: StoppingRule, chosen: Sequence[Subject]) -> list[TableRow]:
    """Our medians around NVBench's of a kernel: rows of clock_nvbench. Raises ImportError without cuda-bench."""
    import cuda.bench as nvbench
    from cuda.core import Stream

    by_name = {subject.name: subject for subject in chosen}
    ours: dict[str, tuple[list[Pairs], Pairs]] = {}

    def measured(state: Any) -> None:
        name = state.get_string("subject")
        itself = Itself(bench, rule, by_name[name])
        kernel = itself.kernel

        def once(launch: Any) -> None:
            kernel.func(Stream.from_handle(launch.get_stream().addressof()), *kernel.args[1:])

        before = itself.pairs(events=True)
        state.exec(once, batched=False)
        ours[name] = [before, itself.pairs(events=True)], itself.pairs()

    nvbench.register(measured).set_name("subjects").add_string_axis("subject", list(by_name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks(["nvbench", "--json", str(path), "--quiet"])
        theirs = nvbench_times(json.loads(path.read_text(encoding="utf-8")))
    return [_compared(by_name[name], *found, *theirs[name]) for name, found in ours.items() if name in theirs]


def _compared(
    subject: Subject, sides: Sequence[Pairs], decisive: Pairs, nvbench_us: float, noise: float
) -> TableRow:
    """A row of clock_nvbench: the mean of both sides, by events as NVBench's, stands for the moment between them."""
    middle = fmean(median(pairs.variant_us) for pairs in sides)
    ends = zip(*(median_interval(pairs.variant_us) for pairs in sides), strict=True)
    low, high = (fmean(of) for of in ends)
    ours: TableRow = {"subject": subject.name, "dtype": subject.task.cell.dtype}
    ours |= {"median_us": middle, "median_us_low": low, "median_us_high": high}
    if decisive.clock == DEVICE:
        ours["device_us"] = median(decisive.variant_us)
    return ours | {"nvbench_us": nvbench_us, "nvbench_noise": noise, "difference": middle / nvbench_us - 1}


def nvbench_times(document: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Subject -> (cold median in µs, its relative standard deviation) from NVBench's JSON; warns where it has none."""
    times, wanted = {}, [f"nv/cold/time/gpu/{name}" for name in ("median", "stdev/relative")]
    for state in document["benchmarks"][0]["states"]:
        subject = next(axis["value"] for axis in state["axis_values"] if axis["name"] == "subject")
        items = [(summary["tag"], item) for summary in state["summaries"] or () for item in summary["data"]]
        values = {tag: item["value"] for tag, item in items if item["name"] == "value"}
        if not values.keys() >= {*wanted}:
            logging.warning("NVBench has no time of %s: %s", subject, state.get("skip_reason") or "no reason")
            continue
        middle, noise = (float(values[name]) for name in wanted)
        times[subject] = middle * 1e6, noise
    return times


def validate_timer(
    plan: Plan, cubins: Path, request: Sequence[tuple[int, float]]
) -> dict[str, list[TableRow]]:
    """Task of `ladder.measure.process`: rows of clock_nvbench, none without cuda-bench.

    The request has the subjects: of each its task's index and its median in us.
    """
    subjects = [subject(plan, *given) for given in request]
    try:
        return {"clock_nvbench": against_nvbench(Bench(plan, cubins), stopping_rule(plan), subjects)}
    except ImportError as error:
        logging.warning("cuda-bench (NVBench) is not there to compare with: %s", error)
        return {"clock_nvbench": []}

"""Is the timer right? The same kernels timed by NVBench, and a kernel timed against itself."""

import json
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ladder.gpu.timing import DEVICE, Pairs, StoppingRule
from ladder.measure.bench import REFERENCE, Bench
from ladder.measure.timer_validation_job import TABLES, Row, Subject, subject
from ladder.measure.watch import Side, Watch
from ladder.measure.worker import stopping_rule
from ladder.model.errors import LadderError
from ladder.model.intervals import median, median_interval
from ladder.model.plan import Plan

REGIME = "dirty"  # NVBench flushes the L2 by a memset
_LEAST_TRIALS = 10
_AA_SECONDS = 20.0  # of trials of one kernel: long ones have fewer


class Itself:
    """A subject as variant and as reference, every launch verified."""

    def __init__(self, bench: Bench, rule: StoppingRule, subject: Subject) -> None:
        self.bench, self.rule, self.subject = bench, rule, subject
        instance, launch = bench.instance(subject.task.cell), subject.task.launch
        assert launch is not None
        self.kernel, self.watch = bench.verified(launch, instance)[0], Watch(instance)
        with instance.writing_to(REFERENCE):
            other = bench.loaded(subject.task)
        self.side = Side(launch.params, instance.error_bound(launch.params))
        here = self.watch.single(self.kernel, self.side, 0)
        there = self.watch.single(other, self.side, REFERENCE)
        self.sides, self.swapped = (here, there), (there, here)

    def pairs(self, events: bool = False) -> Pairs:
        """By the clock that decides at this length, or by events. Raises LadderError for a wrong launch."""
        pairs = self.bench.timer.singly(
            self.sides, self.swapped, self.rule, REGIME, self.subject.median_us, events
        )
        self.watch.settle()
        if self.side.wrong:
            raise LadderError(f"{self.subject.name}: {self.side}")
        return pairs


def _about(subject: Subject) -> Row:
    return {"subject": subject.name, "dtype": subject.task.cell.dtype}


def against_itself(bench: Bench, rule: StoppingRule, subject: Subject, trials: int) -> Iterator[Row]:
    """Trials of a kernel as variant and as reference: rows of clock_aa.

    So many `trials`, or as many as there is time for, which are 10 at least.
    """
    itself, begun = Itself(bench, rule, subject), time.monotonic()
    for trial in range(trials):
        if trial >= _LEAST_TRIALS and time.monotonic() - begun > _AA_SECONDS:
            return
        pairs = itself.pairs()
        speedup, low, high = pairs.speedup()
        about = {**_about(subject), "trial": trial, "samples": len(pairs.variant_us)}
        found = {"speedup": speedup, "speedup_low": low, "speedup_high": high}
        yield {**about, **found, "covers": low <= 1.0 <= high}


def against_nvbench(bench: Bench, rule: StoppingRule, chosen: Sequence[Subject]) -> list[Row]:
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
) -> Row:
    """A row of clock_nvbench: the mean of both sides, by events as NVBench's, stands for the moment between them."""
    middle = fmean(median(pairs.variant_us) for pairs in sides)
    ends = zip(*(median_interval(pairs.variant_us) for pairs in sides), strict=True)
    low, high = (fmean(of) for of in ends)
    ours = {**_about(subject), "median_us": middle, "median_us_low": low, "median_us_high": high}
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


def validate_timer(plan: Plan, cubins: Path, request: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Task of `ladder.measure.process`: rows of clock_aa and of clock_nvbench, these none without cuda-bench.

    The request has `trials`, and by table the subjects: pairs of a task's index and its median in us.
    """
    itself, others = ([subject(plan, *given) for given in request[table]] for table in TABLES)
    bench, rule = Bench(plan, cubins), stopping_rule(plan)
    found = {
        "clock_aa": [row for one in itself for row in against_itself(bench, rule, one, request["trials"])]
    }
    try:
        return found | {"clock_nvbench": against_nvbench(bench, rule, others) if others else []}
    except ImportError as error:
        logging.warning("cuda-bench (NVBench) is not there to compare with: %s", error)
        return found | {"clock_nvbench": []}

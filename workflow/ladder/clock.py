"""Is the timer right? The same kernels timed by NVBench, and a kernel timed against itself."""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.errors import LadderError
from ladder.intervals import median, median_interval
from ladder.timing import StoppingRule, measure_cold
from ladder.worker import Worker

_TARGETS_US = (15.0, 50.0, 100.0, 250.0, 1000.0, 3000.0, 10000.0)
AA_TARGETS_US = (30.0, 300.0)
_CLOSE = 3.0
"""A cell stands for a target when its time is within this factor."""


@dataclass(frozen=True)
class Subject:
    """A measured cell that the clock is tried on: its index in the plan and its recorded cold median in µs."""

    index: int
    name: str
    cold_us: float


def subjects(
    plan: Mapping[str, Any], records: Sequence[Mapping[str, Any]], targets: Sequence[float] = _TARGETS_US
) -> list[Subject]:
    """Cells whose times lie nearest to the targets, each once, in order of time."""
    position = {
        (cell["variant"], tuple(cell["size"].items())): index for index, cell in enumerate(plan["cells"])
    }
    known = []
    for record in records:
        where = (record["variant"], tuple(record["size"].items()))
        if record.get("status") == "ok" and "cold" in record["regimes"] and where in position:
            size = "x".join(str(value) for value in record["size"].values())
            cold_us = median(record["regimes"]["cold"]["variant_us"])
            known.append(Subject(position[where], f"{record['variant']} at {size}", cold_us))
    chosen: dict[int, Subject] = {}
    for target in targets:
        if not known:
            break
        nearest = min(known, key=lambda subject: abs(math.log(subject.cold_us / target)))
        if abs(math.log(nearest.cold_us / target)) < math.log(_CLOSE):
            chosen[nearest.index] = nearest
    return sorted(chosen.values(), key=lambda subject: subject.cold_us)


def against_itself(worker: Worker, subject: Subject, trials: int, rule: StoppingRule) -> list[dict[str, Any]]:
    """Trials of a kernel as variant and as reference: rows of clock_aa."""
    launcher = worker.loaded(subject.index)
    rows = []
    for trial in range(trials):
        pairs = measure_cold(worker.gpu, launcher, launcher, rule)
        speedup, low, high = pairs.speedup()
        rows.append(
            {
                "trial": trial,
                "subject": subject.name,
                "samples": len(pairs.variant_us),
                "speedup": speedup,
                "speedup_low": low,
                "speedup_high": high,
                "covers": low <= 1.0 <= high,
            }
        )
    return rows


def against_nvbench(worker: Worker, chosen: Sequence[Subject], rule: StoppingRule) -> list[dict[str, Any]]:
    """Our cold median, taken before and after NVBench's run of the same kernel, beside NVBench's own.

    Raises LadderError where cuda-bench is not installed.
    """
    try:
        import cuda.bench as bench
        from cuda.core import Stream
        from cuda.core import launch as enqueue
    except ImportError as error:
        raise LadderError(f"cuda-bench (NVBench) is not installed: {error}") from error
    by_name = {subject.name: subject for subject in chosen}
    ours: dict[str, tuple[list[float], list[float]]] = {}

    def measured(state: Any) -> None:
        name = state.get_string("subject")
        launcher = worker.loaded(by_name[name].index)

        def once(launch: Any) -> None:
            enqueue(
                Stream.from_handle(launch.get_stream().addressof()),
                launcher.config,
                launcher.kernel,
                *launcher.arguments,
            )

        before = measure_cold(worker.gpu, launcher, launcher, rule).variant_us
        state.exec(once, batched=False)
        ours[name] = before, measure_cold(worker.gpu, launcher, launcher, rule).variant_us

    bench.register(measured).set_name("subjects").add_string_axis("subject", list(by_name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        bench.run_all_benchmarks(["nvbench", "--json", str(path), "--quiet"])
        theirs = nvbench_times(json.loads(path.read_text(encoding="utf-8")))
    rows = []
    for name, sides in ours.items():
        # The mean of both sides stands for the moment between them, whatever the temperature did meanwhile.
        middle = sum(median(times) for times in sides) / 2
        low, high = (sum(ends) / 2 for ends in zip(*(median_interval(times) for times in sides), strict=True))
        nvbench_us, noise = theirs[name]
        rows.append(
            {
                "subject": name,
                "median_us": middle,
                "median_us_low": low,
                "median_us_high": high,
                "nvbench_us": nvbench_us,
                "nvbench_noise": noise,
                "difference": middle / nvbench_us - 1,
            }
        )
        logging.info("%s: %.2f us here, %.2f us by NVBench", name, middle, nvbench_us)
    return rows


def nvbench_times(document: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Subject -> (cold median in µs, its relative standard deviation) from NVBench's JSON."""
    times = {}
    for state in document["benchmarks"][0]["states"]:
        subject = next(axis["value"] for axis in state["axis_values"] if axis["name"] == "subject")
        values = {
            summary["tag"]: float(item["value"])
            for summary in state["summaries"]
            for item in summary["data"]
            if item["name"] == "value" and item["type"] in ("float64", "int64")
        }
        times[subject] = (
            values["nv/cold/time/gpu/median"] * 1e6,
            values["nv/cold/time/gpu/stdev/relative"],
        )
    return times

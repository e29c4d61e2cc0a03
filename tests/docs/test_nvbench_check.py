"""The comparison with NVBench: which kernels it is made with, and what NVBench said of them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any

import nvbench_check
import pytest
from nvbench_check import nearest, nvbench_times


@dataclass(frozen=True)
class Timed:
    """A subject by its time alone."""

    name: str
    median_us: float


@pytest.mark.parametrize(
    ("times", "targets", "chosen"),
    [
        ([900.0, 14.0, 30.0, 5000.0], [1000.0, 15.0], [14.0, 900.0]),
        # By ratio and not by difference: 55 is 45 us from 100 and 1.8 times away; 150 is 50 us and 1.5 times.
        ([55.0, 150.0], [100.0], [150.0]),
        # One that is nearest to two targets is tried once.
        ([60.0, 1900.0], [50.0, 100.0, 1000.0, 3000.0], [60.0, 1900.0]),
        # A target twice away has no subject.
        ([19.0], [10.0], [19.0]),
        ([21.0], [10.0], []),
    ],
)
def test_each_target_gets_the_nearest_cell_in_order_of_time(
    times: list[float], targets: list[float], chosen: list[float]
) -> None:
    subjects: Any = [Timed(f"kernel {us}", us) for us in times]
    assert [subject.median_us for subject in nearest(subjects, targets)] == chosen


def state(subject: str, **values: str) -> dict[str, Any]:
    """One state as NVBench writes it: numbers are text."""
    tags = {
        "median": "nv/cold/time/gpu/median",
        "noise": "nv/cold/time/gpu/stdev/relative",
    }
    summaries = [
        {
            "tag": tags[name],
            "data": [{"name": "value", "type": "float64", "value": value}],
        }
        for name, value in values.items()
    ]
    files = [{"name": "filename", "type": "string", "value": "nvbench.json-bin/0.bin"}]
    return {
        "axis_values": [
            {"name": "other", "value": "1"},
            {"name": "subject", "value": subject},
        ],
        "summaries": [
            *summaries,
            {"tag": "nv/json/bin:nv/cold/sample_times", "data": files},
        ],
    }


def test_times_are_medians_in_microseconds_and_what_was_skipped_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    skipped = {"summaries": None, "skip_reason": "Requested memory is not there"}
    states = [
        state("one", median="1.5e-05", noise="0.017"),
        state("two") | skipped,
    ]
    times = nvbench_times({"benchmarks": [{"name": "subjects", "states": states}]})
    assert times == {"one": pytest.approx((15.0, 0.017))}
    said = capsys.readouterr().err
    assert "no time of two: Requested memory is not there" in said


def test_the_published_comparison_agrees_for_kernels_that_no_limit_slows() -> None:
    rows = [*csv.DictReader(nvbench_check.TABLE.read_text().splitlines())]
    steady = [
        abs(float(row["difference"]))
        for row in rows
        if 100 <= float(row["nvbench_us"]) < 1000
    ]
    assert steady
    assert sorted(steady)[len(steady) // 2] < 0.01

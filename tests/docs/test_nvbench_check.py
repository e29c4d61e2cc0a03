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


def chosen(times: list[float], *targets: float) -> list[float]:
    subjects: Any = [Timed(f"kernel {us}", us) for us in times]
    return [subject.median_us for subject in nearest(subjects, targets)]


def test_each_target_gets_the_nearest_cell_in_order_of_time() -> None:
    assert chosen([900.0, 14.0, 30.0, 5000.0, 120.0], 1000.0, 15.0) == [14.0, 900.0]


def test_nearest_is_by_ratio_and_not_by_difference() -> None:
    # 55 is 45 us from 100 and 1.8 times away; 150 is 50 us and 1.5 times.
    assert chosen([55.0, 150.0], 100.0) == [150.0]


def test_a_cell_nearest_to_two_targets_is_tried_once() -> None:
    assert chosen([60.0, 1900.0], 50.0, 100.0, 1000.0, 3000.0) == [60.0, 1900.0]


def test_a_target_twice_away_has_no_subject() -> None:
    assert chosen([19.0], 10.0) == [19.0]
    assert chosen([21.0], 10.0) == []
    assert chosen([], 10.0) == []


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


def test_nvbench_times_are_medians_in_microseconds_with_their_noise() -> None:
    states = [
        state("one", median="1.5e-05", noise="0.017"),
        state("two", median="0.0018695", noise="0.0006"),
    ]
    times = nvbench_times({"benchmarks": [{"name": "subjects", "states": states}]})
    assert times == {
        "one": pytest.approx((15.0, 0.017)),
        "two": pytest.approx((1869.5, 0.0006)),
    }


def test_what_nvbench_skipped_is_named_and_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    skipped = state("one") | {
        "summaries": None,
        "skip_reason": "Requested GPU memory is not there",
    }
    states = [skipped, state("two", median="0.0018695", noise="0.0006")]
    assert [
        *nvbench_times({"benchmarks": [{"name": "subjects", "states": states}]})
    ] == ["two"]
    assert (
        "no time of one: Requested GPU memory is not there" in capsys.readouterr().err
    )


def test_the_published_comparison_agrees_for_kernels_that_no_limit_slows() -> None:
    rows = [
        *csv.DictReader(nvbench_check.TABLE.read_text(encoding="utf-8").splitlines())
    ]
    steady = [
        abs(float(row["difference"]))
        for row in rows
        if 100 <= float(row["nvbench_us"]) < 1000
    ]
    assert steady
    assert sorted(steady)[len(steady) // 2] < 0.01

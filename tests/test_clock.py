"""Holding the clock to account: which kernels it is tried on, and what NVBench said of them."""

from __future__ import annotations

from typing import Any

import pytest
from ladder.measure.clock import Subject, nvbench_times, subjects


def measured(*times: float, **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A plan and records of one cell per median time in us; the plan starts with a cell that was not measured."""
    sizes = [{"m": 64 * (index + 1), "n": 64} for index in range(len(times))]
    cells = [{"variant": "tile-fp32", "size": size} for size in ({"m": 1, "n": 1}, *sizes)]
    records = [
        {
            "variant": "tile-fp32",
            "size": size,
            "status": "ok",
            "regimes": {"cold": {"variant_us": [time * 0.9, time, time * 1.5]}},
        }
        | changes
        for size, time in zip(sizes, times, strict=True)
    ]
    return {"cells": cells}, records


def test_each_target_gets_the_nearest_cell() -> None:
    plan, records = measured(900.0, 14.0, 30.0, 5000.0, 120.0)
    assert subjects(plan, records, (15.0, 1000.0)) == [
        Subject(2, "tile-fp32 at 128x64", 14.0),
        Subject(1, "tile-fp32 at 64x64", 900.0),
    ]


def test_nearest_is_by_ratio_and_not_by_difference() -> None:
    plan, records = measured(40.0, 170.0)
    # 40 is 60 us from 100 and 2.5 times away; 170 is 70 us and 1.7 times.
    assert [subject.cold_us for subject in subjects(plan, records, (100.0,))] == [170.0]


def test_a_cell_nearest_to_two_targets_is_tried_once() -> None:
    plan, records = measured(60.0, 2000.0)
    chosen = subjects(plan, records, (50.0, 100.0, 1000.0, 3000.0))
    assert [subject.cold_us for subject in chosen] == [60.0, 2000.0]


def test_subjects_come_in_order_of_time() -> None:
    plan, records = measured(3000.0, 15.0, 250.0, 50.0)
    times = [subject.cold_us for subject in subjects(plan, records)]
    assert times == sorted(times) == [15.0, 50.0, 250.0, 3000.0]


def test_a_target_three_times_away_has_no_subject() -> None:
    plan, records = measured(29.0)
    assert subjects(plan, records, (10.0,)) != []
    plan, records = measured(31.0)
    assert subjects(plan, records, (10.0,)) == []


@pytest.mark.parametrize("changes", [{"status": "incorrect"}, {"regimes": {"warm": {"variant_us": [15.0]}}}])
def test_cells_without_a_cold_time_are_no_subjects(changes: dict[str, Any]) -> None:
    plan, records = measured(15.0, **changes)
    assert subjects(plan, records) == []


def test_records_that_the_plan_no_longer_has_are_no_subjects() -> None:
    plan, records = measured(15.0, 50.0)
    plan["cells"].pop(1)
    assert [(subject.index, subject.cold_us) for subject in subjects(plan, records)] == [(1, 50.0)]


def test_nothing_measured_is_nothing_to_try() -> None:
    assert subjects({"cells": []}, []) == []


def state(subject: str, median_s: str, noise: str) -> dict[str, Any]:
    """One state as NVBench writes it: numbers are text, and other summaries lie around the two that matter."""

    def summary(tag: str, name: str, kind: str, value: str) -> dict[str, Any]:
        return {
            "tag": tag,
            "name": name,
            "hint": "duration",
            "description": "…",
            "data": [{"name": "value", "type": kind, "value": value}],
        }

    return {
        "name": f"Device=0 subject={subject}",
        "device": 0,
        "axis_values": [
            {"name": "other", "type": "int64", "input_string": "1", "value": "1"},
            {"name": "subject", "type": "string", "input_string": subject, "value": subject},
        ],
        "summaries": [
            summary("nv/cold/sample_size", "Samples", "int64", "2048"),
            summary("nv/cold/time/cpu/mean", "CPU Time", "float64", "0.001"),
            summary("nv/cold/time/gpu/mean", "GPU Time", "float64", "0.002"),
            summary("nv/cold/time/gpu/median", "GPU Median", "float64", median_s),
            summary("nv/cold/time/gpu/stdev/relative", "Noise", "float64", noise),
            {
                "tag": "nv/json/bin:nv/cold/sample_times",
                "name": "Samples Times File",
                "data": [
                    {"name": "filename", "type": "string", "value": "nvbench.json-bin/0.bin"},
                    {"name": "size", "type": "int64", "value": "2048"},
                ],
            },
        ],
        "is_skipped": False,
    }


def test_nvbench_times_are_medians_in_microseconds_with_their_noise() -> None:
    states = [
        state("tile-fp32 at 4096x4096", "1.5e-05", "0.017"),
        state("tile-fp32 at 8192", "0.0018695", "0.0006"),
    ]
    times = nvbench_times({"benchmarks": [{"name": "subjects", "states": states}]})
    assert times == {
        "tile-fp32 at 4096x4096": pytest.approx((15.0, 0.017)),
        "tile-fp32 at 8192": pytest.approx((1869.5, 0.0006)),
    }

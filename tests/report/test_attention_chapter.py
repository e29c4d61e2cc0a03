"""The chapter on attention, of records that are made up: its answer, and the claims that its rungs decide."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from checkout import PUBLISHED, loaded
from conftest import ROOT
from ladder.claims.attention import (
    masked_tiles_are_skipped,
    overlap_in_a_warpgroup,
    scores_on_chip,
    warp_specialisation_of_attention,
)
from ladder.claims.ledger import CLAIMS, decided
from ladder.claims.primitives import HOLDS, NOT_MEASURED, REFUTED, Answer, Part
from ladder.model.sweep import Entry, Sweep
from ladder.problems.attention import PROBLEM
from ladder.report.answers import answers
from ladder.report.chapters import title_of
from ladder.report.links import Links
from ladder.results import tables
from ladder.results.run_data import RunData, read_frames

PEAK = 989.0
RATES = {"1": 90, "2": 300, "3": 350, "4": 400, "5": 540, "6": 625, "6b": 320, "7": 560, "8": 640, "8b": 580}
RATES |= {"9": 650, "9b": 590}
"""TFLOP/s of the rungs, at any length."""


def timing(sweep: Sweep, entry: Entry, size: dict[str, int], against: Entry | None) -> dict[str, Any]:
    """A row of a rung, timed against the sweep's reference or against the rung that it changes."""
    variant = entry.variant
    other = RATES[against.rung.split()[0]] if against else RATES["6b" if variant.params["causal"] else "6"]
    rate = RATES[entry.rung.split()[0]]
    us = PROBLEM.work(size, variant.dtype, variant.params).operations / rate / 1e6
    row: dict[str, Any] = {"sweep": sweep.name, "problem": sweep.problem.name, "kernel": variant.kernel.name}
    row |= {"variant": variant.id, "rung": entry.rung, "params": json.dumps(dict(variant.params)), **size}
    row |= {"dtype": variant.dtype, "throttled": False, "busy": False, "fresh": False, "status": "ok"}
    row |= {"regime": "cold", "samples": 24, "stopped_by": "precision", "cv": 0.001}
    row |= {"median_us": us, "median_us_low": us * 0.999, "median_us_high": us * 1.001}
    row |= {
        "reference": against.variant.id if against else "6_overlap",
        "reference_median_us": us * rate / other,
    }
    row |= {"baseline": against.variant.id if against else None, "speedup": rate / other}
    row |= {"speedup_low": rate / other * 0.999, "speedup_high": rate / other * 1.001}
    return row | {"tflops": rate, "peak_fraction": rate / PEAK, "memory_fraction": 0.1}


@pytest.fixture(scope="module")
def data() -> RunData:
    sweeps = loaded().every_sweep
    frames, sweep = read_frames(PUBLISHED.root), sweeps["attention"]
    rows = [
        timing(sweep, entry, dict(size), against)
        for entry, size in sweep.cells
        for against in ([None, entry.baseline] if entry.baseline else [None])
    ]
    others = frames["timings"][frames["timings"]["sweep"] != "attention"]
    made = tables.concat([others, tables.frame("timings", rows)], "timings")
    return RunData(sweeps, {**frames, "timings": made}, RunData.read(PUBLISHED, sweeps).environment)


def test_its_sweeps_are_a_chapter(data: RunData) -> None:
    own = [sweep for sweep in data.sweeps.values() if sweep.problem.name == "attention"]
    assert len(own) >= 1
    assert {title_of(sweep) for sweep in own} == {"Attention"}


def test_the_answer_names_the_fastest_rungs_and_their_rates(data: RunData) -> None:
    (answer,) = (one for one in answers(data, Links(PUBLISHED, ROOT, data)) if one.name == "attention_speed")
    at = data.parts["attention"].size["sequence"]
    share = f"{100 * 650 / PEAK:.0f} % of the peak rate"
    assert answer.headline == f"Attention over {at} keys reaches 650 TFLOP/s, {share}; causal 590."
    assert answer.also == "The fastest rung is 9 lean softmax, of causal attention 9b causal, lean softmax."
    lengths = sorted({size["sequence"] for size in data.sweeps["attention"].sizes})
    table = [dict(line) for line in answer.table.lines]
    assert [(line["mask"], line["keys"]) for line in table] == [
        (mask, str(length)) for mask in ("none", "causal") for length in lengths
    ]
    assert {line["TFLOP/s"] for line in table} == {"650", "590"}


def test_without_rows_there_is_no_answer(data: RunData) -> None:
    timings = data.frames["timings"]
    frames = data.frames | {"timings": timings[timings["sweep"] != "attention"]}
    other = RunData(data.sweeps, frames, data.environment)
    (answer,) = (
        one for one in answers(other, Links(PUBLISHED, ROOT, other)) if one.name == "attention_speed"
    )
    assert not answer.headline
    assert "no attention" in answer.absent


@pytest.mark.parametrize(
    "claim",
    [
        scores_on_chip,  # 300 / 90
        masked_tiles_are_skipped,  # 560 / 320
        warp_specialisation_of_attention,  # 350 / 300
        overlap_in_a_warpgroup,  # 625 / 540
    ],
)
def test_what_texts_say_of_attention_is_decided_from_pairs_of_rungs(
    data: RunData, claim: Callable[[RunData], Answer]
) -> None:
    (one,) = (each for each in CLAIMS if each.decide is claim)

    def verdicts(of: RunData) -> list[str]:
        return [part.verdict for part in decided(one, of)[0] if isinstance(part, Part)]

    assert verdicts(data) == [HOLDS, HOLDS]
    timings = data.frames["timings"]
    own = timings["sweep"] == "attention"
    ends = ["speedup", "speedup_low", "speedup_high"]
    slower = timings.copy()
    slower.loc[own & timings["baseline"].notna(), ends] *= 0.8
    assert REFUTED in verdicts(replace_timings(data, slower))
    assert set(verdicts(replace_timings(data, timings[~own]))) == {NOT_MEASURED}


def replace_timings(data: RunData, timings: Any) -> RunData:
    return RunData(data.sweeps, data.frames | {"timings": timings}, data.environment)

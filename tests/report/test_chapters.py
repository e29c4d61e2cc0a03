"""The chapter on memory-bound kernels, from made-up times: shares of the memory's peak, predicted and measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from checkout import PUBLISHED, every_sweep, published_of
from conftest import ROOT
from ladder.claims.ledger import CLAIMS, decided, rows_of
from ladder.claims.memory_bound import (
    many_numbers_a_thread,
    online_normalizer,
    sequential_addressing,
    sums_in_all,
)
from ladder.claims.primitives import HOLDS, REFUTED, Part, Parts
from ladder.model.cell import size_label
from ladder.model.sweep import Entry, Figure, Sweep
from ladder.problems.registry import PROBLEMS
from ladder.report.answers import answers
from ladder.report.chapters import chapters, title_of
from ladder.report.document import NOT_HERE, claim_lines, render
from ladder.report.figures.registry import FIGURES
from ladder.report.links import Links
from ladder.report.shares import shares_of
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.run_data import RunData
from rendering import cells

PEAK, COPY, FP32 = 4800.0, 4250.0, 66.9
RATES = {
    "1": 3,
    "2": 700,
    "3": 800,
    "4": 1100,
    "5": 3800,
    "6": 4300,
    "7": 4290,
    "8": 4400,
}
"""GB/s of the rungs of the sum."""
ALL_RATES = {
    "reduction": RATES,
    "softmax_fp32": {
        "1": 2000,
        "2": 2700,
        "3": 3900,
        "4": 4100,
        "5": 4000,
        "6": 3600,
        "7": 4050,
    },
}
TITLE = "Memory-bound kernels"


def timing(
    sweep: Sweep, entry: Entry, size: dict[str, int], against: Entry | None
) -> dict[str, Any]:
    """A row of a rung, timed against the copy or against the rung that it changes."""
    variant, rates = entry.variant, ALL_RATES[sweep.name]
    work = PROBLEMS[sweep.problem.name].work(size, variant.dtype, variant.params)
    us = work.bytes / rates[entry.rung[0]] / 1e3
    other = work.bytes / (rates[against.rung[0]] if against else COPY) / 1e3
    tflops = work.operations / us / 1e6
    row: dict[str, Any] = {
        "sweep": sweep.name,
        "problem": sweep.problem.name,
        "kernel": variant.kernel.name,
    }
    row |= {
        "variant": variant.id,
        "rung": entry.rung,
        "params": "{}",
        "dtype": variant.dtype,
        **size,
    }
    row |= {"throttled": False, "busy": False, "fresh": False}
    row |= {
        "status": "ok",
        "regime": "cold",
        "samples": 24,
        "stopped_by": "precision",
        "cv": 0.001,
    }
    row |= {"median_us": us, "median_us_low": us * 0.999, "median_us_high": us * 1.001}
    row |= {
        "reference": against.variant.id if against else "copy",
        "reference_median_us": other,
    }
    row |= {"baseline": against.variant.id if against else None}
    row |= {
        "speedup": other / us,
        "speedup_low": other / us * 0.999,
        "speedup_high": other / us * 1.001,
    }
    row |= {
        "tflops": tflops,
        "peak_fraction": tflops / FP32,
        "gbytes_per_s": rates[entry.rung[0]],
    }
    return row | {
        "memory_fraction": rates[entry.rung[0]] / PEAK,
        "copy_fraction": other / us,
    }


@pytest.fixture(scope="module")
def data() -> RunData:
    own = (name for name, sweep in every_sweep().items() if title_of(sweep) == TITLE)
    known = published_of(
        *own,
        "fp32_ladder",
        "hopper_files",
        "fp32_tiles",
        "bank_wide",
        "stencil_best",
        "attention",
    )
    sweeps, frames = known.sweeps, known.frames
    rows = [
        timing(sweep, entry, dict(size), against)
        for sweep in (sweeps[name] for name in ALL_RATES)
        for entry, size in sweep.cells
        if entry.absent(size) is None
        for against in (None, entry.baseline)
        if against is None
        or (against is entry.baseline and against.absent(size) is None)
    ]
    unique = {
        (row["variant"], *stats.size_of(row).items(), row["baseline"]): row
        for row in rows
    }
    chapters_of_their_own = {"reduction", "transpose", "softmax", "gemv", "attention"}
    others = frames["timings"][
        ~frames["timings"]["problem"].isin(chapters_of_their_own)
    ]
    made = tables.concat(
        [others, tables.frame("timings", [*unique.values()])], "timings"
    )
    nothing_counted = tables.frame("metrics", [])
    return RunData(
        sweeps,
        {**frames, "timings": made, "metrics": nothing_counted},
        known.environment,
    )


def test_a_chapter_is_the_innermost_folder_with_a_title(data: RunData) -> None:
    titles = {name: title_of(sweep) for name, sweep in data.sweeps.items()}
    wanted = {
        "fp32_tiles": "The FP32 ladder",
        "hopper_files": "Hopper",
        "bank_wide": "Memory banks",
    }
    wanted |= {"reduction": TITLE, "reduction_libraries": TITLE}
    assert {name: titles[name] for name in wanted} == wanted
    found = [chapter.title for chapter in chapters(data, [])]
    assert len(found) == len(set(found))
    assert found.index("Hopper") < found.index(TITLE) < found.index("Register cache")


def test_each_rung_stands_in_the_chapter_with_its_predicted_and_its_measured_share(
    data: RunData,
) -> None:
    two = RunData(
        {name: data.sweeps[name] for name in ALL_RATES}, data.frames, data.environment
    )
    pages = dict(render(PUBLISHED, two, {}))
    report, page = pages[PUBLISHED.report], pages[PUBLISHED.sweep_page("reduction")]
    chapter = report.partition(f"## {TITLE}\n")[2].partition("\n## ")[0]
    lines = [line for line in chapter.splitlines() if re.match(r"\|\d ", line)]
    sums = {line.split("|")[1]: line for line in lines}
    for entry in data.sweeps["reduction"].entries:
        assert entry.predicted is not None
        low, high = (f"{100 * end:.3g}" for end in entry.predicted)
        measured = f"{100 * RATES[entry.rung[0]] / PEAK:.3g} %"
        measured += " at 2^24" if entry.rung[0] == "1" else ""
        assert f"|{low} to {high}\u00a0%|{measured}|" in sums[entry.rung], sums[
            entry.rung
        ]
    assert "of the peak rate of the memory" in chapter
    assert "TFLOP/s" not in chapter
    assert page.count("| as predicted |") + page.count("| not as predicted |") == len(
        RATES
    )


def test_on_another_gpu_nothing_is_said_of_what_was_predicted_for_one(
    data: RunData,
) -> None:
    two = {name: data.sweeps[name] for name in ALL_RATES}
    environment = {
        **data.environment,
        "device": "nvidia-geforce-rtx-4090",
        "published": None,
    }
    pages = dict(render(PUBLISHED, RunData(two, data.frames, environment), {}))
    for page in (pages[PUBLISHED.report], pages[PUBLISHED.sweep_page("reduction")]):
        assert "redict" not in re.sub(
            r"predicted on another GPU|another GPU is predicted", "", page
        )
    assert "|8 bulk copies|" in pages[PUBLISHED.report].replace("**", "")


def test_a_prediction_without_a_rung_or_a_row_stands_under_the_variants_id(
    data: RunData,
) -> None:
    sweep = data.sweeps["reduction"]
    last = replace(sweep.entries[-1], rung="", baseline=None)
    bare = replace(sweep, entries=(*sweep.entries[:-1], last))
    timings = data.frames["timings"]
    frames = data.frames | {"timings": timings[timings["variant"] != last.variant.id]}
    other = RunData({"reduction": bare}, frames, data.environment)
    page = dict(render(PUBLISHED, other, {}))[PUBLISHED.sweep_page("reduction")]
    assert f"| {last.variant.id} | 89 to 93\u00a0% |  |  |" in page


def test_the_larger_share_says_what_bounds_a_sweep(data: RunData) -> None:
    part = data.parts["reduction"]
    shares = shares_of(part)
    assert shares is not None
    assert (shares.of, len(shares.reached)) == ("the memory", len(RATES))
    many = part.timings.assign(
        peak_fraction=2 * part.timings["memory_fraction"], copy_fraction=np.nan
    )
    other = shares_of(tables_of(part, many))
    assert other is not None
    assert other.of == "arithmetic"
    first = part.sweep.entries[1]
    assert (
        other.reached[first.variant.id].share
        == 2 * shares.reached[first.variant.id].share
    )
    assert (
        size_label({"elements": 2**24})
        == shares.reached[part.sweep.entries[0].variant.id].size
    )
    assert shares_of(data.parts["fp32_ladder"]) is None
    nothing = shares_of(tables_of(part, part.timings[:0]))
    assert nothing is not None
    assert (nothing.of, nothing.reached) == ("the memory", {})
    attention = shares_of(data.parts["attention"])
    assert attention is not None
    assert (attention.of, attention.reached) == ("arithmetic", {})


def tables_of(part: Any, timings: Any) -> Any:
    import dataclasses

    return dataclasses.replace(part, timings=timings)


def test_figures_of_what_the_memory_bounds_show_its_rate(data: RunData) -> None:
    part = data.parts["reduction"]

    def texts(figure: Figure) -> str:
        drawn = FIGURES[figure.kind](part.drawn(figure, ""))
        found = [one.get_text() for axis in drawn.axes for one in axis.texts]
        found += [axis.get_ylabel() for axis in drawn.axes]
        plt.close("all")
        return "\n".join(found)

    ladder, _, curves = part.sweep.figures
    assert "GB/s" in texts(ladder)
    assert "4400" in texts(ladder)
    assert "TFLOP/s" not in texts(ladder)
    assert "memory's peak rate" in texts(curves)


@pytest.mark.parametrize(
    ("claim", "found"),
    [
        (sequential_addressing, [HOLDS, REFUTED]),  # 800 / 700
        (many_numbers_a_thread, [HOLDS, HOLDS]),  # 3800 / 1100
        (sums_in_all, [REFUTED]),  # 4400 / 700
        (online_normalizer, [HOLDS, HOLDS]),  # 2700 / 2000
    ],
)
def test_what_texts_say_of_sums_and_softmax_is_decided_from_pairs_of_rungs(
    data: RunData, claim: Callable[[RunData], Parts], found: list[str]
) -> None:
    (one,) = (each for each in CLAIMS if each.decide is claim)
    parts, _ = decided(one, data)
    assert [part.verdict for part in parts if isinstance(part, Part)] == found
    assert claim_lines(tables.frame("claims", rows_of(one, data)))[0]["verdict"] == (
        NOT_HERE if REFUTED in found else HOLDS
    )


def test_the_answer_names_the_fastest_rung_and_what_a_copy_reaches(
    data: RunData,
) -> None:
    (answer,) = (
        one
        for one in answers(data, Links(PUBLISHED, ROOT, data))
        if one.name == "memory_speed"
    )
    reached = f"a sum reaches {100 * 4400 / PEAK:.0f} % of the memory's peak rate, softmax {100 * 4100 / PEAK:.0f} %"
    assert re.fullmatch(rf"In FP32 {reached}, GEMV \d+ %\.", answer.headline), (
        "GEMV as published"
    )
    assert answer.also == "A copy reaches 89 %."
    rows = cells(answer.table)
    assert rows[0]["fastest rung"] == "bulk copies"
    assert answer.chapter == "memory_bound"
    assert {row["busy"] for row in rows} == {""}, "nothing was counted"
    assert [row["size"] for row in rows] == [
        data.parts[name].size_text for name in (*ALL_RATES, "gemv_fp32")
    ]


def test_the_numbers_of_the_answer_say_what_is_busy_where_it_was_counted(
    data: RunData,
) -> None:
    """The sum moves 1.16 GB, where 2^28 numbers are 1.07."""
    row = next(
        one
        for one in data.rows("reduction", rung="8 bulk copies")
        if one.size == data.parts["reduction"].size
    )
    counted = {"dram__bytes_read.sum": 1.1e9, "dram__bytes_write.sum": 0.06e9}
    counted |= {"smsp__issue_active.avg.pct_of_peak_sustained_active": 12.0}
    place = {name: row[name] for name in ("sweep", "variant")} | dict(row.size)
    rows = [
        place | {"metric": name, "unit": "", "value": value}
        for name, value in counted.items()
    ]
    metrics = tables.frame("metrics", rows)
    other = RunData(data.sweeps, data.frames | {"metrics": metrics}, data.environment)
    (answer,) = (
        one
        for one in answers(other, Links(PUBLISHED, ROOT, other))
        if one.name == "memory_speed"
    )
    part = 1.16e9 / 2**30 * row["memory_fraction"]
    line, *others = cells(answer.table)
    assert line["busy"] == f"DRAM {100 * part:.0f} %, issue slots 12 %"
    assert not any(one["busy"] for one in others)

"""The chapter on memory-bound kernels, from made-up times: shares of the memory's peak, predicted and measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checkout import PUBLISHED, every_sweep, published_of
from factory import Fields
from ladder.claims.ledger import CLAIMS, decided, rows_of
from ladder.claims.memory_bound import (
    many_numbers_a_thread,
    online_normalizer,
    sequential_addressing,
    sums_in_all,
)
from ladder.claims.primitives import HOLDS, REFUTED, Parts
from ladder.model.cell import size_label
from ladder.model.sweep import Entry, Sweep
from ladder.report.chapters import chapters, title_of
from ladder.report.document import render
from ladder.report.figures.registry import FIGURES
from ladder.report.shares import shares_of
from ladder.report.statements import NOT_HERE, claim_lines
from ladder.results import tables
from ladder.results.run_data import RunData
from rendering import answer_of, cells, section, with_frames
from test_figures import words

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
        "8": 4060,
        "9": 4070,
    },
}
TITLE = "Memory-bound kernels"


def timing(
    sweep: Sweep,
    entry: Entry,
    size: Mapping[str, int],
    us: float,
    reference: tuple[Entry | str, float],
    **more: Any,
) -> Fields:
    """A row of a rung that took `us`, timed against a reference and its time: a library, or a rung as baseline."""
    variant, (against, other) = entry.variant, reference
    baseline = against.variant.id if isinstance(against, Entry) else None
    work = sweep.problem.work(size, variant.dtype, variant.params)
    ends = {"speedup": 1.0, "speedup_low": 0.999, "speedup_high": 1.001}
    return {
        "sweep": sweep.name,
        "problem": sweep.problem.name,
        "kernel": variant.kernel.name,
        "variant": variant.id,
        "params": json.dumps(dict(variant.params)),
        "dtype": variant.dtype,
        "rung": entry.rung,
        **size,
        "regime": "cold",
        "status": "ok",
        "median_us": us,
        "reference_median_us": other,
        "reference": baseline or against,
        "baseline": baseline,
        **{name: factor * other / us for name, factor in ends.items()},
        "tflops": work.operations / us / 1e6,
        **more,
    }


def ladder_rows(
    sweep: Sweep, row: Callable[[Sweep, Entry, Mapping[str, int], Entry | None], Fields]
) -> list[Fields]:
    """Rows of the rungs of a sweep, and of those that change one in pairs with it."""
    rows = []
    for entry, size in sweep.cells:
        for against in [None, entry.baseline] if entry.baseline else [None]:
            if not any(rung and rung.absent(size) for rung in (entry, against)):
                rows.append(row(sweep, entry, size, against))
    return rows


def with_rows(data: RunData, rows: list[Fields], *problems: str) -> RunData:
    """The same with more rows of timings, in place of those of some problems."""
    timings = data.frames["timings"]
    others = timings[~timings["problem"].isin(problems)]
    made = tables.concat([others, tables.frame("timings", rows)], "timings")
    return with_frames(data, timings=made)


def in_memory(
    sweep: Sweep, entry: Entry, size: Mapping[str, int], against: Entry | None
) -> Fields:
    """A row of a rung, timed against the copy or against the rung that it changes."""
    rates, variant = ALL_RATES[sweep.name], entry.variant
    rate = rates[entry.rung[0]]
    other = rates[against.rung[0]] if against else COPY
    kb = sweep.problem.work(size, variant.dtype, variant.params).bytes / 1e3
    row = timing(sweep, entry, size, kb / rate, (against or "copy", kb / other))
    row |= {"peak_fraction": row["tflops"] / FP32, "gbytes_per_s": rate}
    return row | {"memory_fraction": rate / PEAK, "copy_fraction": rate / other}


@pytest.fixture(scope="module")
def data() -> RunData:
    own = (name for name, sweep in every_sweep().items() if title_of(sweep) == TITLE)
    others = ("hopper_files", "fp32_ladder", "fp32_tiles", "bank_wide", "attention")
    known = published_of(*own, *others, "stencil_best")
    rows: list[Fields] = []
    for name in ALL_RATES:
        rows += ladder_rows(known.sweeps[name], in_memory)
    made_up = "reduction", "transpose", "softmax", "gemv", "attention"
    made = with_rows(known, rows, *made_up)
    return with_frames(made, metrics=tables.frame("metrics", []))


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
    chapter = section(report, TITLE)
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


def test_the_larger_share_says_what_bounds_a_sweep(data: RunData) -> None:
    part = data.parts["reduction"]
    shares = shares_of(part)
    assert shares is not None
    assert (shares.of, len(shares.reached)) == ("the memory", len(RATES))
    many = part.timings.assign(
        peak_fraction=2 * part.timings["memory_fraction"], copy_fraction=np.nan
    )
    other = shares_of(replace(part, timings=many))
    assert other is not None
    assert other.of == "arithmetic"
    smaller, first = part.sweep.entries[:2]
    reached, twice = (each.reached[first.variant.id] for each in (shares, other))
    assert twice == 2 * reached
    assert shares.measured(smaller).endswith(f" at {size_label({'elements': 2**24})}")
    assert shares_of(data.parts["fp32_ladder"]) is None
    attention = shares_of(data.parts["attention"])
    assert attention is not None
    assert (attention.of, attention.reached) == ("arithmetic", {})


def test_figures_of_what_the_memory_bounds_show_its_rate(data: RunData) -> None:
    part = data.parts["reduction"]
    ladder, _, curves = (
        words(FIGURES[figure.kind](part.drawn(figure))) for figure in part.sweep.figures
    )
    assert "GB/s" in ladder
    assert "4400" in ladder
    assert "TFLOP/s" not in ladder
    assert "memory's peak rate" in curves.replace("\n", " ")


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
    assert [part.verdict for part in decided(one, data)[0]] == found
    assert claim_lines(tables.frame("claims", rows_of(one, data)))[0]["verdict"] == (
        NOT_HERE if REFUTED in found else HOLDS
    )


def test_the_answer_names_the_fastest_rung_and_what_a_copy_reaches(
    data: RunData,
) -> None:
    answer = answer_of(data, "memory_speed")
    reached = f"a sum reaches {100 * 4400 / PEAK:.0f} % of the memory's peak rate, softmax {100 * 4100 / PEAK:.0f} %"
    assert re.fullmatch(rf"In FP32 {reached}, GEMV \d+ %\.", answer.headline), (
        "GEMV as published"
    )
    assert answer.also == "A copy reaches 89 %. GEMV is as fast as cuBLASLt."
    rows = cells(answer.table)
    assert rows[0]["fastest"] == "bulk copies"
    assert [row["size"] for row in rows] == ["2^28", "16384x8192", "1x8192x28672"]


AT = ("2^28", "16384x8192")
"""The sizes of the ladders of ALL_RATES."""


def test_beside_libraries_the_answer_names_each_and_how_far_it_is_behind(
    data: RunData,
) -> None:
    """At the size of the ladder, in fp32 and in CUDA alone."""
    rows = []
    for name, library, behind in (
        ("reduction_libraries", "CUB", 1.0),
        ("transpose_libraries", "geam", 1.25),
        ("softmax_libraries", "torch.softmax", 2.5),
    ):
        for entry, size in data.sweeps[name].cells:
            variant = entry.variant
            asked = variant.dtype == "fp32" and not variant.kernel.triton
            us = 10.0 if asked and size_label(dict(size)) in AT else 2.0
            against = (library, 10.0 * behind)
            row = timing(data.sweeps[name], entry, size, us, against)
            rows.append(row | {"memory_fraction": 0.9})
    answer = answer_of(with_rows(data, rows), "memory_speed")
    assert answer.also == (
        "A copy reaches 89 %. A sum is as fast as CUB, softmax 2.5 times as fast as torch.softmax "
        "(2.5 times to 12 times over all lengths and types), "
        "GEMV as fast as cuBLASLt."
    ), "there is no ladder of transposition"
    assert [(row["kernel"], row["against"]) for row in cells(answer.table)] == [
        ("a sum, fp32", "copy"),
        ("softmax, fp32", "copy"),
        ("a sum, fp32", "CUB"),
        ("softmax, fp32", "torch.softmax"),
        ("GEMV, fp32", "cuBLASLt"),
    ]

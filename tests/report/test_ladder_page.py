"""docs/ladder.md: the files of a ladder, with numbers of their own, and how numbers are shown."""

from __future__ import annotations

import functools
import itertools
import math
import re
from dataclasses import replace

import pandas as pd
import pytest
from checkout import published_data
from conftest import ROOT
from ladder.report.ladder_page import FILES, File, Ladder, decimals, files_of, interval
from ladder.report.ladder_steps import steps
from ladder.results.statistics import UNKNOWN, Estimate


@functools.cache
def files(ladder: str) -> dict[str, File]:
    data = published_data()
    found = files_of(data.parts[ladder], data.parts[FILES[ladder]], data, ROOT)
    return {one.kernel.name: one for one in found}


@pytest.mark.parametrize(("ladder", "chains"), [
    ("fp32_ladder", ["1_naive 2_coalesced 3_shared_tile 4_register_tile 5_vectors 6_register_staging 7_async_ring "
                     "8_copying_warpgroup"]),
    ("hopper_ladder", ["1_tma_wgmma 1b_double_buffer 2_ring 3_wide_tile 4_persistent 5_multicast 6_tma_store",
                       "6_tma_store (rung 6b) 6c_stagger 6d_serpentine 6e_two_widths", "6d_serpentine 6f_l2_order",
                       "6_tma_store (rung 6b) 7_ping_pong", "6_tma_store (rung 6b) 8_stream_k"]),
])  # fmt: skip
def test_each_file_is_compared_with_the_one_that_it_changes(
    ladder: str, chains: list[str]
) -> None:
    found = files(ladder)
    before = {name: one.over for name, one in found.items()}
    names = [re.findall(r"\S+(?: \(.*?\))?", chain) for chain in chains]
    steps = {own: below for chain in names for below, own in itertools.pairwise(chain)}
    assert before == {names[0][0]: "", **steps}
    assert list(found) == sorted(found)
    assert all(one.lines for one in found.values() if one.before)


@pytest.mark.published
@pytest.mark.parametrize("ladder", FILES)
def test_numbers_of_a_file_are_those_of_its_own_kernel(ladder: str) -> None:
    for name, one in files(ladder).items():
        assert one.row is not None, name
        assert one.row["variant"] == f"{name}-{one.row['dtype']}"


@functools.cache
def timings() -> pd.DataFrame:
    return pd.read_csv(
        ROOT / "results" / "published" / "nvidia-h200" / "timings.csv", low_memory=False
    )


@pytest.mark.published
@pytest.mark.parametrize("ladder", FILES)
def test_a_gain_that_was_not_measured_in_turn_is_the_quotient_of_two_speeds(
    ladder: str,
) -> None:
    rows = timings()[(timings()["m"] == 4096) & (timings()["regime"] == "cold")]
    libraries = rows[rows["reference"].isin(["cublas", "cublaslt"])]
    for name, one in files(ladder).items():
        if one.before is None or one.row is None or one.direct:
            continue
        other = libraries[libraries["variant"] == one.before.id]
        other = other.sort_values("speedup").drop_duplicates("sweep")
        same = other["reference"] == one.row["reference"]
        quotients = (one.row["speedup"] / other["speedup"]).where(
            same, other["median_us"] / one.row["median_us"]
        )
        assert any(
            math.isclose(one.gain.value, each, rel_tol=1e-9) for each in quotients
        ), name
        assert one.gain.measured.low < one.gain.value < one.gain.measured.high


@pytest.mark.published
def test_a_gain_of_files_launched_in_turn_is_that_of_their_pairs() -> None:
    found = {name: one for name, one in files("hopper_ladder").items() if one.direct}
    assert list(found)[:3] == ["1b_double_buffer", "2_ring", "3_wide_tile"]
    assert list(found)[-2:] == ["7_ping_pong", "8_stream_k"]
    for name, one in found.items():
        assert one.before is not None
        pairs = timings()[
            (timings()["variant"] == f"{name}-bf16")
            & (timings()["reference"] == one.before.id)
        ]
        assert one.gain.value in set(pairs[pairs["m"] == 4096]["speedup"])
    assert not any(one.direct for one in files("fp32_ladder").values())


@pytest.mark.parametrize(
    ("sweep", "reference", "shared"),
    [
        ("hopper_ladder", "library", []),
        ("reduction", "copy", []),
        ("attention", "rung 6", ["causal"]),
        ("attention_64", "rung 6", ["consumers", "causal"]),
        ("attention_renumbered", "rung 12", ["causal"]),
    ],
)
def test_speeds_are_over_a_library_a_copy_or_a_rung_by_its_number(
    sweep: str, reference: str, shared: list[str]
) -> None:
    data = published_data().parts[sweep.replace("_renumbered", "")]
    if sweep.endswith("renumbered"):
        entries = [
            replace(one, rung=one.rung.replace("6 ", "12 "))
            for one in data.sweep.entries
        ]
        data = replace(data, sweep=replace(data.sweep, entries=tuple(entries)))
    own = Ladder(data, {}, {}, {}, {}, [], None)
    assert own.reference == reference
    assert {*own.shared} == {*shared}


def test_a_rung_over_its_own_reference_was_launched_in_turn_with_it() -> None:
    found = {
        step.entry.rung: step for step in steps(published_data().parts["attention"])
    }
    skipped = found["7 causal"]
    assert skipped.row["reference"] == skipped.below
    assert skipped.direct
    assert skipped.gain.value == skipped.row["speedup"]


def test_three_decimals_and_never_an_end_that_reads_as_1_but_is_not() -> None:
    assert [
        decimals(value) for value in (0.00976, 0.4361, 1.0094, 11.656, math.nan)
    ] == [
        "0.00976",
        "0.436",
        "1.009",
        "11.66",
        "",
    ]
    assert interval(Estimate(1.018, 0.99964, 1.0362)) == "[0.99964, 1.036]"
    assert interval(UNKNOWN) == ""

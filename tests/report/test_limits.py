"""What the counters say of a launch's limit, and where pages say it: made-up numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkout import published_data
from conftest import ROOT
from factory import Fields, Lab
from ladder.model.record import NO_NUMBER
from ladder.report.causes import busy, longest_wait
from ladder.report.lookups import Lookups
from ladder.results.environment import boost_clock_mhz
from rendering import report
from test_ladder_steps import (
    GPU,
    ISSUED,
    READ,
    TENSOR,
    WAVEFRONTS,
    WRITTEN,
    cycles,
    row,
    waits,
)

PEAK = {"memory_peak_gbytes_per_s": 5000.0}


def test_units_are_busy_for_a_share_of_the_time_the_busiest_first_and_only_what_was_counted() -> (
    None
):
    """In 1000 us: 4 GB, of 5 at the peak rate; and 5e7 wavefronts in 1e8 cycles."""
    counted = {READ: 3e9, WRITTEN: 1e9, TENSOR: 70.0, ISSUED: 30.0, WAVEFRONTS: 5e7}
    counted |= cycles(1000)
    found = busy(row(1000), counted, GPU | PEAK)
    assert list(found.items()) == [
        ("DRAM", pytest.approx(0.8)),
        ("tensor cores", pytest.approx(0.7)),
        ("shared memory", pytest.approx(0.5)),
        ("issue slots", pytest.approx(0.3)),
    ]
    assert "DRAM" not in busy(row(1000), counted, GPU), "its peak rate is not known"
    assert busy(row(1000), {}, GPU | PEAK) == {}


def test_the_longest_wait_has_its_part_of_the_time_in_which_nothing_is_issued() -> None:
    counted = waits(20, long_scoreboard=6, barrier=2)
    assert longest_wait(row(1000), counted) == "for global memory or an mbarrier, 60 %"
    assert longest_wait(row(1000), {ISSUED: 30.0}) == ""


ASKED = {"sizes": [4096], "where": "rung == 'shared tile'"}


def lab(
    root: Path, counted: dict[str, float], errors: dict[str, float], monkeypatch: Any
) -> Lab:
    """A run in which one rung has these counters, and errors."""
    made = Lab(root)
    fields = {"errors": ASKED, "counters": ASKED | {"groups": ["compute", "memory"]}}
    made.update("fp32_ladder", **fields)
    profile, seen = (
        [{"metric": name, "unit": "", "value": value} for name, value in of.items()]
        for of in (counted, errors)
    )
    monkeypatch.setattr("factory.make_profile", lambda place: profile)

    def change(place: Any, record: Fields) -> Fields:
        asked = place.entry.rung == "shared tile" and place.size["m"] == 4096
        return record | {"observations": seen} if asked else record

    made.record_and_collect(["fp32_ladder"], change, metrics=bool(counted))
    return made


def test_the_page_of_a_sweep_has_errors_beside_the_librarys_and_what_its_kernels_keep_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {"max_error_uniform": 1e-7, "reference_max_error_uniform": 2e-7}
    errors |= {"max_error_wide": 3e-7, "reference_max_error_wide": NO_NUMBER}
    page = report(lab(tmp_path, {TENSOR: 71.0, ISSUED: 34.0}, errors, monkeypatch))[
        "fp32_ladder"
    ]
    heads, _, *lines = (
        page.partition("by kind of inputs")[2]
        .partition("<details>")[0]
        .split("\n| ")[1:]
    )
    assert heads.startswith(
        "variant | size | inputs | largest error | of | its largest error | times its error"
    )
    assert [line.strip() for line in lines] == [
        "shared tile | 4096 | uniform | 1e-07 | cuBLAS | 2e-07 | 0.500 |",
        "shared tile | 4096 | wide | 3e-07 | cuBLAS | no number |  |",
    ]
    assert (
        "\n| variant | size | tensor cores | issue slots |\n| --- | --- | --- | --- |\n"
        in page
    )
    assert "\n| shared tile | 4096 | 71 % | 34 % |\n" in page


def test_without_them_the_page_says_nothing_of_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = report(lab(tmp_path, {}, {}, monkeypatch))["fp32_ladder"]
    assert "by kind of inputs" not in page
    assert "What they keep busy" not in page


@pytest.mark.published
def test_the_page_on_limits_says_what_clock_the_fastest_gemm_has_and_what_it_would_leave() -> (
    None
):
    """By cycles over time; the rate that is left is the peak's, at that clock, while the tensor cores are busy."""
    lookups = Lookups(published_data())
    fastest, boost = (
        lookups.row("hopper_ladder", "6f on 128 blocks"),
        boost_clock_mhz(lookups.data.gpu) / 1000,
    )
    clock, share = lookups.clock(fastest), lookups.busy(fastest)["tensor cores"]
    left = lookups.gpu("tensor_peak_tflops", "bf16") * clock / boost * share
    said = " ".join((ROOT / "docs/limits.md").read_text().split())
    cores = lookups.clock(lookups.row("fp32_rungs", "8 copying warpgroup"))
    for text in (
        f"time are {clock:.2f} GHz, in FP32 on CUDA cores {cores:.2f}.",
        f"With {clock:.2f} GHz and {100 * share:.0f} % of the cycles {left:.0f} would be left",
        f"and {fastest['tflops']:.0f} are measured",
    ):
        assert text in said

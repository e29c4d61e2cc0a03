"""Sweeps of the project that follow from what was published."""

from __future__ import annotations

import pytest
from checkout import every_sweep
from conftest import ROOT
from ladder.results import tables
from ladder.results.statistics import contenders

PUBLISHED = ROOT / "results/published/nvidia-h200"


def test_an_entry_runs_in_the_dtypes_that_it_names() -> None:
    """Stream-K is written for 16-bit types alone, in a sweep that has tf32 as well."""
    name = "hopper_dtypes"
    sweep = every_sweep()[name]
    found: dict[str, set[str]] = {}
    for entry in sweep.entries:
        found.setdefault(entry.variant.kernel.name, set()).add(entry.variant.dtype)
    halves = {"bf16", "fp16"}
    every = {*halves, "tf32"}
    assert found == {
        "hopper_gemm": every,
        "hopper_ping_pong": every,
        "8_stream_k": halves,
    }


@pytest.mark.published
def test_hopper_shapes_has_at_each_size_a_kernel_that_hopper_tiles_proves_no_slower() -> (
    None
):
    """Where this fails after a publication, `faster` says what to write."""
    timings = tables.read("timings", PUBLISHED)
    rows = timings[(timings["sweep"] == "hopper_tiles") & (timings["status"] == "ok")]
    rows = rows[rows["regime"] == rows["regime"].iloc[0]]
    read = {(row.m, row.n, row.k, row.variant): row for row in rows.itertuples()}
    best = {
        (row.m, row.n, row.k): row
        for row in contenders(rows, ["m", "n", "k"])
        .sort_values("predicted_low")
        .itertuples()
    }
    sweep = every_sweep()["hopper_shapes"]
    chosen = {tuple(size.values()): entry.variant.id for entry, size in sweep.cells}
    assert chosen.keys() == {
        tuple(size.values()) for size in (*sweep.sizes, *sweep.sizes_without_cells)
    }
    faster = {
        size: best[size].variant
        for size, variant in chosen.items()
        if read[*size, variant].predicted_high < best[size].predicted_low
    }
    assert faster == {}

"""The corrected ledger: statements of the texts are decided by the texts' kernels, with their caveats."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from checkout import ROOT, published_data
from ladder.claims.ledger import CLAIMS, decided
from ladder.claims.primitives import Part
from ladder.results import tables
from ladder.results.run_data import Row

pytestmark = pytest.mark.published

PUBLISHED = ROOT / "results/published/nvidia-h200"


def parts_of(claim_id: str) -> dict[str, Part]:
    """Parts that decide a claim on the published numbers, by label."""
    claim = next(claim for claim in CLAIMS if claim.id == claim_id)
    return {part.label: part for part in decided(claim, published_data())[0]}


def rows_of(part: Part) -> Iterator[Row]:
    for value in part.values.values:
        yield value.row
        yield from value.timed


def test_double_buffering_is_held_against_a_kernel_that_does_not_prefetch() -> None:
    parts = parts_of("double-buffer-faster")
    speed = parts["speed over kernel 6, two blocks: at least 1"]
    listed = parts[
        "speed over kernel 6, as listed: one block a multiprocessor: at least 1"
    ]
    assert {row["rung"] for row in rows_of(listed)} == {
        "double buffer, one block",
        "kernel 6",
    }
    paired = [row for row in rows_of(speed) if row["reference"].startswith("gemm")]
    assert {row.params["loader"] for row in paired} == {"staged"}
    kernel_6 = {row["reference"] for row in paired}
    assert len(kernel_6) == 1
    assert "loader" not in kernel_6.pop(), "the usual loader is the direct one"


def test_a_transposed_tile_is_held_against_one_that_the_compiler_may_read_at_will() -> (
    None
):
    for part in parts_of("transpose-pays").values():
        kernels = {row["kernel"] for row in rows_of(part)}
        assert kernels == {"practice_transposed_a"}, part.label
        partners = {row["reference"] for row in rows_of(part)}
        assert "practice_plain_a-fp32" in partners
    for path in (ROOT / "kernels").rglob("practice_*.cu*"):
        assert "volatile" not in path.read_text(), path


def test_one_block_a_multiprocessor_is_said_of_kernels_of_which_one_runs() -> None:
    parts = parts_of("occupancy-collapse")
    speed = parts["speed of one block over two, from 2048 on: at most 0.9"]
    blocks = {(row["rung"], row["blocks_per_sm"]) for row in rows_of(speed)}
    assert {("prefetch, one block", 1), ("double buffer, one block", 1)} <= blocks
    others = {rung: number for rung, number in blocks if "one block" not in rung}
    assert {*others.values()} == {2}, others


def test_every_step_of_the_hip_ladder_that_cuda_can_say_has_its_part() -> None:
    labels = " ".join(parts_of("ladder-order"))
    steps = " ".join(re.findall(r"\(step (\S+)\)", labels))
    assert steps == "2 3 3.1 3.2 3.3 3.4 4 5 6 7 7.1 7.2 7.3 7.5 7.7 9"


def test_times_and_counters_stand_side_by_side_for_every_variant() -> None:
    timings = tables.read("timings", PUBLISHED).query(
        "baseline.isna() and status == 'ok'"
    )
    counted = tables.read("times_and_counters", PUBLISHED)
    for sweep in (
        "tensor_stages_swizzle",
        "fp32_as_written",
        "fp32_buffering",
        "fp32_lane_maps",
        "tensor_layouts",
    ):
        timed = {*timings.loc[timings["sweep"] == sweep, "variant"]}
        assert timed
        assert timed == {*counted.loc[counted["sweep"] == sweep, "variant"]}, sweep

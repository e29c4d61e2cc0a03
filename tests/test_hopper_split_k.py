"""Slices of K: they cover it, and their sums meet in shared memory without conflicts."""

from __future__ import annotations

import pytest
from emulator.hopper import SPLIT, hold, variant
from ladder.model.errors import LadderError

COVERED = """
#include "epilogue/slice_sum.cuh"
__host__ __device__ constexpr bool covered(int steps, int slices) {
    int next = 0;
    for (int slice = 0; slice < slices; ++slice) {
        const SliceSteps share = steps_of_slice(steps, slice, slices);
        if (share.first != next || share.count < steps / slices || share.count > steps / slices + 1) return false;
        next += share.count;
    }
    return next == steps;
}
"""


def test_slices_cover_k_evenly() -> None:
    steps = (1, 2, 3, 7, 64, 65, 79, 4096)
    hold(COVERED, *(f"covered({number}, {slices})" for number in steps for slices in (2, 3, 4, 6, 8)))
    with pytest.raises(LadderError, match="static assertion failed"):
        hold(COVERED.replace("return next == steps", "return next == steps + 1"), "covered(7, 2)")


def test_each_slice_has_a_step() -> None:
    for split_k in (2, 3, 4, 6, 8):
        one = variant(SPLIT, split_k=split_k, bn=256, stages=4)
        for k in (64 * split_k, 64 * split_k + 8, 4096, 5000):
            assert one.absent({"m": 64, "n": 64, "k": k}) is None
        assert "every slice" in str(one.absent({"m": 64, "n": 64, "k": 64 * split_k - 64}))
        geometry = one.geometry({"m": 300, "n": 600, "k": 4096})
        assert (geometry.grid, geometry.cluster) == ((3 * 3 * split_k, 1, 1), (split_k, 1, 1))


def test_sums_that_do_not_fit_into_the_ring_are_refused() -> None:
    with pytest.raises(LadderError, match="take the place of the ring"):
        variant(SPLIT, stages=2)


def test_sums_of_a_slice_are_laid_down_without_conflicts() -> None:
    text = """
#include "epilogue/slice_sum.cuh"
template <int Columns>
__host__ __device__ constexpr bool conflict_free() {
    for (int first = 0; first < 128; first += 16) {
        for (int i = 0; i < Columns / 2; i += 2) {
            unsigned long long seen = 0;
            for (int thread = first; thread < first + 16; ++thread) {
                const int row = accumulator_row(thread, i), column = accumulator_column(thread, i);
                const int word = row * SliceSum<64, Columns>::stride + column;
                if (word % 2 != 0 || seen >> word % 32 & 3) return false;
                seen |= 3ull << word % 32;
            }
        }
    }
    return true;
}
"""
    hold(text, *(f"conflict_free<{columns}>()" for columns in (*range(32, 257, 16), 320, 448)))
    with pytest.raises(LadderError, match="static assertion failed"):
        hold(text.replace("SliceSum<64, Columns>::stride", "Columns"), "conflict_free<128>()")

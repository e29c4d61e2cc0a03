"""Slices of K: they cover it, and blocks send each other the sums of bands of columns."""

from __future__ import annotations

import pytest
from emulator.hopper import SPLIT, box, hold, variant
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
    hold(
        COVERED,
        *(
            f"covered({number}, {slices})"
            for number in steps
            for slices in (2, 3, 4, 6, 8)
        ),
    )
    with pytest.raises(LadderError, match="static assertion failed"):
        hold(
            COVERED.replace("return next == steps", "return next == steps + 1"),
            "covered(7, 2)",
        )


def test_each_slice_has_a_step() -> None:
    for split_k in (2, 3, 4, 6, 8):
        one = variant(SPLIT, split_k=split_k, bn=256, stages=4)
        for k in (64 * split_k, 64 * split_k + 8, 4096, 5000):
            assert one.absent({"m": 64, "n": 64, "k": k}) is None
        assert "every slice" in str(
            one.absent({"m": 64, "n": 64, "k": 64 * split_k - 64})
        )
        geometry = one.geometry({"m": 300, "n": 600, "k": 4096})
        assert (geometry.grid, geometry.cluster) == (
            (3 * 3 * split_k, 1, 1),
            (split_k, 1, 1),
        )


def test_sums_that_do_not_fit_into_the_ring_are_refused() -> None:
    with pytest.raises(LadderError, match="take the place of the ring"):
        variant(SPLIT, bn=256, split_k=4, stages=2)


BANDS = """
#include "epilogue/slice_sum.cuh"
#include "schedule/parameters.cuh"
template <class Value, int Columns, int Slices>
__host__ __device__ constexpr bool covered(int columns_of_copy) {
    using Sum = SliceSum<Value, BlockTile<64, Columns, 1, 1, false>, Slices>;
    int next = 0;
    for (int rank = 0; rank < Slices; ++rank) {
        const int left = Sum::registers - rank * Sum::band;
        const int own = left >= Sum::band ? Sum::band : left > 0 ? Sum::narrow_band : 0;
        if (own % 8 != 0 || 2 * own % columns_of_copy != 0 || (own > 0 && rank * Sum::band != next)) return false;
        next += own;
    }
    return next == Sum::registers && Sum::Buffers::box_columns == columns_of_copy;
}
"""


@pytest.mark.parametrize(
    ("dtype", "value"), [("bf16", "__nv_bfloat16"), ("tf32", "float")]
)
def test_bands_cover_a_tile_in_whole_copies(dtype: str, value: str) -> None:
    """The copies are as wide as the tensor map's box."""
    claims = []
    for columns in (32, 48, 64, 80, 96, 128, 144, 192, 256):
        for slices in (1, 2, 3, 4, 6, 8):
            more = {
                "bm": 64,
                "bn": columns,
                "consumers": 1,
                "reallocate": 0,
                "stages": 5,
            }
            one = variant(SPLIT, dtype, "TN", **more, split_k=slices)
            claims.append(f"covered<{value}, {columns}, {slices}>({box(one, 'c')[1]})")
    hold(BANDS, *claims)
    with pytest.raises(LadderError, match="static assertion failed"):
        hold(BANDS, f"covered<{value}, 128, 3>(32)")

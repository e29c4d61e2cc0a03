"""Tensor cores at warp level, without a GPU: results of the kernels' PTX on the CPU, banks, layouts, limits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout import catalog
from covering import all_pairs
from emulator.hopper import hold, refute
from emulator.launching import (
    LOADS,
    WAVEFRONTS,
    assert_shows,
    most_wavefronts,
    planted,
    wrong,
)
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant

pytestmark = pytest.mark.slow

Params = dict[str, Any]
STAGED = "mma_staged"
WMMA = "wmma_staged"
TMA = "mma_tma"
STREAM_K = "mma_stream_k"
DTYPES = ("fp16", "bf16", "tf32", "fp16_acc16")
SMALL = {"bm": 64, "bn": 64, "wm": 32, "wn": 32}
FORMS: list[tuple[str, Params]] = [
    (STAGED, {"stages": 1, "buffers": 1}),
    (STAGED, {"stages": 2, "store": "direct", "strip": 0}),
    (STAGED, {"stages": 3, "swizzle": "none", "pad": 8, "strip": 1}),
    (STAGED, {"stages": 4, "strip": 2, "bk": 64}),
    (STAGED, {"bm": 32, "bn": 128, "wm": 16, "wn": 64, "bk": 64, "store": "direct"}),
    (WMMA, {"stages": 1, "buffers": 1, "pad": 0, "store": "fragment"}),
    (WMMA, {"stages": 3, "strip": 2, "bk": 64, "store": "fragment"}),
    (WMMA, {"stages": 5, "strip": 32}),
    (WMMA, {"bm": 32, "bn": 128, "wm": 16, "wn": 64, "bk": 64, "pad": 0}),
]
SIZES = [(33, 40, 24), (1, 8, 8), (65, 136, 104), (64, 64, 64)]


def variant(name: str, dtype: str, **params: Any) -> Variant:
    return catalog()[name].variant(params, dtype)


@pytest.mark.parametrize(
    ("form", "dtype", "size", "loads", "beta"),
    all_pairs(FORMS, DTYPES, SIZES, LOADS, [0.0, 0.5]),
)
def test_gemm_is_right_at_any_size_and_whenever_copies_land(
    form: tuple[str, Params],
    dtype: str,
    size: tuple[int, int, int],
    loads: str,
    beta: float,
) -> None:
    name, params = form
    one = variant(name, dtype, **SMALL | params)
    assert wrong(one, size, beta, loads=loads) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_tiles_are_right(dtype: str) -> None:
    wide = {"bn": 256, "wm": 64}
    for name, params in ((STAGED, {}), (STAGED, wide), (WMMA, {"wm": 32})):
        assert wrong(variant(name, dtype, **params), (200, 264, 72)) == 0, params


# Loaded by TMA, with stream-K and without.

HALF = {"bm": 64, "bn": 128, "wm": 32, "wn": 64, "stages": 2, "strip": 2}
RINGS = {"bf16": HALF, "fp16": HALF, "tf32": SMALL | {"stages": 3, "strip": 0}}
ODD = (150, 296, 296)
ODD_SIZES = {"bf16": ODD, "fp16": ODD, "tf32": (150, 148, 148)}
"""M, N and K of nine tiles of five steps; the last ones are parts."""


def by_tma(name: str, dtype: str) -> Variant:
    return variant(name, dtype, **RINGS[dtype])


@pytest.mark.parametrize(
    ("dtype", "blocks", "loads"), all_pairs([*RINGS], [1, 4, 7, 12], LOADS)
)
def test_stream_k_is_right(dtype: str, blocks: int, loads: str) -> None:
    """Of nine tiles four blocks cut five, seven all; one has all to itself, and of twelve three have none."""
    one = by_tma(STREAM_K, dtype)
    assert wrong(one, ODD_SIZES[dtype], loads=loads, clusters=blocks) == 0


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("name", [STREAM_K, TMA])
def test_rings_and_warp_tiles_of_two_buffers_are_right(name: str, loads: str) -> None:
    """Nine tiles for four blocks; two parts of 32 rows, or a line of two boxes: three tiles for two blocks."""
    for dtype in ("bf16", "tf32"):
        one = by_tma(name, dtype)
        assert wrong(one, ODD_SIZES[dtype], loads=loads, clusters=4) == 0
    for bm, bn, wm in ((128, 128, 64), (64, 256, 32)):
        one = variant(name, "bf16", bm=bm, bn=bn, wm=wm, wn=bn // 2, stages=3)
        assert wrong(one, (2 * bm + 3, bn, 136), loads=loads, clusters=2) == 0, bn


@pytest.mark.parametrize("name", [STREAM_K, TMA])
def test_k_of_0_and_without_c(name: str) -> None:
    """Where K is 0 the result is beta * C. Where beta is 0, C is not read: it holds NaN."""
    for k, beta in ((0, 0.0), (0, 0.5), (200, 0.0)):
        assert wrong(by_tma(name, "bf16"), (150, 296, k), beta, clusters=4) == 0


DEEP = SMALL | {"stages": 3, "buffers": 1}
IN_STEPS = variant(STAGED, "fp16", **DEEP)
# Takes steps of four rows, half of a period of the XOR.
IN_HALVES = variant(STAGED, "tf32", **DEEP)
SHARED = by_tma(STREAM_K, "bf16")
NEXT = (
    "at.advance();\n                    mbarrier_wait(at.in(memory).full, at.parity);"
)
SYNC = "\n            __syncthreads();"
MISTAKES: list[tuple[Variant, str, str, str]] = [
    # The kernel, what is changed into what, and how it shows.
    (IN_STEPS, "wait_for_copies<Stages - 2>();", "wait_for_copies<Stages - 1>();", ""),
    (IN_STEPS, "wait_for_copies<Stages - 2>();" + SYNC, "", ""),
    (IN_STEPS, "wait_for_copies<0>();\n    __syncthreads();", "", ""),
    (
        IN_STEPS,
        "return i * step < rows_left &&",
        "return i * step < rows_left - 1 &&",
        "",
    ),
    (IN_HALVES, "return (offset ^ mask(rows)", "return (offset ^ 0 * mask(rows)", ""),
    (IN_STEPS, "if (row >= m || column >= n) continue;", "if (row >= m) continue;", ""),
    (SHARED, "if (thread == 0) take_flag(flag);", "", "zero"),
    (SHARED, "if (thread == 0) raise_flag(flag);", "", "ever"),
    (SHARED, "if (!work.has_first_step()) {", "if (false) {", "zero"),
    (
        SHARED,
        "(work.first + work.steps) * Ring::depth",
        "work.steps * Ring::depth",
        "ever",
    ),
    (SHARED, "Ring::end(at, memory);", "", "ever"),
    (SHARED, "mbarrier_wait(one.empty, at.parity ^ 1);", "", "ever"),
    (SHARED, NEXT, "at.advance();", "more arrivals"),
    (
        SHARED,
        "pending = WM / rows % buffers == 0 ? buffers - 1 : 0",
        "pending = buffers - 1",
        "wrong",
    ),
]


@pytest.mark.parametrize(("one", "right", "mistaken", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, one: Variant, right: str, mistaken: str, shows: str
) -> None:
    """What a race, a missing wait, a wrong layout or a missing bound would do, these runs see."""
    more = planted(tmp_path, one.kernel.source, right, mistaken)
    size = (65, 136, 104)
    if one is SHARED:
        size = ODD
        more["clusters"] = 4
    assert_shows(shows, partial(wrong, one, size, **more))


# Banks: every wide access, by the addresses the kernel really made.


def worst(one: Variant) -> dict[str, int]:
    bm, bn, bk = (int(one.params[name]) for name in ("bm", "bn", "bk"))
    return most_wavefronts(one, (bm, bn, 2 * bk))


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize(("dtype", "width"), [("fp16", 2), ("tf32", 4)])
@pytest.mark.parametrize("bytes_deep", [32, 256])
def test_xor_and_one_chunk_of_padding_have_no_bank_conflicts(
    dtype: str, width: int, bytes_deep: int, stages: int
) -> None:
    shape = {"bm": 64, "wm": 32, "stages": stages, "buffers": 1}
    shape["bk"] = bytes_deep // width
    for layout in ({}, {"swizzle": "none", "pad": 16 // width}):
        found = worst(variant(STAGED, dtype, **shape, **layout))
        assert len(found) == 2
        assert found.items() <= WAVEFRONTS.items(), layout


def test_plain_tiles_conflict() -> None:
    """Rows of 64 bytes put the eight rows of a matrix into four groups of banks, rows of 256 bytes into one."""
    plain = worst(variant(STAGED, "fp16", swizzle="none"))
    assert plain == {"ldmatrix": 16, "ldmatrix.trans": 32}
    tf32 = worst(variant(STAGED, "tf32", swizzle="none"))
    assert tf32 == {"ldmatrix": 32, "ld.shared.v2.u32": 8}


# Chunk layouts, for every row and chunk.

LAYOUTS = """
#include "layout/chunk_layout.cuh"

template <class Layout, int Rows, int Chunks>
__host__ __device__ constexpr bool every_chunk_has_its_own_place(int bytes) {
    for (int row = 0; row < Rows; ++row) {
        for (int chunk = 0; chunk < Chunks; ++chunk) {
            const int offset = Layout::offset(row, chunk);
            // A permutation within the row is one of the whole tile.
            if (offset < row * Layout::pitch || offset >= row * Layout::pitch + Chunks * chunk_bytes) return false;
            for (int other = 0; other < chunk; ++other) {
                if (Layout::offset(row, other) == offset) return false;
            }
        }
    }
    return Rows * Layout::pitch == bytes;
}

// Steps across and below lead where the row and the chunk say.
template <class Layout, int Rows, int Chunks>
__host__ __device__ constexpr bool steps_lead_there() {
    for (int row = 0; row < Rows; ++row) {
        for (int step = 1; step < Chunks; step *= 2) {
            for (int chunk = 0; chunk < Chunks; ++chunk) {
                if ((chunk & step) != 0) continue;
                if (Layout::across(Layout::offset(row, chunk), step) != Layout::offset(row, chunk + step)) return false;
            }
        }
        for (int step = 1; step < Rows; step *= 2) {
            for (int to = step; row < step && row + to < Rows; to += step) {
                if (Layout::below(Layout::offset(row, 1), to) != Layout::offset(row + to, 1)) return false;
            }
        }
    }
    return true;
}
"""


def test_layouts_are_permutations_and_steps_lead_to_the_right_chunk() -> None:
    assertions = []
    for chunks in (2, 4, 8, 16, 32, 64):
        for layout, pitch in (
            (f"XorChunks<{chunks}>", chunks),
            (f"PaddedChunks<{chunks}, 1>", chunks + 1),
        ):
            assertions.append(
                f"every_chunk_has_its_own_place<{layout}, 32, {chunks}>({32 * 16 * pitch})"
            )
            assertions.append(f"steps_lead_there<{layout}, 32, {chunks}>()")
    for rows in (32, 64):  # panels lie behind each other; 8 chunks are one panel
        assertions.append(
            f"every_chunk_has_its_own_place<PanelChunks<{rows}>::Panel, {rows}, 8>({rows * 128})"
        )
        assertions.append(f"steps_lead_there<PanelChunks<{rows}>, {rows}, 32>()")
        assertions.append(
            f"PanelChunks<{rows}>::offset(3, 8 + 5) == {rows * 128} + 3 * 128 + (5 ^ 3) * 16"
        )
    hold(LAYOUTS, *assertions)
    refute(LAYOUTS, "every_chunk_has_its_own_place<XorChunks<8>, 32, 8>(0)")


# What exists, and at which sizes it is right.


@pytest.mark.parametrize(
    ("name", "dtype", "params", "reason"),
    [
        (STAGED, "fp16", {"pad": 8}, "padded or XOR-swizzled"),
        (STAGED, "fp16", {"stages": 1}, "fragments come from the next stage"),
        (WMMA, "fp16", {"swizzle": "xor", "pad": 0}, "takes a base and a stride"),
        (TMA, "tf32", {"bm": 64, "bn": 64}, "one or two warpgroups"),
        (STREAM_K, "tf32", {"bm": 128, "bn": 256}, "too few registers"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_reason(
    name: str, dtype: str, params: Params, reason: str
) -> None:
    with pytest.raises(LadderError, match=reason):
        variant(name, dtype, **params)


@pytest.mark.parametrize("name", [STAGED, WMMA, TMA, STREAM_K])
def test_sizes_need_whole_chunks_and_nothing_else(name: str) -> None:
    for dtype, chunk in (("fp16", 8), ("tf32", 4)):
        one = variant(name, dtype)
        assert one.absent({"m": 33, "n": 5 * chunk, "k": 3 * chunk}) is None
        for n, k in ((5 * chunk + chunk // 2, chunk), (chunk, 3 * chunk + 1)):
            why = one.absent({"m": 33, "n": n, "k": k})
            assert "multiples of 8 (tf32: 4)" in str(why)

"""The shipped kernels, without a GPU: what the compiler made of them, where they say they are right, and layouts."""

from __future__ import annotations

from typing import Any

import pytest
from checkout import catalog, every_sweep, facts_without_spills, in_sweeps, rungs_of
from emulator.hopper import hold, refute
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant


def variant(name: str, dtype: str = "fp32", **params: int | str) -> Variant:
    return catalog()[name].variant(params, dtype)


@pytest.mark.parametrize(
    "name", [name for name, kernel in catalog().items() if not kernel.triton]
)
def test_the_first_variant_of_a_kernel_in_the_sweeps_spills_nothing(name: str) -> None:
    """In each type."""
    first = {one.dtype: one for _, one in reversed(in_sweeps(name))}
    for one in first.values():
        assert facts_without_spills(one)["blocks_per_sm"] >= 1, one.id


def test_register_cache_shuffles_instead_of_sharing_memory() -> None:
    params = {"radius": 8, "coarsen": 4}
    cached = facts_without_spills(variant("stencil_register_cache", "int32", **params))
    assert cached["shfl"] == 16 * 4
    assert cached["bar"] == cached["lds_32"] == cached["sts"] == 0
    assert cached["ldg"] == 4 + 1, "one register per output and one of halo"


# Layouts, decided by the compiler itself: static_assert over every index.

MAPS = """
#include "layout/shared_layout.cuh"

template <class Layout>
__host__ __device__ constexpr bool keeps_words_apart(int rows, int columns) {
    bool seen[4096] = {};
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
            const int at = Layout::index(row, column), place = column % Layout::alignment;
            if (at < 0 || at >= Layout::words || seen[at]) return false;
            // A group starts on its own size, and its words lie side by side.
            if (at % Layout::alignment != place || at - place != Layout::index(row, column - place)) return false;
            seen[at] = true;
        }
    }
    return true;
}

template <class Layout>
__host__ __device__ constexpr bool columns_are_conflict_free() {
    for (int column = 0; column < 32; ++column) {
        unsigned banks = 0;
        for (int row = 0; row < 32; ++row) banks |= 1u << Layout::index(row, column) % 32;
        if (banks != 0xffffffffu) return false;
    }
    return true;
}
"""


def test_layouts_keep_words_apart_and_groups_together() -> None:
    layouts = ["Plain<16, 48>", "Xor<32, 32>", "Xor<64, 32>"]
    layouts += [f"Padded<8, 64, {pad}>" for pad in (0, 1, 2, 3, 4, 8)]
    layouts += [f"XorGroups<{rows}, 128>" for rows in (4, 8, 32)]
    layouts += [f"Interleaved<8, 128, {columns}>" for columns in (4, 8, 16)]
    layouts += ["Declared<16, 64, 0>", "Declared<16, 64, 4>"]
    for layout in layouts:
        rows = layout.partition("<")[2].partition(",")[0]
        columns = 32 if layout.startswith("Xor<") else 48
        hold(MAPS, f"keeps_words_apart<{layout}>({rows}, {columns})")
    hold(MAPS, "Padded<8, 128, 4>::alignment == 4 && Padded<8, 128, 1>::alignment == 1")


def test_padding_and_xor_free_columns_of_conflicts_and_plain_does_not() -> None:
    for layout in ("Padded<32, 32, 1>", "Xor<32, 32>"):
        hold(MAPS, f"columns_are_conflict_free<{layout}>()")
    refute(MAPS, "columns_are_conflict_free<Plain<32, 32>>()")


# The sums of the stencil's windows, over a line whose word i is the bit i: a sum then names the words it is made of.

WINDOWS = """
#include "simt/stencil.cuh"

using Bits = unsigned long long;

struct Line {
    __host__ __device__ constexpr Bits operator()(int quad) const { return 15ull << 4 * quad; }
    __host__ __device__ constexpr Bits operator()(int quad, int last) const {
        return ((2ull << last) - 1) << 4 * quad;
    }
};

template <int K>
__host__ __device__ constexpr bool windows_are_complete() {
    const Line line;
    const Quad<Bits> sums = four_windows<K>(Quad<Bits>{{1, 2, 4, 8}}, line, line);
    for (int i = 0; i < 4; ++i) {
        if (sums.word[i] != ((2ull << K) - 1) << i) return false;
    }
    return true;
}
"""


def test_every_window_holds_each_of_its_words_once() -> None:
    hold(WINDOWS, *(f"windows_are_complete<{k}>()" for k in range(1, 33)))
    refute(WINDOWS.replace("15ull", "7ull"), "windows_are_complete<9>()")


# Where the kernels say they are right.


@pytest.mark.parametrize(
    ("name", "dtype", "params", "taken", "refused", "reason"),
    [
        ("gemm_naive", "fp32", {"mapping": "strided"}, (33, 31, 7), None, ""),
        ("gemm_shared_tile", "fp32", {}, (4097, 5, 129), None, ""),
        ("gemm_thread_tile", "fp32", {}, (1, 1, 1), None, ""),
        ("gemm_staged", "fp32", {"vector": 1}, (33, 31, 7), None, ""),
        (
            "gemm_staged",
            "fp32",
            {"vector": 4},
            (33, 36, 8),
            (33, 36, 7),
            "multiples of 4",
        ),
        ("wmma_naive", "fp16", {}, (32, 32, 32), (33, 32, 32), "multiples of 16"),
    ],
)
def test_kernels_say_which_sizes_they_take(
    name: str,
    dtype: str,
    params: dict[str, Any],
    taken: tuple[int, ...],
    refused: tuple[int, ...] | None,
    reason: str,
) -> None:
    one = variant(name, dtype, **params)
    assert one.absent(dict(zip("mnk", taken, strict=True))) is None
    if refused is not None:
        assert reason in str(one.absent(dict(zip("mnk", refused, strict=True))))


@pytest.mark.parametrize(
    ("ladder", "of_elements", "size", "extent"),
    [
        ("gemv", "12", {"m": 1, "n": 5}, "k"),
        ("softmax", "123", {"m": 3}, "n"),
        ("transpose", "1234", {"n": 64}, "m"),
    ],
)
def test_kernels_of_whole_vectors_say_which_sizes_they_take(
    ladder: str, of_elements: str, size: dict[str, int], extent: str
) -> None:
    """All but the rungs `of_elements` do: four numbers in fp32, eight in 16 bits."""
    for rung, name in rungs_of(f"memory_bound/{ladder}").items():
        for dtype in catalog()[name].dtypes:
            one = variant(name, dtype)
            taken = [one.absent({**size, extent: n}) is None for n in (64, 68, 66)]
            any_size = rung in of_elements
            assert taken == [True, any_size or dtype == "fp32", any_size], one.id


@pytest.mark.parametrize("name", ["gemm_shared_tile", "gemm_thread_tile"])
def test_the_grid_covers_c_and_no_block_is_idle(name: str) -> None:
    one = variant(name)
    rows = int(one.params.get("bm", one.params.get("tile", 0)))
    columns = int(one.params.get("bn", one.params.get("tile", 0)))
    for m, n in ((1, 1), (127, 129), (1000, 40)):
        x, y, _ = one.geometry({"m": m, "n": n, "k": 64}).grid
        assert (x - 1) * columns < n <= x * columns
        assert (y - 1) * rows < m <= y * rows


@pytest.mark.parametrize(
    ("name", "params", "outputs"),
    [
        ("stencil_shared", {"coarsen": 2}, 2),
        ("stencil_register_cache", {"coarsen": 2}, 2),
        ("stencil_window", {"exchange": "shuffle", "outputs": 12}, 12),
        ("stencil_window", {"exchange": "direct", "outputs": 4}, 4),
    ],
)
def test_stencils_launch_a_block_and_as_many_as_have_outputs(
    name: str, params: dict[str, Any], outputs: int
) -> None:
    one = variant(name, "int32", radius=15, **params)
    for elements in (1, 30, 31, 256 * outputs + 30, 256 * outputs + 31, 2**28):
        blocks, _, _ = one.geometry({"elements": elements}).grid
        assert blocks >= 1
        assert blocks * 256 * outputs >= elements - 30
        assert blocks == 1 or (blocks - 1) * 256 * outputs < elements - 30


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"bm": 32, "bn": 32, "tm": 8, "tn": 8}, "fewer than two warps"),
        ({"bm": 256, "bn": 256, "tm": 16}, "half of the 65536 registers"),
        ({"stages": 3}, "overwrites the tiles it has read"),
    ],
)
def test_impossible_tiles_are_refused_with_the_reason(
    params: dict[str, int], reason: str
) -> None:
    with pytest.raises(LadderError, match=reason):
        variant("gemm_staged", "fp32", **params)


# The sweeps that ship.


def test_the_default_sweeps_load_and_every_cell_is_supported() -> None:
    reasons = {
        "1_atomic-fp32": "2^24",
        "wmma_staged-fp16-swizzle=xor-pad=0": "takes a base and a stride",
    }
    for name in ("3_registers", "4_vectors", "5_bulk_copies"):
        for dtype in ("fp32", "bf16"):
            reasons[f"{name}-{dtype}"] = "a block"  # takes rows up to some length
    asked = [cell for sweep in every_sweep().values() for cell in sweep.cells]
    without = {
        entry.variant.id: str(entry.absent(size))
        for entry, size in asked
        if entry.variant.absent(size)
    }
    assert set(without) == set(reasons), "what cannot be written is on record"
    assert all(words in without[name] for name, words in reasons.items()), without
    swept = {entry.variant.kernel.name for entry, _ in asked}
    assert swept == set(catalog()), "a sweep names each kernel"


def test_kernels_stay_readable() -> None:
    for kernel in catalog().values():
        text = kernel.source.read_text()
        comment = text.startswith(("// ", "# "))
        assert comment, f"{kernel.source}: what it computes comes first"
        assert text.count("\n") < 160, f"{kernel.source}: longer than two screenfuls"
        assert "#define" not in text, f"{kernel.source}: templates, not macros"

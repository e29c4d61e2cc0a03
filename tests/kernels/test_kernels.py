"""The shipped kernels, without a GPU: what the compiler made of them, where they say they are right, and layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkout import catalog, every_sweep, facts_without_spills
from compiling import compile_text
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
INCLUDE = KERNELS / "include"
ARCH = "sm_90a"


def variant(name: str, dtype: str = "fp32", **params: int | str) -> Variant:
    return catalog()[name].variant(params, dtype)


@pytest.mark.parametrize(
    "name", [name for name, kernel in catalog().items() if not kernel.triton]
)
def test_the_first_variant_of_a_kernel_in_the_sweeps_spills_nothing(name: str) -> None:
    variants = (
        one
        for sweep in every_sweep().values()
        for one in sweep.variants
        if one.kernel.name == name
    )
    assert facts_without_spills(next(variants))["blocks_per_sm"] >= 1


def test_register_cache_shuffles_instead_of_sharing_memory() -> None:
    cached, shared = (
        facts_without_spills(variant(name, "int32", radius=8, coarsen=4))
        for name in ("stencil_register_cache", "stencil_shared")
    )
    assert cached["shfl"] == 16 * 4
    assert cached["bar"] == cached["lds_32"] == cached["sts"] == 0
    assert cached["ldg"] == 4 + 1, "one register per output and one of halo"
    assert (shared["shfl"], shared["lds_32"]) == (0, 17 * 4)


def test_bank_probe_keeps_every_access() -> None:
    for name, params in (
        ("bank_stride", {"stride": 32}),
        ("bank_column", {"tile_layout": "xor"}),
    ):
        found = facts_without_spills(variant(name, "int32", **params))
        assert found["lds_32"] == 32, (
            "one load per pattern in the timed loop, none joined or dropped"
        )
        assert found["lds_64"] == found["lds_128"] == 0


# Layouts, decided by the compiler itself: static_assert over every index.

MAPS = """
#include "layout/shared_layout.cuh"

template <class Layout>
__host__ __device__ constexpr bool keeps_words_apart(int rows, int columns) {
    bool seen[4096] = {};
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < columns; ++column) {
            const int at = Layout::index(row, column);
            if (at < 0 || at >= Layout::words || seen[at]) return false;
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

__global__ void maps() {
    ASSERTIONS
}
"""


def hold(*assertions: str) -> None:
    """Compile a source that asserts them. Raises LadderError with the compiler's message where one does not hold."""
    text = MAPS.replace(
        "ASSERTIONS",
        "\n    ".join(f'static_assert({text}, "");' for text in assertions),
    )
    compile_text(text, ["maps"], [INCLUDE], ARCH)


def test_layouts_keep_words_apart() -> None:
    hold(
        "keeps_words_apart<Plain<16, 48>>(16, 48)",
        "keeps_words_apart<Padded<16, 48, 3>>(16, 48)",
        "keeps_words_apart<Xor<32, 32>>(32, 32)",
        "keeps_words_apart<Xor<64, 32>>(64, 32)",
        "Padded<8, 128, 4>::alignment == 4 && Padded<8, 128, 2>::alignment == 2 && Padded<8, 128, 1>::alignment == 1",
    )


def test_padding_and_xor_free_columns_of_conflicts_and_plain_does_not() -> None:
    hold(
        "columns_are_conflict_free<Padded<32, 32, 1>>()",
        "columns_are_conflict_free<Xor<32, 32>>()",
    )
    with pytest.raises(LadderError, match="static assertion failed"):
        hold("columns_are_conflict_free<Plain<32, 32>>()")


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

__global__ void windows() {
    ASSERTIONS
}
"""


def test_every_window_holds_each_of_its_words_once() -> None:
    assertions = "\n    ".join(
        f'static_assert(windows_are_complete<{k}>(), "");' for k in range(1, 33)
    )
    compile_text(
        WINDOWS.replace("ASSERTIONS", assertions), ["windows"], [INCLUDE], ARCH
    )
    wrong = WINDOWS.replace("15ull", "7ull").replace(
        "ASSERTIONS", 'static_assert(windows_are_complete<9>(), "");'
    )
    with pytest.raises(LadderError, match="static assertion failed"):
        compile_text(wrong, ["windows"], [INCLUDE], ARCH)


# Where the kernels say they are right.


def gemm_size(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


def test_scalar_kernels_take_any_size() -> None:
    for m, n, k in ((1, 1, 1), (33, 31, 7), (4097, 5, 129)):
        size = gemm_size(m, n, k)
        for mapping in ("flat", "coalesced", "strided"):
            assert variant("gemm_naive", mapping=mapping).absent(size) is None
        for name in ("gemm_shared_tile", "gemm_thread_tile"):
            assert variant(name).absent(size) is None
        assert variant("gemm_staged", vector=1).absent(size) is None


def test_wide_kernels_say_which_sizes_they_do_not_take() -> None:
    wide = variant("gemm_staged", vector=4)
    assert wide.absent(gemm_size(33, 36, 8)) is None
    assert "multiples of 4" in str(wide.absent(gemm_size(33, 36, 7)))
    assert "multiples of 4" in str(wide.absent(gemm_size(33, 37, 8)))
    assert variant("wmma_staged", "fp16").absent(gemm_size(33, 40, 8)) is None
    assert "multiples of 8" in str(
        variant("wmma_staged", "fp16").absent(gemm_size(33, 36, 8))
    )
    assert "multiples of 16" in str(
        variant("wmma_naive", "fp16").absent(gemm_size(33, 32, 32))
    )
    assert "multiples of 8" in str(
        variant("mma_staged", "fp16").absent(gemm_size(33, 36, 8))
    )
    assert "multiples of 32" in str(
        variant("bank_stride", "int32").absent({"elements": 33})
    )


@pytest.mark.parametrize("name", ["gemm_shared_tile", "gemm_thread_tile"])
def test_the_grid_covers_c_and_no_block_is_idle(name: str) -> None:
    one = variant(name)
    rows, columns = (
        one.params.get(axis, one.params.get("tile")) for axis in ("bm", "bn")
    )
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    for m, n in ((1, 1), (127, 129), (128, 128), (1000, 40)):
        x, y, _ = one.geometry(gemm_size(m, n, 64)).grid
        assert (x - 1) * columns < n <= x * columns
        assert (y - 1) * rows < m <= y * rows


def test_the_grid_of_the_window_covers_the_outputs() -> None:
    for exchange, outputs in (("shuffle", 12), ("shared", 8), ("direct", 4)):
        one = variant(
            "stencil_window", "fp32", radius=15, exchange=exchange, outputs=outputs
        )
        for elements in (1, 30, 31, 256 * outputs + 30, 256 * outputs + 31, 2**28):
            blocks, _, _ = one.geometry({"elements": elements}).grid
            assert blocks * 256 * outputs >= elements - 30
            assert blocks == 1 or (blocks - 1) * 256 * outputs < elements - 30


def test_a_line_in_shared_memory_has_a_limit() -> None:
    with pytest.raises(LadderError, match="48 KiB"):
        variant("stencil_window", "fp32", exchange="shared", outputs=16, block=1024)


@pytest.mark.parametrize("name", ["stencil_shared", "stencil_register_cache"])
def test_stencils_launch_at_least_one_block(name: str) -> None:
    one = variant(name, "int32", radius=16, coarsen=2)
    for elements in (1, 32, 33, 256 * 2 + 32, 256 * 2 + 33, 2**28):
        blocks, _, _ = one.geometry({"elements": elements}).grid
        assert blocks >= 1
        assert blocks * 256 * 2 >= elements - 32
        assert blocks == 1 or (blocks - 1) * 256 * 2 < elements - 32


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"bm": 32, "bn": 32, "tm": 8, "tn": 8}, "fewer than two warps"),
        ({"bm": 256, "bn": 256, "tm": 16}, "half of the 65536 registers"),
        ({"stages": 3}, "overwrites the tiles it has read"),
        ({"loader": "async"}, "a stage of their own"),
    ],
)
def test_impossible_tiles_are_refused_with_the_reason(
    params: dict[str, int], reason: str
) -> None:
    with pytest.raises(LadderError, match=reason):
        variant("gemm_staged", "fp32", **params)


# The sweeps that ship.


def test_the_default_sweeps_load_and_every_cell_is_supported() -> None:
    sweeps = every_sweep()
    asked = [cell for sweep in sweeps.values() for cell in sweep.cells]
    without = {
        entry.variant.id: entry.absent(size)
        for entry, size in asked
        if entry.variant.absent(size)
    }
    reasons = {
        "1_atomic-fp32": "2^24",
        "wmma_staged-fp16-swizzle=xor-pad=0": "takes a base and a stride",
    }
    held = (
        "3_registers",
        "4_vectors",
        "5_bulk_copies",
    )  # each takes rows up to some length
    reasons |= {
        f"{name}-{dtype}": "a block" for name in held for dtype in ("fp32", "bf16")
    }
    assert set(without) == set(reasons), "what cannot be written is on record"
    assert all(words in str(without[name]) for name, words in reasons.items()), without
    assert {entry.variant.kernel.name for entry, _ in asked} == set(catalog()), (
        "a sweep names each kernel"
    )


def test_the_tile_sweep_has_144_variants() -> None:
    assert (
        len({entry.variant.id for entry in every_sweep()["fp32_tiles"].entries}) == 144
    )


def test_kernels_stay_readable() -> None:
    for kernel in catalog().values():
        text = kernel.source.read_text(encoding="utf-8")
        assert text.startswith(("// ", "# ")), (
            f"{kernel.source}: what it computes comes first"
        )
        assert text.count("\n") < 160, f"{kernel.source}: longer than two screenfuls"
        assert "#define" not in text, f"{kernel.source}: templates, not macros"

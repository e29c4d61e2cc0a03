"""The shipped kernels, without a GPU: what the compiler made of them, where they say they are right, and layouts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from checkout import catalog, every_sweep, facts_of, facts_without_spills, published_facts
from compiling import compile_text, compile_variants, kept_cache, opcodes
from ladder.build.variants import variant_request
from ladder.catalogue.kernels import load_kernel
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
INCLUDE = KERNELS / "include"
ARCH = "sm_90a"

REPRESENTATIVE: list[tuple[str, str, dict[str, int | str]]] = [
    *((path.stem, "fp32", {}) for path in sorted((KERNELS / "gemm" / "fp32").glob("*.cu"))),
    *((path.stem, "fp32", {}) for path in sorted((KERNELS / "gemm" / "as_written").glob("*.cu"))),
    *(
        (path.stem, next(iter(load_kernel(path.with_suffix(".yaml")).dtypes)), {})
        for path in sorted([*KERNELS.glob("memory_bound/*/*.cu"), *KERNELS.glob("attention/*.cu")])
    ),
    ("gemm_naive", "fp32", {"mapping": "flat"}),
    ("gemm_naive", "fp32", {"mapping": "strided"}),
    ("gemm_shared_tile", "fp32", {}),
    ("gemm_thread_tile", "fp32", {}),
    ("gemm_staged", "fp32", {}),
    ("gemm_staged", "fp32", {"transpose_a": 0}),
    ("gemm_staged", "fp32", {"bm": 256, "bn": 64, "bk": 32, "tm": 4, "tn": 4, "min_blocks": 1}),
    ("gemm_stream_k", "fp32", {}),
    ("gemm_short_tiles", "fp32", {}),
    ("gemm_tma", "fp32", {}),
    ("gemm_sliced_k", "fp32", {}),
    ("gemm_split_k", "fp32", {}),
    ("gemm_split_k", "fp32", {"vector": 1}),
    (
        "gemm_sliced_k",
        "fp32",
        {"bm": 64, "bn": 64, "tn": 16, "stages": 6, "split_k": 2, "grid_k": 16, "min_blocks": 1},
    ),
    ("gemm_sliced_k", "fp32", {"bm": 1, "bn": 128, "tm": 1, "tn": 4}),
    ("gemm_sliced_k", "fp32", {"bm": 128, "bn": 4, "tm": 4, "tn": 4, "bk": 16, "warps": 4}),
    ("wmma_naive", "fp16", {}),
    ("wmma_staged", "fp16", {}),
    ("mma_staged", "bf16", {"bn": 256, "stages": 4}),
    ("mma_tma", "fp16", {"bm": 256, "bn": 128, "strip": 16}),
    ("mma_tma", "tf32", {"bm": 256, "bn": 128, "strip": 16}),
    ("mma_stream_k", "bf16", {}),
    ("mma_stream_k", "tf32", {}),
    ("bank_stride", "int32", {"stride": 33}),
    ("bank_column", "int32", {"tile_layout": "xor"}),
    ("bank_access", "int32", {"access": "write", "width": 16}),
    ("bank_broadcast", "int32", {"pattern": "bank_row"}),
    ("bank_matrix", "int32", {"tile_layout": "xor", "row_bytes": 64}),
    ("stencil_shared", "fp32", {"radius": 32, "coarsen": 8, "block": 1024}),
    ("stencil_register_cache", "int32", {"radius": 25, "coarsen": 8, "block": 1024}),
    ("stencil_register_cache", "int32", {"radius": 32, "coarsen": 8, "block": 1024}),
    ("stencil_global", "int32", {"radius": 16}),
    ("stencil_window", "fp32", {"radius": 16, "outputs": 16}),
    ("stencil_window", "int32", {"radius": 16, "store": "streaming"}),
    ("stencil_window", "int32", {"radius": 16, "outputs": 8, "exchange": "shared"}),
    ("stencil_window", "fp32", {"radius": 16, "exchange": "direct"}),
]
"""Of the sweeps, so that what is published of those that did not change is known."""
IN_NO_SWEEP: list[tuple[str, str, dict[str, int | str]]] = [
    ("gemm_staged", "fp32", {"transpose_a": 0, "vector": 1}),
    ("gemm_sliced_k", "fp32", {"bm": 64, "bn": 64, "tn": 16, "split_k": 2, "grid_k": 16, "min_blocks": 1}),
    ("wmma_staged", "tf32", {"pad": 4}),
    ("mma_staged", "bf16", {"bn": 256, "bk": 64, "stages": 4}),
    ("mma_tma", "fp16", {}),
    ("mma_tma", "tf32", {"bm": 256, "bn": 128}),
    ("stencil_global", "fp32", {"radius": 32}),
    ("stencil_register_cache", "fp32", {"radius": 32, "coarsen": 8, "lanes": 8}),
    ("stencil_register_cache", "int32", {"radius": 25, "coarsen": 8, "lanes": 16}),
    ("stencil_window", "int32", {"radius": 16, "outputs": 32, "store": "streaming"}),
]


def variant(name: str, dtype: str = "fp32", **params: int | str) -> Variant:
    return catalog()[name].variant(params, dtype)


def facts(name: str, dtype: str = "fp32", **params: int | str) -> dict[str, Any]:
    """Of a variant that compiles."""
    found = facts_of(variant(name, dtype, **params))
    assert found["status"] == "ok", found["reason"]
    return found


def code(*variants: Variant) -> list[Counter[str]]:
    """SASS opcodes of each, with modifiers."""
    return [Counter(opcodes(cubin, ARCH)) for cubin, _ in compile_variants(variants, INCLUDE, ARCH)]


@pytest.mark.parametrize(
    ("name", "dtype", "params"),
    [*REPRESENTATIVE, *(pytest.param(*row, marks=pytest.mark.slow) for row in IN_NO_SWEEP)],
)
def test_nothing_spills_or_lives_in_local_memory(name: str, dtype: str, params: dict[str, int | str]) -> None:
    assert facts_without_spills(variant(name, dtype, **params))["blocks_per_sm"] >= 1


@pytest.mark.slow
def test_what_is_published_of_them_is_what_the_compiler_says() -> None:
    requests = [
        variant_request(variant(name, dtype, **params), INCLUDE, ARCH)
        for name, dtype, params in REPRESENTATIVE
    ]
    for key, found in kept_cache().fill(requests, 2, 300).items():
        assert found | {"compile_s": 0} == published_facts().get(key, found) | {"compile_s": 0}


def test_every_kernel_is_represented() -> None:
    """The Hopper kernels and those in Triton have tests of their own (test_hopper_*.py, test_triton_*.py)."""
    kernels = catalog().items()
    others = {name for name, one in kernels if not one.triton and one.source.parent.name != "hopper"}
    assert {name for name, _, _ in REPRESENTATIVE} == others, "REPRESENTATIVE has a line for each kernel"


# What the rungs of the ladder claim to differ in, seen in the machine code.


def test_transposed_fragments_load_as_128_bits_only() -> None:
    found = facts("gemm_staged", bk=8)
    # Two fragments of eight floats, two LDS.128 each, in each of eight unrolled K steps.
    assert (found["lds_128"], found["lds_64"], found["lds_32"]) == (8 * 4, 0, 0)


def test_the_plain_baseline_loads_fragments_of_a_word_by_word() -> None:
    found = facts("gemm_staged", bk=8, transpose_a=0)
    # Eight LDS.32 for the column of A, two LDS.128 for the row of B, in each K step.
    assert (found["lds_128"], found["lds_64"], found["lds_32"]) == (8 * 2, 0, 8 * 8)


def test_only_aligned_padding_keeps_wide_fragments() -> None:
    wide, half, narrow = (facts("gemm_staged", bk=8, pad=pad) for pad in (4, 2, 1))
    assert wide["lds_64"] == wide["lds_32"] == 0
    assert half["lds_64"] > 0
    assert half["lds_32"] == 0
    assert narrow["lds_32"] > 0
    assert wide["lds_128"] > half["lds_128"] > 0


def test_width_of_global_accesses_follows_the_parameter() -> None:
    wide, narrow = code(variant("gemm_staged", bk=8), variant("gemm_staged", bk=8, vector=1))
    loads = {name for name in wide if name.startswith(("LDG", "STG"))}
    assert loads
    assert all(".128" in name for name in loads)
    # 128 x 8 and 8 x 128 floats over 256 threads: one vector of each per thread, or four words.
    assert wide["LDG.E.128.CONSTANT"] == 2
    assert narrow["LDG.E.CONSTANT"] == 8
    assert not any(".128" in name for name in narrow if name.startswith(("LDG", "STG")))


def test_a_tile_of_the_direct_loader_takes_two_barriers_and_two_blocks_fit() -> None:
    found = facts("gemm_staged")
    assert found["bar"] == 2
    assert found["registers"] <= 128
    assert found["blocks_per_sm"] == 2


def test_outer_product_is_fused_multiply_adds() -> None:
    found = facts("gemm_staged", bk=8)
    assert found["ffma"] >= 8 * 8 * 8


def test_register_cache_shuffles_instead_of_sharing_memory() -> None:
    found = facts("stencil_register_cache", "int32", radius=8, coarsen=4)
    assert found["shfl"] == 16 * 4
    assert found["bar"] == found["lds_32"] == found["sts"] == 0
    assert found["ldg"] == 4 + 1, "one register per output and one of halo"
    (listing,) = code(variant("stencil_register_cache", "int32", radius=8, coarsen=4))
    assert not any(name.startswith("VOTE") for name in listing), (
        "no mask is taken from who happens to be active"
    )
    shared = facts("stencil_shared", "int32", radius=8, coarsen=4)
    assert shared["shfl"] == 0
    assert shared["lds_32"] == 17 * 4


def test_a_mask_of_who_is_active_costs_instructions_and_a_full_one_none() -> None:
    masks = [variant("stencil_register_cache", "int32", mask=mask) for mask in ("full", "active")]
    full, active = code(*masks)
    assert sum(count for name, count in active.items() if name.startswith("VOTE")) >= 1
    assert {name: count for name, count in full.items() if name.startswith("VOTE")} == {}
    assert facts_of(masks[0])["instructions"] < facts_of(masks[1])["instructions"]


def test_tiles_shuffle_as_often_as_a_warp_and_keep_more_halo() -> None:
    tiles = [
        variant("stencil_register_cache", "int32", radius=8, coarsen=4, lanes=lanes) for lanes in (16, 32)
    ]
    for one, listing in zip(tiles, code(*tiles), strict=True):
        found = facts_of(one)
        assert found["shfl"] == 16 * 4
        assert found["bar"] == found["lds_32"] == found["sts"] == 0
        assert not any(name.startswith("VOTE") for name in listing)
    # A tap of 8 or 16 turns a tile of 8 lanes all around: a lane reads itself, in the next register.
    assert facts("stencil_register_cache", "int32", radius=7, coarsen=4, lanes=8)["ldg"] == 4 + 2
    assert facts("stencil_register_cache", "int32", radius=7, coarsen=4, lanes=16)["ldg"] == 4 + 1


def test_global_stencil_loads_every_tap() -> None:
    found = facts("stencil_global", "int32", radius=8)
    assert found["ldg"] == 17
    assert found["shfl"] == found["sts"] == found["bar"] == 0


@pytest.mark.parametrize("exchange", ["shuffle", "shared", "direct"])
def test_window_moves_quads_and_adds_few(exchange: str) -> None:
    windows = [
        variant("stencil_window", dtype, radius=16, outputs=8, exchange=exchange)
        for dtype in ("int32", "fp32")
    ]
    for one, listing in zip(windows, code(*windows), strict=True):
        found = facts_of(one)
        assert listing["STG.E.128"] == 2
        own_and_halo = {"shuffle": 2 + 1, "shared": 2 + 1, "direct": 2 * 9}[exchange]
        assert listing["LDG.E.128.CONSTANT"] >= own_and_halo
        # Seven quads between the ends and four ends, for each row of 32 quads.
        assert found["shfl"] == (2 * (7 + 4) if exchange == "shuffle" else 0)
        assert found["bar"] == (exchange == "shared")
        if exchange == "shared":
            assert (found["lds_32"], found["lds_128"]) == (2 * 7, 2)
        assert listing["FADD"] <= 8 * 11, "a sum of 33 inputs one by one takes 32 additions"


def test_streaming_stores_say_so() -> None:
    streaming, plain = code(
        *(variant("stencil_window", radius=4, outputs=8, store=store) for store in ("streaming", "plain"))
    )
    assert streaming["STG.E.EF.128"] == plain["STG.E.128"] == 2
    assert streaming["STG.E.128"] == plain["STG.E.EF.128"] == 0


def test_bank_probe_keeps_every_access() -> None:
    for name, params in (("bank_stride", {"stride": 32}), ("bank_column", {"tile_layout": "xor"})):
        found = facts(name, "int32", **params)
        assert found["lds_32"] == 32, "one load per pattern in the timed loop, none joined or dropped"
        assert found["lds_64"] == found["lds_128"] == 0


def test_wmma_reaches_the_tensor_cores() -> None:
    naive = facts("wmma_naive", "fp16")
    tiled = facts("wmma_staged", "fp16", wm=32, stages=1, buffers=1)
    assert naive["hmma"] > 0
    assert naive["ldsm"] == 0
    # 2 x 4 fragments of two HMMA, and two K steps of 16.
    assert tiled["hmma"] % (2 * 4 * 2 * 2) == 0
    assert tiled["hmma"] > 0
    assert tiled["ldsm"] > 0


# Shared memory is what the formulas say.


@pytest.mark.parametrize(
    ("name", "dtype", "params", "expected"),
    [
        ("gemm_naive", "fp32", {"mapping": "flat"}, 0),
        ("gemm_shared_tile", "fp32", {}, 2 * 4 * 32 * 32),
        ("gemm_thread_tile", "fp32", {}, 4 * 8 * (128 + 128)),
        ("wmma_naive", "fp16", {}, 4 * 16 * (16 + 8)),
        ("bank_stride", "int32", {"stride": 33}, 4 * (31 * 33 + 32)),
        ("bank_column", "int32", {}, 4 * 32 * 32),
        ("bank_column", "int32", {"tile_layout": "padded"}, 4 * 32 * 33),
        ("bank_column", "int32", {"tile_layout": "xor"}, 4 * 32 * 32),
        ("stencil_shared", "int32", {"radius": 8, "coarsen": 4}, 4 * (256 * 4 + 16)),
        ("stencil_register_cache", "int32", {"radius": 8, "coarsen": 4}, 0),
        ("stencil_register_cache", "int32", {"radius": 8, "coarsen": 4, "lanes": 8}, 0),
        ("stencil_window", "int32", {"radius": 8}, 0),
        (
            "stencil_window",
            "int32",
            {"radius": 8, "outputs": 8, "exchange": "shared"},
            (16 + 4) * (256 * 2 + 4),
        ),
    ],
)
def test_shared_bytes(name: str, dtype: str, params: dict[str, int | str], expected: int) -> None:
    found = facts(name, dtype, **params)
    assert found["shared_bytes_static"] == expected


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
    text = MAPS.replace("ASSERTIONS", "\n    ".join(f'static_assert({text}, "");' for text in assertions))
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
    hold("columns_are_conflict_free<Padded<32, 32, 1>>()", "columns_are_conflict_free<Xor<32, 32>>()")
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
    assertions = "\n    ".join(f'static_assert(windows_are_complete<{k}>(), "");' for k in range(1, 33))
    compile_text(WINDOWS.replace("ASSERTIONS", assertions), ["windows"], [INCLUDE], ARCH)
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
    assert "multiples of 8" in str(variant("wmma_staged", "fp16").absent(gemm_size(33, 36, 8)))
    assert "multiples of 16" in str(variant("wmma_naive", "fp16").absent(gemm_size(33, 32, 32)))
    assert "multiples of 8" in str(variant("mma_staged", "fp16").absent(gemm_size(33, 36, 8)))
    assert "multiples of 32" in str(variant("bank_stride", "int32").absent({"elements": 33}))


@pytest.mark.parametrize("name", ["gemm_shared_tile", "gemm_thread_tile"])
def test_the_grid_covers_c_and_no_block_is_idle(name: str) -> None:
    one = variant(name)
    rows, columns = (one.params.get(axis, one.params.get("tile")) for axis in ("bm", "bn"))
    assert isinstance(rows, int)
    assert isinstance(columns, int)
    for m, n in ((1, 1), (127, 129), (128, 128), (1000, 40)):
        x, y, _ = one.geometry(gemm_size(m, n, 64)).grid
        assert (x - 1) * columns < n <= x * columns
        assert (y - 1) * rows < m <= y * rows


def test_the_grid_of_the_window_covers_the_outputs() -> None:
    for exchange, outputs in (("shuffle", 12), ("shared", 8), ("direct", 4)):
        one = variant("stencil_window", "fp32", radius=15, exchange=exchange, outputs=outputs)
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
def test_impossible_tiles_are_refused_with_the_reason(params: dict[str, int], reason: str) -> None:
    with pytest.raises(LadderError, match=reason):
        variant("gemm_staged", "fp32", **params)


# The sweeps that ship.


def test_the_default_sweeps_load_and_every_cell_is_supported() -> None:
    sweeps = every_sweep()
    asked = [cell for sweep in sweeps.values() for cell in sweep.cells]
    without = {entry.variant.id: entry.absent(size) for entry, size in asked if entry.variant.absent(size)}
    reasons = {"1_atomic-fp32": "2^24", "wmma_staged-fp16-swizzle=xor-pad=0": "takes a base and a stride"}
    held = "3_registers", "4_vectors", "5_bulk_copies"  # each takes rows up to some length
    reasons |= {f"{name}-{dtype}": "a block" for name in held for dtype in ("fp32", "bf16")}
    assert set(without) == set(reasons), "what cannot be written is on record"
    assert all(words in str(without[name]) for name, words in reasons.items()), without
    assert {entry.variant.kernel.name for entry, _ in asked} == set(catalog()), "a sweep names each kernel"


def test_the_tile_sweep_has_144_variants() -> None:
    assert len({entry.variant.id for entry in every_sweep()["fp32_tiles"].entries}) == 144


def test_kernels_stay_readable() -> None:
    for kernel in catalog().values():
        text = kernel.source.read_text(encoding="utf-8")
        assert text.startswith(("// ", "# ")), f"{kernel.source}: what it computes comes first"
        assert text.count("\n") < 160, f"{kernel.source}: longer than two screenfuls"
        assert "#define" not in text, f"{kernel.source}: templates, not macros"

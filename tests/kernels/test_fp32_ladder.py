"""The FP32 kernels of many parameters, without a GPU: results on the emulator, planted mistakes, and banks."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import catalog, every_sweep
from compiling import compile_variant
from conftest import ROOT
from emulator.hopper import INCLUDE, Params
from emulator.launching import LOADS, assert_shows, planted, product, shapes_of, wrong
from emulator.ptx import Array
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.model.folders import Project
from ladder.model.kernel import Variant

pytestmark = pytest.mark.slow

STAGED = "gemm_staged"
SLICED = "gemm_sliced_k"
SPLIT = "gemm_split_k"
TMA = "gemm_tma"
SHORT = "gemm_short_tiles"
STREAM = "gemm_stream_k"
SMALL: dict[str, Params] = {
    STAGED: {"bm": 64, "bn": 64, "bk": 8, "tm": 4, "tn": 4},
    SLICED: {"bm": 32, "bn": 32, "tm": 4, "tn": 8, "warps": 2, "split_k": 2},
    SPLIT: {"bm": 32, "bn": 64, "tm": 4, "tn": 8, "stages": 3},
    TMA: {"bk": 8, "stages": 3},
    SHORT: {"bn": 64, "tn": 8, "stages": 3},
    STREAM: {"bm": 32, "bn": 64, "tm": 4, "tn": 8, "stages": 3},
}
APART = (SHORT, STREAM)
"""Whose warps of a block, or whose blocks, may go different ways."""
FORMS: list[tuple[str, Params]] = [
    # Every loader, layout, lane map, order and width, each stage count, and K whole or in slices.
    (STAGED, {"vector": 1, "halves": 1, "transpose_a": 0, "pad": 0}),
    (STAGED, {"transpose_a": 0, "operand_a": "element", "bk": 16, "walk": "snake"}),
    (STAGED, {"tiles": "interleaved", "split": "adjacent", "lane_map": "rows_2x16"}),
    (STAGED, {"tiles": "xor_groups", "bk": 16, "halves": 1, "walk": "columns"}),
    (STAGED, {"bm": 128, "tm": 8, "bn": 128, "tn": 16, "lane_map": "rows_8x4"}),
    (STAGED, {"loader": "staged", "order": "compute_first", "buffers": 2, "pad": 1}),
    (STAGED, {"loader": "staged", "stages": 2, "buffers": 2, "deposits": "between"}),
    (STAGED, {"loader": "async", "stages": 2, "vector": 0, "lane_map": "zigzag_8x4"}),
    (STAGED, {"loader": "async", "stages": 4, "transpose_a": 0, "strip": 4}),
    (STAGED, {"loader": "async", "stages": 5, "vector": 1, "split_k": 4}),
    (STAGED, {"loader": "staged", "split_k": 2, "bn": 128, "lane_map": "rows_1x32"}),
    (STAGED, {"split": "contiguous", "tiles": "declared", "lane_map": "rows_4x16"}),
    # Few rows, few columns, and squares; with and without clusters, and with K cut over the grid.
    (SLICED, {"bm": 1, "bn": 128, "tm": 1, "tn": 4, "warps": 8, "split_k": 0}),
    (SLICED, {"bm": 2, "bn": 256, "tm": 2, "bk": 4, "stages": 5, "split_k": 4}),
    (SLICED, {"bm": 128, "bn": 4, "tn": 4, "bk": 16, "warps": 4, "split_k": 0}),
    (SLICED, {"bm": 8, "bn": 16, "tm": 1, "tn": 4, "warps": 1, "split_k": 1}),
    (SLICED, {"bm": 64, "bn": 64, "tm": 8, "tn": 16, "grid_k": 15, "min_blocks": 1}),
    (SPLIT, {"split_k": 4}),
    (SPLIT, {"split_k": 3, "vector": 1}),
    (SPLIT, {"split_k": 16, "buffers": 1, "strip": 4}),
    # More stages than steps, as many, and fewer.
    (TMA, {"stages": 2}),
    (TMA, {"stages": 16, "walk": "rows"}),
    (TMA, {"bk": 32, "stages": 4, "walk": "columns"}),
    (SHORT, {"short_rows": 112}),
    (SHORT, {"short_rows": 120, "buffers": 1, "walk": "rows"}),
    (SHORT, {"short_rows": 112, "bk": 16, "stages": 5, "walk": "snake"}),
    (STREAM, {}),
]
SIZES = [
    (70, 132, 44),
    (33, 36, 8),
    (1, 260, 300),
    (33, 37, 7),
    (130, 1, 31),
    (1, 1, 1),
]


def variant(name: str, **params: Any) -> Variant:
    return catalog()[name].variant(SMALL[name] | params, "fp32")


def tuned() -> dict[str, Variant]:
    """Of gemm_staged the rungs 19, 19b, ... that take any size, by the ladder itself."""
    return {
        entry.rung: entry.variant
        for entry in every_sweep()["fp32_ladder"].entries
        if entry.variant.kernel.name == STAGED and entry.rung.startswith("19")
    }


@pytest.mark.parametrize(("name", "params"), FORMS, ids=str)
def test_results_are_right_at_any_size_and_whenever_copies_land(
    name: str, params: Params
) -> None:
    """C is not read where beta is 0, and scaled where K is 0: there is no tile to load."""
    one = variant(name, **params)
    taken = 0
    for at, (m, n, k) in enumerate([*SIZES, (65, 72, 0)]):
        if k and one.absent({"m": m, "n": n, "k": k}) is not None:
            continue
        taken += 1
        for loads, beta in ((LOADS[at % 2], 0.5), (LOADS[1 - at % 2], 0.0)):
            more = {"loads": loads, "apart": name in APART}
            assert wrong(one, (m, n, k), beta, **more) == 0, (m, n, k, more)
    assert taken >= 3


@pytest.mark.parametrize("rung", tuned())
def test_the_tuned_kernels_are_right_at_full_and_at_odd_tiles(rung: str) -> None:
    for size in ((256, 512, 40), (33, 37, 7), (130, 259, 21)):
        assert wrong(tuned()[rung], size) == 0, size


@pytest.mark.parametrize(
    ("size", "clusters"),
    [
        ((130, 260, 44), 4),
        ((127, 252, 7), 1),
        ((128, 512, 33), 2),
    ],
)
def test_blocks_that_copy_by_tma_take_several_tiles(
    size: tuple[int, int, int], clusters: int
) -> None:
    for loads in LOADS:
        assert wrong(variant(TMA), size, loads=loads, clusters=clusters) == 0


@pytest.mark.parametrize("blocks", [1, 4, 5, 16])
@pytest.mark.parametrize("size", [(96, 192, 40), (65, 130, 33)])
def test_stream_k_is_right(size: tuple[int, int, int], blocks: int) -> None:
    """Nine tiles of five steps, aligned or not: whole ones alone, with five or nine that are cut, without any."""
    assert wrong(variant(STREAM), size, clusters=blocks) == 0


def bits_of_a_sum(one: Variant, arrivals: int, **more: Any) -> bytes:
    """Where K is long enough for rounding to depend on the order of the slices."""
    random = np.random.default_rng(6)
    inputs = [
        random.uniform(-1, 1, shape).astype(np.float32)
        for shape in shapes_of((31, 35, 700))
    ]
    return product(one, inputs, arrivals=arrivals, **more)[0].tobytes()


OVER_GRID = [
    (SPLIT, {"split_k": 4}),
    (SPLIT, {"split_k": 16, "buffers": 1, "strip": 4}),
    (SLICED, {"split_k": 2, "grid_k": 3}),
    (SLICED, {"split_k": 1, "grid_k": 4}),
]


@pytest.mark.parametrize(("name", "params"), OVER_GRID, ids=str)
def test_whichever_slice_comes_last_the_bits_are_the_same(
    name: str, params: Params
) -> None:
    one = variant(name, **params)
    assert len({bits_of_a_sum(one, arrivals) for arrivals in range(4)}) == 1


@pytest.mark.parametrize(
    ("name", "params", "right", "mistaken"),
    [
        (
            SLICED,
            OVER_GRID[3][1],
            "sums + Index(slice) *",
            "sums + Index((slice + int(blockIdx.y)) % slices) *",
        ),
        (
            SPLIT,
            OVER_GRID[0][1],
            "(sums + from * pitch",
            "(sums + (from + slice) % slices * pitch",
        ),
    ],
)
def test_an_order_that_depends_on_who_comes_last_shows_in_the_bits(
    tmp_path: Path, name: str, params: Params, right: str, mistaken: str
) -> None:
    one = variant(name, **params)
    more = planted(tmp_path, one.kernel.source, right, mistaken)
    assert len({bits_of_a_sum(one, arrivals, **more) for arrivals in range(4)}) > 1


ASYNC = {"loader": "async", "stages": 3}
PREFETCHED = {"loader": "staged", "stages": 2, "buffers": 2}
BY_GRID = {"split_k": 1, "grid_k": 4}
TALLER = {"short_rows": 120}
WIDER = {"bn": 128}
BARRIER = "__syncthreads();  // "
WAIT = ("wait_for_copies<Stages - 2>();", "wait_for_copies<Stages - 1>();")
MISTAKES: list[tuple[str, Params, str, str]] = [
    # Kernel, parameters, and what is replaced by what.
    (STAGED, {}, "below(i) < rows_left", "below(i) < rows_left + 1"),
    (STAGED, {}, "columns_left -= Columns", "columns_left -= Columns / 2"),
    (STAGED, ASYNC, *WAIT),
    (STAGED, {}, BARRIER + "wait until all threads have read them", ""),
    (STAGED, PREFETCHED, BARRIER + "the next tiles are complete", "//"),
    (STAGED, {"split_k": 2}, "    cluster_barrier();\n    for_each", "    for_each"),
    (STAGED, {}, "if (beta != 0.0f) out", "if (beta < 0.0f) out"),
    (STAGED, {"strip": 1}, "tile / per_strip * Strip", "0"),
    (SLICED, {}, *WAIT),
    (SLICED, {}, "        __syncwarp();  //", "        //"),
    (
        SLICED,
        {},
        "    wait_for_copies<0>();\n    __syncthreads();",
        "    wait_for_copies<0>();",
    ),
    (
        SLICED,
        {},
        "        cluster_barrier();\n        for_each",
        "        __syncthreads();\n        for_each",
    ),
    (SLICED, {}, "column + w < n", "column + w <= n"),
    (SLICED, {}, "columns_left -= column;", ""),
    (SLICED, {}, "step, 4 * chunk + i);", "step, 4 * chunk);"),
    (
        SPLIT,
        {},
        "global.inc.u32",
        "global.add.u32",
    ),  # the counter stays, and another block is last
    (SPLIT, {}, "atom.acq_rel", "atom.relaxed"),
    (SPLIT, {}, BARRIER + "the sums of all threads are written", ""),
    (SPLIT, {}, "before + 1 == slices", "before == 0"),
    (
        SPLIT,
        {},
        "constexpr Index pitch = Index(Threads) * Count",
        "constexpr Index pitch = Threads",
    ),
    (SPLIT, {}, "slice * k_tiles * Tile::bk", "0"),
    (SLICED, BY_GRID, "sums + Index(slice) *", "sums + Index(blockIdx.y) *"),
    (SHORT, {}, "in_tile / 4 - Groups - four", "in_tile / 4 - Groups - four - 1"),
    (SHORT, {}, "row(first + rows) - row(first)", "rows"),
    (SHORT, WIDER, "(first_row + map.row(row(0)))", "(first_row + row(0))"),
    (SHORT, WIDER, "first_row) - map.row(row(0))", "first_row) - row(0)"),
    (SHORT, {}, "Index(at.row) * Short,", "Index(at.row) * Tall,"),
    (SHORT, TALLER, "thread_rows - (Tile::bm - ShortRows)", "0"),
    (STREAM, {}, "if (thread == 0) take_flag(flag);", ""),
    (STREAM, {}, "if (thread == 0) raise_flag(flag);", ""),
]
SEEN_AT = {
    SHORT: [((1500, 68, 24), 25), ((601, 131, 21), 15), ((236, 8, 12), 2)],
    STREAM: [((96, 192, 40), 4)],
}
"""Sizes and blocks; of the other kernels they take their own."""


@pytest.mark.parametrize(("name", "params", "right", "mistaken"), MISTAKES, ids=str)
def test_mistakes_show(
    tmp_path: Path,
    name: str,
    params: Params,
    right: str,
    mistaken: str,
) -> None:
    one = variant(name, **params)
    more = planted(tmp_path, one.kernel.source, right, mistaken)
    more["apart"] = name in APART
    sizes = SEEN_AT.get(name, [((65, 72, 44), 0), ((33, 36, 92), 0)])
    if name == SLICED:
        sizes = [((33, 37, 7), 0), ((31, 35, 90), 0)]
    ways = [
        {"size": size, "clusters": blocks, "loads": loads, "beta": beta}
        for (size, blocks), loads, beta in itertools.product(sizes, LOADS, (0.5, 0.0))
    ]
    assert_shows("", functools.partial(wrong, one, **more), ways)


# Banks, by the addresses the kernel really made and the model that the probes confirm.

LOAD = "ld.shared.v4.f32"
STORE = "st.shared.f32"
LINEAR = {"lane_map": "rows_2x16", "split": "adjacent", "pad": 0}
SPREAD = LINEAR | {"tiles": "interleaved"}
BANKS: list[tuple[Params, str, set[int], set[int]]] = [
    # Parameters, opcode, and wavefronts per access to the tiles of A and of B.
    ({"lane_map": "zigzag_4x8", "pad": 0}, LOAD, {2}, {2}),
    ({"lane_map": "zigzag_8x4", "split": "contiguous", "pad": 0}, LOAD, {2}, {2}),
    ({"lane_map": "rows_4x8", "pad": 0}, LOAD, {2}, {4}),
    ({"lane_map": "rows_8x8", "pad": 0}, LOAD, {2}, {4}),
    (LINEAR, LOAD, {2}, {8}),
    (SPREAD, LOAD, {2}, set()),
    (SPREAD, "ld.shared.f32", set(), {1}),
    ({"pad": 0}, STORE, {2}, set()),
    ({"pad": 4}, STORE, {1}, set()),
    ({"tiles": "xor_groups", "pad": 0}, STORE, {1}, set()),
]


@pytest.mark.parametrize(("params", "opcode", "of_a", "of_b"), BANKS, ids=str)
def test_bank_conflicts_are_those_of_the_layout(
    params: Params, opcode: str, of_a: set[int], of_b: set[int]
) -> None:
    """At one tile of one pair. B lies behind A."""
    one = catalog()[STAGED].variant({"bk": 8} | params, "fp32")
    inputs: list[Array] = [
        np.ones(shape, np.float32) for shape in shapes_of((128, 128, 8))
    ]
    accesses = product(one, inputs, notes=True)[1]
    pad = 0 if one.params["tiles"] == "interleaved" else int(one.params["pad"])
    shared = one.geometry({"m": 128, "n": 128, "k": 8}).shared_bytes
    border = shared - 4 * 8 * (128 + pad)
    noted = [(lowest, count) for name, lowest, count in accesses if name == opcode]
    assert {count for lowest, count in noted if lowest < border} == of_a
    assert {count for lowest, count in noted if lowest >= border} == of_b


def test_without_clusters_slices_of_k_compile_and_their_cells_say_why_they_are_missing() -> (
    None
):
    one = variant(STAGED, loader="async", stages=3, split_k=2)
    assert compile_variant(one, INCLUDE, "sm_80")[1]["status"] == "ok"
    settings = read_settings(Project(ROOT), (), {})
    plan = plan_sweep(every_sweep()["fp32_ladder"], settings, "sm_80")
    few = tuned()["19b few tiles"].id
    reasons = {
        task.cell.size["n"]: task.absent for task in plan.tasks if task.variant == few
    }
    assert "sm_80 has none" in str(reasons[1024])
    assert reasons[4096] is None, "one slice is no cluster"

"""The FP32 ladder without a GPU: results of the kernel's PTX on the CPU, maps, layouts, banks, and what is compiled."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import catalog, every_sweep
from compiling import compile_ptx, compile_variant
from conftest import edit
from covering import all_pairs
from emulator.cluster_ptx import ClusterMachine
from emulator.grid_ptx import GridMachine
from emulator.hopper import arguments_of
from emulator.ptx import Array, Fault, Machine, Memory, Program, parse
from emulator.tensor_ptx import compiled_program, parse_tensor
from hypothesis import HealthCheck, assume, settings
from hypothesis import given as drawn
from hypothesis import strategies as st
from ladder.catalogue.kernels import Catalog
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.model.folders import Project
from ladder.model.kernel import Variant
from ladder.problems.gemm.bounds import accumulation_bound

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
INCLUDE = KERNELS / "include"
ARCH = "sm_90a"
SMALL = {"bm": 64, "bn": 64, "bk": 8, "tm": 4, "tn": 4}


def variant(**params: Any) -> Variant:
    return catalog()["gemm_staged"].variant(params, "fp32")


def tuned() -> dict[str, Variant]:
    """Of gemm_staged the rungs 19, 19b, ... that take any size, by the ladder itself."""
    entries = [
        entry
        for entry in every_sweep()["fp32_ladder"].entries
        if entry.variant.kernel.name == "gemm_staged"
    ]
    return {
        entry.rung: entry.variant for entry in entries if entry.rung.startswith("19")
    }


# Results of the kernel's PTX.


def run(
    given: Variant,
    size: tuple[int, int, int],
    landing: str = "wait",
    beta: float = 0.0,
    include: Path = INCLUDE,
    alpha: float | None = None,
    arrivals: int = 0,
    tiles: int | None = None,
) -> tuple[GridMachine, float]:
    """One launch on drawn inputs; C begins as NaN where beta is 0. Returns the machine and the error over its bound.

    `tiles`: of the grid, where they are not the variant's own. What must be zero is zero afterwards.
    """
    m, n, k = size
    extents = dict(zip("mnk", size, strict=True))
    assert given.absent(extents) is None
    geometry = given.geometry(extents)
    random = np.random.default_rng(6)
    a, b, c = (
        random.uniform(-1, 1, shape).astype(np.float32)
        for shape in ((m, k), (k, n), (m, n))
    )
    memory = Memory()
    before = c if beta else np.full_like(c, np.nan)
    stored = {
        name: (
            memory.buffer(0, words.reshape(-1).view(np.uint32), writable=name == "c"),
            words,
        )
        for name, words in {"a": a, "b": b, "c": before}.items()
    }
    place = slice(stored["c"][0] // 4, stored["c"][0] // 4 + m * n)
    if beta:
        memory.readable[place] = 0
    if alpha is None:
        alpha = 0.75 if beta else 1.0
    arguments, _, zeroed = arguments_of(
        given, memory, stored, {**extents, "alpha": alpha, "beta": beta}
    )
    own, *others = geometry.grid
    machine = GridMachine(
        compiled_program(
            given.kernel.source, given.entry, include, geometry.shared_bytes
        ),
        memory,
        geometry.block[0],
        (own if tiles is None else tiles, *others),
        arguments,
        landing,
        arrivals,
    )
    machine.run()
    if any(memory.words[one].any() for one in zeroed):
        raise Fault("a launch leaves other than zeros where zeros must be")
    found = memory.words[place].view(np.float32).reshape(m, n).astype(np.float64)
    left, right = a.astype(np.float64), b.astype(np.float64)
    expected = alpha * (left @ right) + beta * c
    magnitude = abs(alpha) * (np.abs(left) @ np.abs(right)) + abs(beta) * np.abs(c)
    allowed = accumulation_bound("fp32", k) * magnitude
    error = np.where(
        found == expected,
        0,
        np.abs(found - expected) / np.where(allowed == 0, np.nan, allowed),
    )
    return machine, float(np.where(np.isnan(error), np.inf, error).max())


FORMS: list[dict[str, Any]] = [
    {"vector": 1, "halves": 1, "transpose_a": 0, "pad": 0},
    {"transpose_a": 0, "operand_a": "element", "bk": 16},
    {"tiles": "interleaved", "split": "adjacent", "lane_map": "rows_2x16", "vector": 0},
    {"tiles": "xor_groups", "bk": 16, "halves": 1, "walk": "columns"},
    {
        "bm": 128,
        "tm": 8,
        "bn": 128,
        "tn": 16,
        "bk": 16,
        "lane_map": "rows_8x4",
        "strip": 2,
    },
    {"loader": "staged", "order": "compute_first", "buffers": 2, "vector": 0, "pad": 1},
    {
        "loader": "staged",
        "stages": 2,
        "buffers": 2,
        "deposits": "between",
        "vector": 1,
        "fence": 1,
    },
    {"loader": "async", "stages": 2, "vector": 0},
    {
        "loader": "async",
        "stages": 4,
        "buffers": 2,
        "pad": 0,
        "transpose_a": 0,
        "strip": 4,
    },
    {"loader": "async", "stages": 5, "vector": 1, "split_k": 4, "tiles": "xor_groups"},
    {"loader": "staged", "stages": 2, "split_k": 2, "bn": 128, "lane_map": "rows_1x32"},
]
"""Every loader, layout, order and width, each stage count, and K whole or in slices."""

SIZES = [(65, 72, 24), (33, 36, 8), (70, 132, 44)]
ODD_SIZES = [
    (1, 1, 1),
    (33, 37, 7),
    (5, 3, 70),
]


LANDINGS = ("wait", "once")
"""When asynchronous copies land."""
TUNED_SIZES = [(256, 512, 40), (33, 37, 7), (130, 259, 21)]


def landings(
    rows: list[tuple[Any, ...]], params: Any
) -> list[tuple[tuple[int, int, int], str]]:
    """(size, landing) of the rows of a form."""
    return [(size, landing) for form, size, landing in rows if form == params]


def label(params: Any) -> str:
    return "-".join(f"{name}={value}" for name, value in params.items())


@pytest.mark.parametrize("params", FORMS, ids=label)
def test_gemm_is_right_at_any_size_and_whenever_copies_land(
    params: dict[str, Any],
) -> None:
    given = variant(**{**SMALL, **params})
    sizes = SIZES if given.params["vector"] == 4 else SIZES + ODD_SIZES
    for size, landing in landings(all_pairs(FORMS, sizes, LANDINGS), params):
        _, error = run(given, size, landing)
        assert error <= 1, f"{size}, copies land at {landing}"
    assert run(given, SIZES[0], beta=0.5)[1] <= 1


@pytest.mark.parametrize("rung", tuned())
def test_the_tuned_kernels_are_right_at_full_and_at_odd_tiles(rung: str) -> None:
    given = tuned()[rung]
    for size, landing in landings(all_pairs([*tuned()], TUNED_SIZES, LANDINGS), rung):
        assert run(given, size, landing)[1] <= 1
    assert run(given, (33, 37, 7), beta=0.5)[1] <= 1


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"loader": "staged", "stages": 2, "buffers": 2},
        {"loader": "async", "stages": 3, "split_k": 2},
    ],
    ids=label,
)
def test_without_a_step_of_k_c_is_scaled_by_beta(params: dict[str, Any]) -> None:
    """BLAS has it so where K is 0: there is no tile to load, and the accumulators are zero."""
    given = variant(**{**SMALL, "vector": 0, **params})
    assert run(given, (65, 37, 0), beta=0.5)[1] <= 1


# Thin and deep products: gemm_sliced_k.


def sliced(**params: Any) -> Variant:
    return catalog()["gemm_sliced_k"].variant(params, "fp32")


SLICED: list[dict[str, Any]] = [
    {"bm": 1, "bn": 128, "tm": 1, "tn": 4},
    {
        "bm": 2,
        "bn": 256,
        "tm": 2,
        "tn": 8,
        "bk": 4,
        "warps": 2,
        "stages": 5,
        "split_k": 4,
    },
    {
        "bm": 32,
        "bn": 64,
        "tm": 8,
        "tn": 8,
        "bk": 4,
        "warps": 4,
        "stages": 2,
        "split_k": 8,
    },
    {"bm": 128, "bn": 4, "tm": 4, "tn": 4, "bk": 16, "warps": 4},
    {"bm": 128, "bn": 16, "tm": 8, "tn": 8, "warps": 4},
    {"bm": 8, "bn": 16, "tm": 1, "tn": 4, "warps": 1, "stages": 2, "split_k": 1},
    {"bm": 2, "bn": 128, "tm": 2, "tn": 4, "warps": 1, "split_k": 4, "grid_k": 3},
    {
        "bm": 64,
        "bn": 64,
        "tm": 8,
        "tn": 16,
        "warps": 2,
        "split_k": 2,
        "grid_k": 15,
        "min_blocks": 1,
    },
]
"""Few rows, few columns, and squares; each depth of a step, with and without clusters, and with K cut over the grid."""

THIN_SIZES = [
    (1, 1, 1),
    (1, 260, 300),
    (130, 1, 301),
    (65, 5, 36),
    (33, 37, 7),
]


@pytest.mark.parametrize("params", SLICED, ids=label)
def test_sliced_k_is_right_at_thin_and_at_odd_sizes(params: dict[str, Any]) -> None:
    given = sliced(**params)
    for size, landing in landings(all_pairs(SLICED, THIN_SIZES, LANDINGS), params):
        assert run(given, size, landing)[1] <= 1, f"{size}, copies land at {landing}"
    assert run(given, (18, 33, 70), beta=0.5)[1] <= 1
    assert run(given, (17, 20, 9), beta=1.0, alpha=0.0)[1] <= 1
    assert run(given, (5, 6, 0), beta=0.5)[1] <= 1, (
        "without a step of K, C is scaled by beta"
    )
    assert run(given, (5, 6, 0))[1] <= 1, "and NaN in C stays out of beta = 0"


# K cut over the grid: gemm_sliced_k, and gemm_split_k, whose loop is that of gemm_staged.

SPLIT_TILE = {"bm": 32, "bn": 64, "tm": 4, "tn": 8, "stages": 3}
OVER_GRID: list[tuple[str, dict[str, Any]]] = [
    ("gemm_split_k", {**SPLIT_TILE, "split_k": 4}),
    ("gemm_split_k", {**SPLIT_TILE, "split_k": 3, "vector": 1}),
    ("gemm_split_k", {**SPLIT_TILE, "split_k": 16, "buffers": 1, "strip": 4}),
    (
        "gemm_sliced_k",
        {"bm": 32, "bn": 32, "tm": 4, "tn": 8, "warps": 2, "split_k": 2, "grid_k": 3},
    ),
    (
        "gemm_sliced_k",
        {"bm": 32, "bn": 32, "tm": 4, "tn": 8, "warps": 2, "split_k": 1, "grid_k": 4},
    ),
]


SPLIT_K = [params for name, params in OVER_GRID if name == "gemm_split_k"]


@pytest.mark.parametrize("params", SPLIT_K, ids=label)
def test_split_k_is_right_at_any_size(params: dict[str, Any]) -> None:
    given = catalog()["gemm_split_k"].variant(params, "fp32")
    for size, landing in landings(
        all_pairs(SPLIT_K, SIZES + ODD_SIZES, LANDINGS), params
    ):
        assert run(given, size, landing)[1] <= 1, f"{size}, copies land at {landing}"
    assert run(given, (65, 37, 50), beta=0.5)[1] <= 1
    assert run(given, (65, 37, 0), beta=0.5)[1] <= 1, (
        "without a step of K, C is scaled by beta"
    )
    assert run(given, (65, 37, 0))[1] <= 1, "and NaN in C stays out of beta = 0"


def summed(given: Variant, arrivals: int, include: Path = INCLUDE) -> list[int]:
    """Bits of C = A @ B where K is long enough for rounding to depend on the order of the slices."""
    machine, error = run(given, (31, 35, 700), include=include, arrivals=arrivals)
    assert error <= 1
    place = int(machine.arguments[machine.program.parameters[2]][0]) // 4
    return [int(word) for word in machine.memory.words[place : place + 31 * 35]]


@pytest.mark.parametrize(("name", "params"), OVER_GRID, ids=str)
def test_whichever_slice_comes_last_the_bits_are_the_same(
    name: str, params: dict[str, Any]
) -> None:
    given = catalog()[name].variant(params, "fp32")
    first = summed(given, 0)
    assert all(summed(given, arrivals) == first for arrivals in (1, 2, 3))


SUM = "include/epilogue/grid_sum.cuh"
PLANTED_IN_GRID_SUM: list[tuple[str, str, str, str]] = [
    (
        "both",
        SUM,
        "global.inc.u32",
        "global.add.u32",
    ),  # the counter stays, and another block is last
    ("both", SUM, "atom.acq_rel", "atom.relaxed"),
    ("both", SUM, "__syncthreads();  // the sums of all threads are written", ""),
    ("both", SUM, "before + 1 == slices", "before == 0"),
    ("gemm_sliced_k", SUM, "Index(slice) *", "Index(blockIdx.y) *"),
    (
        "gemm_split_k",
        SUM,
        "constexpr Index pitch = Index(Threads) * Count",
        "constexpr Index pitch = Threads",
    ),
    ("gemm_split_k", "gemm/simt/gemm_split_k.cu", "slice * k_tiles * Tile::bk", "0"),
]
"""A kernel, a file, and what is replaced by what."""


@pytest.mark.parametrize(("kernel", "file", "right", "wrong"), PLANTED_IN_GRID_SUM)
def test_a_planted_mistake_in_the_sum_over_the_grid_is_found(
    tmp_path: Path, kernel: str, file: str, right: str, wrong: str
) -> None:
    shutil.copytree(KERNELS, tmp_path / "kernels")
    edit(tmp_path / "kernels" / file, right, wrong)
    planted = Catalog(tmp_path / "kernels")
    # In a cluster a barrier lies ahead of the counter already.
    given = (
        [OVER_GRID[0], OVER_GRID[-1]]
        if kernel == "both"
        else [one for one in OVER_GRID if one[0] == kernel][:1]
    )
    for name, params in given:
        one = planted[name].variant(params, "fp32")
        try:
            _, error = run(one, (65, 72, 44), include=tmp_path / "kernels" / "include")
        except Fault:
            continue
        assert not error <= 1, name


@pytest.mark.parametrize("name", ["gemm_sliced_k", "gemm_split_k"])
def test_an_order_that_depends_on_who_comes_last_shows_in_the_bits(
    tmp_path: Path, name: str
) -> None:
    shutil.copytree(KERNELS, tmp_path / "kernels")
    header = tmp_path / "kernels" / SUM
    if name == "gemm_sliced_k":
        edit(header, "Index(slice) *", "Index((slice + int(blockIdx.y)) % slices) *")
    else:
        edit(header, "(sums + from * pitch", "(sums + (from + slice) % slices * pitch")
    params = next(params for one, params in OVER_GRID if one == name)
    given = Catalog(tmp_path / "kernels")[name].variant(params, "fp32")
    found = [
        summed(given, arrivals, tmp_path / "kernels" / "include")
        for arrivals in range(4)
    ]
    assert any(one != found[0] for one in found)


def is_right(given: Variant, include: Path) -> bool:
    try:
        return all(
            run(given, (65, 72, 44), landing, beta, include)[1] <= 1
            for landing in ("wait", "once")
            for beta in (0.0, 0.5)
        )
    except Fault:
        return False


ASYNC = {"loader": "async", "stages": 3}
STAGED = {"loader": "staged", "stages": 2, "buffers": 2}
PLANTED: list[tuple[str, dict[str, Any], str, str]] = [
    ("copy/tile_copy.cuh", {}, "below(i) < rows_left", "below(i) < rows_left + 1"),
    (
        "copy/tile_copy.cuh",
        {},
        "columns_left -= Columns",
        "columns_left -= Columns / 2",
    ),
    (
        "schedule/staged_loop.cuh",
        ASYNC,
        "wait_for_copies<Stages - 2>();",
        "wait_for_copies<Stages - 1>();",
    ),
    (
        "schedule/staged_loop.cuh",
        {},
        "__syncthreads();  // wait until all threads have read them",
        "",
    ),
    (
        "schedule/prefetch_loop.cuh",
        STAGED,
        "__syncthreads();  // the next tiles are complete",
        "//",
    ),
    (
        "epilogue/cluster_sum.cuh",
        {"split_k": 2},
        "    cluster_barrier();\n    for_each",
        "    for_each",
    ),
    ("epilogue/combine_fp32.cuh", {}, "if (beta != 0.0f) out", "if (beta < 0.0f) out"),
    ("schedule/raster.cuh", {"strip": 1}, "tile / per_strip * Strip", "0"),
]
"""A header, parameters, and what is replaced by what."""


@pytest.mark.parametrize(("header", "params", "right", "wrong"), PLANTED)
def test_a_planted_mistake_is_found(
    tmp_path: Path, header: str, params: dict[str, Any], right: str, wrong: str
) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    edit(include / header, right, wrong)
    given = variant(**{**SMALL, **params})
    assert is_right(given, INCLUDE)
    assert not is_right(given, include)


THIN = "gemm/simt/gemm_sliced_k.cu"
PLANTED_IN_SLICED: list[tuple[str, str, str]] = [
    (THIN, "wait_for_copies<Stages - 2>();", "wait_for_copies<Stages - 1>();"),
    (THIN, "        __syncwarp();  //", "        //"),
    (
        THIN,
        "    wait_for_copies<0>();\n    __syncthreads();",
        "    wait_for_copies<0>();",
    ),
    (
        THIN,
        "        cluster_barrier();\n        for_each",
        "        __syncthreads();\n        for_each",
    ),
    (THIN, "column + w < n", "column + w <= n"),
    ("include/copy/warp_copy.cuh", "columns_left -= column;", ""),
    ("include/simt/warp_tile.cuh", "step, 4 * chunk + i);", "step, 4 * chunk);"),
]
"""A file, and what is replaced by what."""


@pytest.mark.parametrize(("file", "right", "wrong"), PLANTED_IN_SLICED)
def test_a_planted_mistake_in_sliced_k_is_found(
    tmp_path: Path, file: str, right: str, wrong: str
) -> None:
    shutil.copytree(KERNELS, tmp_path / "kernels")
    edit(tmp_path / "kernels" / file, right, wrong)
    kernel = Catalog(tmp_path / "kernels")["gemm_sliced_k"]
    params = {"bm": 32, "bn": 32, "tm": 4, "tn": 8, "warps": 2, "split_k": 2}
    found = False
    try:
        for size in ((33, 37, 7), (31, 35, 90)):
            for landing in ("wait", "once"):
                _, error = run(
                    kernel.variant(params, "fp32"),
                    size,
                    landing,
                    include=tmp_path / "kernels" / "include",
                )
                found |= not error <= 1
    except Fault:
        found = True
    assert found


@pytest.mark.parametrize("stages", [1, 2])
def test_two_pairs_of_tiles_meet_once_per_tile_and_one_pair_twice(stages: int) -> None:
    """What the claim double-buffer-barriers reads from the machine code, counted as it runs."""
    tiles = 5
    machine, _ = run(
        variant(**SMALL, loader="staged", stages=stages), (64, 64, tiles * SMALL["bk"])
    )
    assert int(machine.barriers[0]) == (2 * tiles - 1 if stages == 1 else tiles + 1)


# Maps of threads, orders of multiply-adds and of tiles, and layouts: the headers' own functions, on the CPU.


def computed(
    headers: str, body: str, threads: int, words: int, template: str = ""
) -> Array:
    """What `out` holds after a kernel with this body, run by one block of `threads` threads."""
    text = "".join(f'#include "{header}"\n' for header in headers.split())
    text += f"{template}\n__global__ void probe(int* out) {{\n{body}\n}}\n"
    program = parse(compile_ptx(INCLUDE / "probe.cu", "probe", [INCLUDE], text))
    memory = Memory()
    out = memory.buffer(0, np.full(words, 2**32 - 1, np.uint32), writable=True)
    Machine(program, memory, threads, [1], [[out]]).run()
    return memory.words[out // 4 : out // 4 + words].view(np.int32)


PLACES = """
    using Map = ThreadMap<LaneMap::{lane_map}, {bm} / {tm}, {bn} / {tn}>;
    using AlongA = Edge<OutputMap::{split}, {tm}, {bm} / {tm}, Map::group_rows>;
    using AlongB = Edge<OutputMap::{split}, {tn}, {bn} / {tn}, Map::group_columns>;
    const int row = Map::row(threadIdx.x), column = Map::column(threadIdx.x);
#pragma unroll
    for (int i = 0; i < {tm} * {tn}; ++i) {{
        const Place at = place_of<FfmaOrder::{walk}, {tm}, {tn}>(i);
        out[threadIdx.x * ({tm} * {tn}) + i] = AlongA::position(row, at.y) * {bn} + AlongB::position(column, at.x);
    }}
"""


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@drawn(data=st.data())
def test_lane_maps_splits_and_walks_reach_every_output_of_a_tile_once(
    data: st.DataObject,
) -> None:
    kernel = catalog()["gemm_staged"]
    names = ("bm", "bn", "tm", "tn", "lane_map", "split", "walk")
    params = {
        name: data.draw(st.sampled_from(kernel.parameters[name].values), name)
        for name in names
    }
    candidate = Variant(kernel, {**variant().params, **params}, "fp32", "NN")
    assume(candidate.absent() is None)
    threads = candidate.geometry({"m": 1, "n": 1, "k": 1}).block[0]
    outputs = int(params["bm"]) * int(params["bn"])
    found = computed(
        "simt/thread_map.cuh simt/thread_tile.cuh",
        PLACES.format(**params),
        threads,
        outputs,
    )
    assert np.array_equal(np.sort(found), np.arange(outputs))


@functools.cache
def _raster(strip: int) -> Program:
    text = f"""
#include "schedule/raster.cuh"
__global__ void probe(int* out, int rows, int columns) {{
    const int tile = blockIdx.x * 32 + threadIdx.x;
    if (tile >= rows * columns) return;
    const TilePosition at = tile_position<{strip}>(tile, rows, columns);
    out[tile] = at.row >= 0 && at.row < rows && at.column < columns ? at.row * columns + at.column : -1;
}}
"""
    return parse_tensor(compile_ptx(INCLUDE / "probe.cu", "probe", [INCLUDE], text), 0)


@drawn(
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    strip=st.sampled_from([0, 1, 2, 4, 8, 16, 32]),
)
def test_every_tile_of_a_grid_has_its_turn(rows: int, columns: int, strip: int) -> None:
    tiles = rows * columns
    memory = Memory()
    out = memory.buffer(0, np.full(tiles, 2**32 - 1, np.uint32), writable=True)
    ClusterMachine(
        _raster(strip), memory, 32, -(-tiles // 32), 1, [out, rows, columns]
    ).run()
    found = memory.words[out // 4 : out // 4 + tiles].view(np.int32)
    assert np.array_equal(np.sort(found), np.arange(tiles))
    width = strip or columns
    first = found[: rows * min(width, columns)] % columns
    assert (first < width).all(), (
        "the first columns of the swizzle are walked to their end"
    )


LAYOUTS = [
    ("Padded<8, 128, {}>", range(9)),
    ("Declared<16, 64, {}>", (0, 4)),
    ("XorGroups<{}, 128>", (4, 8, 16, 32)),
    ("Interleaved<8, 128, {}>", (4, 8, 16)),
]


@pytest.mark.parametrize(
    "layout", [text.format(value) for text, values in LAYOUTS for value in values]
)
def test_layouts_keep_words_apart_and_groups_together(layout: str) -> None:
    body = f"""
    using Layout = {layout};
    constexpr int rows = Layout::words / Layout::pitch;
    out[0] = Layout::words;
    out[1] = Layout::alignment;
    for (int row = threadIdx.x; row < rows; row += 32) {{
        for (int column = 0; column < 64; ++column) out[2 + row * 64 + column] = Layout::index(row, column);
    }}
    """
    rows = int(layout.split("<")[1].split(",")[0])
    words, alignment, *places = computed(
        "layout/shared_layout.cuh", body, 32, 2 + rows * 64
    ).tolist()
    assert len(set(places)) == rows * 64
    assert 0 <= min(places) <= max(places) < words
    groups = np.asarray(places).reshape(-1, alignment)
    assert (groups[:, 0] % alignment == 0).all(), "a group starts on its own size"
    assert (groups == groups[:, :1] + np.arange(alignment)).all(), (
        "and its words lie side by side"
    )


# Banks, by the addresses the kernel really made and the model that the probes confirm.


def turns(opcode: str, **params: Any) -> dict[str, set[int]]:
    """Wavefronts per access of this opcode to the tiles of A and of B, at one tile of one pair."""
    given = variant(bk=8, **params)
    machine, error = run(given, (128, 128, 8))
    assert error <= 1
    bytes_b = (
        4
        * 8
        * (
            128
            + (
                0
                if given.params["tiles"] == "interleaved"
                else int(given.params["pad"])
            )
        )
    )
    border = given.geometry({"m": 128, "n": 128, "k": 8}).shared_bytes - bytes_b
    found: dict[str, set[int]] = {"a": set(), "b": set()}
    for name, lowest, count in machine.accesses:
        if name == opcode:
            found["a" if lowest < border else "b"].add(count)
    return found


@pytest.mark.parametrize("split", ["quadrants", "contiguous"])
@pytest.mark.parametrize("lane_map", ["zigzag_4x8", "zigzag_8x4"])
def test_zigzag_reads_both_operands_half_a_warp_at_a_time(
    lane_map: str, split: str
) -> None:
    assert turns("ld.shared.v4.f32", lane_map=lane_map, split=split, pad=0) == {
        "a": {2},
        "b": {2},
    }


@pytest.mark.parametrize(
    "lane_map", ["rows_2x16", "rows_4x8", "rows_8x4", "rows_4x16", "rows_8x8"]
)
def test_row_by_row_maps_read_b_a_quarter_warp_at_a_time(lane_map: str) -> None:
    assert turns("ld.shared.v4.f32", lane_map=lane_map, pad=0) == {"a": {2}, "b": {4}}


def test_the_linear_map_conflicts_on_b_and_interleaving_mends_it() -> None:
    linear = {"lane_map": "rows_2x16", "split": "adjacent", "pad": 0}
    assert turns("ld.shared.v4.f32", **linear) == {"a": {2}, "b": {8}}
    assert turns("ld.shared.v4.f32", **linear, tiles="interleaved") == {
        "a": {2},
        "b": set(),
    }
    assert turns("ld.shared.f32", **linear, tiles="interleaved") == {
        "a": set(),
        "b": {1},
    }


def test_a_transposed_store_conflicts_until_it_is_padded() -> None:
    assert turns("st.shared.f32", pad=0)["a"] == {2}
    assert turns("st.shared.f32", pad=4)["a"] == {1}
    assert turns("st.shared.f32", tiles="xor_groups", pad=0)["a"] == {1}
    assert turns("st.shared.v4.f32", pad=4)["b"] == {4}, (
        "512 bytes take four wavefronts at least"
    )


# The sweeps and the ledger.


def test_every_size_has_a_tuned_kernel_that_takes_it() -> None:
    assert tuned()
    for m, n, k in ((1, 1, 1), (33, 37, 7), (4095, 4093, 4091), (16, 4096, 4096)):
        assert not any(
            given.absent({"m": m, "n": n, "k": k}) for given in tuned().values()
        )


def test_cells_left_out_of_the_ladder_say_why() -> None:
    asked = every_sweep()["fp32_ladder"].cells
    left_out = [
        (size["n"], why)
        for entry, size in asked
        if (why := entry.absent(size)) is not None
    ]
    assert left_out
    assert all("pairs" in why for _, why in left_out)
    assert {n for n, _ in left_out} == {8192, 16384}


def test_without_clusters_slices_of_k_compile_and_their_cells_say_why_they_are_missing() -> (
    None
):
    sliced = variant(loader="async", stages=3, buffers=2, split_k=2, min_blocks=1)
    assert compile_variant(sliced, INCLUDE, "sm_80")[1]["status"] == "ok"
    plan = plan_sweep(
        every_sweep()["fp32_ladder"], read_settings(Project(ROOT), (), {}), "sm_80"
    )
    tasks = [task for task in plan.tasks if task.variant == tuned()["19b few tiles"].id]
    reasons = {task.cell.size["n"]: task.absent for task in tasks}
    assert "sm_80 has none" in str(reasons[1024])
    assert reasons[4096] is None, "one slice is no cluster"

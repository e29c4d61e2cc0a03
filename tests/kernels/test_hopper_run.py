"""Results of the Hopper kernels, run on the CPU: tiles at the edge, more tiles than blocks, and what would go wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx
from conftest import edit
from covering import covering
from emulator.hopper import (
    HOPPER,
    INCLUDE,
    ONE,
    PING_PONG,
    PROMOTED,
    RING,
    RUNGS,
    SPLIT,
    STREAM_K,
    TURNS,
    TWO_STAGES,
    arguments_of,
    slow_beside_files,
    variant,
    wrong_in_fp32,
)
from emulator.hopper_ptx import E4M3, HopperMachine, parse_hopper, to_e4m3
from emulator.ptx import Array, Fault, Memory
from emulator.tensor_ptx import from_bits, to_bits
from ladder.model.kernel import Variant

LOADS = ("early", "late")
WIDE = "6e_two_widths"
ALPHA = 0.75
SIZE = (300, 136, 200)
"""3 x 3 tiles of 128 x 64, of which five are cut; three whole steps of K and one of 8."""


def rounded(values: Array) -> Array:
    return from_bits(to_bits(values.astype(np.float32), "bf16"), "bf16")


def run(
    one: Variant,
    loads: str,
    inputs: dict[str, Array],
    clusters: int = 0,
    beta: float = 0.5,
    include: Path = INCLUDE,
    text: str | None = None,
    sum_bits: int | None = None,
    behind: int = 0,
) -> Array:
    """ALPHA * A @ B + beta * C as the kernel computes it, in bf16. `clusters` start where it is not 0.

    `behind`: so many threads of a block go on only where no others may.
    """
    (m, k), n = inputs["a"].shape, inputs["b"].shape[1]
    geometry = one.geometry({"m": m, "n": n, "k": max(k, 1)})
    program = parse_hopper(
        compile_ptx(one.kernel.source, one.entry, [include], text),
        geometry.shared_bytes,
    )
    memory = Memory()
    stored = inputs | {"b": inputs["b"] if one.layout == "NN" else inputs["b"].T}
    held = {}
    for name, matrix in stored.items():
        in_fp8 = one.dtype == "fp8" and name != "c"
        bits = to_e4m3(matrix.ravel()) if in_fp8 else to_bits(matrix.ravel(), "bf16")
        whole = np.append(bits, np.zeros(-bits.nbytes % 4 // bits.itemsize, bits.dtype))
        address = memory.buffer(0, whole.view(np.uint32), writable=name == "c")
        held[name] = address, bits.reshape(matrix.shape)
    words = slice(held["c"][0] // 4, held["c"][0] // 4 + m * n // 2)
    memory.readable[words] = 0
    scalars = {"m": m, "n": n, "k": k, "alpha": ALPHA, "beta": beta}
    arguments, maps, flags = arguments_of(one, memory, held, scalars)
    together = (geometry.cluster or (1, 1, 1))[0]
    grid = (clusters * together, 1) if clusters else geometry.grid[:2]
    threads = geometry.block[0]
    machine = HopperMachine(
        program, memory, threads, grid, together, arguments, maps, loads
    )
    machine.sum_bits = sum_bits
    machine.behind = np.arange(machine.count) % threads < behind
    machine.run()
    assert not any(memory.words[own].any() for own in flags), "flags are zero again"
    return from_bits(memory.words[words].view(np.uint16), "bf16").reshape(m, n)


def wrong(
    one: Variant,
    loads: str,
    size: tuple[int, int, int] = SIZE,
    clusters: int = 0,
    beta: float = 0.5,
    include: Path = INCLUDE,
    text: str | None = None,
    behind: int = 0,
) -> int:
    """How many elements of C = ALPHA * A @ B + beta * C are wrong, with inputs whose sums are exact."""
    m, n, k = size
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.integers(-4, 5, shape).astype(np.float32)
        for shape in ((m, k), (k, n), (m, n))
    )
    held = c if beta else np.full_like(c, np.nan)
    found = run(
        one,
        loads,
        {"a": a, "b": b, "c": held},
        clusters,
        beta,
        include,
        text,
        behind=behind,
    )
    return int((found != rounded(ALPHA * (a @ b) + (beta * c if beta else 0))).sum())


KERNELS = [
    (ONE, "NN", {"bn": 64}, 0),
    (TWO_STAGES, "TN", {"bm": 64, "bn": 128}, 0),
    ("2_ring", "NN", {"bn": 64, "stages": 2}, 0),
    ("3_wide_tile", "NN", {"bn": 64}, 0),
    ("4_persistent", "NN", {"bn": 64}, 2),
    ("4_persistent", "TN", {"bn": 64, "raster": "hilbert", "stages": 2}, 2),
    ("5_multicast", "TN", {"bn": 64, "stages": 2}, 1),
    ("6_tma_store", "TN", {"bn": 64}, 1),
    ("6_tma_store", "NN", {"bn": 64, "cluster_m": 1, "buffers": 1}, 2),
    ("6c_stagger", "TN", {"bn": 64, "raster": "hilbert"}, 10),  # for nine tiles
    ("6d_serpentine", "TN", {"bn": 64, "stages": 3}, 2),
    (WIDE, "NN", {"bn": 128, "narrow": 112}, 2),
    ("6f_l2_order", "TN", {"bn": 64}, 2),
    (PING_PONG, "NN", {}, 2),
    (PING_PONG, "TN", {"bn": 176, "stages": 4}, 1),
    # Nine tiles of four steps: for four blocks five tiles are cut, for two three, for seven all.
    (STREAM_K, "TN", {"bn": 64, "stages": 3}, 4),
    (STREAM_K, "NN", {"bn": 64}, 2),
    (RING, "TN", {"bn": 64, "stagger": 1, "serpentine": 1}, 2),
    (
        RING,
        "TN",
        {"bn": 96, "stagger": 2, "cluster_m": 2, "cluster_n": 2, "boxes": 1},
        1,
    ),
    (
        RING,
        "NN",
        {"bn": 128, "consumers_n": 2, "bm": 64, "store": "direct", "evict_b": "first"},
        2,
    ),
    (RING, "TN", {"bn": 64, "stagger": 1, "early": 1}, 10),
    (
        RING,
        "TN",
        {"bm": 64, "bn": 64, "consumers": 1, "reallocate": 0, "stages": 2, "early": 1},
        3,
    ),
    # Four steps: more than three stages, and less than six.
    (TURNS, "TN", {"bn": 64, "stages": 3}, 2),
    (TURNS, "TN", {"bn": 64, "stages": 5, "serpentine": 1, "raster": 2}, 1),
    (
        TURNS,
        "TN",
        {
            "bm": 64,
            "bn": 64,
            "stages": 5,
            "cluster_n": 2,
            "raster": "hilbert",
            "boxes": 1,
        },
        2,
    ),
    (SPLIT, "NN", {"bn": 64, "split_k": 3}, 0),
    (
        SPLIT,
        "TN",
        {"bm": 64, "bn": 64, "consumers": 1, "reallocate": 0, "split_k": 6},
        0,
    ),  # of which two are idle
]
SLICES: list[tuple[str, dict[str, int | str], tuple[int, int, int]]] = [
    ("TN", {"split_k": 2}, (130, 136, 200)),
    ("TN", {"split_k": 3}, (130, 136, 200)),  # bands of 48, 48 and 32 columns
    (
        "TN",
        {"bn": 64, "split_k": 8},
        (65, 72, 520),
    ),  # bands of 16 columns, of which four are empty
    ("NN", {"bn": 256, "consumers_n": 2, "stages": 4, "split_k": 3}, (130, 200, 200)),
    ("TN", {"bn": 80, "split_k": 2}, (65, 136, 200)),  # bands of 48 and 32 columns
]
"""Layout, parameters, and M x N x K."""


@pytest.mark.slow
@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(("layout", "params", "size"), SLICES)
def test_sums_of_slices_are_right(
    layout: str, params: dict[str, int | str], size: tuple[int, int, int], loads: str
) -> None:
    one = variant(SPLIT, "bf16", layout, **params)
    assert wrong(one, loads, size) == 0
    assert wrong(one, loads, size, beta=0.0) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("text", "instead", "number", "shows"), [
    ("sender - (sender > to)", "sender > to ? 0 : sender", 1, "wrong"),  # two senders write to one place
    ("const int first = to * band", "const int first = (Slices - 1 - to) * band", 0, "wrong"),
    ("[consumer * warpgroup_threads + thread]", "[thread]", 0, "wrong"),
    ("if (left > 0) store_band", "if (left < 0) store_band", 1, "wrong"),
    ("if (left >= band)", "if (left > 0)", 4, "wrong"),
    ("if (thread == 0) wait_for_store_reads<0>();", "", 0, "before its wgmma or its stores"),
])  # fmt: skip
def test_mistakes_of_slices_show(
    tmp_path: Path, text: str, instead: str, number: int, shows: str
) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    edit(include / "epilogue" / "slice_sum.cuh", text, instead)
    layout, params, size = SLICES[number]
    try:
        one = variant(SPLIT, "bf16", layout, **params)
        found = (
            "wrong"
            if any(wrong(one, loads, size, include=include) for loads in LOADS)
            else ""
        )
    except Fault as fault:
        found = str(fault)
    assert shows in found


def with_loads(case: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """What must be seen with early and with late loads: kernels, layouts, and each value of a parameter."""
    name, layout, params, clusters, loads = case
    return [
        (name, layout, str(params), clusters),
        (name, loads),
        (layout, loads),
        *((*one, loads) for one in params.items()),
    ]


@pytest.mark.parametrize(
    ("name", "layout", "params", "clusters", "loads"),
    slow_beside_files(
        covering([(*row, loads) for row in KERNELS for loads in LOADS], with_loads)
    ),
)
def test_results_are_right(
    name: str, layout: str, params: dict[str, int | str], clusters: int, loads: str
) -> None:
    one = variant(name, "bf16", layout, **params)
    assert wrong(one, loads, clusters=clusters) == 0


WIDTHS: list[tuple[str, str, dict[str, int | str], tuple[int, int, int], int]] = [
    # Each row of tiles has a wide one and two narrow ones, of which the last is cut.
    (
        RING,
        "TN",
        {"bn": 80, "narrow": 64, "stagger": 1, "serpentine": 1},
        (300, 200, 136),
        2,
    ),
    # Two columns of 64 beside two of 48, stored as two halves of 64 that overlap.
    # One row of clusters of three tiles and one of four, for seven clusters.
    (
        RING,
        "TN",
        {"bn": 96, "narrow": 64, "cluster_m": 2, "raster": "hilbert", "boxes": 1},
        (300, 264, 136),
        7,
    ),
    (RING, "TN", {"bn": 96, "narrow": 64, "stagger": 1, "early": 1}, (65, 264, 72), 4),
    # Each row has two wide tiles and two narrow ones, more than the blocks.
    (WIDE, "TN", {"bn": 128, "narrow": 96, "stages": 2}, (300, 440, 136), 3),
    # The consumers' tiles differ in width; with two rows of clusters as well.
    (
        TURNS,
        "TN",
        {"bn": 128, "narrow": 96, "stages": 3, "serpentine": 1, "raster": 0},
        (300, 320, 200),
        2,
    ),
    (
        TURNS,
        "TN",
        {"bm": 64, "bn": 144, "narrow": 112, "stages": 4, "cluster_m": 2, "boxes": 1},
        (200, 472, 136),
        3,
    ),
    # The largest tile, here narrower, with a last column of narrow ones; pairs.
]
"""Kernel, layout, parameters, M x N x K, and clusters that start."""


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(
    ("name", "layout", "params", "size", "clusters"), slow_beside_files(WIDTHS)
)
def test_results_of_two_widths_are_right(
    name: str,
    layout: str,
    params: dict[str, int | str],
    size: tuple[int, int, int],
    clusters: int,
    loads: str,
) -> None:
    assert wrong(variant(name, "bf16", layout, **params), loads, size, clusters) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize(("text", "instead"), [
    (">= (first ? few : more).wide;", ">= 0;"),  # a wide tile without its last columns
    ("narrow * Narrow};", "narrow * BN};"),
    ("return {few.count + at.row, at.column};", "return at;"),
])  # fmt: skip
def test_mistakes_of_two_widths_show(
    tmp_path: Path, text: str, instead: str, number: int
) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    edit(include / "schedule" / "even_tiles.cuh", text, instead)
    name, layout, params, size, clusters = WIDTHS[number]
    assert (
        wrong(
            variant(name, "bf16", layout, **params),
            "early",
            size,
            clusters,
            include=include,
        )
        > 0
    )


PROMOTIONS: list[tuple[dict[str, int | str], int]] = [
    ({"bn": 64, "stages": 4}, 2),
    ({"bn": 64, "stages": 2, "stagger": 0, "cluster_m": 2, "buffers": 2}, 1),
    (
        {
            "bn": 64,
            "split": 2,
            "partials": 2,
            "stages": 2,
            "stagger": 2,
            "raster": "hilbert",
        },
        2,
    ),
    ({"bn": 64, "split": 2, "partials": 2, "chain": 4, "stages": 4, "stagger": 2}, 2),
    ({"bm": 256, "bn": 64, "every": 256, "stages": 3}, 1),
    ({"bm": 256, "bn": 96, "partials": 2, "stages": 3, "cluster_m": 2}, 1),
    ({"bm": 192, "bn": 128, "consumers": 3, "every": 256, "stages": 3}, 2),
]
"""Parameters, and clusters that start."""


@pytest.mark.slow
@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(("params", "clusters"), PROMOTIONS)
def test_promoted_results_are_right(
    params: dict[str, int | str], clusters: int, loads: str
) -> None:
    """Five steps of K, the last of 80: a whole interval, and one that is cut."""
    one = variant(PROMOTED, "fp8", "TN", **params)
    assert wrong(one, loads, (300, 136, 592), clusters) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "clusters", "beta"), [
    ((65, 72, 0), 0, 0.5), ((65, 72, 0), 0, 0.0), ((1, 8, 16), 3, 0.5), ((129, 136, 208), 0, 0.0),
])  # fmt: skip
def test_promoted_results_are_right_without_k_without_a_tile_and_without_c(
    size: tuple[int, int, int], clusters: int, beta: float
) -> None:
    one = variant(PROMOTED, "fp8", "TN", bn=64, stagger=2, every=256)
    assert wrong(one, "early", size, clusters, beta) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("text", "instead", "shows"), [
    ("registers * 2, i > 0);", "registers * 2, 1);", "wrong|before it is written"),  # not from zero
    ("registers * 2, i > 0);", "registers * 2, 0);", "wrong"),  # loses the first stages of an interval
    ("promote(accumulator, part, partial[i % partials]);", "promote(accumulator, part, partial[0]);", "wrong"),
    ("wgmma_wait<1>();", "wgmma_wait<2>();", "before it is written"),
    ("if (last) release(at, count);", "", "ever"),
])  # fmt: skip
def test_mistakes_of_promotion_show(
    tmp_path: Path, text: str, instead: str, shows: str
) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    edit(include / "schedule" / "promotion_loop.cuh", text, instead)
    parts: dict[str, int | str] = {"split": 2, "partials": 2, "chain": 4, "stagger": 2}
    more = {"every": 256} if instead.endswith("0);") else parts
    one = variant(PROMOTED, "fp8", "TN", bn=64, stages=3, **more)
    try:
        found = (
            "wrong" if wrong(one, "early", (300, 136, 1104), 2, include=include) else ""
        )
    except Fault as fault:
        found = str(fault)
    assert any(word in found for word in shows.split("|"))


@pytest.mark.slow
@pytest.mark.parametrize("signs", ["positive", "both signs"])
def test_promotion_is_nearer_to_the_exact_sum(signs: str) -> None:
    """In tensor cores that keep 14 bits of a sum, as a model of them cuts the sums of the kernel itself."""
    rng = np.random.default_rng(2)
    shapes = {"a": (64, 1536), "b": (1536, 64), "c": (64, 64)}
    drawn = {
        name: rng.uniform(0 if signs == "positive" else -1, 1, shape)
        for name, shape in shapes.items()
    }
    inputs = {name: E4M3[to_e4m3(values)] for name, values in drawn.items()}
    exact = ALPHA * (inputs["a"].astype(np.float64) @ inputs["b"])
    variants = {
        "not": variant(RING, "fp8", "TN", bm=64, bn=64, consumers=1, reallocate=0),
        **{
            f"every {every}": variant(PROMOTED, "fp8", "TN", bn=64, every=every)
            for every in (128, 256)
        },
    }
    error = {}
    for name, one in variants.items():
        found = run(one, "late", inputs, beta=0.0, sum_bits=14)
        error[name] = np.abs(found - exact).mean() / np.abs(exact).mean()
    rounding = np.abs(rounded(exact) - exact).mean() / np.abs(exact).mean()
    if signs == "positive":
        assert error["not"] > 2 * error["every 256"]
        assert error["every 128"] < 1.1 * rounding
    assert rounding <= error["every 128"] < error["every 256"] < error["not"]


TYPES: list[tuple[str, str, dict[str, int | str], int]] = [
    (RING, "fp8", {"bn": 64, "stagger": 1, "early": 1}, 2),
    (RING, "tf32", {"bn": 64, "stagger": 1, "early": 1}, 2),
    (TURNS, "fp8", {"bn": 64, "stages": 3}, 2),
    (TURNS, "tf32", {"bn": 64, "stages": 3}, 2),
    (TURNS, "tf32", {"bn": 128, "narrow": 112, "boxes": 4, "stages": 4}, 1),
]
"""Kernel, dtype, parameters, and clusters that start."""


@pytest.mark.slow
@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(("name", "dtype", "params", "clusters"), TYPES)
def test_results_of_other_types_are_right(
    name: str, dtype: str, params: dict[str, int | str], clusters: int, loads: str
) -> None:
    """Four or five steps of K, of which the last is cut."""
    one = variant(name, dtype, "TN", **params)
    if dtype == "tf32":
        assert wrong_in_fp32(one, (259, 136, 132), clusters, loads=loads) == 0
    else:
        assert wrong(one, loads, (259, 136, 464), clusters) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "clusters", "beta"), [
    ((1, 8, 8), 3, 0.5), ((129, 136, 64), 2, 0.0), ((257, 200, 456), 3, 0.0), ((131, 8, 520), 1, 1.5),
])  # fmt: skip
@pytest.mark.parametrize(("name", "params"), [
    (TURNS, {"stages": 3, "narrow": 96}), (TURNS, {"bm": 64, "bn": 64, "cluster_m": 2}), (RING, {"bn": 64, "early": 1}),
])  # fmt: skip
def test_edges_are_right(
    name: str,
    params: dict[str, int | str],
    size: tuple[int, int, int],
    clusters: int,
    beta: float,
) -> None:
    """One row, one step of K, blocks without a second tile or without any, C that holds NaN where it is not read."""
    one = variant(name, "bf16", "TN", **params)
    assert [wrong(one, loads, size, clusters, beta) for loads in LOADS] == [0, 0]


TURN = "hopper_ping_pong.cu"
ROLES = "schedule/roles.cuh"
HAND_OVER = "schedule/hand_over.cuh"


TURNS_AND_ROLES = [
    # What is changed, where, and how it shows. To hand over up to stages - 1 steps earlier does no harm: the stage
    # that the other consumer waits for has been full once on the pass before, so that its parity is of this pass.
    (
        TURN,
        "consumer.at.advance(number * steps);",
        "",
        "wrong|ever",
    ),  # takes the stages of the first tile
    (
        TURN,
        "work.clusters, consumer.at.advance(steps)) {",
        "work.clusters) {",
        "wrong|ever",
    ),  # those of the other's tiles
    (
        TURN,
        "if (before) warp",
        "if (before && consumer == 0) warp",
        "wrong|ever",
    ),  # does not wait
    (
        HAND_OVER,
        "if (step == last) warp",
        "if (step < 0) warp",
        "ever",
    ),  # does not hand over
    (
        TURN,
        "tile != work.cluster, tile",
        "true, tile",
        "ever",
    ),  # waits where nobody hands over
    (
        TURN,
        "Cluster::partners * 4,",
        "Cluster::partners * BlockTile::consumers * 4,",
        "ever",
    ),
    (TURN, "if (thread == 0) wait_for_stores();", "", "before its wgmma or its stores"),
    (
        TURN,
        "if (k == 0) return scale_c(c, m, n, beta);",
        "",
        "wrong|before it is written",
    ),
    (
        ROLES,
        "if constexpr (Ring::early) warpgroup_barrier<BlockTile::consumers + 1>(0);",
        "",
        "no mbarrier",
    ),
    (ROLES, "warpgroup_arrive<BlockTile::consumers + 1>(0);", "", "ever"),
    (ROLES, "ring.init(releases);", "", "no mbarrier"),
]


@pytest.mark.slow
@pytest.mark.parametrize("behind", [0, 128])
@pytest.mark.parametrize("params", [{}, {"early": 1}, {"cluster_m": 2}])
def test_the_start_is_right_whoever_comes_last(
    params: dict[str, int | str], behind: int
) -> None:
    for name in (RING, TURNS):
        given = (
            params
            if name == RING
            else {key: value for key, value in params.items() if key != "early"}
        )
        one = variant(name, "bf16", "TN", bn=64, stages=3, **given)
        assert wrong(one, "late", SIZE, 2, behind=behind) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "file", "text", "instead", "shows"),
    [
        (name, *one)
        for one in TURNS_AND_ROLES
        for name in (TURNS, RING)
        if name == TURNS or one[0] == ROLES
    ],
)
def test_mistakes_of_roles_and_turns_show(
    tmp_path: Path, name: str, file: str, text: str, instead: str, shows: str
) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    whole = None
    if file == TURN:
        source = (HOPPER / file).read_text()
        assert source.count(text) == 1
        whole = source.replace(text, instead)
    else:
        edit(include / file, text, instead)
    more: dict[str, int | str] = {} if name == TURNS else {"early": 1}
    one = variant(name, "bf16", "TN", bn=64, stages=3, **more)
    size = (65, 72, 0) if "k == 0" in text else SIZE
    # Threads that set up the ring are the last to come, where others may go on without them.
    behind = 128 if file == ROLES else 0
    try:
        found = (
            "wrong"
            if wrong(one, "early", size, 2, include=include, text=whole, behind=behind)
            else ""
        )
    except Fault as fault:
        found = str(fault)
    assert any(word in found for word in shows.split("|")), found


EACH = (ONE, TWO_STAGES, *RUNGS, PING_PONG, STREAM_K, RING, TURNS, SPLIT)


def test_each_is_run() -> None:
    assert {name for name, *_ in KERNELS} == {*EACH}


def first(name: str) -> Variant:
    """The first one of KERNELS, which is compiled for its results anyway."""
    layout, params = next(
        (layout, params) for one, layout, params, _ in KERNELS if one == name
    )
    return variant(name, "bf16", layout, **params)


@pytest.mark.parametrize("beta", [0.5, 0.0])
@pytest.mark.parametrize("name", slow_beside_files([(name,) for name in EACH]))
def test_where_k_is_0_the_result_is_beta_times_c(name: str, beta: float) -> None:
    assert wrong(first(name), "early", (65, 72, 0), beta=beta) == 0


@pytest.mark.parametrize(
    "name",
    [
        "4_persistent",
        "5_multicast",
        "6_tma_store",
        "6c_stagger",
        WIDE,
        "6f_l2_order",
        PING_PONG,
        STREAM_K,
        RING,
        TURNS,
    ],
)
def test_a_block_without_a_tile_ends(name: str) -> None:
    one = variant(RING, "bf16", "TN", bn=64, stagger=2) if name == RING else first(name)
    assert wrong(one, "early", (65, 72, 136), clusters=4) == 0


STORE = "epilogue/warpgroup_store.cuh"
MISTAKES = [
    # What is changed, where, and how it shows: a wrong result, or what the machine says (threads wait for ever).
    (f"{TWO_STAGES}.cu", "step / stages % 2", "0", "late", "ever|wrong|before"),
    (f"{TWO_STAGES}.cu", "wgmma_wait_all(accumulator);", "", "early", "wrong|before"),
    ("2_ring.cu", "ring.wait_until_empty(at);", "", "early", "ever"),
    ("2_ring.cu", "mbarrier_wait(ring.full[at.stage], at.parity);", "", "late", "ever"),
    (
        "2_ring.cu",
        "release_stage<Alone>(ring.empty[held], 0, lane);",
        "",
        "early",
        "ever",
    ),
    (
        "4_persistent.cu",
        "release_stage<Alone>(ring.empty[held], 0, lane);  //",
        "//",
        "early",
        "ever",
    ),
    (
        "5_multicast.cu",
        "ring.init(ClusterM * consumers * 4)",
        "ring.init(consumers * 4)",
        "early",
        "ever",
    ),
    ("5_multicast.cu", "Cluster::column_mask(rank)", "1u << rank", "late", "ever"),
    (
        STORE,
        "if (thread == 0) wait_for_store_reads<Stages - 1>();",
        "",
        "early",
        "wrong",
    ),
    (STORE, "fence_async_proxy();", "", "early", "without fence.proxy.async"),
    (
        STORE,
        "warpgroup_barrier(barrier);  // the buffer is written",
        "",
        "early",
        "before a barrier",
    ),
    (
        "6_tma_store.cu",
        "if (thread == 0) wait_for_stores();",
        "",
        "early",
        "before its wgmma or its stores",
    ),
    (
        "6c_stagger.cu",
        "if (leads) warpgroup_arrive<2>(start_barrier);",
        "",
        "early",
        "ever",
    ),
    (
        "6c_stagger.cu",
        " && blockIdx.x < scheduler.tiles()) warp",
        ") warp",
        "early",
        "ever",
    ),
    (
        "6d_serpentine.cu",
        "steps - 1 - step : step",
        "steps - step : step",
        "early",
        "wrong",
    ),
    (
        f"{WIDE}.cu",
        "if (scheduler.is_narrow(tile))",
        "if (!scheduler.is_narrow(tile))",
        "early",
        "wrong",
    ),
    (f"{WIDE}.cu", "has_work ? steps : 0", "steps", "early", "ever"),
    (
        "6f_l2_order.cu",
        "map_b, origin.column, k_of_step",
        "map_b, origin.column, step * depth",
        "early",
        "wrong",
    ),
    ("7_ping_pong.cu", "at.advance(consumer * steps);", "", "early", "wrong|ever"),
    (
        "7_ping_pong.cu",
        "if (tile + clusters < scheduler.tiles()) warp",
        "if (tile < 0) warp",
        "early",
        "ever",
    ),
    (HAND_OVER, " && steps > 0) warp", ") warp", "early", "ever"),
    (HAND_OVER, "if (step == last) {", "if (step < 0) {", "early", "ever"),
    ("hopper_split_k.cu", "clear(accumulator);", "", "early", "wrong"),
    (
        "hopper_split_k.cu",
        "cluster_barrier();\n        sum.send",
        "sum.send",
        "early",
        "wrong|ever",
    ),
    (
        "hopper_split_k.cu",
        "warpgroup_barrier<BlockTile::consumers + 1>(start);",
        "",
        "early",
        "no mbarrier",
    ),
    (
        "hopper_split_k.cu",
        "warpgroup_arrive<BlockTile::consumers + 1>(start);",
        "",
        "early",
        "ever",
    ),
    (
        "hopper_gemm.cu",
        "if (k == 0) return scale_c(c, m, n, beta);",
        "",
        "early",
        "wrong|before it is written",
    ),
]


@pytest.mark.parametrize(("file", "text", "instead", "loads", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, file: str, text: str, instead: str, loads: str, shows: str
) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    source = HOPPER / file if file.endswith(".cu") else include / file
    name = (
        source.stem
        if file.endswith(".cu")
        else "6_tma_store"
        if file == STORE
        else RING
    )
    changed = source.read_text().replace(text, instead)
    assert changed != source.read_text()
    if source.suffix == ".cuh":
        source.write_text(changed)
    layout, params, clusters = next(
        rest for one, *rest in reversed(KERNELS) if one == name
    )
    size = (65, 72, 0) if "k == 0" in text else SIZE
    if name == RING:
        layout, params, clusters = "TN", {"bn": 64, "stagger": 1}, 10  # for nine tiles
    if name == WIDE:
        layout, params, size, clusters = next(
            rest for one, *rest in WIDTHS if one == name
        )
        if "steps : 0" in text:
            size, clusters = (65, 72, 136), 4  # for one tile
    one, whole = (
        variant(name, "bf16", layout, **params),
        changed if source.suffix == ".cu" else None,
    )
    try:
        found = (
            "wrong"
            if wrong(one, loads, size, clusters, include=include, text=whole)
            else ""
        )
    except Fault as fault:
        found = str(fault)
    assert any(word in found for word in shows.split("|"))

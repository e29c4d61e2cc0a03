"""Results of the Hopper kernels, run on the CPU: tiles at the edge, more tiles than blocks, and what would go wrong."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.formats import E4M3, e4m3, from_bits, to_bits
from emulator.hopper import (
    HOPPER,
    ONE,
    PING_PONG,
    PROMOTED,
    RING,
    RUNGS,
    SPLIT,
    STREAM_K,
    TURNS,
    TWO_STAGES,
    Params,
    slow_beside_files,
    variant,
)
from emulator.launching import ALPHA, BOTH, LOADS, assert_shows, planted, product, wrong

Size = tuple[int, int, int]
Run = tuple[str, str, str, Params, Size, int]
"""Kernel, dtype, layout, parameters, M x N x K, and clusters that start; where these are 0, the variant's own."""
WIDE = "6e_two_widths"
SIZE = (300, 136, 200)
"""3 x 3 tiles of 128 x 64, of which five are cut; three whole steps of K and one of 8."""
ALONE = {"consumers": 1, "reallocate": 0}

DOUBLE: Run = (TWO_STAGES, "bf16", "TN", {"bm": 64, "bn": 128}, SIZE, 0)
TWO: Run = ("2_ring", "bf16", "NN", {"bn": 64, "stages": 2}, SIZE, 0)
PERSISTENT: Run = (
    "4_persistent",
    "bf16",
    "TN",
    {"bn": 64, "raster": "hilbert"},
    SIZE,
    2,
)
MULTICAST: Run = ("5_multicast", "bf16", "TN", {"bn": 64, "stages": 2}, SIZE, 1)
ONE_BUFFER = {"bn": 64, "cluster_m": 1, "buffers": 1}
STORES: Run = ("6_tma_store", "bf16", "NN", ONE_BUFFER, SIZE, 2)
# For nine tiles.
LATER: Run = ("6c_stagger", "bf16", "TN", {"bn": 64, "raster": "hilbert"}, SIZE, 10)
BACK: Run = ("6d_serpentine", "bf16", "TN", {"bn": 64, "stages": 3}, SIZE, 2)
# Each row has two wide tiles and two narrow ones, more than the blocks.
TWO_WIDTHS = {"bn": 128, "narrow": 96, "stages": 2}
WIDTHS: Run = (WIDE, "bf16", "TN", TWO_WIDTHS, (300, 440, 136), 3)
ORDERED: Run = ("6f_l2_order", "bf16", "TN", {"bn": 64}, SIZE, 2)
PAIR: Run = (PING_PONG, "bf16", "TN", {"bn": 176, "stages": 4}, SIZE, 1)
STAGGERED: Run = (RING, "bf16", "TN", {"bn": 64, "stagger": 1}, SIZE, 10)
EARLY: Run = (RING, "bf16", "TN", {"bn": 64, "stages": 3, "early": 1}, SIZE, 2)
IN_TURNS: Run = (TURNS, "bf16", "TN", {"bn": 64, "stages": 3}, SIZE, 2)
# Of six slices two are idle.
SIX = {"bm": 64, "bn": 64, "split_k": 6}
IDLE: Run = (SPLIT, "bf16", "TN", ALONE | SIX, SIZE, 0)
# Bands of 64 columns; of 48, 48 and 32; of 16, of which four are empty; of 48 and 32.
BANDS: Run = (SPLIT, "bf16", "TN", {"split_k": 2}, (130, 136, 200), 0)
THREE: Run = (SPLIT, "bf16", "TN", {"split_k": 3}, (130, 136, 200), 0)
EMPTY: Run = (SPLIT, "bf16", "TN", {"bn": 64, "split_k": 8}, (65, 72, 520), 0)
UNEVEN: Run = (SPLIT, "bf16", "TN", {"bn": 80, "split_k": 2}, (65, 136, 200), 0)
# Two columns of 64 beside two of 48, stored as two halves of 64 that overlap.
# One row of clusters of three tiles and one of four, for seven clusters.
NARROW = {"bn": 96, "narrow": 64, "cluster_m": 2, "raster": "hilbert", "boxes": 1}
OVERLAPPING: Run = (RING, "bf16", "TN", NARROW, (300, 264, 136), 7)
# The consumers' tiles differ in width; with two rows of clusters as well.
UNLIKE = {"bm": 64, "bn": 144, "narrow": 112, "stages": 4, "cluster_m": 2, "boxes": 1}
DIFFERENT: Run = (TURNS, "bf16", "TN", UNLIKE, (200, 472, 136), 3)
# Five steps of K, the last of 80: a whole interval, and one that is cut.
LONG = (300, 136, 592)
PARTS = {"bn": 64, "split": 2, "partials": 2, "chain": 4, "stages": 3, "stagger": 2}
CHAINED: Run = (PROMOTED, "fp8", "TN", PARTS, LONG, 2)
SELDOM: Run = (PROMOTED, "fp8", "TN", {"bn": 64, "stages": 3, "every": 256}, LONG, 1)
RUNS: list[Run] = [
    (ONE, "bf16", "NN", {"bn": 64}, SIZE, 0),
    DOUBLE,
    TWO,
    ("3_wide_tile", "bf16", "NN", {"bn": 64}, SIZE, 0),
    ("4_persistent", "bf16", "NN", {"bn": 64}, SIZE, 2),
    PERSISTENT,
    MULTICAST,
    ("6_tma_store", "bf16", "TN", {"bn": 64}, SIZE, 1),
    STORES,
    LATER,
    BACK,
    (WIDE, "bf16", "NN", {"bn": 128, "narrow": 112}, SIZE, 2),
    WIDTHS,
    ORDERED,
    (PING_PONG, "bf16", "NN", {}, SIZE, 2),
    PAIR,
    # Nine tiles of four steps: for four blocks five tiles are cut, for two three.
    (STREAM_K, "bf16", "TN", {"bn": 64, "stages": 3}, SIZE, 4),
    (STREAM_K, "bf16", "NN", {"bn": 64}, SIZE, 2),
    (RING, "bf16", "TN", {"bn": 64, "stagger": 1, "serpentine": 1}, SIZE, 2),
    (
        RING,
        "bf16",
        "TN",
        {"bn": 96, "cluster_m": 2, "cluster_n": 2, "boxes": 1},
        SIZE,
        1,
    ),
    (
        RING,
        "bf16",
        "NN",
        {"bn": 128, "consumers_n": 2, "bm": 64, "store": "direct"},
        SIZE,
        2,
    ),
    (
        RING,
        "bf16",
        "TN",
        ALONE | {"bm": 64, "bn": 64, "stages": 2, "early": 1},
        SIZE,
        3,
    ),
    (RING, "bf16", "TN", {"bn": 80, "narrow": 64, "serpentine": 1}, (300, 200, 136), 2),
    (RING, "fp8", "TN", {"bn": 64, "stagger": 1, "early": 1}, (259, 136, 464), 2),
    (RING, "tf32", "TN", {"bn": 64, "stagger": 1, "early": 1}, (259, 136, 132), 2),
    STAGGERED,
    EARLY,
    OVERLAPPING,
    # Four steps: more than three stages, and less than six.
    IN_TURNS,
    (
        TURNS,
        "bf16",
        "TN",
        {"bn": 64, "stages": 5, "serpentine": 1, "raster": 2},
        SIZE,
        1,
    ),
    (TURNS, "bf16", "TN", {"bm": 64, "bn": 64, "cluster_n": 2, "boxes": 1}, SIZE, 2),
    (TURNS, "bf16", "TN", {"bn": 128, "narrow": 96, "stages": 3}, (300, 320, 200), 2),
    (TURNS, "fp8", "TN", {"bn": 64, "stages": 3}, (259, 136, 464), 2),
    (
        TURNS,
        "tf32",
        "TN",
        {"bn": 128, "narrow": 112, "boxes": 4, "stages": 4},
        (259, 136, 132),
        1,
    ),
    DIFFERENT,
    (SPLIT, "bf16", "NN", {"bn": 64, "split_k": 3}, SIZE, 0),
    IDLE,
    (
        SPLIT,
        "bf16",
        "NN",
        {"bn": 256, "consumers_n": 2, "stages": 4},
        (130, 200, 200),
        0,
    ),
    BANDS,
    THREE,
    EMPTY,
    UNEVEN,
    (PROMOTED, "fp8", "TN", {"bn": 64, "cluster_m": 2, "buffers": 2}, LONG, 1),
    (PROMOTED, "fp8", "TN", {"bm": 256, "bn": 96, "partials": 2, "stages": 3}, LONG, 1),
    (
        PROMOTED,
        "fp8",
        "TN",
        {"bm": 192, "bn": 128, "consumers": 3, "stages": 3},
        LONG,
        2,
    ),
    CHAINED,
    SELDOM,
]


def is_wrong(run: Run, loads: str, beta: float = 0.5, **more: Any) -> int:
    name, dtype, layout, params, size, clusters = run
    one = variant(name, dtype, layout, **params)
    return wrong(one, size, beta, loads=loads, clusters=clusters, **more)


def at(run: Run, size: Size, clusters: int = 0) -> Run:
    """The same at another size."""
    return (*run[:4], size, clusters)


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("run", slow_beside_files([(run,) for run in RUNS]), ids=str)
def test_results_are_right(run: Run, loads: str) -> None:
    assert is_wrong(run, loads) == 0


EACH = (ONE, TWO_STAGES, *RUNGS, PING_PONG, STREAM_K, RING, TURNS, SPLIT, PROMOTED)
STAY = (*[*RUNGS][2:], PING_PONG, STREAM_K, RING, TURNS, PROMOTED)
"""Kernels whose blocks take several tiles."""


@pytest.mark.parametrize("name", slow_beside_files([(name,) for name in EACH]))
def test_edges_are_right(name: str) -> None:
    """Where K is 0 the result is beta * C. Where beta is 0, C is not read: it holds NaN. Blocks without a tile end."""
    run = next(run for run in RUNS if run[0] == name)
    assert is_wrong(at(run, (65, 72, 0)), "early") == 0
    assert is_wrong(at(run, (65, 72, 0)), "early", beta=0.0) == 0
    assert is_wrong(run, "late", beta=0.0) == 0
    if name in STAY:
        assert is_wrong(at(run, (65, 80, 144), 4), "early") == 0


@pytest.mark.slow
@pytest.mark.parametrize("behind", [0, 128])
def test_the_start_is_right_whoever_comes_last(behind: int) -> None:
    for name, more in ((RING, {}), (RING, {"early": 1}), (TURNS, {"cluster_m": 2})):
        run: Run = (name, "bf16", "TN", {"bn": 64, "stages": 3, **more}, SIZE, 2)
        assert is_wrong(run, "late", behind=range(behind)) == 0


@pytest.mark.slow
def test_promotion_is_nearer_to_the_exact_sum() -> None:
    """In tensor cores that keep 14 bits of a sum, as a model of them cuts the sums of the kernel itself."""
    rng = np.random.default_rng(2)
    a, b, c = (
        E4M3[e4m3(rng.uniform(0, 1, shape))].astype(np.float32)
        for shape in ((64, 1536), (1536, 64), (64, 64))
    )
    exact = ALPHA * (a.astype(np.float64) @ b)
    plain = variant(RING, "fp8", "TN", bm=64, bn=64, **ALONE)
    often, seldom = (
        variant(PROMOTED, "fp8", "TN", bn=64, every=every) for every in (128, 256)
    )
    error = {}
    for one in (plain, seldom, often):
        made, _ = product(one, (a, b, c), loads="late", sum_bits=14)
        error[one] = np.abs(made - exact).mean()
    nearest = from_bits(to_bits(exact.astype(np.float32), "bf16"), "bf16")
    assert error[plain] > 2 * error[seldom] > 2 * error[often]
    assert error[often] < 1.1 * np.abs(nearest - exact).mean()


WAITED = "before its wgmma or its stores"
MISTAKES: list[tuple[Run, str, str, str]] = [
    # What runs, what is changed into what, and how it shows: a wrong result, or what the machine says.
    (DOUBLE, "step / stages % 2", "0", "ever|wrong|before"),
    (DOUBLE, "wgmma_wait_all(accumulator);", "", "wrong|before"),
    (TWO, "ring.wait_until_empty(at);", "", "ever"),
    (TWO, "mbarrier_wait(ring.full[at.stage], at.parity);", "", "ever"),
    (TWO, "release_stage<Alone>(ring.empty[held], 0, lane);", "", "ever"),
    (PERSISTENT, "release_stage<Alone>(ring.empty[held], 0, lane);  //", "//", "ever"),
    (
        MULTICAST,
        "ring.init(ClusterM * consumers * 4)",
        "ring.init(consumers * 4)",
        "ever",
    ),
    (MULTICAST, "Cluster::column_mask(rank)", "1u << rank", "ever"),
    (STORES, "if (thread == 0) wait_for_store_reads<Stages - 1>();", "", "wrong"),
    (STORES, "fence_async_proxy();", "", "without fence.proxy.async"),
    (
        STORES,
        "warpgroup_barrier(barrier);  // the buffer is written",
        "",
        "before a barrier",
    ),
    (STORES, "if (thread == 0) wait_for_stores();", "", WAITED),
    (LATER, "if (leads) warpgroup_arrive<2>(start_barrier);", "", "ever"),
    (LATER, " && blockIdx.x < scheduler.tiles()) warp", ") warp", "ever"),
    (BACK, "steps - 1 - step : step", "steps - step : step", "wrong"),
    (
        WIDTHS,
        "if (scheduler.is_narrow(tile))",
        "if (!scheduler.is_narrow(tile))",
        "wrong",
    ),
    (at(WIDTHS, (65, 72, 136), 4), "has_work ? steps : 0", "steps", "ever"),
    (
        ORDERED,
        "map_b, origin.column, k_of_step",
        "map_b, origin.column, step * depth",
        "wrong",
    ),
    (PAIR, "at.advance(consumer * steps);", "", "wrong|ever"),
    (
        PAIR,
        "if (tile + clusters < scheduler.tiles()) warp",
        "if (tile < 0) warp",
        "ever",
    ),
    (STAGGERED, " && steps > 0) warp", ") warp", "ever"),
    (STAGGERED, "if (step == last) {", "if (step < 0) {", "ever"),
    (
        at(STAGGERED, (65, 72, 0)),
        "if (k == 0) return scale_c(c, m, n, beta);",
        "",
        "wrong|before",
    ),
    # To hand over up to stages - 1 steps earlier does no harm: the stage that the other consumer waits for has been
    # full once on the pass before, so that its parity is of this pass.
    (IN_TURNS, "consumer.at.advance(number * steps);", "", "wrong|ever"),
    (
        IN_TURNS,
        "work.clusters, consumer.at.advance(steps)) {",
        "work.clusters) {",
        "wrong|ever",
    ),
    (IN_TURNS, "if (before) warp", "if (before && consumer == 0) warp", "wrong|ever"),
    (IN_TURNS, "tile != work.cluster, tile", "true, tile", "ever"),
    (
        IN_TURNS,
        "Cluster::partners * 4,",
        "Cluster::partners * BlockTile::consumers * 4,",
        "ever",
    ),
    (IN_TURNS, "if (thread == 0) wait_for_stores();", "", WAITED),
    (IN_TURNS, "if (step == last) warp", "if (step < 0) warp", "ever"),
    (
        EARLY,
        "if constexpr (Ring::early) warpgroup_barrier<BlockTile::consumers + 1>(0);",
        "",
        "no mbarrier",
    ),
    (EARLY, "warpgroup_arrive<BlockTile::consumers + 1>(0);", "", "ever"),
    (IN_TURNS, "ring.init(releases);", "", "no mbarrier"),
    (IDLE, "clear(accumulator);", "", "wrong"),
    (BANDS, "cluster_barrier();\n        sum.send", "sum.send", "wrong|ever"),
    (BANDS, "warpgroup_arrive<BlockTile::consumers + 1>(start);", "", "ever"),
    (THREE, "sender - (sender > to)", "sender > to ? 0 : sender", "wrong"),
    (
        BANDS,
        "const int first = to * band",
        "const int first = (Slices - 1 - to) * band",
        "wrong",
    ),
    (BANDS, "[consumer * warpgroup_threads + thread]", "[thread]", "wrong"),
    (UNEVEN, "if (left >= band)", "if (left > 0)", "wrong"),
    (BANDS, "if (thread == 0) wait_for_store_reads<0>();", "", WAITED),
    # A wide tile without its last columns.
    (OVERLAPPING, ">= (first ? few : more).wide;", ">= 0;", "wrong"),
    (DIFFERENT, "narrow * Narrow};", "narrow * BN};", "wrong"),
    (DIFFERENT, "return {few.count + at.row, at.column};", "return at;", "wrong"),
    # Not from zero; without the first stages of an interval.
    (
        CHAINED,
        "registers * 2, i > 0);",
        "registers * 2, 1);",
        "wrong|before it is written",
    ),
    (SELDOM, "registers * 2, i > 0);", "registers * 2, 0);", "wrong"),
    (
        CHAINED,
        "accumulator, part, partial[i % partials],",
        "accumulator, part, partial[0],",
        "wrong",
    ),
    (
        CHAINED,
        "stage);\n                wgmma_wait<1>();",
        "stage);\n                wgmma_wait<2>();",
        "before it is written",
    ),
    (CHAINED, "if (last) release(at, count);", "", "ever"),
]


@pytest.mark.parametrize(
    ("run", "right", "mistaken", "shows"), slow_beside_files(MISTAKES), ids=str
)
def test_mistakes_show(
    tmp_path: Path, run: Run, right: str, mistaken: str, shows: str
) -> None:
    """Also where threads that set up the ring are the last to come."""
    more = planted(tmp_path, HOPPER / f"{run[0]}.cu", right, mistaken)
    ways = [*BOTH, {"loads": "late", "behind": range(128)}]
    assert_shows(shows, partial(is_wrong, run, **more), ways)

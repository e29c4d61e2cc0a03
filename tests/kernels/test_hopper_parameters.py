"""What the YAML of the Hopper kernels says against what the source makes: bytes, grids, slices, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import repetitions
import yaml
from checkout import catalog
from conftest import GEMMS, ROOT
from emulator.hopper import (
    PING_PONG,
    PROMOTED,
    RING,
    RUNGS,
    SPLIT,
    TURNS,
    WIDTHS,
    Params,
    box,
    hold,
    kernel,
    refute,
    shared_type,
    variant,
)
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.catalogue.sweeps import load_sweep
from ladder.model.errors import LadderError
from ladder.model.folders import Project
from ladder.model.kernel import Variant

ALONE = {"bm": 64, "consumers": 1, "reallocate": 0}
REPEATED = [
    row
    for row in repetitions.SWEEPS
    if row[0] in {*repetitions.RUNGS, RING, TURNS, SPLIT, PROMOTED}
]


def accepted(name: str, dtype: str, layout: str) -> list[Variant]:
    """Variants that are verified often, of which a constraint may exclude some."""
    variants = [
        catalog()[name].variant(params, dtype, layout, excluded=True)
        for params in repetitions.VARIANTS[name]
    ]
    return [one for one in variants if one.absent() is None]


@pytest.mark.parametrize("row", REPEATED, ids=str)
def test_shared_bytes_hold_what_the_kernel_declares(row: tuple[str, str, str]) -> None:
    assertions = []
    for one in accepted(*row):
        given = one.geometry({"m": 1024, "n": 1024, "k": 1024}).shared_bytes
        shared = shared_type(one)
        assertions.append(f"sizeof({shared}) <= {given}")
        assertions.append(f"{given} - sizeof({shared}) < 1024")
        assertions.append(f"alignof({shared}) == 1024")
    hold(kernel(row[0]).source.read_text(), *assertions)


@pytest.mark.parametrize("name", ["mma_tma", "mma_stream_k"])
@pytest.mark.parametrize("params", [{}, {"bm": 128, "bn": 128, "stages": 5}])
def test_the_ring_of_mma_is_as_large_as_the_launch_says(
    name: str, params: Params
) -> None:
    for dtype, element in (("fp16", "__half"), ("tf32", "float")):
        one = catalog()[name].variant(params, dtype)
        sizes = [str(one.params[axis]) for axis in ("bm", "bn", "wm", "wn", "stages")]
        given = one.geometry({"m": 512, "n": 512, "k": 512}).shared_bytes
        source = one.kernel.source.read_text()
        hold(
            source, f"sizeof(MmaRing<{element}, {', '.join(sizes)}>) == {given} - 1024"
        )


def test_every_accepted_width_is_that_of_a_wgmma() -> None:
    """Of every tile and number of consumers that the ring kernel accepts, with the smallest ring there is."""
    axes = ("bm", "bn", "consumers", "consumers_n")
    wgmmas = set[tuple[str, int]]()
    for dtype, layout in (
        ("bf16", "NN"),
        ("bf16", "TN"),
        ("tf32", "TN"),
        ("fp8", "TN"),
    ):
        element = kernel(RING).dtypes[dtype]["element"]
        for values in itertools.product(
            *(kernel(RING).parameters[axis].values for axis in axes)
        ):
            params: dict[str, Any] = dict(zip(axes, values, strict=True))
            params |= {
                "stages": 2,
                "boxes": 1,
                "reallocate": int(params["consumers"] != 1),
            }
            one = kernel(RING).variant(params, dtype, layout, excluded=True)
            if one.absent() is None:
                wgmmas.add((element, int(params["bn"]) // int(params["consumers_n"])))
    assert {columns for _, columns in wgmmas} == set(WIDTHS)
    # sizeof of a WGMMA that is only declared does not compile.
    hold(
        '#include "ptx/wgmma.cuh"',
        *(f"sizeof(Wgmma<{element}, {n}>) > 0" for element, n in sorted(wgmmas)),
    )


def test_what_the_l2_fetches_reaches_the_maps_of_the_operands(tmp_path: Path) -> None:
    sweep = GEMMS | {
        "dtypes": ["bf16"],
        "layout": "TN",
        "sizes": [256],
        "variants": [{"kernel": RING, "params": {"fetch": ["none", "128B", "256B"]}}],
    }
    path = tmp_path / "fetch.yaml"
    path.write_text(yaml.safe_dump(sweep))
    settings = read_settings(Project(ROOT), (), {})
    loaded = load_sweep(path, {RING: kernel(RING)})
    plan = plan_sweep(loaded, settings, "sm_90a")
    launches = [task.launch for task in plan.tasks if task.launch is not None]
    for launch in launches:
        maps = {
            one["tensor_map"]: one for one in launch.arguments if "tensor_map" in one
        }
        fetched = [maps[buffer]["l2_promotion"] for buffer in "abc"]
        assert fetched == [launch.params["fetch"]] * 2 + ["none"]
        assert {one["swizzle"] for one in maps.values()} == {"rows"}
    assert [launch.params["fetch"] for launch in launches] == ["none", "128B", "256B"]
    assert len(launches) == len(plan.tasks)


@pytest.mark.parametrize(
    "params", [{}, {"cluster_m": 2}, {"cluster_n": 2, "blocks": 0}]
)
def test_grids_are_whole_clusters_and_never_more_than_the_tiles(
    params: Params,
) -> None:
    one = variant(RING, **params)
    rows, columns = (int(one.params[axis]) for axis in ("cluster_m", "cluster_n"))
    for m, n in ((1, 8), (1000, 1000), (16384, 8192)):
        geometry = one.geometry({"m": m, "n": n, "k": 64})
        clusters = -(-m // (128 * rows)) * -(-n // (256 * columns))
        if one.params["blocks"]:
            clusters = min(clusters, 132 // (rows * columns))
        assert (geometry.cluster or (1, 1, 1)) == (rows * columns, 1, 1)
        assert geometry.grid == (clusters * rows * columns, 1, 1)


@pytest.mark.parametrize(
    ("name", "dtype", "n", "k"),
    [
        *((name, "bf16", 40, 72) for name in (*RUNGS, PING_PONG, TURNS, RING)),
        (RING, "tf32", 36, 68),
        (TURNS, "fp8", 48, 80),
    ],
)
def test_rows_must_be_whole_sixteen_bytes(
    name: str, dtype: str, n: int, k: int
) -> None:
    one = variant(name, dtype, "TN")
    assert one.absent({"m": 33, "n": n, "k": k}) is None
    for size in ({"m": 33, "n": n - 2, "k": k}, {"m": 33, "n": n, "k": k - 2}):
        assert "16 bytes" in str(one.absent(size))


@pytest.mark.parametrize("dtype", ["tf32", "fp8"])
def test_only_16_bit_operands_run_along_n(dtype: str) -> None:
    with pytest.raises(LadderError, match="only along K"):
        variant(RING, dtype, "NN")


REFUSED: list[tuple[str, str, str, Params, str]] = [
    (RING, "bf16", "NN", {"bm": 64}, "whole fragments of 64 rows"),
    (RING, "bf16", "NN", {"bm": 256, "bn": 256}, "registers"),
    (RING, "bf16", "NN", {"consumers": 1, "bn": 128}, "nothing to move"),
    (RING, "bf16", "NN", {"bn": 192, "cluster_m": 2}, "as often for each block"),
    (RING, "bf16", "NN", {"bn": 96}, "of B along N multiples of 64"),
    (RING, "bf16", "NN", {"stages": 5}, "227 KiB"),
    (RING, "bf16", "NN", {"store": "direct", "evict_c": "first"}, "only TMA can say"),
    (RING, "bf16", "NN", {"stages": 2, "stagger": 3}, "released a stage"),
    (RING, "bf16", "NN", {"early": 1, "cluster_m": 2}, "has set up its barriers"),
    (RING, "bf16", "TN", {"bn": 32, "consumers_n": 2}, "32 to 256 columns"),
    (RING, "bf16", "TN", {"bn": 80, "cluster_m": 4}, "every 8 rows"),
    (RING, "bf16", "TN", {"bn": 208, "stages": 5, "boxes": 2}, "227 KiB"),
    (TURNS, "bf16", "NN", {"bn": 64, "cluster_m": 2}, "64 columns at a time"),
    (TURNS, "bf16", "NN", {"narrow": 128}, "narrow tiles are narrower"),
    (TURNS, "bf16", "NN", {"narrow": 96, "cluster_n": 2}, "one tile's columns"),
    (TURNS, "bf16", "TN", {"cluster_m": 4, "cluster_n": 4}, "more than 8 blocks"),
    (PROMOTED, "fp8", "TN", {"bn": 96, "split": 4}, "as wide as a wgmma"),
    (PROMOTED, "fp8", "TN", {"partials": 2}, "an even number of parts"),
    (PROMOTED, "fp8", "TN", {"chain": 2}, "with one partial sum"),
    (
        SPLIT,
        "bf16",
        "NN",
        {"bn": 256, "split_k": 4, "stages": 2},
        "take the place of the ring",
    ),
]


@pytest.mark.parametrize(("name", "dtype", "layout", "params", "reason"), REFUSED)
def test_impossible_combinations_are_refused_with_the_reason(
    name: str, dtype: str, layout: str, params: Params, reason: str
) -> None:
    with pytest.raises(LadderError, match=reason):
        variant(name, dtype, layout, **params)


def test_a_block_of_a_cluster_does_not_start_early() -> None:
    """hopper_ping_pong says it itself, from the cluster; the headers refuse it."""
    set_up = """#include "schedule/roles.cuh"
#include "schedule/parameters.cuh"
__global__ void kernel(const __grid_constant__ TensorMap map) {
    __shared__ RingBarriers<2> ring;
    set_up_ring<Ring<2, Evict::normal, Evict::normal, EARLY>, ClusterShape<ROWS, 1>>(ring, 4, map, map, map);
}
"""
    for early, rows in (("true", 1), ("false", 1), ("false", 2)):
        hold(set_up.replace("EARLY", early).replace("ROWS", str(rows)))
    with pytest.raises(LadderError, match="needs a block without a cluster"):
        hold(set_up.replace("EARLY", "true").replace("ROWS", "2"))
    for shape, early in (
        ({}, "1 * 1 == 1"),
        ({"cluster_m": 2}, "2 * 1 == 1"),
        ({"cluster_n": 2}, "1 * 2 == 1"),
    ):
        assert f"Evict::normal, {early}>" in variant(TURNS, "bf16", "TN", **shape).entry


@pytest.mark.parametrize(("name", "variants"), repetitions.VARIANTS.items())
def test_repetitions_leave_out_no_size_and_few_variants(
    name: str, variants: list[Params]
) -> None:
    sweeps = [row for row in repetitions.SWEEPS if row[0] == name]
    kept = [one for row in sweeps for one in accepted(*row)]
    for params in variants:
        those = [one for one in kept if params.items() <= dict(one.params).items()]
        assert len(those) >= min(2, len(sweeps)), params
    for one, size in itertools.product(kept, repetitions.SIZES):
        assert one.absent(size) is None, (one.id, size)


# Slices of K: they cover it, and blocks send each other the sums of bands of columns.

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
    pairs = itertools.product(steps, (2, 3, 4, 6, 8))
    hold(COVERED, *(f"covered({number}, {slices})" for number, slices in pairs))
    mistaken = COVERED.replace("return next == steps", "return next == steps + 1")
    refute(mistaken, "covered(7, 2)")


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
    assertions = []
    for columns in (32, 48, 80, 96, 144, 256):
        more = ALONE | {"bn": columns, "stages": 5}
        for slices in (1, 2, 3, 8):
            one = variant(SPLIT, dtype, "TN", **more, split_k=slices)
            arguments = f"{value}, {columns}, {slices}"
            assertions.append(f"covered<{arguments}>({box(one, 'c')[1]})")
    hold(BANDS, *assertions)
    refute(BANDS, f"covered<{value}, 128, 3>(32)")

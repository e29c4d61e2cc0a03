"""What the YAML of the Hopper kernels says against what the source makes: bytes, grids, and what is refused."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import pytest
import repetitions
import yaml
from emulator.hopper import (
    HOPPER,
    ONE,
    PING_PONG,
    PROMOTED,
    RING,
    RUNGS,
    TURNS,
    TWO_STAGES,
    VARIANTS,
    WIDTHS,
    box,
    hold,
    kernel,
    shared_type,
    variant,
)
from ladder.catalogue.kernels import load_kernel
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.catalogue.sweeps import load_sweep
from ladder.model.errors import LadderError
from ladder.model.folders import Project
from ladder.model.kernel import Kernel, Variant

ROOT = HOPPER.parents[2]


@functools.cache
def repeated_kernel(name: str) -> Kernel:
    return load_kernel(next(ROOT.glob(f"kernels/gemm/*/{name}.yaml")))


PROMOTIONS: list[tuple[str, str, str, dict[str, int | str]]] = [
    (PROMOTED, "fp8", "TN", params)
    for params in (
        {},
        {"bm": 256, "bn": 128, "stages": 4, "buffers": 2},
        {"bm": 192, "bn": 128, "consumers": 3},
    )
]


@pytest.mark.parametrize(
    "name", sorted({name for name, *_ in (*VARIANTS, *PROMOTIONS)})
)
def test_shared_bytes_hold_what_the_kernel_declares(name: str) -> None:
    claims = []
    for *kind, params in (row for row in (*VARIANTS, *PROMOTIONS) if row[0] == name):
        one = variant(*kind, **params)
        given = one.geometry({"m": 1024, "n": 1024, "k": 1024}).shared_bytes
        shared = shared_type(one)
        claims.append(
            f"sizeof({shared}) <= {given} && {given} - sizeof({shared}) < 1024"
        )
        claims.append(f"alignof({shared}) == 1024")
    hold((HOPPER / f"{name}.cu").read_text(), *claims)


@functools.cache
def tiles() -> list[Variant]:
    """Every tile, cluster and number of consumers that the ring kernel accepts, with the smallest ring there is."""
    found = list[Variant]()
    axes = ("bm", "bn", "cluster_m", "cluster_n", "consumers", "consumers_n")
    for dtype, layout in (
        ("bf16", "NN"),
        ("bf16", "TN"),
        ("tf32", "TN"),
        ("fp8", "TN"),
    ):
        for values in itertools.product(
            *(kernel(RING).parameters[axis].values for axis in axes)
        ):
            params = dict(zip(axes, values, strict=True))
            ring = {
                "stages": 2,
                "boxes": 1,
                "reallocate": int(params["consumers"] != 1),
            }
            one = kernel(RING).variant(params | ring, dtype, layout, excluded=True)
            if one.absent() is None:
                found.append(one)
    return found


def test_every_accepted_width_is_that_of_a_wgmma() -> None:
    # sizeof of a WGMMA that is only declared does not compile.
    wgmmas = {
        (
            one.kernel.dtypes[one.dtype]["element"],
            int(one.params["bn"]) // int(one.params["consumers_n"]),
        )
        for one in tiles()
    }
    assert {columns for _, columns in wgmmas} == set(WIDTHS)
    hold(
        '#include "ptx/wgmma.cuh"',
        *(f"sizeof(Wgmma<{element}, {n}>) > 0" for element, n in sorted(wgmmas)),
    )


def test_what_the_l2_fetches_reaches_the_maps_of_the_operands(tmp_path: Path) -> None:
    sweep = {
        "title": "t",
        "question": "q?",
        "problem": "gemm",
        "dtypes": ["bf16"],
        "layout": "TN",
        "sizes": [256],
        "variants": [{"kernel": RING, "params": {"fetch": ["none", "128B", "256B"]}}],
        "references": ["cublas"],
    }
    path = tmp_path / "fetch.yaml"
    path.write_text(yaml.safe_dump(sweep))
    settings = read_settings(Project(ROOT), (), {})
    plan = plan_sweep(load_sweep(path, {RING: kernel(RING)}), settings, "sm_90a")
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


def test_grids_are_whole_clusters_and_never_more_than_the_tiles() -> None:
    for params in (
        {},
        {"cluster_m": 2},
        {"cluster_n": 2, "blocks": 0},
        {"cluster_m": 2, "cluster_n": 2},
    ):
        one = variant(RING, **params)
        rows, columns = (int(one.params[axis]) for axis in ("cluster_m", "cluster_n"))
        for m, n in ((1, 8), (1000, 1000), (4096, 4096), (16384, 8192)):
            geometry = one.geometry({"m": m, "n": n, "k": 64})
            tiles = -(-m // (128 * rows)) * -(-n // (256 * columns))
            limit = 132 // (rows * columns) if one.params["blocks"] else tiles
            assert (geometry.cluster or (1, 1, 1)) == (rows * columns, 1, 1)
            assert geometry.grid == (min(tiles, limit) * rows * columns, 1, 1)


@pytest.mark.parametrize("name", [ONE, TWO_STAGES, *RUNGS, PING_PONG, TURNS, RING])
def test_rows_must_be_whole_sixteen_bytes(name: str) -> None:
    one = variant(name)
    assert one.absent({"m": 33, "n": 40, "k": 72}) is None
    for size in ({"m": 33, "n": 36, "k": 72}, {"m": 33, "n": 40, "k": 70}):
        assert "multiples of 16 bytes" in str(one.absent(size))


@pytest.mark.parametrize("name", [RING, TURNS])
def test_rows_of_other_widths(name: str) -> None:
    tf32, fp8 = variant(name, "tf32", "TN"), variant(name, "fp8", "TN")
    assert tf32.absent({"m": 33, "n": 36, "k": 68}) is None
    assert fp8.absent({"m": 33, "n": 40, "k": 80}) is None
    assert "16 bytes" in str(fp8.absent({"m": 33, "n": 40, "k": 72}))
    assert "16 bytes" in str(fp8.absent({"m": 33, "n": 36, "k": 80}))
    for dtype in ("tf32", "fp8"):
        with pytest.raises(LadderError, match="only along K"):
            variant(name, dtype, "NN")


REFUSED: list[tuple[str, str, str, dict[str, int | str], str]] = [
    (RING, "bf16", "NN", {"bm": 64}, "whole fragments of 64 rows"),
    (RING, "bf16", "NN", {"bm": 256, "bn": 256}, "registers"),
    (RING, "bf16", "NN", {"consumers": 1, "bn": 128}, "nothing to move"),
    (RING, "bf16", "NN", {"bn": 192, "cluster_m": 2}, "as often for each block"),
    (RING, "bf16", "NN", {"bn": 96}, "of B along N multiples of 64"),
    (RING, "bf16", "NN", {"bn": 320, "stages": 3}, "32 to 256 columns"),
    (RING, "bf16", "NN", {"stages": 5}, "227 KiB"),
    (RING, "bf16", "NN", {"store": "direct", "evict_c": "first"}, "only TMA can say"),
    (RING, "bf16", "NN", {"stages": 2, "stagger": 3}, "released a stage"),
    (RING, "bf16", "NN", {"early": 1, "cluster_m": 2}, "has set up its barriers"),
    (RING, "bf16", "NN", {"early": 1, "cluster_n": 2}, "has set up its barriers"),
    (TURNS, "bf16", "NN", {"bn": 96}, "64 columns at a time"),
    (TURNS, "bf16", "NN", {"bn": 64, "cluster_m": 2}, "64 columns at a time"),
    (TURNS, "bf16", "NN", {"narrow": 128}, "narrow tiles are narrower"),
    (TURNS, "bf16", "NN", {"narrow": 96, "cluster_n": 2}, "one tile's columns"),
    (TURNS, "bf16", "NN", {"bn": 192, "stages": 5}, "227 KiB"),
    (
        TURNS,
        "bf16",
        "NN",
        {"cluster_m": 4, "cluster_n": 4, "bn": 128},
        "more than 8 blocks|64 columns at a time",
    ),
    (TURNS, "bf16", "TN", {"cluster_m": 4, "cluster_n": 4}, "more than 8 blocks"),
    (TURNS, "bf16", "TN", {"bn": 112, "cluster_m": 4}, "every 8 rows"),
    (PROMOTED, "fp8", "TN", {"bm": 192}, "whole fragments of 64 rows"),
    (PROMOTED, "fp8", "TN", {"bn": 96, "split": 4}, "as wide as a wgmma"),
    (PROMOTED, "fp8", "TN", {"partials": 2}, "an even number of parts"),
    (PROMOTED, "fp8", "TN", {"chain": 2}, "with one partial sum"),
    (
        PROMOTED,
        "fp8",
        "TN",
        {"every": 512, "stages": 4},
        "until all parts are multiplied",
    ),
    (
        PROMOTED,
        "fp8",
        "TN",
        {"split": 2, "partials": 2, "every": 256},
        "waits for both parts",
    ),
    (
        PROMOTED,
        "fp8",
        "TN",
        {"stagger": 2, "every": 256, "bn": 64, "stages": 3},
        "released a stage",
    ),
    (
        RING,
        "bf16",
        "TN",
        {"bn": 48, "consumers_n": 2},
        "consumers take multiples of 16",
    ),
    (RING, "bf16", "TN", {"bn": 32, "consumers_n": 2}, "32 to 256 columns"),
    (
        RING,
        "bf16",
        "TN",
        {"bn": 80, "cluster_m": 4},
        "begins where the swizzle does, every 8 rows",
    ),
    (RING, "bf16", "TN", {"bn": 96, "stages": 8, "boxes": 1}, "227 KiB"),
    (RING, "bf16", "TN", {"bn": 208, "stages": 5, "boxes": 2}, "227 KiB"),
]


@pytest.mark.parametrize(("name", "dtype", "layout", "params", "reason"), REFUSED)
def test_impossible_combinations_are_refused_with_the_reason(
    name: str, dtype: str, layout: str, params: dict[str, int | str], reason: str
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


@pytest.mark.parametrize(("bn", "cluster_m"), [(80, 2), (224, 4)])
def test_shares_of_whole_swizzles_are_accepted(bn: int, cluster_m: int) -> None:
    one = variant(RING, "bf16", "TN", bn=bn, cluster_m=cluster_m, boxes=1)
    assert box(one, "b")[0] == bn // cluster_m
    assert box(one, "b")[0] % 8 == 0


@pytest.mark.parametrize("operand", "abc")
def test_hints_are_normal_first_or_last(operand: str) -> None:
    axis = kernel(RING).parameters[f"evict_{operand}"]
    assert (axis.values, axis.default) == (["normal", "first", "last"], "normal")
    with pytest.raises(LadderError, match=f"evict_{operand}"):
        variant(RING, "bf16", "NN", **{f"evict_{operand}": "never"})


def test_repetitions_leave_out_what_a_constraint_excludes_and_no_size() -> None:
    for name, variants in repetitions.VARIANTS.items():
        sweeps = [
            (dtype, layout)
            for kernel, dtype, layout in repetitions.SWEEPS
            if kernel == name
        ]
        for params in variants:
            every = [
                repeated_kernel(name).variant(params, *sweep, excluded=True)
                for sweep in sweeps
            ]
            accepted = [one for one in every if one.absent() is None]
            assert len(accepted) >= min(2, len(sweeps)), params
            reasons = {
                one.absent(size) for one in accepted for size in repetitions.SIZES
            }
            assert reasons == {None}

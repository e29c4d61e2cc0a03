"""GEMMs with scales by block, run on the CPU: results at the edges, and what shows of mistakes in their scales."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.formats import e4m3, from_bits, to_bits
from emulator.hopper import ROOT, Params
from emulator.launching import BOTH, LOADS, assert_shows, launch, planted
from emulator.ptx import Array
from ladder.catalogue.kernels import load_kernel

FOLDER = ROOT / "kernels/gemm/hopper_scaled"
MEMORY = "1_scales_from_memory"
RING = "2_scales_in_ring"
PARTS = "3_two_partial_sums"
SCALED = "hopper_fp8_scaled"
OUTPUT = {"fp8": "bf16", "fp8_fp32": "fp32"}
BLOCK = 128

Run = tuple[str, str, Params, tuple[int, int, int], int]
"""Kernel, dtype, parameters, M x N x K, and blocks that start; where these are 0, the variant's own."""
SIZE = (150, 264, 592)
"""Two rows of tiles; blocks of B of 128, 128 and 8 columns; five blocks of K, the last of 80."""
FROM_MEMORY: Run = (MEMORY, "fp8", {"stages": 2}, SIZE, 0)
IN_RING: Run = (RING, "fp8", {"stages": 2}, SIZE, 0)
TWO_SUMS: Run = (PARTS, "fp8", {"stages": 2, "chain": 2}, SIZE, 0)
ONE_SUM = {"split": 1, "partials": 1, "chain": 1}
# Of its tiles every second one begins in the middle of a block of B.
BETWEEN: Run = (SCALED, "fp8", ONE_SUM | {"bn": 192, "stages": 3}, SIZE, 2)
BEYOND: Run = (*BETWEEN[:3], (150, 200, 592), 2)
"""A tile that reaches beyond the last block of B."""
SHARED = {"bn": 64, "split": 2, "chain": 2, "stages": 3, "serpentine": 1}
BACKWARDS: Run = (SCALED, "fp8", SHARED, SIZE, 1)
RUNS: list[Run] = [
    FROM_MEMORY,
    (MEMORY, "fp8_fp32", {}, (130, 136, 144), 0),
    IN_RING,
    (RING, "fp8_fp32", {}, (130, 136, 144), 0),
    TWO_SUMS,
    (PARTS, "fp8_fp32", {}, (130, 136, 144), 0),
    BETWEEN,
    BEYOND,
    BACKWARDS,
    (SCALED, "fp8_fp32", {"stagger": 1}, (130, 392, 656), 2),
    (
        SCALED,
        "fp8",
        {"bm": 256, "bn": 96, "split": 1, "stages": 3, "stagger": 1},
        (300, 392, 272),
        2,
    ),
    (
        SCALED,
        "fp8_fp32",
        ONE_SUM | {"bm": 64, "bn": 160, "consumers": 1},
        (65, 488, 272),
        2,
    ),
    (
        SCALED,
        "fp8",
        {"bm": 192, "bn": 128, "consumers": 3, "split": 2},
        (200, 136, 272),
        1,
    ),
]


def scales(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Powers of two, so that sums stay exact, and NaN in the padding of each row."""
    padded = np.full((rows, -(-columns // 4) * 4), np.nan, np.float32)
    drawn = np.ldexp(1.0, rng.integers(-2, 3, (rows, columns)))
    padded[:, :columns] = drawn
    return padded


def wrong(run: Run, loads: str, **more: Any) -> int:
    """How many elements of the product are wrong, with inputs whose sums are exact."""
    name, dtype, params, (m, n, k), blocks = run
    one = load_kernel(FOLDER / f"{name}.yaml").variant(params, dtype, "TN")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (n, k)))
    steps = -(-k // BLOCK)
    scale_a = scales(rng, steps, m)
    scale_b = scales(rng, -(-n // BLOCK), steps)
    buffers = {
        "a": e4m3(a),
        "b": e4m3(b),
        "scale_a": scale_a.view(np.uint32),
        "scale_b": scale_b.view(np.uint32),
        "c": to_bits(np.full((m, n), np.nan, np.float32), OUTPUT[dtype]),
    }
    by_row = np.repeat(scale_a[:, :m].T, BLOCK, axis=1)[:, :k]
    by_block = np.repeat(np.repeat(scale_b[:, :steps], BLOCK, 0)[:n], BLOCK, 1)[:, :k]
    if one.params["scaled"]:
        a, b = a * by_row, b * by_block
    exact = (a.astype(np.float64) @ b.T).astype(np.float32)
    size = {"m": m, "n": n, "k": k}
    made, _ = launch(one, buffers, size, loads=loads, clusters=blocks, **more)
    nearest = from_bits(to_bits(exact, OUTPUT[dtype]), OUTPUT[dtype])
    return int((from_bits(made, OUTPUT[dtype]) != nearest).sum())


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_results_are_right(run: Run, loads: str) -> None:
    assert wrong(run, loads) == 0


@pytest.mark.parametrize("scaled", [0, 1])
def test_small_sizes_are_right_and_blocks_without_a_tile_end(scaled: int) -> None:
    """Fewer rows than a box of scales has, and one block of K, of which there is a part."""
    params = {"scaled": scaled, "bn": 64, "split": 2, "stagger": 1}
    assert wrong((SCALED, "fp8", params, (1, 8, 16), 3), "late") == 0


def test_without_scales_they_are_not_read() -> None:
    for params in (SHARED, ONE_SUM | {"bn": 192, "stages": 3}):
        assert wrong((SCALED, "fp8", {"scaled": 0, **params}, SIZE, 2), "late") == 0


READ = "const auto step_scales = scales.read(at.stage);\n            "
WAIT = "wgmma_wait<0>();\n            release_stage<Alone>(ring.empty[at.stage], 0, lane);\n            "
MISTAKES: list[tuple[Run, str, str, str]] = [
    # What runs, what is changed into what, and how it shows: a wrong result, or what the machine says.
    (FROM_MEMORY, "scale_a + Index(step) * padded_m", "scale_a", "wrong"),
    (FROM_MEMORY, "Index(step) * padded_m", "Index(step) * m", "wrong"),
    (FROM_MEMORY, "from_a[row + 8]", "from_a[row]", "wrong"),
    (FROM_MEMORY, "from_b[step]", "from_b[0]", "wrong"),
    (FROM_MEMORY, "Index(blockIdx.x) * padded_steps", "0", "wrong"),
    (FROM_MEMORY, "row + 8 < m ?", "true ?", "outside|wrong|reads"),
    (IN_RING, "b.bytes + scales.bytes", "b.bytes", "ever|wrong|before"),
    (IN_RING, "first_row, first_column, step", "0, 0, step", "wrong"),
    (IN_RING, "map_a, block, row, full", "map_a, 0, row, full", "wrong"),
    (IN_RING, "block / 4 * 4, full", "0, full", "wrong"),
    (IN_RING, "block / 4 * 4, full", "block, full", "multiple of 16"),
    (IN_RING, "from.b[i][block % 4]", "from.b[i][0]", "wrong"),
    (IN_RING, "block += direction;", "", "wrong"),
    (IN_RING, READ + WAIT, WAIT + READ, "wrong|before|ever"),
    (IN_RING, "row(consumer_row + acc", "row(acc", "wrong"),
    (IN_RING, "scales.a[fragment][i / 2 % 2]", "scales.a[fragment][0]", "wrong"),
    (TWO_SUMS, "(first + i) * 2 / run * run", "i * 2 / run * run", "wrong"),
    (
        TWO_SUMS,
        "if (last) next_scales = scales.read(next.stage);\n                wgmma",
        "if (last) next_scales = scales.read(at.stage);\n                wgmma",
        "wrong",
    ),
    (TWO_SUMS, "if (last) step_scales = next_scales;", "", "wrong"),
    (BETWEEN, "first_column % scale_block", "0", "wrong"),
    (BETWEEN, "Columns + scale_block - run", "Columns - run", "wrong|ever"),
    (BETWEEN, "offset + column % scale_block <", "column % scale_block <", "wrong"),
    (BETWEEN, "(tile, 0).column,", "(tile, 0).row,", "wrong"),
    (BACKWARDS, "origin.column, block, full", "origin.column, step, full", "wrong"),
    (BACKWARDS, "backwards ? steps - 1 : 0", "0", "wrong"),
    (BACKWARDS, "backwards ? -1 : 1", "1", "wrong"),
]


CONSUMERS = range(128, 384)


@pytest.mark.parametrize(("run", "right", "mistaken", "shows"), MISTAKES, ids=str)
def test_mistakes_show(
    tmp_path: Path, run: Run, right: str, mistaken: str, shows: str
) -> None:
    """Also where consumers are the last to come."""
    more = planted(tmp_path, FOLDER / f"{run[0]}.cu", right, mistaken)
    ways = [
        way | {"behind": behind} for behind in (range(0), CONSUMERS) for way in BOTH
    ]
    assert_shows(shows, partial(wrong, run, **more), ways)

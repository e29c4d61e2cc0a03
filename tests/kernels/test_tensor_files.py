"""The tensor-core ladder as files: results on the emulator, planted mistakes, and machine code.

Each is held against the kernel with parameters that makes the same rung (sweep tensor_files). The emulator does not
know what rung 1 compiles to: its machine code is that of wmma_naive.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout import catalog, every_sweep, facts_without_spills, rungs_of
from compiling import compiled_without_spills, opcodes
from covering import all_pairs
from emulator.hopper import ARCH
from emulator.launching import (
    LOADS,
    WAVEFRONTS,
    assert_shows,
    most_wavefronts,
    planted,
    wrong,
)
from ladder.model.kernel import Variant

FILES = rungs_of("gemm/warp_mma")
DTYPES = ("fp16", "bf16", "tf32")
EMULATED = [rung for rung in FILES if rung != "1"]
RINGS = ("5", "6", "7", "8", "9", "10", "11", "12")
"""Rungs with a parameter `stages`, filled by cp.async."""
SIZES = [(137, 144, 72), (1, 8, 8), (128, 128, 64)]
FEW_BLOCKS = {"13": {"clusters": 2}}
"""Fewer blocks than tiles."""


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    return catalog()[FILES[rung]].variant(params, dtype)


@pytest.mark.parametrize(
    ("rung", "dtype", "size", "loads", "beta"),
    all_pairs(EMULATED, DTYPES, SIZES, LOADS, [0.0, 0.5]),
)
def test_results_are_right_whenever_copies_land(
    rung: str, dtype: str, size: tuple[int, int, int], loads: str, beta: float
) -> None:
    more = FEW_BLOCKS.get(rung, {})
    assert wrong(variant(rung, dtype), size, beta, loads=loads, **more) == 0


@pytest.mark.parametrize("rung", EMULATED)
def test_k_of_0(rung: str) -> None:
    """The result is beta * C. Where beta is 0, C is not read: it holds NaN."""
    for beta in (0.0, 0.5):
        assert wrong(variant(rung, "bf16"), (130, 136, 0), beta) == 0, beta


@pytest.mark.parametrize(
    ("rung", "stages", "depth"), all_pairs(RINGS, [2, 3, 4, 5], [8, 32, 64, 96, 168])
)
def test_any_number_of_stages_is_right(rung: str, stages: int, depth: int) -> None:
    """With fewer tiles than stages, with as many, and with more."""
    for loads in LOADS:
        ring = variant(rung, "bf16", stages=stages)
        assert wrong(ring, (20, 24, depth), loads=loads) == 0, loads


@pytest.mark.parametrize("strip", [0, 2, 8])
def test_every_tile_is_computed_in_any_order(strip: int) -> None:
    for rung in ("6", "12"):
        assert wrong(variant(rung, "bf16", strip=strip), (300, 776, 16)) == 0, rung


def test_both_shapes_of_the_tuned_tile_are_right() -> None:
    for bm, bn in ((128, 128), (256, 128)):
        for dtype in DTYPES:
            tuned = variant("12", dtype, bm=bm, bn=bn)
            assert wrong(tuned, (260, 264, 72)) == 0, (dtype, bm, bn)


ONE_BARRIER = "        __syncthreads();  // the next stage is complete"
MISTAKES = [
    # Rung, what is changed, into what, and how it shows.
    ("2", "        __syncthreads();  // the tiles are complete\n", "", ""),
    ("2", "        __syncthreads();  // all warps have read them", "//", ""),
    ("4", "wait_for_copies<0>();\n        __sync", "__sync", ""),
    ("4", "        __syncthreads();  // this stage is complete", "//", ""),
    ("4", "        reading = writing;\n", "", ""),
    ("5", "wait_for_copies<Stages - 2>", "wait_for_copies<Stages - 1>", ""),
    ("5", ONE_BARRIER, "//", ""),
    ("5", "    __syncthreads();       // all warps", "//", ""),
    ("6", "Index(tile.row) * BM", "Index(tile.column) * BM", "wrong"),
    ("7", "Map::chunk_a(lane)", "0 * Map::chunk_a(lane)", "wrong"),
    ("9", "to_row < m && to_column < n", "to_row < m", ""),
    # Copies that are committed after the wait for them.
    ("10", "                commit_copies();\n                writing", "writing", ""),
    ("10", "__syncthreads();  // the next stage", "//", ""),
    ("11", "        __syncwarp();\n        store_rows", "store_rows", ""),
    ("11", "        __syncwarp();  // shared_c", "//", ""),
    ("12", "(step + 1) % 2);", "step % 2);", ""),
    ("13", "mbarrier_wait(stage.empty, at.parity ^ 1);", "", ""),
    ("13", "if (lane == 0) mbarrier_arrive(read);", "", "ever"),
    ("13", "        Ring::end(at, memory);", "//", "ever"),
]


@pytest.mark.parametrize(("rung", "right", "mistake", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, rung: str, right: str, mistake: str, shows: str
) -> None:
    """As a wrong result, or as what the emulator refuses: a race, an access outside, threads that wait for ever."""
    given = variant(rung, "bf16")
    more = planted(tmp_path, given.kernel.source, right, mistake)
    more |= FEW_BLOCKS.get(rung, {})
    is_wrong = partial(wrong, given, (137, 144, 320), **more)
    assert_shows(shows, is_wrong)


PADDED = "PaddedChunks<BK / chunk, 1>"
SWIZZLED = "XorChunks<BK / chunk>"


@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
@pytest.mark.parametrize(("rung", "layout"), [("7", PADDED), ("8", SWIZZLED)])
def test_padding_and_swizzling_keep_rows_out_of_each_others_banks(
    tmp_path: Path, rung: str, layout: str, dtype: str
) -> None:
    file = variant(rung, dtype)
    found = most_wavefronts(file, (128, 128, 64))
    assert len(found) == 2
    assert found.items() <= WAVEFRONTS.items()
    plain = "PaddedChunks<BK / chunk, 0>"
    more = planted(tmp_path, file.kernel.source, layout, plain)
    assert most_wavefronts(file, (128, 128, 64), **more)["ldmatrix"] > 4


# Machine code.

OPERANDS = (
    "hmma",
    "ldsm",
    "lds_32",
    "lds_64",
    "lds_128",
    "sts",
    "ldgsts",
    "ldg",
    "stg",
    "utmaldg",
)
"""Instructions that multiply, or move operands and results."""


def pairs() -> list[tuple[str, Variant, Variant]]:
    """Rungs with their files and the kernels with parameters that they are held against; of each dtype."""
    return [
        (entry.rung, entry.variant, entry.baseline.variant)
        for entry in every_sweep()["tensor_files"].entries
        if entry.baseline
    ]


def test_every_file_stands_in_the_sweep_in_each_type() -> None:
    timed = {(file.kernel.name, file.dtype) for _, file, _ in pairs()}
    assert timed == {(name, dtype) for name in FILES.values() for dtype in DTYPES}


def assert_alike(file: Variant, tunable: Variant) -> None:
    """As many instructions of each kind, and registers for as many blocks."""
    by_hand, by_parameters = map(facts_without_spills, (file, tunable))
    for name in (*OPERANDS, "blocks_per_sm"):
        assert by_hand[name] == by_parameters[name], (file.id, name)


def test_files_multiply_and_move_as_the_kernels_with_parameters_do() -> None:
    for _, file, tunable in pairs():
        assert_alike(file, tunable)


@pytest.mark.slow
def test_the_tuned_file_does_so_with_each_number_of_stages_and_swizzle() -> None:
    for tunable in every_sweep()["tensor_stages_swizzle"].variants:
        shared = ("bm", "bn", "stages", "strip")
        params = {name: tunable.params[name] for name in shared}
        assert_alike(variant("12", tunable.dtype, **params), tunable)


def test_the_first_and_the_last_file_are_the_kernels_they_are_held_against() -> None:
    for rung, file, tunable in pairs():
        if rung.startswith(("1 ", "13 ")):
            codes = [
                opcodes(cubin, ARCH)
                for cubin in compiled_without_spills([file, tunable])
            ]
            assert codes[0] == codes[1], (rung, file.dtype)

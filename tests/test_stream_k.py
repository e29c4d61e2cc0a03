"""Stream-K: the division of the work, results of the fp32 kernel on the CPU, and mistakes in the hand-over."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT
from emulator.hopper import INCLUDE, arguments_of, hold
from emulator.hopper_ptx import HopperMachine, parse_hopper
from emulator.ptx import Fault, Memory, compile_ptx
from ladder.catalogue.kernels import load_kernel

KERNEL = load_kernel(ROOT / "kernels" / "gemm" / "simt" / "gemm_stream_k.yaml")
TILE = {"bm": 32, "bn": 64, "tm": 4, "tn": 8, "stages": 3}

DIVISION = """#include "schedule/stream_k.cuh"
// Every step of every tile once, in parts that meet: whose beginning is left to the next block, if not whole.
__host__ __device__ constexpr bool divides(int tiles, int steps, int blocks) {
    const StreamK schedule(tiles, steps, blocks);
    int done = 0, longest = 0;
    for (int block = 0; block < blocks; ++block) {
        int left = 0, taken = 0, own = 0;
        for (auto work = schedule.begin(block); work.steps > 0; work = schedule.after(work, block)) {
            if (work.tile < 0 || work.tile >= tiles || work.first < 0 || work.first + work.steps > steps) return false;
            own += work.steps;
            left += !work.ends(steps);
            taken += !work.begins();
            if (!work.begins() && !work.ends(steps)) return false;  // three blocks have one tile
            if (!work.ends(steps)) {  // comes first, ahead of what waits, and the rest is the next block's last
                if (taken > 0 || block + 1 == blocks) return false;
                auto last = schedule.begin(block + 1);
                for (auto next = last; next.steps > 0; next = schedule.after(next, block + 1)) last = next;
                if (last.tile != work.tile || last.first != work.steps || !last.ends(steps)) return false;
            }
        }
        if (left > 1 || taken > 1) return false;
        done += own;
        longest = own > longest ? own : longest;
    }
    const int even = (tiles * steps + blocks - 1) / blocks;
    return done == tiles * steps && (tiles < blocks ? longest == steps : longest == even);
}"""


@pytest.mark.parametrize("tiles", [1, 3, 4, 5, 7, 8, 11, 13, 16, 29])
def test_each_step_is_one_blocks_and_shares_are_even(tiles: int) -> None:
    hold(DIVISION, *(f"divides({tiles}, {steps}, 4)" for steps in (1, 2, 3, 7, 16)))


def test_shares_of_the_sizes_that_are_measured() -> None:
    hold(
        DIVISION,
        "divides(512, 64, 132)",
        "divides(137, 33, 132)",
        "divides(264, 8, 132)",
        "divides(40, 9, 132)",
    )


def wrong(size: tuple[int, int, int], blocks: int, beta: float = 0.5, include: Path = INCLUDE) -> int:
    """How many elements of C = 0.75 * A @ B + beta * C are wrong."""
    (m, n, k), one = size, KERNEL.variant(TILE, "fp32", "NN")
    geometry = one.geometry({"m": m, "n": n, "k": k})
    program = parse_hopper(compile_ptx(KERNEL.source, one.entry, [include]), geometry.shared_bytes)
    rng, memory = np.random.default_rng(1), Memory()
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))
    held = c if beta else np.full_like(c, np.nan)
    given = {"a": a, "b": b, "c": held}
    stored = {
        name: (memory.buffer(0, matrix.reshape(-1).view(np.uint32), writable=name == "c"), matrix)
        for name, matrix in given.items()
    }
    words = slice(stored["c"][0] // 4, stored["c"][0] // 4 + m * n)
    memory.readable[words] = 0
    scalars = {"m": m, "n": n, "k": k, "alpha": 0.75, "beta": beta}
    arguments, _, (flags,) = arguments_of(one, memory, stored, scalars)
    HopperMachine(program, memory, geometry.block[0], (blocks, 1), 1, arguments, {}, "early").run()
    assert not memory.words[flags].any()
    found = memory.words[words].view(np.float32).reshape(m, n)
    return int((found != 0.75 * (a @ b) + (beta * c if beta else 0)).sum())


@pytest.mark.parametrize("blocks", [1, 4, 5, 16])
@pytest.mark.parametrize("size", [(96, 192, 40), (65, 130, 33)])
def test_results_are_right(size: tuple[int, int, int], blocks: int) -> None:
    """Nine tiles of five steps, aligned or not: whole ones alone, with five or nine that are cut, without any."""
    assert wrong(size, blocks) == 0


def test_c_is_not_read_where_beta_is_0() -> None:
    assert wrong((96, 192, 40), 4, beta=0.0) == 0


def test_where_k_is_0_the_result_is_beta_times_c() -> None:
    assert wrong((65, 130, 0), 4) == 0


MISTAKES = [
    ("if (thread == 0) take_flag(flag);", "", "zero"),
    ("if (thread == 0) raise_flag(flag);", "", "ever"),
    ('asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(flag) : "memory");', "", "zero"),
]


@pytest.mark.parametrize(("text", "instead", "shows"), MISTAKES)
def test_mistakes_in_the_hand_over_show(tmp_path: Path, text: str, instead: str, shows: str) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    header = include / "epilogue" / "partial_sums.cuh"
    changed = header.read_text().replace(text, instead)
    assert changed != header.read_text()
    header.write_text(changed)
    try:
        found = "wrong" if wrong((96, 192, 40), 4, include=include) else ""
    except Fault as fault:
        found = str(fault)
    except AssertionError:
        found = "zero"
    assert shows in found

"""Stream-K: the division of the work, results of the kernels for CUDA cores and mma.sync on the CPU, and mistakes."""

from __future__ import annotations

import functools
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from compiling import compile_ptx
from conftest import ROOT, edit
from covering import all_pairs
from emulator.hopper import INCLUDE, arguments_of, hold, wrong_in_fp32
from emulator.hopper_ptx import HopperMachine, parse_hopper
from emulator.ptx import Array, Fault, Memory
from emulator.tensor_ptx import from_bits, to_bits
from ladder.catalogue.kernels import load_kernel
from ladder.model.kernel import Variant

pytestmark = pytest.mark.slow

KERNEL = load_kernel(ROOT / "kernels" / "gemm" / "simt" / "gemm_stream_k.yaml")
TILE = {"bm": 32, "bn": 64, "tm": 4, "tn": 8, "stages": 3}

DIVISION = """#include "schedule/stream_k.cuh"
// Every step of every tile once, in parts that meet: whose beginning is left to the next block, if not whole.
__host__ __device__ constexpr bool divides(int tiles, int steps, int blocks) {
    const StreamK schedule(tiles, steps, blocks);
    int done = 0, longest = 0;
    for (int block = 0; block < blocks; ++block) {
        int left = 0, taken = 0, own = 0;
        for (auto work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
            if (work.tile < 0 || work.tile >= tiles || work.first < 0 || work.first + work.steps > steps) return false;
            own += work.steps;
            left += !work.has_last_step(steps);
            taken += !work.has_first_step();
            if (!work.has_first_step() && !work.has_last_step(steps)) return false;  // three blocks have one tile
            if (!work.has_last_step(steps)) {  // comes first, ahead of what waits; the rest is the next block's last
                if (taken > 0 || block + 1 == blocks) return false;
                auto last = schedule.first(block + 1);
                for (auto next = last; next.steps > 0; next = schedule.after(next, block + 1)) last = next;
                if (last.tile != work.tile || last.first != work.steps || !last.has_last_step(steps)) return false;
            }
        }
        if (left > 1 || taken > 1) return false;
        done += own;
        longest = own > longest ? own : longest;
    }
    const int even = (tiles * steps + blocks - 1) / blocks;
    return done == tiles * steps && (tiles < blocks ? longest == steps : longest == even);
}
// Tiles that two blocks have parts of.
__host__ __device__ constexpr int cut(int tiles, int steps, int blocks) {
    const StreamK schedule(tiles, steps, blocks);
    int found = 0;
    for (int block = 0; block < blocks; ++block) {
        for (auto work = schedule.first(block); work.steps > 0; work = schedule.after(work, block)) {
            found += !work.has_last_step(steps);
        }
    }
    return found;
}"""


@pytest.mark.parametrize("tiles", [1, 3, 5, 8, 29])
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


def test_the_head_of_the_hopper_file_counts_tiles_and_steps_at_4096() -> None:
    head = (
        (ROOT / "kernels" / "gemm" / "hopper" / "8_stream_k.cu")
        .read_text()
        .replace("\n// ", " ")
    )
    ((rest, steps),) = re.findall(r"other (\d+) tiles have (\d+) steps of K each", head)
    ((blocks, share, longer),) = re.findall(
        r"cut into (\d+) shares of (\d+) or (\d+)", head
    )
    (cut,) = re.findall(r"each of the (\d+) tiles that are cut", head)
    schedule = f"StreamK(512, {steps}, {blocks})"
    hold(
        DIVISION,
        f"{schedule}.whole == 512 - {rest}",
        f"{schedule}.share == {share} && {schedule}.longer > 0 && {share} + 1 == {longer}",
        f"cut(512, {steps}, {blocks}) == {cut}",
    )


def wrong(
    size: tuple[int, int, int], blocks: int, beta: float = 0.5, include: Path = INCLUDE
) -> int:
    """How many elements of C = 0.75 * A @ B + beta * C are wrong."""
    return wrong_in_fp32(
        KERNEL.variant(TILE, "fp32", "NN"), size, blocks, beta, include
    )


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
    (
        'asm volatile("st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(flag) : "memory");',
        "",
        "zero",
    ),
]


@pytest.mark.parametrize(("text", "instead", "shows"), MISTAKES)
def test_mistakes_in_the_hand_over_show(
    tmp_path: Path, text: str, instead: str, shows: str
) -> None:
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


# On mma.sync, and the same kernel without stream-K.


WARP_MMA = ROOT / "kernels" / "gemm" / "warp_mma"
SMALL: dict[str, dict[str, int | str]] = {
    "half": {"bm": 64, "bn": 128, "wm": 32, "wn": 64, "stages": 2, "strip": 2},
    "tf32": {"bm": 64, "bn": 64, "wm": 32, "wn": 32, "stages": 3, "strip": 0},
}
ELEMENTS = {"bf16": "bf16", "fp16": "f16"}
STREAM_K, TMA = "mma_stream_k", "mma_tma"
ODD = {"half": (150, 296, 296), "tf32": (150, 148, 148)}
"""M, N and K of nine tiles of five steps; the last ones are parts."""


def mma(name: str, dtype: str, **params: int | str) -> Variant:
    given = SMALL["tf32" if dtype == "tf32" else "half"] | params
    return load_kernel(WARP_MMA / f"{name}.yaml").variant(given, dtype)


def bits_of(values: Array, dtype: str) -> Array:
    return (
        to_bits(values, ELEMENTS[dtype])
        if dtype in ELEMENTS
        else values.view(np.uint32)
    )


def values_of(bits: Array, dtype: str) -> Array:
    return (
        from_bits(bits, ELEMENTS[dtype]) if dtype in ELEMENTS else bits.view(np.float32)
    )


@functools.cache
def ptx_of(source: Path, entry: str, include: Path, text: str) -> str:
    return compile_ptx(source, entry, [include], text)


def run_mma(
    one: Variant,
    inputs: dict[str, Array],
    blocks: int,
    loads: str,
    beta: float,
    include: Path,
    text: str,
) -> Array:
    """0.75 * A @ B + beta * C as the kernel computes it. `text` stands in for its source."""
    (m, k), n, source = inputs["a"].shape, inputs["b"].shape[1], one.kernel.source
    geometry = one.geometry({"m": m, "n": n, "k": max(k, 1)})
    ptx = ptx_of(source, one.entry, include, text or source.read_text(encoding="utf-8"))
    memory, held = Memory(), dict[str, tuple[int, Array]]()
    for name, matrix in inputs.items():
        bits = bits_of(matrix, one.dtype)
        held[name] = (
            memory.buffer(0, bits.reshape(-1).view(np.uint32), writable=name == "c"),
            bits,
        )
    place, bits = held["c"]
    words = slice(place // 4, (place + bits.nbytes) // 4)
    memory.readable[words] = 0
    scalars = {"m": m, "n": n, "k": k, "alpha": 0.75, "beta": beta}
    arguments, maps, flags = arguments_of(one, memory, held, scalars)
    program = parse_hopper(ptx, geometry.shared_bytes)
    HopperMachine(
        program, memory, geometry.block[0], (blocks, 1), 1, arguments, maps, loads
    ).run()
    assert not any(memory.words[own].any() for own in flags), "flags are zero again"
    return values_of(memory.words[words].view(bits.dtype), one.dtype).reshape(m, n)


def wrong_mma(
    one: Variant,
    size: tuple[int, int, int],
    blocks: int,
    loads: str = "early",
    beta: float = 0.5,
    include: Path = INCLUDE,
    text: str = "",
) -> int:
    """How many elements of C = 0.75 * A @ B + beta * C are wrong, with inputs whose sums are exact."""
    m, n, k = size
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.integers(-4, 5, shape).astype(np.float32)
        for shape in ((m, k), (k, n), (m, n))
    )
    held = c if beta else np.full_like(c, np.nan)
    found = run_mma(
        one, {"a": a, "b": b, "c": held}, blocks, loads, beta, include, text
    )
    exact = (0.75 * (a @ b) + (beta * c if beta else 0)).astype(np.float32)
    return int((found != values_of(bits_of(exact, one.dtype), one.dtype)).sum())


@pytest.mark.parametrize(
    ("dtype", "blocks", "loads"),
    all_pairs(["bf16", "fp16", "tf32"], [1, 4, 7, 12], ["early", "late"]),
)
def test_mma_is_right(dtype: str, blocks: int, loads: str) -> None:
    """Of nine tiles four blocks cut five, seven all; one has all to itself, and of twelve three have none."""
    size = ODD["tf32" if dtype == "tf32" else "half"]
    assert wrong_mma(mma(STREAM_K, dtype), size, blocks, loads) == 0


@pytest.mark.parametrize("loads", ["early", "late"])
@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
def test_mma_without_stream_k_is_right(dtype: str, loads: str) -> None:
    assert (
        wrong_mma(mma(TMA, dtype), ODD["tf32" if dtype == "tf32" else "half"], 4, loads)
        == 0
    )


@pytest.mark.parametrize("loads", ["early", "late"])
@pytest.mark.parametrize("name", [STREAM_K, TMA])
def test_warp_tiles_of_two_buffers_are_right(name: str, loads: str) -> None:
    """Two parts of 32 rows, or a line of two boxes: three tiles of three steps for two blocks."""
    for warp in ({"bn": 128, "wm": 64, "wn": 64}, {"bn": 256, "wm": 32, "wn": 128}):
        one = mma(
            name, "bf16", **{"bm": 128 if warp["wm"] == 64 else 64, "stages": 3, **warp}
        )
        tile = (int(one.params["bm"]), int(one.params["bn"]))
        assert wrong_mma(one, (2 * tile[0] + 3, tile[1], 136), 2, loads) == 0


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("name", [STREAM_K, TMA])
def test_mma_with_k_of_0_and_without_c(name: str, beta: float) -> None:
    """Where K is 0 the result is beta * C. Where beta is 0, C is not read: it holds NaN."""
    for k in (0, 200):
        assert wrong_mma(mma(name, "bf16"), (70, 136, k), 3, beta=beta) == 0


def test_where_k_is_0_tiles_are_not_cut_and_all_are_done() -> None:
    assert wrong_mma(mma(STREAM_K, "bf16"), (150, 296, 0), 4) == 0


RING, SUMS, STORE = (
    "schedule/mma_ring.cuh",
    "epilogue/partial_sums.cuh",
    "epilogue/warp_tma_store.cuh",
)
KERNEL_TEXT = ""
"""Stands for the kernel itself among the files of mistakes."""


@pytest.mark.parametrize(
    ("file", "text", "instead", "loads", "shows"),
    [
        (SUMS, "if (thread == 0) take_flag(flag);", "", "early", "zero"),
        (SUMS, "if (thread == 0) raise_flag(flag);", "", "early", "ever"),
        (KERNEL_TEXT, "if (!work.has_first_step()) {", "if (false) {", "early", "zero"),
        (
            KERNEL_TEXT,
            "(work.first + work.steps) * Ring::depth",
            "work.steps * Ring::depth",
            "early",
            "ever",
        ),
        (KERNEL_TEXT, "Ring::end(at, memory);", "", "early", "ever"),
        (RING, "mbarrier_wait(one.empty, at.parity ^ 1);", "", "early", "ever"),
        (
            RING,
            "at.advance();\n                    mbarrier_wait(at.in(memory).full, at.parity);",
            "at.advance();",
            "late",
            "more arrivals",
        ),
        (
            STORE,
            "pending = WM / rows % buffers == 0 ? buffers - 1 : 0",
            "pending = buffers - 1",
            "early",
            "wrong",
        ),
    ],
)
def test_mistakes_on_mma_show(
    tmp_path: Path, file: str, text: str, instead: str, loads: str, shows: str
) -> None:
    one, include = mma(STREAM_K, "bf16"), INCLUDE
    source = one.kernel.source.read_text(encoding="utf-8")
    if file == KERNEL_TEXT:
        assert source.count(text) == 1
        source = source.replace(text, instead)
    else:
        include = tmp_path / "include"
        shutil.copytree(INCLUDE, include)
        edit(include / file, text, instead)
    try:
        found = (
            "wrong"
            if wrong_mma(one, ODD["half"], 4, loads, include=include, text=source)
            else ""
        )
    except Fault as fault:
        found = str(fault)
    except AssertionError:
        found = "zero"
    assert shows in found

"""FP32 on tensor cores (3xTF32): the arithmetic in NumPy, the kernel on the CPU, and its machine code."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from compiling import compile_ptx
from emulator.hopper import HOPPER, INCLUDE, arguments_of, variant
from emulator.hopper_ptx import HopperMachine, as_tf32, parse_hopper, towards_zero
from emulator.ptx import Array, Fault, Memory
from ladder.problems.gemm.bounds import accumulation_bound, rms_bound

pytestmark = pytest.mark.slow

NAME = "hopper_3xtf32"
HEADER = "mma/three_products.cuh"
ALPHA = 0.75
VARIANTS: list[dict[str, int | str]] = [
    {},
    {"bn": 176, "stages": 3, "buffers": 1},
    {"bn": 192, "depth": 16, "stages": 3, "buffers": 1},
    {"bm": 192, "depth": 16, "stages": 3},
]


def rounded(x: Array) -> Array:
    """TF32, rounded to nearest, ties away from zero."""
    return as_tf32(np.ascontiguousarray(x).view(np.uint32) + np.uint32(0x1000))


def cut(x: Array) -> Array:
    return as_tf32(np.ascontiguousarray(x).view(np.uint32))


def drawn(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> Array:
    return rng.uniform(-1 if kind == "uniform" else 0, 1, shape).astype(np.float32)


def instruction(total: Array, a: Array, b: Array) -> Array:
    """What one wgmma adds, pessimistically: terms are cut one bit below fp32's last, then their sum is."""
    products = a.astype(np.float64)[:, None] * b.astype(np.float64)[None]
    terms = np.concatenate([total.astype(np.float64)[..., None], products], axis=-1)
    largest = np.abs(terms).max(axis=-1, keepdims=True)
    unit = 2.0 ** (np.floor(np.log2(np.where(largest > 0, largest, 1))) - 24)
    return towards_zero((np.trunc(terms / unit) * unit).sum(axis=-1))


def modelled(a: Array, b: Array, depth: int) -> Array:
    """A @ B.T as the kernel computes it."""
    high_a, high_b = rounded(a), cut(b)
    low_a, low_b = rounded(a - high_a), rounded(b - high_b)
    result = np.zeros((len(a), len(b)), np.float32)
    for begin in range(0, a.shape[1], depth):
        part = np.zeros_like(result)
        for left, right in ((low_a, high_b), (high_a, low_b), (high_a, high_b)):
            for k in range(begin, min(begin + depth, a.shape[1]), 8):
                part = instruction(part, left[:, k : k + 8], right[:, k : k + 8])
        result += part
    return result


def worst(found: Array, a: Array, b: Array) -> float:
    """The largest error against fp64, as a share of |A||B|."""
    wide = [one.astype(np.float64) for one in (a, b)]
    error = np.abs(found - wide[0] @ wide[1].T)
    return float((error / (np.abs(wide[0]) @ np.abs(wide[1]).T)).max())


@pytest.mark.parametrize("kind", ["uniform", "positive"])
@pytest.mark.parametrize(("k", "extent"), [(8, 400), (64, 120), (4096, 16), (16384, 8)])
@pytest.mark.parametrize("depth", [16, 32])
def test_the_arithmetic_keeps_the_bound_of_fp32(
    kind: str, k: int, extent: int, depth: int
) -> None:
    rng = np.random.default_rng(k)
    a, b = (drawn(rng, kind, (extent, k)) for _ in range(2))
    found = modelled(a, b, depth)
    assert worst(found, a, b) < 0.6 * accumulation_bound("fp32", k, kind)
    wide = [one.astype(np.float64) for one in (a, b)]
    shares = (found - wide[0] @ wide[1].T) / (np.abs(wide[0]) @ np.abs(wide[1]).T)
    assert np.sqrt(np.mean(shares**2)) < 0.9 * rms_bound("fp32", k, kind, found.size)


def test_sums_of_one_sign_need_adds_outside_of_the_tensor_cores() -> None:
    rng, k = np.random.default_rng(1), 16384
    a, b = (drawn(rng, "positive", (8, k)) for _ in range(2))
    assert worst(modelled(a, b, k), a, b) > accumulation_bound("fp32", k, "positive")


def run(
    params: dict[str, int | str],
    loads: str,
    size: tuple[int, int, int],
    blocks: int = 0,
    beta: float = 0.5,
    include: Path = INCLUDE,
    text: str | None = None,
) -> float:
    """The worst error of the kernel's C as a share of the bound. `blocks` start where it is not 0."""
    one, (m, n, k) = variant(NAME, "fp32", "TN", **params), size
    geometry = one.geometry({"m": m, "n": n, "k": max(k, 1)})
    program = parse_hopper(
        compile_ptx(one.kernel.source, one.entry, [include], text),
        geometry.shared_bytes,
    )
    rng, memory = np.random.default_rng(1), Memory()
    a, b, c = (drawn(rng, "uniform", shape) for shape in ((m, k), (n, k), (m, n)))
    stored = {"a": a, "b": b, "c": c if beta else np.full_like(c, np.nan)}
    held = {
        name: (
            memory.buffer(0, matrix.ravel().view(np.uint32), writable=name == "c"),
            matrix,
        )
        for name, matrix in stored.items()
    }
    words = slice(held["c"][0] // 4, held["c"][0] // 4 + m * n)
    memory.readable[words] = 0
    scalars = {"m": m, "n": n, "k": k, "alpha": ALPHA, "beta": beta}
    arguments, maps, _ = arguments_of(one, memory, held, scalars)
    grid = (blocks, 1) if blocks else geometry.grid[:2]
    HopperMachine(
        program, memory, geometry.block[0], grid, 1, arguments, maps, loads
    ).run()
    found = memory.words[words].view(np.float32).reshape(m, n).astype(np.float64)
    a, b, c = (one.astype(np.float64) for one in (a, b, c))
    wanted, scale = ALPHA * (a @ b.T), ALPHA * (np.abs(a) @ np.abs(b).T)
    if beta:
        wanted, scale = wanted + beta * c, scale + beta * np.abs(c)
    error = np.abs(found - wanted)
    assert not k or error.any(), "fp32 rounds"
    bound = accumulation_bound("fp32", k) * scale
    share = np.where(
        error == 0, 0, error / np.where(bound > 0, bound, np.finfo(float).tiny)
    )
    return float(np.where(np.isnan(share), np.inf, share).max())


@pytest.mark.parametrize("loads", ["early", "late"])
@pytest.mark.parametrize("params", VARIANTS)
def test_results_are_right(params: dict[str, int | str], loads: str) -> None:
    """Tiles that are cut, more tiles than blocks, more steps than stages, and a last step of 12."""
    assert run(params, loads, (200, 212, 140), blocks=2) < 1


@pytest.mark.parametrize("size", [(1, 264, 136), (257, 8, 8), (65, 72, 12)])
def test_edges_are_right(size: tuple[int, int, int]) -> None:
    """One row, few columns, K below a step; more blocks than tiles; C that holds NaN."""
    assert run({}, "early", size, blocks=4, beta=0.0) < 1


@pytest.mark.parametrize("beta", [0.5, 0.0])
def test_where_k_is_0_the_result_is_beta_times_c(beta: float) -> None:
    assert run({}, "early", (65, 72, 0), beta=beta) == 0


MISTAKES = [
    # What is changed, and how it shows: an error over the bound, or what the machine says.
    ("mbarrier_wait(ring.full[at.stage], at.parity);  //", "//", "late", "ever"),
    ("ring.wait_until_empty(at);", "", "early", "wrong|arrivals|ever"),
    (
        "if (begin == 0) mbarrier_wait(shared.split[at.stage], at.parity);",
        "",
        "early",
        "wrong",
    ),
    (
        "wgmma_wait<0>();\n",
        "\n",
        "early",
        "wrong|before it is written|before its wgmma",
    ),
    ("product == 1 ? first_low : first_b", "first_b", "late", "wrong"),
    ("if (next_turn == turn) warpgroup_arrive<2>(turn);", "", "early", "ever"),
    ("ring.init(consumers * 4);", "ring.init(4);", "early", "wrong|arrivals|ever"),
    (
        "if (thread == 0) wait_for_stores();",
        "",
        "early",
        "before its wgmma or its stores",
    ),
]


@pytest.mark.parametrize(("text", "instead", "loads", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, text: str, instead: str, loads: str, shows: str
) -> None:
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    header, source = include / HEADER, HOPPER / f"{NAME}.cu"
    before = {path: path.read_text() for path in (header, source)}
    assert sum(one.count(text) for one in before.values()) == 1
    after = {path: one.replace(text, instead) for path, one in before.items()}
    header.write_text(after[header])
    try:
        share = run(
            {"depth": 16, "stages": 2},
            loads,
            (200, 212, 140),
            2,
            include=include,
            text=after[source],
        )
        found = "wrong" if share > 1 else ""
    except Fault as fault:
        found = str(fault)
    assert any(word in found for word in shows.split("|")), found

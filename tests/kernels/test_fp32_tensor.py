"""FP32 on tensor cores (3xTF32): the arithmetic in NumPy, and the kernel on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.formats import from_bits, towards_zero
from emulator.hopper import HOPPER, variant
from emulator.launching import ALPHA, LOADS, assert_shows, planted, product, shapes_of
from emulator.ptx import Array
from ladder.problems.gemm.bounds import accumulation_bound, rms_bound

pytestmark = pytest.mark.slow

VARIANTS: list[dict[str, Any]] = [
    {},
    {"bn": 176, "stages": 3, "buffers": 1},
    {"bn": 192, "depth": 16, "stages": 3, "buffers": 1},
    {"bm": 192, "depth": 16, "stages": 3},
]


def rounded(x: Array) -> Array:
    """TF32, rounded to nearest, ties away from zero."""
    return from_bits(
        np.ascontiguousarray(x).view(np.uint32) + np.uint32(0x1000), "tf32"
    )


def cut(x: Array) -> Array:
    return from_bits(np.ascontiguousarray(x).view(np.uint32), "tf32")


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
    high_a = rounded(a)
    high_b = cut(b)
    low_a = rounded(a - high_a)
    low_b = rounded(b - high_b)
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
    rng = np.random.default_rng(1)
    k = 16384
    a, b = (drawn(rng, "positive", (8, k)) for _ in range(2))
    assert worst(modelled(a, b, k), a, b) > accumulation_bound("fp32", k, "positive")


def error_of(
    params: dict[str, Any], size: tuple[int, int, int], beta: float = 0.5, **more: Any
) -> float:
    """The worst error of the kernel's C as a share of the bound."""
    rng = np.random.default_rng(1)
    a, b, c = (drawn(rng, "uniform", shape) for shape in shapes_of(size))
    one = variant("hopper_3xtf32", "fp32", "TN", **params)
    made, _ = product(one, (a, b, c), beta, **more)
    a, b, c = (matrix.astype(np.float64) for matrix in (a, b, c))
    right = ALPHA * (a @ b) + beta * c
    scale = ALPHA * (np.abs(a) @ np.abs(b)) + beta * np.abs(c)
    error = np.abs(made - right)
    bound = accumulation_bound("fp32", max(size[2], 1)) * scale
    with np.errstate(all="ignore"):
        share = np.where(error == 0, 0, error / bound)
    return float(np.nan_to_num(share, nan=np.inf).max())


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("params", VARIANTS)
def test_results_are_right(params: dict[str, Any], loads: str) -> None:
    """Tiles that are cut, more tiles than blocks, more steps than stages, and a last step of 12."""
    error = error_of(params, (200, 212, 140), loads=loads, clusters=2)
    assert 0 < error < 1, "fp32 rounds"


@pytest.mark.parametrize("size", [(1, 264, 136), (257, 8, 8), (65, 72, 12)])
def test_edges_are_right(size: tuple[int, int, int]) -> None:
    """One row, few columns, K below a step; more blocks than tiles; C that holds NaN."""
    assert error_of({}, size, beta=0.0, loads="early", clusters=4) < 1


@pytest.mark.parametrize("beta", [0.5, 0.0])
def test_where_k_is_0_the_result_is_beta_times_c(beta: float) -> None:
    assert error_of({}, (65, 72, 0), beta=beta) == 0


MISTAKES = [
    # What is changed, and how it shows: an error over the bound, or what the machine says.
    ("mbarrier_wait(ring.full[at.stage], at.parity);  //", "//", "ever"),
    ("ring.wait_until_empty(at);", "", "wrong|arrivals|ever"),
    (
        "if (begin == 0) mbarrier_wait(shared.split[at.stage], at.parity);",
        "",
        "wrong",
    ),
    (
        "wgmma_wait<0>();\n",
        "\n",
        "wrong|before it is written|before its wgmma",
    ),
    ("product == 1 ? first_low : first_b", "first_b", "wrong"),
    ("if (next_turn == turn) warpgroup_arrive<2>(turn);", "", "ever"),
    ("ring.init(consumers * 4);", "ring.init(4);", "wrong|arrivals|ever"),
    (
        "if (thread == 0) wait_for_stores();",
        "",
        "before its wgmma or its stores",
    ),
]


@pytest.mark.parametrize(("right", "mistaken", "shows"), MISTAKES)
def test_mistakes_show(tmp_path: Path, right: str, mistaken: str, shows: str) -> None:
    source = HOPPER / "hopper_3xtf32.cu"
    more = planted(tmp_path, source, right, mistaken)
    params = {"depth": 16, "stages": 2}

    def is_wrong(loads: str) -> bool:
        return error_of(params, (200, 212, 140), loads=loads, clusters=2, **more) > 1

    assert_shows(shows, is_wrong)

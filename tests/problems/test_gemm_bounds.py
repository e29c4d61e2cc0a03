"""Bounds of a GEMM: right sums lie within all of them, sums of fewer bits do not, whatever K is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from emulator.inputs import drawn, value
from emulator.ptx import Array
from ladder.catalogue.kernels import load_kernel
from ladder.problems.gemm import PROBLEM, input_dtype
from ladder.problems.gemm.bounds import (
    LONGEST_K,
    accumulation_bound,
    chance_factor,
    rms_bound,
    row_tolerance,
    subnormal_bound,
)
from problems.test_mutations import accumulated, errors, narrowed

SIDE = 48
DEPTHS = [8, 64, 256, 1024, 4096, 16384]


def operands(
    k: int, kind: str = "uniform", side: int = SIDE, dtype: str = "fp32"
) -> tuple[Array, Array]:
    """A (side x k) and B (k x side) in fp64, as the harness draws them."""
    element = input_dtype(dtype)
    a, b = (value(drawn(element, side * k, key, kind), element) for key in (1, 2))
    return a.reshape(side, k), b.reshape(side, k).T


def shares(c: Array, a: Array, b: Array) -> tuple[float, float]:
    """Root mean square and maximum of the errors over |A||B|."""
    found = errors(c, a, b)
    return float(np.sqrt(np.mean(found**2))), float(found.max())


def halves(x: Array) -> Array:
    """Numbers rounded to fp16, also where these are subnormal."""
    return x.astype(np.float16).astype(np.float64)


def three_products(a: Array, b: Array, bits: int) -> Array:
    """High times high and both mixed products of two-part numbers, with exact sums: the most favourable to them."""
    high, other_high = narrowed(a, bits), narrowed(b, bits)
    low, other_low = narrowed(a - high, bits), narrowed(b - other_high, bits)
    return high @ other_high + low @ other_high + high @ other_low


@pytest.mark.parametrize("kind", ["uniform", "wide"])
@pytest.mark.parametrize("k", DEPTHS)
def test_fp32_sums_in_the_worst_order_are_fp32(k: int, kind: str) -> None:
    """One by one: what errs most."""
    a, b = operands(k, kind)
    rms, worst = shares(accumulated("fp32", a, b), a, b)
    assert rms < 0.9 * rms_bound("fp32", k, kind, SIDE**2)
    assert worst < accumulation_bound("fp32", k, kind)


@pytest.mark.parametrize("k", DEPTHS)
def test_three_tf32_products_are_fp32_and_three_bf16_products_or_17_bits_are_not(
    k: int,
) -> None:
    """Of sixteen bits one kind of inputs at least shows that they are not 24, also for a kernel with exact sums."""
    for kind in ("uniform", "wide"):
        a, b = operands(k, kind)
        right, _ = shares(three_products(a, b, 11), a, b)
        wrong, worst = shares(three_products(a, b, 8), a, b)
        seventeen, _ = shares(narrowed(a, 17) @ narrowed(b, 17), a, b)
        allowed = rms_bound("fp32", k, kind, SIDE**2)
        assert right < 0.6 * allowed
        assert min(wrong, seventeen) > allowed, kind
    if k >= 2048:
        assert worst < accumulation_bound("fp32", k, "wide"), (
            "the largest element alone says nothing"
        )


@pytest.mark.parametrize("k", [1024, 4096, 16384])
def test_products_of_fp8_and_left_out_products_are_no_sums_of_fp16(k: int) -> None:
    """Sums that are exact otherwise; honest ones round the sum to fp16 at each product."""
    side = 32
    a, b = map(halves, operands(k, side=side))
    total = accumulated("fp16_acc16", a, b)
    allowed = rms_bound("fp16_acc16", k, "uniform", side**2)
    assert shares(total, a, b)[0] < 0.85 * allowed
    narrow = [narrowed(x, 4, -6) for x in (a, b)]
    left = {128: 4096, 32: 16384, 8: 1024}
    kept = [k - k // part for part, least in left.items() if k >= least]
    products = [narrow[0] @ narrow[1], *(a[:, :n] @ b[:n] for n in kept)]
    for c in products:
        assert shares(c.astype(np.float16), a, b)[0] > allowed


@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize("dtype", ["tf32", "bf16", "fp8"])
def test_a_rows_errors_lie_within_its_tolerance(dtype: str, k: int) -> None:
    a, b = operands(k, side=16)
    total = accumulated(dtype, a, b)
    error = total - a @ b
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)[None, :]
    of_rows = np.sqrt((error**2).sum(1) / (norms**2).sum(1))
    assert of_rows.max() < 0.85 * row_tolerance(dtype, k)
    share = shares(total, a, b)[1] / accumulation_bound(dtype, k)
    assert (1 / 20 if dtype == "fp8" else 0) < share < 1 / 3


def test_a_row_is_wrong_by_less_than_a_tile_of_it() -> None:
    """Over the spread of a row's sum: 128 elements that hold 0 add 11 spreads of an element, over sqrt(N)."""
    for dtype in PROBLEM.dtypes:
        for k in (512, 1024, 4096):
            spread = math.sqrt(k) / 3
            tolerance = chance_factor(k) * row_tolerance(dtype, k) * k / 3 / spread
            assert tolerance * math.sqrt(k) < math.sqrt(128), (dtype, k)


# Long K: errors as a share of C, which sums of more products must not overtake.

LOST = 64
"""The last of so many parts of K is left out."""


def of_all(c: Array, a: Array, b: Array, dtype: str, elements: int = 2**20) -> float:
    """The root mean square of the errors of C over its bound where C has so many elements."""
    k = a.shape[1]
    rms, _ = shares(c, a, b)
    return rms / rms_bound(dtype, k, "uniform", elements)


@pytest.mark.parametrize(
    ("dtype", "k", "together", "bits", "to_integer"),
    [
        ("fp16_acc16", 2**15, 1, 11, np.rint),
        ("fp16_acc16", 2**16, 8, 11, np.rint),
        ("tf32", 2**18, 4, 24, np.trunc),
        ("fp16", 2**17, 8, 24, np.trunc),
        ("bf16", 2**18, 8, 24, np.trunc),
        ("fp8", 2**15, 32, 14, np.trunc),
    ],
)
def test_long_sums_of_instructions_are_right(
    dtype: str, k: int, together: int, bits: int, to_integer: Any
) -> None:
    """Where the sum so far is cut or rounded after each instruction of so many products."""
    a, b = operands(k, side=12, dtype=dtype)
    total = np.zeros((12, 12))
    for at in range(0, k, together):
        products = a[:, at : at + together] @ b[at : at + together]
        total = narrowed(total + products, bits, to_integer=to_integer)
    assert of_all(total, a, b, dtype) < 0.95
    assert shares(total, a, b)[1] < 0.5 * accumulation_bound(dtype, k)


@pytest.mark.parametrize(
    ("dtype", "k", "bits"),
    [
        ("tf32", 2**18, 8),
        ("fp16", 2**17, 8),
        ("fp16_acc16", 2**15, 4),
        ("fp16_acc16", 2**16, 4),
        ("bf16", 2**20, 4),
    ],
)
def test_long_sums_of_products_of_fewer_bits_are_wrong(
    dtype: str, k: int, bits: int
) -> None:
    """Though the sums are exact: 8 bits are bf16's, 4 those of e4m3."""
    a, b = operands(k, side=12, dtype=dtype)
    narrow = [narrowed(x, bits) for x in (a, b)]
    assert of_all(narrow[0] @ narrow[1], a, b, dtype, 256**2) > 1.05


@pytest.mark.parametrize("k", [2**14, 2**16, 2**18, 2**20])
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_no_bound_overtakes_the_answer(dtype: str, k: int) -> None:
    """Zeros are wrong in each element, and a split of K without its last part by all of them."""
    if PROBLEM.unsupported({"m": 1, "n": 1, "k": k}, dtype):
        assert k > LONGEST_K[dtype]
        return
    a, b = operands(k, side=8, dtype=dtype)
    _, largest = shares(np.zeros((8, 8)), a, b)
    for kind in ("uniform", "wide"):
        assert largest > accumulation_bound(dtype, k, kind)
    assert accumulation_bound(dtype, k, "positive") < 1
    kept = k - k // LOST
    assert of_all(a[:, :kept] @ b[:kept], a, b, dtype) > 1.5


def test_a_size_that_no_check_can_judge_says_which_k_is_the_longest() -> None:
    size = {"m": 64, "n": 64, "k": 2**16}
    assert PROBLEM.unsupported(size, "fp16_acc16") is None
    reason = PROBLEM.unsupported(size | {"k": 2**16 + 1}, "fp16_acc16")
    assert reason is not None
    assert "K = 65536" in reason
    assert PROBLEM.unsupported(size | {"k": 2**24}, "fp8") is None
    kernel = load_kernel(ROOT / "tests/exploits/acc16_honest.yaml")
    variant = kernel.variant({}, "fp16_acc16")
    assert variant.absent(size, "sm_90a") is None
    assert variant.absent(size | {"k": 2**16 + 1}, "sm_90a") == reason


def test_sizes_where_kernels_break_reach_the_k_that_users_have() -> None:
    """But for types whose honest sums may not be right there; none of them is one that no check can judge."""
    for dtype, longest in {"fp32": 2**20, "bf16": 2**20, "fp8": 2**14}.items():
        sizes = [size for group in PROBLEM.edges({}, dtype) for size in group]
        assert 0.99 * longest < max(size["k"] for size in sizes) < 1.01 * longest
        largest = max(size["k"] * (size["m"] + size["n"]) for size in sizes)
        assert largest < 2**26


@pytest.mark.parametrize("kind", ["uniform", "positive", "wide"])
@pytest.mark.parametrize("dtype", ["fp16", "fp16_acc16"])
def test_products_that_are_subnormal_in_fp16_are_right(dtype: str, kind: str) -> None:
    """At K = 1 and 2, where 2^-25 is more than the share of |A||B| that is allowed."""
    for k in (1, 2):
        a, b = (value(drawn("fp16", 2000 * k, key, kind), "fp16") for key in (3, 4))
        products = (1e-5 * a * b).reshape(2000, k)
        total = np.zeros(2000)
        for product in products.T:
            total = halves(total + product)
        for alpha in (1.0, -1.5):
            right = alpha * products.sum(1)
            rounding = 2**-11 * np.abs(right)
            magnitude = abs(alpha) * np.abs(products).sum(1)
            allowed = accumulation_bound("fp16_acc16", k, kind) * magnitude
            beyond = np.abs(halves(alpha * total) - right) - rounding - allowed
            assert 0 < beyond.max() <= subnormal_bound("fp16_acc16", k, alpha)
            of_result = np.abs(halves(right) - right) - rounding
            assert 0 < of_result.max() <= subnormal_bound(dtype, k, alpha)

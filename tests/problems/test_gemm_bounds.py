"""Bounds of a GEMM: right sums lie within all of them, sums of fewer bits do not, whatever K is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from emulator.inputs import E4M3, drawn, e4m3, value
from emulator.ptx import Array
from emulator.tensor_ptx import from_bits, to_bits
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
from problems.test_mutations import sums

SIDE = 48
DEPTHS = [8, 64, 256, 1024, 4096, 16384]


def operands(k: int, kind: str, side: int = SIDE) -> tuple[Array, Array]:
    """A (side x k) and B (k x side) in fp32, as the harness draws them."""
    return tuple(
        drawn("fp32", side * k, 11 * k + key, kind).reshape(shape)
        for key, shape in ((1, (side, k)), (2, (k, side)))
    )  # type: ignore[return-value]


def shares(c: Array, a: Array, b: Array) -> tuple[float, float]:
    """Root mean square and maximum of the errors over |A||B|."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    found = np.abs(c - a @ b) / (np.abs(a) @ np.abs(b))
    return float(np.sqrt(np.mean(found**2))), float(found.max())


def one_by_one(a: Array, b: Array) -> Array:
    """Fused multiply-adds in fp32, the sum rounded at each product: what errs most of all orders."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for at in range(a.shape[1]):
        total = (a[:, at, None].astype(np.float64) * b[at] + total).astype(np.float32)
    return total


def split(x: Array, rounded: Any, parts: int) -> list[Array]:
    """x as a sum of numbers with fewer bits."""
    found = []
    for _ in range(parts):
        found.append(rounded(x))
        x = (x - found[-1]).astype(np.float32)
    return [one.astype(np.float64) for one in found]


def bf16(x: Array) -> Array:
    return from_bits(to_bits(x, "bf16"), "bf16")


def tf32(x: Array) -> Array:
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(
        np.float32
    )


def three_products(a: Array, b: Array, rounded: Any) -> Array:
    """High times high and both mixed products of two-part numbers, with exact sums: the most favourable to them."""
    (high, low), (other_high, other_low) = split(a, rounded, 2), split(b, rounded, 2)
    return high @ other_high + low @ other_high + high @ other_low


def fewer_bits(x: Array, bits: int) -> Array:
    half = np.uint32(1 << (bits - 1))
    return (
        ((x.view(np.uint32) + half) >> np.uint32(bits) << np.uint32(bits))
        .view(np.float32)
        .astype(np.float64)
    )


@pytest.mark.parametrize("kind", ["uniform", "wide"])
@pytest.mark.parametrize("k", DEPTHS)
def test_fp32_sums_in_the_worst_order_are_fp32(k: int, kind: str) -> None:
    a, b = operands(k, kind)
    rms, worst = shares(one_by_one(a, b), a, b)
    assert rms < 0.9 * rms_bound("fp32", k, kind, SIDE**2)
    assert worst < accumulation_bound("fp32", k, kind)


@pytest.mark.parametrize("k", DEPTHS)
def test_three_tf32_products_are_fp32_and_three_bf16_products_are_not(k: int) -> None:
    """Of sixteen bits one kind of inputs at least shows that they are not 24, also for a kernel with exact sums."""
    for kind in ("uniform", "wide"):
        a, b = operands(k, kind)
        right, _ = shares(three_products(a, b, tf32), a, b)
        wrong, worst = shares(three_products(a, b, bf16), a, b)
        allowed = rms_bound("fp32", k, kind, SIDE**2)
        assert right < 0.6 * allowed
        assert wrong > allowed, kind
    if k >= 2048:
        assert worst < accumulation_bound("fp32", k, "wide"), (
            "the largest element alone says nothing"
        )


@pytest.mark.parametrize("k", DEPTHS)
def test_seventeen_bits_are_not_fp32(k: int) -> None:
    for kind in ("uniform", "wide"):
        a, b = operands(k, kind)
        rms, _ = shares(fewer_bits(a, 7) @ fewer_bits(b, 7), a, b)
        assert rms > rms_bound("fp32", k, kind, SIDE**2), kind


@pytest.mark.parametrize("k", [1024, 4096, 16384])
def test_products_of_fp8_and_left_out_products_are_no_sums_of_fp16(k: int) -> None:
    """Sums that are exact otherwise; honest ones round the sum to fp16 at each product."""
    side = 32
    a, b = (
        x.astype(np.float16).astype(np.float32) for x in operands(k, "uniform", side)
    )
    total = np.zeros((side, side), np.float32)
    for at in range(k):
        total = (total + a[:, at, None] * b[at]).astype(np.float16).astype(np.float32)
    allowed = rms_bound("fp16_acc16", k, "uniform", side**2)
    assert shares(total, a, b)[0] < 0.85 * allowed
    rounded = [x.reshape(-1) for x in (a, b)]
    narrow = [
        E4M3[e4m3(x)].reshape(shape)
        for x, shape in zip(rounded, (a.shape, b.shape), strict=True)
    ]
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    left = {128: 4096, 32: 16384, 8: 1024}
    kept = [k - k // part for part, least in left.items() if k >= least]
    products = [narrow[0] @ narrow[1], *(wide_a[:, :n] @ wide_b[:n] for n in kept)]
    for c in products:
        assert shares(c.astype(np.float16), a, b)[0] > allowed


@pytest.mark.parametrize("k", DEPTHS)
@pytest.mark.parametrize(("dtype", "width"), [("tf32", 23), ("bf16", 23), ("fp8", 13)])
def test_a_rows_errors_lie_within_its_tolerance(dtype: str, width: int, k: int) -> None:
    a, b = (x.astype(np.float64) for x in operands(k, "uniform", 16))
    *_, (_, total) = sums(dtype, a, b, width)
    error = total - a @ b
    norms = np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=0)[None, :]
    of_rows = np.sqrt((error**2).sum(1) / (norms**2).sum(1))
    assert of_rows.max() < 0.85 * row_tolerance(dtype, k)


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


def long_operands(dtype: str, k: int, side: int) -> tuple[Array, Array]:
    """A and B transposed (side x k), in fp64."""
    element = input_dtype(dtype)
    return tuple(
        value(drawn(element, side * k, key), element).reshape(side, k) for key in (1, 2)
    )  # type: ignore[return-value]


def kept_bits(x: Array, bits: int, to_integer: Any) -> Array:
    """To so many bits of mantissa, cut or rounded."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(to_integer(np.ldexp(mantissa, bits)), exponent - bits))


def of_all(c: Array, a: Array, b: Array, dtype: str, elements: int = 2**20) -> float:
    """The root mean square of the errors of C over its bound where C has so many elements."""
    k = a.shape[1]
    rms, _ = shares(c, a, b.T)
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
    a, b = long_operands(dtype, k, 12)
    total = np.zeros((12, 12))
    for at in range(0, k, together):
        products = a[:, at : at + together] @ b[:, at : at + together].T
        total = kept_bits(total + products, bits, to_integer)
    assert of_all(total, a, b, dtype) < 0.95
    assert shares(total, a, b.T)[1] < 0.5 * accumulation_bound(dtype, k)


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
    a, b = long_operands(dtype, k, 12)
    narrow = [kept_bits(x, bits, np.rint) for x in (a, b)]
    assert of_all(narrow[0] @ narrow[1].T, a, b, dtype, 256**2) > 1.05


@pytest.mark.parametrize("k", [2**14, 2**16, 2**18, 2**20])
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_no_bound_overtakes_the_answer(dtype: str, k: int) -> None:
    """Zeros are wrong in each element, and a split of K without its last part by all of them."""
    if PROBLEM.unsupported({"m": 1, "n": 1, "k": k}, dtype):
        assert k > LONGEST_K[dtype]
        return
    a, b = long_operands(dtype, k, 8)
    _, largest = shares(np.zeros((8, 8)), a, b.T)
    for kind in ("uniform", "wide"):
        assert largest > accumulation_bound(dtype, k, kind)
    assert accumulation_bound(dtype, k, "positive") < 1
    kept = k - k // LOST
    assert of_all(a[:, :kept] @ b[:, :kept].T, a, b, dtype) > 1.5


def test_a_size_that_no_check_can_judge_says_which_k_is_the_longest() -> None:
    size = {"m": 64, "n": 64, "k": 2**16}
    assert PROBLEM.unsupported(size, "fp16_acc16") is None
    reason = PROBLEM.unsupported(size | {"k": 2**16 + 1}, "fp16_acc16")
    assert reason is not None
    assert "K = 65536" in reason
    assert PROBLEM.unsupported(size | {"k": 2**24}, "fp8") is None
    kernel = load_kernel(ROOT / "tests" / "exploits" / "acc16_honest.yaml")
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
        shape = 2000
        a, b = (value(drawn("fp16", shape * k, key, kind), "fp16") for key in (3, 4))
        products = (1e-5 * a * b).reshape(shape, k)
        total = np.zeros(shape)
        for product in products.T:
            total = (total + product).astype(np.float16).astype(float)
        for alpha in (1.0, -1.5):
            right = alpha * products.sum(1)
            made = (alpha * total).astype(np.float16).astype(float)
            beyond = np.abs(made - right) - 2**-11 * np.abs(right)
            magnitude = abs(alpha) * np.abs(products).sum(1)
            bound = accumulation_bound("fp16_acc16", k, kind)
            assert (beyond > bound * magnitude).any()
            lost = subnormal_bound("fp16_acc16", k, alpha)
            assert (beyond - lost <= bound * magnitude).all()
            stored = right.astype(np.float16).astype(float)
            off = np.abs(stored - right) - 2**-11 * np.abs(right)
            assert 0 < off.max() <= subnormal_bound(dtype, k, alpha)

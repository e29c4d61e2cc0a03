"""The problem softmax, without a GPU: which outputs its bound accepts, and what its check works out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulator.inputs import value
from emulator.ptx import Array
from emulator.softmax_rule import error_over_bound, errors_over_bound
from emulator.tensor_ptx import to_bits
from ladder.model.problem import C_TYPES, INPUTS
from ladder.problems.softmax import PROBLEM
from ladder.problems.softmax.bounds import ALLOWANCE, error_bound, rms_share
from problems.check_kernels import KEY, inspected, matrix

SINGLE = np.float32
LOG2E = SINGLE(1.4426950408889634)


def exponential(x: Array) -> Array:
    """In fp32, as `__expf`: the product is rounded, and ex2.approx off by 2^-22, but of 0."""
    off = np.where(x == 0, 1.0, 1 + 2.0**-22)
    return np.asarray(np.exp2((x * LOG2E).astype(np.float64)) * off).astype(SINGLE)


def three_passes(x: Array) -> Array:
    """Sums by 128 partial ones, as bits of fp32 and bf16 alike have room for."""
    e = exponential(x - x.max(axis=1, keepdims=True))
    lanes = np.pad(e, ((0, 0), (0, -e.shape[1] % 128))).reshape(len(e), -1, 128)
    sums = np.cumsum(lanes, axis=1, dtype=SINGLE)[:, -1]
    while sums.shape[1] > 1:
        sums = sums[:, ::2] + sums[:, 1::2]
    return np.asarray(e * (SINGLE(1) / sums))


def online(x: Array) -> Array:
    """A running maximum and sum in each of 128 threads, one after the other then."""
    padded = np.pad(
        x, ((0, 0), (0, -x.shape[1] % 128)), constant_values=np.finfo(SINGLE).min
    )
    steps = np.moveaxis(padded.reshape(len(x), -1, 128), 1, 0)
    maximum, total = (
        np.full_like(steps[0], np.finfo(SINGLE).min),
        np.zeros_like(steps[0]),
    )

    def joined(m: Array, s: Array, other: Array, t: Array) -> tuple[Array, Array]:
        larger = np.maximum(m, other)
        return larger, s * exponential(m - larger) + t * exponential(other - larger)

    for step in steps:
        maximum, total = joined(maximum, total, step, np.ones_like(step))
    while maximum.shape[1] > 1:
        maximum, total = joined(
            maximum[:, ::2], total[:, ::2], maximum[:, 1::2], total[:, 1::2]
        )
    return np.asarray(exponential(x - maximum) / total)


def rounded(made: Array, dtype: str) -> Array:
    """Outputs as a buffer holds them."""
    single = made.astype(SINGLE)
    return single if dtype == "fp32" else to_bits(single, dtype)


def share(made: Array, given: Array, dtype: str) -> float:
    """The largest error over the bound, in fp64."""
    x = value(given, dtype)
    known = np.isfinite(x).any(axis=1)
    return error_over_bound(value(made, dtype)[known], x[known], dtype)


def together(made: Array, given: Array, dtype: str) -> float:
    """The root mean square of errors over the bound."""
    errors = errors_over_bound(value(made, dtype), value(given, dtype), dtype)
    return float(np.sqrt(np.mean(errors**2)))


def by_polynomial(x: Array) -> Array:
    """Exponentials by a polynomial of second degree with most of what it lacks added: off by 0.1 %."""
    power = (x - x.max(axis=1, keepdims=True)) * 1.4426950408889634
    part = power - np.floor(power)
    polynomial = 1 + part * (0.6565 + part * 0.3435)
    e = np.exp2(np.floor(power)) * (0.4 * np.exp2(part) + 0.6 * polynomial)
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def test_all_errors_together_are_held_to_what_kernels_have() -> None:
    """Of fp32 a column of 65536 that is left out shows, which the largest error does not."""
    given = matrix("bf16", 64, 4096)
    made = rounded(by_polynomial(value(given, "bf16")), "bf16")
    assert together(made, given, "bf16") > rms_share("bf16", "uniform", given.size)
    given = matrix("fp32", 8, 65536)
    made = rounded(exact(value(given, "fp32"), slice(1, None)), "fp32")
    assert share(made, given, "fp32") < 1
    assert together(made, given, "fp32") > rms_share("fp32", "uniform", given.size)


@pytest.mark.parametrize("way", [three_passes, online])
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
@pytest.mark.parametrize("kind", INPUTS)
def test_softmax_in_fp32_lies_within_the_bound(
    kind: str, dtype: str, way: Callable[[Array], Array]
) -> None:
    """Though every exponential errs by the most, and in the same direction."""
    for rows, columns in ((50, 1), (50, 7), (50, 128), (20, 1024), (2, 65536)):
        given = matrix(dtype, rows, columns, kind)
        with np.errstate(all="ignore"):
            made = way(value(given, dtype).astype(SINGLE))
        assert share(rounded(made, dtype), given, dtype) < 1, (rows, columns)
        if kind == "uniform":
            found = together(rounded(made, dtype), given, dtype)
            allowed = rms_share(dtype, kind, made.size)
            assert found < 0.9 * allowed, (rows, columns)


def test_ascending_rows_lie_within_the_bound() -> None:
    """The maximum changes with each number of a thread: 8 times, and 7 in the tree."""
    given = np.linspace(-20, 20, 1024, dtype=SINGLE)[None]
    with np.errstate(all="ignore"):
        made = online(given)
    assert share(rounded(made, "fp32"), given, "fp32") < 1


def sum_in_fp16(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True).astype(np.float16))


def exact(x: Array, keep: Any = slice(None)) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e[:, keep].sum(axis=1, keepdims=True))


CHEATS: dict[str, Callable[[Array], Array]] = {
    "a column of 1024 is left out of the sum": lambda x: exact(
        x, slice(x.shape[1] // 1024, None)
    ),
    "a sum in fp16": sum_in_fp16,
}
"""What comes nearest to the bound: other rows, weights and sums are further beyond it."""


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize(("rows", "columns"), [(16, 1024), (8, 65536)])
def test_what_is_no_softmax_leaves_the_bound(
    rows: int, columns: int, cheat: str, dtype: str
) -> None:
    """Also in long rows: of their small outputs an absolute allowance hides most."""
    given = matrix(dtype, rows, columns)
    made = rounded(CHEATS[cheat](value(given, dtype)), dtype)
    assert share(made, given, dtype) > 1


# The check's kernels, by the emulator.


def found_in(
    dtype: str, output: Array, kind: str = "uniform", rms_scale: float = 0.0
) -> float:
    entry, drawn_with = f"check_rows<{C_TYPES[dtype]}>", (KEY, INPUTS.index(kind))
    numbers = (*output.shape, *drawn_with, *ALLOWANCE, rms_scale)
    return inspected("softmax", entry, [output], *numbers)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_the_check_finds_the_errors_of_rows_that_were_drawn(
    dtype: str, kind: str
) -> None:
    """As worked out here. Rows begin within 128 bits, and blocks take several."""
    for rows, columns in ((5, 37), (3, 300)):
        given = matrix(dtype, rows, columns, kind)
        with np.errstate(all="ignore"):
            made = rounded(three_passes(value(given, dtype).astype(SINGLE)), dtype)
        found = found_in(dtype, made, kind) / error_bound(columns, dtype)
        assert found == pytest.approx(share(made, given, dtype), rel=1e-6, abs=1e-9)
        if kind == "uniform":
            scale = 100 / np.sqrt(made.size)
            found = found_in(dtype, made, kind, scale) / error_bound(columns, dtype)
            assert found == pytest.approx(100 * together(made, given, dtype), rel=1e-6)


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_it_looks_at_every_element(dtype: str) -> None:
    right = rounded(exact(value(matrix(dtype, 3, 37), dtype)), dtype)
    for at in range(0, right.size, 5):
        one = right.copy()
        one.reshape(-1)[at] = 0
        assert found_in(dtype, one) == pytest.approx(1.0, abs=1e-4), at
    one.reshape(-1)[-1] = np.nan if dtype == "fp32" else 0xFFFF
    assert found_in(dtype, one) == 1e300


def test_a_row_of_nothing_is_not_looked_at() -> None:
    given = matrix("fp32", 40, 1, "masked")
    none = np.isneginf(given)
    assert none.any()
    made = np.where(none, SINGLE(np.nan), SINGLE(1))
    assert found_in("fp32", made, "masked") == 0
    made[np.flatnonzero(~none)[0]] = 0
    assert found_in("fp32", made, "masked") == pytest.approx(1.0)

"""The problem reduction, without a GPU: which sums its bound accepts, and what its check works out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from emulator.inputs import drawn, value
from emulator.ptx import Array
from emulator.tensor_ptx import from_bits, to_bits
from ladder.model.problem import C_TYPES, INPUTS
from ladder.problems.reduction import PROBLEM
from ladder.problems.reduction.bounds import error_bound
from problems.check_kernels import KEY, EmulatedHarness, inspected

COUNTS = (1, 2, 3, 16, 100, 1000, 2**14, 2**20)


def one_by_one(numbers: Array) -> Array:
    """Sums of lines in fp32, each number added to a single sum: the order that errs most."""
    return np.cumsum(numbers, axis=-1, dtype=np.float32)[..., -1]


def halves(numbers: Array) -> Array:
    """The same as a tree, the upper half added to the lower half."""
    while (count := numbers.shape[-1]) > 1:
        low, high = numbers[..., : (count + 1) // 2], numbers[..., (count + 1) // 2 :]
        numbers = np.concatenate(
            [low[..., : count // 2] + high, low[..., count // 2 :]], axis=-1
        )
    return np.asarray(numbers[..., 0])


def shares(sums: Array, numbers: Array, kind: str) -> Array:
    """Errors over the bound; over 1 where there must be none."""
    wide = numbers.astype(np.float64)
    error = np.abs(sums - wide.sum(-1)) / np.maximum(
        np.abs(wide).sum(-1), np.finfo(float).tiny
    )
    bound = error_bound(numbers.shape[-1], kind)
    return np.asarray(error / bound if bound else np.where(error > 0, np.inf, 0.0))


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
@pytest.mark.parametrize("kind", PROBLEM.inputs)
def test_sums_in_any_order_lie_within_the_bound(kind: str, dtype: str) -> None:
    """Far within it where there are many: one sum in 10^12 may leave it, and of some thousands none comes near."""
    for count in COUNTS:
        lines = max(1, min(4000, 2**20 // count))
        given = value(drawn(dtype, lines * count, KEY + count, kind), dtype)
        numbers = given.astype(np.float32).reshape(lines, count)
        most = max(
            shares(order(numbers), numbers, kind).max()
            for order in (one_by_one, halves)
        )
        assert most <= (1.0 if count < 16 else 0.8), (count, most)


def test_the_bound_of_walks_is_not_far_above_what_sums_one_by_one_lose() -> None:
    for kind in ("uniform", "wide", "positive"):
        numbers = drawn("fp32", 2**21, KEY, kind).reshape(512, 4096)
        typical = math.sqrt(np.mean(shares(one_by_one(numbers), numbers, kind) ** 2))
        assert 0.01 < typical < 0.2, kind


def test_sums_of_bf16_that_are_rounded_to_it_are_wrong() -> None:
    """Be it only the sum of each 256."""
    numbers = (
        value(drawn("bf16", 2**18, KEY), "bf16").astype(np.float32).reshape(16, -1, 256)
    )
    blocks = from_bits(to_bits(halves(numbers), "bf16"), "bf16")
    assert (
        shares(blocks.astype(np.float64).sum(-1), numbers.reshape(16, -1), "uniform")
        > 1
    ).all()


def test_a_single_number_and_integers_are_exact() -> None:
    assert {error_bound(1, kind) for kind in PROBLEM.inputs} == {0.0}
    assert {error_bound(count, "integers") for count in COUNTS} == {0.0}


def test_a_sum_that_has_stopped_growing_is_wrong() -> None:
    """2^24 is where a single fp32 sum of numbers below 1 stops; their number is then 2^25."""
    for count in (2**26, 2**28):
        assert 1 - 2.0**24 / (count / 2) > 100 * error_bound(count, "positive")


def test_a_sum_of_numbers_cut_to_bf16_shows_in_one_launch() -> None:
    """All but one in a hundred at 2^16; at 2^28 the numbers of bounds.py hold, which follow from the same formula.

    Left out, doubled or earlier numbers are a hundred times further off.
    """
    numbers = drawn("fp32", 2**21, KEY).reshape(32, 2**16)
    narrow = (numbers.view(np.uint32) & 0xFFFF0000).view(np.float32)
    sums = narrow.astype(np.float64).sum(-1)
    assert (shares(sums, numbers, "uniform") > 1).all()


# The check's kernels, by the emulator.


def sums_of(count: int, kind: str, dtype: str) -> Array:
    on = EmulatedHarness("reduction", blocks=2)
    place = on.room(16)
    given = place, count, KEY, INPUTS.index(kind)
    on.run(f"add_drawn<{C_TYPES[dtype]}>", count, *given)
    return on.view(place, 2, np.float64)


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
@pytest.mark.parametrize("kind", PROBLEM.inputs)
def test_the_check_adds_up_what_is_drawn_to_the_last_number(
    kind: str, dtype: str
) -> None:
    for count in (1, 2, 1031, 4096):
        numbers = value(drawn(dtype, count, KEY, kind), dtype)
        assert sums_of(count, kind, dtype) == pytest.approx(
            [numbers.sum(), np.abs(numbers).sum()], rel=1e-13, abs=0
        )


def found_in(output: float, sums: tuple[float, float]) -> float:
    buffers = [np.array(sums), np.array([output], np.float32)]
    return inspected("reduction", "check_sum<float>", buffers, blocks=1)


def test_the_error_is_over_the_sum_of_magnitudes_and_nan_is_an_error() -> None:
    assert found_in(2.0, (2.0, 8.0)) == 0.0
    assert found_in(-2.0, (2.0, 8.0)) == 0.5
    assert found_in(math.nan, (2.0, 8.0)) == 1e300
    assert found_in(0.0, (0.0, 0.0)) == 0.0
    assert found_in(1.0, (0.0, 0.0)) > 1e300

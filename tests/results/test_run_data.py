"""Rows of tables as claims and answers read them: which are selected, what they are timed against, and the words."""

from __future__ import annotations

import math
from typing import Any

import pytest
from ladder.model.errors import LadderError
from ladder.results import tables
from ladder.results.statistics import UNKNOWN, Estimate, ratio
from ladder.results.verdicts import Gain, gain_over, verdicts
from tiles import cell, made


@pytest.mark.parametrize(
    ("expected", "word"),
    [
        ((1.01, 1.3), "faster"),
        ((0.8, 0.99), "slower"),
        ((0.99, 1.3), "tied"),
        ((math.nan, math.nan), "faster"),
    ],
)
def test_words_follow_the_predicted_range(
    expected: tuple[float, float], word: str
) -> None:
    """The measured interval, 1.198 to 1.202, says faster of all of them."""
    low, high = expected
    row = cell(1024, 1.2, predicted_low=low, predicted_high=high)
    assert list(verdicts(tables.frame("timings", [row]))) == [word]
    elsewhere = Estimate(1.2, low, high) if low == low else UNKNOWN
    assert Gain(Estimate(1.2, 1.198, 1.202), elsewhere).verdict == word


def test_a_row_over_another_one_is_judged_by_both_predictions() -> None:
    slow = cell(1024, 1.0, predicted_low=0.99, predicted_high=1.01)
    fast = cell(1024, 1.02, pad=4, predicted_low=1.012, predicted_high=1.028)
    assert gain_over(fast, slow).verdict == "faster"
    assert gain_over({**fast, "predicted_low": 0.99}, slow).verdict == "tied"
    assert (
        gain_over(
            {**fast, "reference": slow["variant"], "predicted_low": 0.99}, slow
        ).verdict
        == "tied"
    )
    assert gain_over(slow, slow).verdict == "tied"


def test_rows_are_selected_by_kernel_parameter_column_and_regime() -> None:
    data = made(
        cell(1024, 1.1),
        cell(1024, 1.2, pad=4),
        cell(4096, 1.3),
        cell(4096, 2.0, regime="warm"),
        cell(64, 1, status="timeout"),
    )

    def found(*kernel: Any, **wanted: Any) -> list[float]:
        return [row["speedup"] for row in data.timed("tiles", *kernel, **wanted).rows]

    assert found() == [1.1, 1.2, 1.3]
    assert found("old") == []
    assert found("new", pad=0, n=1024) == [1.1]
    assert found(pad=(0, 4), n=lambda n: n > 1024) == [1.3]
    assert found(stages=2) == []
    assert [row["status"] for row in data.cells("tiles", n=64).rows] == ["timeout"]


def test_a_direct_pair_goes_before_the_quotient_of_two_speeds() -> None:
    plain, padded = cell(1024, 1.0), cell(1024, 1.5, pad=4)
    apart = made(plain, padded)
    quotient = apart.speeds_over(
        apart.timed("tiles", pad=4), apart.timed("tiles", pad=0), "n"
    )
    (value,) = quotient.values
    assert value.measured == ratio(
        Estimate(1.5, 1.498, 1.502), Estimate(1.0, 0.998, 1.002)
    )
    paired = made(
        plain, padded, cell(1024, 1.4, "direct", pad=4, reference="new-pad=0")
    )
    (value,) = paired.speeds_over(
        paired.timed("tiles", pad=4), paired.timed("tiles", pad=0), "n"
    ).values
    assert value.measured == Estimate(1.4, 1.398, 1.402)


def test_a_gain_over_another_gain_is_predicted_by_both_predictions() -> None:
    """Of the row that agrees in what is matched."""
    ends = {"predicted_low": [1.9, 0.97, 1.4], "predicted_high": [2.1, 1.03, 1.6]}
    data = made(cell(1024, 2.0, pad=4), cell(1024, 1.0), cell(2048, 1.5), **ends)
    gains = data.speeds(data.timed("tiles"))
    (grown,) = gains.only(n=2048).over(gains.only(n=1024), "pad").values
    assert grown.measured == ratio(
        Estimate(1.5, 1.498, 1.502), Estimate(1.0, 0.998, 1.002)
    )
    assert grown.predicted == ratio(Estimate(1.5, 1.4, 1.6), Estimate(1.0, 0.97, 1.03))
    assert grown.deciding == grown.predicted


def test_a_row_with_two_partners_is_refused() -> None:
    data = made(cell(1024, 1.0), cell(1024, 1.5, pad=4))
    rows = data.timed("tiles")
    with pytest.raises(
        LadderError, match="tiles: new-pad=0: 2 rows agree in n; accepted: one"
    ):
        data.speeds_over(rows, rows, "n")

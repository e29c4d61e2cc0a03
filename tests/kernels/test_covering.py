"""Rows of parameters that the tests of kernels run: no pair of values is left out."""

from __future__ import annotations

import itertools

import pytest
from covering import all_pairs


@pytest.mark.parametrize(
    "counts", [(2, 3), (3, 4, 2), (14, 7, 2), (3, 3, 3, 3), (1, 5, 2)]
)
def test_every_pair_of_values_has_a_row(counts: tuple[int, ...]) -> None:
    rows = all_pairs(*(range(count) for count in counts))
    for (one, first), (other, second) in itertools.combinations(enumerate(counts), 2):
        found = {(row[one], row[other]) for row in rows}
        assert found == set(itertools.product(range(first), range(second)))


def test_rows_are_few_and_the_same_each_time() -> None:
    assert len(all_pairs(range(14), range(7), range(2))) == 14 * 7
    assert len(all_pairs("abc", "abc", "abc", "abc")) < 12
    assert all_pairs("abc", "xy", "pq") == all_pairs("abc", "xy", "pq")

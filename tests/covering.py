"""Fewer rows than the product of parameters has: enough for a mistake that one value of each of two shows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def all_pairs(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rows in which every value of each parameter meets every value of each other one.

    The next row is always the first of the product's that have the most new pairs: they are the same in every run.
    """
    rows = list(itertools.product(*(range(len(one)) for one in values)))
    pairs = {row: {*itertools.combinations(enumerate(row), 2)} for row in rows}
    left, chosen = set().union(*pairs.values()), list[tuple[int, ...]]()
    while left:
        best = max(rows, key=lambda row: len(pairs[row] & left))
        left -= pairs[best]
        chosen.append(best)
    return [tuple(one[at] for one, at in zip(values, row, strict=True)) for row in sorted(chosen)]

"""The rule by which outputs of a softmax are right, in fp64: what check.cu computes on a GPU."""

from __future__ import annotations

import numpy as np
from ladder.problems.softmax.bounds import ALLOWANCE, error_bound

from emulator.ptx import Array


def errors_over_bound(made: Array, elements: Array, dtype: str) -> Array:
    """Errors of `made` over the bound, infinite where it is no number. Both are fp64; no row is all -inf."""
    distance = elements.max(axis=1, keepdims=True) - elements
    right = np.exp(-distance)
    right /= right.sum(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        by_distance = ALLOWANCE.per_distance * distance * right
        allowed = np.where(right > 0, by_distance, 0) + ALLOWANCE.flushed
        beyond = np.abs(made - right) - allowed
        error = np.where(beyond <= 0, 0, beyond / right)
    found = np.nan_to_num(error, nan=np.inf)
    return np.asarray(found / error_bound(elements.shape[1], dtype))


def error_over_bound(made: Array, elements: Array, dtype: str) -> float:
    """The largest."""
    return float(errors_over_bound(made, elements, dtype).max())

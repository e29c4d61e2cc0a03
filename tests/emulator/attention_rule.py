"""The rule by which outputs of an attention are right, in fp64: what check.cu computes on a GPU."""

from __future__ import annotations

import functools

import numpy as np
from ladder.problems.attention import output_dtype
from ladder.problems.attention.bounds import allowance

from emulator.inputs import drawn, value
from emulator.ptx import Array

_EXPONENT_LOSS = 2.0**-21
_LARGEST_EXPONENT = 300.0
"""Both as in check.cu."""


@functools.lru_cache(maxsize=32)
def given(
    dtype: str, shape: tuple[int, int, int], kind: str, key: int
) -> tuple[Array, Array, Array]:
    """Bits of q, k and v (heads, sequence, d) as an instance draws them, with three keys from `key` on; read-only."""
    kinds = (kind, kind, "uniform" if kind == "equal" else kind)
    count = int(np.prod(shape))
    q, k, v = (
        drawn(dtype, count, key + at, one).reshape(shape)
        for at, one in enumerate(kinds)
    )
    for one in (q, k, v):
        one.setflags(write=False)
    return q, k, v


def logits(q: Array, k: Array, causal: int) -> Array:
    """Of fp64 queries and keys (heads, sequence, d): -inf where a row does not see a key."""
    found = q @ np.swapaxes(k, 1, 2) / np.sqrt(q.shape[2])
    unseen = np.triu(np.ones(found.shape[1:], bool), 1) & bool(causal)
    return np.where(unseen, -np.inf, found)


def attention(q: Array, k: Array, v: Array, causal: int) -> Array:
    """The right output, of numbers in fp64."""
    s = logits(q, k, causal)
    weights = np.exp(s - s.max(axis=2, keepdims=True))
    return np.asarray(weights @ v / weights.sum(axis=2, keepdims=True))


def errors_over_bound(
    made: Array, inputs: tuple[Array, Array, Array], dtype: str, causal: int, kind: str
) -> Array:
    """Errors of bits `made` over what is allowed, of the same shape; infinite where it is no number."""
    bits = tuple((one.tobytes(), one.dtype.str, one.shape) for one in inputs)
    right, allowed, _ = _right_and_allowed(bits, dtype, causal, kind)
    errors = np.abs(value(made, output_dtype(dtype)) - right)
    return np.asarray(np.nan_to_num(errors / allowed, nan=np.inf))


def rms_of_errors(
    made: Array, inputs: tuple[Array, Array, Array], dtype: str, causal: int, kind: str
) -> float:
    """The root mean square of errors over the root sum of squares of what roundings may do to them."""
    bits = tuple((one.tobytes(), one.dtype.str, one.shape) for one in inputs)
    right, _, squared = _right_and_allowed(bits, dtype, causal, kind)
    errors = (value(made, output_dtype(dtype)) - right) / squared
    return float(np.sqrt(np.mean(errors**2)))


@functools.lru_cache(maxsize=32)
def _right_and_allowed(
    inputs: tuple[tuple[bytes, str, tuple[int, ...]], ...],
    dtype: str,
    causal: int,
    kind: str,
) -> tuple[Array, Array, Array]:
    """The right output and what it may be off by, at most and by squares, of inputs by their content."""
    q, k, v = (
        value(np.frombuffer(own, of).reshape(shape), dtype) for own, of, shape in inputs
    )
    heads, sequence, d = k.shape
    by = allowance(dtype, {"heads": heads, "sequence": sequence, "d": d}, kind)
    s = logits(q, k, causal)
    below = s - s.max(axis=2, keepdims=True)
    weights = np.exp(below)
    norms = (
        np.linalg.norm(q, axis=2)[:, :, None]
        * np.linalg.norm(k, axis=2)[:, None]
        / np.sqrt(d)
    )
    losses = _EXPONENT_LOSS + by.of_logit * norms
    largest = np.where(below == 0, losses, 0).max(axis=2, keepdims=True)
    losses = np.hypot(losses, largest)
    losses[below == 0] = 0
    seen = np.isfinite(s)
    more = np.exp(np.minimum(below + losses, _LARGEST_EXPONENT)) - weights
    rounding = by.of_weight * np.maximum(weights, by.smallest)
    off = np.where(seen, rounding**2 + more**2, 0)
    right = weights @ v / weights.sum(axis=2, keepdims=True)
    least = np.exp(below - losses).sum(axis=2, keepdims=True)
    times = np.minimum(by.times, np.sqrt(seen.sum(axis=2, keepdims=True)))
    spread, total = off @ v**2, off.sum(axis=2, keepdims=True)
    of_output = by.of_output * np.maximum(np.abs(right), by.smallest)
    of_weights = np.sqrt(spread) + np.abs(right) * np.sqrt(total)
    allowed = of_output + times * of_weights / least
    squared = of_output**2 + (spread + right**2 * total) / least**2
    return right, allowed, np.sqrt(squared)

"""Inputs as gpu/harness.cuh draws them, in NumPy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from ladder.model.problem import INPUTS

from emulator.formats import Array, from_bits, to_bits, towards_zero

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
POWERS = {"bf16": (-24, 48), "fp16": (0, 4), "fp8": (-3, 4), "int32": (0, 14)}
"""Of inputs over many binades: the lowest power of two, and how many (others: -32, 64)."""


def philox(key: int, counters: Array) -> Array:
    """Four words of 32 bits for each counter of 64: Philox4x32-10."""
    x = [
        counters & _LOW,
        counters >> np.uint64(32),
        np.zeros_like(counters),
        np.zeros_like(counters),
    ]
    keys = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        left, right = (
            np.uint64(by) * x[of] for by, of in zip(_MULTIPLIERS, (0, 2), strict=True)
        )
        x = [
            right >> np.uint64(32) ^ x[1] ^ np.uint64(keys[0]),
            right & _LOW,
            left >> np.uint64(32) ^ x[3] ^ np.uint64(keys[1]),
            left & _LOW,
        ]
        keys = [
            (one + step) & 0xFFFFFFFF for one, step in zip(keys, _STEPS, strict=True)
        ]
    return np.stack(x, axis=-1).astype(np.uint32)


@functools.lru_cache(maxsize=128)
def drawn(dtype: str, count: int, key: int, kind: str = "uniform") -> Array:
    """The first `count` elements of a buffer: as their bits where the type is narrow, else as they are; read-only."""
    found = _drawn(dtype, count, key, kind)
    found.setflags(write=False)
    return found


def _drawn(dtype: str, count: int, key: int, kind: str) -> Array:
    wide = dtype in ("fp32", "tf32", "int32")
    of = np.uint32 if wide else np.uint8 if dtype == "fp8" else np.uint16
    own = (
        philox(key, np.arange(-(-count // 4), dtype=np.uint64))
        .reshape(-1)
        .view(of)[:count]
    )
    if not wide:
        x = own * (2.0**-7 if dtype == "fp8" else 2.0**-15) - 1
        x = 0.5 * x + 0.5 if kind == "positive" else x
    elif kind == "positive":
        x = towards_zero(own * 2.0**-32)
    else:
        x = towards_zero(own.view(np.int32) * 2.0**-31)
    if kind == "wide":
        lowest, number = POWERS.get(dtype, (-32, 64))
        x = x * np.exp2(lowest + (own % of(number)).astype(np.float64))
    if kind == "equal":
        x = np.ones_like(x)
    if kind == "spikes":
        x = np.where(own % of(1024) == 0 if dtype != "fp8" else own == 0, 128 * x, x)
    if kind == "masked":
        x = np.where(own % of(2) == 0, -np.inf, x)
    single: Any = x.astype(np.float32)
    if kind == "integers":
        single = np.trunc(np.float32(3) * single)
    if dtype == "tf32":
        return from_bits(single.view(np.uint32), "tf32")
    if dtype == "int32":
        thousands = (single * np.float32(1000)).astype(np.float64)
        return np.asarray(np.clip(thousands, -(2**31), 2**31 - 1).astype(np.int32))
    return np.asarray(single if dtype == "fp32" else to_bits(single, dtype))


def value(elements: Array, dtype: str) -> Array:
    """Elements as fp64."""
    if elements.dtype.kind == "u":
        elements = from_bits(elements, dtype)
    return elements.astype(np.float64)


assert INPUTS == (
    "uniform",
    "positive",
    "integers",
    "wide",
    "equal",
    "spikes",
    "masked",
)

"""Types of numbers in NumPy: what their bits stand for, and conversions between them, as PTX names and rounds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

TYPES: dict[str, Any] = {
    "u8": np.uint8,
    "u16": np.uint16,
    "s16": np.int16,
    "b16": np.uint16,
    "u32": np.uint32,
    "s32": np.int32,
    "b32": np.uint32,
    "f32": np.float32,
    "u64": np.uint64,
    "s64": np.int64,
    "b64": np.uint64,
    "f64": np.float64,
    "pred": np.bool_,
}
"""Types of registers."""
HALVES = ("bf16", "fp16", "fp16_acc16", "f16")
"""Types of 16 bits, as the package names them, and "f16" as PTX does."""
BYTES = ("fp8", "e4m3")
"""The type of 8 bits, as the package names it, and as PTX does."""


def _e4m3_values() -> Array:
    """What each byte of e4m3 stands for: a sign, 4 bits of exponent with bias 7, 3 bits of mantissa."""
    code = np.arange(256)
    exponent = code >> 3 & 15
    mantissa = (code & 7) / 8
    normal = np.ldexp(1 + mantissa, exponent - 7)
    size = np.where(exponent == 0, np.ldexp(mantissa, -6), normal)
    size[code & 127 == 127] = np.nan
    return np.where(code >> 7, -size, size)


E4M3 = _e4m3_values()


def e4m3(x: Array) -> Array:
    """Bytes of the nearest e4m3, those of an even mantissa at a tie; saturated."""
    values = E4M3[:127]
    size = np.minimum(np.abs(x.astype(np.float64)), values[-1])
    above = np.clip(np.searchsorted(values, size), 1, len(values) - 1)
    to_low = size - values[above - 1]
    to_high = values[above] - size
    up = (to_low > to_high) | ((to_low == to_high) & (above % 2 == 0))
    code = np.where(up, above, above - 1)
    return np.asarray(code | np.signbit(x).astype(int) << 7).astype(np.uint8)


def to_bits(values: Array, element: str) -> Array:
    """Bits of fp32 values in a type of 8, 16 or 32 bits, rounded to nearest even."""
    if element in BYTES:
        return e4m3(values)
    if element == "bf16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        wide = bits.astype(np.uint64)
        rounded = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16
        return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)
    if element in HALVES:
        return values.astype(np.float16).view(np.uint16)
    assert element in ("fp32", "f32", "tf32"), element
    return np.ascontiguousarray(values).view(np.uint32)


def from_bits(bits: Array, element: str) -> Array:
    """fp32 values of bits in a type of 8, 16 or 32 bits; of TF32 as the tensor cores read it, without the lower 13."""
    if element in BYTES:
        return E4M3[bits].astype(np.float32)
    if element == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if element in HALVES:
        return np.ascontiguousarray(bits, np.uint16).view(np.float16).astype(np.float32)
    keep = 0xFFFFE000 if element == "tf32" else 0xFFFFFFFF
    return np.ascontiguousarray(bits & np.uint32(keep)).view(np.float32)


def towards_zero(exact: Array) -> Array:
    """fp32 values of fp64, cut."""
    nearest = exact.astype(np.float32)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(exact)
    return np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)


def conversion(modifiers: list[str]) -> Callable[..., Array]:
    """What `cvt` with these modifiers makes of a number, or of the upper and the lower one of a pair."""
    *rounding, target, source = modifiers
    if not {*rounding} <= {"rn", "rz", "rzi", "satfinite"}:
        raise NotImplementedError(f"cvt.{'.'.join(modifiers)}")
    element = target.removesuffix("x2")

    def of_one(number: Array) -> Array:
        if source in HALVES:
            number = from_bits(number, source)
        if target in HALVES:
            return to_bits(number, target)
        if rounding == ["rz"]:
            return towards_zero(number.astype(np.float64))
        whole = np.trunc(number) if rounding == ["rzi"] else number
        return whole.astype(TYPES[target])

    def of_pair(high: Array, low: Array) -> Array:
        upper, lower = (to_bits(one, element) for one in (high, low))
        wide = TYPES[f"u{16 * lower.itemsize}"]
        return np.asarray(upper.astype(wide) << 8 * lower.itemsize | lower)

    def of_bytes(pair: Array) -> Array:
        high, low = (from_bits(pair >> at & 255, "e4m3") for at in (8, 0))
        return of_pair(high, low)

    if source == "e4m3x2":
        return of_bytes
    return of_one if element == target else of_pair

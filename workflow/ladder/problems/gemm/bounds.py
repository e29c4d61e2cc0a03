"""How far right results of a GEMM may lie from the fp64 answer: single elements, their root mean square, row sums.

Elements: |c - e| <= u_out |e| + acc(K) (|alpha| |A||B| + |beta| |C0|), where e is the fp64 answer, u_out the unit
roundoff of the output type, and acc(K) = (2 + 4 sqrt(K)) u_acc the probabilistic bound of accumulating K rounded terms
(Higham & Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019, with lambda
= 4). Tensor cores truncate, so that their u_acc is one bit larger. Inputs are exact in their type.

For fp32, fp16_acc16 and fp8, (12 + sqrt(K) / 12) u_acc if that is less. Products of inputs with both signs have a root
mean square of r = 4/3 times their mean magnitude, and sums of k of them walk: r sqrt(k). An instruction of fp8 cuts 32
products and the sum at u |sum|. All K/32 of them: errors of u |sum| / sqrt(3) add up, by their squares, to
u r K / sqrt(6), 0.54 u |A||B|, and what the sum loses, u |sum| / 2 each time, to u r K^1.5 / 96, sqrt(K) / 72 u |A||B|.
Errors 4 times as large, along a walk 5 times as wide: (20 * 0.54 + 5 / 72 sqrt(K)) u. Sums that are rounded to nearest
at each product err by the first part alone. Sums of inputs with one sign grow as K, and their errors over |A||B| with
them: for such inputs tensor cores may lose K/4 units more, as each product loses half a unit of a sum that is half of
the last one. Inputs over many binades have the general bound.

C itself has a root mean square of r / sqrt(K) |A||B|, and what is said above grows with K. No element may be off by
more than half of that, nor sums of one sign by more than `_STAGNANT` of themselves.

Subnormal: fp16 has no number below 2^-24, so that a rounding there is off by 2^-25 whatever the number is: that of C,
and with fp16_acc16 that of each of K sums. Other types keep their bits down to 2^-126, which no product here is below.

Root mean square: the largest element says little of a long sum, whose bound grows while the error of inputs with fewer
bits shrinks over |A||B| as 1 / sqrt(K). So where sums are as precise as the output, fp32 and fp16_acc16, the root mean
square of the errors is held to that of sums that are rounded at each of K products: 0.40 u |A||B| whatever K is (in
NumPy and on GPUs), and 2.3 u for inputs over many binades. Sums in another order, blocked or split, err by less. Three
TF32 products in the place of one err by 1.5 u in each, 1.5 / sqrt(K) u in a sum. All other types are held to what the
row sums are held to.

Long K: all errors together may have a share of C's root mean square (`_SHARES`) that is below what rounding the inputs
to fewer bits does: 0.53 2^-b of b bits is 3.3 % of e4m3 (4 bits) and 0.21 % of bf16 (8). fp8, of which there is no
narrower type, may have 5 %. Honest sums lose the following shares, which grow with K. Where they reach those of fewer
bits no check could tell them apart, and a size is unsupported (`LONGEST_K`).

- fp16_acc16, rounded at each product: 0.40 u sqrt(K) / r, 1.9 % at 2^14 and 2.7 % at 2^15. At 2^16 it is 3.7 %: only
  sums of 8 or 16 products, as tensor cores round them, are right there, with 1.3 or 0.9 %.
- tf32 and fp16 in fp32: each instruction cuts its sum, by 0.72 u |sum| / 2. Of K/d instructions of d products that is
  0.72 u K / (2 d sqrt(3)): 0.16 % at 2^18 of tf32 with d = 4, as mma.sync has it, and half of that with d = 8; 0.04 %
  of fp16 at 2^17. Beyond that sums of positive fp16, K / 4, leave its range.
- bf16: 0.3 % at 2^20 with d = 8.
- fp8 that is not promoted: 1.3 % at 2^14 and 5 % at 2^16, if its 13 bits are cut like that; 0.3 % and 0.7 % if only
  products are cut. Sums of 128 products that are added in fp32 lose 0.01 % at any K, so that none is the longest.

Row sums (see check.cu): the errors of a row, added up with random signs, are within t times their root sum of squares
but for a share 2 exp(-t^2 / 2) (Hoeffding 1963), whatever they are. Their root mean square is at most 1.35 times the
above: 0.40 u, or 0.54 u and what an instruction of `_DEPTHS` products loses, and the share of C that is said there.
"""

import math

ROUNDING = {"fp32": 0.0, "fp16": 2**-11, "bf16": 2**-8}
"""Unit roundoff by output type. An fp32 result is the accumulator itself."""
_ACCUMULATION = {"fp32": 2**-24, "fp16_acc16": 2**-10, "fp8": 2**-13}
"""Tensor cores that accumulate in fp32: 2**-23. fp8's keep about 14 bits (DeepSeek-V3 technical report, 3.3.2)."""
_BY_WALKS = frozenset({"fp32", "fp16_acc16", "fp8"})
_ROUNDED = {"fp32": 2**-24, "fp16_acc16": 2**-11}
"""Unit roundoff of sums that are rounded to nearest at each product."""
_DEPTHS = {"tf32": 8, "fp16": 16, "bf16": 16, "fp8": 32}
"""Products of one instruction of the tensor cores."""
_ROOM = 1.35  # over the root mean square of honest sums
_UNIFORM, _WIDE = 0.4, 2.4  # that of sums rounded at each product, in units of roundoff
# And of one product of two TF32 terms each, whose low parts are not multiplied.
_PRODUCT = 1.5
_SHARES = {
    "tf32": 0.0019,
    "fp16": 0.0019,
    "fp16_acc16": 0.03,
    "bf16": 0.025,
    "fp8": 0.05,
}
"""The most that errors may be of C, in root mean squares."""
LONGEST_K = {"tf32": 2**18, "fp16": 2**17, "fp16_acc16": 2**16, "bf16": 2**22}
_R = 4 / 3  # root mean square of a product over its mean magnitude
_ELEMENT = 0.5  # the most that an element may be off, of C's root mean square
_STAGNANT = 0.95
_SUBNORMAL = 2**-25  # of fp16
_SAMPLED = 6.0  # by how many standard deviations, about 1 / sqrt(n), a sample of n elements may show more
FALSE_ALARM = 1e-12
"""The chance that the row check rejects a right result, in one launch."""


_EXACT_BELOW = {"fp8": 2**13, "fp16_acc16": 2**11}
"""Integers that an accumulator holds with all below them; of the others 2**24."""


def integers_are_exact(dtype: str, k: int) -> bool:
    """Whether sums of K products of integers are exact: they walk, and six standard deviations are 10 sqrt(K)."""
    return 10 * math.sqrt(k) < _EXACT_BELOW.get(dtype, 2**24)


def accumulation_bound(dtype: str, k: int, inputs: str = "uniform") -> float:
    """acc(K): the share of |A||B| that accumulating K products of such inputs in `dtype` may lose."""
    if inputs == "integers":
        return 0.0  # Their sums are exact in every accumulator.
    root = math.sqrt(k)
    units = 2 + 4 * root
    if inputs == "uniform" and dtype in _BY_WALKS:
        units = min(units, 12 + root / 12)
    if inputs == "positive" and dtype != "fp32":
        units += k / 4
    most = _STAGNANT if inputs == "positive" else _ELEMENT * _R / root
    return min(units * _ACCUMULATION.get(dtype, 2**-23), most)


def subnormal_bound(dtype: str, k: int, alpha: float) -> float:
    """What subnormal numbers may be off by, whatever |A||B| is."""
    if dtype == "fp16_acc16":
        return _SUBNORMAL * (1 + k * abs(alpha))
    return _SUBNORMAL if dtype == "fp16" else 0.0


def _uniform_units(k: int) -> float:
    return math.hypot(_UNIFORM, _PRODUCT / math.sqrt(k))


def rms_bound(dtype: str, k: int, inputs: str, elements: int) -> float:
    """The largest root mean square of errors over |A||B|, of so many elements; infinite where only elements count."""
    bound = math.inf
    if inputs == "uniform":
        bound = _R * row_tolerance(dtype, k)
        if dtype in _ROUNDED:
            bound = min(bound, _uniform_tolerance(dtype, k))
    elif inputs == "wide" and dtype == "fp32":
        bound = _ROOM * _WIDE * _ROUNDED[dtype]
    return bound * (1 + _SAMPLED / math.sqrt(elements))


def row_tolerance(dtype: str, k: int, inputs: str = "uniform") -> float:
    """The largest root mean square of a row's errors, over the product of the norms of A's row and B's columns."""
    if inputs != "uniform":
        return accumulation_bound(dtype, k, inputs)
    of_result = _SHARES.get(dtype, math.inf) / math.sqrt(k)
    return min(_uniform_tolerance(dtype, k), of_result)


def _uniform_tolerance(dtype: str, k: int) -> float:
    if dtype in _ROUNDED:
        return _ROOM * _uniform_units(k) * _ROUNDED[dtype]
    units = 0.54 + 0.45 * math.sqrt(k) / _DEPTHS[dtype]
    return _ROOM * units * _ACCUMULATION.get(dtype, 2**-23)


def chance_factor(rows: int) -> float:
    """t: how many root sums of squares none of so many rows exceeds but for FALSE_ALARM."""
    return math.sqrt(2 * math.log(2 * rows / FALSE_ALARM))

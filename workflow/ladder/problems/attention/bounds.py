"""How far a right output may lie from the fp64 one.

A row of the output is O = sum_j e_j v_j / l, with e_j = exp(s_j - m), s_j = q k_j / sqrt(d), m the largest of the s_j,
and l the sum of the e_j, over the n keys that the row sees. A kernel has other weights than e_j, each off by w_j at
most, the root of the sum of squares of what follows. Since sum_j e_j (v_j - O) is 0, its output is off by
|sum_j w_j (v_j - O)| over its own l. u is the unit roundoff of the type of the weights, 2**-8 of bf16, 2**-11 of fp16,
2**-4 of e4m3 in fp8, and t its smallest normal number. Of e4m3 that is 2**-6; weights that are multiplied by 2**8, of
448 at most, have it at t = 2**-14 of the largest.

Of w_j:

- Weights are rounded for the product with V: u max(e_j, t). That l adds the weights ahead of their rounding makes no
  difference.
- s_j is summed by tensor cores, whose unit roundoff is 2**-23, and of fp8 2**-13: (2 + 4 sqrt(d)) units of
  |q||k_j| / sqrt(d), as for a GEMM (problems/gemm/bounds.py). Its scaling, and its difference from m, lose 4 units of
  fp32 more, and ex2.approx 2**-22 of the exponential. What the logit of the maximum is off by changes all weights
  alike, so that a key's weight is off by exp(s_j - m + y) - e_j, with y^2 = x_j^2 + x^2 of these losses of the key and
  of the largest, and that of the largest is not. A maximum of part of the keys that is replaced later changes nothing:
  the differences add up.
- The product with V is summed in fp32 by tensor cores, 16 keys an instruction. Of values with both signs it is a walk,
  and so are its errors (the same page): (sqrt(S) / 2 + S / 50) units of a weight that is 1 are more than they lose. Of
  fp8 the same holds of 128 keys, in its units: their sums are added in fp32, which is promotion (deepseek-v3).

With R = sqrt(sum_j w_j^2 v_j^2), |sum_j w_j v_j| is at most sqrt(n) R whatever the signs are (Cauchy-Schwarz). A
rounding is as likely up as down and uniform in an interval, so its moments are below those of a normal variable with a
third of the square of the half width as its variance. Where all logits differ, roundings are independent: then the sum
exceeds sqrt(2 / 3 ln(2 / p)) R with a chance of p. That is 5.5 R where one launch in 10**12 is refused. Weights with
the same logit are rounded alike. Logits of integers have few values, so that the first bound stands alone. Where all
keys are equal sum_j w_j (v_j - O) is 0, and u |O| is left: what O loses against l, which is summed ahead of rounding.

Of O itself:

- It is rounded to 16 bits, of fp8 to those of bf16: its unit roundoff times max(|O|, t).
- l is the sum of n positive numbers in fp32, of which one thread adds a quarter or less, as in wgmma's fragments: S / 8
  units. Values of one sign lose S / 32 units of O in the product with V, and are no walk: they are far less than l's.
  The division, and the changes of the maximum, lose 32 units. Of fp8 each of 128 products loses half a unit of their
  sum so far, which is half of the last one: 32 units of 2**-13 of O, and fewer of fewer.

Root mean square: an error that is uniform in an interval has 1 / sqrt(3) of the half width, and one of rounding 0.72 of
that, since a type's numbers are as far apart at 1 as at 2. So all errors, each over the root sum of squares of what its
roundings may do, have 1 / sqrt(3) at most, and 0.5 where weights and outputs are of all sizes, as with uniform inputs.
What l and the logits lose in fp8 is far below what is allowed. Emulated kernels have, at d = 64 to 256 and 512 to 16384
keys, causal or not (tests/problems/test_attention.py):

| | uniform | positive | wide | spikes |
|---|---|---|---|---|
| bf16, fp16 | 0.34 to 0.43 | 0.43 to 0.45 | 0 to 0.26 | 0.22 to 0.29 |
| fp8 | 0.27 to 0.40 | 0.22 to 0.26 | 0.35 to 0.38 | 0 to 0.03 |

In 16 bits it is 0.55 to 0.57 with logits of int8, 0.8 with both products in 8 bits, 0.57 to 0.58 with a polynomial of
second degree for the exponential; in fp8 0.8 to 1.1 with a line for it, and 1.3 to 2.1 without every 64th key. Weights
that are alike are rounded alike: with integers the largest error alone counts. With equal keys right ones have 0.02 to
0.3 of 1, and one that leaves out a single key of 2000 in fp8 has 1.7. Few rows have few weights, and a wider bound.

Fewer promotions: a kernel in fp8 may say that its tensor cores sum S keys, or all. Its errors are over the above, so
that those of kernels can be compared, and may be `promotion_factor` times as large. Of values of both signs the walk
takes (sqrt(S) / 2 + S / 50) units of 2**-13, which are independent of the roundings of weights: 24 % more at 16384
keys, less than 1 % at 2048. Where weights may be rounded alike R counts sqrt(n) times, but the walk does not. Of values
of one sign S / 4 units of O are lost, and everywhere alike, so that their root mean square is not 1 / sqrt(3) of that;
from 2**13 of them on the next one is lost as a whole. Emulated sums of all of 16384 keys lose 27 % of a positive O, and
nothing that shows of any other.

What a launch may do unseen: at 16384 keys, uniform inputs, bf16, 5.5 R is 2 % of the outputs' standard deviation. A
kernel that leaves out 64 keys of them errs by 6 %, one that rounds the weights to e4m3 by 3 % and by 13 % somewhere,
and one that takes all weights as equal by a third. l that is rounded to bf16 once, in a launch of bf16, shows where
values have one sign: O is then not small against R. In fp8 the weights of a right launch have 4 bits, so that 5.5 R is
a third of the standard deviation: 512 keys that are left out show, fewer do not. Sums that are not promoted show where
values have one sign.

Wide inputs have logits of up to 2**43. There fp32 says which key is the largest, or does not: then anything is allowed.
"""

import math
from typing import NamedTuple

from ladder.model.problem import Size

FALSE_ALARM = 1e-12
"""The chance that a right launch is refused."""
_UNIT, _UNIT_OF_FP8 = 2.0**-23, 2.0**-13
PROMOTED = 128
"""Keys whose products the tensor cores add up in fp8, ahead of fp32, unless a kernel says another number."""
_MOST_LOST = 0.95
"""The share of a sum of one sign that may be lost, as of a GEMM's."""
_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp8": 2.0**-4}
_ROUNDOFF_OF_OUTPUT = {**_ROUNDOFF, "fp8": _ROUNDOFF["bf16"]}
_SMALLEST = {"bf16": 2.0**-126, "fp16": 2.0**-14, "fp8": 2.0**-14}


_RMS = {"uniform": 0.5, "equal": 1.0, "integers": math.inf}
_RMS_OF_OTHERS = 1 / math.sqrt(3)
_SAMPLED = 3.0
"""By how much rows may show more, over the root of their number."""


def rms_bound(inputs: str, rows: int) -> float:
    """The largest root mean square of errors, of so many rows, over what their roundings may do together."""
    return _RMS.get(inputs, _RMS_OF_OTHERS) * (1 + _SAMPLED / math.sqrt(rows))


def _walk(keys: int) -> float:
    """Units of a weight that is 1, by which sums of values of both signs err."""
    return math.sqrt(keys) / 2 + keys / 50


def _times(size: Size) -> float:
    """How many times R the sum of independent roundings is at most."""
    outputs = size["heads"] * size["sequence"] * size["d"]
    return math.sqrt(2 / 3 * math.log(2 * outputs / FALSE_ALARM))


class Allowance(NamedTuple):
    """What a check allows, in the order of its kernels' arguments."""

    of_output: float  # share of |O|
    of_weight: float  # share of a weight
    of_logit: float  # share of |q||k_j| / sqrt(d)
    smallest: float  # number of full precision
    times: float  # R, where that is less than sqrt(n) R


def allowance(dtype: str, size: Size, inputs: str) -> Allowance:
    """The errors of a right output, for a kind of inputs."""
    sequence, d = size["sequence"], size["d"]
    roundoff, unit = _ROUNDOFF[dtype], 0.0
    if dtype == "fp8":
        unit = _UNIT_OF_FP8
    of_output, of_weight = _ROUNDOFF_OF_OUTPUT[dtype], roundoff
    if inputs == "equal":
        of_output, of_weight = of_output + roundoff, 0.0
    summed = min(sequence, PROMOTED)
    times = math.inf
    if inputs not in ("equal", "integers"):
        times = _times(size)
    return Allowance(
        of_output=of_output + (sequence / 8 + 32) * _UNIT + summed / 4 * unit,
        of_weight=of_weight + _walk(sequence) * _UNIT + _walk(summed) * unit,
        of_logit=(2 + 4 * math.sqrt(d)) * max(_UNIT, unit) + 4 * _UNIT,
        smallest=_SMALLEST[dtype],
        times=times,
    )


def promotion_factor(size: Size, inputs: str, keys: int) -> float:
    """By how much errors in fp8 may exceed what is allowed where the tensor cores sum so many keys, not `PROMOTED`."""
    sequence = size["sequence"]
    few, many = min(sequence, PROMOTED), min(sequence, max(keys, PROMOTED))
    allowed = allowance("fp8", size, inputs)
    if inputs == "positive":
        lost = min(many / 4 * _UNIT_OF_FP8, _MOST_LOST) - few / 4 * _UNIT_OF_FP8
        return 1 + lost / (allowed.of_output * _RMS_OF_OTHERS)
    walk = (_walk(many) - _walk(few)) * _UNIT_OF_FP8 / allowed.of_weight
    if math.isinf(allowed.times):
        walk *= min(1.0, _times(size) / math.sqrt(sequence))
    return math.hypot(1, walk)

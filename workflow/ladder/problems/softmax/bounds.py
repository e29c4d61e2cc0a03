"""How far a right softmax may lie from the fp64 one, whatever the inputs are.

An output is y = e / S, with e = exp(-d), d = m - x the distance from the row's maximum m, and S the sum of e over the n
columns. u = 2**-24 is the unit roundoff of fp32. Relative to y, fp32 loses:

- In the exponent, up to 4 u d: x - m is rounded, and so is its product with log2(e), whose fp32 value is off by u / 4.
  That is 2.3 u d, also where an exponent is cut at maxima of parts of the row, since the distances add up to d. The
  check knows d of each output, and allows that loss by itself (`per_distance`).
- In an exponential, 4 u: ex2.approx errs by 2**-22 at most (PTX ISA, ex2), expf by less. That of 0 is 1.
- In S, the mean over the row's terms of what each loses. Its exponential: 4 u + 4 u d. The mean of d, with the terms as
  weights, is their entropy less log S, hence at most log n. Its additions: terms are positive, so k additions behind
  one another lose k u at most. With at least 128 partial sums of a row, or 32 where it has up to 1024 columns, and a
  tree over these, k is at most n / 128 + 40.
- In S again, 5 u for each change of the maximum that a term goes through where the sum is rescaled (Milakov &
  Gimelshein 2018): an exponential and a product. In the mean over terms that is log k changes in a thread, and half of
  the 13 rounds of a tree over 8 blocks of 1024 threads: 14 at 2048 numbers a thread. 20 are allowed.
- In the division, 4 u, be it approximate or a product with the reciprocal.

Together that is n / 128 + 152 + 4 log n units of roundoff. No chance is in it but in the number of changes, whose mean
over a row of independent numbers hardly varies. A bf16 output is then rounded, by 2**-8 of itself at most.

Exponentials below 2**-126 may be flushed to zero. S is at least 1, so the check allows 2**-125 anywhere (`flushed`).

Root mean square, of uniform inputs: in fp32 that of emulated kernels is 0.07 of the bound at most, with exponentials
that all err by the most; 0.1 is allowed. In bf16 it is 0.42 of a half unit (0.72 / sqrt(3): see the same of attention),
and half of the bound is allowed.

What may be left out unseen: of S in fp32 a share of 2e-6 at 1024 columns, where one column is 1e-3, and of 3e-5 at
262144, which is 7 columns. A sum that is rounded to bf16 or fp16 errs by more at any number of columns. Of bf16 outputs
this takes many rows to show, since it shows only where an output is rounded by nearly the most.
"""

import math
from typing import NamedTuple


class Allowance(NamedTuple):
    """What the check allows beside the bound, in the order of its kernels' arguments.

    `per_distance`: share of an output, for each unit of its distance from the maximum; `flushed`: anywhere.
    """

    per_distance: float
    flushed: float


ALLOWANCE = Allowance(per_distance=2.0**-22, flushed=2.0**-125)
_RMS = {"fp32": 0.1, "bf16": 0.5}
_ROUNDOFF = {"fp32": 0.0, "bf16": 2.0**-8}


def rms_share(dtype: str, inputs: str, elements: int) -> float:
    """The largest root mean square of so many errors, over the bound."""
    if inputs != "uniform":
        return math.inf
    return _RMS[dtype] * (1 + 6 / math.sqrt(elements))


def error_bound(columns: int, dtype: str) -> float:
    """The largest relative error of a right output, beyond what its distance from the maximum explains."""
    units = columns / 128 + 152 + 4 * math.log(columns)
    fp32 = units * 2.0**-24
    return fp32 + _ROUNDOFF[dtype] * (1 + fp32)

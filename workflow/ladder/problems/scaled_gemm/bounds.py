"""How far right results of a GEMM with block scales may lie from the exact answer.

C = sum over blocks b of s_b p_b: p_b is the product of a row of A and a column of B over 128 of K, which tensor cores
add up, and s_b the product of two scales. N_b = s_b |a_b| |b_b|, with the root sums of squares of the block's numbers,
is at least s_b times the sum of the magnitudes of its products (Cauchy), a share of which may be lost. u = 2**-24.

Elements: |c - e| <= u_out |e| + (acc + add) sum N_b. u_out is the unit roundoff of the output, 0 of fp32. acc is what
the tensor cores may lose of 128 products in fp8, the same at any K, since each p_b begins at zero: that of problem
gemm. add = (3 + 4 sqrt(blocks)) u: the product of the scales, that with p_b and the first addition are rounded, and
the sum over blocks is as in problem gemm (Higham & Mary 2019). Sums of integers are exact in p_b, so that of them `add`
is all: with scales of 24 bits they show what a kernel does with these.

Root mean square: what blocks lose has random signs where products do. An output errs, in the root mean square, by at
most (r + add) sqrt(sum N_b^2), with r of problem gemm for 128 products. C has one of sqrt(sum N_b^2 / 128), so that
right results lose 0.13 % of it, whatever K and the scales are. Inputs of one sign have the bound of elements, whose sum
over blocks is at most sqrt(blocks) times sqrt(sum N_b^2).

Rows (see check.cu): sums of a row's errors with random signs stay within t times their root sum of squares, which
follows from the above, but for a share 2 exp(-t^2 / 2) (Hoeffding). 9 times 0.13 %, and what rounding to bf16 loses,
9 * 0.22 %, are 3 % of a row.

What a launch may do unseen: be off by 3 % of a row of C in the root mean square. So much is a block of 128 x 128
outputs of 8192 without one of 10 of its blocks of K. Taken over a thousand random elements all errors together may be
0.16 %. Scales that are left out, taken from a neighbour or rounded to powers of two, in all tiles, are off by tens of
per cents. Scales that are rounded to bf16 show in an fp32 C, which is then off by 0.2 %; a bf16 C is so by itself.

Beyond K = `LONGEST_K`, 512 blocks, the bound of elements without scales nears half of C's root mean square.
"""

import math

from ladder.problems.gemm.bounds import accumulation_bound
from ladder.problems.gemm.bounds import row_tolerance as tolerance_of_products

BLOCK = 128
"""Of K, and columns of B, that have a scale in common."""
LONGEST_K = 2**16
_U = 2.0**-24
_SAMPLED = 6.0  # standard deviations, as in problem gemm


def blocks_of(k: int) -> int:
    """Blocks of K."""
    return -(-k // BLOCK)


def _of_additions(k: int) -> float:
    """`add` of the above."""
    return (3 + 4 * math.sqrt(blocks_of(k))) * _U


def error_bound(k: int, inputs: str) -> float:
    """The largest error of an element, over the sum of N_b."""
    return accumulation_bound("fp8", BLOCK, inputs) + _of_additions(k)


def row_tolerance(k: int, inputs: str) -> float:
    """The largest root mean square of a row's errors, over the root of the sum of N_b^2."""
    if inputs != "uniform":
        return error_bound(k, inputs) * math.sqrt(blocks_of(k))
    return tolerance_of_products("fp8", BLOCK) + _of_additions(k)


def rms_bound(k: int, inputs: str, elements: int) -> float:
    """The same of so many elements; infinite where only elements count."""
    if inputs != "uniform":
        return math.inf
    return row_tolerance(k, inputs) * (1 + _SAMPLED / math.sqrt(elements))

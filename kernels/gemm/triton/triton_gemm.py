# C = alpha * A @ B + beta * C with fp32 sums: the GEMM of Triton's tutorial, which people copy.
#
# The technique: a tile a block, in groups (grouped_tiles.py); Triton pipelines the loop over K by itself, and
# multiplies with the tensor cores.
#
# A is M x K, C is M x N, row-major; B is N x K where TN, else K x N. BM, BN, BK: tile. GROUP: rows of tiles
# in a group. Offsets are 32-bit: no matrix has 2^31 elements.

import triton
import triton.language as tl
from grouped_tiles import place


@triton.jit
def triton_gemm(
    a, b, c, m, n, k, alpha, beta,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    row, column = place(tl.program_id(0), m, n, BM, BN, GROUP)
    rows, columns, depth = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN), tl.arange(0, BK)

    # Beyond the last row and column others are read again: only K needs a mask.
    of_a = a + (rows % m)[:, None] * k + depth[None, :]
    if TN:
        of_b = b + (columns % n)[None, :] * k + depth[:, None]
    else:
        of_b = b + depth[:, None] * n + (columns % n)[None, :]

    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, k, BK):
        left = tl.load(of_a, mask=depth[None, :] < k - first, other=0.0)
        right = tl.load(of_b, mask=depth[:, None] < k - first, other=0.0)
        sums = tl.dot(left, right, sums)
        of_a += BK
        of_b += BK if TN else BK * n

    of_c = c + rows[:, None] * n + columns[None, :]
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    result = alpha * sums
    if beta != 0.0:
        result += beta * tl.load(of_c, mask=inside, other=0.0).to(tl.float32)
    tl.store(of_c, result.to(c.dtype.element_ty), mask=inside)

# Which tile a block computes: groups of rows of tiles, column by column inside a group, so that blocks which
# run together share rows of A and columns of B in the L2.

import triton
import triton.language as tl


@triton.jit
def place(tile, m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile of BM x BN in C, in tiles, where a group has GROUP rows of them."""
    rows, columns = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group, inside = tile // (GROUP * columns), tile % (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    return group * GROUP + inside % height, inside // height

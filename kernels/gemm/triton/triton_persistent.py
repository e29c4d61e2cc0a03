# C = alpha * A @ B + beta * C with fp32 sums: the persistent GEMM of Triton's tutorial, with descriptors.
#
# The technique: as many blocks as run at once, each with tile after tile (grouped_tiles.py), so that
# the loads of a tile begin while the one before is stored; tiles are copied by TMA.
#
# a is M x K, c is M x N; b is N x K where TN, else K x N. BM, BN, BK: tile. GROUP: rows of tiles in a group.

import triton
import triton.language as tl
from grouped_tiles import place


@triton.jit
def triton_persistent(
    a, b, c, m, n, k, alpha, beta,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(m, BM) * tl.cdiv(n, BN)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        row, column = place(tile, m, n, BM, BN, GROUP)

        # What lies beyond a matrix is read as zero, and not stored.
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, k, BK):
            left = a.load([row * BM, first])
            right = b.load([column * BN, first]).T if TN else b.load([first, column * BN])
            sums = tl.dot(left, right, sums)

        # Half a tile of C at a time: less shared memory beside the stages.
        halves = tl.split(tl.permute(tl.reshape(sums, (BM, 2, BN // 2)), (0, 2, 1)))
        for half in tl.static_range(2):
            place_in_c = [row * BM, column * BN + half * (BN // 2)]
            result = alpha * halves[half]
            if beta != 0.0:
                result += beta * c.load(place_in_c).to(tl.float32)
            c.store(place_in_c, result.to(c.dtype))

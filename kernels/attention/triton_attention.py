# O = softmax(Q @ K^T / sqrt(DEPTH)) @ V of each head, 16-bit operands and result, fp32 sums: as in Triton's
# tutorial on fused attention.
#
# The technique: a block has BM rows of a head and goes over tiles of BN keys. Scores stay in registers; the
# maximum and the sum of each row are carried on, and the output is rescaled where the maximum grows
# (flash-attention-2). Triton copies tiles by TMA ahead of their use, and overlaps what it can.
# The tutorial multiplies by the scale ahead of the subtraction. That becomes one FFMA, in which the maximum
# is rounded and its score is not: of scores beyond 10^9 the exponential is inf.
# Causal, a row sees the keys up to its own: tiles behind the last row of a block are left out, and blocks
# with the most tiles go first. Only tiles at the end, or on the diagonal, are masked.
#
# q, k, v: descriptors of heads x rows x DEPTH elements. What lies behind the last row is read as zero.

import triton
import triton.language as tl


@triton.jit
def over_keys(
    q, k, v, output, maximum, sums, head, row, begin, end, keys, scale,
    BN: tl.constexpr, DEPTH: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Output, maximum and sum of rows, carried on over the keys from `begin` to `end` of `keys`."""
    for first in range(begin, end, BN):
        score = tl.dot(q, k.load([head, first, 0]).reshape(BN, DEPTH).T)
        if MASKED:
            key = first + tl.arange(0, BN)
            seen = key[None, :] < keys
            if CAUSAL:
                seen = seen & (key[None, :] <= row[:, None])
            score = tl.where(seen, score, -float("inf"))
        larger = tl.maximum(maximum, tl.max(score, 1))
        share = tl.exp2((score - larger[:, None]) * scale)
        factor = tl.exp2((maximum - larger) * scale)
        sums = sums * factor + tl.sum(share, 1)
        output = output * factor[:, None]
        output = tl.dot(share.to(v.dtype), v.load([head, first, 0]).reshape(BN, DEPTH), output)
        maximum = larger
    return output, maximum, sums


@triton.jit
def triton_attention(
    q, k, v, o, sequence,
    BM: tl.constexpr, BN: tl.constexpr, DEPTH: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    if CAUSAL:
        head, tile = tl.program_id(0), tl.num_programs(1) - 1 - tl.program_id(1)
    else:
        head, tile = tl.program_id(1), tl.program_id(0)
    first_row = tile * BM
    row = first_row + tl.arange(0, BM)
    rows = q.load([head, first_row, 0]).reshape(BM, DEPTH)
    scale = 1.4426950408889634 / DEPTH**0.5  # of exp2

    output = tl.zeros((BM, DEPTH), dtype=tl.float32)
    maximum = tl.full((BM,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((BM,), dtype=tl.float32)
    end = min(first_row + BM, sequence) if CAUSAL else sequence
    whole = (first_row if CAUSAL else sequence) // BN * BN
    output, maximum, sums = over_keys(
        rows, k, v, output, maximum, sums, head, row, 0, whole, sequence, scale, BN, DEPTH, CAUSAL, False
    )
    output, maximum, sums = over_keys(
        rows, k, v, output, maximum, sums, head, row, whole, end, sequence, scale, BN, DEPTH, CAUSAL, True
    )

    of_o = o + (head.to(tl.int64) * sequence + row)[:, None] * DEPTH + tl.arange(0, DEPTH)[None, :]
    tl.store(of_o, (output / sums[:, None]).to(o.dtype.element_ty), mask=(row < sequence)[:, None])

# output[r][c] = exp(input[r][c] - m) / S of each row, with m its maximum and S its sum of exp(input - m): a
# program a row, as in Triton's tutorial.
#
# The technique: the whole row is one block of Triton, which lies in registers; where threads meet is the
# compiler's affair. A row that no block holds is read twice: once for maximum and sum, carried on from block
# to block (the online normalizer), and once for the outputs.
#
# input and output are M x N, row-major. BLOCK: columns at a time, a power of two. ONLINE: whether a row is
# longer than that.

import triton
import triton.language as tl


@triton.jit
def triton_softmax(input, output, n, BLOCK: tl.constexpr, ONLINE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    of_input = input + row * n + columns
    of_output = output + row * n + columns

    if ONLINE:
        # Above -inf: its distance from itself would be NaN.
        maximum = -3.4e38
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for first in range(0, n, BLOCK):
            x = tl.load(of_input + first, mask=columns < n - first, other=-float("inf")).to(tl.float32)
            larger = tl.maximum(maximum, tl.max(x))
            sums = sums * tl.exp(maximum - larger) + tl.exp(x - larger)
            maximum = larger
        scale = 1.0 / tl.sum(sums)
        for first in range(0, n, BLOCK):
            x = tl.load(of_input + first, mask=columns < n - first, other=0.0).to(tl.float32)
            share = tl.exp(x - maximum) * scale
            tl.store(of_output + first, share.to(output.dtype.element_ty), mask=columns < n - first)
    else:
        x = tl.load(of_input, mask=columns < n, other=-float("inf")).to(tl.float32)
        share = tl.exp(x - tl.max(x))
        share *= 1.0 / tl.sum(share)
        tl.store(of_output, share.to(output.dtype.element_ty), mask=columns < n)

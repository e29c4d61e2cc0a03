# output[0] = the sum of `elements` numbers, the same bits in every launch.
#
# The technique: a block steps over the line by the size of the grid and keeps BLOCK sums in registers, which
# meet once at its end. It leaves its own sum in a place of its own, and the last block to come adds up all of
# them, in one launch: Triton has no fence, but its atomics order what was written before and is read after.
#
# sums: room for one number a block. arrived: zero between launches. BLOCK: numbers at a time.

import triton
import triton.language as tl


@triton.jit
def triton_reduction(input, output, elements, sums, arrived, BLOCK: tl.constexpr):
    own, blocks, lanes = tl.program_id(0), tl.num_programs(0), tl.arange(0, BLOCK)
    of_lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    whole = elements // BLOCK * BLOCK
    for first in range(own.to(tl.int64) * BLOCK, whole, blocks * BLOCK):
        of_lanes += tl.load(input + first + lanes).to(tl.float32)
    if own == 0:  # numbers behind the last whole block
        of_lanes += tl.load(input + whole + lanes, mask=lanes < elements - whole, other=0.0).to(tl.float32)
    tl.store(sums + own, tl.sum(of_lanes))
    tl.debug_barrier()  # it is written, by whichever thread

    counter = arrived.to(tl.pointer_type(tl.int32))
    if tl.atomic_add(counter, 1, sem="acq_rel") == blocks - 1:
        tl.store(counter, 0)
        tl.store(output, tl.sum(tl.load(sums + lanes, mask=lanes < blocks, other=0.0, cache_modifier=".cg")))

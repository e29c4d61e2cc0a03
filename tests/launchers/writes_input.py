# Writes into an input.
# Expected: incorrect
# Defence: inputs must hold the numbers that were drawn for them

import ctypes

from products import enqueue, product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    solve = product(buffers, sizes, stream_at(stream))
    first = buffers["a"].pointer

    def launch():
        solve()
        enqueue("store", stream_at(stream), first, ctypes.c_float(1))

    return launch

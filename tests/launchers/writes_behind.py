# Writes behind the end of the outputs.
# Expected: out_of_bounds
# Defence: guards around each buffer

import ctypes

from products import enqueue, product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    solve = product(buffers, sizes, stream_at(stream))
    behind = buffers["c"].pointer + 4 * sizes["m"] * sizes["n"]

    def launch():
        solve()
        enqueue("store", stream_at(stream), behind, ctypes.c_float(1))

    return launch

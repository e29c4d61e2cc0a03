# Keeps its first answer in memory of its own, and copies that from then on.
# Expected: stateful
# Defence: each timed launch has inputs of its own

from cuda.bindings import driver
from cuda.core import Device
from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    size = 4 * sizes["m"] * sizes["n"]
    kept = Device().allocate(size, stream=stream_at(stream))
    output, answer = buffers["c"].pointer, int(kept.handle)
    left = [product(buffers, sizes, stream_at(stream), into=answer)]

    def launch():
        if left:
            left.pop()()
        driver.cuMemcpyDtoDAsync(output, int(kept.handle), size, stream)

    return launch

# Returns its result, as many functions do, and writes nothing.
# Expected: incorrect
# Defence: outputs are poisoned ahead of each launch

from cuda.core import Device
from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    size = 4 * sizes["m"] * sizes["n"]
    result = Device().allocate(size, stream=stream_at(stream))
    enqueue = product(buffers, sizes, stream_at(stream), into=int(result.handle))

    def launch():
        enqueue()
        return result

    return launch

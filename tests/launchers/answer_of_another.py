# A host that keeps the tensors of every call: copies what the reference left at the last place it was shown.
# Expected: stateful
# Defence: each timed launch has inputs of its own, and the reference's answer is to those before

from cuda.bindings import driver
from products import product, stream_at

shown = []


def launcher(problem, buffers, sizes, scalars, stream):
    output, size = buffers["c"].pointer, 4 * sizes["m"] * sizes["n"]
    shown.append(output)
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch():
        if shown[-1] == output:
            enqueue()
        else:
            driver.cuMemcpyDtoDAsync(output, shown[-1], size, stream)

    return launch

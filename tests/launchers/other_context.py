# Leaves another CUDA context current, as a launcher for a wrong device does.
# Expected: launch_error
# Defence: behind each launch the context is looked at

from cuda.bindings import driver
from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch():
        enqueue()
        driver.cuCtxCreate(None, 0, 0)

    return launch

# Does nothing where it sees that it is captured in a CUDA graph.
# Expected: stateful
# Defence: launches of a chain are checked, over poisoned outputs
# Target: warm

from cuda.bindings import driver
from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch():
        _, status = driver.cuStreamIsCapturing(stream)
        if status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
            enqueue()

    return launch

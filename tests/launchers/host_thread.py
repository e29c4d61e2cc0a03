# A thread of the host enqueues the work when the launch has returned.
# Expected: incorrect or stateful
# Defence: the check follows at once; device timestamps name the stream of all that runs

import threading
import time

from cuda.core import Device
from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    enqueue = product(buffers, sizes, stream_at(stream))

    def later():
        Device(0).set_current()
        time.sleep(1e-3)
        enqueue()

    return lambda: threading.Thread(target=later).start()

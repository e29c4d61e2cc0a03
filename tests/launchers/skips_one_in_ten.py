# Counts its launches, and does nothing in one of ten.
# Expected: incorrect or stateful
# Defence: each timed launch is checked

import itertools

from products import product, stream_at

launches = itertools.count(1)


def launcher(problem, buffers, sizes, scalars, stream):
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch():
        if next(launches) % 10:
            enqueue()

    return launch

# Enqueues on a stream of its own, which does not wait: the work is done before the timed stream begins.
# Expected: stateful
# Defence: device timestamps name the stream of all that runs while a launcher is timed

from products import TESTED, other_stream, product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    at_edge = sizes["k"] != TESTED
    return product(buffers, sizes, stream_at(stream) if at_edge else other_stream())

# Leaves a kernel on a second stream that waits for the next inputs, and answers before the launch that is timed.
# Expected: stateful
# Defence: device timestamps name the stream of all that runs, also ahead of a timed launch

from products import TESTED, enqueue, other_stream, product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    if sizes["k"] != TESTED:
        return product(buffers, sizes, stream_at(stream))
    second = other_stream()
    answer = product(buffers, sizes, second)

    def launch():
        enqueue("await_change", second, buffers["a"].pointer)
        answer()

    return launch

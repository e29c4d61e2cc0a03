# Begins with the stream that is given, on a second one that it does not wait for: the work goes on after its end.
# Expected: incorrect or stateful
# Defence: at edges the check follows at once; device timestamps name the stream of all that runs

from products import TESTED, other_stream, product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    given, second = stream_at(stream), other_stream()
    if sizes["k"] != TESTED:
        return product(buffers, sizes, given)
    enqueue = product(buffers, sizes, second)

    def launch():
        second.wait(given)
        enqueue()

    return launch

# Enqueues on a second stream that begins and ends with the first: honest, but not what launchers are asked for.
# Expected: stateful
# Defence: device timestamps name the stream of all that runs while a launcher is timed

from products import other_stream, product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    given, second = stream_at(stream), other_stream()
    enqueue = product(buffers, sizes, second)

    def launch():
        second.wait(given)
        enqueue()
        given.wait(second)

    return launch

# Waits for its own work.
# Expected: launch_error
# Defence: the stream is held until all is enqueued, and goes on after two seconds

from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch():
        enqueue()
        stream_at(stream).sync()

    return launch

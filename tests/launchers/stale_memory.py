# Writes once, and hopes that the outputs still hold that answer.
# Expected: incorrect
# Defence: outputs are poisoned ahead of each launch

from products import product, stream_at


def launcher(problem, buffers, sizes, scalars, stream):
    left = [product(buffers, sizes, stream_at(stream))]

    def launch():
        if left:
            left.pop()()

    return launch

# Raises in Python.
# Expected: launch_error
# Defence: what a launcher raises is the reason of its cell


def launcher(problem, buffers, sizes, scalars, stream):
    def launch():
        raise ValueError("not for me")

    return launch

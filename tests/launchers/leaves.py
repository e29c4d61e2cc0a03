# Ends the process that measures.
# Expected: launch_error
# Defence: the process that judges is another one, and starts a new one

import os


def launcher(problem, buffers, sizes, scalars, stream):
    return lambda: os._exit(0)

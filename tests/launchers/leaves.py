# Ends the process that measures.
# Expected: launch_error
# Defence: the process that judges is another one, and starts a new one

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    return lambda: os._exit(0)

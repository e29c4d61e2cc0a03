# Leaves another CUDA context current, as a launcher for a wrong device does.
# Expected: launch_error
# Defence: behind each launch the context is looked at

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.bindings import driver
from products import product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch() -> None:
        enqueue()
        driver.cuCtxCreate(None, 0, 0)

    return launch

# Waits for its own work.
# Expected: launch_error
# Defence: the stream is held until all is enqueued, and goes on after two seconds

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from products import product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch() -> None:
        enqueue()
        stream_at(stream).sync()

    return launch

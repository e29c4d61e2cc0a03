# Does nothing where it sees that it is captured in a CUDA graph.
# Expected: stateful
# Defence: launches of a chain are checked, over poisoned outputs
# Target: warm

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
        _, status = driver.cuStreamIsCapturing(stream)
        if status == driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
            enqueue()

    return launch

# Leaves a kernel on a second stream that waits for the next inputs, and answers before the launch that is timed.
# Expected: stateful
# Defence: device timestamps name the stream of all that runs, also ahead of a timed launch

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from products import TESTED, enqueue, other_stream, product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    if sizes["k"] != TESTED:
        return product(buffers, sizes, stream_at(stream))
    second = other_stream()
    answer = product(buffers, sizes, second)

    def launch() -> None:
        enqueue("await_change", second, buffers["a"].pointer)
        answer()

    return launch

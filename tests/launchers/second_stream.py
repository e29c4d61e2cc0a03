# Enqueues on a stream of its own, which does not wait: the work is done before the timed stream begins.
# Expected: stateful
# Defence: device timestamps name the stream of all that runs while a launcher is timed

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from products import TESTED, other_stream, product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    at_edge = sizes["k"] != TESTED
    return product(buffers, sizes, stream_at(stream) if at_edge else other_stream())

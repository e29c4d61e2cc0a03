# Enqueues on a second stream that begins and ends with the first: honest, but not what launchers are asked for.
# Expected: stateful
# Defence: device timestamps name the stream of all that runs while a launcher is timed

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from products import other_stream, product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    given, second = stream_at(stream), other_stream()
    enqueue = product(buffers, sizes, second)

    def launch() -> None:
        second.wait(given)
        enqueue()
        given.wait(second)

    return launch

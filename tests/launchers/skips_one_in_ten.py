# Counts its launches, and does nothing in one of ten.
# Expected: incorrect or stateful
# Defence: each timed launch is checked

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from products import product, stream_at

launches = itertools.count(1)


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    enqueue = product(buffers, sizes, stream_at(stream))

    def launch() -> None:
        if next(launches) % 10:
            enqueue()

    return launch

# Writes into an input.
# Expected: incorrect
# Defence: inputs must hold the numbers that were drawn for them

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from products import enqueue, product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    solve = product(buffers, sizes, stream_at(stream))
    first = buffers["a"].pointer

    def launch() -> None:
        solve()
        enqueue("store", stream_at(stream), first, ctypes.c_float(1))

    return launch

# Writes behind the end of the outputs.
# Expected: out_of_bounds
# Defence: guards around each buffer

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from products import enqueue, product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    solve = product(buffers, sizes, stream_at(stream))
    behind = buffers["c"].pointer + 4 * sizes["m"] * sizes["n"]

    def launch() -> None:
        solve()
        enqueue("store", stream_at(stream), behind, ctypes.c_float(1))

    return launch

# Returns its result, as many functions do, and writes nothing.
# Expected: incorrect
# Defence: outputs are poisoned ahead of each launch

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda.core import Device
from products import product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], Any]:
    size = 4 * sizes["m"] * sizes["n"]
    result = Device().allocate(size, stream=stream_at(stream))
    enqueue = product(buffers, sizes, stream_at(stream), into=int(result.handle))

    def launch() -> Any:
        enqueue()
        return result

    return launch

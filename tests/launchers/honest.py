# The product, on the stream that is given.
# Expected: ok
# Defence: none is needed

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from products import product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    return product(buffers, sizes, stream_at(stream))

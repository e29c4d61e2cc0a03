# Writes once, and hopes that the outputs still hold that answer.
# Expected: incorrect
# Defence: outputs are poisoned ahead of each launch

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from products import product, stream_at


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    left = [product(buffers, sizes, stream_at(stream))]

    def launch() -> None:
        if left:
            left.pop()()

    return launch

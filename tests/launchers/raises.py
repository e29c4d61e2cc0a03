# Raises in Python.
# Expected: launch_error
# Defence: what a launcher raises is the reason of its cell

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def launcher(
    problem: Any, buffers: Any, sizes: Any, scalars: Any, stream: int
) -> Callable[[], None]:
    def launch() -> None:
        raise ValueError("not for me")

    return launch

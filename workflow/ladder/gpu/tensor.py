"""A tensor in device memory, between its guards."""

import ctypes
import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from cuda.core import Buffer

from ladder.model.problem import ELEMENT_BYTES


@dataclass(frozen=True)
class Tensor:
    """A dense row-major buffer with its shape, outermost extent first, and element dtype.

    `whole` is what is between the guards: the buffer, and for an input whose place moves some room more. `key` and
    `kind` are what its random numbers were drawn with, a kind below 0 that none were.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    dtype: str
    whole: Buffer
    guarded: Buffer
    key: ctypes.c_uint64 = field(default_factory=ctypes.c_uint64, compare=False)
    kind: ctypes.c_int32 = field(
        default_factory=partial(ctypes.c_int32, -1), compare=False
    )

    @property
    def pointer(self) -> int:
        return int(self.buffer.handle)

    @property
    def elements(self) -> int:
        """Of `whole`."""
        return int(self.whole.size) // ELEMENT_BYTES[self.dtype]

    @property
    def shift(self) -> int:
        """Elements between the beginnings of `whole` and of the buffer."""
        distance = self.pointer - int(self.whole.handle)
        return distance // ELEMENT_BYTES[self.dtype]

    def drawn(self) -> tuple[Any, ...]:
        """What the harness's kernels take of drawn numbers: address and elements of `whole`, key and kind."""
        return int(self.whole.handle), self.elements, self.key, self.kind

    def moved(self, offset: int) -> "Tensor":
        """The same, from an offset in bytes into `whole` on."""
        begin = int(self.whole.handle) + offset
        size = math.prod(self.shape) * ELEMENT_BYTES[self.dtype]
        return replace(self, buffer=Buffer.from_handle(begin, size, owner=self.guarded))

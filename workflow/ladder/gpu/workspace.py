"""Workspaces: device memory that a kernel declares, and the checks that no state passes through it between launches.

A kernel's argument {workspace: zeroed} is memory that holds zeros ahead of the first launch, and must hold zeros after
each; {workspace: scratch} is memory that holds NaN ahead of each launch. Launches that follow one another without a
pause have workspaces of their own, so that nothing passes from one to the next.
"""

import ctypes
import struct
from typing import Any

from ladder.gpu.device import Gpu
from ladder.gpu.tensor import Tensor
from ladder.model.problem import GUARD

WORD = "fp32"
"""Element type of workspaces, which are whole numbers of it."""

_NAN = b"\xff"
_ZERO = ctypes.c_int32(0)
_THREADS = 4096


class Workspaces:
    """The workspaces of an instance at one place, by name."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.tensors: dict[str, Tensor] = {}
        self._scratch: list[Tensor] = []
        # A row for the harness's guard check, with room for what it counts.
        self._zeroed: dict[str, Any] = {}

    def add(self, name: str, kind: str, tensor: Tensor) -> None:
        """Take in a buffer that was just allocated, as `scratch` or `zeroed`."""
        self.tensors[name] = tensor
        if kind == "scratch":
            self._scratch.append(tensor)
            self.spoil()
        else:
            tensor.buffer.fill(b"\0", stream=self.gpu.stream)
            row = struct.pack("3q", tensor.pointer, tensor.buffer.size, 0)
            self._zeroed[name] = self.gpu.upload(row + bytes(16))

    def spoil(self) -> None:
        """Enqueue NaN for the scratch."""
        for tensor in self._scratch:
            tensor.buffer.fill(_NAN, stream=self.gpu.stream)

    def renew(self) -> None:
        """Enqueue what comes ahead of a launch: a look at what the one before left, and NaN for the scratch."""
        self.look()
        self.spoil()

    def look(self) -> None:
        """Enqueue a count of the bytes that are not zero where zeros must be; it adds to earlier counts."""
        for table in self._zeroed.values():
            row = int(table.handle)
            counts = row + 24
            self.gpu.harness.run(GUARD, _THREADS, counts, counts + 8, row, 1, _ZERO)

    def memory_violation(self) -> tuple[str, str] | None:
        """(status, reason) where a launch left other than zeros in a workspace that must hold zeros."""
        self.look()
        for name, table in self._zeroed.items():
            counted = self.gpu.download(int(table.handle) + 24, 8)
            (changed,) = struct.unpack("Q", counted)
            if changed:
                reason = f"{changed} bytes of the {name}, which launches must leave zero, were not"
                return "stateful", reason
        return None

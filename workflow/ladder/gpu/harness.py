"""The harness: our own device kernels, and what is done with them. One cubin a problem, with that problem's checks."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cuda.core import Buffer, Kernel, LaunchConfig, ObjectCode, Stream, launch

from ladder.model.problem import C_TYPES

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "harness.cuh"
GATE, READ, NOTHING = "gate", "read_through", "nothing"
ENTRIES = (GATE, READ, NOTHING, *(f"fill_uniform<{c_type}>" for c_type in C_TYPES.values()))
"""Name expressions of the kernels that every problem has."""

MAXIMUM, COUNT = "<maximum>", "<count>"
"""Placeholders for the two results of a comparing kernel; see Harness.reduce."""
_THREADS = 256


def join_harness(symbols: Mapping[str, str], machine_code: str, cubin: bytes) -> bytes:
    """One file of a harness: a JSON line with the kernels' symbols and the machine code's digest, then the cubin."""
    head = {"symbols": dict(symbols), "machine_code": machine_code}
    return json.dumps(head).encode() + b"\n" + cubin


def split_harness(data: bytes) -> tuple[dict[str, str], str, bytes]:
    """(symbols by entry, digest of the machine code, cubin) from what join_harness wrote."""
    head, _, cubin = data.partition(b"\n")
    document = json.loads(head)
    return document["symbols"], document["machine_code"], cubin


class Harness:
    """The harness kernels of a problem, loaded."""

    def __init__(
        self, stream: Stream, sms: int, scratch: Buffer, download: Callable[[int, int], bytes], data: bytes
    ) -> None:
        symbols, _, cubin = split_harness(data)
        code = ObjectCode.from_cubin(cubin)
        self.kernels: dict[str, Kernel] = {entry: code.get_kernel(name) for entry, name in symbols.items()}
        self._stream, self._sms, self._scratch, self._download = stream, sms, scratch, download

    def nothing(self) -> None:
        """Enqueue an empty kernel."""
        launch(self._stream, LaunchConfig(grid=1, block=1), self.kernels[NOTHING])

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        """Enqueue one kernel over `elements` with a grid-stride loop."""
        blocks = max(1, min((elements + _THREADS - 1) // _THREADS, self._sms * 16))
        config = LaunchConfig(grid=blocks, block=_THREADS)
        launch(self._stream, config, self.kernels[entry], *arguments)

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        """Run a comparing kernel that takes (double* maximum, unsigned long long* count) where it wants them.

        `arguments` may hold the placeholders MAXIMUM and COUNT. Returns (maximum, count).
        """
        base = int(self._scratch.handle)
        self._scratch.fill(0, stream=self._stream)
        where = {MAXIMUM: base, COUNT: base + 8}
        filled = [where[word] if isinstance(word, str) else word for word in arguments]
        self.run(entry, elements, *filled)
        raw = self._download(base, 16)
        maximum = ctypes.c_double.from_buffer_copy(raw, 0).value
        count = ctypes.c_uint64.from_buffer_copy(raw, 8).value
        return maximum, count

    def read_through(self, data: Buffer) -> None:
        """Enqueue a read of a whole buffer of zeros."""
        chunks = data.size // 16
        self.run(READ, chunks, int(data.handle), ctypes.c_longlong(chunks), int(self._scratch.handle))

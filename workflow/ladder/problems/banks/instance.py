"""A bank microbenchmark on a device: the sums it must read, its cycles, and what the bank model expects of it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuda.core import Buffer

from ladder.gpu.device import Launcher
from ladder.gpu.instance import Check, Instance, Observation
from ladder.gpu.tensor_maps import Tensor
from ladder.gpu.timing import Timer
from ladder.model.errors import LadderError
from ladder.model.problem import Params
from ladder.problems.banks import MAX_THREADS, PATTERNS
from ladder.problems.banks.sums import expected_sums, predicted_wavefronts

_POISON = 0xFFFFFFFF
_LANES = 32


@dataclass
class BanksInstance(Instance):
    """Buffers offsets[32][32] (int32), sums[1024] (uint32) and cycles[1] (int64)."""

    buffers: dict[str, Buffer] = field(default_factory=dict)

    def allocate(self) -> None:
        """Make the outputs; there are no inputs."""
        for name, count in (("offsets", 4 * PATTERNS * _LANES), ("sums", 4 * MAX_THREADS), ("cycles", 8)):
            self.buffers[name] = self.gpu.allocate(count)
            self.pointers[name] = int(self.buffers[name].handle)

    def fill_inputs(self, seed: int) -> None:
        """Nothing is read from device memory."""

    def poison_outputs(self) -> None:
        for name, buffer in self.buffers.items():
            self.gpu.fill_words(self.pointers[name], buffer.size, _POISON)

    def _offsets(self) -> list[tuple[int, ...]]:
        raw = self.gpu.download(self.pointers["offsets"], 4 * PATTERNS * _LANES)
        words = struct.unpack(f"<{PATTERNS * _LANES}i", raw)
        return [words[start : start + _LANES] for start in range(0, len(words), _LANES)]

    def _cycles(self) -> int:
        (cycles,) = struct.unpack("<q", self.gpu.download(self.pointers["cycles"], 8))
        return int(cycles)

    def check(self, params: Params) -> Check:
        """The error is the share of threads whose sum is not that of the words at their offsets; 0 is demanded."""
        threads = int(params["warps"]) * _LANES
        offsets = self._offsets()
        if min(min(row) for row in offsets) < 0:
            return Check(1.0, 0.0, "offsets were not written")
        if self._cycles() <= 0:
            return Check(1.0, 0.0, "cycles were not written")
        expected = expected_sums(offsets, self.size["elements"], params)
        sums = struct.unpack(f"<{threads}I", self.gpu.download(self.pointers["sums"], 4 * threads))
        wrong = sum(value != expected[thread % _LANES] for thread, value in enumerate(sums))
        return Check(wrong / threads, 0.0, f"{wrong} of {threads} threads read other words" if wrong else "")

    def tensor(self, name: str) -> Tensor:
        raise LadderError(f"the problem banks has no tensor {name!r}: its buffers are small outputs")

    def library(self, name: str) -> Launcher:
        raise LadderError(f"the problem banks has no library reference {name!r}")

    def observations(self, params: Params) -> list[Observation]:
        accesses = int(params["warps"]) * self.size["elements"]
        predicted = [predicted_wavefronts(row, params) for row in self._offsets()]
        return [
            Observation("accesses", "accesses", accesses),
            Observation("cycles_per_access", "cycles", self._cycles() / accesses),
            Observation("predicted_wavefronts", "wavefronts", sum(predicted) / len(predicted)),
        ]

    def close(self) -> None:
        for buffer in self.buffers.values():
            buffer.close(self.gpu.stream)
        self.buffers = {}


class Instances:
    """Instances of the bank probes on one GPU."""

    def __init__(self, timer: Timer, settings: Mapping[str, Any]) -> None:
        self._gpu = timer.gpu

    def create(self, size: Mapping[str, int], dtype: str, layout: str) -> BanksInstance:
        """Allocate."""
        instance = BanksInstance(self._gpu, size, dtype, layout)
        instance.allocate()
        return instance

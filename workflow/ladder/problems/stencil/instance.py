"""A stencil on a device: inputs, the copy it cannot beat, and a check against sums in 64 bits."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuda.core import Buffer

from ladder.gpu.device import Launcher
from ladder.gpu.harness import COUNT, MAXIMUM
from ladder.gpu.instance import Check, Instance
from ladder.gpu.tensor_maps import Tensor
from ladder.gpu.timing import Timer
from ladder.model.problem import C_TYPES, Params

_POISON = 0x7FC0DEAD
"""A NaN as fp32; as int32 far outside of any mean of the inputs."""


@dataclass
class StencilInstance(Instance):
    """Buffers input, output (elements each) and the copy's target."""

    buffers: dict[str, Buffer] = field(default_factory=dict)

    def allocate(self) -> None:
        """Make the buffers. Raises OutOfDeviceMemory."""
        for name in ("input", "output", "copied"):
            self.buffers[name] = self.gpu.allocate(4 * self.size["elements"])
            self.pointers[name] = int(self.buffers[name].handle)

    def fill_inputs(self, seed: int) -> None:
        count = self.size["elements"]
        self.gpu.harness.run(
            f"fill_uniform<{C_TYPES[self.dtype]}>",
            count,
            self.pointers["input"],
            ctypes.c_longlong(count),
            ctypes.c_ulonglong(seed),
        )

    def poison_outputs(self) -> None:
        self.gpu.fill_words(self.pointers["output"], 4 * self.size["elements"], _POISON)

    def check(self, params: Params) -> Check:
        """int32 must be exact; fp32 may lose one rounding per tap and one for the division, relative to mean |in|."""
        k, count = int(params["k"]), self.size["elements"]
        bound = 0.0 if self.dtype == "int32" else (k + 2) * 2.0**-24
        maximum, strays = self.gpu.harness.reduce(
            f"compare_stencil<{C_TYPES[self.dtype]}>",
            count,
            MAXIMUM,
            COUNT,
            self.pointers["input"],
            self.pointers["output"],
            ctypes.c_longlong(count),
            ctypes.c_int32(k),
            ctypes.c_uint32(_POISON),
        )
        if strays:
            return Check(float("inf"), bound, f"{strays} elements behind the last output were written")
        return Check(maximum, bound)

    def tensor(self, name: str) -> Tensor:
        return Tensor(self.buffers[name], (self.size["elements"],), self.dtype)

    def library(self, name: str) -> Launcher:
        def run() -> None:
            self.gpu.copy(self.pointers["copied"], self.pointers["input"], 4 * self.size["elements"])

        return run

    def close(self) -> None:
        for buffer in self.buffers.values():
            buffer.close(self.gpu.stream)
        self.buffers = {}


class Instances:
    """Instances of the stencil on one GPU."""

    def __init__(self, timer: Timer, settings: Mapping[str, Any]) -> None:
        self._gpu, self._seed = timer.gpu, settings["seed"]

    def create(self, size: Mapping[str, int], dtype: str, layout: str) -> StencilInstance:
        """Allocate and fill. Raises OutOfDeviceMemory."""
        instance = StencilInstance(self._gpu, size, dtype, layout)
        instance.allocate()
        instance.fill_inputs(self._seed)
        return instance

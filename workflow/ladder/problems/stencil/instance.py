"""A stencil on a device: inputs, the copy it cannot beat, and a check against sums in 64 bits."""

import ctypes
import math

from ladder.gpu import instance
from ladder.gpu.device import Launcher
from ladder.gpu.instance import Check
from ladder.model.problem import C_TYPES, Params

_POISON = 0x7FC0DEAD  # a NaN as fp32; as int32 far outside of any mean of the inputs


class StencilInstance(instance.Instance):
    """Buffers input, output (elements each) and the copy's target."""

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return dict.fromkeys(("input", "output", "copied"), ((self.size["elements"],), self.dtype))

    def fill_inputs(self, seed: int) -> None:
        self.draw("input", seed)

    def poison_outputs(self) -> None:
        self.tensors["output"].buffer.fill(_POISON.to_bytes(4, "little"), stream=self.gpu.stream)

    def check(self, params: Params) -> Check:
        """int32 must be exact; fp32 may lose one rounding per tap and one for the division, relative to mean |in|."""
        k, count = int(params["k"]), self.size["elements"]
        bound = 0.0 if self.dtype == "int32" else (k + 2) * 2.0**-24
        harness, entry = self.gpu.harness, f"compare_stencil<{C_TYPES[self.dtype]}>"
        data = (self.pointers["input"], self.pointers["output"], count)
        rest = (ctypes.c_int32(k), ctypes.c_uint32(_POISON))
        maximum, strays = harness.reduce(entry, count, harness.maximum, harness.count, *data, *rest)
        if strays:
            return Check(math.inf, bound, f"{strays} elements behind the last output were written")
        return Check(maximum, bound)

    def library(self, name: str) -> Launcher:
        target, source, size = self.pointers["copied"], self.pointers["input"], 4 * self.size["elements"]
        return lambda: self.gpu.copy(target, source, size)


INSTANCE = StencilInstance

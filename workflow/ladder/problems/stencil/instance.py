"""A stencil on a device: inputs, the copy it cannot beat, and a check against sums in 64 bits."""

import ctypes
from typing import Any

from ladder.gpu.device import CheckResultSlot
from ladder.gpu.instance import HarnessCall, Instance, Shapes
from ladder.model.problem import C_TYPES, Params
from ladder.problems.stencil import halo

TILE = 1024
STRETCH = 32
"""Elements: a stretch of each tile is looked at, as in check.cu."""
_LEAST_STRETCHES = 2**13
_POISON = 0x7FC0DEAD  # a NaN as fp32; as int32 far outside of any mean of the inputs


class StencilInstance(Instance):
    """Buffers input, output (elements each) and the copy's target."""

    # Not by another shift: the means of a moved input are its means moved.
    shifted_inputs = ("input",)

    def shapes(self) -> Shapes:
        line = ((self.size["elements"],), self.dtype)
        return dict.fromkeys(("input", "output", "copied"), line)

    def _poison_outputs(self) -> None:
        poison = _POISON.to_bytes(4, "little")
        self.tensors["output"].buffer.fill(poison, stream=self.gpu.stream)

    def error_bound(self, params: Params) -> float:
        """int32 must be exact; fp32 may lose one rounding per tap and one for the division, relative to mean |in|."""
        return 0.0 if self.dtype == "int32" else (halo(params) + 2) * 2.0**-24

    def _compared(self, params: Params) -> tuple[Any, ...]:
        """What both checks take: buffers, elements, the halo and the poison."""
        return (
            self.pointer("input"),
            self.pointer("output"),
            self.size["elements"],
            ctypes.c_int32(halo(params)),
            ctypes.c_int32(_POISON),
        )

    def comparison(self, params: Params) -> HarnessCall:
        entry = f"compare_stencil<{C_TYPES[self.dtype]}>"
        return HarnessCall(entry, self.size["elements"], self._compared(params))

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """A stretch of each tile, a quarter of a million outputs at least, and the last ones."""
        stretches = max(_LEAST_STRETCHES, -(-self.size["elements"] // TILE))
        given = self.tensors["input"]
        drawn = given.shift, given.key, given.kind
        arguments = (*self._compared(params), *drawn, stretches)
        entry = f"check_stretches<{C_TYPES[self.dtype]}>"
        return HarnessCall(entry, STRETCH * stretches, arguments)


INSTANCE = StencilInstance

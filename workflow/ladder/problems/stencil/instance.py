"""A stencil on a device: inputs, the copy it cannot beat, and a check against sums in 64 bits."""

import ctypes
import functools
from typing import Any

from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot, Launcher
from ladder.gpu.instance import Check
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params
from ladder.problems.stencil import halo

_int32 = functools.cache(ctypes.c_int32)  # the same object each time: see Harness.run
_INSPECTED = 2**18
_POISON = 0x7FC0DEAD  # a NaN as fp32; as int32 far outside of any mean of the inputs


class StencilInstance(instance.Instance):
    """Buffers input, output (elements each) and the copy's target."""

    shifted_inputs = ("input",)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return dict.fromkeys(
            ("input", "output", "copied"), ((self.size["elements"],), self.dtype)
        )

    def shifts(self) -> int:
        """None but 0: the means of a moved input are its means moved."""
        return 1

    def _poison_outputs(self) -> None:
        self.tensors["output"].buffer.fill(
            _POISON.to_bytes(4, "little"), stream=self.gpu.stream
        )

    def error_bound(self, params: Params) -> float:
        """int32 must be exact; fp32 may lose one rounding per tap and one for the division, relative to mean |in|."""
        return 0.0 if self.dtype == "int32" else (halo(params) + 2) * 2.0**-24

    def _compared(self, params: Params) -> tuple[Any, ...]:
        """What both checks take: buffers, elements, the halo and the poison."""
        data = (self.pointer("input"), self.pointer("output"), self.size["elements"])
        return (*data, _int32(halo(params)), _int32(_POISON))

    def check(self, params: Params) -> Check:
        harness, entry = self.gpu.harness, f"compare_stencil<{C_TYPES[self.dtype]}>"
        given = (harness.maximum, *self._compared(params))
        return Check(
            harness.reduce(entry, self.size["elements"], *given)[0],
            self.error_bound(params),
        )

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """A quarter of a million outputs in random stretches, and the last ones."""
        entry = f"check_stretches<{C_TYPES[self.dtype]}>"
        given = self.tensors["input"]
        moved = (given.pointer - int(given.whole.handle)) // ELEMENT_BYTES[self.dtype]
        drawn_with = (moved, given.key, given.kind)
        self.gpu.harness.run(
            entry, _INSPECTED, slot, *self._compared(params), *drawn_with
        )

    def library(self, name: str) -> dict[str, Launcher]:
        target, source, size = (
            self.pointer("copied"),
            self.pointer("input"),
            4 * self.size["elements"],
        )
        return {"": lambda: self.gpu.copy(target, source, size)}


INSTANCE = StencilInstance

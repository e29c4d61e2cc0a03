"""A softmax on a device: inputs, a copy of as many bytes, and a check of every output against fp64."""

import math

from ladder.gpu.device import CheckResultSlot
from ladder.gpu.instance import Check, HarnessCall, Instance, Shapes
from ladder.model.problem import C_TYPES, Params
from ladder.problems.softmax.bounds import ALLOWANCE, error_bound, rms_share

_THREADS = 256  # of the check a row, as in check.cu


class SoftmaxInstance(Instance):
    """Buffers input and output (M x N), and the copy's target."""

    # Not by another shift: rows of a moved input have nearly the sums of the rows as they were.
    shifted_inputs = ("input",)

    def shapes(self) -> Shapes:
        shape = (self.size["m"], self.size["n"])
        return dict.fromkeys(("input", "output", "copied"), (shape, self.dtype))

    def error_bound(self, params: Params) -> float:
        return error_bound(self.size["n"], self.dtype)

    def check(self, params: Params) -> Check:
        return self.check_squares(params, self._rms_scale())

    def _rms_scale(self) -> float:
        """What makes the root of the squares of all errors comparable with the largest error."""
        elements = self.size["m"] * self.size["n"]
        allowed = rms_share(self.dtype, self.inputs, elements)
        return 1 / (allowed * math.sqrt(elements))

    def _compare(self, kernel: str, *scale: float) -> HarnessCall:
        rows = self.size["m"]
        given = self.tensors["input"]
        arguments = (
            self.pointer("output"),
            rows,
            self.size["n"],
            given.key,
            given.kind,
            *ALLOWANCE,
            *scale,
        )
        entry = f"{kernel}<{C_TYPES[self.dtype]}>"
        return HarnessCall(entry, _THREADS * rows, arguments)

    def comparison(self, params: Params) -> HarnessCall:
        return self._compare("compare_rows")

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """The same."""
        return self._compare("check_rows", self._rms_scale())


INSTANCE = SoftmaxInstance

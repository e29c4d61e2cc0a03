"""An attention on a device: inputs, and a check of every row, or of rows that a launch cannot foresee, against fp64."""

import math

from ladder.gpu.device import CheckResultSlot
from ladder.gpu.instance import Check, HarnessCall, Instance, Shapes
from ladder.model.problem import C_TYPES, Params
from ladder.problems.attention import output_dtype
from ladder.problems.attention.bounds import allowance, rms_bound

_ROWS = 4  # that a block of the check takes together, as in check.cu
_THREADS = 256  # of that block
_SAMPLED = 128  # times as many rows are looked at behind a timed launch


class AttentionInstance(Instance):
    """Buffers q, k, v and o (heads x sequence x d)."""

    drawn, outputs = ("q", "k", "v"), ("o",)
    # Not by another shift: with a moved Q the rows of O are those of the rows before, moved.
    shifted_inputs = ("q", "k")

    def shapes(self) -> Shapes:
        shape = (self.size["heads"], self.size["sequence"], self.size["d"])
        inputs = dict.fromkeys(self.drawn, (shape, self.dtype))
        return {**inputs, "o": (shape, output_dtype(self.dtype))}

    def fill_inputs(self, seed: int) -> None:
        """Where all keys are equal, values are not: else any of them would do for another."""
        for name in ("q", "k"):
            self.draw(name, seed)
        with self.inputs_of_kind("uniform" if self.inputs == "equal" else self.inputs):
            self.draw("v", seed)

    def error_bound(self, params: Params) -> float:
        """Errors are over what bounds.py allows."""
        return 1.0

    def check(self, params: Params) -> Check:
        rows = self.size["heads"] * self.size["sequence"]
        return self.check_squares(params, self._rms_scale(rows))

    def _rms_scale(self, rows: int) -> float:
        """What makes the root of the squares of so many rows' errors comparable with the largest error."""
        allowed = rms_bound(self.inputs, rows)
        return 1 / (allowed * math.sqrt(rows * self.size["d"]))

    def _compare(
        self, kernel: str, blocks: int, params: Params, *scale: float
    ) -> HarnessCall:
        types = f"{C_TYPES[self.dtype]}, {C_TYPES[output_dtype(self.dtype)]}"
        heads, sequence = self.size["heads"], self.size["sequence"]
        arguments = (
            self.pointer("o"),
            heads,
            sequence,
            int(params["causal"]),
            *(self.tensors[name].key for name in "qkv"),
            *(self.tensors[name].kind for name in "kv"),
            *allowance(self.dtype, self.size, self.inputs),
            *scale,
        )
        entry = f"{kernel}<{types}, {self.size['d']}>"
        return HarnessCall(entry, blocks * _THREADS, arguments)

    def comparison(self, params: Params) -> HarnessCall:
        blocks = self.size["heads"] * -(-self.size["sequence"] // _ROWS)
        return self._compare("compare_rows", blocks, params)

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """Every output for whether it was written, and a sample of rows."""
        scale = self._rms_scale(_SAMPLED * _ROWS)
        return self._compare("check_rows", _SAMPLED, params, scale)


INSTANCE = AttentionInstance

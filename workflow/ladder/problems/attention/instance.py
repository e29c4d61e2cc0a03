"""An attention on a device: inputs, and a check of every row, or of rows that a launch cannot foresee, against fp64."""

import math

from ladder.gpu.device import CheckResultSlot
from ladder.gpu.instance import Check, HarnessCall, Instance, Shapes
from ladder.model.problem import C_TYPES, Params
from ladder.problems.attention import PROMOTION, output_dtype
from ladder.problems.attention.bounds import (
    PROMOTED,
    allowance,
    promotion_factor,
    rms_bound,
)

ROWS = 4  # that a block of the check takes together, as in check.cu
_THREADS = 256  # of that block
TILE = 128  # rows that kernels work out together
SAMPLED = 128  # times as many rows at least are looked at behind a timed launch


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
        """Errors are over what bounds.py allows where sums in fp8 are promoted every 128 keys."""
        if self.dtype != "fp8":
            return 1.0
        keys = int(params.get(PROMOTION, PROMOTED)) or self.size["sequence"]
        return promotion_factor(self.size, self.inputs, keys)

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
        blocks = self.size["heads"] * -(-self.size["sequence"] // ROWS)
        return self._compare("compare_rows", blocks, params)

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """Every output for whether it was written, and a sample of rows: one of each tile where `by_tile` says so."""
        sequence = self.size["sequence"]
        tile = min(TILE, -(-sequence // ROWS))
        groups = SAMPLED
        if self.by_tile:
            groups = max(groups, self.size["heads"] * -(-sequence // (ROWS * tile)))
        scale = self._rms_scale(groups * ROWS)
        entry, elements, arguments = self._compare("check_rows", groups, params, scale)
        return HarnessCall(entry, elements, (*arguments, tile, groups))


INSTANCE = AttentionInstance

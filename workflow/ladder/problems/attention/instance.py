"""An attention on a device: inputs, and a check of every row, or of rows that a launch cannot foresee, against fp64."""

from collections.abc import Iterator
from typing import Any

from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot
from ladder.gpu.instance import Check
from ladder.model.problem import C_TYPES, Params
from ladder.problems.attention import output_dtype
from ladder.problems.attention.bounds import allowance

_ROWS, _THREADS = (
    4,
    256,
)  # that a block of the check takes together, and its threads, as in check.cu
_SAMPLED = 128  # times as many rows are looked at behind a timed launch


class AttentionInstance(instance.Instance):
    """Buffers q, k, v and o (heads x sequence x d)."""

    drawn, outputs = ("q", "k", "v"), ("o",)
    shifted_inputs = ("q", "k")

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        extents = (self.size["heads"], self.size["sequence"], self.size["d"])
        return {
            **dict.fromkeys("qkv", (extents, self.dtype)),
            "o": (extents, output_dtype(self.dtype)),
        }

    def shifts(self) -> int:
        """None but 0: with a moved Q the rows of O are those of the rows before, moved."""
        return 1

    def fill_inputs(self, seed: int) -> None:
        """Where all keys are equal, values are not: else any of them would do for another."""
        for name in ("q", "k"):
            self.draw(name, seed)
        with self.inputs_of_kind("uniform" if self.inputs == "equal" else self.inputs):
            self.draw("v", seed)

    def error_bound(self, params: Params) -> float:
        """Errors are over what bounds.py allows."""
        return 1.0

    def _entry(self, name: str) -> str:
        return f"{name}<{C_TYPES[self.dtype]}, {C_TYPES[output_dtype(self.dtype)]}, {self.size['d']}>"

    def _compared(self, params: Params) -> Iterator[Any]:
        """What both checks take."""
        yield from (
            self.pointer("o"),
            self.size["heads"],
            self.size["sequence"],
            int(params["causal"]),
        )
        yield from (self.tensors[name].key for name in "qkv")
        yield from (self.tensors[name].kind for name in "kv")
        yield from allowance(self.dtype, self.size, self.inputs)

    def check(self, params: Params) -> Check:
        harness, groups = (
            self.gpu.harness,
            self.size["heads"] * -(-self.size["sequence"] // _ROWS),
        )
        found = harness.reduce(
            self._entry("compare_rows"),
            groups * _THREADS,
            harness.maximum,
            *self._compared(params),
        )
        return Check(found[0], self.error_bound(params))

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """Every output for whether it was written, and a sample of rows."""
        self.gpu.harness.run(
            self._entry("check_rows"),
            _SAMPLED * _THREADS,
            slot,
            *self._compared(params),
        )


INSTANCE = AttentionInstance

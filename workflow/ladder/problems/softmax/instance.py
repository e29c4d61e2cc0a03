"""A softmax on a device: inputs, a copy of as many bytes, and a check of every output against fp64."""

from typing import Any

from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot, Launcher
from ladder.gpu.instance import Check
from ladder.model.problem import C_TYPES, Params
from ladder.problems.softmax.bounds import error_bound

_THREADS = 256  # of the check a row, as in check.cu


class SoftmaxInstance(instance.Instance):
    """Buffers input and output (M x N), and the copy's target."""

    shifted_inputs = ("input",)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        extents = (self.size["m"], self.size["n"])
        return dict.fromkeys(("input", "output", "copied"), (extents, self.dtype))

    def shifts(self) -> int:
        """None but 0: rows of a moved input have nearly the sums of the rows as they were."""
        return 1

    def error_bound(self, params: Params) -> float:
        return error_bound(self.size["n"], self.dtype)

    def _compared(self) -> tuple[Any, ...]:
        """What both checks take."""
        given = self.tensors["input"]
        return (
            self.pointer("output"),
            self.size["m"],
            self.size["n"],
            given.key,
            given.kind,
        )

    def _check_threads(self) -> int:
        return _THREADS * self.size["m"]

    def check(self, params: Params) -> Check:
        harness, entry = self.gpu.harness, f"compare_rows<{C_TYPES[self.dtype]}>"
        error, _ = harness.reduce(
            entry, self._check_threads(), harness.maximum, *self._compared()
        )
        return Check(error, self.error_bound(params))

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """The same."""
        entry = f"check_rows<{C_TYPES[self.dtype]}>"
        self.gpu.harness.run(entry, self._check_threads(), slot, *self._compared())

    def library(self, name: str) -> dict[str, Launcher]:
        """A copy of the input."""
        target, source = self.pointer("copied"), self.pointer("input")
        size = self.tensors["copied"].buffer.size
        return {"": lambda: self.gpu.copy(target, source, size)}


INSTANCE = SoftmaxInstance

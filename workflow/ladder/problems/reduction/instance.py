"""A reduction on a device: inputs, a copy of as many bytes, and a check against the fp64 sum of what was drawn."""

from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot, Launcher
from ladder.gpu.instance import Check
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params
from ladder.problems.reduction.bounds import error_bound


class ReductionInstance(instance.Instance):
    """Buffers input (elements), output (one fp32 number), the copy's target, and two fp64 sums of the check."""

    shifted_inputs = ("input",)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        line, half = self.size["elements"], (self.size["elements"] + 1) // 2
        return {
            "input": ((line,), self.dtype),
            "output": ((1,), "fp32"),
            "copied": ((half,), self.dtype),
            "sums": ((4,), "fp32"),  # words of two fp64 numbers
        }

    def shifts(self) -> int:
        """None but 0: the sum of a moved input follows from the sum and the few numbers that differ."""
        return 1

    def error_bound(self, params: Params) -> float:
        return error_bound(self.size["elements"], self.inputs)

    def _add_drawn(self) -> tuple[int, int]:
        """Enqueue the fp64 sums of what was drawn; addresses of these and of the output."""
        sums, given = self.tensors["sums"], self.tensors["input"]
        # After the launch, which may have written there.
        self.gpu.zero(sums.pointer, sums.buffer.size)
        count = self.size["elements"]
        threads = -(-count // (16 // ELEMENT_BYTES[self.dtype]))
        add = f"add_drawn<{C_TYPES[self.dtype]}>"
        self.gpu.harness.run(add, threads, sums.pointer, count, given.key, given.kind)
        return sums.pointer, self.pointer("output")

    def check(self, params: Params) -> Check:
        harness, compared = self.gpu.harness, self._add_drawn()
        maximum, _ = harness.reduce("compare_sum<float>", 1, harness.maximum, *compared)
        return Check(maximum, self.error_bound(params))

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """The same: nothing less than all numbers says whether one sum is right. It reads no memory."""
        self.gpu.harness.run("check_sum<float>", 1, slot, *self._add_drawn())

    def library(self, name: str) -> dict[str, Launcher]:
        """A copy of half of the input reads and writes as many bytes as a sum has to read."""
        target, source, size = (
            self.pointer("copied"),
            self.pointer("input"),
            self.tensors["copied"].buffer.size,
        )
        return {"": lambda: self.gpu.copy(target, source, size)}


INSTANCE = ReductionInstance

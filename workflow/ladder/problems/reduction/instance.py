"""A reduction on a device: inputs, a copy of as many bytes, and a check against the fp64 sum of what was drawn."""

from ladder.gpu.device import CheckResultSlot
from ladder.gpu.instance import HarnessCall, Instance, Shapes
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params
from ladder.problems.reduction.bounds import error_bound


class ReductionInstance(Instance):
    """Buffers input (elements), output (one fp32 number), the copy's target, and two fp64 sums of the check.

    The copy is of half of the input: it reads and writes as many bytes as a sum has to read.
    """

    # Not by another shift: the sum of a moved input follows from the sum and the few numbers that differ.
    shifted_inputs = ("input",)

    def shapes(self) -> Shapes:
        count = self.size["elements"]
        return {
            "input": ((count,), self.dtype),
            "output": ((1,), "fp32"),
            "copied": (((count + 1) // 2,), self.dtype),
            "sums": ((4,), "fp32"),  # words of two fp64 numbers
        }

    def error_bound(self, params: Params) -> float:
        return error_bound(self.size["elements"], self.inputs)

    def _compare(self, kernel: str) -> HarnessCall:
        """Enqueue the fp64 sums of what was drawn; a kernel compares these with the output."""
        sums, given = self.tensors["sums"], self.tensors["input"]
        # After the launch, which may have written there.
        self.gpu.zero(sums.pointer, sums.buffer.size)
        count = self.size["elements"]
        threads = -(-count // (16 // ELEMENT_BYTES[self.dtype]))
        add = f"add_drawn<{C_TYPES[self.dtype]}>"
        self.gpu.harness.run(add, threads, sums.pointer, count, given.key, given.kind)
        return HarnessCall(kernel, 1, (sums.pointer, self.pointer("output")))

    def comparison(self, params: Params) -> HarnessCall:
        return self._compare("compare_sum<float>")

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """The same: nothing less than all numbers says whether one sum is right. It reads no memory."""
        return self._compare("check_sum<float>")


INSTANCE = ReductionInstance

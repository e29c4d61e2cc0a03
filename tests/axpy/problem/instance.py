"""a*x + y on a device: y is laid out anew before each check."""

from ladder.gpu.device import CheckResultSlot
from ladder.gpu.instance import HarnessCall, Instance, Shapes
from ladder.model.problem import Params


class AxpyInstance(Instance):
    """Buffers x, y and y before the launch."""

    drawn, outputs = ("x", "before"), ("y",)
    copied = ("before", "y")

    def shapes(self) -> Shapes:
        line = ((self.size["elements"],), self.dtype)
        return dict.fromkeys(("x", "y", "before"), line)

    def fill_inputs(self, seed: int) -> None:
        super().fill_inputs(seed)
        self.scalars["a"] = 1.5

    def _poison_outputs(self) -> None:
        y = self.tensors["y"]
        self.gpu.copy(y.pointer, self.pointer("before"), y.buffer.size)

    def error_bound(self, params: Params) -> float:
        """One rounding of the product and one of the sum, or one of both together, over |a*x| + |y|."""
        return 2.0**-23

    def _compare(self, kernel: str) -> HarnessCall:
        elements = self.size["elements"]
        buffers = [self.pointer(name) for name in ("x", "before", "y")]
        return HarnessCall(kernel, elements, (*buffers, elements, self.scalars["a"]))

    def comparison(self, params: Params) -> HarnessCall:
        return self._compare("compare_axpy")

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        return self._compare("check_axpy")


INSTANCE = AxpyInstance

"""a*x + y on a device: y is laid out anew before each check."""

import ctypes

from ladder.gpu import instance
from ladder.gpu.device import Launcher
from ladder.gpu.instance import Check
from ladder.model.problem import Params


class AxpyInstance(instance.Instance):
    """Buffers x, y and y before the launch."""

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return dict.fromkeys(("x", "y", "before"), ((self.size["elements"],), self.dtype))

    def fill_inputs(self, seed: int) -> None:
        self.scalars["a"] = 1.5
        self.draw("x", seed)
        self.draw("before", seed + 1)

    def poison_outputs(self) -> None:
        self.gpu.copy(self.pointers["y"], self.pointers["before"], 4 * self.size["elements"])

    def check(self, params: Params) -> Check:
        """One rounding of the product and one of the sum, or one of both together."""
        data = [self.pointers[name] for name in ("x", "before", "y")]
        scale, count, harness = ctypes.c_double(self.scalars["a"]), self.size["elements"], self.gpu.harness
        rest = (harness.maximum, harness.count, *data, count, scale)
        maximum, _ = harness.reduce("compare_axpy", count, *rest)
        return Check(maximum, 2.0**-22)

    def library(self, name: str) -> Launcher:
        return lambda: self.gpu.copy(self.pointers["y"], self.pointers["before"], 4 * self.size["elements"])


INSTANCE = AxpyInstance

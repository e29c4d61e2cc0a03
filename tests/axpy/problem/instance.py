"""a*x + y on a device: y is laid out anew before each check."""

from typing import Any

from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot, Launcher
from ladder.gpu.instance import Check
from ladder.model.problem import Params


class AxpyInstance(instance.Instance):
    """Buffers x, y and y before the launch."""

    outputs = ("y",)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return dict.fromkeys(
            ("x", "y", "before"), ((self.size["elements"],), self.dtype)
        )

    def fill_inputs(self, seed: int) -> None:
        self.scalars["a"] = 1.5
        self.draw("x", seed)
        self.draw("before", seed + 1)

    def _poison_outputs(self) -> None:
        self.gpu.copy(
            self.pointer("y"), self.pointer("before"), 4 * self.size["elements"]
        )

    def error_bound(self, params: Params) -> float:
        """One rounding of the product and one of the sum, or one of both together, over |a*x| + |y|."""
        return 2.0**-23

    def _compared(self) -> tuple[Any, ...]:
        data = [self.pointer(name) for name in ("x", "before", "y")]
        return (*data, self.size["elements"], self.scalars["a"])

    def check(self, params: Params) -> Check:
        harness = self.gpu.harness
        maximum, _ = harness.reduce(
            "compare_axpy", self.size["elements"], harness.maximum, *self._compared()
        )
        return Check(maximum, self.error_bound(params))

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        self.gpu.harness.run(
            "check_axpy", self.size["elements"], slot, *self._compared()
        )

    def library(self, name: str) -> dict[str, Launcher]:
        return {
            "": lambda: self.gpu.copy(
                self.pointer("y"), self.pointer("before"), 4 * self.size["elements"]
            )
        }


INSTANCE = AxpyInstance

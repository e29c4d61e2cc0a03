"""1-D stencil: output[i] = mean(input[i .. i+k]) for i < elements - k; k + 1 taps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ladder.errors import LadderError
from ladder.problems.base import Instance, Params, Problem, Work

if TYPE_CHECKING:
    from ladder.device import Gpu


class Stencil(Problem):
    """Moving mean over a line; a kernel's parameter `k` says how far it reaches."""

    name = "stencil"
    size_fields = ("elements",)
    dtypes = ("int32", "fp32")
    buffers = ("input", "output")
    libraries = ("copy",)

    def taps(self, params: Params) -> int | None:
        return int(params["k"]) + 1

    def check_parameters(self, parameters: Mapping[str, Any]) -> None:
        if "k" not in parameters:
            raise LadderError("the problem stencil needs a parameter 'k' (reach; taps are k + 1)")

    def work(self, size: Mapping[str, int], dtype: str, params: Params) -> Work:
        """One addition a tap; every input read once and every output written once."""
        n, k = size["elements"], int(params["k"])
        outputs = max(n - k, 0)
        return Work(float(outputs * (k + 1)), float((n + outputs) * self.element_bytes(dtype)))

    def device_bytes(self, size: Mapping[str, int], dtype: str) -> int:
        """Input, output, and the copy's target."""
        return 3 * size["elements"] * self.element_bytes(dtype)

    def instance(self, gpu: Gpu, size: Mapping[str, int], dtype: str, layout: str, seed: int) -> Instance:
        """Inputs, references and check on a device."""
        from ladder.problems.stencil_instance import StencilInstance

        return StencilInstance.create(gpu, size, dtype, layout, seed)

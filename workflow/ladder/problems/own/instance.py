"""A problem of one's own on a device: its buffers, copies of them in fp64, and the module that answers in these."""

from collections.abc import Mapping
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ladder.gpu.device import CheckResultSlot, Launcher
from ladder.gpu.external import ExternalCode
from ladder.gpu.instance import HarnessCall, Instance, Maker, Shapes
from ladder.gpu.timing import Timer
from ladder.model.cell import External
from ladder.model.errors import LadderError
from ladder.model.files import file_sha256
from ladder.model.problem import C_TYPES, Params
from ladder.problems.own import OwnProblem

_WORST = "largest error"


class OwnInstance(Instance):
    """Buffers of the document, each of them in fp64 for inputs as drawn and for the answer, and the largest error.

    The first two of `operands` are those of other instances, as are the rest.
    """

    def __init__(
        self, problem: OwnProblem, module: ExternalCode, *operands: Any
    ) -> None:
        self.problem, self._module = problem, module
        self.drawn = tuple(problem.definition.inputs)
        self.outputs = tuple(problem.definition.outputs)
        # Not by another shift: an answer may follow from that of the input as it was.
        self.shifted_inputs = self.drawn[:1]
        super().__init__(*operands)
        self.inputs = problem.inputs[0]
        self._in_fp64 = {
            name: self.tensors[f"{name} in fp64"] for name in problem.buffers
        }

    @classmethod
    def maker(cls, timer: Timer, settings: Mapping[str, Any], problem: Any) -> Maker:
        """All share the module, which is loaded once."""
        file = problem.definition.module
        external = External("python", file, "answer", "", file_sha256(Path(file)))
        return partial(cls, problem, ExternalCode(external))

    def shapes(self) -> Shapes:
        shapes: Shapes = {_WORST: ((1,), "fp64")}
        for name, shape in self.problem.shapes(self.size).items():
            shapes[name] = shape, self.dtype
            shapes[f"{name} in fp64"] = shape, "fp64"
        return shapes

    def error_bound(self, params: Params) -> float:
        """Errors are over atol + rtol |expected|."""
        return 1.0

    @cached_property
    def _answer(self) -> Launcher:
        """What enqueues the module's answer: it sees the copies in fp64 alone."""
        answered = copy(self)
        answered.dtype, answered.tensors = "fp64", self._in_fp64
        return self._module.launcher(self.problem, answered, {})

    def inspection(
        self, params: Params, slot: CheckResultSlot | None = None
    ) -> HarnessCall:
        """Enqueue the answer to what was drawn at the place in use, and the largest error of all outputs.

        Nothing less says whether outputs are right, of which nothing is known: it is the comparison, too. Raises
        ValueError, which stops the run, where the module fails.
        """
        element, run = C_TYPES[self.dtype], self.gpu.harness.run
        worst = self.tensors[_WORST]
        self.gpu.zero(worst.pointer, worst.buffer.size)
        for name, in_fp64 in self._in_fp64.items():
            tensor = self.tensors[name]
            drawn = in_fp64.elements, tensor.key, tensor.kind
            run(f"prepare_fp64<{element}>", in_fp64.elements, in_fp64.pointer, *drawn)
        try:
            self._answer()
        except LadderError as error:
            raise ValueError(f"no kernel is to blame: {error}") from error
        tolerance = self.problem.definition.tolerance
        for name in self.outputs:
            in_fp64 = self._in_fp64[name]
            count = in_fp64.elements
            buffers = worst.pointer, self.pointer(name), in_fp64.pointer
            allowed = tolerance.rtol, tolerance.atol
            run(f"compare_output<{element}>", count, *buffers, count, *allowed)
        kernel = "check_worst" if slot else "take_worst"
        return HarnessCall(f"{kernel}<{element}>", 1, (worst.pointer,))

    comparison = inspection


INSTANCE = OwnInstance

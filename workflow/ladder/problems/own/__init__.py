"""A problem of one's own: a document says its buffers and tolerance, a Python module knows its answer."""

import math

from ladder.model.definition import Definition
from ladder.model.expressions import whole
from ladder.model.problem import ELEMENT_BYTES, Params, Problem, Size, Work


class OwnProblem(Problem):
    """What a document defines; its name is the document's path. Results are held to a tolerance, not to a bound.

    Raises LadderError for a shape that cannot be evaluated.
    """

    check_version = 1
    check_kernels = ("prepare_fp64", "compare_output", "take_worst", "check_worst")
    definition: Definition

    def __init__(self, name: str, definition: Definition) -> None:
        self.name, self.definition = name, definition
        self.size_fields = tuple(definition.size)
        self.edge_sizes = [[tuple(definition.size.values())]]
        self.dtypes = (definition.dtype,)
        self.buffers = (*definition.inputs, *definition.outputs)
        self.inputs = tuple(definition.kinds)
        # As --reference has it: the same function, asked for the dtype of a cell.
        self.libraries = (f"{{python: {definition.module!r}, entry: answer}}",)
        self.shapes(definition.size)

    def shapes(self, size: Size) -> dict[str, tuple[int, ...]]:
        """Shape of each buffer. Raises LadderError for an expression that gives no whole number."""
        shapes = {}
        for name, extents in (self.definition.inputs | self.definition.outputs).items():
            shapes[name] = tuple(whole(extent, size) for extent in extents)
        return shapes

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """Each buffer once; its operations are not known."""
        elements = sum(map(math.prod, self.shapes(size).values()))
        return Work(0.0, float(elements * ELEMENT_BYTES[dtype]))

    def device_bytes(self, size: Size, dtype: str) -> int:
        """Each buffer twice, as outputs and the first input are, and once in fp64."""
        held = self.work(size, dtype, {}).bytes
        return int(held * (2 + ELEMENT_BYTES["fp64"] / ELEMENT_BYTES[dtype]))

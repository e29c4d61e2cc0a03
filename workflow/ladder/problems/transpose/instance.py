"""A transposition on a device: inputs, a copy, cuBLAS, and a check of every output.

Elements are moved and not computed with, so that a right output has the very bits of the input: the bound is 0. Timed
launches are checked in the same way. The generator's key says what each output must be, and to draw it again costs as
much as the inputs did. No sample is taken, hence no wrong element of any launch escapes: neither one tile of many, nor
the tiles of the launch before, whose inputs were others. An element that was not written is NaN, which none that is
drawn is.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from nvmath.bindings import cublas

from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot, Gpu, Launcher
from ladder.gpu.instance import Check
from ladder.gpu.timing import Timer
from ladder.model.errors import LadderError
from ladder.model.problem import C_TYPES, COPY, ELEMENT_BYTES, Params

_NORMAL, _TRANSPOSED = 0, 1  # cublasOperation_t
_FACTORS = np.array([1, 0], np.float32)
"""alpha and beta on the host: kept, since launches point to them."""


class TransposeInstance(instance.Instance):
    """Buffers input (M x N), output (N x M), and the copy's target."""

    shifted_inputs = ("input",)

    def __init__(
        self,
        cublas_handle: int,
        gpu: Gpu,
        size: Mapping[str, int],
        dtype: str,
        layout: str,
    ) -> None:
        self._cublas = cublas_handle
        super().__init__(gpu, size, dtype, layout)

    @classmethod
    def maker(cls, timer: Timer, settings: Mapping[str, Any]) -> instance.Maker:
        """All share a handle of cuBLAS."""
        handle = cublas.create()
        cublas.set_stream(handle, int(timer.gpu.stream.handle))
        return partial(cls, handle)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        given, made = self._extents(), self._extents()[::-1]
        extents = {"input": given, "output": made, "copied": given}
        return {name: (shape, self.dtype) for name, shape in extents.items()}

    def _extents(self) -> tuple[int, int]:
        """Rows and columns of the input."""
        return self.size["m"], self.size["n"]

    def shifts(self) -> int:
        """None but 0: the answer of a moved input is the answer moved by whole rows."""
        return 1

    def error_bound(self, params: Params) -> float:
        """Outputs are the inputs' bits. The error is 1 where any is not."""
        return 0.0

    def _compared(self) -> tuple[str, int, tuple[Any, ...]]:
        """Of both checks: the type, how many threads have work, and what they take."""
        (rows, columns), given = self._extents(), self.tensors["input"]
        packs = rows * (columns * ELEMENT_BYTES[self.dtype] // 16 + 1)
        return (
            C_TYPES[self.dtype],
            packs,
            (self.pointer("output"), rows, columns, given.key, given.kind),
        )

    def check(self, params: Params) -> Check:
        harness, (of, threads, compared) = self.gpu.harness, self._compared()
        _, wrong = harness.reduce(
            f"count_wrong<{of}>", threads, harness.count, *compared
        )
        detail = f"{wrong} of {self.tensors['output'].elements} outputs are not those of the input"
        return Check(float(wrong > 0), self.error_bound(params), detail)

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """Every output."""
        of, threads, compared = self._compared()
        self.gpu.harness.run(f"check_outputs<{of}>", threads, slot, *compared)

    def library(self, name: str) -> dict[str, Launcher]:
        """A copy of the input, or cuBLAS' geam. Raises LadderError for geam of bf16, which cuBLAS does not have."""
        if name == COPY:
            target, source = self.pointer("copied"), self.pointer("input")
            size = self.tensors["copied"].buffer.size
            return {"": lambda: self.gpu.copy(target, source, size)}
        if self.dtype != "fp32":
            raise LadderError(f"cuBLAS has no geam of {self.dtype}; it has one of fp32")
        return {"": self._geam()}

    def _geam(self) -> Launcher:
        """C = 1 A^T + 0 B, column-major: our input is an N x M matrix A. B is C, which a factor of 0 leaves unread."""
        rows, columns = self._extents()
        alpha = _FACTORS.ctypes.data
        beta, given, made = (
            alpha + _FACTORS.itemsize,
            self.pointer("input"),
            self.pointer("output"),
        )
        of_a, of_b = (alpha, given, columns), (beta, made, rows)
        sizes = (self._cublas, _TRANSPOSED, _NORMAL, rows, columns)
        return partial(cublas.sgeam, *sizes, *of_a, *of_b, made, rows)


INSTANCE = TransposeInstance

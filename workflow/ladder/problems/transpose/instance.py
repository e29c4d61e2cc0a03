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

from ladder.gpu.device import CheckResultSlot, Gpu, Launcher
from ladder.gpu.instance import Check, HarnessCall, Instance, Maker, Shapes
from ladder.gpu.timing import Timer
from ladder.model.errors import LadderError
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size

_NORMAL, _TRANSPOSED = 0, 1  # cublasOperation_t
_FACTORS = np.array([1, 0], np.float32)
"""alpha and beta on the host: kept, since launches point to them."""


class TransposeInstance(Instance):
    """Buffers input (M x N), output (N x M), and the copy's target."""

    # Not by another shift: the answer of a moved input is the answer moved by whole rows.
    shifted_inputs = ("input",)

    def __init__(
        self, cublas_handle: int, gpu: Gpu, size: Size, dtype: str, layout: str
    ) -> None:
        self._cublas = cublas_handle
        self._rows, self._columns = size["m"], size["n"]
        super().__init__(gpu, size, dtype, layout)

    @classmethod
    def maker(
        cls, timer: Timer, settings: Mapping[str, Any], problem: Problem
    ) -> Maker:
        """All share a handle of cuBLAS."""
        handle = cublas.create()
        cublas.set_stream(handle, int(timer.gpu.stream.handle))
        return partial(cls, handle)

    def shapes(self) -> Shapes:
        given = ((self._rows, self._columns), self.dtype)
        transposed = ((self._columns, self._rows), self.dtype)
        return {"input": given, "output": transposed, "copied": given}

    def error_bound(self, params: Params) -> float:
        """Outputs are the inputs' bits. The error is 1 where any is not."""
        return 0.0

    def _compare(self, kernel: str) -> HarnessCall:
        given = self.tensors["input"]
        arguments = (
            self.pointer("output"),
            self._rows,
            self._columns,
            given.key,
            given.kind,
        )
        packs = self._columns * ELEMENT_BYTES[self.dtype] // 16 + 1
        entry = f"{kernel}<{C_TYPES[self.dtype]}>"
        return HarnessCall(entry, self._rows * packs, arguments)

    def check(self, params: Params) -> Check:
        _, wrong = self._reduce(self._compare("count_wrong"), self.gpu.harness.count)
        outputs = self.tensors["output"].elements
        detail = f"{wrong} of {outputs} outputs are not those of the input"
        return Check(float(wrong > 0), self.error_bound(params), detail)

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """Every output."""
        return self._compare("check_outputs")

    def library(self, name: str) -> dict[str, Launcher]:
        """A copy of the input, or cuBLAS' geam. Raises LadderError for geam of bf16, which cuBLAS does not have."""
        if name != "geam":
            return super().library(name)
        if self.dtype != "fp32":
            raise LadderError(f"cuBLAS has no geam of {self.dtype}; it has one of fp32")
        return {"": self._geam()}

    def _geam(self) -> Launcher:
        """C = 1 A^T + 0 B, column-major: our input is an N x M matrix A. B is C, which a factor of 0 leaves unread."""
        alpha = _FACTORS.ctypes.data
        beta = alpha + _FACTORS.itemsize
        rows, columns, made = self._rows, self._columns, self.pointer("output")
        return partial(
            cublas.sgeam,
            self._cublas,
            _TRANSPOSED,
            _NORMAL,
            rows,
            columns,
            alpha,
            self.pointer("input"),
            columns,
            beta,
            made,
            rows,
            made,
            rows,
        )


INSTANCE = TransposeInstance

"""A GEMM on a device: inputs uniform in [-1, 1), library references, and a componentwise check against fp64."""

import ctypes
import math
import secrets
import struct
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from cuda.core import Buffer

from ladder.gpu.device import CheckResultSlot, Gpu, Launcher
from ladder.gpu.instance import STEP, Check, HarnessCall, Instance, Maker, Shapes
from ladder.gpu.libraries import Gemm, Libraries
from ladder.gpu.timing import Timer
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Problem, Size
from ladder.problems.gemm import input_dtype, output_dtype
from ladder.problems.gemm.bounds import (
    ROUNDING,
    accumulation_bound,
    chance_factor,
    integers_are_exact,
    rms_bound,
    row_tolerance,
    subnormal_bound,
)

_SAMPLED = 64
_INFINITY = {"fp32": b"\x00\x00\x80\x7f", "fp16": b"\x00\x7c", "bf16": b"\x80\x7f"}
_SPOTS = 128  # rows in which a few elements are checked
_SPOT_COLUMNS = 8
_BLOCK = 256  # threads of a block
_ROWS_TO_WARPS = 1024
_PADDING = 18
_REFRESHED_AT_ONCE = 8  # elements that a thread draws


class _Region(NamedTuple):
    """Rows and columns of C under check, with the fp64 product and magnitude there."""

    rows: range
    columns: range
    product: Buffer
    magnitude: Buffer

    @property
    def elements(self) -> int:
        return len(self.rows) * len(self.columns)


class GemmInstance(Instance):
    """Buffers a (M x K), b (K x N, or N x K for TN), c (M x N), c before a launch with beta, and those of the checks.

    `signed` holds in fp64, or in fp32 of narrow types, the sum of B's squares and B times random signs.
    """

    drawn, outputs = ("a", "b", "before"), ("c",)
    shifted_inputs = ("a", "b")

    def __init__(
        self, libraries: Libraries, gpu: Gpu, size: Size, dtype: str, layout: str
    ) -> None:
        self.libraries = libraries
        self.m, self.n, self.k = size["m"], size["n"], size["k"]
        self.input = input_dtype(dtype)
        self.output = output_dtype(dtype)
        self._key = secrets.randbits(63)
        self._regions: list[_Region] = []  # of the fp64 answer
        self._answered: list[tuple[int, int, int]] = []  # the inputs that it is of
        self._digests: dict[int, int] = {}  # of its regions, when it was first used
        super().__init__(gpu, size, dtype, layout)
        self.use_scalars(1.0, 0.0)

    @classmethod
    def maker(
        cls, timer: Timer, settings: Mapping[str, Any], problem: Problem
    ) -> Maker:
        """All share the libraries' handles."""
        return partial(cls, Libraries(timer, settings["lt_heuristics"]))

    def shapes(self) -> Shapes:
        b = (self.n, self.k) if self.layout == "TN" else (self.k, self.n)
        return {
            "a": ((self.m, self.k), self.input),
            "b": (b, self.input),
            "c": ((self.m, self.n), self.output),
            "signed": ((2 * (self.k + _PADDING),), "fp32"),
            "squares": ((4,), "fp32"),
        }

    def shifts(self) -> int:
        """Those of A that move it by different parts of a row: with each, other products meet.

        Shifts by whole rows would give the rows of another answer. B is not shifted.
        """
        row = self.k * ELEMENT_BYTES[self.input]
        return row // math.gcd(row, STEP)

    def use_scalars(self, alpha: float, beta: float, before: str = "nan") -> None:
        """With beta != 0, C starts as the numbers last drawn for it at each poison_outputs."""
        self.scalars = {"alpha": alpha, "beta": beta}
        self._poison = b"\xff" if before == "nan" else _INFINITY[self.output]
        if beta != 0.0 and "before" not in self.tensors:
            self.add_buffer("before", (self.m, self.n), self.output)

    def _poison_outputs(self) -> None:
        c = self.tensors["c"]
        if self.scalars["beta"] != 0.0:
            self.gpu.copy(c.pointer, self.pointer("before"), c.buffer.size)
        else:
            c.buffer.fill(self._poison, stream=self.gpu.stream)

    def _refresh(self, seed: int) -> None:
        """All in one kernel. What is timed has beta = 0."""
        a, b, c = (self.tensors[name] for name in ("a", "b", "c"))
        for name in self.shifted_inputs:
            self.note_drawn(self.tensors[name], f"{seed} {name}")
        elements = max(a.elements, b.elements, c.elements)
        self.gpu.harness.run(
            f"refresh_product<{self._types()}>",
            elements // _REFRESHED_AT_ONCE,
            int(a.whole.handle),
            int(b.whole.handle),
            c.pointer,
            a.elements,
            b.elements,
            c.buffer.size,
            a.key,
            b.key,
            a.kind,
        )

    def sums_are_exact(self) -> bool:
        return integers_are_exact(self.dtype, self.k)

    def error_bound(self, params: Params) -> float:
        return accumulation_bound(self.dtype, self.k, self.inputs)

    def check(self, params: Params) -> Check:
        harness = self.gpu.harness
        bound = self.error_bound(params)
        count = self.m * self.n
        count_nan = f"count_nan<{C_TYPES[self.output]}>"
        outputs = self.pointer("c"), count
        _, unwritten = harness.reduce(count_nan, count, harness.count, *outputs)
        if unwritten:
            detail = f"{unwritten} of {count} outputs were not written or are NaN"
            return Check(math.inf, bound, detail)
        squares = self.tensors["squares"]
        self.gpu.zero(squares.pointer, squares.buffer.size)
        largest = 0.0
        for number, region in enumerate(self._answer()):
            error, digest = self._compare(region)
            if self._digests.setdefault(number, digest) != digest:
                self._free_regions()
                detail = "the fp64 answer, which is not its own, was written"
                return Check(math.inf, bound, detail)
            largest = max(largest, error)
        (total,) = struct.unpack("d", self.gpu.download(squares.pointer, 8))
        elements = sum(region.elements for region in self._regions)
        rms = math.sqrt(total / elements)
        allowed = rms_bound(self.dtype, self.k, self.inputs, elements)
        if rms <= allowed or self.scalars != {"alpha": 1.0, "beta": 0.0}:
            return Check(largest, bound)
        detail = f"the root mean square of all errors is {rms:.3g}, sums of {self.dtype} have {allowed:.3g} at most"
        return Check(max(largest, bound * rms / allowed), bound, detail)

    def _compare(self, region: _Region) -> tuple[float, int]:
        """The largest error of C in a region of the fp64 answer, and a digest of that; adds the errors' squares up."""
        rows, columns, product, magnitude = region
        shift = (rows.start * self.n + columns.start) * ELEMENT_BYTES[self.output]
        before = self._before()
        harness = self.gpu.harness
        return harness.reduce(
            f"compare_product<{C_TYPES[self.output]}>",
            region.elements,
            harness.maximum,
            self.pointer("squares"),
            harness.count,
            self._key,
            self.pointer("c") + shift,
            before + shift if before else 0,
            int(product.handle),
            int(magnitude.handle),
            len(rows),
            len(columns),
            rows.step * self.n,
            columns.step,
            *self._weights(),
        )

    def _answer(self) -> list[_Region]:
        """The fp64 answer: all of C where fp64 is fast, else 64 rows and 64 columns spread over it."""
        inputs = [self.tensors[name] for name in self.shifted_inputs]
        drawn = [(given.pointer, given.kind.value, given.key.value) for given in inputs]
        if not self._regions or self._answered != drawn:
            self._free_regions()
            self._answered = drawn
            rows, columns = range(self.m), range(self.n)
            if self.gpu.full_rate_fp64 or self.m * self.n * self.k <= 512**3:
                parts = [(rows, columns)]
            else:
                parts = [(_spread(rows), columns), (rows, _spread(columns))]
            self._regions = [self._region(*part) for part in parts]
        return self._regions

    def _region(self, rows: range, columns: range) -> _Region:
        m, n, k = len(rows), len(columns), self.k
        a = self.gpu.allocate(8 * m * k)
        b = self.gpu.allocate(8 * k * n)
        products = []
        for absolute in (False, True):
            self._widen(a, "a", rows, range(k), absolute)
            self._widen(b, "b", range(k), columns, absolute)
            products.append(self.gpu.allocate(8 * m * n))
            pointers = (int(a.handle), int(b.handle), int(products[-1].handle))
            self.libraries.cublas(Gemm(pointers, (m, n, k), "fp64", "NN"))()
        for buffer in (a, b):
            buffer.close(self.gpu.stream)
        return _Region(rows, columns, *products)

    def _widen(
        self, out: Buffer, name: str, rows: range, columns: range, absolute: bool
    ) -> None:
        """Enqueue an fp64 copy of a part of a or b: rows x columns of the logical matrix (M x K or K x N)."""
        by_row, by_column = self._strides(name)
        first = rows.start * by_row + columns.start * by_column
        self.gpu.harness.run(
            f"widen<{C_TYPES[self.input]}>",
            len(rows) * len(columns),
            int(out.handle),
            self.pointer(name) + first * ELEMENT_BYTES[self.input],
            len(rows),
            len(columns),
            rows.step * by_row,
            columns.step * by_column,
            ctypes.c_int32(absolute),
        )

    def _strides(self, name: str) -> tuple[int, int]:
        """Elements from one row and from one column to the next, of the logical a (M x K) or b (K x N)."""
        width = self.tensors[name].shape[1]
        return (1, width) if name == "b" and self.layout == "TN" else (width, 1)

    def _before(self) -> int:
        """Address of what C held before a launch, or 0."""
        return self.pointer("before") if "before" in self.tensors else 0

    def _weights(self) -> tuple[float, float, float, float]:
        """alpha, beta, the unit roundoff of the output, and what subnormal numbers lose."""
        alpha, beta = self.scalars["alpha"], self.scalars["beta"]
        lost = subnormal_bound(self.dtype, self.k, alpha)
        return alpha, beta, ROUNDING[self.output], lost

    def _types(self) -> str:
        return f"{C_TYPES[self.input]}, {C_TYPES[self.output]}"

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """Freivalds' check of every row, and a thousand random elements: see check.cu. Follows a refresh."""
        a, b, signed = (self.tensors[name] for name in ("a", "b", "signed"))
        # After the launch, which may have written there.
        self.gpu.zero(signed.pointer, signed.buffer.size)
        # B times the signs, and ahead of it the sum of B's squares.
        sums = signed.pointer + 16, signed.pointer
        along = "columns" if self.layout == "TN" else "rows"
        multiply = f"multiply_{along}_by_signs<{C_TYPES[self.input]}>"
        threads = _threads(b.shape[0])
        self.gpu.harness.run(multiply, threads, slot, *sums, b.pointer, *b.shape)
        arguments = (
            self.pointer("c"),
            self._before(),
            a.pointer,
            b.pointer,
            *sums,
            _SPOTS,
            self.m,
            self.n,
            self.k,
            *self._strides("b"),
            *self._weights(),
            *self._scales(),
        )
        threads = _SPOTS * _BLOCK + _threads(self.m)
        return HarnessCall(f"check_product<{self._types()}>", threads, arguments)

    def _scales(self) -> tuple[float, float, float]:
        """What makes all that the check of a launch finds comparable with the bound of elements.

        How many root sums of squares a row may be off, times what of one to its tolerance; and what of a root sum of
        squares of the spots' errors to that of a right result.
        """
        bound, chance = self.error_bound({}), chance_factor(self.m)
        rows = chance
        if bound:
            rows = chance * row_tolerance(self.dtype, self.k, self.inputs) / bound
        spots = _SPOTS * _SPOT_COLUMNS
        rms = rms_bound(self.dtype, self.k, self.inputs, spots)
        return chance, rows, bound / rms / math.sqrt(spots)

    def library(self, name: str) -> dict[str, Launcher]:
        pointers = (self.pointer("a"), self.pointer("b"), self.pointer("c"))
        gemm = Gemm(pointers, (self.m, self.n, self.k), self.dtype, self.layout)
        if name == "cublas":
            return {"": self.libraries.cublas(gemm)}
        return self.libraries.cublaslt(gemm, fast=name == "cublaslt_fast")

    def _free_regions(self) -> None:
        for region in self._regions:
            region.product.close(self.gpu.stream)
            region.magnitude.close(self.gpu.stream)
        self._regions, self._digests = [], {}

    def close(self) -> None:
        self._free_regions()
        super().close()


def _spread(extent: range) -> range:
    """Up to 64 rows or columns, evenly over all."""
    return extent[:: max(len(extent) // _SAMPLED, 1)][:_SAMPLED]


def _threads(rows: int) -> int:
    """That have a row each, as a warp if there are many and else as a block."""
    return rows * (32 if rows >= _ROWS_TO_WARPS else _BLOCK)


INSTANCE = GemmInstance

"""A GEMM on a device: inputs uniform in [-1, 1), library references, and a componentwise check against fp64."""

import ctypes
import math
import secrets
import struct
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from cuda.core import Buffer

from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot, Gpu, Launcher
from ladder.gpu.instance import Check
from ladder.gpu.libraries import Gemm, Libraries
from ladder.gpu.timing import Timer
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params, Size
from ladder.problems.gemm import input_dtype, output_dtype
from ladder.problems.gemm.bounds import (
    ROUNDING,
    accumulation_bound,
    chance_factor,
    rms_bound,
    row_tolerance,
)

_SAMPLED = 64
_INFINITY = {"fp32": b"\x00\x00\x80\x7f", "fp16": b"\x00\x7c", "bf16": b"\x80\x7f"}
_POISON = {("inf", dtype): number for dtype, number in _INFINITY.items()} | {
    ("nan", dtype): b"\xff" for dtype in _INFINITY
}
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


class GemmInstance(instance.Instance):
    """Buffers a (M x K), b (K x N, or N x K for TN), c (M x N), c before a launch with beta, and the fp64 answer."""

    drawn, outputs = ("a", "b", "before"), ("c",)
    shifted_inputs = ("a", "b")

    def __init__(
        self, libraries: Libraries, gpu: Gpu, size: Size, dtype: str, layout: str
    ) -> None:
        self.libraries = libraries
        self.regions: list[_Region] = []
        self._answered: list[
            tuple[int, int, int]
        ] = []  # what was drawn when the fp64 answer was worked out
        self._digests: dict[int, int] = {}  # of its regions, when it was first used
        self._key = secrets.randbits(63)
        self.m, self.n, self.k = (size[extent] for extent in "mnk")
        self.input, self.output = input_dtype(dtype), output_dtype(dtype)
        super().__init__(gpu, size, dtype, layout)
        for name, doubles in (("signed", self.k + _PADDING), ("squares", 2)):
            self.add_buffer(name, (2 * doubles,), "fp32")
        self._signed, self._squares = (
            self.tensors[name].buffer for name in ("signed", "squares")
        )
        self._signed.fill(b"\0", stream=gpu.stream)
        self.use_scalars(1.0, 0.0)

    @classmethod
    def maker(cls, timer: Timer, settings: Mapping[str, Any]) -> instance.Maker:
        """All share the libraries' handles."""
        return partial(cls, Libraries(timer, settings["lt_heuristics"]))

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        b = (self.n, self.k) if self.layout == "TN" else (self.k, self.n)
        a, c = (self.m, self.k), (self.m, self.n)
        return {"a": (a, self.input), "b": (b, self.input), "c": (c, self.output)}

    def shifts(self) -> int:
        """Those of A that move it by different parts of a row: with each, other products meet.

        Shifts by whole rows would give the rows of another answer. B is not shifted.
        """
        row = self.k * ELEMENT_BYTES[self.input]
        return row // math.gcd(row, instance.STEP)

    def _strides(self, name: str) -> tuple[int, int]:
        """Elements from one row and from one column to the next, of the logical a (M x K) or b (K x N)."""
        width = self.tensors[name].shape[1]
        return (1, width) if name == "b" and self.layout == "TN" else (width, 1)

    def _widen(
        self, out: Buffer, name: str, rows: range, columns: range, absolute: bool
    ) -> None:
        """Enqueue an fp64 copy of a part of a or b: rows x columns of the logical matrix (M x K or K x N)."""
        by_row, by_column = self._strides(name)
        first = (rows.start * by_row + columns.start * by_column) * ELEMENT_BYTES[
            self.input
        ]
        pointers = (int(out.handle), self.pointer(name) + first)
        shape = (len(rows), len(columns), rows.step * by_row, columns.step * by_column)
        entry, count = f"widen<{C_TYPES[self.input]}>", len(rows) * len(columns)
        self.gpu.harness.run(entry, count, *pointers, *shape, ctypes.c_int32(absolute))

    def _region(self, rows: range, columns: range) -> _Region:
        m, n, k = len(rows), len(columns), self.k
        a, b = self.gpu.allocate(8 * m * k), self.gpu.allocate(8 * k * n)
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

    def _answer(self) -> list[_Region]:
        """The fp64 answer: all of C where fp64 is fast, else 64 rows and 64 columns spread over it."""
        tensors = [self.tensors[name] for name in "ab"]
        drawn = [(one.pointer, one.kind.value, one.key.value) for one in tensors]
        if not self.regions or self._answered != drawn:
            self._free_regions()
            self._answered = drawn
            rows, columns = range(self.m), range(self.n)
            parts = [(_spread(rows), columns), (rows, _spread(columns))]
            if self.gpu.full_rate_fp64 or self.m * self.n * self.k <= 512**3:
                parts = [(rows, columns)]
            self.regions = [self._region(rows, columns) for rows, columns in parts]
        return self.regions

    def use_scalars(self, alpha: float, beta: float, before: str = "nan") -> None:
        """With beta != 0, C starts as the numbers last drawn for it at each poison_outputs."""
        self.scalars, self._poison = (
            {"alpha": alpha, "beta": beta},
            _POISON[before, self.output],
        )
        if beta != 0.0 and "before" not in self.tensors:
            self.add_buffer("before", (self.m, self.n), self.output)

    def _poison_outputs(self) -> None:
        if self.scalars["beta"] != 0.0:
            self.gpu.copy(
                self.pointer("c"), self.pointer("before"), self.tensors["c"].buffer.size
            )
        else:
            self.tensors["c"].buffer.fill(self._poison, stream=self.gpu.stream)

    def error_bound(self, params: Params) -> float:
        return accumulation_bound(self.dtype, self.k, self.inputs)

    def check(self, params: Params) -> Check:
        bound, count = self.error_bound(params), self.m * self.n
        harness, c_type, c = self.gpu.harness, C_TYPES[self.output], self.pointer("c")
        _, unwritten = harness.reduce(
            f"count_nan<{c_type}>", count, harness.count, c, count
        )
        if unwritten:
            return Check(
                math.inf,
                bound,
                f"{unwritten} of {count} outputs were not written or are NaN",
            )
        worst, before, squares = 0.0, self._before(), int(self._squares.handle)
        self.gpu.zero(squares, self._squares.size)
        for number, (rows, columns, product, magnitude) in enumerate(self._answer()):
            shift = (rows.start * self.n + columns.start) * ELEMENT_BYTES[self.output]
            pointers = (c + shift, before + shift if before else 0)
            answer = (int(product.handle), int(magnitude.handle))
            shape = (len(rows), len(columns), rows.step * self.n, columns.step)
            found = (harness.maximum, squares, harness.count, self._key)
            entry, given = (
                f"compare_product<{c_type}>",
                (*pointers, *answer, *shape, *self._weights()),
            )
            maximum, digest = harness.reduce(
                entry, len(rows) * len(columns), *found, *given
            )
            if self._digests.setdefault(number, digest) != digest:
                self._free_regions()
                return Check(
                    math.inf,
                    bound,
                    "the fp64 answer, which is not its own, was written",
                )
            worst = max(worst, maximum)
        elements = sum(len(one.rows) * len(one.columns) for one in self.regions)
        rms = math.sqrt(struct.unpack("d", self.gpu.download(squares, 8))[0] / elements)
        allowed = rms_bound(self.dtype, self.k, self.inputs, elements)
        if (self.scalars["alpha"], self.scalars["beta"]) == (
            1.0,
            0.0,
        ) and not rms <= allowed:
            what = "sums of fp32" if self.dtype == "fp32" else "sums of fp16"
            detail = f"the root mean square of all errors is {rms:.3g}, {what} have {allowed:.3g} at most"
            return Check(max(worst, bound * rms / allowed), bound, detail)
        return Check(worst, bound)

    def _before(self) -> int:
        """Address of what C held before a launch, or 0."""
        return self.pointer("before") if "before" in self.tensors else 0

    def _weights(self) -> tuple[float, float, float]:
        """alpha, beta, and the unit roundoff of the output."""
        return self.scalars["alpha"], self.scalars["beta"], ROUNDING[self.output]

    def _both_types(self) -> str:
        return f"{C_TYPES[self.input]}, {C_TYPES[self.output]}"

    def _refresh(self, seed: int) -> None:
        """All in one kernel, but for what C holds with beta != 0."""
        a, b, c = *(self.note_drawn(name, seed) for name in "ab"), self.tensors["c"]
        buffers = (
            int(a.whole.handle),
            int(b.whole.handle),
            c.pointer,
            int(self._signed.handle),
        )
        counts = (a.elements, b.elements, c.buffer.size, self.k)
        elements = max(a.elements, b.elements, c.elements) // _REFRESHED_AT_ONCE
        entry = f"refresh_product<{self._both_types()}>"
        self.gpu.harness.run(entry, elements, *buffers, *counts, *self._drawn_with())
        if self.scalars["beta"] != 0.0:
            self.draw("before", seed)
            self._poison_outputs()

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """Freivalds' check of every row, and a thousand random elements: see check.cu. Follows a refresh."""
        harness, b, by = self.gpu.harness, self.pointer("b"), self._strides("b")
        # After the launch, which may have written there.
        self.gpu.zero(int(self._signed.handle), self._signed.size)
        along, signed = (
            "columns" if self.layout == "TN" else "rows",
            self._signed_pointers(),
        )
        rows, columns = self.tensors["b"].shape
        entry = f"multiply_{along}_by_signs<{C_TYPES[self.input]}>"
        harness.run(entry, _threads(rows), slot, *signed, b, rows, columns)
        pointers = (self.pointer("c"), self._before(), self.pointer("a"), b)
        given = (*pointers, *signed, _SPOTS, self.m, self.n, self.k, *by)
        entry, threads = (
            f"check_product<{self._both_types()}>",
            _SPOTS * _BLOCK + _threads(self.m),
        )
        scales = (*self._scales(), *self._moved())
        harness.run(
            entry, threads, slot, *given, *self._weights(), *scales, *self._drawn_with()
        )

    def _scales(self) -> tuple[float, float, float]:
        """What makes all that the check of a launch finds comparable with the bound of elements.

        How many root sums of squares a row may be off, times what of one to its tolerance; and what of a root sum of
        squares of the spots' errors to that of a right result.
        """
        bound, chance = self.error_bound({}), chance_factor(self.m)
        rows = (
            chance * row_tolerance(self.dtype, self.k, self.inputs) / bound
            if bound
            else chance
        )
        spots = _SPOTS * _SPOT_COLUMNS
        return (
            chance,
            rows,
            bound
            / rms_bound(self.dtype, self.k, self.inputs, spots)
            / math.sqrt(spots),
        )

    def _moved(self) -> list[int]:
        """Elements between what was drawn for A and where it begins, and the same of B."""
        tensors = [self.tensors[name] for name in "ab"]
        return [
            (one.pointer - int(one.whole.handle)) // ELEMENT_BYTES[one.dtype]
            for one in tensors
        ]

    def _drawn_with(self) -> list[Any]:
        """What A and B were drawn with."""
        return [*(self.tensors[name].key for name in "ab"), self.tensors["a"].kind]

    def _signed_pointers(self) -> tuple[int, int]:
        """Addresses of B times random signs, and of the sum of B's squares ahead of it."""
        return int(self._signed.handle) + 16, int(self._signed.handle)

    def library(self, name: str) -> dict[str, Launcher]:
        pointers = (self.pointer("a"), self.pointer("b"), self.pointer("c"))
        gemm = Gemm(pointers, (self.m, self.n, self.k), self.dtype, self.layout)
        if name == "cublas":
            return {"": self.libraries.cublas(gemm)}
        return self.libraries.cublaslt(gemm, fast=name == "cublaslt_fast")

    def _free_regions(self) -> None:
        for region in self.regions:
            region.product.close(self.gpu.stream)
            region.magnitude.close(self.gpu.stream)
        self.regions, self._digests = [], {}

    def close(self) -> None:
        self._free_regions()
        super().close()


def _spread(all_of_them: range) -> range:
    """Up to 64 rows or columns, evenly over all."""
    return all_of_them[:: max(len(all_of_them) // _SAMPLED, 1)][:_SAMPLED]


def _threads(rows: int) -> int:
    """That have a row each, as a warp if there are many and else as a block."""
    return rows * (32 if rows >= _ROWS_TO_WARPS else _BLOCK)


INSTANCE = GemmInstance

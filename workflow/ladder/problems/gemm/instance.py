"""A GEMM on a device: inputs uniform in [-1, 1), library references, and a componentwise check against fp64.

The bound: |c - e| <= u_out |e| + acc(K) (|alpha| |A||B| + |beta| |C0|), where e is the fp64 answer, u_out the unit
roundoff of the output type, and acc(K) = (2 + 4 sqrt(K)) u_acc the probabilistic bound of accumulating K rounded terms
(Higham & Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019, with
lambda = 4). Tensor cores truncate instead of rounding, so their u_acc is one bit larger. Inputs are exact in
their type.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cuda.core import Buffer

from ladder.gpu.device import Launcher
from ladder.gpu.harness import COUNT, MAXIMUM
from ladder.gpu.instance import Check, Instance
from ladder.gpu.libraries import Libraries, Product
from ladder.gpu.tensor_maps import Tensor
from ladder.gpu.timing import Timer
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, Params
from ladder.problems.gemm import OUTPUT_BYTES

_ROUNDING = {"fp32": 0.0, "tf32": 0.0, "fp16": 2**-11, "fp16_acc16": 2**-11, "bf16": 2**-8, "fp8": 2**-8}
_ACCUMULATION = {
    "fp32": 2**-24,
    "tf32": 2**-23,
    "fp16": 2**-23,
    "fp16_acc16": 2**-10,
    "bf16": 2**-23,
    "fp8": 2**-13,
}
"""fp8's tensor cores keep about 14 bits while they accumulate (DeepSeek-V3 technical report, 3.3.2)."""

_INPUT = {"fp16_acc16": "fp16"}
_OUTPUT = {"tf32": "fp32", "fp16_acc16": "fp16", "fp8": "bf16"}
_SAMPLED = 64


def accumulation_bound(dtype: str, k: int) -> float:
    """acc(K): the share of |A||B| that accumulating K products in `dtype` may lose."""
    return (2 + 4 * math.sqrt(k)) * _ACCUMULATION[dtype]


@dataclass(frozen=True)
class _Region:
    """Rows and columns of C under check: first, step, count of each, with fp64 product and magnitude there."""

    row: tuple[int, int, int]
    column: tuple[int, int, int]
    product: Buffer
    magnitude: Buffer


@dataclass
class GemmInstance(Instance):
    """Buffers a (M x K), b (K x N, or N x K for TN), c (M x N) and the fp64 answer."""

    libraries: Libraries = field(kw_only=True)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    regions: list[_Region] = field(default_factory=list)
    before: Buffer | None = None

    def allocate(self) -> None:
        """Make the buffers. Raises OutOfDeviceMemory."""
        m, n, k = self.size["m"], self.size["n"], self.size["k"]
        element, output = ELEMENT_BYTES[self.dtype], OUTPUT_BYTES[self.dtype]
        for name, count in (("a", m * k * element), ("b", k * n * element), ("c", m * n * output)):
            self.buffers[name] = self.gpu.allocate(count)
            self.pointers[name] = int(self.buffers[name].handle)
        self.scalars = {"alpha": 1.0, "beta": 0.0}

    def fill_inputs(self, seed: int) -> None:
        c_type = C_TYPES[_INPUT.get(self.dtype, self.dtype)]
        for offset, name in enumerate(("a", "b")):
            count = self.buffers[name].size // ELEMENT_BYTES[self.dtype]
            pointer = self.pointers[name]
            self.gpu.harness.run(
                f"fill_uniform<{c_type}>",
                count,
                pointer,
                ctypes.c_longlong(count),
                ctypes.c_ulonglong(2 * seed + offset),
            )
        self._free_regions()

    def _widened(self, name: str, rows: tuple[int, int, int], columns: tuple[int, int, int]) -> Any:
        """fp64 copy of a part of a or b, as rows x columns of the logical matrix (M x K or K x N)."""
        k, n = self.size["k"], self.size["n"]
        row_stride, column_stride = (k, 1) if name == "a" else ((1, k) if self.layout == "TN" else (n, 1))
        out = self.gpu.allocate(8 * rows[2] * columns[2])
        element = ELEMENT_BYTES[self.dtype]
        first = self.pointers[name] + (rows[0] * row_stride + columns[0] * column_stride) * element

        def fill(absolute: bool) -> None:
            self.gpu.harness.run(
                f"widen<{C_TYPES[_INPUT.get(self.dtype, self.dtype)]}>",
                rows[2] * columns[2],
                int(out.handle),
                first,
                ctypes.c_longlong(rows[2]),
                ctypes.c_longlong(columns[2]),
                ctypes.c_longlong(rows[1] * row_stride),
                ctypes.c_longlong(columns[1] * column_stride),
                ctypes.c_int32(absolute),
            )

        return out, fill

    def _region(self, rows: tuple[int, int, int], columns: tuple[int, int, int]) -> _Region:
        whole_k = (0, 1, self.size["k"])
        a, fill_a = self._widened("a", rows, whole_k)
        b, fill_b = self._widened("b", whole_k, columns)
        products = []
        for absolute in (False, True):
            fill_a(absolute)
            fill_b(absolute)
            out = self.gpu.allocate(8 * rows[2] * columns[2])
            product = Product(
                int(a.handle), int(b.handle), int(out.handle), rows[2], columns[2], whole_k[2], "fp64", "NN"
            )
            self.libraries.cublas(product)()
            products.append(out)
        for buffer in (a, b):
            buffer.close(self.gpu.stream)
        return _Region(rows, columns, products[0], products[1])

    def _answer(self) -> list[_Region]:
        """The fp64 answer: all of C where fp64 is fast, else 64 rows and 64 columns spread over it."""
        if not self.regions:
            m, n = self.size["m"], self.size["n"]
            all_rows, all_columns = (0, 1, m), (0, 1, n)
            if self.gpu.full_rate_fp64 or m * n * self.size["k"] <= 512**3:
                self.regions = [self._region(all_rows, all_columns)]
            else:
                some_rows = (0, max(m // _SAMPLED, 1), min(m, _SAMPLED))
                some_columns = (0, max(n // _SAMPLED, 1), min(n, _SAMPLED))
                self.regions = [
                    self._region(some_rows, all_columns),
                    self._region(all_rows, some_columns),
                ]
        return self.regions

    def use_beta(self, beta: float) -> None:
        """With beta != 0, C starts as random numbers at each poison_outputs, and alpha differs from 1."""
        self.scalars = {"alpha": 1.0, "beta": 0.0} if beta == 0.0 else {"alpha": 0.75, "beta": beta}
        if beta != 0.0 and self.before is None:
            self.before = self.gpu.allocate(self.buffers["c"].size)
            self._fill_output(int(self.before.handle))

    def _fill_output(self, pointer: int) -> None:
        output = _OUTPUT.get(self.dtype, self.dtype)
        count = self.size["m"] * self.size["n"]
        self.gpu.harness.run(
            f"fill_uniform<{C_TYPES[output]}>",
            count,
            pointer,
            ctypes.c_longlong(count),
            ctypes.c_ulonglong(77),
        )

    def poison_outputs(self) -> None:
        if self.scalars["beta"] != 0.0 and self.before is not None:
            self.gpu.copy(self.pointers["c"], int(self.before.handle), self.buffers["c"].size)
        else:
            self.gpu.fill_words(self.pointers["c"], self.buffers["c"].size, 0xFFFFFFFF)

    def check(self, params: Params) -> Check:
        output = C_TYPES[_OUTPUT.get(self.dtype, self.dtype)]
        count = self.size["m"] * self.size["n"]
        bound = accumulation_bound(self.dtype, self.size["k"])
        _, unwritten = self.gpu.harness.reduce(
            f"count_nan<{output}>",
            count,
            COUNT,
            self.pointers["c"],
            ctypes.c_longlong(count),
        )
        if unwritten:
            return Check(math.inf, bound, f"{unwritten} of {count} outputs were not written or are NaN")
        worst = 0.0
        n, element = self.size["n"], OUTPUT_BYTES[self.dtype]
        before = int(self.before.handle) if self.before is not None else 0
        for region in self._answer():
            shift = (region.row[0] * n + region.column[0]) * element
            maximum, _ = self.gpu.harness.reduce(
                f"compare_product<{output}>",
                region.row[2] * region.column[2],
                MAXIMUM,
                self.pointers["c"] + shift,
                before + shift if before else 0,
                int(region.product.handle),
                int(region.magnitude.handle),
                ctypes.c_longlong(region.row[2]),
                ctypes.c_longlong(region.column[2]),
                ctypes.c_longlong(region.row[1] * n),
                ctypes.c_longlong(region.column[1]),
                ctypes.c_double(self.scalars["alpha"]),
                ctypes.c_double(self.scalars["beta"]),
                ctypes.c_double(_ROUNDING[self.dtype]),
            )
            worst = max(worst, maximum)
        return Check(worst, bound)

    def tensor(self, name: str) -> Tensor:
        m, n, k = self.size["m"], self.size["n"], self.size["k"]
        shape = {"a": (m, k), "b": (n, k) if self.layout == "TN" else (k, n), "c": (m, n)}[name]
        table = _OUTPUT if name == "c" else _INPUT
        return Tensor(self.buffers[name], shape, table.get(self.dtype, self.dtype))

    def library(self, name: str) -> Launcher:
        size, at = self.size, self.pointers
        product = Product(at["a"], at["b"], at["c"], size["m"], size["n"], size["k"], self.dtype, self.layout)
        return self.libraries.cublas(product) if name == "cublas" else self.libraries.cublaslt(product)

    def _free_regions(self) -> None:
        for region in self.regions:
            region.product.close(self.gpu.stream)
            region.magnitude.close(self.gpu.stream)
        self.regions = []

    def close(self) -> None:
        self._free_regions()
        for buffer in [*self.buffers.values(), *([self.before] if self.before else [])]:
            buffer.close(self.gpu.stream)
        self.buffers, self.before = {}, None


class Instances:
    """Instances of GEMM on one GPU, which share the libraries' handles."""

    def __init__(self, timer: Timer, settings: Mapping[str, Any]) -> None:
        self._libraries = Libraries(timer, settings["lt_heuristics"])
        self._seed = settings["seed"]

    def create(self, size: Mapping[str, int], dtype: str, layout: str) -> GemmInstance:
        """Allocate and fill. Raises OutOfDeviceMemory."""
        instance = GemmInstance(self._libraries.gpu, size, dtype, layout, libraries=self._libraries)
        instance.allocate()
        instance.fill_inputs(self._seed)
        return instance

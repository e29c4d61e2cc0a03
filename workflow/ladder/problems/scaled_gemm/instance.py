"""A GEMM with block scales on a device: inputs with scales over eight binades, cuBLASLt, and checks of C."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from ladder.gpu.device import CheckResultSlot, Gpu, Launcher
from ladder.gpu.instance import STEP, Check, HarnessCall, Instance, Maker, Shapes
from ladder.gpu.libraries import Gemm, Libraries
from ladder.gpu.timing import Timer
from ladder.model.problem import C_TYPES, Params, Problem, Size
from ladder.problems.gemm.bounds import ROUNDING, chance_factor
from ladder.problems.scaled_gemm import output_dtype, scale_shapes
from ladder.problems.scaled_gemm.bounds import (
    BLOCK,
    blocks_of,
    error_bound,
    rms_bound,
    row_tolerance,
)

_SPOTS = 128  # rows in which a few elements are checked
_SPOT_COLUMNS = 8
_SIDE = 64  # of a block's outputs, where all are compared
_THREADS = 256  # of a block of the checks
_SCALES = ("scale_a", "scale_b")
_NO_KIND = -1  # of the harness's: the checks here look at scales themselves


class ScaledGemmInstance(Instance):
    """Buffers a (M x K), b (N x K), their scales, c (M x N), and B times signs with its squares ahead of it."""

    drawn, outputs = ("a", "b"), ("c",)
    shifted_inputs = ("a", "b")

    def __init__(
        self, libraries: Libraries, gpu: Gpu, size: Size, dtype: str, layout: str
    ) -> None:
        self.libraries = libraries
        self.m, self.n, self.k = size["m"], size["n"], size["k"]
        self.output = output_dtype(dtype)
        super().__init__(gpu, size, dtype, layout)

    @classmethod
    def maker(
        cls, timer: Timer, settings: Mapping[str, Any], problem: Problem
    ) -> Maker:
        """All share the library's handle."""
        return partial(cls, Libraries(timer, settings["lt_heuristics"]))

    def shapes(self) -> Shapes:
        scales = {name: (of, "fp32") for name, of in scale_shapes(self.size).items()}
        return {
            "a": ((self.m, self.k), "fp8"),
            "b": ((self.n, self.k), "fp8"),
            **scales,
            "c": ((self.m, self.n), self.output),
            "signed": ((self._squares() + self.k,), "fp32"),
        }

    def _squares(self) -> int:
        """Elements ahead of B times signs: whole 16 bytes."""
        return -(-blocks_of(self.k) // 4) * 4

    def shifts(self) -> int:
        """Those of A that move it by different parts of a row: with each, other products meet."""
        return self.k // math.gcd(self.k, STEP)

    def fill_inputs(self, seed: int) -> None:
        """Scales are of one kind: random in 24 bits, over eight binades."""
        super().fill_inputs(seed)
        for name in _SCALES:
            tensor = self.tensors[name]
            self.note_drawn(tensor, f"{seed} {name}")
            tensor.kind.value = _NO_KIND
            drawn = tensor.pointer, tensor.elements, tensor.key
            self.gpu.harness.run("draw_scales", tensor.elements // 4, *drawn)

    def error_bound(self, params: Params) -> float:
        return error_bound(self.k, self.inputs)

    def _compared(self) -> tuple[Any, ...]:
        """What both checks take: buffers, and the keys of scales."""
        names = ("c", "a", "b", *_SCALES)
        keys = [self.tensors[name].key for name in _SCALES]
        return (*map(self.pointer, names), *keys)

    def check(self, params: Params) -> Check:
        return self.check_squares(params, self._rms_scale(self.m * self.n))

    def _rms_scale(self, elements: int) -> float:
        """What makes the root of so many squares of errors comparable with the largest error."""
        allowed = rms_bound(self.k, self.inputs, elements)
        return self.error_bound({}) / allowed / math.sqrt(elements)

    def comparison(self, params: Params) -> HarnessCall:
        tiles = -(-self.m // _SIDE) * -(-self.n // _SIDE)
        size = (self.m, self.n, self.k)
        scaled = int(params.get("scaled", 1))
        arguments = (*self._compared(), scaled, *size, ROUNDING[self.output])
        entry = f"compare_scaled<{C_TYPES[self.output]}>"
        return HarnessCall(entry, tiles * _THREADS, arguments)

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """Freivalds' check of every row, and a thousand random elements: see check.cu."""
        scaled = int(params.get("scaled", 1))
        b, signed = self.tensors["b"], self.tensors["signed"]
        # After the launch, which may have written there.
        self.gpu.zero(signed.pointer, signed.buffer.size)
        sums = signed.pointer + 4 * self._squares(), signed.pointer
        blocks = blocks_of(self.k) * -(-self.n // BLOCK)
        given = b.pointer, self.pointer("scale_b"), scaled, *b.shape
        self.gpu.harness.run(
            "multiply_columns_by_signs", blocks * _THREADS, slot, *sums, *given
        )
        bound, chance = self.error_bound(params), chance_factor(self.m)
        arguments = (
            *self._compared(),
            *sums,
            scaled,
            _SPOTS,
            self.m,
            self.n,
            self.k,
            ROUNDING[self.output],
            chance,
            chance * row_tolerance(self.k, self.inputs) / bound,
            self._rms_scale(_SPOTS * _SPOT_COLUMNS),
        )
        entry = f"check_scaled<{C_TYPES[self.output]}>"
        return HarnessCall(entry, (_SPOTS + self.m) * _THREADS, arguments)

    def library(self, name: str) -> dict[str, Launcher]:
        """cuBLASLt with scales by blocks. Raises LadderError where it has none."""
        pointers = (self.pointer("a"), self.pointer("b"), self.pointer("c"))
        scales = (self.pointer("scale_a"), self.pointer("scale_b"))
        size = (self.m, self.n, self.k)
        gemm = Gemm(pointers, size, self.dtype, self.layout, scales)
        return self.libraries.cublaslt(gemm)


INSTANCE = ScaledGemmInstance

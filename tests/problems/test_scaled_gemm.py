"""The problem scaled_gemm, without a GPU: which products its two checks accept, and what they work out."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from conftest import ROOT
from emulator.check_ptx import CheckMachine
from emulator.inputs import philox, value
from emulator.ptx import Array
from emulator.tensor_ptx import compiled_program, from_bits, to_bits
from ladder.gpu.device import CheckResultSlot, _mixed
from ladder.gpu.tensor import Tensor
from ladder.gpu.workspace import Workspaces
from ladder.model.problem import ELEMENT_BYTES
from ladder.problems.scaled_gemm import PROBLEM, instance, output_dtype, scale_shapes
from ladder.problems.scaled_gemm.bounds import (
    BLOCK,
    LONGEST_K,
    blocks_of,
    error_bound,
    rms_bound,
)
from ladder.problems.scaled_gemm.instance import ScaledGemmInstance
from problems.check_kernels import KEY, EmulatedHarness

SIZE = (130, 72, 400)
EXPLOITS = ROOT / "tests/exploits"
SCALED, PLAIN = {"scaled": 1}, {"scaled": 0}


@dataclass(frozen=True)
class Operands:
    """A and B as they are, and their scales: of each row of A by block of K, of each column of B by the same."""

    a: Array
    b: Array
    of_a: Array
    of_b: Array

    def blocks(self) -> list[tuple[Array, Array]]:
        """The product of each block of K, exactly but for fp64, and its scales."""
        found = []
        for at in range(len(self.of_a)):
            part = slice(BLOCK * at, BLOCK * (at + 1))
            scale = self.of_a[at][:, None] * self.of_b[at]
            found.append((self.a[:, part] @ self.b[:, part].T, scale))
        return found

    def product(self) -> Array:
        return np.asarray(sum(scale * block for block, scale in self.blocks()))

    def magnitudes(self) -> list[Array]:
        """N_b of each block: see bounds.py."""
        found = []
        for at in range(len(self.of_a)):
            part = slice(BLOCK * at, BLOCK * (at + 1))
            norms = [np.sqrt((one[:, part] ** 2).sum(1)) for one in (self.a, self.b)]
            found.append(np.outer(norms[0] * self.of_a[at], norms[1] * self.of_b[at]))
        return found


class Emulated:
    """An instance whose checks run on the CPU."""

    def __init__(self, dtype: str, size: tuple[int, int, int] = SIZE) -> None:
        self.on = EmulatedHarness("scaled_gemm")
        made = ScaledGemmInstance.__new__(ScaledGemmInstance)
        made.m, made.n, made.k = size
        made.size = dict(zip("mnk", size, strict=True))
        made.dtype, made.output = dtype, output_dtype(dtype)
        made.inputs, made._secret, made.tensors = "uniform", b"a secret", {}
        for name, (shape, element) in made.shapes().items():
            length = math.prod(shape) * ELEMENT_BYTES[element]
            buffer: Any = SimpleNamespace(handle=self.on.allocate(length), size=length)
            made.tensors[name] = Tensor(buffer, shape, element, buffer, buffer)
        made.gpu = cast(Any, SimpleNamespace(harness=self.on, zero=self.on.zero))
        made._workspaces, made._place = defaultdict(lambda: Workspaces(made.gpu)), 0
        self.made = made

    def held(self, name: str, kind: Any) -> Array:
        tensor = self.made.tensors[name]
        count = math.prod(tensor.shape)
        return self.on.view(tensor.pointer, count, kind).reshape(tensor.shape)

    def operands(self, scaled: bool = True) -> Operands:
        a, b = (value(self.held(name, np.uint8), "fp8") for name in "ab")
        of_a, of_b = (self.held(f"scale_{name}", np.float32) for name in "ab")
        blocks = blocks_of(self.made.k)
        by_columns = np.repeat(of_b.T[:blocks], BLOCK, 1)[:, : self.made.n]
        scales = of_a[:, : self.made.m].astype(float), by_columns.astype(float)
        if not scaled:
            scales = tuple(np.ones_like(one) for one in scales)
        return Operands(a, b, *scales)

    def write(self, c: Array) -> None:
        single = c.astype(np.float32)
        kind = np.float32 if self.made.output == "fp32" else np.uint16
        bits = single if kind is np.float32 else to_bits(single, "bf16")
        self.held("c", kind)[:] = bits

    def checked(self, params: dict[str, int] = SCALED) -> float:
        """The check of all elements: the largest error over its bound."""
        check = self.made.check(params)
        return check.max_error / check.error_bound

    def inspected(self, params: dict[str, int] = SCALED) -> float:
        """The same of the check of a timed launch."""
        place = self.on.allocate(64)
        self.made.inspect(params, CheckResultSlot(place, place + 32, KEY))
        words = [int(one) for one in self.on.view(place, 6, np.uint64)]
        assert words == [0, 0, 0, 0, words[4], _mixed(KEY, words[4])]
        error = float(self.on.view(place, 6, np.float64)[4])
        return error / self.made.error_bound(params)


@pytest.fixture(autouse=True)
def _few_spots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 256 threads each."""
    monkeypatch.setattr(instance, "_SPOTS", 8)


def filled(
    dtype: str, size: tuple[int, int, int] = SIZE, kind: str = "uniform"
) -> Emulated:
    made = Emulated(dtype, size)
    made.made.inputs = kind
    made.made.fill_inputs(5)
    return made


def by_tensor_cores(given: Operands) -> Array:
    """Sums of 128 products with 14 bits, 32 at a time, then in fp32: as an honest kernel makes them."""
    total = np.zeros((len(given.a), len(given.b)), np.float32)
    for at in range(len(given.of_a)):
        partial = np.zeros(total.shape)
        end = min(BLOCK * (at + 1), given.a.shape[1])
        for first in range(BLOCK * at, end, 32):
            part = slice(first, min(first + 32, end))
            products = given.a[:, None, part] * given.b[None, :, part]
            top = np.maximum(np.abs(products).max(-1), np.abs(partial))
            unit = np.ldexp(1.0, np.frexp(top)[1] - 14)
            cut = np.trunc(products / unit[..., None]).sum(-1)
            partial = (np.trunc(partial / unit) + cut) * unit
        scale = np.outer(given.of_a[at].astype(np.float32), given.of_b[at])
        total += scale.astype(np.float32) * partial.astype(np.float32)
    return total


@pytest.mark.parametrize("kind", PROBLEM.inputs)
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
@pytest.mark.parametrize("params", [SCALED, PLAIN])
def test_sums_of_tensor_cores_pass_both_checks(
    params: dict[str, int], dtype: str, kind: str
) -> None:
    made = filled(dtype, (12, 40, 1040), kind)
    made.write(by_tensor_cores(made.operands(bool(params["scaled"]))))
    assert made.checked(params) < 0.8
    assert made.inspected(params) < 0.8


@pytest.mark.parametrize(
    "size", [(1, 257, 144), (129, 1, 128), (66, 66, 16), (3, 19, 2064), (5, 136, 272)]
)
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_they_work_out_the_product_at_every_size(
    dtype: str, size: tuple[int, int, int]
) -> None:
    """An fp32 result is exact but for its last bits."""
    made = filled(dtype, size)
    right = made.operands().product()
    made.write(right)
    most = 1e-3 if dtype == "fp8_fp32" else 1.0
    assert made.checked() < most
    assert made.inspected() < most
    for at in ((0, 0), (-1, -1), (size[0] // 2, size[1] // 2)):
        wrong = right.copy()
        wrong[at] += math.hypot(*(one[at] for one in made.operands().magnitudes()))
        made.write(wrong)
        assert made.checked() > 1, at
        assert made.inspected() > 1, at
        wrong[at] = np.nan
        made.write(wrong)
        assert made.checked() > 1e100, at
        assert made.inspected() > 1e100, at


def test_the_largest_error_is_over_the_sum_of_the_norms_of_blocks() -> None:
    made = filled("fp8_fp32")
    made.made.inputs = "wide"  # of which elements alone count
    given = made.operands()
    error = np.random.default_rng(1).normal(size=SIZE[:2]) * np.abs(given.product())
    made.write(given.product() + error)
    stored = made.held("c", np.float32).astype(float) - given.product()
    largest = np.max(np.abs(stored) / sum(given.magnitudes()))
    assert made.checked() == pytest.approx(largest / error_bound(400, "wide"), rel=1e-4)


def test_all_errors_together_are_over_the_root_of_the_squares_of_these() -> None:
    made = filled("fp8_fp32")
    given = made.operands()
    squares = sum(one**2 for one in given.magnitudes())
    allowed = rms_bound(400, "uniform", squares.size)
    for share in (0.9, 1.1):
        made.write(given.product() + share * allowed * np.sqrt(squares))
        check = made.made.check(SCALED)
        assert check.correct is (share < 1)
        assert ("root mean square" in str(check)) is (share > 1)


def neighbours(scales: Array, axis: int) -> Array:
    return np.roll(scales, 1, axis)


def shared(scales: Array) -> Array:
    """Of two blocks of K the first one's scale."""
    return np.repeat(scales[::2], 2, 0)[: len(scales)]


def power_of_two(scales: Array) -> Array:
    return np.asarray(np.exp2(np.rint(np.log2(scales))))


def without_b(scales: Array) -> Array:
    """The second 64 columns have none of B's."""
    return np.concatenate(
        [scales[:, :64], np.ones_like(scales[:, 64:128]), scales[:, 128:]], 1
    )


CHEATS: dict[str, Callable[[Operands], Operands]] = {
    "no scales": lambda x: replace(
        x, of_a=np.ones_like(x.of_a), of_b=np.ones_like(x.of_b)
    ),
    "none of A": lambda x: replace(x, of_a=np.ones_like(x.of_a)),
    "none of B": lambda x: replace(x, of_b=np.ones_like(x.of_b)),
    "A's of the row before": lambda x: replace(x, of_a=neighbours(x.of_a, 1)),
    "A's of the block of K before": lambda x: replace(x, of_a=neighbours(x.of_a, 0)),
    "B's of the block of K before": lambda x: replace(x, of_b=neighbours(x.of_b, 0)),
    "two blocks of K share A's": lambda x: replace(x, of_a=shared(x.of_a)),
    "two blocks of K share B's": lambda x: replace(x, of_b=shared(x.of_b)),
    "powers of two": lambda x: replace(
        x, of_a=power_of_two(x.of_a), of_b=power_of_two(x.of_b)
    ),
    "all columns have B's first scale": lambda x: replace(
        x, of_b=np.repeat(x.of_b[:, :1], len(x.b), 1)
    ),
    "blocks of 64 columns": lambda x: replace(
        x, of_b=np.concatenate([x.of_b[:, ::2], x.of_b[:, 1::2]], 1)
    ),
    "the last block of K has the scales before": lambda x: replace(
        x, of_a=np.concatenate([x.of_a[:-1], x.of_a[-2:-1]])
    ),
    "the last part of K is left out": lambda x: replace(
        x, of_a=np.concatenate([x.of_a[:-1], 0 * x.of_a[-1:]])
    ),
    "64 columns have none of B": lambda x: replace(x, of_b=without_b(x.of_b)),
}


@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_other_scales_are_found_by_both_checks(dtype: str, cheat: str) -> None:
    made = filled(dtype, (10, 264, 528))
    made.write(CHEATS[cheat](made.operands()).product())
    assert made.checked() > 3
    assert made.inspected() > 3


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in EXPLOITS.glob("scaled_*.cu"))
)
def test_exploits_are_found_and_their_reference_is_right(name: str) -> None:
    made = filled("fp8", (10, 136, 272))
    program = compiled_program(EXPLOITS / f"{name}.cu", "exploit", EXPLOITS, 0)
    buffers = [made.made.pointer(name) for name in PROBLEM.buffers]
    arguments = [*buffers, 10, 136, 272]
    CheckMachine(program, made.on.memory, -(-10 * 136 // 256), arguments).run()
    right = name == "scaled_honest"
    assert (made.checked() <= 1) is right
    assert (made.inspected() <= 1) is right


def test_the_answer_without_scales_is_another() -> None:
    made = filled("fp8")
    for scaled in (0, 1):
        made.write(made.operands(bool(scaled)).product())
        for asked in (0, 1):
            assert (made.checked({"scaled": asked}) <= 1) is (asked == scaled)
            assert (made.inspected({"scaled": asked}) <= 1) is (asked == scaled)


def test_a_tile_of_one_launch_with_the_scales_of_its_neighbour_is_found() -> None:
    """One of 32 beside one another, and nothing else is wrong: by the sums of its rows."""
    made = filled("fp8", (4, 4096, 272))
    given = made.operands()
    c, wrong = given.product(), replace(given, of_a=neighbours(given.of_a, 0)).product()
    c[:, 1024:1152] = wrong[:, 1024:1152]
    made.write(c)
    assert made.inspected() > 1


def test_scales_in_bf16_show_where_c_is_in_fp32() -> None:
    """Beside results in bf16 they lose no more than the rounding of these."""
    made = filled("fp8_fp32", (40, 72, 1040))
    given = made.operands()
    rounded = [
        from_bits(to_bits(one.astype(np.float32), "bf16"), "bf16").astype(float)
        for one in (given.of_a, given.of_b)
    ]
    made.write(replace(given, of_a=rounded[0], of_b=rounded[1]).product())
    assert made.checked() > 1.2


@pytest.mark.parametrize("name", ["scale_a", "scale_b"])
@pytest.mark.parametrize("at", [0, -1])
def test_scales_that_a_kernel_wrote_are_found(name: str, at: int) -> None:
    """Though C is the product with them. The last number is padding."""
    made = filled("fp8", (7, 24, 400))
    made.held(name, np.float32).reshape(-1)[at] *= 1.5
    made.write(made.operands().product())
    assert made.checked() > 1e100
    assert made.inspected() > 1e100


def test_scales_are_of_eight_binades_and_each_draw_has_others() -> None:
    made = filled("fp8", (250, 16, 1024))
    seen = []
    for seed in (5, 5, 6):
        made.made.fill_inputs(seed)
        drawn = [made.held(f"scale_{name}", np.float32).copy() for name in "ab"]
        seen.append(np.concatenate([one.reshape(-1) for one in drawn]))
    binades, counts = np.unique(np.frexp(seen[0])[1] - 1, return_counts=True)
    assert binades.tolist() == [*range(-4, 4)]
    assert counts.min() > 0.8 * counts.mean()
    mantissas = np.frexp(seen[0])[0]
    assert (
        np.abs(np.histogram(mantissas, 8, (0.5, 1))[0] / len(mantissas) - 1 / 8).max()
        < 0.02
    )
    assert (seen[0] == seen[1]).all()
    assert (seen[0] == seen[2]).mean() < 0.01
    key = made.made.tensors["scale_a"].key.value
    words = philox(key, np.arange(2, dtype=np.uint64)).reshape(-1)
    expected = np.ldexp(1 + (words & 0x7FFFFF) / 2**23, (words >> 29).astype(int) - 4)
    assert (
        made.held("scale_a", np.float32).reshape(-1)[:8].tolist() == expected.tolist()
    )


def test_b_times_signs_has_the_scales_of_b() -> None:
    made = filled("fp8", (5, 300, 400))
    made.write(made.operands().product())
    made.inspected()
    given = made.operands()
    signs = np.array(
        [-1.0 if _mixed(KEY, at // 32) >> at % 32 & 1 else 1.0 for at in range(300)]
    )
    held = made.held("signed", np.float32)
    for at in range(4):
        part = slice(BLOCK * at, min(BLOCK * (at + 1), 400))
        scaled = given.b[:, part] * given.of_b[at][:, None]
        assert held[at] == pytest.approx((scaled**2).sum(), rel=1e-5)
        of_y = held[4:][part]
        np.testing.assert_allclose(of_y, signs @ scaled, rtol=1e-4, atol=1e-3)


def test_the_library_takes_a_b_and_their_scales() -> None:
    made, seen = Emulated("fp8_fp32", (24, 40, 272)).made, list[Any]()
    library: Any = SimpleNamespace(cublaslt=lambda gemm: seen.append(gemm) or {})
    made.libraries, made.layout = library, "TN"
    assert made.library("cublaslt_block") == {}
    (gemm,) = seen
    assert gemm.pointers == tuple(map(made.pointer, "abc"))
    assert gemm.scales == (made.pointer("scale_a"), made.pointer("scale_b"))
    assert (gemm.size, gemm.dtype, gemm.layout) == ((24, 40, 272), "fp8_fp32", "TN")


def test_what_the_problem_needs_is_counted_with_its_scales() -> None:
    size = {"m": 100, "n": 200, "k": 400}
    assert scale_shapes(size) == {"scale_a": (4, 100), "scale_b": (2, 4)}
    assert scale_shapes({"m": 5, "n": 129, "k": 1040}) == {
        "scale_a": (9, 8),
        "scale_b": (2, 12),
    }
    for dtype, each in (("fp8", 2), ("fp8_fp32", 4)):
        work = PROBLEM.work(size, dtype, SCALED)
        assert work.operations == 2 * 100 * 200 * 400
        assert work.bytes == 300 * 400 + 4 * 4 * 102 + 100 * 200 * each
        bare = PROBLEM.work(size, dtype, PLAIN)
        assert work.bytes - bare.bytes == 4 * 4 * 102


def test_rows_that_are_no_whole_vectors_and_sums_too_long_are_unsupported() -> None:
    size = {"m": 8, "n": 8, "k": 400}
    assert PROBLEM.unsupported(size, "fp8") is None
    assert "multiple of 16" in str(PROBLEM.unsupported(size | {"k": 392}, "fp8"))
    assert "beyond K" in str(PROBLEM.unsupported(size | {"k": 2 * LONGEST_K}, "fp8"))
    for group in PROBLEM.edges(SCALED):
        assert all(PROBLEM.unsupported(edge, "fp8") is None for edge in group)
        assert any(edge["n"] % 8 == 0 for edge in group)

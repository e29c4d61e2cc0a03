"""The problem scaled_gemm, without a GPU: which products its two checks accept, and what they work out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from emulator.check_ptx import CheckMachine
from emulator.inputs import philox, value
from emulator.ptx import Array
from emulator.tensor_ptx import compiled_program, from_bits, to_bits
from ladder.problems.scaled_gemm import PROBLEM, scale_shapes
from ladder.problems.scaled_gemm.bounds import (
    BLOCK,
    LONGEST_K,
    blocks_of,
    error_bound,
    rms_bound,
)
from problems.check_kernels import EmulatedProduct, emulate_products, signs
from problems.test_attention import product

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


class Emulated(EmulatedProduct):
    """An instance whose checks run on the CPU."""

    def operands(self, scaled: bool = True) -> Operands:
        a, b = (value(self.held(name), "fp8") for name in "ab")
        of_a, of_b = (self.held(f"scale_{name}") for name in "ab")
        blocks = blocks_of(self.instance.k)
        by_columns = np.repeat(of_b.T[:blocks], BLOCK, 1)[:, : self.instance.n]
        scales = of_a[:, : self.instance.m].astype(float), by_columns.astype(float)
        if not scaled:
            scales = tuple(np.ones_like(one) for one in scales)
        return Operands(a, b, *scales)

    def checked(self, params: dict[str, int] = SCALED) -> float:
        """The check of all elements: the largest error over its bound."""
        check = self.instance.check(params)
        return check.max_error / check.error_bound

    def inspected(self, params: Mapping[str, int] = SCALED) -> float:
        """The same of the check of a timed launch."""
        return super().inspected(params) / self.instance.error_bound(params)


@pytest.fixture(autouse=True)
def _emulated(fake_buffers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate_products(monkeypatch, "scaled_gemm")


def filled(
    dtype: str, size: tuple[int, int, int] = SIZE, kind: str = "uniform"
) -> Emulated:
    emulated = Emulated("scaled_gemm", dtype, size)
    emulated.instance.inputs = kind
    emulated.instance.fill_inputs(5)
    return emulated


def by_tensor_cores(given: Operands) -> Array:
    """Sums of 128 products with 14 bits, 32 at a time, then in fp32: as an honest kernel makes them."""
    total = np.zeros((len(given.a), len(given.b)), np.float32)
    for at in range(len(given.of_a)):
        part = slice(BLOCK * at, BLOCK * (at + 1))
        a, b = (one[None, :, part].astype(np.float32) for one in (given.a, given.b))
        (partial,) = product(a, np.swapaxes(b, 1, 2), "fp8")
        scale = np.outer(given.of_a[at].astype(np.float32), given.of_b[at])
        total += scale.astype(np.float32) * partial
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
    made.instance.inputs = "wide"  # of which elements alone count
    given = made.operands()
    error = np.random.default_rng(1).normal(size=SIZE[:2]) * np.abs(given.product())
    made.write(given.product() + error)
    stored = made.held("c").astype(float) - given.product()
    largest = np.max(np.abs(stored) / sum(given.magnitudes()))
    assert made.checked() == pytest.approx(largest / error_bound(400, "wide"), rel=1e-4)


def test_all_errors_together_are_over_the_root_of_the_squares_of_these() -> None:
    made = filled("fp8_fp32")
    given = made.operands()
    squares = sum(one**2 for one in given.magnitudes())
    allowed = rms_bound(400, "uniform", squares.size)
    for share in (0.9, 1.1):
        made.write(given.product() + share * allowed * np.sqrt(squares))
        check = made.instance.check(SCALED)
        assert check.correct is (share < 1)
        assert ("root mean square" in str(check)) is (share > 1)


def neighbours(scales: Array, axis: int) -> Array:
    return np.roll(scales, 1, axis)


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in EXPLOITS.glob("scaled_*.cu"))
)
def test_exploits_are_found_and_their_reference_is_right(name: str) -> None:
    made = filled("fp8", (10, 136, 272))
    program = compiled_program(EXPLOITS / f"{name}.cu", "exploit", EXPLOITS, 0)
    buffers = [made.instance.pointer(name) for name in PROBLEM.buffers]
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
    made.held(name).reshape(-1)[at] *= 1.5
    made.write(made.operands().product())
    assert made.checked() > 1e100
    assert made.inspected() > 1e100


def test_scales_are_of_eight_binades_and_each_draw_has_others() -> None:
    emulated = filled("fp8", (250, 16, 1024))
    keys = set()
    for seed in (5, 5, 6):
        emulated.instance.fill_inputs(seed)
        for name in ("scale_a", "scale_b"):
            held = emulated.held(name).reshape(-1)
            key = emulated.instance.tensors[name].key.value
            words = philox(key, np.arange(len(held) // 4, dtype=np.uint64)).reshape(-1)
            binades = (words >> 29).astype(int) - 4
            assert (held == np.ldexp(1 + (words & 0x7FFFFF) / 2**23, binades)).all()
            keys.add(key)
    assert len(keys) == 4


def test_b_times_signs_has_the_scales_of_b() -> None:
    made = filled("fp8", (5, 300, 400))
    made.write(made.operands().product())
    made.inspected()
    given = made.operands()
    held = made.held("signed")
    for at in range(4):
        part = slice(BLOCK * at, min(BLOCK * (at + 1), 400))
        scaled = given.b[:, part] * given.of_b[at][:, None]
        assert held[at] == pytest.approx((scaled**2).sum(), rel=1e-5)
        of_y = held[4:][part]
        np.testing.assert_allclose(of_y, signs(300) @ scaled, rtol=1e-4, atol=1e-3)


def test_the_library_takes_a_b_and_their_scales() -> None:
    made, seen = (
        Emulated("scaled_gemm", "fp8_fp32", (24, 40, 272), "TN").instance,
        list[Any](),
    )
    library: Any = SimpleNamespace(cublaslt=lambda gemm: seen.append(gemm) or {})
    made.libraries = library
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

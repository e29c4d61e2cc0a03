"""The problem transpose, without a GPU: which outputs its check accepts, and what it asks cuBLAS for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator.ptx import Array
from fake_gpu import fake_instance
from ladder.model.errors import LadderError
from ladder.model.problem import C_TYPES, INPUTS
from ladder.problems.transpose import PROBLEM
from ladder.problems.transpose import instance as of_transpose
from ladder.problems.transpose.instance import TransposeInstance
from problems.check_kernels import KEY, EmulatedHarness, inspected, matrix

SHAPES = ((1, 1), (1, 37), (37, 1), (5, 7), (33, 30), (64, 16), (300, 3))


def wrong(dtype: str, output: Array, kind: str = "uniform") -> int:
    """How many elements of an output (n x m) count_wrong counts."""
    on, (n, m) = EmulatedHarness("transpose", blocks=2), output.shape
    given = on.count, on.put(output), m, n, KEY, INPUTS.index(kind)
    _, count = on.reduce(f"count_wrong<{C_TYPES[dtype]}>", m * n, *given)
    return count


def matrix_bits(
    dtype: str, m: int, n: int, kind: str = "uniform", key: int = KEY
) -> Array:
    elements = matrix(dtype, m, n, kind, key)
    return elements.view(f"u{elements.itemsize}")


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_the_check_accepts_the_transposed_matrix_that_was_drawn(
    dtype: str, kind: str
) -> None:
    for m, n in SHAPES:
        assert wrong(dtype, matrix_bits(dtype, m, n, kind).T, kind) == 0, (m, n)


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_it_looks_at_every_element_at_every_shape(dtype: str) -> None:
    """One that differs in its lowest bit is found wherever it is; all are where all do."""
    for m, n in SHAPES:
        right = matrix_bits(dtype, m, n).T.copy()
        assert wrong(dtype, right ^ 1) == m * n
        for at in {0, m * n // 2, m * n - 1}:
            one = right.copy()
            one.reshape(-1)[at] ^= 1
            assert wrong(dtype, one) == 1, (m, n, at)


def test_a_zero_without_its_sign_is_wrong() -> None:
    """As all is that differs in a bit."""
    right = matrix_bits("fp32", 48, 32, "integers").T
    made = np.where(right == 0x80000000, np.uint32(0), right)
    assert wrong("fp32", made, "integers") > 0


def test_a_timed_launch_is_held_to_the_same() -> None:
    right = matrix_bits("bf16", 40, 33).T.copy()
    spoilt = right.copy()
    spoilt[32, 39] ^= 1
    for output, error in ((right, 0.0), (spoilt, 1.0)):
        numbers = (40, 33, KEY, INPUTS.index("uniform"))
        entry = "check_outputs<__nv_bfloat16>"
        assert inspected("transpose", entry, [output], *numbers) == error


# The instance, on a GPU that only counts.


class Cublas:
    """Notes the calls of geam."""

    def __init__(self) -> None:
        self.calls = list[tuple[Any, ...]]()

    def sgeam(self, *given: Any) -> None:
        self.calls.append(given)


@pytest.fixture
def make(fake_buffers: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(of_transpose, "cublas", Cublas())

    def made(dtype: str, m: int, n: int) -> TransposeInstance:
        found: TransposeInstance = fake_instance("transpose", dtype, {"m": m, "n": n})
        return found

    return made


def test_what_is_wrong_is_counted_in_words(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make("fp32", 33, 7)
    for found, correct in ((0, True), (5, False)):
        monkeypatch.setattr(made.gpu, "reduce", lambda *_, found=found: (0.0, found))
        check = made.check({})
        assert check.correct is correct
        assert correct or str(check) == "5 of 231 outputs are not those of the input"


def as_blas(call: tuple[Any, ...], given: Array) -> Array:
    """What geam makes of a dense matrix, as cuBLAS documents it: column-major."""
    _, transpose_a, transpose_b, m, n, alpha, _, lda, beta, b, ldb, c, ldc = call
    factors = of_transpose._FACTORS
    assert factors.tolist() == [1.0, 0.0]
    assert (alpha, beta) == (factors.ctypes.data, factors.ctypes.data + 4)
    assert (transpose_b, b, ldb) == (0, c, ldc)  # in place: C = op(A) + 0 C
    rows, columns = (n, m) if transpose_a else (m, n)
    assert (lda, ldc) == (rows, m)
    a = given.reshape(rows, columns, order="F")
    return (a.T if transpose_a else a).ravel(order="F")


def test_geam_is_asked_for_the_transposed_matrix(make: Any) -> None:
    made = make("fp32", 5, 3)
    made.library("geam")[""]()
    (call,) = of_transpose.cublas.calls
    given = np.arange(15)
    places = made.pointer("input"), made.pointer("output")
    assert (call[0], call[6], call[11]) == (77, *places)
    found = as_blas(call, given).reshape(3, 5)
    assert (found == given.reshape(5, 3).T).all()


def test_without_geam_of_bf16_a_note_says_so(make: Any) -> None:
    with pytest.raises(LadderError, match="cuBLAS has no geam of bf16"):
        make("bf16", 5, 3).library("geam")

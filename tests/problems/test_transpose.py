"""The problem transpose, without a GPU: which outputs its check accepts, and what it asks cuBLAS for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator.check_ptx import CheckMachine, check_program
from emulator.ptx import Array, Memory
from fake_gpu import fake_instance
from ladder.model.errors import LadderError
from ladder.model.folders import PACKAGE
from ladder.model.problem import C_TYPES, INPUTS
from ladder.problems.transpose import PROBLEM
from ladder.problems.transpose import instance as of_transpose
from ladder.problems.transpose.instance import TransposeInstance
from problems.check_kernels import KEY, inspected, matrix, words

CHECK = PACKAGE / "problems/transpose/check.cu"
SHAPES = ((1, 1), (1, 37), (37, 1), (5, 7), (33, 30), (64, 16), (300, 3))


def wrong(dtype: str, output: Array, kind: str = "uniform") -> int:
    """How many elements of an output (n x m) count_wrong counts."""
    memory, (n, m) = Memory(), output.shape
    count = memory.buffer(0, np.zeros(8, np.uint32), writable=True)
    place = memory.buffer(0, words(output), writable=False)
    memory.readable[: place // 4] = 0
    program = check_program(CHECK, f"count_wrong<{C_TYPES[dtype]}>", PACKAGE / "gpu")
    given = [count, place, m, n, KEY, INPUTS.index(kind)]
    CheckMachine(program, memory, 2, given).run()
    return int(memory.words[count // 4 :][:4].view(np.uint64)[0])


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_the_check_accepts_the_transposed_matrix_that_was_drawn(
    dtype: str, kind: str
) -> None:
    for m, n in SHAPES:
        assert wrong(dtype, matrix(dtype, m, n, kind).T, kind) == 0, (m, n)


@pytest.mark.parametrize("dtype", PROBLEM.dtypes)
def test_it_looks_at_every_element_at_every_shape(dtype: str) -> None:
    """One that differs in its lowest bit is found wherever it is; all are where all do."""
    for m, n in SHAPES:
        right = matrix(dtype, m, n).T.copy()
        assert wrong(dtype, right ^ 1) == m * n
        for at in {0, m * n // 2, m * n - 1}:
            one = right.copy()
            one.reshape(-1)[at] ^= 1
            assert wrong(dtype, one) == 1, (m, n, at)


def one_wrong_tile(right: Array) -> Array:
    made = right.copy()
    made[8:16, 24:32] = made[0:8, 0:8]
    return made


CHEATS = {
    "the input as it is": lambda right: right.T.reshape(right.shape),
    "half of it": lambda right: np.concatenate(
        [right[:16], np.full_like(right[16:], 0xFFFFFFFF)]
    ),
    "the launch before": lambda right: matrix("fp32", 48, 32, key=KEY + 1).T,
    "one wrong tile": one_wrong_tile,
    "rows the other way round": lambda right: right[::-1],
    "rounded to bf16": lambda right: right & np.uint32(0xFFFF0000),
    "zeros without their sign": lambda right: np.where(
        right == 0x80000000, np.uint32(0), right
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_is_not_the_answer_is_found_in_one_launch(cheat: str) -> None:
    kind = "integers" if "zeros" in cheat else "uniform"
    made = CHEATS[cheat](matrix("fp32", 48, 32, kind).T)
    assert wrong("fp32", made.astype(np.uint32), kind) > 0


def test_a_timed_launch_is_held_to_the_same() -> None:
    right = matrix("bf16", 40, 33).T.copy()
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


def as_blas(call: tuple[Any, ...], memory: dict[int, Array]) -> Array:
    """What geam makes of matrices in `memory`, by address, as cuBLAS documents it: column-major."""
    _, transpose_a, transpose_b, m, n, alpha, a, lda, beta, b, ldb, c, ldc = call
    factors = {alpha: 1.0, beta: 0.0}
    assert len(factors) == 2
    assert [float(one) for one in of_transpose._FACTORS] == [1.0, 0.0]
    assert (alpha, beta) == (
        of_transpose._FACTORS.ctypes.data,
        of_transpose._FACTORS.ctypes.data + 4,
    )
    assert (transpose_b, b, ldb) == (0, c, ldc)  # in place: C = op(A) + 0 C
    rows, columns = (n, m) if transpose_a else (m, n)
    given = np.lib.stride_tricks.as_strided(memory[a], (rows, columns), (4, 4 * lda))
    assert (columns - 1) * lda + rows == memory[a].size
    result = np.zeros(ldc * n, np.float32)
    np.lib.stride_tricks.as_strided(result, (m, n), (4, 4 * ldc))[:] = (
        given.T if transpose_a else given
    )
    return result


def test_geam_is_asked_for_the_transposed_matrix(make: Any) -> None:
    made = make("fp32", 5, 3)
    made.library("geam")[""]()
    (call,) = of_transpose.cublas.calls
    given = np.arange(15, dtype=np.float32)
    found = as_blas(call, {made.pointer("input"): given})
    assert (call[0], call[11]) == (77, made.pointer("output"))
    assert (found.reshape(3, 5) == given.reshape(5, 3).T).all()


def test_without_geam_of_bf16_a_note_says_so(make: Any) -> None:
    with pytest.raises(LadderError, match="cuBLAS has no geam of bf16"):
        make("bf16", 5, 3).library("geam")

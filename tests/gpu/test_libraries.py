"""cuBLASLt as a reference, with a library that the test scripts in place of the real one: which algorithm is taken."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ladder.gpu import libraries
from ladder.gpu.instance import Instance
from ladder.gpu.libraries import Gemm, Libraries
from ladder.measure.bench import Bench
from ladder.model.errors import LadderError
from ladder.problems.gemm.instance import GemmInstance

FP8 = Gemm((1, 2, 3), (64, 64, 64), "fp8", "TN")
BF16 = Gemm((1, 2, 3), (64, 64, 64), "bf16", "TN")


class LibraryError(Exception):
    """What the scripted library raises."""


class ScriptedLibrary:
    """A heuristic list of (id, tile), of which it tells nothing else; all of the real one's names."""

    def __init__(self, listed: Sequence[tuple[int, int]]) -> None:
        self.listed, self.launched, self.fast = list(listed), list[int](), list[int]()

    def __getattr__(self, name: str) -> Any:
        if name.endswith(("_create", "_set_attribute")) or name == "create":
            return lambda *_: 0
        return LibraryError if name == "cuBLASLtError" else getattr(REAL, name)

    def matmul_desc_set_attribute(self, descriptor: int, attribute: int, at: int, size: int) -> None:
        if attribute == REAL.MatmulDescAttribute.FAST_ACCUM:
            assert size == 1
            self.fast.append(ctypes.c_int8.from_address(at).value)

    def matmul_algo_get_heuristic(self, *given: Any) -> None:
        wanted, at, count = given[-3:]
        kind = REAL.matmul_heuristic_result_dtype
        space = (ctypes.c_char * (wanted * kind.itemsize)).from_address(at)
        found = np.frombuffer(space, kind)
        for place, algorithm in enumerate(self.listed[:wanted]):
            found["algo"]["data_"][place][:2] = algorithm
            found["workspace_size"][place] = 512
        ctypes.c_int32.from_address(count).value = min(len(self.listed), wanted)

    def matmul_algo_config_get_attribute(self, at: int, attribute: int, to: int, size: int, *_: int) -> None:
        known = REAL.MatmulAlgoConfigAttribute
        if attribute not in (known.ID, known.TILE_ID):
            raise LibraryError
        number = ctypes.c_uint64.from_address(at + 8 * (attribute == known.TILE_ID)).value
        ctypes.memmove(to, number.to_bytes(size, "little"), size)

    def matmul(self, *given: Any) -> None:
        at, self.scalars = given[12], [ctypes.c_float.from_address(given[one]).value for one in (2, 7)]
        self.launched.append(ctypes.c_uint64.from_address(at + 8).value)


REAL = libraries.lt
Make = Callable[..., tuple[Libraries, ScriptedLibrary, list[int]]]


class Anything:
    """Stands for a GPU's buffers and streams."""

    handle = 0

    def __getattr__(self, name: str) -> Anything:
        return self


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Libraries over a heuristic list, where an algorithm's time is its tile; with how many were timed each time."""

    def made(*listed: tuple[int, int]) -> tuple[Libraries, ScriptedLibrary, list[int]]:
        scripted, timed = ScriptedLibrary(listed), list[int]()
        monkeypatch.setattr(libraries, "lt", scripted)

        class Clock:
            def quick(self, launchers: Sequence[Callable[[], None]]) -> list[float]:
                timed.append(len(launchers))
                for launcher in launchers:
                    launcher()
                return [float(tile) for tile in scripted.launched[-len(launchers) :]]

        found = Libraries.__new__(Libraries)
        found.timer, found.gpu, found._candidates, found._workspace = Clock(), Anything(), 8, Anything()
        return found, scripted, timed

    return made


def test_the_fastest_of_the_list_is_chosen_and_named_by_what_the_library_tells(make: Make) -> None:
    found, scripted, timed = make((66, 30), (66, 20), (7, 25))
    launcher, name = found.cublaslt(BF16)
    assert name == "id 66 tile 20 workspace 512"
    launcher()
    assert (scripted.launched[-1], timed) == (20, [3])


def test_an_algorithm_that_is_asked_for_is_taken_without_timing_any(make: Make) -> None:
    found, scripted, timed = make((66, 30), (66, 20))
    launcher, name = found.cublaslt(BF16, "id 66 tile 30 workspace 512")
    launcher()
    assert (name, scripted.launched, timed) == ("id 66 tile 30 workspace 512", [30], [])


def test_one_that_is_not_in_the_list_is_chosen_anew(make: Make) -> None:
    found, _, timed = make((66, 30), (66, 20))
    assert found.cublaslt(BF16, "id 66 tile 10 workspace 512")[1] == "id 66 tile 20 workspace 512"
    assert timed == [2]


def test_algorithms_of_which_the_library_tells_the_same_are_two(make: Make) -> None:
    found, _, timed = make((66, 20), (66, 20), (66, 20))
    assert found.cublaslt(BF16)[1] == "id 66 tile 20 workspace 512"
    assert timed == [3]
    name = "id 66 tile 20 workspace 512 again again"
    assert found.cublaslt(BF16, name)[1] == name
    assert timed == [3]


def test_fast_accumulation_is_set_where_it_is_asked_for(make: Make) -> None:
    found, scripted, _ = make((66, 20))
    found.cublaslt(FP8)
    assert scripted.fast == []
    found.cublaslt(FP8, fast=True)
    assert scripted.fast == [1]
    with pytest.raises(LadderError, match="fast accumulation is a setting of fp8"):
        found.cublaslt(BF16, fast=True)


def gemm(found: Libraries, dtype: str) -> GemmInstance:
    """An instance without a device."""
    made = GemmInstance.__new__(GemmInstance)
    made.libraries, made.dtype, made.layout, made.algorithms = found, dtype, "TN", {}
    made.m = made.n = made.k = 64
    made.scalars = {"alpha": 1.0, "beta": 0.0}
    made.pointer = lambda name: 0  # type: ignore[method-assign]
    return made


def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench without a device, where every result is right."""

    class Right:
        correct = True

    monkeypatch.setattr(Bench, "check", lambda *_: (Right(), 1.0))
    made = Bench.__new__(Bench)
    made.known = {}
    return made


def test_the_references_of_an_instance_have_their_own_algorithms_and_keep_them(make: Make) -> None:
    found, scripted, timed = make((66, 30), (66, 20))
    instance = gemm(found, "fp8")
    for name in ("cublaslt", "cublaslt_fast", "cublaslt", "cublaslt_fast"):
        instance.library(name)
    assert instance.algorithms == dict.fromkeys(("cublaslt", "cublaslt_fast"), "id 66 tile 20 workspace 512")
    assert (timed, scripted.fast) == ([2, 2], [1, 1])


def test_a_library_without_its_earlier_algorithm_leaves_a_note(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _, _ = make((66, 30))
    instance: Instance = gemm(found, "bf16")
    instance.algorithms["cublaslt"] = "id 1"
    at = bench(monkeypatch)
    assert at._library("cublaslt", instance) is not None
    assert at.notes() == ["cublaslt: chosen anew, since its list has no longer what earlier cells took: id 1"]
    assert at._library("cublaslt_fast", instance) is None
    assert at.notes()[1] == "cublaslt_fast: fast accumulation is a setting of fp8"
    again = bench(monkeypatch)
    assert again._library("cublaslt", instance) is not None
    assert again.notes() == []


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_launch_multiplies_by_one_and_adds_beta_times_c(make: Make, beta: float) -> None:
    made, library, _ = make((1, 4))
    made._cublas = 0
    with_beta = replace(BF16, beta=beta)
    made.cublaslt(with_beta)[0]()
    assert library.scalars == [1.0, beta]
    given = made.cublas(with_beta).args  # type: ignore[attr-defined]
    assert [ctypes.c_float.from_address(given[one]).value for one in (6, 13)] == [1.0, beta]

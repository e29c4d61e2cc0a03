"""Guards: every buffer of the project has some, and what is written there names the buffer."""

from __future__ import annotations

import gc
import struct
import weakref
from typing import Any

import pytest
from fake_gpu import FakeBuffer, FakeGpu, FakeLibraries
from ladder.gpu.device import GUARD_BYTES, L2, Gpu, guards_of
from ladder.problems.gemm.instance import GemmInstance


@pytest.fixture
def gpu(fake_buffers: None) -> Any:
    """A fake whose lasting buffers are guarded as a GPU's are."""
    made: Any = FakeGpu("gemm", "fp32")
    made.guards, made._lasting = [], []
    made.allocate_guarded = lambda name, size: Gpu.allocate_guarded(made, name, size)
    return made


def gemm(gpu: Any) -> GemmInstance:
    libraries: Any = FakeLibraries()
    return GemmInstance(libraries, gpu, {"m": 33, "n": 17, "k": 65}, "fp32", "NN")


def guarded(made: GemmInstance) -> set[str]:
    """Names of the buffers whose guards are looked at."""
    return {name for name, _ in made._guards()}


def test_guards_are_all_around_a_buffer_and_nothing_else() -> None:
    ahead, behind = guards_of(FakeBuffer(700, 1000), 1100, 500)  # type: ignore[arg-type]
    assert (ahead, behind) == ((1000, 100, False), (1600, 100, True))


def test_a_lasting_buffer_lies_between_guards_of_a_page(gpu: Any) -> None:
    buffer = gpu.allocate_guarded("something", 1000)
    assert buffer.size == 1000
    assert [name for name, _ in gpu.guards] == ["something"] * 2
    (_, (ahead, size, first)), (_, (behind, _, last)) = gpu.guards
    assert (ahead + size, size, first) == (buffer.handle, GUARD_BYTES, False)
    assert (behind, last) == (buffer.handle + 1000, True)


def test_a_lasting_buffer_stays_when_who_asked_for_it_is_gone(gpu: Any) -> None:
    """Else another buffer takes its place, and what is written there counts as written around this one."""
    freed: list[str] = []
    made = [gpu.allocate(3 * GUARD_BYTES)]
    weakref.finalize(made[0], freed.append, "something")
    gpu.allocate = lambda size: made.pop()
    gpu.allocate_guarded("something", GUARD_BYTES)
    gc.collect()
    assert not freed


def test_the_buffers_that_prepare_the_l2_are_guarded(gpu: Any) -> None:
    made = L2(gpu, 50 << 20)
    gpu.read_through = lambda buffer: None
    made.prepare("cold")
    assert {name for name, _ in gpu.guards} == {
        "the buffer that flushes the L2",
        "the buffer that cleans the L2",
    }


def test_guards_of_all_buffers_are_looked_at_those_that_last_too(gpu: Any) -> None:
    made = gemm(gpu)
    before = guarded(made)
    assert before == {"a", "b", "c", "signed", "squares"}
    gpu.allocate_guarded("the workspace of the libraries", 64)
    assert guarded(made) == before | {"the workspace of the libraries"}


def test_a_write_beside_a_lasting_buffer_is_out_of_bounds(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.allocate_guarded("the workspace of the libraries", 64)
    made = gemm(gpu)
    count = len(made._guards())
    found = [0] * (count - 1) + [12], [0.0] * (count - 1) + [float(GUARD_BYTES)]
    monkeypatch.setattr(
        gpu,
        "download",
        lambda pointer, size: struct.pack(f"{count}Q{count}d", *found[0], *found[1]),
    )
    status, reason = made.memory_violation() or ("", "")
    assert status == "out_of_bounds"
    assert reason.startswith(
        "12 bytes around the workspace of the libraries were written, the nearest"
    )


def test_a_write_into_the_buffer_that_cleans_the_l2_is_out_of_bounds(gpu: Any) -> None:
    made = gemm(gpu)
    assert made.memory_violation() is None
    gpu.zeros_were_written = lambda: True
    assert made.memory_violation() == (
        "out_of_bounds",
        "the buffer that cleans the L2 was written",
    )

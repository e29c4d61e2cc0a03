"""Workspaces of kernels: what their memory holds ahead of a launch, and what is looked for behind it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpu import FakeBuffer, FakeGpu, fake_instance
from ladder.gpu import launching
from ladder.gpu.device import GUARD_BYTE, CheckResultSlot
from ladder.model.plan import Launch
from ladder.model.problem import GUARD
from ladder.problems.stencil.instance import _POISON

SCRATCH = {"pointer": "scratch memory", "workspace": "scratch", "bytes": 4096}
ZEROED = {"pointer": "zeroed memory", "workspace": "zeroed", "bytes": 4096}
NAN, ZEROS, POISON = b"\xff", b"\0", _POISON.to_bytes(4, "little")
CHECKS = ["check_input", "check_stretches"]


class Gpu(FakeGpu):
    """Notes what buffers are filled with, which kernels run, and what is uploaded."""

    def __init__(self) -> None:
        super().__init__("stencil", "fp32")
        self.log, self.uploaded = list[Any](), list[bytes]()

    def upload(self, data: bytes) -> FakeBuffer:
        self.uploaded.append(data)
        return super().upload(data)

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        super().run(entry, elements, *arguments)
        self.log.append(entry.split("<")[0])


@pytest.fixture
def instance(fake_buffers: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of a stencil."""
    monkeypatch.setattr("fake_gpu.FakeGpu", lambda *_: Gpu())
    made = fake_instance("stencil", "fp32", {"elements": 64})

    def fill(_: FakeBuffer, value: Any, stream: Any) -> None:
        if value != GUARD_BYTE:
            made.gpu.log.append(value)

    monkeypatch.setattr(FakeBuffer, "fill", fill)
    return made


def noted(instance: Any, act: Callable[[], object]) -> list[Any]:
    instance.gpu.log.clear()
    act()
    return list(instance.gpu.log)


def inspected(instance: Any) -> list[Any]:
    slot = CheckResultSlot(1, 2, 3)
    return noted(instance, lambda: instance.inspect({"radius": 1}, slot))


def test_scratch_holds_nan_ahead_of_each_launch(instance: Any) -> None:
    assert noted(instance, lambda: instance.provide_workspace(SCRATCH)) == [NAN]
    assert noted(instance, instance.poison_outputs) == [POISON, NAN]
    assert noted(instance, lambda: instance.refresh(1)) == ["fill", POISON, NAN]
    assert inspected(instance) == CHECKS


def test_zeros_are_looked_for_behind_each_launch_timed_or_not_and_never_written_again(
    instance: Any,
) -> None:
    """Ahead of what comes before a launch too: an untimed one comes before that."""
    assert noted(instance, lambda: instance.provide_workspace(ZEROED)) == [ZEROS]
    (table,) = instance.gpu.uploaded
    memory = instance.tensors[ZEROED["pointer"]]
    assert struct.unpack("3q16s", table) == (memory.pointer, 4096, 0, bytes(16))
    assert noted(instance, instance.poison_outputs) == [POISON, GUARD]
    assert noted(instance, lambda: instance.refresh(1)) == ["fill", POISON, GUARD]
    assert inspected(instance) == [*CHECKS, GUARD]


def test_a_kernel_is_loaded_with_its_workspaces(
    instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = SimpleNamespace(handle=1, attributes=SimpleNamespace(local_size_bytes=0))
    monkeypatch.setattr(launching, "_kernel", lambda cubin: kernel)
    monkeypatch.setattr(launching, "checked", lambda _: None)
    monkeypatch.setattr(launching, "LaunchConfig", lambda **_: None)
    for name in ("cuFuncLoad", "cuKernelGetFunction"):
        monkeypatch.setattr(launching.driver, name, lambda _: None)
    plan = Launch((1, 1, 1), (32, 1, 1), None, 0, "v", {}, (SCRATCH, ZEROED))
    loaded = launching.load(b"", plan, instance)
    made = [instance.pointer(one["pointer"]) for one in (SCRATCH, ZEROED)]
    assert [*loaded.args[-2:]] == made


def test_a_workspace_is_made_once_and_another_size_has_its_own(instance: Any) -> None:
    instance.provide_workspace(SCRATCH)
    assert noted(instance, lambda: instance.provide_workspace(SCRATCH)) == []
    instance.provide_workspace({**SCRATCH, "pointer": "less scratch", "bytes": 64})
    assert noted(instance, instance.poison_outputs) == [POISON, NAN, NAN]


def test_other_than_zeros_after_any_launch_is_a_state(instance: Any) -> None:
    assert instance.memory_violation() is None
    instance.provide_workspace(ZEROED)
    assert instance.memory_violation() is None
    instance.gpu.download = lambda _, size: (
        struct.pack("Q", 8) if size == 8 else bytes(size)
    )
    reason = "8 bytes of the zeroed memory, which launches must leave zero, were not"
    assert instance.memory_violation() == ("stateful", reason)


def test_each_place_has_workspaces_of_its_own_and_all_are_looked_at(
    instance: Any,
) -> None:
    """Or launches of a chain could hand something on."""
    name = ZEROED["pointer"]
    assert not instance.has_workspaces()
    instance.provide_workspace(ZEROED)
    first = instance.tensors[name]
    for place in (2, 3):
        with instance.writing_to(place):
            assert name not in instance.tensors
            assert instance.has_workspaces()
            assert noted(instance, lambda: instance.provide_workspace(ZEROED)) == [
                ZEROS
            ]
            assert instance.tensors[name] is not first
    assert instance.tensors[name] is first
    with instance.writing_to(3):
        again = instance.tensors[name]
    with instance.writing_to(3):
        assert instance.tensors[name] is again
    guards = 1
    assert noted(instance, instance.memory_violation).count(GUARD) == guards + 3

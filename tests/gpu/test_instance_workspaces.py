"""Workspaces of kernels: what their memory holds ahead of a launch, and what is looked for behind it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu import launching
from ladder.gpu.instance import HarnessCall, Instance
from ladder.model.plan import Launch
from ladder.model.problem import GUARD


class Buffer:
    """Notes what it is filled with."""

    def __init__(self, size: int, handle: int, log: list[Any]) -> None:
        self.size, self.handle, self.log = size, handle, log

    def fill(self, value: Any, stream: Any) -> None:
        self.log.append(("fill", self.handle, value))


class Gpu:
    """Notes looks of the harness; `changed` is what they find in all."""

    stream, changed, guards = None, 0, ()
    zeros_were_written = staticmethod(lambda: False)

    def __init__(self) -> None:
        self.log = list[Any]()
        self.harness = self

    def upload(self, data: bytes) -> Buffer:
        assert struct.unpack("3q", data[:24]) == (2**20, 4096, 0)
        assert not any(data[24:])
        return Buffer(len(data), 2**30, self.log)

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        self.log.append((entry, arguments[2]))

    def download(self, pointer: int, size: int) -> bytes:
        assert pointer == 2**30 + 24
        return struct.pack("Q", self.changed)


class Problem(Instance):
    """An instance whose own part of everything is a note."""

    outputs = ()

    def shapes(self) -> dict[str, Any]:
        return {}

    def fill_inputs(self, seed: int) -> None:
        self.gpu.log.append("inputs")

    def _poison_outputs(self) -> None:
        self.gpu.log.append("poison")

    def inspection(self, params: Any, slot: Any) -> HarnessCall:
        return HarnessCall("check", 1, (0, "inspected"))

    error_bound = check = None  # type: ignore[assignment]

    def _allocated(self, shape: Any, dtype: str, room: int = 0) -> Any:
        own = Buffer(4 * shape[0], 2**20, self.gpu.log)
        return SimpleNamespace(
            buffer=own, whole=own, pointer=2**20, kind=SimpleNamespace(value=-1)
        )

    def _written_guard(self) -> None:
        pass


SCRATCH = {
    "pointer": "scratch workspace of 4096 bytes",
    "workspace": "scratch",
    "bytes": 4096,
}
ZEROED = {
    "pointer": "zeroed workspace of 4096 bytes",
    "workspace": "zeroed",
    "bytes": 4096,
}
NAN, ZEROS, LOOK = ("fill", 2**20, b"\xff"), ("fill", 2**20, b"\0"), (GUARD, 2**30)
CHECK = ("check", "inspected")


@pytest.fixture
def instance() -> Any:
    made: Any = Problem(Gpu(), {}, "fp32", "")  # type: ignore[arg-type]
    return made


def noted(instance: Any, act: Callable[[], object]) -> list[Any]:
    instance.gpu.log.clear()
    act()
    return list(instance.gpu.log)


def test_inputs_that_were_drawn_are_looked_at_behind_each_launch(instance: Any) -> None:
    drawn = 2**20, 64, 7, 0
    instance.tensors["input"] = SimpleNamespace(
        dtype="fp32", kind=SimpleNamespace(value=0), drawn=lambda: drawn
    )
    look = ("check_input<float>", 64)
    assert noted(instance, lambda: instance.inspect({}, None)) == [look, CHECK]


def test_scratch_holds_nan_ahead_of_each_launch(instance: Any) -> None:
    assert noted(instance, lambda: instance.provide_workspace(SCRATCH)) == [NAN]
    assert noted(instance, instance.poison_outputs) == ["poison", NAN]
    assert noted(instance, lambda: instance.refresh(1)) == ["inputs", "poison", NAN]
    assert noted(instance, lambda: instance.inspect({}, None)) == [CHECK]


def test_zeros_are_looked_for_behind_each_launch_timed_or_not_and_never_written_again(
    instance: Any,
) -> None:
    """Ahead of what comes before a launch too: an untimed one comes before that."""
    assert noted(instance, lambda: instance.provide_workspace(ZEROED)) == [ZEROS]
    assert noted(instance, instance.poison_outputs) == ["poison", LOOK]
    assert noted(instance, lambda: instance.refresh(1)) == ["inputs", "poison", LOOK]
    assert noted(instance, lambda: instance.inspect({}, None)) == [CHECK, LOOK]


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
    assert loaded.args[-2:] == (2**20, 2**20)
    assert {SCRATCH["pointer"], ZEROED["pointer"]} <= instance.tensors.keys()


def test_a_workspace_is_made_once_and_another_size_has_its_own(instance: Any) -> None:
    instance.provide_workspace(SCRATCH)
    assert noted(instance, lambda: instance.provide_workspace(SCRATCH)) == []
    instance.provide_workspace(
        {**SCRATCH, "pointer": "scratch workspace of 64 bytes", "bytes": 64}
    )
    assert noted(instance, instance.poison_outputs) == ["poison", NAN, NAN]


def test_other_than_zeros_after_any_launch_is_a_state(
    instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance.gpu, "zero", lambda *_: None, raising=False)
    monkeypatch.setattr(instance.gpu, "download", lambda pointer, size: bytes(size))
    assert instance.memory_violation() is None
    instance.provide_workspace(ZEROED)
    assert instance.memory_violation() is None
    monkeypatch.setattr(
        instance.gpu, "download", lambda *_: struct.pack("Q", 8) if _[1] else b""
    )
    reason = "8 bytes of the zeroed workspace of 4096 bytes, which launches must leave zero, were not"
    assert instance.memory_violation() == ("stateful", reason)


def test_each_place_has_workspaces_of_its_own_and_all_are_looked_at(
    instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or launches of a chain could hand something on."""
    monkeypatch.setattr(instance.gpu, "zero", lambda *_: None, raising=False)
    monkeypatch.setattr(instance.gpu, "download", lambda pointer, size: bytes(size))
    assert not instance.has_workspaces()
    instance.provide_workspace(ZEROED)
    first = instance.tensors[ZEROED["pointer"]]
    for place in (2, 3):
        with instance.writing_to(place):
            assert ZEROED["pointer"] not in instance.tensors
            assert instance.has_workspaces()
            assert noted(instance, lambda: instance.provide_workspace(ZEROED)) == [
                ZEROS
            ]
            assert instance.tensors[ZEROED["pointer"]] is not first
    assert instance.tensors[ZEROED["pointer"]] is first
    with instance.writing_to(3):
        again = instance.tensors[ZEROED["pointer"]]
    with instance.writing_to(3):
        assert instance.tensors[ZEROED["pointer"]] is again
    assert noted(instance, instance.memory_violation).count(LOOK) == 3

"""What is kept of runs on the emulator: the same run is not carried out again, and no other one takes its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator import outcomes
from emulator.grid_ptx import GridMachine
from emulator.ptx import Fault, Memory, parse

TEXT = """.entry kernel(.param .u64 out) {
ld.param.u64 %rd1, [out];
mov.u32 %r1, %ctaid.x;
mov.u32 %r0, 0;
mov.f32 %f1, 0f3F800000;
st.shared.f32 [%r0], %f1;
bar.sync 0;
ld.shared.f32 %f1, [%r0];
st.global.u32 [%rd1], %r1;
ret;
}"""


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Classes of machines that ran, with nothing kept before."""
    ran = list[str]()
    monkeypatch.setattr("compiling.KEPT", tmp_path)

    def noted(machine: Any, place: int, *rest: Any) -> Any:
        ran.extend([type(machine).__name__] if place == 0 else [])
        return run_block(machine, place, *rest)

    run_block = GridMachine._run_block
    monkeypatch.setattr("emulator.ptx.Machine._run_block", noted)
    return ran


def run(
    text: str = TEXT,
    kind: Any = GridMachine,
    held: int = 5,
    launch: int = 0,
    change: Callable[[Any], object] = lambda machine: None,
    **more: Any,
) -> tuple[int, Any]:
    """The word that a thread has left, and its machine."""
    memory = Memory()
    memory.buffer(1, np.zeros(3, np.uint32), writable=False)
    out = memory.buffer(launch, np.asarray([held], np.uint32), writable=True)
    program = parse(text, 4)
    machine = kind(program, memory, 32, (1, 1, 1), [out], **more)
    machine.notes = True
    change(machine)
    machine.run()
    return int(memory.words[out // 4]), machine


def test_a_run_is_recalled_with_its_words_and_what_was_noted(
    carried_out: list[str],
) -> None:
    (word, first), (again, second) = run(), run()
    assert carried_out == ["GridMachine"]
    assert word == again == 0
    assert first.accesses == second.accesses != []
    assert vars(first).keys() == vars(second).keys()


def test_a_fault_is_recalled(carried_out: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(Fault, match="writes outside of its buffer, in 32 threads"):
            run(launch=1)
    assert carried_out == ["GridMachine"]


class Own(GridMachine):
    """A test's own."""


@pytest.mark.parametrize(
    "other",
    [
        {"text": TEXT.replace("ctaid", "ntid")},
        {"held": 6},
        {"landing": "once"},
        {"arrivals": 1},
        {"kind": Own},
        {"change": lambda machine: machine.registers["%ctaid.x"].fill(7)},
    ],
)
def test_what_differs_in_anything_is_carried_out(
    other: dict[str, Any], carried_out: list[str]
) -> None:
    run()
    run(**other)
    assert len(carried_out) == 2


def test_a_class_of_a_test_is_not_kept_and_what_has_no_digest_is_an_error(
    carried_out: list[str],
) -> None:
    for _ in range(2):
        run(kind=Own)
    assert carried_out == ["Own"] * 2
    with pytest.raises(TypeError, match="a machine holds a function"):
        run(change=lambda machine: setattr(machine, "noted", print_nothing))


def test_the_code_that_carries_a_run_out_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = outcomes.carried_out_by.__wrapped__()
    for name in ("hopper_ptx", "tensor_ptx", "ptx", "formats", "outcomes"):
        with monkeypatch.context() as changed:
            changed.setitem(outcomes.TEXTS, name, f"{outcomes.TEXTS[name]}#")
            assert outcomes.carried_out_by.__wrapped__() != before, name


def print_nothing() -> None:
    """A function."""

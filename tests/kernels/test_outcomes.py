"""What is kept of runs on the emulator: the same run is not carried out again, and no other one takes its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator import outcomes
from emulator.cluster_ptx import ClusterMachine
from emulator.hopper_ptx import HopperMachine
from emulator.ptx import Fault, Memory
from emulator.tensor_ptx import parse_tensor

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

    run_block = ClusterMachine._run_block
    monkeypatch.setattr("emulator.ptx.Machine._run_block", noted)
    return ran


def run(
    text: str = TEXT,
    kind: Any = ClusterMachine,
    held: int = 5,
    launch: int = 0,
    change: Callable[[Any], object] = lambda machine: None,
    **more: Any,
) -> tuple[int, Any]:
    """The word that a thread has left, and its machine."""
    memory = Memory()
    memory.buffer(1, np.zeros(3, np.uint32), writable=False)
    out = memory.buffer(launch, np.asarray([held], np.uint32), writable=True)
    program = parse_tensor(text, 4)
    if kind is HopperMachine:
        machine = kind(
            program, memory, 32, (1, 1), 1, [out], {}, more.get("loads", "late")
        )
    else:
        machine = kind(program, memory, 32, 1, 1, [out], **more)
    change(machine)
    machine.run()
    return int(memory.words[out // 4]), machine


def test_a_run_is_recalled_with_its_words_and_what_was_noted(
    carried_out: list[str],
) -> None:
    (word, first), (again, second) = run(), run()
    assert carried_out == ["ClusterMachine"]
    assert word == again == 0
    assert first.accesses == second.accesses != []
    assert vars(first).keys() == vars(second).keys()
    assert (
        (first.touched, first.barriers.tolist())
        == (second.touched, second.barriers.tolist())
        == (4, [1])
    )


def test_a_fault_is_recalled_with_what_was_written_before(
    carried_out: list[str],
) -> None:
    for _ in range(2):
        with pytest.raises(
            Fault, match="launch 0 writes outside of its buffer, in 32 threads"
        ):
            run(launch=1)
    assert carried_out == ["ClusterMachine"]


class Own(ClusterMachine):
    """A test's own."""


@pytest.mark.parametrize(
    "other",
    [
        {"text": TEXT.replace("ctaid", "ntid")},
        {"held": 6},
        {"launch": 1},
        {"landing": "once"},
        {"kind": HopperMachine},
        {"change": lambda machine: machine.registers["%ctaid.x"].fill(7)},
        {"change": lambda machine: setattr(machine, "bits", 4)},
    ],
)
def test_what_differs_in_anything_is_carried_out(
    other: dict[str, Any], carried_out: list[str]
) -> None:
    run()
    for _ in range(2):
        try:
            run(**other)
        except Fault:
            assert other == {"launch": 1}
    assert len(carried_out) == 2


def test_orders_that_are_drawn_and_loads_that_land_count(
    carried_out: list[str],
) -> None:
    for loads in ("early", "late", "shuffled"):
        run(kind=HopperMachine, loads=loads)
    for seed in (1, 2):
        run(
            kind=HopperMachine,
            change=lambda one, seed=seed: setattr(
                one, "order", np.random.default_rng(seed)
            ),
        )
    assert len(carried_out) == 4, (
        "seed 1 is that of `shuffled`, which differs in nothing else"
    )


def test_the_code_that_carries_a_run_out_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = set[str]()
    monkeypatch.setattr("closures.digest", lambda *modules: asked.update(modules))
    changes, before = set[str](), outcomes._carried_out_by.__wrapped__(HopperMachine)
    for name, text in outcomes.TEXTS.items():
        with monkeypatch.context() as changed:
            changed.setitem(outcomes.TEXTS, name, f"{text}#")
            changes |= (
                {name}
                if outcomes._carried_out_by.__wrapped__(HopperMachine) != before
                else set()
            )
    modules = ("hopper_ptx", "tensor_ptx", "ptx", "inputs", "outcomes")
    assert changes == {f"emulator.{one}" for one in modules}
    assert {"ladder.build.banks", "ladder.model.problem"} <= asked


def test_what_has_no_digest_is_an_error_and_a_class_of_a_test_is_not_kept(
    carried_out: list[str],
) -> None:
    with pytest.raises(TypeError, match="a machine holds a function"):
        run(change=lambda machine: setattr(machine, "noted", print_nothing))
    for _ in range(2):
        run(kind=Own)
    assert carried_out == ["Own"] * 2


def print_nothing() -> None:
    """A function."""

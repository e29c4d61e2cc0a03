"""How a job runs a task on a GPU: the one program, the GPU that it holds, and what comes back."""

from __future__ import annotations

import fcntl
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu.discovery import FoundGpu
from ladder.measure import gpu_job, process
from ladder.measure.gpu_job import gpu_program, run_on_gpu
from ladder.model.errors import LadderError

GPU = FoundGpu(0, "Made-up", "GPU-a", (9, 0))
PLAN: Any = SimpleNamespace(sweep="tiles", harness={}, variants={}, job={"cubins": "cubins"})
PROGRAM = """
import json, os, sys
task, plan, cubins, request, *answer = sys.argv[1:]
{body}
found = {{"task": task, "request": json.loads(request), "gpu": os.environ["CUDA_VISIBLE_DEVICES"]}}
for path in answer:
    json.dump(found, open(path, "w"))
{after}
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes a made-up program in place of ladder.measure.process; locks lie in a folder of the test."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    path = tmp_path / "program.py"

    def command(task: str, plan: Path, _: Any, root: Path) -> list[str]:
        return [sys.executable, "-S", str(path), task, str(plan), str(root / "cubins")]

    monkeypatch.setattr(gpu_job, "process_command", command)
    return lambda body="", after="": path.write_text(PROGRAM.format(body=body, after=after))


@pytest.mark.parametrize("task", process.TASKS)
def test_every_task_is_a_function_of_plan_cubins_and_request(task: str) -> None:
    module = importlib.import_module(f"ladder.measure.{process.TASKS[task]}")
    assert list(inspect.signature(getattr(module, task)).parameters)[:2] == ["plan", "cubins"]
    assert len(inspect.signature(getattr(module, task)).parameters) == 3


def started(monkeypatch: pytest.MonkeyPatch, task: Callable[..., Any], *words: str) -> int:
    """The program with one task of the test's own, in this process."""
    monkeypatch.setattr(process, "TASKS", {"own": "made_up"})
    monkeypatch.setitem(sys.modules, "ladder.measure.made_up", SimpleNamespace(own=task))  # type: ignore[misc]
    monkeypatch.setattr(process, "read_plan", lambda path: f"plan at {path}")
    monkeypatch.setattr(process, "die_with_parent", lambda: None)
    monkeypatch.setattr(sys, "argv", ["process", "own", *words])
    return process.main()


def test_the_program_writes_what_its_task_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*given: Any) -> dict[str, Any]:
        return {"given": list(map(str, given))}

    answer = tmp_path / "answer.json"
    assert started(monkeypatch, own, "p.json", "cubins", "[1, 2]", str(answer)) == 0
    assert json.loads(answer.read_text()) == {"given": ["plan at p.json", "cubins", "[1, 2]"]}
    assert started(monkeypatch, own, "p.json", "cubins", "7") == 0, "no answer is asked for"


def test_a_task_that_fails_leaves_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def own(*_: Any) -> None:
        raise SystemExit(70)

    answer = tmp_path / "answer.json"
    with pytest.raises(SystemExit, match="70"):
        started(monkeypatch, own, "p.json", "cubins", "[]", str(answer))
    assert not answer.exists()


def test_the_task_sees_its_gpu_alone_and_gets_the_request(program: Callable[..., None]) -> None:
    program()
    gpu, found = run_on_gpu("profile", Path("plan"), PLAN, Path(), [GPU], {"indices": [3]})
    assert gpu == GPU
    assert found == {"task": "profile", "request": {"indices": [3]}, "gpu": "GPU-a"}


@pytest.mark.parametrize(
    ("body", "after", "code"),
    [("", "sys.exit(3)", "3"), ("sys.exit(0)", "", "0"), ("os.kill(os.getpid(), 9)", "", "-9")],
)
def test_a_program_that_fails_or_says_nothing_is_an_error_that_names_task_sweep_and_gpu(
    program: Callable[..., None], body: str, after: str, code: str
) -> None:
    program(body, after)
    says = f"^profile with tiles on GPU-a ended with exit code {code}; the log above says why$"
    with pytest.raises(LadderError, match=says):
        run_on_gpu("profile", Path("plan"), PLAN, Path(), [GPU], [])


def test_the_gpu_is_held_as_long_as_the_program_may_run_and_by_what_it_leaves_behind(
    program: Callable[..., None], tmp_path: Path
) -> None:
    free = f"import fcntl; fcntl.flock(os.open({str(tmp_path / 'kernel-ladder-GPU-a.lock')!r}, os.O_RDWR), 6)"
    program(f"try:\n    {free}\nexcept OSError:\n    pass\nelse:\n    sys.exit('the GPU is free')")
    with gpu_program("sanitize", Path("plan"), PLAN, Path(), [GPU]) as held:
        for _ in range(2):
            assert held.run([]).returncode == 0
        left = os.dup(held.lock)  # as a child that goes on has it
    (lock,) = tmp_path.glob("*.lock")
    descriptor = os.open(lock, os.O_RDWR)
    with pytest.raises(OSError, match="unavailable"):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(left)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


def test_a_tool_goes_ahead_of_the_command(program: Callable[..., None], tmp_path: Path) -> None:
    program()
    answer = tmp_path / "answer"
    with gpu_program("profile", Path("plan"), PLAN, Path(), [GPU]) as held:
        done = held.run([1], str(answer), under=["/usr/bin/env", "MADE=up"], capture_output=True)
    assert done.args[:3] == ["/usr/bin/env", "MADE=up", sys.executable]
    assert json.loads(answer.read_text())["request"] == [1]


def test_without_a_gpu_nothing_starts(program: Callable[..., None]) -> None:
    with pytest.raises(LadderError, match="no GPU is visible"):
        run_on_gpu("profile", Path("plan"), PLAN, Path(), [], [])

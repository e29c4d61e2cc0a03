"""How a job runs a program on a GPU: what is started, the GPU that it holds, and what comes back."""

from __future__ import annotations

import fcntl
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu.discovery import FoundGpu
from ladder.measure import gpu_job, process
from ladder.measure.gpu_job import gpu_program, process_command

GPU = FoundGpu(0, "Made-up", "GPU-a", (9, 0))
PLAN: Any = SimpleNamespace(
    sweep="tiles", harness={}, variants={}, job={"cubins": "cubins"}
)
PROGRAM = """
import json, os, sys
name, plan, cubins, request = sys.argv[1:]
{body}
print(json.dumps({{"name": name, "request": json.loads(request), "gpu": os.environ["CUDA_VISIBLE_DEVICES"]}}))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Writes a made-up program in place of ladder.measure.process; locks lie in a folder of the test."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    path = tmp_path / "program.py"

    def command(name: str, plan: Path, _: Any, root: Path) -> list[str]:
        return [sys.executable, "-S", str(path), name, str(plan), str(root / "cubins")]

    monkeypatch.setattr(gpu_job, "process_command", command)
    return lambda body="": path.write_text(PROGRAM.format(body=body))


@pytest.mark.parametrize("name", process.PROGRAMS)
def test_every_program_is_a_function_of_plan_cubins_and_request(name: str) -> None:
    module = importlib.import_module(f"ladder.measure.{process.PROGRAMS[name]}")
    parameters = inspect.signature(getattr(module, name)).parameters
    assert [*parameters][:2] == ["plan", "cubins"]
    assert len(parameters) == 3


def test_the_gpu_is_held_as_long_as_the_program_may_run_and_by_what_it_leaves_behind(
    program: Callable[..., None], tmp_path: Path
) -> None:
    free = f"import fcntl; fcntl.flock(os.open({str(tmp_path / 'kernel-ladder-GPU-a.lock')!r}, os.O_RDWR), 6)"
    program(
        f"try:\n    {free}\nexcept OSError:\n    pass\nelse:\n    sys.exit('the GPU is free')"
    )
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


def test_a_tool_goes_ahead_of_a_program_that_sees_its_gpu_alone(
    program: Callable[..., None],
) -> None:
    program()
    with gpu_program("profile", Path("plan"), PLAN, Path(), [GPU]) as held:
        done = held.run([1], under=["/usr/bin/env", "MADE=up"], capture_output=True)
    assert done.args[:3] == ["/usr/bin/env", "MADE=up", sys.executable]
    assert json.loads(done.stdout) == {
        "name": "profile",
        "request": [1],
        "gpu": "GPU-a",
    }


def test_a_program_finds_the_modules_that_its_job_finds_and_none_where_it_is_started(
    program: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/only_there.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    (tmp_path / "ladder.py").write_text("raise SystemExit('of the folder')")
    monkeypatch.chdir(tmp_path)
    program("import only_there")
    with gpu_program("measure", Path("plan"), PLAN, Path(), [GPU]) as held:
        assert held.run([]).returncode == 0
        command = process_command("measure", tmp_path / "plan", PLAN, tmp_path)
        of_ladder = replace(held, command=command)
        done = of_ladder.run([], capture_output=True, text=True)
    assert f"No such file or directory: '{tmp_path / 'plan'}'" in done.stderr

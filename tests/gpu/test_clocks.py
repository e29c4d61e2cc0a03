"""Locked clocks come back whatever becomes of the job, shown on a management library that the test plays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from ladder.gpu.clocks import locked_clocks
from ladder.model.errors import LadderError

PLAYED = """
import os, sys, types
class NvmlError(Exception): pass
def note(*words):
    with open(os.environ["NVML_LOG"], "a") as log:
        print(*words, file=log)
def lock(handle, low, high):
    if os.environ.get("NVML_REFUSES"):
        raise NvmlError("Insufficient Permissions")
    note("lock", handle, low, high)
nvml = types.ModuleType("cuda.bindings.nvml")
vars(nvml).update(
    NvmlError=NvmlError,
    init_v2=lambda: None,
    device_get_handle_by_uuid=lambda uuid: uuid,
    device_set_gpu_locked_clocks=lock,
    device_reset_gpu_locked_clocks=lambda handle: note("reset", handle),
)
bindings = types.ModuleType("cuda.bindings")
bindings.nvml = nvml
sys.modules.update({"cuda": types.ModuleType("cuda"), "cuda.bindings": bindings, "cuda.bindings.nvml": nvml})
"""

JOB = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
from ladder.gpu.clocks import locked_clocks
with locked_clocks("GPU-1", 1400):
    print("measuring", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the driver was asked to do; processes that are started find the played library."""
    (tmp_path / "sitecustomize.py").write_text(PLAYED)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT / 'workflow'}")
    monkeypatch.setenv("NVML_LOG", str(tmp_path / "log"))
    (tmp_path / "log").touch()
    return tmp_path / "log"


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_clocks_are_locked_for_as_long_as_it_measures(log: Path) -> None:
    with locked_clocks("GPU-1", 1400):
        assert lines(log) == ["lock GPU-1 1400 1400"]
    assert lines(log) == ["lock GPU-1 1400 1400", "reset GPU-1"]


def test_clocks_are_given_back_when_measuring_fails(log: Path) -> None:
    with pytest.raises(RuntimeError), locked_clocks("GPU-1", 1400):
        raise RuntimeError("the worker does not start")
    assert lines(log)[-1] == "reset GPU-1"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("everyone", [False, True], ids=["the job", "its group"])
def test_clocks_are_given_back_after_a_kill(
    log: Path, number: signal.Signals, everyone: bool
) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", JOB],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert job.stdout is not None
    assert job.stdout.readline() == b"measuring\n"
    assert lines(log) == ["lock GPU-1 1400 1400"]
    (os.killpg if everyone else os.kill)(job.pid, number)
    job.wait(timeout=20)
    until = time.monotonic() + 20
    while len(lines(log)) < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert lines(log) == ["lock GPU-1 1400 1400", "reset GPU-1"]


def test_without_a_clock_to_lock_they_are_left_alone(log: Path) -> None:
    with locked_clocks("GPU-1", None):
        pass
    assert lines(log) == []


def test_a_driver_that_refuses_is_named_with_the_field(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVML_REFUSES", "1")
    says = r"measure\.lock_clocks: 1400 MHz was refused by the driver: Insufficient Permissions"
    with pytest.raises(LadderError, match=says), locked_clocks("GPU-1", 1400):
        raise AssertionError("nothing may be measured")
    assert lines(log) == []

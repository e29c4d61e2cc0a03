"""A GPU to oneself: who waits for whom, and what happens when the holder is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from ladder.gpu.discovery import FoundGpu
from ladder.gpu.lock import lock_file, one_gpu
from ladder.model.errors import LadderError

HOLDER = """
import subprocess, sys
from ladder.gpu.discovery import FoundGpu
from ladder.gpu.lock import one_gpu

gpus = [FoundGpu(index, "Made-up GPU", uuid, (9, 0)) for index, uuid in enumerate(sys.argv[2:])]
with one_gpu(gpus) as (gpu, descriptor):
    child = 0
    if sys.argv[1] == "with-child":
        sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
        child = subprocess.Popen(sleep, pass_fds=[descriptor], stdout=subprocess.DEVNULL).pid
    print(gpu.uuid, child, flush=True)
    sys.stdin.readline()
"""
PATIENCE_S = 0.5
"""Longer than the lock's polling: a waiting process that could have the GPU would have taken it."""


class Holder:
    """A process that takes a GPU, says which, and keeps it until it must leave."""

    def __init__(self, temporary: Path, *uuids: str, kind: str = "alone") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", HOLDER, kind, *uuids],
            env={
                **os.environ,
                "TMPDIR": str(temporary),
                "PYTHONPATH": str(ROOT / "workflow"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def taken(self, seconds: float = 20) -> tuple[str, int] | None:
        """(UUID it holds, its child's process id), or None where it still waits after `seconds`."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        uuid, child = self.process.stdout.readline().split()
        return uuid.decode(), int(child)

    def leave(self) -> None:
        self.process.communicate(b"\n", timeout=20)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Any]:
    """Starts holders; none outlives the test."""
    started: list[Holder] = []

    def start(*uuids: str, kind: str = "alone") -> Holder:
        started.append(Holder(tmp_path, *uuids, kind=kind))
        return started[-1]

    yield start
    for holder in started:
        holder.kill()


def test_a_second_measurement_waits_until_the_first_is_done(hold: Any) -> None:
    first = hold("GPU-a")
    assert first.taken() == ("GPU-a", 0)
    second = hold("GPU-a")
    assert second.taken(PATIENCE_S) is None
    first.leave()
    assert second.taken() == ("GPU-a", 0)


def test_a_killed_measurement_leaves_the_gpu_free(hold: Any) -> None:
    first = hold("GPU-a")
    assert first.taken()
    first.kill()
    assert hold("GPU-a").taken() == ("GPU-a", 0)


def test_a_gpu_stays_taken_while_the_worker_of_a_killed_measurement_lives(
    hold: Any,
) -> None:
    first = hold("GPU-a", kind="with-child")
    taken = first.taken()
    assert taken is not None
    worker = taken[1]
    try:
        first.kill()
        second = hold("GPU-a")
        assert second.taken(PATIENCE_S) is None
    finally:
        os.kill(worker, signal.SIGKILL)
    assert second.taken() == ("GPU-a", 0)


def test_two_measurements_on_two_gpus_take_one_each_and_a_third_the_first_that_is_free(
    hold: Any,
) -> None:
    first, second = hold("GPU-a", "GPU-b"), hold("GPU-a", "GPU-b")
    taken = {first.taken(): first, second.taken(): second}
    assert set(taken) == {("GPU-a", 0), ("GPU-b", 0)}
    third = hold("GPU-a", "GPU-b")
    assert third.taken(PATIENCE_S) is None
    taken["GPU-b", 0].leave()
    assert third.taken() == ("GPU-b", 0)


def gpu(uuid: str) -> FoundGpu:
    return FoundGpu(0, "Made-up GPU", uuid, (9, 0))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_the_lock_is_given_back_after_an_error(temporary: Path) -> None:
    with pytest.raises(RuntimeError), one_gpu([gpu("GPU-a")]):
        raise RuntimeError
    started = time.monotonic()
    with one_gpu([gpu("GPU-a")]) as (found, _):
        assert found.uuid == "GPU-a"
    assert time.monotonic() - started < PATIENCE_S


def test_every_user_of_the_node_may_take_the_lock(temporary: Path) -> None:
    before = os.umask(0o077)
    try:
        with one_gpu([gpu("GPU-a")]):
            assert lock_file("GPU-a").stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)


def test_the_lock_of_another_user_is_taken_without_creating_it(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux (fs.protected_regular) refuses O_CREAT on someone else's file in a sticky folder such as /tmp."""
    lock_file("GPU-a").touch()
    really_open = os.open

    def protected_open(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT and not flags & os.O_EXCL and os.path.exists(path):
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", protected_open)
    for uuid in ("GPU-a", "GPU-b"):
        with one_gpu([gpu(uuid)]) as (found, _):
            assert found.uuid == uuid


def test_waiting_for_none_of_no_gpus_is_refused(temporary: Path) -> None:
    with pytest.raises(LadderError, match="no GPU is visible"), one_gpu([]):
        pass

"""A GPU to oneself: who waits for whom, and what happens when the holder is killed."""

from __future__ import annotations

import contextlib
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
from ladder.measure import job
from ladder.measure.supervisor import WorkerLost
from ladder.model.cell import Cell, Reference
from ladder.model.errors import LadderError
from ladder.model.folders import RunFolder
from ladder.model.plan import Launch, Plan, Task
from ladder.model.plan_file import read_plan, to_json

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


class Quiet:
    """Stands in for the monitor of a GPU that nobody else uses."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *details: object) -> None:
        pass

    def neighbours_that_stay(self, seconds: float) -> list[int]:
        return []

    def locked_clocks(
        self, mhz: float | None
    ) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.fixture
def plan(temporary: Path) -> Path:
    """A plan of one task of the stencil, in a run folder with all that measuring it needs."""
    folder = RunFolder(temporary / "run")
    folder.plan("line").parent.mkdir(parents=True)
    mean, harness = (
        {"status": "ok", "machine_code": letter * 64, "cubin": letter}
        for letter in "ab"
    )
    for letter in "ab":
        (temporary / f"{letter}.cubin").touch()
    cell = Cell(
        "mean",
        {"radius": 1},
        "fp32",
        "",
        {"elements": 64},
        "cold",
        Reference(libraries=("copy",)),
    )
    launch = Launch(
        variant="mean-fp32",
        params={"radius": 1},
        grid=(1, 1, 1),
        block=(32, 1, 1),
        cluster=None,
        shared_bytes=0,
        arguments=({"pointer": "input"},),
    )
    task = Task(
        variant="mean-fp32",
        cell=cell,
        rung="",
        absent=None,
        launch=launch,
        reference=None,
        counted=False,
    )
    settings = {
        "precision": 0.01,
        "min_pairs": 12,
        "max_pairs": 12,
        "cell_seconds": 1,
        "seed": 0,
    }
    job = {"deadline_s": 10, "busy": "refuse", "remeasure": False, "sessions": 1}
    job |= {"cubins": str(temporary)}
    settings |= {"lock_clocks": None, "warm_below_us": 0, "lt_heuristics": 1}
    written = Plan(
        sweep="line",
        problem="stencil",
        arch="sm_90a",
        regimes=("cold",),
        settings=settings,
        job=job,
        counter_groups=(),
        tasks=(task,),
        harness={"fp32": harness},
        variants={"mean-fp32": mean | {"params": {}, "layout": "NN"}},
    )
    folder.plan("line").write_bytes(to_json(written))
    return folder.plan("line")


def measure(plan: Path) -> None:
    job.measure(plan, read_plan(plan), RunFolder(plan.parent.parent), ROOT)


def test_what_opens_a_gpu_sees_the_one_its_step_holds_and_no_busy_one(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, hold: Any, plan: Path
) -> None:
    """The rate of copies is measured there: on another GPU it would disturb whoever measures on that."""
    busy, free = "GPU-a", "GPU-b"
    assert hold(busy).taken()
    seen: list[str] = []

    def start(command: Any, environment: dict[str, str], keep_open: Any) -> None:
        seen.append(environment["CUDA_VISIBLE_DEVICES"])
        raise WorkerLost("launch_error", "there is no such GPU")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{busy},{free}")
    monkeypatch.setattr("ladder.measure.job.find_gpus", lambda: [gpu(busy), gpu(free)])
    monkeypatch.setattr("ladder.measure.job.Monitor", Quiet)
    monkeypatch.setattr("ladder.measure.job.WorkerProcess", start)
    with contextlib.suppress(LadderError):
        measure(plan)
    assert {*seen} == {free}

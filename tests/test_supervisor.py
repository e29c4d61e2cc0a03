"""The supervisor against a scripted worker that hangs, dies, lies and recovers: every cell gets its record."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from ladder.measure import supervisor
from ladder.measure.store import RecordFile, read_records
from ladder.measure.supervisor import Supervisor, WorkerLost, WorkerProcess, finish, progress, split_cells
from ladder.model.errors import LadderError

WORKER = '''
"""Speaks the worker's protocol and does in each cell what its script says."""
import json, os, select, signal, sys, time

folder = sys.argv[1]
script = json.load(open(folder + "/script.json"))

def note(*words):
    with open(folder + "/requests", "a") as requests:
        print(*words, file=requests)

def say(answer):
    print(json.dumps(answer), flush=True)

note("start", os.getpid())
start = script.get("start")
if start == "hang":
    time.sleep(60)
if start == "die" or (start == "die twice" and open(folder + "/requests").read().count("start") < 3):
    sys.exit(4)
say({"hello": {"pid": os.getpid()}})
regime = {"variant_us": [2.0, 1.0, 3.0], "reference_us": [4.0, 4.0, 4.0], "reference": "cublas",
          "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "stopped_by": "precision"}
for line in sys.stdin:
    cell = json.loads(line)["cell"]
    note("cell", cell, os.getpid())
    what = script.get(str(cell), "ok")
    result = {"status": "ok", "reason": "", "regimes": {"cold": regime}, "gpu_s": 0.5, "wall_s": 1.0}
    if what == "hang":
        time.sleep(60)
    elif what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "exit":
        os._exit(7)
    elif what == "half a line":
        sys.stdout.write('{"result": {"status": "ok", "rea')
        sys.stdout.flush()
        os._exit(0)
    elif what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "killed once":
        if open(folder + "/requests").read().count(f"cell {cell} ") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        say({"result": result, "fatal": False})
    elif what == "fatal and leaves":
        say({"result": {"status": "launch_error", "reason": "context lost", "gpu_s": 0.1}, "fatal": True})
        sys.exit(70)
    elif what == "fatal":
        say({"result": {"status": "launch_error", "reason": "context lost", "gpu_s": 0.1}, "fatal": True})
        time.sleep(60)
    elif what == "mistake":
        say({"mistake": "Traceback: KeyError: 'params'"})
        sys.exit(1)
    elif what == "die afterwards":
        say({"result": result, "fatal": False})
        sys.exit(0)
    elif what == "slow pieces":
        text = json.dumps({"result": result, "fatal": False})
        for part in (text[:20], text[20:50], text[50:] + chr(10)):
            sys.stdout.write(part)
            sys.stdout.flush()
            time.sleep(0.02)
    else:
        if what == "slow" and select.select([sys.stdin], [], [], 60)[0]:
            sys.exit(0)  # Its supervisor is gone.
        say({"result": result, "fatal": False})
'''
DEADLINE_S = 0.8
CELLS = 5
PLAN: dict[str, Any] = {
    "sweep": "scripted",
    "problem": "stencil",
    "protocol": 1,
    "regimes": ["cold"],
    "settings": {"seed": 1},
    "cells": [
        {
            "variant": f"v{index}",
            "kernel": "scripted",
            "dtype": "fp32",
            "layout": "",
            "size": {"elements": 64, "rows": 2},
            "launch": {"variant": f"v{index}", "params": {}},
            "references": [{"library": "copy"}],
        }
        for index in range(CELLS)
    ],
}
CUBINS = {f"v{index}": f"digest {index}" for index in range(CELLS)}


class Run:
    """A folder with a scripted worker and the record of its cells."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "cells.jsonl"
        self.supervisor: Supervisor | None = None
        (folder / "worker.py").write_text(WORKER, encoding="utf-8")
        self.script({})

    def script(self, script: Mapping[str, str]) -> None:
        """What the worker does: by cell index, or "start"; a cell that is not named goes well."""
        (self.folder / "script.json").write_text(json.dumps(script), encoding="utf-8")

    def start_worker(self) -> WorkerProcess:
        command = [sys.executable, "-S", str(self.folder / "worker.py"), str(self.folder)]
        return WorkerProcess(command, os.environ, [])

    def measure(
        self,
        deadline_s: float = DEADLINE_S,
        describe: Callable[[float], Mapping[str, Any]] = lambda since: {"busy": False},
    ) -> list[dict[str, Any]]:
        """What the measuring step does: keep what is known, measure the rest, put the record in order."""
        todo, kept = split_cells(PLAN, CUBINS, {}, self.record, remeasure=False)
        self.supervisor = Supervisor(self.start_worker, PLAN["cells"], deadline_s, describe)
        record_file = RecordFile(self.record)
        try:
            self.supervisor.run(todo, record_file)
        finally:
            record_file.close()
        everything, _ = split_cells(PLAN, CUBINS, {}, self.record, remeasure=True)
        finish(self.record, [key for _, key in everything])
        assert len(kept) + len(todo) == CELLS
        return read_records(self.record)

    def requests(self, kind: str) -> list[list[int]]:
        """Numbers of the worker's notes of one kind: [pid] of each start, [cell, pid] of each cell."""
        lines = (self.folder / "requests").read_text(encoding="utf-8").splitlines()
        return [[int(word) for word in line.split()[1:]] for line in lines if line.split()[0] == kind]

    @property
    def workers(self) -> list[int]:
        """Process ids of the workers, in the order they started."""
        return [pid for (pid,) in self.requests("start")]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def alive(pid: int) -> bool:
    """Whether a process still runs; one that only waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)
    return condition()


def statuses(records: list[dict[str, Any]]) -> list[str]:
    return [record["status"] for record in records]


def test_all_goes_well_in_one_worker(run: Run) -> None:
    records = run.measure()
    assert statuses(records) == ["ok"] * CELLS
    assert [record["variant"] for record in records] == [f"v{index}" for index in range(CELLS)]
    assert records[0]["regimes"]["cold"]["speedup"] == 2.0
    assert records[0]["device"] == {"busy": False}
    assert run.supervisor is not None
    job = run.supervisor.job
    assert (job.measured, job.worker_starts, job.gpu_s) == (CELLS, 1, 0.5 * CELLS)
    assert not alive(run.workers[0]), "the worker leaves with the last cell"


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [
        ("hang", "timeout", f"no result within {DEADLINE_S:g} s"),
        ("segfault", "launch_error", "SIGSEGV"),
        ("exit", "launch_error", "exit code 7"),
        ("half a line", "launch_error", "exit code 0"),
        ("fatal", "launch_error", "context lost"),
        ("fatal and leaves", "launch_error", "context lost"),
    ],
)
def test_a_lost_worker_costs_its_own_cell_only(run: Run, what: str, status: str, reason: str) -> None:
    run.script({"1": what})
    records = run.measure()
    assert statuses(records) == ["ok", status, "ok", "ok", "ok"]
    assert reason in records[1]["reason"]
    first, second = run.workers
    served = run.requests("cell")
    assert served == [[0, first], [1, first], [2, second], [3, second], [4, second]]
    assert not alive(first), "no two workers at once"
    assert run.supervisor is not None
    assert (run.supervisor.job.measured, run.supervisor.job.worker_starts) == (CELLS, 2)


def test_a_worker_that_somebody_killed_gets_a_second_chance_at_its_cell(run: Run) -> None:
    run.script({"1": "killed once"})
    assert statuses(run.measure()) == ["ok"] * CELLS
    assert [cell for cell, _ in run.requests("cell")] == [0, 1, 1, 2, 3, 4]


def test_a_cell_whose_worker_is_killed_twice_is_lost(run: Run) -> None:
    run.script({"1": "killed"})
    records = run.measure()
    assert statuses(records) == ["ok", "launch_error", "ok", "ok", "ok"]
    assert "SIGKILL" in records[1]["reason"]
    assert [cell for cell, _ in run.requests("cell")] == [0, 1, 1, 2, 3, 4]


def test_each_of_many_lost_workers_is_replaced(run: Run) -> None:
    run.script({"0": "segfault", "1": "hang", "2": "fatal", "4": "exit"})
    assert statuses(run.measure()) == ["launch_error", "timeout", "launch_error", "ok", "launch_error"]
    assert len(run.workers) == 4
    assert not any(alive(pid) for pid in run.workers)


def test_a_hanging_cell_ends_at_its_deadline(run: Run) -> None:
    run.script({"4": "hang"})
    started = time.monotonic()
    records = run.measure()
    assert DEADLINE_S <= records[4]["wall_s"] < DEADLINE_S + 2
    assert time.monotonic() - started < 10, "the worker that hangs is not waited for"


def test_an_answer_may_come_in_pieces(run: Run) -> None:
    run.script({"0": "slow pieces", "3": "slow pieces"})
    assert statuses(run.measure()) == ["ok"] * CELLS
    assert len(run.workers) == 1


def test_a_worker_that_died_between_two_cells_does_not_cost_the_next(run: Run) -> None:
    run.script({"1": "die afterwards"})

    def describe(since: float) -> dict[str, Any]:
        return {"ended": len(run.workers) == 1 and wait_until(lambda: not alive(run.workers[0]), 0.2)}

    records = run.measure(describe=describe)
    assert [record["device"]["ended"] for record in records] == [False, True, False, False, False]
    assert statuses(records) == ["ok"] * CELLS
    assert [cell for cell, _ in run.requests("cell")] == list(range(CELLS))


def test_statuses_are_measurements_and_not_measured_again(run: Run) -> None:
    run.script({"1": "segfault"})
    first = run.measure()
    run.script({})
    assert run.measure() == first
    assert len(run.requests("cell")) == CELLS


def test_a_mistake_of_the_program_stops_the_run_and_keeps_what_was_measured(run: Run) -> None:
    run.script({"2": "mistake"})
    with pytest.raises(LadderError, match="not a kernel:\nTraceback: KeyError: 'params'"):
        run.measure()
    assert [record["variant"] for record in read_records(run.record)] == ["v0", "v1"]
    assert not any(alive(pid) for pid in run.workers)
    run.script({})
    assert statuses(run.measure()) == ["ok"] * CELLS
    assert [cell for cell, _ in run.requests("cell")] == [0, 1, 2, 2, 3, 4]


@pytest.mark.parametrize(("start", "told"), [("hang", "no result within"), ("die", "exit code 4")])
def test_a_worker_that_never_starts_is_tried_three_times(
    run: Run, monkeypatch: pytest.MonkeyPatch, start: str, told: str
) -> None:
    monkeypatch.setattr(supervisor, "_START_DEADLINE_S", 0.3)
    run.script({"start": start})
    with pytest.raises(LadderError, match=f"the measuring worker does not start: .*{told}"):
        run.measure()
    assert len(run.workers) == 3
    assert not any(alive(pid) for pid in run.workers)
    assert read_records(run.record) == [], "no cell is blamed"


def test_a_worker_that_starts_at_the_third_attempt_is_good_enough(run: Run) -> None:
    run.script({"start": "die twice"})
    assert statuses(run.measure()) == ["ok"] * CELLS
    assert run.supervisor is not None
    assert run.supervisor.job.worker_starts == 1


def test_the_worker_keeps_the_descriptor_of_the_gpu_lock(tmp_path: Path) -> None:
    held, _ = os.pipe()
    program = f"import os, json; os.fstat({held}); print(json.dumps({{'hello': {{'pid': os.getpid()}}}}), flush=True)"
    worker = WorkerProcess([sys.executable, "-S", "-c", program], os.environ, [held])
    assert worker.pid == worker.process.pid
    worker.leave()
    with pytest.raises(WorkerLost, match="exit code 1"):
        WorkerProcess([sys.executable, "-S", "-c", program], os.environ, [])


def test_the_device_is_described_over_the_time_of_the_cell(run: Run) -> None:
    asked: list[tuple[float, float]] = []

    def describe(since: float) -> dict[str, Any]:
        asked.append((since, time.monotonic()))
        return {"sm_clock_mhz": len(asked)}

    run.script({"1": "hang"})
    records = run.measure(describe=describe)
    assert [record["device"]["sm_clock_mhz"] for record in records] == [1, 2, 3, 4, 5]
    for (begun, ended), (next_begun, _) in itertools.pairwise(asked):
        assert begun <= ended <= next_begun
    assert asked[1][1] - asked[1][0] >= DEADLINE_S


def test_progress_says_time_and_speed_up_or_what_went_wrong() -> None:
    good = {
        "variant": "tile",
        "size": {"m": 4, "n": 8},
        "status": "ok",
        "reason": "",
        "regimes": {
            "cold": {
                "variant_us": [10.0, 30.0, 20.0],
                "reference": "cublas",
                "speedup": 0.5,
                "speedup_low": 0.49,
                "speedup_high": 0.53,
                "stopped_by": "budget",
            }
        },
    }
    assert progress(good) == "tile at 4x8: 20.00 us cold, 0.5000 ± 0.0200 of cublas (3 pairs, budget)"
    bad = {"variant": "tile", "size": {"m": 4}, "status": "incorrect", "reason": "wrong\nat length"}
    assert progress(bad) == "tile at 4: incorrect: wrong"


# Kills from outside. The supervisor runs in a process of its own there.

SUPERVISE = """
import sys
from pathlib import Path
from test_supervisor import Run
run = Run.__new__(Run)
run.folder = Path(sys.argv[1])
run.record = run.folder / "cells.jsonl"
run.measure(deadline_s=60)
"""


def python_path() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'workflow'}{os.pathsep}{ROOT / 'tests'}"}


def test_a_killed_supervisor_loses_the_cell_in_flight_and_nothing_else(run: Run) -> None:
    run.script({"2": "slow"})
    process = subprocess.Popen([sys.executable, "-c", SUPERVISE, str(run.folder)], env=python_path())
    requests = run.folder / "requests"
    assert wait_until(lambda: requests.exists() and "cell 2" in requests.read_text())
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_until(lambda: not alive(run.workers[0])), "the worker of a killed supervisor ends"
    assert [record["variant"] for record in read_records(run.record)] == ["v0", "v1"]
    run.script({})
    assert statuses(run.measure()) == ["ok"] * CELLS
    assert [cell for cell, _ in run.requests("cell")] == [0, 1, 2, 2, 3, 4]


STARTED_BY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()  # It is ready.
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "program",
    [
        # What `ladder measure` and `ladder profile` do, and what the worker does.
        "import os; from ladder.measure.supervisor import end_with_parent; end_with_parent(os.getppid())",
        "from ladder.measure.worker import die_with_parent; die_with_parent()",
    ],
    ids=["the measuring job", "the worker"],
)
def test_a_process_ends_when_the_one_that_started_it_is_killed(program: str) -> None:
    program += "; import time; print('ready', flush=True); time.sleep(60)"
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTED_BY, program], env=python_path(), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: not alive(child))

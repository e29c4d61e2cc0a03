"""The supervisor against a scripted worker that hangs, dies, lies and recovers: every cell gets its record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from ladder.gpu.discovery import FoundGpu
from ladder.measure import conditions, supervisor
from ladder.measure.gpu_job import GpuProgram
from ladder.measure.job import Measuring, ignore, progress
from ladder.measure.plan_records import PlanRecords
from ladder.measure.schedule import Schedule
from ladder.measure.store import Account, appending, now, read_store
from ladder.measure.supervisor import WorkerLost, WorkerProcess
from ladder.model.cell import Cell, Reference
from ladder.model.errors import LadderError
from ladder.model.plan import Launch, Plan, Task
from ladder.model.record import NO_NUMBER, Conditions, Record, Session

WORKER = '''
"""Speaks the worker's protocol and does in each task what its script says."""
import json, os, signal, sys, time
from multiprocessing.connection import Connection

folder, pipe = sys.argv[1], Connection(int(sys.argv[2]))
script = json.load(open(folder + "/script.json"))

def note(*words):
    with open(folder + "/requests", "a") as requests:
        print(*words, file=requests)

note("start", os.getpid())
print("what code of one's own prints", flush=True)
start = script.get("start")
if start == "hang":
    time.sleep(60)
if start == "die":
    sys.exit(4)
pipe.send({"hello": {"pid": os.getpid(), "gpu": {"name": "a GPU"}}})
good = {"status": "ok", "reason": "", "variant_us": [2.0, 1.0, 3.0], "reference_us": [4.0, 4.0, 4.0],
        "reference": "copy", "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "stopped_by": "precision"}
def answer(regimes, result=None, fatal=False, gpu_s=0.5):
    result = result or good
    spent = {"gpu_s": gpu_s, "check_s": 0.1, "wall_s": 1.0}
    pipe.send({"results": dict.fromkeys(regimes, result), "fatal": fatal, **spent})

lost = {"status": "launch_error", "reason": "context lost"}
while True:
    try:
        request = pipe.recv()
    except EOFError:
        sys.exit(0)
    task, regimes = request["index"], request["regimes"]
    note("task", task, os.getpid())
    what = script.get(str(task), "ok")
    if what == "hang":
        time.sleep(60)
    elif what == "segfault in a reference" or what == "hang in a reference":
        pipe.send({"doing": "another"})
        pipe.send({"doing": ""})
        pipe.send({"doing": "the reference mine: lib.so: f"})
        os.kill(os.getpid(), signal.SIGSEGV) if what.startswith("segfault") else time.sleep(60)
    elif what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "exit":
        os._exit(7)
    elif what == "half an answer":
        os.write(pipe.fileno(), (4000).to_bytes(4, "big") + b"half of it")
        os._exit(0)
    elif what == "infinite":
        seen = {"max_error_wide": 0.5, "reference_max_error_wide": float("inf")}
        seen = [{"metric": name, "unit": None, "value": value} for name, value in seen.items()]
        answer(regimes, good | {"observations": seen})
    elif what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "killed once":
        if open(folder + "/requests").read().count(f"task {task} ") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        answer(regimes)
    elif what == "fatal and leaves":
        answer(regimes, lost, fatal=True, gpu_s=0.1)
        sys.exit(70)
    elif what == "fatal":
        answer(regimes, lost, fatal=True, gpu_s=0.1)
        time.sleep(60)
    elif what == "mistake":
        pipe.send({"mistake": "Traceback: KeyError: 'params'"})
        sys.exit(1)
    elif what == "die afterwards":
        answer(regimes)
        sys.exit(0)
    else:
        if what == "slow" and pipe.poll(60):
            sys.exit(0)  # Its supervisor is gone.
        answer(regimes)
'''
SETTINGS = (*conditions.SETTINGS, "warm_below_us")
DEADLINE_S = 0.8  # where a worker hangs
PATIENT_S = 60.0  # elsewhere: on a busy machine a process may take a second to die
TASKS = 5
GPU = FoundGpu(0, "Made-up", "GPU-a", (9, 0))
ON = {"gpu": "a GPU", "driver": "1"}


def make_plan(deadline_s: float) -> Plan:
    tasks = []
    for index in range(TASKS):
        name, params = f"v{index}", {"k": index}
        launch = Launch((1, 1, 1), (32, 1, 1), None, 0, name, params, ())
        size = {"elements": 64, "rows": 2}
        reference = Reference(("copy",))
        cell = Cell("scripted", params, "fp32", "", size, "cold", reference)
        tasks.append(Task(name, cell, "", None, launch, None, False))
    job = {"deadline_s": deadline_s, "remeasure": False, "sessions": 1}
    settings = dict.fromkeys(SETTINGS, 1)
    return Plan(
        "scripted",
        "stencil",
        "sm_90a",
        ("cold",),
        settings,
        job,
        (),
        tuple(tasks),
        variants={f"v{n}": {"machine_code": f"code {n}"} for n in range(TASKS)},
    )


class Run:
    """A folder with a scripted worker and a store of records, all of one run however often it measures."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.account, self.began = folder, Account(), now()
        (folder / "worker.py").write_text(WORKER)
        self.script({})

    def script(self, script: Mapping[str, str]) -> None:
        """What the worker does: by task index, or "start"; a task that is not named goes well."""
        (self.folder / "script.json").write_text(json.dumps(script))

    def start_worker(self) -> WorkerProcess:
        command = [
            sys.executable,
            "-S",
            str(self.folder / "worker.py"),
            str(self.folder),
        ]
        with Path(os.devnull).open() as lock:
            return WorkerProcess(GpuProgram(GPU, lock.fileno(), command))

    def measure(
        self,
        deadline_s: float = PATIENT_S,
        describe: Callable[[float], Mapping[str, Any]] = lambda since: {},
    ) -> list[Record]:
        """What the measuring step does: keep what is known, measure the rest. Returns the records, task by task."""
        records = read_store(self.folder / "records")
        view = PlanRecords(make_plan(deadline_s), records, on=ON)
        self.account = Account()
        # A later run would try errors of launches once more.
        schedule = Schedule(view, self.began)
        monitor: Any = SimpleNamespace(since=describe, neighbours=lambda own: [])
        measuring = Measuring(
            schedule,
            monitor,
            lambda gpu: Session(f"of {gpu['name']}", now()),
            self.account,
            ignore,
        )
        with appending(self.folder / "records", "scripted") as append:
            measuring.run(schedule.due(), self.start_worker, append)
        return self.records

    @property
    def records(self) -> list[Record]:
        """Every record so far, by task and time."""
        return sorted(
            read_store(self.folder / "records"),
            key=lambda record: (record.variant, record.time),
        )

    def requests(self, kind: str) -> list[list[int]]:
        """Numbers of the worker's notes of one kind: [pid] of each start, [task, pid] of each task."""
        lines = (self.folder / "requests").read_text().splitlines()
        return [
            [int(word) for word in line.split()[1:]]
            for line in lines
            if line.split()[0] == kind
        ]

    @property
    def tasks(self) -> list[int]:
        """Tasks in the order the workers got them."""
        return [task for task, _ in self.requests("task")]

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
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    limit = time.monotonic() + seconds
    while not condition() and time.monotonic() < limit:
        time.sleep(0.02)
    return condition()


def statuses(records: list[Record]) -> list[str]:
    return [record.status for record in records]


def test_what_a_worker_prints_is_no_output_of_the_step(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    run.measure()
    out, err = capfd.readouterr()
    assert out == ""
    assert "what code of one's own prints" in err


def test_an_error_that_is_infinite_is_recorded_as_one_of_no_number_so_that_the_store_stays_readable(
    run: Run,
) -> None:
    run.script({"1": "infinite"})
    seen = {
        one["metric"]: one["value"] for one in run.measure()[1].result["observations"]
    }
    assert seen == {"max_error_wide": 0.5, "reference_max_error_wide": NO_NUMBER}
    assert statuses(run.records) == ["ok"] * TASKS


def test_all_goes_well_in_one_worker(run: Run) -> None:
    records = run.measure(describe=lambda since: {"sm_clock_mhz": 1980})
    assert statuses(records) == ["ok"] * TASKS
    assert [record.variant for record in records] == ["v0", "v1", "v2", "v3", "v4"]
    result = records[0].result
    assert (result["speedup"], result["reference"]) == (2.0, "copy")
    assert result["device"] == {"sm_clock_mhz": 1980, "busy": False}
    assert result["spent"] == {
        "wall_s": 1.0,
        "check_s": 0.1,
        "regimes": 1,
    }
    assert {record.session for record in records} == {"of a GPU"}
    assert {record.conditions.host["gpu"] for record in records} == {"a GPU"}
    assert (run.account.measured, run.account.worker_starts, run.account.gpu_s) == (
        TASKS,
        1,
        0.5 * TASKS,
    )
    assert not alive(run.workers[0]), "the worker leaves with the last task"


@pytest.mark.parametrize(
    ("what", "status", "reason"),
    [
        ("hang", "timeout", f"no result within {DEADLINE_S:g} s"),
        ("segfault", "launch_error", "SIGSEGV"),
        (
            "hang in a reference",
            "timeout",
            f"no result within {DEADLINE_S:g} s in the reference mine: lib.so: f",
        ),
        (
            "segfault in a reference",
            "launch_error",
            "(SIGSEGV) in the reference mine: lib.so: f",
        ),
        ("exit", "launch_error", "exit code 7"),
        ("half an answer", "launch_error", "exit code 0"),
        ("fatal", "launch_error", "context lost"),
        ("fatal and leaves", "launch_error", "context lost"),
    ],
)
def test_a_lost_worker_costs_its_own_cell_only(
    run: Run, what: str, status: str, reason: str
) -> None:
    run.script({"1": what})
    records = run.measure(DEADLINE_S if "hang" in what else PATIENT_S)
    assert statuses(records) == ["ok", status, "ok", "ok", "ok"]
    assert reason in records[1].reason
    first, second = run.workers
    served = run.requests("task")
    assert served == [[0, first], [1, first], [2, second], [3, second], [4, second]]
    assert not alive(first), "no two workers at once"
    assert (run.account.measured, run.account.worker_starts) == (TASKS, 2)
    assert (records[1].limit_s == DEADLINE_S) == (status == "timeout")


@pytest.mark.parametrize(("what", "lost"), [("killed once", False), ("killed", True)])
def test_a_worker_that_somebody_killed_gets_a_second_chance_at_its_cell(
    run: Run, what: str, lost: bool
) -> None:
    run.script({"1": what})
    record = run.measure()[1]
    assert record.status == ("launch_error" if lost else "ok")
    assert ("SIGKILL" in record.reason) == lost
    assert record.result.get("transient", False) == lost
    assert run.tasks == [0, 1, 1, 2, 3, 4]


def test_a_worker_that_died_between_two_cells_does_not_cost_the_next(run: Run) -> None:
    run.script({"1": "die afterwards"})

    def describe(since: float) -> dict[str, Any]:
        return {"ended": wait_until(lambda: not alive(run.workers[0]), 0.2)}

    records = run.measure(describe=describe)
    ended = [record.result["device"]["ended"] for record in records]
    assert ended == [False, True, True, True, True]
    assert statuses(records) == ["ok"] * TASKS
    assert run.tasks == list(range(TASKS))


def test_a_mistake_of_the_program_stops_the_run_and_keeps_what_was_measured(
    run: Run,
) -> None:
    run.script({"2": "mistake"})
    with pytest.raises(
        LadderError, match="not a kernel:\nTraceback: KeyError: 'params'"
    ):
        run.measure()
    assert [record.variant for record in run.records] == ["v0", "v1"]
    assert not any(alive(pid) for pid in run.workers)
    run.script({})
    assert statuses(run.measure()) == ["ok"] * TASKS
    assert run.tasks == [0, 1, 2, 2, 3, 4]


@pytest.mark.parametrize(
    ("start", "says"), [("hang", "no result within"), ("die", "exit code 4")]
)
def test_a_worker_that_never_starts_is_tried_three_times(
    run: Run, monkeypatch: pytest.MonkeyPatch, start: str, says: str
) -> None:
    if start == "hang":
        monkeypatch.setattr(supervisor, "_START_DEADLINE_S", 1.0)
    run.script({"start": start})
    with pytest.raises(
        LadderError, match=f"the measuring worker does not start: .*{says}"
    ):
        run.measure()
    assert len(run.workers) == 3
    assert not any(alive(pid) for pid in run.workers)
    assert run.records == [], "no cell is blamed"


def test_the_worker_keeps_the_descriptor_of_the_gpu_lock() -> None:
    held, other = os.pipe()
    says = "Connection(int(sys.argv[1])).send({'hello': {'pid': os.getpid()}})"
    program = f"import os, sys; from multiprocessing.connection import Connection; os.fstat({held}); {says}"
    command = [sys.executable, "-S", "-c", program]
    worker = WorkerProcess(GpuProgram(GPU, held, command))
    assert worker.hello["pid"] == worker.process.pid
    worker.leave()
    with pytest.raises(WorkerLost, match="exit code 1"):
        WorkerProcess(GpuProgram(GPU, other, command))


def test_progress_says_time_and_speed_up_or_what_went_wrong() -> None:
    result = {
        "variant_us": [10.0, 30.0, 20.0],
        "reference": "cublas",
        "stopped_by": "budget",
        "speedup": 0.5,
        "speedup_low": 0.49,
        "speedup_high": 0.53,
    }
    cell = make_plan(1).tasks[0].cell
    good = Record(cell, Conditions(), "tile", "s", "session", "", "ok", result=result)
    says = "20.00 us, 0.5000 ± 0.0200 of cublas (3 pairs, budget)"
    assert progress(good) == f"tile@64x2:cold: {says}"
    bad = replace(good, status="incorrect", reason="wrong\nat length")
    assert progress(bad) == "tile@64x2:cold: incorrect: wrong"


# Kills from outside. The supervisor runs in a process of its own there.

SUPERVISE = """
import sys
from pathlib import Path
from test_supervisor import Run
run = Run.__new__(Run)
run.folder, run.began = Path(sys.argv[1]), ""
run.measure()
"""


def python_path() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'workflow'}{os.pathsep}{ROOT / 'tests'}{os.pathsep}{Path(__file__).parent}",
    }


def test_a_killed_supervisor_loses_the_cell_in_flight_and_nothing_else(
    run: Run,
) -> None:
    run.script({"2": "slow"})
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISE, str(run.folder)], env=python_path()
    )
    requests = run.folder / "requests"
    assert wait_until(lambda: requests.exists() and "task 2" in requests.read_text())
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_until(lambda: not alive(run.workers[0])), (
        "the worker of a killed supervisor ends"
    )
    assert [record.variant for record in run.records] == ["v0", "v1"]
    run.script({})
    assert statuses(run.measure()) == ["ok"] * TASKS
    assert run.tasks == [0, 1, 2, 2, 3, 4]


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
        "from ladder.measure.process_lifetime import end_with_parent; end_with_parent()",
        "from ladder.measure.process_lifetime import die_with_parent; die_with_parent()",
    ],
    ids=["the measuring job", "the worker"],
)
def test_a_process_ends_when_the_one_that_started_it_is_killed(program: str) -> None:
    program += "; import time; print('ready', flush=True); time.sleep(60)"
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTED_BY, program],
        env=python_path(),
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert wait_until(lambda: not alive(child))

"""The supervisor of a measuring job. It has no CUDA, so that nothing a kernel does can end it.

It gives tasks to a worker one by one, each with a deadline. When a worker hangs or dies, its task gets that status and
a new worker goes on.
"""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing import Pipe
from typing import Any

from ladder.measure.assignment import Assignment
from ladder.measure.gpu_job import GpuProgram
from ladder.model.errors import LadderError

_START_DEADLINE_S = 120.0
_FRESH_STARTS_IN_A_ROW = 3
_DEADLINES_OF_A_CHOICE = 3


WorkerAnswer = dict[str, Any]
"""`results` by regime; seconds of wall, of the GPU, of the GPU on checks of launches; whether the context is lost."""


class WorkerLost(Exception):
    """The worker did not answer: it died, or was killed at its deadline."""

    def __init__(self, status: str, reason: str, interrupted: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.interrupted = interrupted


class WorkerProcess:
    """One worker and a pipe, of which the command's last argument is its end; `hello` is what it says of its GPU."""

    def __init__(self, program: GpuProgram) -> None:
        self._pipe, theirs = Pipe()
        descriptor = theirs.fileno()
        self.process = subprocess.Popen(
            [*program.command, str(descriptor)],
            env=program.environment,
            pass_fds=(descriptor, program.lock),
            stdout=2,  # Code of one's own may print; standard output is for JSON.
        )
        theirs.close()
        self.hello: dict[str, Any] = self._answer(_START_DEADLINE_S)["hello"]

    def _answer(self, seconds: float) -> WorkerAnswer:
        """The next answer. Raises WorkerLost at the deadline or when the worker is gone, saying what it was doing."""
        until = time.monotonic() + seconds
        during = ""
        answer = {"doing": ""}
        try:
            while "doing" in answer:
                during = f" in {answer['doing']}" if answer["doing"] else ""
                if not self._pipe.poll(max(0.0, until - time.monotonic())):
                    self.kill()
                    raise WorkerLost(
                        "timeout", f"no result within {seconds:g} s{during}"
                    )
                answer = self._pipe.recv()
        except (EOFError, OSError):
            code = self.process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            # Nothing a kernel does ends in these: somebody, or a system short of memory, ended the worker.
            interrupted = -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
            raise WorkerLost(
                "launch_error", f"the worker ended ({how}){during}", interrupted
            ) from None
        if "mistake" in answer:
            why = "the measuring worker failed, and not a kernel"
            raise LadderError(f"{why}:\n{answer['mistake']}")
        return answer

    def answer(self, assignment: Assignment, seconds: float) -> WorkerAnswer:
        """What becomes of an assignment. Raises WorkerLost."""
        with contextlib.suppress(OSError):  # Reading finds out how it ended.
            self._pipe.send(asdict(assignment))
        return self._answer(seconds)

    def kill(self) -> None:
        """End the worker at once; a kernel that never returns ends with its process."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        self._pipe.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass
class Supervisor:
    """Keeps a worker ready. `on_start` is called with each new worker, before its first task."""

    start_worker: Callable[[], WorkerProcess]
    deadline_s: float
    on_start: Callable[[WorkerProcess], None]
    _worker: WorkerProcess | None = field(default=None, init=False)

    def measure(self, assignment: Assignment, again: bool = False) -> WorkerAnswer:
        """One assignment, tried again if somebody else ended the worker. Raises LadderError where no worker starts."""
        worker = self._ready_worker()
        begun = time.monotonic()
        deadline_s = self.deadline_s
        if assignment.choice:  # which times more than two
            deadline_s *= _DEADLINES_OF_A_CHOICE
        try:
            answer = worker.answer(assignment, deadline_s)
        except WorkerLost as lost:
            self._worker = None
            if lost.interrupted and not again:
                return self.measure(assignment, again=True)
            result: dict[str, Any] = {"status": lost.status, "reason": str(lost)}
            if lost.status == "timeout":
                result["limit_s"] = deadline_s
            if lost.interrupted:
                result["transient"] = True
            results = dict.fromkeys(assignment.regimes, result)
            wall_s = round(time.monotonic() - begun, 3)
            return {"results": results, "gpu_s": 0.0, "check_s": 0.0, "wall_s": wall_s}
        if answer["fatal"]:
            worker.kill()
            self._worker = None
        return answer

    def _ready_worker(self) -> WorkerProcess:
        """The worker, a fresh one where the last is gone. Raises LadderError where none starts."""
        # A worker that ended after its last answer is no fault of the task that comes next.
        if self._worker is not None and self._worker.process.poll() is None:
            return self._worker
        for attempt in range(1, _FRESH_STARTS_IN_A_ROW + 1):
            try:
                self._worker = self.start_worker()
                break
            except WorkerLost as lost:
                if attempt == _FRESH_STARTS_IN_A_ROW:
                    why = f"the measuring worker does not start: {lost}"
                    raise LadderError(why) from lost
        assert self._worker is not None
        self.on_start(self._worker)
        return self._worker

    def leave(self) -> None:
        if self._worker is not None:
            self._worker.leave()
            self._worker = None

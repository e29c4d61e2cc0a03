"""The supervisor of a measuring job: no CUDA in it, so nothing a kernel does can take it down.

It keeps the cells whose key is unchanged, takes a GPU for itself, hands the other cells to a worker one by one with a
deadline each, and records what becomes of them. When a worker hangs or dies, its cell gets that status and a fresh
worker goes on.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ladder.cells import RecordFile, cell_key, read_records, write_records
from ladder.digest import sha256
from ladder.errors import LadderError

_START_DEADLINE_S = 120.0
_FRESH_STARTS_IN_A_ROW = 3


class WorkerLost(Exception):
    """The worker did not answer: it died, or was killed at its deadline."""

    def __init__(self, status: str, reason: str, interrupted: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.interrupted = interrupted


class WorkerProcess:
    """One worker, spoken to in JSON lines."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], keep_open: Sequence[int]
    ) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
            pass_fds=tuple(keep_open),
            text=False,
        )
        self._buffer = b""
        self._selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        hello = self._line(_START_DEADLINE_S)
        self.pid: int = hello["hello"]["pid"]

    def _line(self, seconds: float) -> dict[str, Any]:
        """The next answer. Raises WorkerLost at the deadline or when the worker is gone."""
        assert self.process.stdout is not None
        limit = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            remaining = limit - time.monotonic()
            if remaining <= 0:
                self.kill()
                raise WorkerLost("timeout", f"no result within {seconds:g} s")
            if not self._selector.select(timeout=remaining):
                continue
            chunk = self.process.stdout.read()
            if chunk == b"":
                code = self.process.wait()
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                # Nothing a kernel does ends in these: somebody, or a system short of memory, ended the worker.
                interrupted = -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
                raise WorkerLost("launch_error", f"the worker ended ({how})", interrupted)
            self._buffer += chunk or b""
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "mistake" in answer:
            raise LadderError(f"the measuring worker failed, and not a kernel:\n{answer['mistake']}")
        return answer

    def ask(self, index: int, seconds: float) -> dict[str, Any]:
        """Have one cell measured. Raises WorkerLost."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"cell": index}).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # Reading finds out how it ended.
        return self._line(seconds)

    def kill(self) -> None:
        """End the worker at once; a kernel that never returns ends with its process."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """Let the worker end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()


def end_with_parent(parent: int) -> None:
    """End this process group's measuring when `parent` is gone: a killed Snakemake leaves its jobs behind."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        logging.error("the process that started this measurement is gone; stopping")
        os._exit(3)  # The worker dies with us; see worker.die_with_parent.

    threading.Thread(target=watch, daemon=True).start()


@dataclass
class Job:
    """What a measuring job did, for job.json."""

    cells: int = 0
    kept: int = 0
    measured: int = 0
    wall_s: float = 0.0
    gpu_s: float = 0.0
    worker_starts: int = 0
    started: str = ""
    finished: str = ""


def now() -> str:
    """UTC time, ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def cubin_digests(plan: Mapping[str, Any], cubins: Path) -> dict[str, str]:
    """SHA-256 of every cubin the plan needs. Raises LadderError for one that is missing."""
    digests: dict[str, str] = {}
    for cell in plan["cells"]:
        for launch in [cell.get("launch", {}), *cell.get("references", [])]:
            variant = launch.get("variant")
            if variant and variant not in digests:
                path = cubins / f"{variant}.cubin"
                if not path.is_file():
                    raise LadderError(f"{path}: the cubin is missing; run the compile step first")
                digests[variant] = sha256(path.read_bytes())
    return digests


def split_cells(
    plan: Mapping[str, Any], digests: Mapping[str, str], host: Mapping[str, str], old: Path, remeasure: bool
) -> tuple[list[tuple[int, str]], dict[str, dict[str, Any]]]:
    """(cells to measure as (index, key), records to keep by key). Cells the plan rules out are in neither."""
    kept_before = (
        {} if remeasure else {record["key"]: record for record in read_records(old) if "key" in record}
    )
    todo, kept = [], {}
    for index, cell in enumerate(plan["cells"]):
        if "launch" not in cell:
            continue
        key = cell_key(cell, plan, digests, host)
        if key in kept_before:
            kept[key] = kept_before[key]
        else:
            todo.append((index, key))
    return todo, kept


class Supervisor:
    """Runs the cells of one plan on one GPU."""

    def __init__(
        self,
        start_worker: Callable[[], WorkerProcess],
        cells: Sequence[Mapping[str, Any]],
        deadline_s: float,
        describe_device: Callable[[float], Mapping[str, Any]],
    ) -> None:
        self._start_worker = start_worker
        self._cells = cells
        self._deadline_s = deadline_s
        self._describe_device = describe_device
        self._worker: WorkerProcess | None = None
        self.job = Job()

    def run(self, todo: Sequence[tuple[int, str]], record_file: RecordFile) -> None:
        """Measure the cells of `todo`, appending a record each. Raises LadderError where no worker starts."""
        begun = time.monotonic()
        try:
            for done, (index, key) in enumerate(todo):
                since = time.monotonic()
                result = self._measure(index)
                cell = self._cells[index]
                record = {
                    "key": key,
                    "variant": cell["variant"],
                    "kernel": cell["kernel"],
                    "dtype": cell["dtype"],
                    "layout": cell["layout"],
                    "size": cell["size"],
                    **result,
                    "device": dict(self._describe_device(since)),
                }
                record_file.append(record)
                self.job.measured += 1
                self.job.gpu_s += record.get("gpu_s", 0.0)
                spent = time.monotonic() - begun
                left = spent / (done + 1) * (len(todo) - done - 1)
                logging.info("[%d/%d, %.0f s left] %s", done + 1, len(todo), left, progress(record))
        finally:
            if self._worker is not None:
                self._worker.leave()

    def _measure(self, index: int) -> dict[str, Any]:
        """One cell; a worker that somebody ended is replaced once before the cell counts as failed."""
        for attempt in range(2):
            worker = self._ready_worker()
            asked = time.monotonic()
            try:
                answer = worker.ask(index, self._deadline_s)
            except WorkerLost as lost:
                self._worker = None
                if lost.interrupted and attempt == 0:
                    continue
                wall = round(time.monotonic() - asked, 3)
                return {"status": lost.status, "reason": str(lost), "gpu_s": 0.0, "wall_s": wall}
            if answer["fatal"]:
                worker.kill()
                self._worker = None
            result: dict[str, Any] = answer["result"]
            return result
        raise AssertionError("the second attempt returns")

    def _ready_worker(self) -> WorkerProcess:
        """The worker, a fresh one where the last is gone. Raises LadderError where none starts."""
        if self._worker is not None and self._worker.process.poll() is not None:
            self._worker = None  # It ended after its last answer: no fault of the cell that comes next.
        for attempt in range(_FRESH_STARTS_IN_A_ROW):
            if self._worker is not None:
                break
            try:
                self._worker = self._start_worker()
                self.job.worker_starts += 1
            except WorkerLost as lost:
                if attempt == _FRESH_STARTS_IN_A_ROW - 1:
                    raise LadderError(f"the measuring worker does not start: {lost}") from lost
        assert self._worker is not None
        return self._worker


def progress(record: Mapping[str, Any]) -> str:
    """One line about a finished cell, for a person."""
    size = "x".join(str(value) for value in record["size"].values())
    head = f"{record['variant']} at {size}"
    if record["status"] != "ok":
        return f"{head}: {record['status']}: {str(record['reason']).splitlines()[0][:120]}"
    from ladder.intervals import median

    name, regime = next(iter(record["regimes"].items()))
    half = (regime["speedup_high"] - regime["speedup_low"]) / 2
    return (
        f"{head}: {median(regime['variant_us']):.2f} us {name}, {regime['speedup']:.4f} ± {half:.4f} of "
        f"{regime['reference']} ({len(regime['variant_us'])} pairs, {regime['stopped_by']})"
    )


def worker_command(plan: Path, cubins: Path, harness: Path) -> list[str]:
    """Command line of a worker."""
    return [sys.executable, "-m", "ladder.worker", str(plan), str(cubins), str(harness)]


def finish(path: Path, keys: Sequence[str]) -> None:
    """Put the record file in the order of `keys`, the plan's, and drop records that no longer belong to it."""
    latest = {record["key"]: record for record in read_records(path)}
    write_records(path, [latest[key] for key in keys if key in latest])

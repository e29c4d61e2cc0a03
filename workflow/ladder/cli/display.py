"""What a person sees of a run: one live display in a terminal, at most a hundred lines in a file.

No logger plugin does this: snakemake-logger-plugin-rich has a bar for each rule, but does not see how far a job is,
prints nothing into a file between the first job and the last, and of a failed job prints the whole log.
"""

import logging
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from snakemake_interface_logger_plugins.common import LogEvent

_CHATTER = re.compile(
    r"Using |Assuming |host:|Building DAG|Provided |Rules claiming|Singularity|Select jobs|Execute \d"
    r"|Complete log|Storing |Finished job|Elapsed time|Job stats|Exiting because|Look below|Cancelling"
)
"""Messages of snakemake that are left out here; all of them are in its own log, under .snakemake/log."""
_DONE = re.compile(r"^\[(\d+)/(\d+)[^\]]*\] (.*)\n", re.MULTILINE)
"""Progress of a step in its log."""
_WARNING = re.compile(r"^warning: .*$", re.MULTILINE)
"""What a job says of its own work although it succeeds."""
_FAILED_RULE = re.compile(r"^ *Error in rule (\w+):", re.MULTILINE)
_LINES = 50
"""Lines of progress of a whole run in a file: one each 2 percent."""
_TAIL_BYTES = 4096


def _tail(log: Path) -> str:
    """The end of a job's log; empty where there is none yet."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def failure(message: str, log: Path, why: str = "", others: Sequence[str] = ()) -> str:
    """The message about a failed job: the last line of its log, and the first, which is the command that repeats it.

    `why` is what a cluster says of its end, `others` the logs that it kept.
    """
    command, *said = _text(log).strip().splitlines() or [""]
    last = said[-1].strip() if said else "it ended without a word (killed?)"
    lines = [f"FAILED: {message}: {last}", *([f"  {why}"] if why else [])]
    lines += [f"  log: {one}" for one in (log, *others)]
    return "\n".join([*lines, f"  to repeat it: {command.strip()}"])


@dataclass
class _Job:
    """A running job and its line of the live display."""

    message: str
    log: Path | None
    line: TaskID | None = None


class _Live(Progress):
    """Bars of a run and of its running jobs, which are asked each time the display is drawn."""

    def __init__(self, display: "Display", console: Console) -> None:
        self._display = display
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        super().__init__(*columns, TimeRemainingColumn(elapsed_when_finished=True), console=console)

    def get_renderables(self) -> Iterable[RenderableType]:
        self._display.look()
        return super().get_renderables()


class Display(logging.Handler):
    """Takes the place of snakemake's own messages. `jobs` of `total` are done."""

    def __init__(self, stream: Any = None) -> None:
        super().__init__()
        self.console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=True, markup=False)
        self.live: _Live | None = None
        self.running, self.failed, self.began = dict[int, _Job](), set[int](), time.monotonic()
        self.done, self.total, self.whole, self.last = 0, 0, TaskID(0), ""
        if self.console.is_terminal:
            self.live = _Live(self, self.console)

    def look(self) -> None:
        """Read in the logs of running jobs how far they are."""
        if self.live is None:  # it draws itself once while it is made
            return
        shares = 0.0
        for job in [*self.running.values()]:
            found = _DONE.findall(_tail(job.log)) if job.log else []
            if found and job.line is not None:
                done, total, what = found[-1]
                shares += int(done) / int(total)
                about = f"{job.message}: {what}"[: max(20, self.console.width - 50)]
                self.live.update(job.line, completed=int(done), total=int(total), description=f"  {about}")
        if self.total:
            self.live.update(self.whole, completed=self.done + min(shares, self.total - self.done))

    def emit(self, record: logging.LogRecord) -> None:
        known = vars(record)
        try:
            match known.get("event"):
                case LogEvent.RUN_INFO:
                    self._begin(int(known["stats"]["total"]))
                case LogEvent.JOB_INFO:
                    self._start(known)
                case LogEvent.JOB_FINISHED:
                    self._end(int(known["job_id"]))
                case LogEvent.JOB_ERROR:
                    self._fail(known)
                case LogEvent.GROUP_ERROR:
                    self._fail_group(known)
                case LogEvent.PROGRESS:
                    self._progress(int(known["done"]), int(known["total"]))
                case None | LogEvent.ERROR:
                    self._message(record)
        except Exception:
            self.handleError(record)

    def _begin(self, total: int) -> None:
        self.total = total
        if self.live is None:
            self.console.print(f"{total} jobs")
        elif not self.live.tasks:
            self.whole = self.live.add_task("jobs", total=total)
            self.live.start()

    def _start(self, known: Mapping[str, Any]) -> None:
        logs = known["log"] or []
        job = _Job(known["rule_msg"] or known["rule_name"], Path(logs[0]) if logs else None)
        self.running[known["jobid"]] = job
        if self.live is not None:
            job.line = self.live.add_task(f"  {job.message}", total=None)

    def _end(self, jobid: int) -> str:
        job = self.running.pop(jobid, None)
        if self.live is not None and job is not None and job.line is not None:
            self.live.remove_task(job.line)
        for line in _WARNING.findall(_text(job.log)) if job is not None and job.log else ():
            self.console.print(line)
        self.last = job.message if job else ""
        return self.last

    def _fail(self, known: Mapping[str, Any]) -> None:
        begun, why = self._end(known["jobid"]), known["rule_msg"] or ""
        if begun:
            self.failed.discard(known["jobid"])  # it was started again
        if known["jobid"] not in self.failed:  # snakemake says it again at the end
            self.failed.add(known["jobid"])
            log, *others = [one for one in known["log"] if one] or ["no log"]
            about = (begun, why) if begun else (why or known["rule_name"], "")
            self.console.print(failure(about[0], Path(log), about[1], others))

    def _fail_group(self, known: Mapping[str, Any]) -> None:
        """Jobs that a cluster ran as one: those that its log names failed, all if it names none."""
        logs = [str(log) for log in known["aux_logs"] if log]
        named = {name for log in logs for name in _FAILED_RULE.findall(_text(Path(log)))}
        for job in known["job_error_info"]:
            if not named or job["rule_name"] in named:
                self._fail({**job, "log": [*job["log"], *logs]})
            else:
                self._end(job["jobid"])

    def _progress(self, done: int, total: int) -> None:
        before, self.done, self.total = self.done, done, total
        if self.live is None and done * _LINES // total > before * _LINES // total:
            minutes, seconds = divmod(round(time.monotonic() - self.began), 60)
            self.console.print(f"{minutes:3}:{seconds:02}  {done} of {total} jobs done  {self.last}")

    def _message(self, record: logging.LogRecord) -> None:
        text = record.getMessage() if record.msg else ""
        if text.startswith("Terminating processes"):
            self.console.print("Stopping. What is finished is kept: the same command goes on from there.")
        elif text.strip() and (record.levelno >= logging.WARNING or not _CHATTER.match(text.strip())):
            self.console.print(text.strip())

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
        super().close()

"""What a person sees of a run: a live display in a terminal, few lines in a file, and of a failure what repeats it."""

from __future__ import annotations

import io
import logging
import os
import pty
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import edit, environment, snakemake_command
from ladder.cli.display import Display, failure
from snakemake_interface_logger_plugins.common import LogEvent

RESULTS = Path("results/test/no-gpu")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def send(
    display: Display, event: LogEvent | None, text: str = "", level: int = logging.INFO, **known: Any
) -> None:
    """Give a display one of snakemake's messages."""
    record = logging.LogRecord("snakemake", level, __file__, 0, text, None, None)
    vars(record).update({"event": event} if event else {}, **known)
    display.handle(record)


def start(display: Display, jobid: int, message: str, log: Path) -> None:
    about = {"rule_msg": message, "rule_name": "rule", "log": [str(log)]}
    send(display, LogEvent.JOB_INFO, jobid=jobid, **about)


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Snakemake as people run it: its output goes to a file."""
    return subprocess.run(
        snakemake_command("--cores", "1", *arguments),
        cwd=project,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("total", [1, 7, 41, 110, 5000])
def test_a_whole_run_is_at_most_a_hundred_lines_in_a_file(total: int, tmp_path: Path) -> None:
    out = io.StringIO()
    display = Display(out)
    for chatter in ("Building DAG of jobs...", "Provided cores: 2", "Select jobs to execute..."):
        send(display, None, chatter)
    send(display, LogEvent.RUN_INFO, stats={"total": total})
    for jobid in range(total):
        start(display, jobid, f"Job {jobid}", tmp_path / "log")
        send(display, LogEvent.JOB_FINISHED, job_id=jobid)
        send(display, LogEvent.PROGRESS, done=jobid + 1, total=total)
    lines = out.getvalue().splitlines()
    assert min(total, 50) <= len(lines) - 1 <= 50 or total < 50
    assert f"{total} of {total} jobs done" in lines[-1]
    assert "DAG" not in out.getvalue()


def test_what_a_job_warns_of_is_said_when_it_is_done(tmp_path: Path) -> None:
    out, log = io.StringIO(), tmp_path / "log"
    display = Display(out)
    send(display, LogEvent.RUN_INFO, stats={"total": 1})
    start(display, 1, "Drawing the figures", log)
    log.write_text("ladder figures x\nwarning: a.png: Glyph 21452 missing\n[1/1] x\n a warning: no\n")
    send(display, LogEvent.JOB_FINISHED, job_id=1)
    assert out.getvalue().splitlines() == ["1 jobs", "warning: a.png: Glyph 21452 missing"]


def test_a_terminal_shows_how_far_each_running_job_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    out, log = Terminal(), tmp_path / "log"
    display = Display(out)
    send(display, LogEvent.RUN_INFO, stats={"total": 3})
    start(display, 1, "Preparing fp32_tiles", log)
    log.write_text("ladder prepare x\n[1/9] a\n[4/9, 12 s left] gemm_staged<8>\n[5/9] gemm_st")
    time.sleep(0.5)
    display.close()
    assert "Preparing fp32_tiles: gemm_staged<8>" in out.getvalue()
    assert "4/9" in out.getvalue()


def test_a_failure_is_shown_once_by_its_last_line_and_the_command_that_repeats_it(tmp_path: Path) -> None:
    out, log = io.StringIO(), tmp_path / "log"
    display = Display(out)
    log.write_text("ladder collect x \nTraceback (most recent call last):\n  File\nValueError: no\n\n")
    for _ in range(2):
        about = {"rule_msg": "Collecting", "rule_name": "collect", "log": [str(log)]}
        send(display, LogEvent.JOB_ERROR, level=logging.ERROR, jobid=3, **about)
    expected = f"FAILED: Collecting: ValueError: no\n  log: {log}\n  to repeat it: ladder collect x\n"
    assert out.getvalue() == expected


def test_of_a_job_on_a_cluster_it_is_said_how_it_ended_each_time_it_was_started(tmp_path: Path) -> None:
    out, log = io.StringIO(), tmp_path / "log"
    display = Display(out)
    log.write_text("ladder measure x \n[1/4] a\n")
    begun = {"rule_msg": "Measuring a", "rule_name": "time_sweep", "log": [str(log)]}
    for number in (7, 8):
        send(display, LogEvent.JOB_INFO, jobid=3, **begun)
        ended = {"rule_msg": f"SLURM-job '{number}' failed", "log": [str(log), f"{number}.log", None]}
        send(display, LogEvent.JOB_ERROR, level=logging.ERROR, jobid=3, **begun | ended)
    assert out.getvalue() == "".join(
        f"FAILED: Measuring a: [1/4] a\n  SLURM-job '{number}' failed\n  log: {log}\n  log: {number}.log\n"
        "  to repeat it: ladder measure x\n"
        for number in (7, 8)
    )


def test_of_jobs_that_a_cluster_ran_as_one_those_are_shown_that_failed(tmp_path: Path) -> None:
    out, whole = io.StringIO(), tmp_path / "whole"
    display = Display(out)
    whole.write_text("Error in rule claims:\n    message: None\n")
    jobs = [
        {"jobid": number, "rule_msg": None, "rule_name": name, "log": [str(tmp_path / name)]}
        for number, name in enumerate(("collect", "claims", "report"))
    ]
    send(display, LogEvent.GROUP_ERROR, level=logging.ERROR, aux_logs=[whole], job_error_info=jobs)
    assert out.getvalue().splitlines()[:3] == [
        "FAILED: claims: it ended without a word (killed?)",
        f"  log: {tmp_path / 'claims'}",
        f"  log: {whole}",
    ]
    assert "collect" not in out.getvalue()


def test_a_job_that_was_killed_before_a_word_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ladder collect x \n")
    assert "ended without a word (killed?)" in failure("Collecting", log)
    assert "ended without a word (killed?)" in failure("Collecting", tmp_path / "none")


def test_errors_and_unknown_messages_of_snakemake_are_shown() -> None:
    out = io.StringIO()
    display = Display(out)
    send(display, None, "Using nothing at all", level=logging.WARNING)
    send(display, LogEvent.ERROR, "WorkflowError:\nmissing", level=logging.ERROR)
    send(display, None, "Nothing to be done (all requested files are present and up to date).")
    assert out.getvalue().splitlines() == [
        "Using nothing at all",
        "WorkflowError:",
        "missing",
        "Nothing to be done (all requested files are present and up to date).",
    ]


@pytest.mark.slow
def test_a_real_run_is_short_and_ends_with_report_and_page(project: Path) -> None:
    done = run(project)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) < 20
    assert "jobs done  Preparing alone" in done.stdout
    assert lines[-2:] == [f"Report: {RESULTS}/report.md", f"Page: {RESULTS}/index.html"]
    assert "Nothing to be done" in run(project).stdout


@pytest.mark.slow
def test_a_crashed_step_leaves_its_traceback_and_its_command(project: Path) -> None:
    assert run(project, "compile").returncode == 0
    plan = project / RESULTS / "plans" / "alone.json"
    times = plan.stat()
    edit(plan, '"problem": "stencil"', '"problem": "of another version"')
    os.utime(plan, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = run(project, "report")
    assert done.returncode == 1
    log = (project / RESULTS / "logs/collect_tables.log").read_text()
    command = log.splitlines()[0]
    assert "Traceback" in log
    shown = done.stdout.splitlines()
    (failed,) = [
        number for number, line in enumerate(shown) if line.startswith("FAILED: Collecting the tables")
    ]
    assert shown[failed].endswith(log.strip().splitlines()[-1])
    assert shown[failed + 2] == f"  to repeat it: {command.strip()}"
    again = subprocess.run(
        ["bash", "-c", command],
        cwd=project,
        env=environment()
        | {"PYTHONPATH": "workflow", "PATH": f"{Path(snakemake_command()[0]).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 3
    assert "Traceback" in again.stderr


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_and_the_same_command_does(project: Path) -> None:
    edit(project / "kernels/stencil/alone.cu", "T sum = 0;", "T sum = 0; /* slow */")
    running = subprocess.Popen(
        snakemake_command("--cores", "1"),
        cwd=project,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A shell that runs the tests in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    log = project / RESULTS / "logs/prepare_sweep"
    while not log.is_dir() or not any(path.stat().st_size for path in log.iterdir()):
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    text = running.communicate(timeout=60)[0]
    assert running.returncode != 0
    assert "Stopping. What is finished is kept: the same command goes on from there." in text
    assert run(project).returncode == 0


@pytest.mark.slow
def test_in_a_terminal_the_display_leaves_a_finished_bar_and_the_report(project: Path) -> None:
    controller, terminal = pty.openpty()
    running = subprocess.Popen(
        snakemake_command("--cores", "1"),
        cwd=project,
        env=environment() | {"TERM": "xterm-256color", "COLUMNS": "100"},
        stdout=terminal,
        stderr=terminal,
        close_fds=True,
    )
    os.close(terminal)
    shown = bytearray()
    while True:
        try:
            read = os.read(controller, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        shown += read
    assert running.wait() == 0
    text = shown.decode()
    assert "Preparing alone" in text
    assert f"Report: {RESULTS}/report.md" in text

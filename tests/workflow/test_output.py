"""What a person sees of a run: Snakemake's own words, and at the end which steps failed and why."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import edit, environment, snakemake_command

pytestmark = pytest.mark.slow

RESULTS = Path("results/test/no-gpu")


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


def test_a_run_says_what_its_jobs_do_and_where_report_and_page_are(
    project: Path,
) -> None:
    done = run(project)
    assert done.returncode == 0, done.stdout
    assert f"stands in its log, in {RESULTS}/logs" in done.stdout
    assert "Preparing alone" in done.stdout
    assert "8 of 8 steps (100%) done" in done.stdout
    assert f"Report: {RESULTS}/report.md\nPage: {RESULTS}/index.html\n" in done.stdout
    assert "Reason:" not in done.stdout
    assert "Nothing to be done" in run(project).stdout


def test_a_failed_step_is_named_at_the_end_by_its_last_words_and_a_log_that_repeats_it(
    project: Path,
) -> None:
    assert run(project, "compile").returncode == 0
    plan = project / RESULTS / "plans/alone.json"
    times = plan.stat()
    edit(plan, '"problem": "stencil"', '"problem": "of another version"')
    os.utime(plan, ns=(times.st_atime_ns, times.st_mtime_ns))
    done = run(project, "report")
    assert done.returncode == 1
    log = RESULTS / "logs/collect_tables.log"
    lines = (project / log).read_text().strip().splitlines()
    shown = done.stdout.splitlines()
    at = shown.index(
        "These steps failed. The first line of a log is the command that repeats the step."
    )
    assert shown[at + 1] == f"  {log}: {lines[-1].strip()}"
    again = subprocess.run(
        ["bash", "-c", lines[0]],
        cwd=project,
        env=environment()
        | {
            "PYTHONPATH": "workflow",
            "PATH": f"{Path(snakemake_command()[0]).parent}:/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 3
    assert "Traceback" in again.stderr


def test_after_ctrl_c_the_same_command_goes_on(project: Path) -> None:
    edit(project / "kernels/stencil/alone.cu", "T sum = 0;", "T sum = 0; /* slow */")
    running = subprocess.Popen(
        snakemake_command("--cores", "1"),
        cwd=project,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A shell that runs the tests in the background has it ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    log = project / RESULTS / "logs/prepare_sweep"
    while not log.is_dir() or not any(path.stat().st_size for path in log.iterdir()):
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGINT)
    assert running.wait(timeout=60) != 0
    assert run(project).returncode == 0

"""A run that is killed at any moment goes on where it was, and ends in the tables of one that nobody disturbs."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest
from conftest import environment, make_project, run_snakemake, snakemake_command

pytestmark = pytest.mark.slow

RESULTS = Path("results/test/no-gpu")
TIMES = {"compile_s"}
"""Columns that differ between any two runs."""


def tables(project: Path) -> dict[str, pd.DataFrame]:
    """Every table of a run without its times."""
    return {
        path.name: pd.read_csv(path).drop(columns=TIMES, errors="ignore")
        for path in sorted((project / RESULTS / "tables").glob("*.csv"))
    }


ANALYSED = (RESULTS / "tables/claims.csv").as_posix()


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, pd.DataFrame], float]:
    """Tables of a run nobody disturbs, and the seconds it takes."""
    project = make_project(tmp_path_factory.mktemp("undisturbed") / "project")
    start = time.monotonic()
    outcome = run_snakemake(project, ANALYSED)
    assert outcome.code == 0, outcome.text
    return tables(project), time.monotonic() - start


def kill_after(project: Path, seconds: float, everyone: bool) -> None:
    """Start the run and end it with SIGKILL: every process, or snakemake alone, whose jobs go on as orphans."""
    running = subprocess.Popen(
        snakemake_command("--cores", "1", ANALYSED),
        cwd=project,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    if everyone:
        os.killpg(running.pid, signal.SIGKILL)
    else:
        running.kill()
    running.wait()


def written(project: Path) -> dict[str, int]:
    """When each cubin and the tables were written last."""
    times: dict[str, int] = {}
    for path in (
        *project.glob(".cache/cubins/*.cubin"),
        *(project / RESULTS).glob("tables/*.csv"),
    ):
        job = path.stem if path.suffix == ".cubin" else path.parent.name
        times[job] = max(times.get(job, 0), path.stat().st_mtime_ns)
    return times


KILLS = 5


@pytest.mark.parametrize(
    "everyone", [True, False], ids=["every process", "snakemake alone"]
)
def test_a_run_killed_at_random_moments_goes_on_and_ends_in_the_same_tables(
    everyone: bool, project: Path, undisturbed: tuple[dict[str, pd.DataFrame], float]
) -> None:
    """Kills in a row, each a little further into the run; with both of five ten moments."""
    expected, seconds = undisturbed
    chance = random.Random(everyone)
    start_up = 1.0
    done: dict[str, int] = {}
    for kill in range(KILLS + 1):
        if kill < KILLS:
            kill_after(project, start_up + chance.uniform(0, 0.5) * seconds, everyone)
            assert run_snakemake(project, "--unlock").code == 0
        else:
            outcome = run_snakemake(project, ANALYSED)
            assert outcome.code == 0, outcome.text
        now = written(project)
        # One core, so one job at most was in flight when the run before was killed: it is written anew, or, where the
        # next kill came first, still to be.
        assert len([job for job in done if now.get(job) != done[job]]) <= 1
        done = now
    ended = tables(project)
    assert list(ended) == list(expected)
    for name, frame in ended.items():
        pd.testing.assert_frame_equal(frame, expected[name], obj=name)
    assert run_snakemake(project, ANALYSED).nothing_to_do

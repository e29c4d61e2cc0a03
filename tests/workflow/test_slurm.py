"""A run on a real Slurm: controller and nodes on this machine, measuring played by the made-up GPU."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from conftest import (
    ROOT,
    edit,
    environment,
    make_project,
    run_snakemake,
    snakemake_command,
)
from ladder.measure.store import Records, read_store
from slurm import NODES, Cluster, running_cluster, wait_for, why_no_slurm

MADE_UP = ROOT / "tests/made_up_gpu"
RESULTS = Path("results/test/nvidia-made-up-gpu")
SWEEPS = ("alone", "with_headers", "again")
CONFIG = ("--config", "device=nvidia-made-up-gpu", "arch=sm_90a")
TIMES = {"compile_s"}
"""Columns of tables that no two runs share."""

_plugin = importlib.util.find_spec("snakemake_executor_plugin_slurm")
_why = why_no_slurm() or (None if _plugin else "no snakemake-executor-plugin-slurm")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(_why is not None, reason=_why or "")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as running:
        yield running


def made_up(**more: str) -> dict[str, str]:
    """The environment of a snakemake whose measuring jobs find made-up GPUs."""
    gpus = ",".join(f"{node}:{count}" for node, count in {**NODES, "here": 1}.items())
    return environment() | {"PYTHONPATH": str(MADE_UP), "MADE_UP_GPUS": gpus} | more


def three_sweeps(folder: Path) -> Path:
    """The small project with a third sweep, and without what needs a real GPU."""
    project = make_project(folder)
    shutil.copy(
        project / "config/sweeps/alone.yaml", project / "config/sweeps/again.yaml"
    )
    edit(project / "config/sweeps/again.yaml", "2**16", "2**18")
    edit(project / "config/sweeps/again.yaml", "2**20", "2**19")
    return project


def cluster_command(*words: str) -> list[str]:
    # The cluster has no accounting: of ended jobs the controller knows.
    command = [
        sys.executable,
        str(MADE_UP / "snakemake_looks_often.py"),
        "--profile",
        "profiles/slurm",
    ]
    return [*command, "--slurm-status-command", "squeue", *words, *CONFIG]


def step(job: dict[str, str]) -> str:
    """What a job of the cluster is for, as the plugin comments it."""
    return job.get("Comment", "").removeprefix("rule_").replace("_wildcards_", " ")


def running(cluster: Cluster) -> dict[str, dict[str, str]]:
    """Running jobs that measure, by sweep."""
    jobs = [job for job in cluster.jobs() if job["JobState"] == "RUNNING"]
    return {
        step(job).split()[1]: job for job in jobs if step(job).startswith("time_sweep ")
    }


def records(project: Path) -> Records:
    return read_store(project / RESULTS / "records")


def sweeps_begun(project: Path) -> set[str]:
    return {
        path.name.partition("-")[0]
        for path in (project / RESULTS / "records").glob("*")
        if b'"status"' in path.read_bytes()
    }


def table(project: Path, name: str) -> pd.DataFrame:
    found = pd.read_csv(project / RESULTS / f"tables/{name}.csv")
    return found.drop(columns=[one for one in found if one in TIMES])


def test_a_run_on_a_cluster_that_loses_jobs_and_a_node_equals_a_local_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Three sweeps on three GPUs: of their jobs one is preempted, one cancelled, and one loses its node."""
    project = three_sweeps(tmp_path / "cluster")
    local = three_sweeps(tmp_path / "local")
    hold = tmp_path / "hold"
    hold.touch()
    log = tmp_path / "log"
    with log.open("w") as out:
        run = subprocess.Popen(
            cluster_command(),
            cwd=project,
            env=made_up(MADE_UP_HOLD=str(hold)) | cluster.environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            wait_for(
                "the first cells",
                lambda: run.poll() is not None or sweeps_begun(project) == {*SWEEPS},
                150,
            )
            begun = running(cluster)
            assert {*begun} == {*SWEEPS}, log.read_text()
            gpus = {one.gpu["uuid"] for one in records(project).sessions.values()}
            assert gpus == {"GPU-gpu1-0", "GPU-gpu2-0", "GPU-gpu2-1"}, (
                "no GPU twice, on no other node"
            )

            beside = [
                sweep for sweep, job in begun.items() if job["NodeList"] == "gpu2"
            ]
            urgent = (
                "--partition=urgent",
                "--nodelist=gpu2",
                "--gres=gpu:1",
                "--mem=1000",
                "--output=/dev/null",
                "--wrap=sleep 1",
            )
            cluster.ask("sbatch", *urgent)
            wait_for(
                "a preemption",
                lambda: len([one for one in beside if one in running(cluster)]) == 1,
            )
            (left,) = (one for one in beside if one in running(cluster))
            cluster.ask("scancel", begun[left]["JobId"])
            cluster.fail_node("gpu1")
            hold.unlink()
            # Meanwhile:
            done = subprocess.run(
                snakemake_command("--cores", "1", *CONFIG),
                cwd=local,
                env=made_up(),
                capture_output=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            code = run.wait(timeout=240)
        finally:
            run.kill()
    assert code == 0, log.read_text()

    jobs = cluster.jobs()
    for job in jobs:
        needs_gpu = step(job).startswith("time_sweep ") or job["Partition"] == "urgent"
        assert ("gpu:1" in job.get("TresPerNode", "")) == needs_gpu, job
        assert not needs_gpu or job["NodeList"] in ("gpu1", "gpu2")
    ended = Counter(
        job["JobState"] for job in jobs if step(job).startswith("time_sweep ")
    )
    assert ended["COMPLETED"] == 3
    assert ended["CANCELLED"] == 1
    assert any(job["Restarts"] == "1" for job in jobs), (
        "the preempted one goes on as the same job"
    )
    assert "SLURM status is: 'CANCELLED'" in log.read_text()

    measured, expected = (
        Counter((one.cell.id, one.status) for one in records(one))
        for one in (project, local)
    )
    assert measured == expected, "no cell was lost, and none measured twice"
    assert {*measured.values()} == {1}
    for name in ("timings", "resources", "claims", "metrics", "notes"):
        pd.testing.assert_frame_equal(table(project, name), table(local, name))
    again = run_snakemake(project, "-n", *CONFIG)
    assert again.nothing_to_do, again.text

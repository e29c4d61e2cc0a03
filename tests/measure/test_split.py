"""Jobs that share the cells of a sweep: none is lost and none measured twice, and pairs stay together."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from checkout import loaded
from conftest import ROOT, edit_yaml, environment, make_project, snakemake_command
from ladder.measure.schedule import share_of
from ladder.measure.store import Records, read_store
from slurm import wait_for

MADE_UP = ROOT / "tests" / "made_up_gpu"
RESULTS = Path("results/test/nvidia-made-up-gpu")


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_each_variant_is_in_one_share_with_all_its_pairs(parts: int) -> None:
    for whole in loaded().plans.values():
        plan = replace(whole, job={**whole.job, "split": parts})
        shares = [share_of(plan, share) for share in range(1, parts + 1)]
        assert sorted(index for share in shares for index in share) == [*range(len(plan.tasks))]
        variants = [{plan.tasks[index].variant for index in share} for share in shares]
        assert sum(map(len, variants)) == len({task.variant for task in plan.tasks})
        assert max(map(len, variants)) - min(map(len, variants)) <= 1


@pytest.mark.slow
def test_two_gpus_share_a_sweep_and_its_own_job_finds_nothing_left(tmp_path: Path) -> None:
    project, hold = make_project(tmp_path / "project"), tmp_path / "hold"
    edit_yaml(
        project / "config/config.yaml",
        lambda config: config["measure"].update(split=2) or config.update(device="nvidia-made-up-gpu"),
    )
    hold.touch()
    there = environment() | {"PYTHONPATH": str(MADE_UP), "MADE_UP_GPUS": "here:2", "MADE_UP_HOLD": str(hold)}
    command = snakemake_command("measure_alone", "--cores", "2", "--resources", "gpu=2")
    command += ["--config", "arch=sm_90a"]

    def found() -> Records:
        return read_store(project / RESULTS / "records")

    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen(command, cwd=project, env=there, stdout=log, stderr=log)
        try:
            wait_for(
                "a cell of each share",
                lambda: run.poll() is not None or len({one.variant for one in found()}) == 2,
                60,
            )
            assert run.poll() is None, (tmp_path / "log").read_text()
            hold.unlink()
            assert run.wait(timeout=60) == 0, (tmp_path / "log").read_text()
        finally:
            run.kill()
    records = list(found())
    assert {*Counter(one.cell.id for one in records).values()} == {1}, "none twice"
    plan = json.loads((project / RESULTS / "plans/alone.json").read_text())
    assert len(records) == len(plan["tasks"]) * len(plan["regimes"]), "none lost"
    where = {(one.variant, found().sessions[one.session].gpu["uuid"]) for one in records}
    assert {uuid for _, uuid in where} == {"GPU-here-0", "GPU-here-1"}
    assert len(where) == 2, "a variant on one GPU"
    accounts = [
        json.loads((project / RESULTS / f"sweeps/alone/{name}.json").read_text())
        for name in ("share-1", "share-2", "measured")
    ]
    assert [(one["cells"], one["kept"]) for one in accounts] == [(2, 0), (2, 0), (4, 4)]
    again = subprocess.run(
        [*command, "-n"], cwd=project, env=there, capture_output=True, text=True, check=False
    )
    assert "Nothing to be done" in again.stdout + again.stderr


@pytest.mark.slow
def test_a_compiling_job_fits_beside_a_gpu_that_measures(tmp_path: Path) -> None:
    """Else it would wait until no GPU measures, and GPUs would wait for it."""
    project = make_project(tmp_path / "project")
    edit_yaml(project / "config/config.yaml", lambda config: config.update(device="nvidia-made-up-gpu"))
    edit_yaml(
        project / "config/sweeps/alone.yaml",
        lambda sweep: sweep["variants"][0].update(params={"radius": [2, 4, 8], "threads": [128, 256, 512]}),
    )
    there = environment() | {"PYTHONPATH": str(MADE_UP), "MADE_UP_GPUS": "here:2"}

    def threads(cores: int, gpus: int, *more: str) -> int:
        command = snakemake_command(
            "compile", "-n", "-p", "--cores", str(cores), "--resources", f"gpu={gpus}"
        )
        command += ["--config", "arch=sm_90a", *more]
        done = subprocess.run(command, cwd=project, env=there, capture_output=True, text=True, check=False)
        (line,) = [one for one in done.stdout.splitlines() if "ladder prepare" in one and " alone " in one]
        return int(line.partition("--jobs ")[2].split()[0])

    # Eight variants are work for two cores.
    assert threads(2, 2) == 1
    assert threads(16, 2) == 2
    assert threads(2, 2, "sweeps=[alone]") == 2, "nothing else measures"
    assert threads(16, 2, "sweeps=[alone]") == 2
    assert threads(2, 1, "device=none") == 1, "room for another sweep"
    assert threads(1, 1, "device=none") == 1

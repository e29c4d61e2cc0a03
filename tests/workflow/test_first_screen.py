"""`make` on a host with a GPU: the cells of the first screen, report and page ahead of all else, once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, edit_yaml, run_snakemake

SOME = "sweeps={alone: 'k == 2'}"
PYTHON = """#!/bin/sh
echo "$@" >> asked
case "$1" in -c) exit {no_report};; esac
case "$*" in *first.yaml*) exit {first};; esac
"""


def asked_of_make(folder: Path, no_report: int, first: int = 0) -> tuple[list[str], str]:
    """What `make` runs with an interpreter that only writes it down, and what it prints."""
    shutil.copy(ROOT / "Makefile", folder)
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(no_report=no_report, first=first))
    python.chmod(0o755)
    (folder / "requirements.lock").touch()
    os.utime(folder / "requirements.lock", (0, 0))
    (folder / ".venv/ready").touch()
    done = subprocess.run(
        ["make", "CORES=3"], cwd=folder, capture_output=True, text=True, check=True, timeout=60
    )
    lines = (folder / "asked").read_text().splitlines()
    return [line for line in lines if not line.startswith("-c")], done.stdout


ALL = "-m snakemake --cores 3"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_measures_the_first_screen_first_where_there_is_a_gpu_and_no_report(tmp_path: Path) -> None:
    asked, said = asked_of_make(tmp_path, no_report=0)
    assert asked == [f"{ALL} --configfile config/first.yaml", "-m ladder check", ALL]
    assert "The first screen is there" in said


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_goes_on_where_a_cell_of_the_first_screen_fails(tmp_path: Path) -> None:
    asked, said = asked_of_make(tmp_path, no_report=0, first=1)
    assert asked[-1] == ALL
    assert "The first screen is there" not in said


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_makes_all_at_once_without_a_gpu_or_with_a_report(tmp_path: Path) -> None:
    assert asked_of_make(tmp_path, no_report=1)[0] == [ALL]


@pytest.mark.slow
def test_some_cells_are_planned_then_all_and_what_is_compiled_stays(project: Path) -> None:
    plan = project / "results/test/no-gpu/plans/alone.json"
    assert run_snakemake(project, "compile", "--config", SOME).jobs == ["Preparing alone"]
    some = json.loads(plan.read_text())
    assert [task["cell"]["params"]["k"] for task in some["tasks"]] == [2, 2]
    assert len(some["variants"]) == 1
    outcome = run_snakemake(project, "compile")
    assert sorted(outcome.jobs) == ["Preparing alone", "Preparing with_headers"]
    every = json.loads(plan.read_text())
    assert [task for task in every["tasks"] if task["cell"]["params"]["k"] == 2] == some["tasks"]
    assert run_snakemake(project, "compile").nothing_to_do


@pytest.mark.slow
def test_on_a_gpu_some_cells_are_measured_and_reported_before_the_others(project: Path) -> None:
    edit_yaml(project / "config/config.yaml", lambda config: config["clock"].update(enabled=False))
    given = ("--config", "device=nvidia-made-up-gpu", "arch=sm_90a")
    outcome = run_snakemake(project, *given, SOME, gpu=True)
    assert outcome.code == 0, outcome.text
    folder = project / "results/test/nvidia-made-up-gpu"
    first = (folder / "report.md").read_text()
    assert "2 cells are not measured yet" in first
    assert (folder / "index.html").is_file()
    records = {path: path.read_text() for path in (folder / "records").glob("*alone*")}
    outcome = run_snakemake(project, *given, gpu=True)
    assert outcome.code == 0, outcome.text
    assert "not measured yet" not in (folder / "report.md").read_text()
    account = json.loads((folder / "sweeps/alone/measured.json").read_text())
    assert (account["kept"], account["measured"]) == (2, 2), "what was measured first counts"
    assert all(path.read_text().startswith(before) for path, before in records.items())
    assert run_snakemake(project, *given, gpu=True).nothing_to_do

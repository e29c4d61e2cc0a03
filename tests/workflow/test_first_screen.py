"""`make`: the cells of the first screen with report and page; `make full`: all others as well."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, run_snakemake

SOME = "sweeps={alone: 'radius == 2'}"
WRITES_IT_DOWN = """#!/bin/sh
echo "${{0##*/}} $@" >> asked
echo "12 cells to measure, about 3 min"
exit {code}
"""


def asked_of_make(
    folder: Path, *targets: str, code: int = 0
) -> tuple[list[str], str, int]:
    """What `make` runs with programs that only write it down, what it prints, and its exit code."""
    shutil.copy(ROOT / "Makefile", folder)
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("python", "ladder"):
        (programs / name).write_text(WRITES_IT_DOWN.format(code=code))
        (programs / name).chmod(0o755)
    for name in ("requirements.lock", "pyproject.toml"):
        (folder / name).touch()
        os.utime(folder / name, (0, 0))
    (folder / ".venv/ready").touch()
    command = ["make", "CORES=3", *targets]
    # Of a make that runs these tests nothing is inherited: under it this one would name its folder.
    alone = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS"))
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=alone,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return (folder / "asked").read_text().splitlines(), done.stdout, done.returncode


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")


@needs_make
def test_make_runs_the_first_screen_and_says_what_the_rest_takes(
    tmp_path: Path,
) -> None:
    asked, said, code = asked_of_make(tmp_path)
    assert asked == [
        "python -m snakemake --cores 3 --configfile config/quick.yaml",
        "ladder check",
    ]
    assert said.endswith(
        "That was the first screen. The rest: `make full`, which is `snakemake --cores all`:\n"
        "12 cells to measure, about 3 min\n"
    )
    assert code == 0


@needs_make
def test_make_full_runs_everything(tmp_path: Path) -> None:
    assert asked_of_make(tmp_path, "full")[0] == ["python -m snakemake --cores 3"]


@needs_make
def test_make_fails_where_the_first_screen_does(tmp_path: Path) -> None:
    asked, said, code = asked_of_make(tmp_path, code=1)
    assert "That was the first screen" not in said
    assert code != 0
    assert len(asked) == 1


@pytest.mark.slow
def test_on_a_gpu_some_cells_are_measured_and_reported_before_the_others(
    project: Path,
) -> None:
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
    assert (account["kept"], account["measured"]) == (2, 2), (
        "what was measured first counts"
    )
    assert all(path.read_text().startswith(before) for path, before in records.items())
    assert run_snakemake(project, *given, gpu=True).nothing_to_do

"""What a run would measure, said before it starts, on kernels compiled for real."""

from __future__ import annotations

import math
import re
import shutil
import sys
from pathlib import Path

import pytest
from compiling import kept_cache
from conftest import ROOT, edit, edit_yaml, make_project, output_of, run_snakemake
from ladder.catalogue.runs import load
from ladder.catalogue.settings import set_up
from ladder.cli.app import main
from ladder.measure.conditions import host_conditions
from ladder.measure.plan_records import PlanRecords
from ladder.measure.schedule import Schedule
from ladder.measure.store import Records, appending
from ladder.model.cell import Cell, Reference
from ladder.model.plan_file import read_plan
from ladder.model.record import Conditions, Record, Session
from ladder.results.forecast import usual_seconds

ALONE, WITH_HEADERS, EVERY = 8, 8, 16  # cells of the sweeps, and of both
SECONDS = 4.0
"""That a request took, for two regimes."""


@pytest.fixture(scope="session")
def measured_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small project for a device that is not here, compiled, with a record of each cell; look at it only."""
    folder = make_project(tmp_path_factory.mktemp("measured") / "project")
    edit_yaml(
        folder / "config/config.yaml",
        lambda config: config.update(device="nvidia-h200", arch="sm_90a"),
    )
    (folder / "workflow").unlink()
    shutil.copytree(ROOT / "workflow", folder / "workflow")
    run, kept = load(set_up(folder)), kept_cache().folder
    cubins = folder / run.config.compile.cache
    cubins.mkdir(parents=True)
    for name, plan in run.plans.items():
        words = [str(run.folder.root), name, "--config", f"compile={{cache: {kept}}}"]
        assert main(["--root", str(folder), "prepare", *words]) == 0
        on = host_conditions(plan.problem, "NVIDIA H200", "580.1")
        view = PlanRecords(read_plan(run.folder.plan(name)), Records(), on=on)
        for facts in (*view.plan.harness.values(), *view.plan.variants.values()):
            for suffix in ("cubin", "json"):
                shutil.copy(kept / f"{facts['cubin']}.{suffix}", cubins)
        timed = {"variant_us": [1.0], "reference_us": [1.0], "reference": "cublas"}
        timed |= dict.fromkeys(("speedup", "speedup_low", "speedup_high"), 1.0)
        spent = timed | {"spent": {"wall_s": SECONDS, "regimes": 2}}
        with appending(run.folder.records, name) as append:
            append(Session("session", "2026-11-20T10:00:00Z"))
            for index, regimes in Schedule(view).due():
                for regime in regimes:
                    append(
                        view.new_record(
                            plan.tasks[index],
                            regime,
                            "session",
                            status="ok",
                            result=spent,
                        )
                    )
    return folder


@pytest.fixture
def measured(measured_once: Path, tmp_path: Path) -> Path:
    """A copy to change, the package included."""
    return Path(shutil.copytree(measured_once, tmp_path / "project", symlinks=True))


@pytest.fixture(scope="session")
def prepared_once(
    measured_once: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same, with plans of Snakemake's, which knows what they were made from; look at it only."""
    folder = tmp_path_factory.mktemp("prepared") / "project"
    shutil.copytree(measured_once, folder, symlinks=True)
    shutil.rmtree(folder / "results/test/nvidia-h200/plans")
    assert run_snakemake(folder, "compile").code == 0
    return folder


@pytest.fixture
def prepared(prepared_once: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(prepared_once, tmp_path / "project", symlinks=True))


def due_line(text: str) -> str:
    """The line of the forecast."""
    (line,) = [line for line in text.splitlines() if re.search(r"\d cells? due", line)]
    return line


def forecast(project: Path) -> str:
    """What the project's own copy of the package says."""
    command = [sys.executable, "-m", "ladder", "check"]
    return due_line(output_of(command, project, PYTHONPATH="workflow"))


def due(cells: int) -> str:
    """What is said of so many cells."""
    minutes = math.ceil(cells * SECONDS / 2 / 60)
    return f"{cells} cells due, about {minutes} minute{'' if minutes == 1 else 's'}"


@pytest.mark.slow
def test_a_measured_run_has_nothing_to_measure(measured: Path) -> None:
    assert forecast(measured) == due(0)


def test_another_version_of_the_check_measures_every_cell_of_its_problem_again(
    measured: Path,
) -> None:
    problem = measured / "workflow/ladder/problems/stencil/__init__.py"
    edit(problem, "check_version = 1", "check_version = 2")
    assert forecast(measured) == due(EVERY)


CHANGES: list[tuple[str, str, str, int]] = [
    ("kernels/stencil/alone.cu", "T sum = 0;", "T sum = 1;", ALONE),
    ("kernels/include/mean.cuh", "sum / static", "T(2) * sum / static", WITH_HEADERS),
    # Another NVRTC, whose code is the same.
    ("workflow/ladder/build/nvrtc.py", '{minor}"', '{minor}.9"', 0),
]
"""File, its text and another one, and how many cells are measured again: to know that, something must be compiled."""


@pytest.mark.slow
@pytest.mark.parametrize(("file", "old", "new", "cells"), CHANGES)
def test_a_change_shows_the_cells_that_it_measures_again(
    prepared: Path, file: str, old: str, new: str, cells: int
) -> None:
    edit(prepared / file, old, new)
    line = forecast(prepared)
    assert line.startswith("at most")
    if file.endswith(".cuh"):
        assert line in run_snakemake(prepared, "-n", "compile").text
    outcome = run_snakemake(prepared, "compile")
    assert outcome.code == 0, outcome.text
    assert forecast(prepared) == due(cells)


def test_a_cell_without_a_record_takes_as_long_as_others_in_its_regime() -> None:
    def timed(dtype: str, regime: str, **spent: float) -> Record:
        cell = Cell("k", {}, dtype, "NN", {"m": 64}, regime, Reference(("cublas",)))
        known = ("k", "s", "session", "2026-11-20T10:00:00Z", "ok")
        result = {"spent": spent} if spent else {}
        return Record(cell, Conditions(), *known, result=result)

    records = [
        timed("fp32", "cold", wall_s=1.0, regimes=1),
        timed("fp16", "cold", wall_s=6.0, regimes=2),
        timed("fp32", "sustained", wall_s=20.0, regimes=1),
        timed("bf16", "cold"),
    ]
    usual = usual_seconds(records)
    assert (usual["cold"], usual["sustained"]) == (2.0, 20.0)
    assert usual["warm"] == 8.0, "of all, where none was measured in this regime"
    assert usual_seconds(records[-1:]) == {}


def test_without_records_nothing_is_said_of_the_time(
    measured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(measured / "results/test/nvidia-h200/records")
    assert main(["--root", str(measured), "check"]) == 0
    assert due_line(capsys.readouterr().out) == "16 cells due"

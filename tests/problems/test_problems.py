"""A new problem is one folder: y = a*x + y is added to a copy of the project, which knows nothing of it."""

import json
import shutil
from copy import copy
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT, edit_yaml, make_project, run_snakemake
from ladder.measure.store import read_store
from ladder.model.errors import LadderError
from ladder.problems.registry import PROBLEMS, with_columns
from measuring import on_gpu

AXPY = ROOT / "tests/axpy"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The small project with one folder more in its package, a kernel and a sweep."""
    folder = make_project(tmp_path / "project")
    (folder / "workflow").unlink()
    shutil.copytree(ROOT / "workflow", folder / "workflow")
    shutil.copytree(AXPY / "problem", folder / "workflow/ladder/problems/axpy")
    shutil.copytree(AXPY / "kernels", folder / "kernels/axpy")
    shutil.copy(AXPY / "sweeps/axpy.yaml", folder / "config/sweeps")
    return folder


def test_a_size_field_without_a_column_is_refused_since_tables_would_drop_its_rows() -> (
    None
):
    assert len(PROBLEMS) >= 6
    problem = copy(PROBLEMS["stencil"])
    vars(problem)["size_fields"] = ("elements", "planes")
    with pytest.raises(
        LadderError,
        match="the problem stencil: size_fields: planes: accepted: m, n, k, ",
    ):
        with_columns(problem)


@pytest.mark.slow
def test_a_folder_is_all_that_a_problem_takes(project: Path) -> None:
    outcome = run_snakemake(project, "sweep_axpy")
    assert outcome.code == 0, outcome.text
    assert "Preparing axpy" in outcome.jobs
    folder = project / "results/test/no-gpu"
    resources = pd.read_csv(folder / "sweeps/axpy/resources.csv")
    assert list(resources["status"]) == ["ok", "ok"]
    assert (resources["ffma"] == 1).all()
    plan = json.loads((folder / "plans/axpy.json").read_text())
    assert [task["absent"] for task in plan["tasks"]] == [None] * 4
    assert {"scalar": "a", "type": "float32"} in plan["tasks"][0]["launch"]["arguments"]
    notes = pd.read_csv(folder / "sweeps/axpy/notes.csv")
    assert set(notes["reason"]) == {"not measured"}


@on_gpu
def test_it_is_measured_and_verified_as_any_other(project: Path) -> None:
    edit_yaml(
        project / "config/config.yaml", lambda config: config.update(device="auto")
    )
    outcome = run_snakemake(project, "measure_axpy")
    assert outcome.code == 0, outcome.text
    (folder,) = (project / "results/test").iterdir()
    records = list(read_store(folder / "records"))
    assert {record.status for record in records if record.cell.regime == "cold"} == {
        "ok"
    }
    assert all(
        0 < record.result["check"]["max_error"] < 2**-22
        for record in records
        if record.status == "ok"
    )
    source = project / "kernels/axpy/axpy.cu"
    source.write_text(source.read_text().replace("a * x[i] + y[i]", "a * x[i] - y[i]"))
    assert run_snakemake(project, "measure_axpy").code == 0
    latest = {
        record.cell.id: record.status
        for record in sorted(read_store(folder / "records"), key=lambda one: one.time)
    }
    assert set(latest.values()) == {"incorrect"}


@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.parametrize("step", [1, 8, 16])
def test_a_kernel_for_few_rows_alone_is_verified_with_a_long_sum(
    rows: int, step: int
) -> None:
    """A GEMM, whatever multiples of elements its vectors and fragments take."""
    sizes = [
        size
        for group in PROBLEMS["gemm"].edges({})
        for size in group
        if size["m"] == rows
    ]
    assert any(
        size["k"] > 2000 and size["k"] % step == size["n"] % step == 0 for size in sizes
    )

"""Errors by kind of inputs: observations like any other, from the sweep to the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkout import every_sweep
from conftest import edit_yaml
from factory import Lab
from ladder.measure import worker
from ladder.measure.schedule import Schedule
from ladder.model.plan import Plan
from ladder.model.problem import ERROR_INPUTS
from ladder.problems.gemm.instance import GemmInstance
from ladder.report import answers
from ladder.report.links import Links
from ladder.results import tables
from ladder.results.run_data import RunData, Unmeasured
from rendering import SWEEPS, made
from test_worker import plan_of, played, request

__all__ = ["played"]


def ask(lab: Lab, **fields: Any) -> None:
    edit_yaml(lab.project.sweeps / "fp32_ladder.yaml", lambda sweep: sweep.update(fields))


def of_task(plan: Plan, index: int, folder: Path) -> Any:
    """What the worker answers about a task, in the plan's first regime."""
    (folder / "none.cubin").touch()
    answer = worker.Worker(plan, folder).answer(request(plan, index, *plan.regimes_of(plan.tasks[index])))
    return answer["results"][plan.regimes[0]]


def test_errors_are_recorded_by_kind_of_inputs_where_the_sweep_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("fp32_tensor", tmp_path)
    names = [f"{side}max_error_{kind}" for kind in ERROR_INPUTS for side in ("", "reference_")]
    for asked in (True, False):
        index = next(place for place, task in enumerate(plan.tasks) if task.launch and task.errors == asked)
        result = of_task(plan, index, tmp_path)
        assert [one["metric"] for one in result["observations"]] == (names if asked else [])


def test_a_kernel_whose_error_is_too_large_with_one_kind_is_incorrect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("fp32_tensor", tmp_path)
    index = next(place for place, task in enumerate(plan.tasks) if task.errors)
    check = GemmInstance.check

    def checked(self: GemmInstance, params: Any) -> Any:
        found = check(self, params)
        small = self.m < 1000  # where edges are verified
        wrong = self.inputs == "wide" and not small and self._place == 0
        return type(found)(1.0, found.error_bound) if wrong else found

    monkeypatch.setattr(GemmInstance, "check", checked)
    result = of_task(plan, index, tmp_path)
    assert (result["status"], result["reason"][:17]) == ("incorrect", "with wide inputs:")


def test_asking_for_errors_measures_those_cells_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["fp32_ladder"])

    def due() -> list[tuple[int, bool]]:
        lab.compile(lab.sweeps()["fp32_ladder"])
        view = lab.view("fp32_ladder")
        tasks = [view.plan.tasks[index] for index, _ in Schedule(view, lab.on("gemm")).due()]
        return [(task.cell.size["m"], task.errors) for task in tasks]

    assert due() == []
    ask(lab, errors={"sizes": [1024], "where": "rung == 'shared tile'"})
    assert due() == [(1024, True)]


def test_the_sweeps_of_the_project_ask_for_them() -> None:
    assert [len(every_sweep()[name].errors) for name in ("fp32_tensor", "fp32_ladder")] == [6, 3]


# In the report.


def rows_of_accuracy() -> list[dict[str, Any]]:
    place = {"gpu_uuid": "GPU-a", "layout": "TN", "m": 1024, "n": 1024}
    kernel = {"sweep": "fp32_ladder", "variant": "v", "rung": "tile_1", "who": "kernel"}
    return [
        {**place, **who, "k": k, "inputs": kind, "max_error": units * k * 2.0**-24, "rms_error": 2.0**-24}
        for k in (512, 4096)
        for kind, times in (("uniform", 1.0), ("wide", 2.0))
        for who, units in (
            ({**kernel, "dtype": "fp32"}, 0.5 * times),
            ({"who": "cublas", "dtype": "fp32"}, 1.0),
            ({**kernel, "dtype": "tf32", "rung": "other"}, 1000.0),
        )
    ]


def said(lab: Lab) -> dict[str, answers.Answer]:
    data = RunData.read(lab.folder, lab.sweeps(SWEEPS))
    return {one.name: one for one in answers.answers(data, Links(lab.folder, lab.folder.root, data))}


def test_answers_read_observations(tmp_path: Path) -> None:
    lab = made(tmp_path)

    def change(place: Any, record: dict[str, Any]) -> dict[str, Any]:
        if place.variant.id == "gemm_shared_tile-fp32":
            seen = {"max_error_uniform": 1e-7, "reference_max_error_uniform": 2e-7, "max_error_wide": 3e-7}
            seen |= {"reference_max_error_wide": 1e-7}
            record["observations"] = [
                {"metric": name, "unit": None, "value": value} for name, value in seen.items()
            ]
        return record

    lab.record(SWEEPS, change=change)
    lab.collect(SWEEPS)
    tables.write({"accuracy": tables.frame("accuracy", rows_of_accuracy())}, lab.folder.tables)
    data = RunData.read(lab.folder, lab.sweeps(SWEEPS))
    ratios = answers.accuracy(data)["ratios"]["fp32"]
    assert {kind: set(of) for kind, of in ratios.items()} == {"uniform": {0.5}, "wide": {3.0}}
    other = data.frames["timings"].assign(reference="cuDNN")
    beside = RunData(data.sweeps, {**data.frames, "timings": other}, data.environment)
    assert answers.accuracy(beside)["ratios"]["tf32"], "those over cuBLAS, here of an earlier release"


def test_answers_read_the_table_of_earlier_releases(tmp_path: Path) -> None:
    lab = made(tmp_path)
    tables.write({"accuracy": tables.frame("accuracy", rows_of_accuracy())}, lab.folder.tables)
    data = RunData.read(lab.folder, lab.sweeps(SWEEPS))
    ratios = answers.accuracy(data)["ratios"]
    assert ratios["fp32"] == {"uniform": [0.5, 0.5], "wide": [1.0, 1.0]}
    assert ratios["tf32"]["uniform"] == pytest.approx([1000.0, 1000.0])
    assert "One TF32 product has 1000 to 1000 times its error." in said(lab)["accuracy"].also


def test_without_them_the_answer_names_the_field_that_asks_for_them(tmp_path: Path) -> None:
    lab = made(tmp_path)
    with pytest.raises(Unmeasured, match=r"a sweep asks for .* by `errors`"):
        answers.accuracy(RunData.read(lab.folder, lab.sweeps(SWEEPS)))

"""C = A B + C and errors by kind of inputs: cells and observations like any other, from the sweep to the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkout import every_sweep
from conftest import edit_yaml
from factory import Lab, failed
from ladder.measure import worker
from ladder.measure.schedule import Schedule
from ladder.model.plan import Plan
from ladder.model.problem import ERROR_INPUTS
from ladder.model.record import Record, from_json
from ladder.problems.gemm.instance import GemmInstance
from ladder.report import answers
from ladder.results import statistics as stats
from ladder.results.collect import collect_sweep
from ladder.results.reproduction import again, alone, published_row
from ladder.results.run_data import RunData, Unmeasured
from rendering import SWEEPS, made
from test_worker import Libraries, plan_of, played, request

__all__ = ["played"]

BETA = {"sizes": [512, 4096], "where": "rung == 'shared tile'"}


def ask(lab: Lab, **fields: Any) -> None:
    edit_yaml(lab.project.sweeps / "fp32_ladder.yaml", lambda sweep: sweep.update(fields))


def adding(plan: Plan) -> list[int]:
    return [index for index, task in enumerate(plan.tasks) if task.cell.beta]


def test_a_sweep_adds_cells_with_beta_in_its_first_regime_and_leaves_the_others_alone(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    before = lab.plan(lab.sweeps()["fp32_ladder"])
    ask(lab, accumulated=BETA)
    after = lab.plan(lab.sweeps()["fp32_ladder"])
    added = [after.tasks[index] for index in adding(after)]
    assert [task for task in after.tasks if not task.cell.beta] == list(before.tasks)
    assert [(task.variant, task.cell.size["m"], task.cell.beta) for task in added] == [
        ("gemm_shared_tile-fp32", 512, 1.0),
        ("gemm_shared_tile-fp32", 4096, 1.0),
    ]
    assert [after.regimes_of(task) for task in added] == [("cold",), ("cold",)]
    assert len({task.cell.id for task in after.tasks}) == len(after.tasks)
    assert (
        len({task.cell.operands for task in after.tasks}) == len({t.cell.operands for t in before.tasks}) + 2
    )


def test_records_have_a_beta_where_it_is_not_0(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    ask(lab, accumulated=BETA)
    lab.record(["fp32_ladder"])
    read = {record.cell.beta for record in lab.view("fp32_ladder").records}
    assert read == {0.0, 1.0}
    for record in lab.view("fp32_ladder").records:
        line = record.to_json()
        assert ("beta" in line["record"]["cell"]) == bool(record.cell.beta)
        assert from_json(line, "here") == record
        assert isinstance(record, Record)


def of_task(plan: Plan, index: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """What the worker answers about a task, and the GEMMs that libraries were asked for."""
    asked: list[Any] = []

    class Listening(Libraries):
        def cublas(self, problem: Any) -> Any:
            asked.append(problem)
            return super().cublas(problem)

    monkeypatch.setattr("ladder.problems.gemm.instance.Libraries", Listening)
    (folder / "none.cubin").touch()
    answer = worker.Worker(plan, folder).answer(request(plan, index, *plan.regimes_of(plan.tasks[index])))
    return answer["results"][plan.regimes[0]], asked


def test_the_worker_times_launches_that_add_to_c_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, timed = plan_of("fp32_tensor", tmp_path), list[float]()
    refresh = GemmInstance._refresh
    monkeypatch.setattr(
        GemmInstance, "_refresh", lambda own, seed: timed.append(own.scalars["beta"]) or refresh(own, seed)
    )
    check, checked = GemmInstance.check, list[float]()

    def noted(own: GemmInstance, params: Any) -> Any:
        checked.append(own.scalars["beta"])
        return check(own, params)

    monkeypatch.setattr(GemmInstance, "check", noted)
    (plain, *_), (first, *_) = [
        [i for i, t in enumerate(plan.tasks) if bool(t.cell.beta) == one] for one in (0, 1)
    ]
    for index, beta in ((plain, 0.0), (first, 1.0)):
        timed.clear()
        result, asked = of_task(plan, index, tmp_path, monkeypatch)
        assert result["status"] == "ok", result
        assert {one.beta for one in asked if one.dtype == "fp32"} == {beta}
        assert set(timed) == {beta}
        assert checked[-1] == beta, "as it is verified after timing, whatever weights were tried between"
        assert len(timed) >= 12


def test_errors_are_recorded_by_kind_of_inputs_where_the_sweep_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("fp32_tensor", tmp_path)
    names = [f"{side}max_error_{kind}" for kind in ERROR_INPUTS for side in ("", "reference_")]
    for asked in (True, False):
        index = next(place for place, task in enumerate(plan.tasks) if task.launch and task.errors == asked)
        result, _ = of_task(plan, index, tmp_path, monkeypatch)
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
    result, _ = of_task(plan, index, tmp_path, monkeypatch)
    assert (result["status"], result["reason"][:17]) == ("incorrect", "with wide inputs:")


def test_asking_for_errors_measures_those_cells_again_and_for_beta_only_what_is_new(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["fp32_ladder"])

    def what() -> list[tuple[int, float, bool]]:
        lab.compile(lab.sweeps()["fp32_ladder"])
        view = lab.view("fp32_ladder")
        tasks = [view.plan.tasks[index] for index, _ in Schedule(view, lab.on("gemm")).due()]
        return [(task.cell.size["m"], task.cell.beta, task.errors) for task in tasks]

    assert what() == []
    ask(lab, accumulated=BETA)
    assert what() == [(512, 1.0, False), (4096, 1.0, False)]
    ask(lab, accumulated=None, errors={"sizes": [1024], "where": "rung == 'shared tile'"})
    assert what() == [(1024, 0.0, True)]


def test_tables_keep_cells_with_beta_apart(tmp_path: Path) -> None:
    lab = made(tmp_path)
    plain = collect_sweep(lab.view("fp32_ladder"))
    ask(lab, accumulated=BETA)
    lab.record(["fp32_ladder"])
    found = collect_sweep(lab.view("fp32_ladder"))
    rows = found["timings"]
    added = rows[rows["beta"].notna()]
    assert [(row["m"], row["beta"], row["regime"]) for row in stats.records(added)] == [
        (512, 1.0, "cold"),
        (4096, 1.0, "cold"),
    ]
    assert len(stats.against_references(rows)) == len(stats.against_references(plain["timings"]))
    assert found["sessions"]["beta"].notna().sum() == 2
    assert len(found["metrics"]) == len(plain["metrics"]), "their metrics are of the cells without beta"
    names = [stats.identifier(row) for row in stats.records(added)]
    assert names[0] == "fp32_ladder/gemm_shared_tile-fp32@512:cold:beta=1"


def test_a_cell_with_beta_can_be_reproduced(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    ask(lab, accumulated=BETA)
    lab.record(["fp32_ladder"])
    rows = collect_sweep(lab.view("fp32_ladder"))["timings"]
    for name, beta in (("512:cold:beta=1", 1.0), ("512:cold", 0.0)):
        row = published_row(rows, f"fp32_ladder/gemm_shared_tile-fp32@{name}")
        sweep = alone(lab.sweeps()["fp32_ladder"], row)
        lab.compile(sweep)
        view = lab.view("fp32_ladder")
        assert again(view, row)[0] == "ok"
        cells = [task.cell for task in view.plan.tasks if task.cell.beta == beta]
        assert [stats.size_of(row)] == [dict(cell.size) for cell in cells]


def test_a_kernel_that_is_wrong_with_beta_has_a_row_and_a_note(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    ask(lab, accumulated=BETA)
    wrong = failed("incorrect", "C was not added")
    lab.record(["fp32_ladder"], change=lambda place, record: wrong(record) if place.beta else record)
    found = collect_sweep(lab.view("fp32_ladder"))
    rows = found["timings"][found["timings"]["beta"].notna()]
    assert set(rows["status"]) == {"incorrect"}
    assert found["notes"]["subject"].str.contains("beta = 1").sum() == 2


@pytest.mark.parametrize("name", ["accumulated", "errors"])
def test_the_sweeps_of_the_project_ask_for_both(name: str) -> None:
    counts = [
        len(getattr(every_sweep()[one], name)) for one in ("fp32_tensor", "fp32_ladder", "hopper_dtypes")
    ]
    assert counts == {"accumulated": [2, 2, 6], "errors": [6, 3, 0]}[name]


# In the report.


def test_answers_read_cells_and_observations(tmp_path: Path) -> None:
    lab = made(tmp_path)
    ask(lab, accumulated={"sizes": [4096], "where": "rung == 'shared tile'"})

    def change(place: Any, record: dict[str, Any]) -> dict[str, Any]:
        for regime in record["regimes"].values() if place.beta else ():
            regime["variant_us"] = [1.5 * us for us in regime["variant_us"]]
            regime["reference_us"] = [1.25 * us for us in regime["reference_us"]]
        if place.variant.id == "gemm_shared_tile-fp32":
            seen = {"max_error_uniform": 1e-7, "reference_max_error_uniform": 2e-7, "max_error_wide": 3e-7}
            seen |= {"reference_max_error_wide": 1e-7}
            record["observations"] = [
                {"metric": name, "unit": None, "value": value} for name, value in seen.items()
            ]
        return record

    lab.record(SWEEPS, change=change)
    lab.collect(SWEEPS)
    data = RunData.read(lab.folder, lab.sweeps(SWEEPS))
    ratios = answers.accuracy(data)["ratios"]["fp32"]
    assert {kind: set(of) for kind, of in ratios.items()} == {"uniform": {0.5}, "wide": {3.0}}
    other = data.frames["timings"].assign(reference="cuDNN")
    beside = RunData(data.sweeps, {**data.frames, "timings": other}, data.environment)
    with pytest.raises(Unmeasured):
        answers.accuracy(beside)  # which are not over cuBLAS
    cost = answers.accumulation(data)
    assert cost["own"] == pytest.approx([0.5], abs=0.05)
    assert cost["library"] == pytest.approx([0.25], abs=0.05)


@pytest.mark.parametrize(
    ("ask", "field"), [(answers.accuracy, "errors"), (answers.accumulation, "accumulated")]
)
def test_without_them_the_answer_names_the_field_that_asks_for_them(
    tmp_path: Path, ask: Any, field: str
) -> None:
    lab = made(tmp_path)
    with pytest.raises(Unmeasured, match=f"a sweep asks for .* by `{field}`"):
        ask(RunData.read(lab.folder, lab.sweeps(SWEEPS)))

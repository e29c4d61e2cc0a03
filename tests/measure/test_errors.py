"""Errors by kind of inputs: observations like any other, from the sweep to the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ladder.model.problem import ERROR_INPUTS
from ladder.problems.gemm.instance import GemmInstance
from ladder.report.lookups import Lookups
from ladder.results.run_data import RunData
from rendering import SWEEPS, made
from test_worker import answered, plan_of, played

__all__ = ["played"]


def test_errors_are_recorded_by_kind_of_inputs_where_the_sweep_asks_for_them(
    tmp_path: Path,
) -> None:
    plan = plan_of("fp32_tensor", tmp_path)
    names = [
        f"{side}max_error_{kind}"
        for kind in ERROR_INPUTS
        for side in ("", "reference_")
    ]
    for asked in (True, False):
        index = next(
            place
            for place, task in enumerate(plan.tasks)
            if task.launch and task.errors == asked
        )
        result = answered(plan, tmp_path, index=index)["cold"]
        assert [one["metric"] for one in result["observations"]] == (
            names if asked else []
        )


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
    result = answered(plan, tmp_path, index=index)["cold"]
    assert (result["status"], result["reason"][:17]) == (
        "incorrect",
        "with wide inputs:",
    )


# In the report.


def test_answers_read_observations(tmp_path: Path) -> None:
    lab = made(tmp_path)

    def change(place: Any, record: dict[str, Any]) -> dict[str, Any]:
        if place.variant.id == "gemm_shared_tile-fp32":
            seen = {
                "max_error_uniform": 1e-7,
                "reference_max_error_uniform": 2e-7,
                "max_error_wide": 3e-7,
            }
            seen |= {"reference_max_error_wide": 1e-7}
            record["observations"] = [
                {"metric": name, "unit": None, "value": value}
                for name, value in seen.items()
            ]
        return record

    lab.record_and_collect(SWEEPS, change=change)
    data = RunData.read(lab.folder, lab.sweeps(SWEEPS))
    assert Lookups(data).error_ratios("fp32_ladder") == {
        kind: [pytest.approx(ratio)] * len(lab.sweeps(SWEEPS)["fp32_ladder"].sizes)
        for kind, ratio in (("uniform", 0.5), ("wide", 3.0))
    }

"""Errors by kind of inputs in the answers: observations like any other. The worker's tests have how they are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ladder.report.lookups import Lookups
from ladder.results.run_data import RunData
from rendering import SWEEPS, made


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

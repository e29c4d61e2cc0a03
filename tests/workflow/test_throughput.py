"""The timing of a whole sweep: the arguments of snakemake, and what its jobs' accounts add up to."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_snakemake
from throughput import NAME, summary, words_of

pytestmark = pytest.mark.slow


def job(wall_s: float, gpu_s: float, check_s: float, cells: int = 0) -> dict[str, float]:
    return {"wall_s": wall_s, "gpu_s": gpu_s, "check_s": check_s, "cells": cells}


def test_shares_run_side_by_side_and_the_job_of_the_sweep_after_them() -> None:
    found = summary([job(10, 6, 1), job(8, 5, 1), job(2, 1, 1, cells=288)], 30.0)
    assert (found["cells"], found["wall_s"], found["measure_wall_s"]) == (288, 30.0, 12)
    assert (found["gpu_share"], found["check_share"]) == (0.6, 0.25)


def test_one_job_is_the_whole_of_it() -> None:
    found = summary([job(10, 0, 0, cells=4)], 11.0)
    assert (found["measure_wall_s"], found["gpu_share"], found["check_share"]) == (10, 0, None)


@pytest.mark.parametrize("gpus", [1, 2])
def test_snakemake_compiles_into_a_cache_of_its_own_and_measures_that_sweep_alone(
    project: Path, gpus: int
) -> None:
    results = project / "results" / NAME
    path = results / "nvidia-h200" / "sweeps" / "alone" / "measured.json"
    words = words_of("alone", path, results / "cubins", project, "1", gpus)
    words.remove("--quiet")
    given = [*words, "device=nvidia-h200", "arch=sm_90a", "-n"]
    outcome = run_snakemake(project, *given)
    assert outcome.code == 0, outcome.text
    shares = [f"Measuring share {share} of alone" for share in range(1, gpus + 1) if gpus > 1]
    assert sorted(outcome.jobs) == sorted(["Preparing alone", *shares, "Measuring alone"])
    assert f"results/{NAME}/cubins" in outcome.text

"""The timing of a whole sweep: the arguments of snakemake, and figures of its job's account."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_snakemake
from throughput import NAME, summary, words_of

pytestmark = pytest.mark.slow


def job(
    wall_s: float, gpu_s: float, check_s: float, cells: int = 0
) -> dict[str, float]:
    return {"wall_s": wall_s, "gpu_s": gpu_s, "check_s": check_s, "cells": cells}


def test_the_shares_of_the_gpu_and_of_its_checks_are_of_the_job() -> None:
    found = summary(job(20, 12, 3, cells=288), 30.0)
    assert (found["cells"], found["wall_s"], found["measure_wall_s"]) == (288, 30.0, 20)
    assert (found["gpu_share"], found["check_share"]) == (0.6, 0.25)


def test_a_job_that_kept_everything_has_no_share_of_checks() -> None:
    found = summary(job(10, 0, 0, cells=4), 11.0)
    assert (found["measure_wall_s"], found["gpu_share"], found["check_share"]) == (
        10,
        0,
        None,
    )


def test_snakemake_compiles_into_a_cache_of_its_own_and_measures_that_sweep_alone(
    project: Path,
) -> None:
    results = project / "results" / NAME
    path = results / "nvidia-h200" / "sweeps" / "alone" / "measured.json"
    words = words_of("alone", path, results / "cubins", project, "1")
    words.remove("--quiet")
    given = [*words, "device=nvidia-h200", "arch=sm_90a", "-n"]
    outcome = run_snakemake(project, *given)
    assert outcome.code == 0, outcome.text
    assert sorted(outcome.jobs) == ["Measuring alone", "Preparing alone"]
    assert f"results/{NAME}/cubins" in outcome.text

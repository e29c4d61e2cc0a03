"""The timing of a whole sweep: the arguments of snakemake, and figures of its job's account."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_snakemake
from throughput import NAME, summary, words_of

pytestmark = pytest.mark.slow


def test_the_shares_of_the_gpu_and_of_its_checks_are_of_the_job() -> None:
    job = {"wall_s": 20, "gpu_s": 12, "check_s": 3, "cells": 288}
    figures = summary(job, 30.0)
    assert (figures["gpu_share"], figures["check_share"]) == (0.6, 0.25)
    # One that kept everything has no share of checks.
    assert summary(job | {"gpu_s": 0, "check_s": 0}, 30.0)["check_share"] is None


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

"""What changed is what reruns: the workflow on a small project, compiled for real, without a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import (
    ROOT,
    edit,
    edit_yaml,
    environment,
    output_of,
    run_snakemake,
    snakemake_command,
)
from ladder.model.folders import PACKAGE

pytestmark = pytest.mark.slow

RESULTS = Path("results/test/no-gpu")


def facts(project: Path, variant: str) -> dict[str, Any]:
    made = json.loads(
        (project / RESULTS / "plans" / f"{variant.partition('-')[0]}.json").read_text()
    )
    found: dict[str, Any] = made["variants"][variant]
    return found


def compiled_of(project: Path, sweep: str) -> list[str]:
    """Entries that the last compile job of a sweep handed to the compiler."""
    log = (project / RESULTS / "logs/prepare_sweep" / f"{sweep}.log").read_text()
    return sorted(re.findall(r"^\[\d+/\d+\] (.*)$", log, re.MULTILINE))


def test_newer_files_of_the_same_content_rerun_nothing(compiled: Path) -> None:
    for path in (*compiled.glob("kernels/*/*"), *compiled.glob("config/**/*.yaml")):
        path.touch()
    assert run_snakemake(compiled, "compile").nothing_to_do


def test_a_comment_in_a_nested_header_recompiles_those_who_include_it_to_the_same_cubin(
    compiled: Path,
) -> None:
    before = facts(compiled, "with_headers-fp32")
    edit(compiled / "kernels/include/window.cuh", "// Extent", "// The extent")
    outcome = run_snakemake(compiled, "compile")
    assert outcome.jobs == ["Preparing with_headers"]
    assert len(compiled_of(compiled, "with_headers")) == 2
    after = facts(compiled, "with_headers-fp32")
    assert after["cubin_sha256"] == before["cubin_sha256"]
    assert after["source_sha256"] != before["source_sha256"]


def test_a_header_behind_a_link_counts(compiled: Path, tmp_path: Path) -> None:
    linked = compiled / "kernels/include"
    linked.symlink_to(linked.rename(tmp_path / "headers"))
    edit(tmp_path / "headers/mean.cuh", "sum / static_cast", "T(2) * sum / static_cast")
    assert run_snakemake(compiled, "-n", "compile").jobs == ["Preparing with_headers"]


def test_a_new_value_in_a_sweep_compiles_the_new_variant_and_plans_that_sweep(
    compiled: Path,
) -> None:
    edit(compiled / "config/sweeps/alone.yaml", "radius: [2, 4]", "radius: [2, 4, 8]")
    assert sorted(run_snakemake(compiled, "compile").jobs) == ["Preparing alone"]
    assert compiled_of(compiled, "alone") == ["alone<float, 8>"]


def test_a_new_size_compiles_nothing_and_plans_that_sweep(compiled: Path) -> None:
    edit(compiled / "config/sweeps/alone.yaml", "2**20", "2**22")
    assert run_snakemake(compiled, "compile").jobs == ["Preparing alone"]
    assert compiled_of(compiled, "alone") == []


def test_a_check_from_another_folder_does_not_disturb_the_workflow(
    project: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "ladder", "--root", str(project), "check"]
    here = environment() | {"PYTHONPATH": str(PACKAGE.parent)}
    assert subprocess.run(command, cwd=tmp_path, env=here, check=False).returncode == 0
    assert run_snakemake(project, "-n", "compile").code == 0


def test_rewording_a_sweep_or_a_caption_plans_and_compiles_nothing(
    compiled: Path,
) -> None:
    edit(
        compiled / "config/sweeps/alone.yaml",
        "How does its time grow",
        "How does time grow",
    )
    edit(compiled / "config/sweeps/alone.yaml", "Time over size", "Time over the size")
    assert run_snakemake(compiled, "compile").nothing_to_do


def test_a_measuring_setting_plans_every_sweep_and_compiles_nothing(
    compiled: Path,
) -> None:
    outcome = run_snakemake(
        compiled, "compile", "--config", "measure={precision: 0.01}"
    )
    assert sorted(outcome.jobs) == ["Preparing alone", "Preparing with_headers"]
    assert compiled_of(compiled, "alone") == []
    plan = json.loads((compiled / RESULTS / "plans/alone.json").read_text())
    assert plan["settings"]["precision"] == 0.01


def test_a_changed_compiler_option_recompiles_every_variant(compiled: Path) -> None:
    outcome = run_snakemake(
        compiled, "compile", "--config", 'compile={options: ["--fmad=false"]}'
    )
    assert sorted(outcome.jobs) == ["Preparing alone", "Preparing with_headers"]
    assert len(compiled_of(compiled, "alone")) == 2
    assert run_snakemake(compiled, "compile").code == 0
    assert compiled_of(compiled, "alone") == [], (
        "what was compiled before is in the cache"
    )


def test_another_run_compiles_nothing(compiled: Path) -> None:
    assert run_snakemake(compiled, "compile", "--config", "run=other").code == 0
    log = compiled / "results/other/no-gpu/logs/prepare_sweep/alone.log"
    assert "[1/" not in log.read_text()
    made = [
        compiled / "results" / run / "no-gpu/plans/alone.json"
        for run in ("test", "other")
    ]
    assert made[0].read_bytes() == made[1].read_bytes()


def test_one_sweep_is_made_and_nothing_else(project: Path) -> None:
    outcome = run_snakemake(project, "sweep_alone")
    assert outcome.code == 0, outcome.text
    assert not [job for job in outcome.jobs if "with_headers" in job]
    assert (project / RESULTS / "sweeps/alone/resources.csv").is_file()
    assert (project / RESULTS / "sweeps/alone/alone-1-curves.png").is_file()
    assert run_snakemake(project, "sweep_alone").nothing_to_do


def test_a_kernel_that_does_not_compile_is_data_and_the_run_goes_on(
    compiled: Path,
) -> None:
    edit(compiled / "kernels/stencil/alone.cu", "T sum = 0;", "T sum = undeclared;")
    edit(
        compiled / "kernels/stencil/with_headers.cu",
        "T sum = 0;",
        "T sum = 0;\n  __shared__ T large[100000];",
    )
    edit(
        compiled / "kernels/stencil/with_headers.cu",
        "output[i] =",
        "large[i] = sum;\n  output[i] = large[i ^ 1] +",
    )
    outcome = run_snakemake(compiled, "report")
    assert outcome.code == 0, outcome.text
    resources = pd.read_csv(compiled / RESULTS / "tables/resources.csv").set_index(
        "variant"
    )
    assert set(resources["status"]) == {"compile_error"}
    assert (
        'identifier "undeclared" is undefined' in resources.loc["alone-fp32", "reason"]
    )
    assert "too much shared" in resources.loc["with_headers-fp32", "reason"]
    assert "Variants compiled: 0 of 4" in (compiled / RESULTS / "report.md").read_text()


def test_the_whole_run_ends_in_a_report_that_says_what_was_not_measured(
    compiled: Path,
) -> None:
    edit(
        compiled / "config/sweeps/alone.yaml", "The mean (alone)", "'{k} </script> $ {'"
    )
    outcome = run_snakemake(compiled)
    assert outcome.code == 0, outcome.text
    lines = (compiled / RESULTS / "report.md").read_text().splitlines()
    assert lines[0] == "# Kernel Ladder: no measurements"
    assert lines[2].startswith(
        "> **This host has no GPU, and no published measurements stand in.**"
    )
    assert run_snakemake(compiled).nothing_to_do
    page = run_snakemake(compiled, "--report", "report.html")
    assert page.code == 0, page.text
    html = (compiled / "report.html").read_text()
    assert "alone-1-curves.png" in html
    assert "How does its time grow with the window?" in html
    assert '"(k) \\u2039/script> $ ("' in html, (
        "braces are wildcards to snakemake, and the tag ends the script"
    )


@pytest.fixture(scope="session")
def finished_once(
    compiled_once: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A small project after a whole run, with a package of its own; shared, so look at it only."""
    folder = tmp_path_factory.mktemp("finished") / "project"
    shutil.copytree(compiled_once, folder, symlinks=True)
    (folder / "workflow").unlink()
    shutil.copytree(ROOT / "workflow", folder / "workflow")
    outcome = run_snakemake(folder)
    assert outcome.code == 0, outcome.text
    return folder


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A copy of the finished project to change."""
    return Path(shutil.copytree(finished_once, tmp_path / "project", symlinks=True))


ANALYSIS = {"Collecting", "Deciding", "Drawing", "Recording", "Writing", "Everything"}
REDONE = {
    "config/sweeps/alone.yaml": ANALYSIS,
    "workflow/report/report.md.j2": ANALYSIS,
    "workflow/ladder/report/figures/curves.py": ANALYSIS,
    "workflow/ladder/build/occupancy.py": ANALYSIS | {"Preparing"},
    "workflow/ladder/gpu/harness.cuh": ANALYSIS | {"Preparing"},
}
"""Changed file -> what is done again."""


@pytest.mark.slow
@pytest.mark.parametrize("file", REDONE)
def test_a_change_under_an_old_file_time_is_seen(file: str, finished: Path) -> None:
    """Copying and unpacking keep times."""
    path = finished / file
    before = path.stat()
    path.write_text(path.read_text() + "\n# more\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    done = {job.split()[0] for job in run_snakemake(finished, "-n").jobs}
    assert done == REDONE[file]


@pytest.mark.slow
@pytest.mark.parametrize(
    "gone", ["tables", "tables/samples.parquet", "environment.json", "figures"]
)
def test_what_was_deleted_of_a_run_is_made_again(gone: str, finished: Path) -> None:
    path = finished / RESULTS / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert run_snakemake(finished).code == 0
    assert path.exists()


@pytest.mark.slow
def test_the_commands_of_the_report_repeat_its_steps(finished: Path) -> None:
    report = finished / RESULTS / "methodology.md"
    text = report.read_text()
    commands = re.findall(r"^ladder (.*?)(?:  #.*)?$", text, re.MULTILINE)
    assert len(commands) == 8
    (sweeps,) = re.findall(r'^sweeps="(.*)"$', text, re.MULTILINE)
    for command in [command.replace("$sweeps", sweeps) for command in commands]:
        if command.split()[0] in ("measure", "profile"):  # need a GPU
            continue
        words = [sys.executable, "-m", "ladder", *command.split()]
        output_of(words, finished, PYTHONPATH="workflow")
    assert report.read_text().count("\n") == text.count("\n")


def test_with_a_device_each_sweep_is_measured_once_on_a_gpu_to_itself(
    project: Path,
) -> None:
    edit_yaml(
        project / "config/sweeps/alone.yaml",
        lambda sweep: sweep.update(counters={"groups": ["memory"]}),
    )
    outcome = run_snakemake(
        project, "-n", "-p", "--config", "device=nvidia-h200", "arch=sm_90a"
    )
    assert outcome.code == 0, outcome.text
    count = {message: outcome.jobs.count(message) for message in outcome.jobs}
    assert count["Measuring alone"] == count["Measuring with_headers"] == 1
    assert count["Profiling alone"] == 1
    assert "Profiling with_headers" not in count
    assert not (project / "results").exists()


@pytest.mark.slow
def test_a_run_of_the_checkout_is_clean_to_plan_and_to_lint() -> None:
    planned = run_snakemake(ROOT, "-n", "--config", "run=test-plan", "device=none")
    assert planned.code == 0, planned.text
    assert planned.jobs
    linted = run_snakemake(ROOT, "--lint")
    assert linted.code == 0, linted.text


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--unlock", "--summary", "--report page.html"])
def test_what_runs_no_job_needs_no_cores(words: str, finished: Path) -> None:
    output_of(snakemake_command(*words.split()), finished)


def test_a_compiling_job_fits_beside_a_gpu_that_measures(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait until no GPU measures, and GPUs would wait for it."""
    monkeypatch.setenv("MADE_UP_GPUS", "here:2")
    edit_yaml(
        project / "config/config.yaml",
        lambda config: config.update(device="nvidia-made-up-gpu"),
    )
    edit_yaml(
        project / "config/sweeps/alone.yaml",
        lambda sweep: sweep["variants"][0].update(
            params={"radius": [2, 4, 8], "threads": [128, 256, 512]}
        ),
    )

    def threads(cores: int, gpus: int, *more: str) -> int:
        words = ["--cores", str(cores), "--resources", f"gpu={gpus}", "--config"]
        words += ["arch=sm_90a", *more]
        outcome = run_snakemake(project, "compile", "-n", *words, gpu=True)
        (jobs,) = re.findall(r"ladder prepare .* alone --jobs (\d+)", outcome.text)
        return int(jobs)

    # Eight variants are work for two cores.
    assert threads(2, 2) == 1
    assert threads(16, 2) == 2
    assert threads(2, 2, "sweeps=[alone]") == 2, "nothing else measures"
    assert threads(2, 1, "device=none") == 1, "room for another sweep"

"""The wheel that is built of this checkout, in an environment and a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT
from ladder.model.folders import Project

ROOMS = ("kernels", "config", "workflow", "results/published")
FILES = ("setup.py", "MANIFEST.in", "pyproject.toml", "README.md", "LICENSE")
LEFT_OUT = ("nvmath", "ncu_report", "snakemake", "__pycache__")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Without the settings that this process passes on to Pythons that it starts."""
    names = {"PYTHONPATH", "VIRTUAL_ENV"}
    environment = {name: os.environ[name] for name in os.environ.keys() - names}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy: setuptools leaves its work beside what it builds."""
    copy = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__", "*.parquet", "figures")
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=ignored)
    for file in FILES:
        shutil.copy(ROOT / file, copy)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", copy]
    done = run(sys.executable, "-m", "pip", "wheel", *options, copy, cwd=copy)
    assert done.returncode == 0, done.stderr
    (path,) = copy.glob("kernel_ladder-*.whl")
    return path


@pytest.fixture(scope="module")
def ladder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in a new environment, whose other packages are links to those of this one, without the extra gpu."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", vars=scheme))
    python = folder / "bin/python"
    options = ["--quiet", "--no-deps", "--no-index", wheel]
    done = run(
        sys.executable, "-m", "pip", "--python", python, "install", *options, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    for place in site.getsitepackages():
        for entry in Path(place).iterdir():
            left_out = entry.name.startswith(LEFT_OUT) or "kernel_ladder" in entry.name
            if not left_out and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return folder / "bin/ladder"


@pytest.mark.slow
def test_a_wheel_holds_what_judge_reads_once(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert len(names) == len(set(names))
    for path in (*ROOT.glob("kernels/**/*.*"), *ROOT.glob("config/**/*.*")):
        if "__pycache__" not in path.parts:
            assert f"ladder/checkout/{path.relative_to(ROOT)}" in names
    assert "ladder/checkout/workflow/report/judge.j2" in names
    assert "ladder/gpu/harness.cuh" in names
    assert not [name for name in names if name.endswith((".parquet", ".pyc"))]


def test_a_folder_of_ones_own_kernels_is_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladder.model.folders.INSTALLED", ROOT)
    (tmp_path / "kernels").mkdir()
    checkout = Project(tmp_path)
    assert (checkout.root, checkout.config) == (tmp_path, ROOT / "config")
    assert checkout.include == ROOT / "kernels/include"
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").touch()
    assert Project(tmp_path).include == tmp_path / "kernels/include"


@pytest.mark.slow
def test_an_installed_ladder_judges_in_an_empty_folder(
    ladder: Path, tmp_path: Path
) -> None:
    for name in ("4_register_tile.cu", "4_register_tile.yaml"):
        shutil.copy(ROOT / "kernels/gemm/fp32" / name, tmp_path)
    words = ["--compile-only", "--arch", "sm_90a", "--json", "verdict.json"]
    done = run(ladder, "judge", "4_register_tile.yaml", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "verdict.json").read_text())
    assert document["verdict"] == "compiles"
    assert document["cells"][0]["registers"] > 0
    # Kernels of the catalogue may be references, and mistakes are found without a checkout.
    reference = ["--reference", "{kernel: nothing}"]
    done = run(ladder, "judge", "4_register_tile.yaml", *reference, cwd=tmp_path)
    assert done.returncode == 5
    assert "no such kernel of gemm; accepted: hip_tile, " in done.stderr
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {
        "4_register_tile.cu",
        "4_register_tile.yaml",
        "verdict.json",
        ".cache",
    }

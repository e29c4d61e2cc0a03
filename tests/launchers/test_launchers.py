"""Launchers that try to look right or fast by something else: what each gets is in its first lines, as of exploits.

They are given a size of the timed launches at which they cheat, and are honest at most edges.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import GEMMS, ROOT, make_project
from exploits.test_exploits import read
from ladder.catalogue.settings import set_up
from ladder.catalogue.sweeps import make_sweep
from ladder.cli.app import main
from ladder.cli.judge import LINE, launched, measured
from ladder.model.record import Record
from ladder.model.schemas import STATUSES
from measuring import on_gpu
from products import TESTED

FOLDER = ROOT / "tests/launchers"
NVCC = shutil.which("nvcc")
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.cu"))}
FILES |= {path.stem: path for path in sorted(FOLDER.glob("[!pt]*.py"))}


EXPECTED = {name: read(path) for name, path in FILES.items()}


@pytest.mark.parametrize("name", FILES)
def test_each_says_what_it_gets(name: str) -> None:
    assert EXPECTED[name].expected <= {*STATUSES}


def built(path: Path, folder: Path) -> Path:
    """A launcher as `judge` takes it: CUDA C++ as a shared object."""
    if path.suffix == ".py":
        return path
    target = folder / f"{path.stem}.so"
    options = ["-shared", "-Xcompiler", "-fPIC", "-arch=native", "-o", str(target)]
    subprocess.run([str(NVCC), *options, str(path)], check=True)
    return target


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project, and launchers of Python that may import what is beside them."""
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(ROOT / "workflow"), str(FOLDER), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield make_project(tmp_path_factory.mktemp("launchers") / "project")


@pytest.fixture(scope="module")
def records(project: Path) -> Mapping[str, dict[str, Record]]:
    """The record of each launcher in each regime, by name."""
    kernels = {}
    for name, path in FILES.items():
        if path.suffix == ".py" or NVCC is not None:
            file = built(path, project)
            kernels[name] = launched(file, "launcher", "gemm", "fp32", None, {})
    fields = GEMMS | {
        "sizes": [TESTED],
        "variants": [{"kernel": name} for name in kernels],
        "regimes": ["cold", "warm"],
    }
    sweep = replace(make_sweep(LINE, fields, kernels, project), name="judge")
    settings = {
        "busy": "mark",
        "deadline_s": 20,
        "cell_seconds": 0.2,
        "warm_below_us": 2000,
    }
    setup = set_up(project, (), {"measure": settings, "device": "auto"})
    view, _ = measured(setup, sweep)
    found: dict[str, dict[str, Record]] = {name: {} for name in kernels}
    for task in view.plan.tasks:
        for regime in view.plan.regimes:
            record = view.current_record(task, regime)
            assert record is not None
            found[task.cell.kernel][regime] = record
    return found


@on_gpu
@pytest.mark.parametrize("name", FILES)
def test_each_gets_its_status(
    name: str, records: Mapping[str, dict[str, Record]]
) -> None:
    if name not in records:
        pytest.skip("needs nvcc")
    launcher = EXPECTED[name]
    for regime, record in records[name].items():
        where = f"{regime}: {record.status}: {record.reason}"
        accepted = launcher.expected
        if regime not in launcher.targets:
            accepted |= {"ok"}
        assert record.status in accepted, where


@on_gpu
def test_a_launcher_is_judged_without_a_description(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["judge", str(FILES["honest"]), "--entry", "launcher", "--problem", "gemm"]
    more = ["--size", "256", "--json", "-", "--config", "measure={busy: mark}"]
    assert main(["--root", str(project), *given, *more]) <= 2
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["trust"] == "opaque"
    assert {cell["status"] for cell in verdict["cells"]} == {"ok"}


@on_gpu
def test_several_kernels_have_a_line_each(project: Path, tmp_path: Path) -> None:
    for name in ("honest.cuh", "honest.cu", "one_element.cu"):
        shutil.copy(FOLDER.parent / "exploits" / name, tmp_path)
    for name in ("honest", "one_element"):
        shutil.copy(FOLDER.parent / "exploits/exploit.yaml", tmp_path / f"{name}.yaml")
    kernels = [str(tmp_path / f"{name}.yaml") for name in ("one_element", "honest")]
    lines = tmp_path / "verdicts.jsonl"
    more = ["--size", "256", "--json", str(lines), "--config", "measure={busy: mark}"]
    assert main(["--root", str(project), "judge", *kernels, *more]) == 3
    verdicts = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [each["kernel"] for each in verdicts] == ["one_element", "honest"]
    assert verdicts[1]["exit_code"] <= 2

"""The tutorial, done word for word in a copy of the project; and what README refers to."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOMS, ROOT, edit, run_snakemake
from ladder.cli.app import STEPS

README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "add-a-kernel.md").read_text(encoding="utf-8")


def tutorial_files() -> dict[str, str]:
    """The files it shows: a path in backquotes with a colon, then the file as a code block."""
    return dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as a user has it, whose run needs no GPU."""
    folder = tmp_path / "copy"
    folder.mkdir()
    for room in ("kernels", "config"):
        shutil.copytree(ROOT / room, folder / room)
    for room in ROOMS:
        (folder / room).symlink_to(ROOT / room)
    edit(folder / "config/config.yaml", "device: auto", "device: none")
    return folder


def test_the_tutorial_adds_a_kernel_with_two_files_and_a_sweep_that_names_it(copy: Path) -> None:
    files = tutorial_files()
    assert [Path(name).suffix for name in files] == [".cu", ".yaml", ".yaml"]
    for name, text in files.items():
        assert not (copy / name).exists()
        (copy / name).write_text(text, encoding="utf-8")

    outcome = run_snakemake(copy, "sweep_stencil_direct")
    assert outcome.code == 0, outcome.text

    folder = copy / "results/main/no-gpu"
    resources = pd.read_csv(folder / "sweeps/stencil_direct/resources.csv")
    own = resources[resources["kernel"] == "stencil_direct"]
    assert len(own) == 8
    assert set(own["status"]) == {"ok"}
    # k + 1 loads an output, and none through shared memory, as the text says.
    reach = own["params"].map(lambda params: json.loads(params)["k"])
    assert (own["ldg"] == reach + 1).all()
    assert (own["lds_32"] == 0).all()
    assert set(resources["kernel"]) == {"stencil_direct", "stencil_shared"}
    assert (folder / "sweeps/stencil_direct/stencil_direct-1-stencil.png").is_file()


def test_what_readme_links_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if target.startswith("results/published") and not (ROOT / "results/published/nvidia-h200").is_dir():
            continue
        assert (ROOT / target).exists(), target


def test_readme_names_the_targets_and_steps_there_are() -> None:
    rules = "\n".join(path.read_text() for path in (ROOT / "workflow").rglob("*.smk"))
    for target in ("compile", "figures", "report", "publish"):
        assert f"rule {target}:" in rules
        assert re.search(rf"`(snakemake --cores all |snakemake |… ){target}`", README), target
    for step in re.findall(r"python -m ladder (\w+)", README + TUTORIAL):
        assert step in STEPS

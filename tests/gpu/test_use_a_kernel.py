"""The program of docs/use-a-kernel.md: it compiles by nvcc, and is right on a GPU."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from measuring import on_hopper

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc"),
]


def block(page: str, language: str) -> str:
    """The first code block of a language."""
    return page.split(f"```{language}\n", 1)[1].split("```", 1)[0]


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        shlex.split(command), cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The page's program, compiled by the page's command."""
    page = (ROOT / "docs/use-a-kernel.md").read_text()
    (tmp_path / "kernels").symlink_to(ROOT / "kernels")
    (tmp_path / "program.cu").write_text(block(page, "cpp"))
    compile_it = block(page, "sh").splitlines()[0]
    done = run(compile_it, tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path / "program"


def test_it_compiles(program: Path) -> None:
    assert program.stat().st_size


@on_hopper
def test_it_is_right(program: Path) -> None:
    done = run(str(program), program.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wrong elements: 0 of" in done.stdout

"""A small project of the tests' own, copied per test, and snakemake run in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# pytest-xdist has a process for each core; threads of NumPy's products would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest
import yaml
from compiling import forget_unused
from hypothesis import HealthCheck, settings

# A busy machine must not fail a property.
settings.register_profile(
    "ladder", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ladder")

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("Snakefile", "workflow", "profiles")
"""What a copy of the project shares with the checkout."""


@dataclass(frozen=True)
class Outcome:
    """How a snakemake run ended: `jobs` are the messages of the jobs it ran (or would run), in order."""

    code: int
    text: str

    @property
    def jobs(self) -> list[str]:
        return re.findall(r"^Job \d+: (.+)$", self.text, re.MULTILINE)

    @property
    def nothing_to_do(self) -> bool:
        return self.code == 0 and "Nothing to be done" in self.text


GEMMS = {
    "title": "t",
    "question": "q?",
    "problem": "gemm",
    "dtypes": ["fp32"],
    "references": ["cublas"],
}
"""Fields of a sweep, which has sizes and variants as well."""
MADE_UP_GPU = str(ROOT / "tests/made_up_gpu")


def environment(gpu: bool = False) -> dict[str, str]:
    """The tests' environment without what would make runs differ from a user's; with `gpu` a made-up one measures."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SNAKEMAKE", "PYTEST"))
    }
    return kept | {"PYTHONPATH": MADE_UP_GPU if gpu else "", "COLUMNS": "200"}


def snakemake_command(*arguments: str) -> list[str]:
    """The command line of snakemake, as the interpreter of the tests runs it."""
    return [sys.executable, "-m", "snakemake", *arguments]


def run_snakemake(folder: Path, *arguments: str, gpu: bool = False) -> Outcome:
    """Run snakemake in a project on one core and wait for its end; with `gpu` a made-up one measures."""
    # -p: with snakemake's own messages, which name every job.
    words = ("--cores", "1", "-p", *arguments)
    done = subprocess.run(
        snakemake_command(*words),
        cwd=folder,
        env=environment(gpu),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return Outcome(done.returncode, done.stdout)


def output_of(command: list[str], folder: Path, **variables: str) -> str:
    """What a command prints that must end well, in a folder, with more variables of the environment."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment() | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def edit(path: Path, old: str, new: str) -> None:
    """Replace `old`, which must stand in the file, everywhere in it."""
    text = path.read_text()
    assert old in text, f"{path} does not contain {old!r}"
    path.write_text(text.replace(old, new))


def edit_yaml(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = yaml.load(path.read_text(), yaml.CSafeLoader)
    change(document)
    path.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False))


def make_project(folder: Path) -> Path:
    """A project with two kernels of two variants each: `with_headers` includes two headers, `alone` none."""
    shutil.copytree(ROOT / "tests/project", folder)
    shutil.copy(ROOT / "config/config.yaml", folder / "config")
    edit_yaml(
        folder / "config/config.yaml",
        lambda config: config.update(run="test", device="none"),
    )
    for room in ROOMS:
        (folder / room).symlink_to(ROOT / room)
    return folder


@pytest.fixture(scope="session", autouse=True)
def nothing_is_synced() -> Iterator[None]:
    """No test cuts the power, and a made-up run writes thousands of lines, each of which would wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A fresh small project."""
    return make_project(tmp_path / "project")


@pytest.fixture(scope="session")
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small project after `snakemake compile`; shared, so look at it only."""
    folder = make_project(tmp_path_factory.mktemp("compiled") / "project")
    outcome = run_snakemake(folder, "compile")
    assert outcome.code == 0, outcome.text
    return folder


@pytest.fixture
def compiled(compiled_once: Path, tmp_path: Path) -> Path:
    """A copy of the compiled small project to change."""
    return Path(shutil.copytree(compiled_once, tmp_path / "project", symlinks=True))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Compiled kernels of sources that are no more do not pile up."""
    if not hasattr(session.config, "workerinput"):
        forget_unused()


def assert_says(message: str, fragments: tuple[str, ...]) -> None:
    """The fragments stand in the message, in this order."""
    at = 0
    for fragment in fragments:
        found = message.find(fragment, at)
        assert found >= 0, f"{fragment!r} is not in {message[at:]!r}"
        at = found + len(fragment)


@pytest.fixture
def fake_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of instances is only counted."""
    from fake_gpu import FakeBuffer  # which loads CUDA's bindings

    for module in ("instance", "tensor", "device"):
        monkeypatch.setattr(f"ladder.gpu.{module}.Buffer", FakeBuffer)

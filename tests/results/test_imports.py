"""Tables are made, compared and published without the bindings of CUDA: cuda.pathfinder only looks for files."""

from __future__ import annotations

import subprocess
import sys

from conftest import ROOT, environment

WITHOUT_CUDA = """
import importlib, importlib.abc, pkgutil, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("cuda.bindings", "cuda.core", "cupti", "nvmath")):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import ladder.results
for module in pkgutil.walk_packages(ladder.results.__path__, "ladder.results."):
    print(importlib.import_module(module.name).__name__)
"""


def test_results_are_imported_without_cuda() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CUDA],
        cwd=ROOT / "workflow",
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ladder.results.collect" in done.stdout.split()
    assert "ladder.results.forecast" in done.stdout.split()

"""Tables are made, compared and published without the bindings of CUDA: cuda.pathfinder only looks for files."""

from __future__ import annotations

import sys

from conftest import ROOT, output_of

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
    printed = output_of([sys.executable, "-c", WITHOUT_CUDA], ROOT / "workflow")
    assert "ladder.results.collect" in printed.split()
    assert "ladder.results.forecast" in printed.split()

"""Kernels of the tests' own, measured on the first GPU as a run measures them."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import GEMMS, ROOT, output_of
from ladder.gpu.discovery import find_gpus
from ladder.measure.store import read_store
from ladder.model.folders import RunFolder
from ladder.model.record import Record

GPUS = find_gpus()
PACKAGES = f"{ROOT / 'workflow'}:{os.environ.get('PYTHONPATH', '')}"


def on_gpu(test: Any, arch: str = "") -> Any:
    """The mark of a test that launches kernels: it is skipped without a GPU of the architecture, by default of any."""
    fits = GPUS and arch in ("", GPUS[0].arch)
    return pytest.mark.gpu(
        pytest.mark.skipif(not fits, reason=f"needs a GPU {arch}")(test)
    )


on_hopper = partial(on_gpu, arch="sm_90a")


@pytest.fixture
def gpu_project(project: Path) -> Path:
    """A project with kernels that go wrong, of the tests' own."""
    shutil.copytree(ROOT / "tests/gpu_kernels", project / "kernels/gemm")
    return project


def ladder(folder: Path, *words: str) -> None:
    """Run one step in a project."""
    output_of([sys.executable, "-m", "ladder", *words], folder, PYTHONPATH=PACKAGES)


def measured(
    folder: Path,
    variants: Sequence[dict[str, Any]],
    sizes: list[Any],
    settings: str,
    **more: Any,
) -> list[Record]:
    """Every record of a sweep of GEMM variants in a project; `settings` are those of `measure`, as YAML.

    The process of the tests may itself have the GPU open: it must not count as somebody else.
    `more` are fields of the sweep, which is in fp32 against cuBLAS if they do not say otherwise.
    """
    sweep = GEMMS | {
        "sizes": sizes,
        "variants": [given | {"unsupported": "record"} for given in variants],
        "regimes": ["cold", "warm"],
        **more,
    }
    (folder / "config/sweeps/probe.yaml").write_text(yaml.safe_dump(sweep))
    results = RunFolder(folder / "results/test" / GPUS[0].slug)
    arch = GPUS[0].arch
    measure = json.dumps({"busy": "mark", **yaml.safe_load(settings)})
    given = ["--arch", arch, "--jobs", "4", "--config", f"measure={measure}"]
    ladder(folder, "prepare", str(results.root), "probe", *given)
    ladder(folder, "measure", str(results.plan("probe")))
    return list(read_store(results.records))

"""The project itself as tests read it: loaded once by a process, and shared, so look at it only."""

from __future__ import annotations

import functools

import pytest
from conftest import ROOT
from ladder.catalogue.runs import Run, load
from ladder.catalogue.settings import set_up
from ladder.model.folders import PublishedFolder
from ladder.results.run_data import RunData

PUBLISHED = PublishedFolder(ROOT / "results" / "published" / "nvidia-h200")


@functools.cache
def loaded() -> Run:
    """Kernels, sweeps and plans without a GPU."""
    return load(set_up(ROOT, over={"device": "none"}))


@functools.cache
def published_data() -> RunData:
    """What is published, with the sweeps of today. Skips the test where nothing is."""
    if not PUBLISHED.root.is_dir():
        pytest.skip("nothing is published")
    return RunData.read(PUBLISHED, loaded().every_sweep)

"""The project itself as tests read it: loaded once by a process, and shared, so look at it only."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest
from compiling import compile_variant
from conftest import ROOT
from ladder.build.variants import variant_facts, variant_request
from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.runs import Run, load
from ladder.catalogue.settings import set_up
from ladder.catalogue.sweeps import load_sweeps
from ladder.model.architecture import TUNED_FOR
from ladder.model.folders import PublishedFolder
from ladder.model.kernel import Kernel, Variant
from ladder.model.plan_file import read_facts
from ladder.model.sweep import Sweep
from ladder.results.run_data import RunData

PUBLISHED = PublishedFolder(ROOT / "results/published/nvidia-h200")


@functools.cache
def catalog() -> Mapping[str, Kernel]:
    return load_kernels(ROOT / "kernels")


def rungs_of(folder: str) -> dict[str, str]:
    """Kernels of a ladder that has a file each, by the number that their names begin with."""
    paths = sorted((ROOT / "kernels" / folder).glob("[0-9]*.cu"))
    return {path.stem.partition("_")[0]: path.stem for path in paths}


def cases_of(files: Mapping[str, str]) -> list[tuple[str, str]]:
    """Rungs of such a ladder with each of their dtypes."""
    return [(rung, dtype) for rung in files for dtype in catalog()[files[rung]].dtypes]


@functools.cache
def every_sweep() -> Mapping[str, Sweep]:
    return load_sweeps(ROOT / "config/sweeps", catalog(), None)


def in_sweeps(kernel: str) -> list[tuple[Sweep, Variant]]:
    """The variants of a kernel, each with a sweep."""
    return [
        (sweep, one)
        for sweep in every_sweep().values()
        for one in sweep.variants
        if one.kernel.name == kernel
    ]


def in_triton(sweep: str) -> list[Variant]:
    """The variants in Triton of a sweep."""
    return [one for one in every_sweep()[sweep].variants if one.kernel.triton]


@functools.cache
def published_facts() -> Mapping[str, dict[str, Any]]:
    """What the compiler said of kernels, by the keys of requests."""
    return read_facts(PUBLISHED.facts)


def facts_of(variant: Variant) -> dict[str, Any]:
    """Facts of a variant for Hopper: what is published of the very same request, or else what the compiler says."""
    include = ROOT / "kernels/include"
    request = variant_request(variant, include, TUNED_FOR)
    if (known := published_facts().get(request.key)) is not None:
        return variant_facts(variant, request, known)
    return compile_variant(variant, include, TUNED_FOR)[1]


def facts_without_spills(variant: Variant) -> dict[str, Any]:
    """Facts of a variant for Hopper, which must compile and take no local memory."""
    facts = facts_of(variant)
    assert facts["status"] == "ok", (variant.id, facts["reason"])
    local = (
        facts["spill_store_bytes"],
        facts["local_bytes"],
        facts["ldl"],
        facts["stl"],
    )
    assert local == (0, 0, 0, 0), variant.id
    return facts


@functools.cache
def loaded() -> Run:
    """Kernels, sweeps and plans without a GPU."""
    return load(set_up(ROOT, over={"device": "none"}))


@functools.cache
def published_data() -> RunData:
    """What is published, with the sweeps of today. Skips the test where nothing is."""
    if not PUBLISHED.root.is_dir():
        pytest.skip("nothing is published")
    return RunData.read(PUBLISHED, every_sweep())


def published_of(*names: str) -> RunData:
    """What is published of some sweeps, as if there were no others."""
    known = published_data()
    frames = {
        table: rows[rows["sweep"].isin(names)] if "sweep" in rows else rows
        for table, rows in known.frames.items()
    }
    return RunData(
        {name: known.sweeps[name] for name in names}, frames, known.environment
    )

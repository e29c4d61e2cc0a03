"""A whole run on a card that was never measured: the checkout's sweeps for its architecture, with made-up records.

What a cell reads follows from the published speed-up of the same cell and from the card's rates. Numbers are made up;
tests hold sentences to them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from checkout import PUBLISHED, every_sweep, published_data
from conftest import ROOT
from factory import HOST, SESSION, Fields, Lab, Place
from ladder.claims.ledger import decide_tables
from ladder.gpu.discovery import slug_of
from ladder.model.architecture import arch_number, peaks
from ladder.model.folders import Project
from ladder.model.kernel import Variant
from ladder.model.problem import COPY
from ladder.model.sweep import Sweep
from ladder.page.document import render as render_page
from ladder.report.document import render
from ladder.results.run_data import RunData
from ladder.results.statistics import records, size_of


@dataclass(frozen=True)
class Card:
    """A GPU, what its driver says while cells are measured, and how its kernels compare with those of an H200."""

    arch: str
    known: Fields  # of a session's `gpu` what no rate follows from
    # What NVML names in cells of tensor cores, and the clock that they read.
    held: tuple[list[str], float]
    counted: bool = False
    factor: Callable[[Place], float] = field(default=lambda place: 1.0)

    @property
    def gpu(self) -> Fields:
        """What a session says of it."""
        known = self.known
        about = known["name"], known["sms"], known["boost_clock_mhz"]
        fp32, tensor = peaks(arch_number(self.arch), *about)
        copy = 0.92 * known["memory_peak_gbytes_per_s"]
        rates = {"fp32_peak_tflops": fp32, "tensor_peak_tflops": tensor}
        return {**known, **rates, "copy_gbytes_per_s": copy, "uuid": "GPU-made-up"}


def _more_stages_lose(place: Place) -> float:
    """Less shared memory than an H200 has: each further stage costs a block."""
    fixed = 2 if place.variant.kernel.name == "4_two_stages" else 1
    return float(0.85 ** (int(place.variant.params.get("stages", fixed)) - 1))


CARDS = {
    "RTX 4090": Card(
        arch="sm_89",
        known={
            "name": "NVIDIA GeForce RTX 4090",
            "sms": 128,
            "boost_clock_mhz": 2520.0,
            "memory_peak_gbytes_per_s": 1008.0,
            "memory_bytes": 25.3e9,
            "l2_bytes": 75_497_472,
            "power_limit_w": 450.0,
        },
        held=(["EVENT_REASON_SW_POWER_CAP"], 2670.0),
        factor=_more_stages_lose,
    ),
    "A100": Card(
        arch="sm_80",
        known={
            "name": "NVIDIA A100-SXM4-80GB",
            "sms": 108,
            "boost_clock_mhz": 1410.0,
            "memory_peak_gbytes_per_s": 2039.0,
            "memory_bytes": 85e9,
            "l2_bytes": 41_943_040,
            "power_limit_w": 400.0,
        },
        held=([], 1320.0),  # under boost, and nothing that NVML names
        counted=True,
    ),
}
TENSOR = ("bf16", "fp16", "fp16_acc16", "tf32", "fp8", "fp8_fp32")


@functools.cache
def _published_speedups() -> Mapping[tuple[Any, ...], float]:
    rows = published_data().frames["timings"]
    rows = rows[
        (rows["status"] == "ok") & (rows["regime"] == "cold") & rows["baseline"].isna()
    ]
    return {
        (row["variant"], *size_of(row).values()): row["speedup"]
        for row in records(rows)
    }


@dataclass
class CardLab(Lab):
    """The checkout's sweeps on a card."""

    card: Card = CARDS["A100"]

    def __post_init__(self) -> None:
        self.project = Project(self.root)
        gpu = self.card.gpu
        self.device = slug_of(gpu["name"])
        self.arch = self.card.arch
        self.host = {**HOST, "gpu": gpu["name"]}
        self.session = replace(SESSION, gpu=gpu, host={**SESSION.host, "gpus": 1})

    def sweeps(self, names: list[str] | None = None) -> dict[str, Sweep]:
        return {name: every_sweep()[name] for name in names or every_sweep()}

    def speedup(self, sweep: Sweep, place: Place) -> float:
        # One cell has one speed, in whatever sweeps it is.
        key = (place.variant.id, *place.size.values())
        if sweep.reference.variant_for(place.variant) == place.variant:
            return 1.0
        return _published_speedups().get(key, 0.8) * self.card.factor(place)

    def reference_us(self, sweep: Sweep, place: Place) -> float:
        gpu = self.card.gpu
        dtype = place.variant.dtype
        work = sweep.problem.work(place.size, dtype, place.variant.params)
        tflops = gpu["tensor_peak_tflops"].get(dtype) or gpu["fp32_peak_tflops"]
        memory_us = work.bytes / gpu["memory_peak_gbytes_per_s"] / 0.85e3
        return float(max(work.operations / tflops / 0.75e6, memory_us, 4.0))

    @staticmethod
    def compiled(variant: Variant, given: Fields) -> Fields:
        """Facts with the shared memory that a launch asks for."""
        geometry = variant.geometry(
            dict.fromkeys(variant.kernel.problem.size_fields, 4096)
        )
        return given | {
            "shared_bytes_static": 0,
            "shared_bytes_dynamic": geometry.shared_bytes,
        }

    def read(self, place: Place, record: Fields) -> Fields:
        """What was measured with what the card's driver says of it; for seconds 3 % slower on tensor cores."""
        gpu, variant = self.card.gpu, place.variant
        on_tensor_cores = variant.dtype in TENSOR
        events, mhz = (
            self.card.held if on_tensor_cores else ([], gpu["boost_clock_mhz"])
        )
        record["device"] |= {"clock_events": events, "sm_clock_mhz": mhz}
        problem = variant.kernel.problem
        if COPY in problem.libraries:
            work = problem.work(place.size, variant.dtype, variant.params)
            record["copy_us"] = work.bytes / gpu["copy_gbytes_per_s"] / 1e3
        cold = record["regimes"][next(iter(record["regimes"]))]
        slower = 1.03 if on_tensor_cores else 1.0
        steady = {
            "sm_clock_mhz": mhz,
            "power_w": 0.98 * gpu["power_limit_w"],
            "launch_j": 1.0,
        }
        held = {
            "variant_us": [slower * us for us in cold["variant_us"]],
            "sustained": {"variant": steady},
        }
        record["regimes"]["sustained"] = cold | held
        return record


def report_of(
    lab: CardLab, names: list[str] | None = None
) -> tuple[dict[Path, str], str, RunData]:
    """The pages of a run of some sweeps, or all, index.html, and the tables, with the published H200 beside them."""
    lab.record_and_collect(names, lab.read, lab.compiled, metrics=lab.card.counted)
    sweeps = lab.sweeps(names)
    decide_tables(lab.folder.tables, sweeps)
    data = RunData.read(lab.folder, sweeps)
    beside = [(PUBLISHED, RunData.read(PUBLISHED, sweeps))]
    pages = dict(render(lab.folder, data, lab.plans(), beside=beside))
    return pages, render_page(lab.folder, data, ROOT, beside), data

"""A small project with synthetic raw records: what measuring a catalogue like the real one leaves behind.

The numbers follow simple models (a speed per rung, gcd for bank conflicts), with seeded noise, so that
tests can state what the tables must say. Nothing here is compiled or launched.
"""

from __future__ import annotations

import functools
import json
import math
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from conftest import ROOT, edit_yaml
from ladder.catalogue.config import Config
from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.catalogue.sweeps import load_sweeps
from ladder.measure.choice import decide
from ladder.measure.conditions import (
    choice_conditions,
    host_conditions,
    tree_conditions,
)
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records, appending, read_store
from ladder.model.cell import COUNTERS, Cell
from ladder.model.files import digest_json, replace_file, write_json
from ladder.model.folders import Project, RunFolder
from ladder.model.kernel import Variant
from ladder.model.plan import Plan
from ladder.model.plan_file import read_plan, to_json
from ladder.model.record import Conditions, Record, Session
from ladder.model.sweep import Entry, Sweep
from ladder.problems.registry import PROBLEMS
from ladder.results import tables
from ladder.results.collect import accounts_of, collect_sweep, merge
from ladder.results.environment import measured_on

Fields = dict[str, Any]
"""Those of a record, a row, a document or facts."""
Change = Callable[[Any, Fields], Fields | None]
"""What a test makes of the record at a place; None is none."""
ENDS = ("speedup", "speedup_low", "speedup_high")
DEVICE = "nvidia-h200"
CUBLAS_TFLOPS = {"fp32": 51.4, "fp16": 750.0}
SPEED = {
    "gemm_naive": 0.09,
    "gemm_shared_tile": 0.16,
    "gemm_register_tile": 0.66,
    "wmma_naive": 0.08,
    "wmma_tile": 0.31,
}


def axis(*values: int | str, default: int | str | None = None) -> Fields:
    return {
        "values": list(values),
        "default": values[0] if default is None else default,
        "description": "an axis",
    }


def kernel_document(
    problem: str, dtypes: list[str], parameters: Fields, **more: Any
) -> Fields:
    pointers = [{"pointer": name} for name in PROBLEMS[problem].buffers]
    scalars = [
        {"scalar": name, "type": "float32"} for name in PROBLEMS[problem].scalars
    ]
    return {
        "summary": f"a {problem} kernel of the tests",
        "problem": problem,
        "origin": ["tests"],
        "entry": "kernel",
        "dtypes": {dtype: {} for dtype in dtypes},
        "min_arch": "sm_80",
        "parameters": parameters,
        "launch": {"grid": [1], "block": [32]},
        "arguments": [*pointers, *scalars],
    } | more


ONE_CELL: dict[str, object] = {
    "sweep": "s",
    "variant": "v",
    "dtype": "fp32",
    "layout": "NN",
    "m": 1,
    "n": 1,
    "k": 1,
    "regime": "cold",
}
"""Columns of one cell, for tables of a few rows."""

HOST = {"gpu": "NVIDIA H200", "driver": "580.95"}
NCU = "2025.3.1"
SESSION = Session(
    id="session-1",
    started="2026-11-20T10:00:00Z",
    gpu={
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "sms": 132,
        "memory_bytes": 150_000_000_000,
        "l2_bytes": 62_914_560,
        "boost_clock_mhz": 1980,
        "power_limit_w": 700.0,
        "fp32_peak_tflops": 66.9,
        "tensor_peak_tflops": {"fp16": 989.4},
        "copy_gbytes_per_s": 4270.0,
    },
    host={"cpu": "a CPU", "cores": 16, "memory_bytes": 1 << 37},
    versions={
        "driver": "580.95",
        "cublas": "13.1",
        "python": "3.11.2",
        "packages": {"cuda-core": "1.2.2"},
    },
    tree={"digest": "d" * 64, "commit": "c" * 40, "clean": True},
    clock_floor_us=2.1,
)
FINISHED = "2026-11-20T10:20:00Z"
HERE: Fields = {
    "device": DEVICE,
    "arch": "sm_90a",
    "nvrtc": "13.0",
    "ncu": NCU,
    "timings_from": "measured",
    "published": None,
    "reproduced_cubins": None,
}
"""What environment.json holds besides what the sessions say."""


@dataclass(frozen=True)
class Place:
    """A variant at a size, as a sweep names it."""

    entry: Entry
    size: dict[str, int]

    @property
    def variant(self) -> Variant:
        return self.entry.variant


@functools.cache
def conflict_degree(stride: int) -> int:
    """Distinct words of 32 lanes that fall into the fullest of 32 banks."""
    words = {lane * stride for lane in range(32)}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


def true_speedup(variant: Variant, size: dict[str, int]) -> float:
    """The speed-up the synthetic device shows for a variant."""
    params = variant.params
    name = variant.kernel.name
    if variant.kernel.problem.name == "banks":
        return 1 / conflict_degree(int(params.get("stride", 1)))
    if variant.kernel.problem.name == "stencil":
        radius = int(params["radius"])
        coarsen = int(params["coarsen"])
        if name == "stencil_shared":
            return 1.0
        spill = 0.5 if radius >= 12 and coarsen == 8 else 1.0
        return spill * (1.05 - 0.028 * (radius - 1)) * (1 + 0.12 * math.log2(coarsen))
    speed = SPEED[name] * (0.7 if next(iter(size.values())) < 1024 else 1.0)
    if params.get("mapping") == "column":
        speed /= 6
    if name == "gemm_register_tile":
        speed *= 1.0 if params["transpose_a"] else 0.8
        speed *= {64: 0.93, 128: 1.0}[int(params["bm"])] * {8: 1.0, 16: 1.02}[
            int(params["bk"])
        ]
    return speed


@functools.lru_cache(maxsize=4)
def _sweeps(
    project: Project,
    files: frozenset[tuple[Path, bytes]],
    names: tuple[str, ...] | None,
) -> dict[str, Sweep]:
    chosen = None if names is None else list(names)
    return load_sweeps(project.sweeps, load_kernels(project.kernels), chosen)


@functools.cache
def _config(settings: str) -> Config:
    return read_settings(Project(ROOT), [], json.loads(settings))


@dataclass
class Lab:
    """A project folder and a run folder to fill with records; hooks change single cells before writing."""

    root: Path
    run: str = "main"
    device: str = DEVICE
    arch: str = "sm_90a"
    session: Session = SESSION
    host: dict[str, str] = field(default_factory=lambda: dict(HOST))
    finished: str = FINISHED
    settings: Fields = field(default_factory=dict)
    libraries_us: dict[str, float] | None = field(default_factory=dict)
    """By library its time in us; of others 100 us, and 5 us more for each that a sweep names ahead of it.

    None: as before choices had records.
    """
    seed: int = 7

    def __post_init__(self) -> None:
        self.project = Project(self.root)
        shutil.copytree(ROOT / "tests/lab", self.root, dirs_exist_ok=True)

    @property
    def folder(self) -> RunFolder:
        return self.project.run(self.run, self.device)

    def sweeps(self, names: list[str] | None = None) -> dict[str, Sweep]:
        """Sweeps by name, worked out once for files that say the same."""
        paths = [*self.project.kernels.rglob("*.*"), *self.project.sweeps.iterdir()]
        files = frozenset((path, path.read_bytes()) for path in paths)
        return dict(
            _sweeps(self.project, files, None if names is None else tuple(names))
        )

    def config(self) -> Config:
        return _config(json.dumps(self.settings))

    def sweep_of(self, name: str) -> Sweep:
        return self.sweeps([name])[name]

    def plan(self, sweep: Sweep) -> Plan:
        return plan_sweep(sweep, self.config(), self.arch)

    def speedup(self, sweep: Sweep, place: Place) -> float:
        """The speed-up that the synthetic device shows for a variant over what the sweep times it against."""
        return (
            1.25
            if sweep.name == "fp32_transpose"
            else true_speedup(place.variant, place.size)
        )

    def reference_us(self, sweep: Sweep, place: Place) -> float:
        """What the reference takes."""
        if sweep.problem.name == "gemm":
            work = sweep.problem.work(
                place.size, place.variant.dtype, place.variant.params
            )
            return work.operations / CUBLAS_TFLOPS[place.variant.dtype] / 1e6
        times_us = {
            "banks": 40.0,
            "stencil": 600.0,
            "softmax": 100.0,
            "attention": 100.0,
        }
        return times_us[sweep.problem.name]

    def compile(
        self,
        sweep: Sweep,
        facts: Callable[[Variant, Fields], Fields] = lambda _, given: given,
    ) -> None:
        """Write the plan of a sweep and what was compiled for it."""
        harness = {
            variant.dtype: {
                "symbols": {},
                "machine_code": f"{sweep.problem.name}: machine code of its harness",
                "status": "ok",
                "cubin": "harness",
            }
            for variant in sweep.variants
        }
        absent = {
            variant.id: {"status": "unsupported", "reason": why}
            for variant, why in sweep.never_launched(self.arch).items()
        }
        variants = {
            variant.id: facts(
                variant,
                make_facts(variant) | {"arch": self.arch} | absent.get(variant.id, {}),
            )
            for variant in sweep.variants
        }
        made = replace(self.plan(sweep), harness=harness, variants=variants)
        replace_file(self.folder.plan(sweep.name), to_json(made))

    def record(
        self,
        names: list[str] | None = None,
        change: Callable[[Place, Fields], Fields | None] = lambda _, record: record,
        facts: Callable[[Variant, Fields], Fields] = lambda _, given: given,
        metrics: bool = True,
    ) -> None:
        """Write plans, facts, records and accounts; `change` may alter what was measured, or drop it (None)."""
        random_numbers = random.Random(self.seed)
        for name, sweep in self.sweeps(names).items():
            self.compile(sweep, facts)
            plan = read_plan(self.folder.plan(name))
            choices = plan.choices if self.libraries_us is not None else ()
            found: list[Record] = [self._chosen(plan, choice) for choice in choices]
            launched = 0
            # A rung with its baseline follows the sweep's own cell.
            asked = iter([Place(*one) for one in sweep.cells])
            place = Place(*sweep.cells[0])
            for task in plan.tasks:
                place = place if task.beside else next(asked)
                if task.absent is None:
                    times = self.speedup(sweep, place), self.reference_us(sweep, place)
                    made = make_record(sweep, place, *times, random_numbers)
                    if task.baseline and place.entry.baseline is not None:
                        below = replace(place, entry=place.entry.baseline)
                        made = over(made, self.speedup(sweep, below))
                    measured = change(place, made)
                    if measured is not None and plan.broken(task) is None:
                        launched += 1
                        found += self._records(plan, task, measured)
                        if metrics and task.counted:
                            found.append(self._counted(plan, task, make_profile(place)))
            with appending(self.folder.records, name) as append:
                for one in (self.session, *found):
                    append(one)
            write_json(self.folder.account("measured", name), make_job(launched))
            notes = (
                []
                if metrics and sweep.counter_groups
                else [{"subject": "ncu", "reason": "ncu was not found"}]
            )
            write_json(self.folder.account("profiled", name), {"notes": notes})

    def _record(
        self,
        plan: Plan,
        cell: Cell,
        tree: dict[str, str],
        variant: str,
        result: Fields,
        status: str = "ok",
        **more: Any,
    ) -> Record:
        """A record of the session; `tree` are the conditions that we make."""
        return Record(
            cell=cell,
            conditions=Conditions(tree, self.on(plan.problem)),
            variant=variant,
            sweep=plan.sweep,
            session=self.session.id,
            time=self.finished,
            status=status,
            result=result,
            **more,
        )

    def _records(self, plan: Plan, task: Any, measured: Fields) -> Iterator[Record]:
        shared = {
            name: measured[name]
            for name in ("check", "device", "observations", "copy_us", "built")
        }
        shared |= {"transient": True} if measured.get("transient") else {}
        for regime in plan.regimes_of(task):
            timed = measured["regimes"].get(regime)
            if timed and task.baseline:
                timed = {**timed, "reference": task.reference.variant}
            status = measured["status"]
            reason = measured["reason"] or ""
            if timed is None and status == "ok":
                status = "unsupported"
                reason = "warm is for kernels below 200 us"
            yield self._record(
                plan,
                task.cell.in_regime(regime),
                tree_conditions(plan, task, regime),
                task.variant,
                {**(timed or {}), **shared},
                status,
                reason=reason,
                limit_s=measured.get("limit_s"),
            )

    def _chosen(self, plan: Plan, choice: Cell) -> Record:
        """The record of a choice between libraries."""
        libraries = choice.reference.libraries
        times = {name: 100.0 + 5 * place for place, name in enumerate(libraries)}
        times |= self.libraries_us or {}
        times = {name: times[name] for name in libraries}
        timed = [
            {"reference": name, "algorithm": "", "us": [us] * 12}
            for name, us in times.items()
        ]
        result = {
            "candidates": timed,
            "references": times,
            **decide(timed),
            "notes": [],
            "stopped_by": "precision",
            "clock": "events",
            "check": {"max_error": 1e-6, "error_bound": 1e-5},
        }
        tree = choice_conditions(plan, choice)
        return self._record(plan, choice, tree, " or ".join(libraries), result)

    def _counted(self, plan: Plan, task: Any, metrics: list[Fields]) -> Record:
        tree = tree_conditions(plan, task, COUNTERS)
        cell = task.cell.in_regime(COUNTERS)
        timed = self._record(plan, cell, tree, task.variant, {"observations": metrics})
        return replace(timed, conditions=Conditions(tree, {**self.host, "ncu": NCU}))

    def on(self, problem: str) -> dict[str, str]:
        return host_conditions(problem, self.host["gpu"], self.host["driver"])

    def view(self, name: str, records: Records | None = None) -> PlanRecords:
        """The records of a sweep: those of the run, unless they were read before."""
        known = read_store(self.folder.records) if records is None else records
        return PlanRecords(read_plan(self.folder.plan(name)), known)

    def frames(self, name: str, records: Records | None = None) -> Fields:
        view = self.view(name, records)
        return collect_sweep(view, *accounts_of(self.folder, view.plan.sweep))

    def update(self, name: str, **fields: object) -> None:
        path = self.project.sweeps / f"{name}.yaml"
        edit_yaml(path, lambda sweep: sweep.update(fields))

    def record_and_collect(
        self, names: list[str] | None = None, *more: Any, **options: Any
    ) -> None:
        self.record(names, *more, **options)
        self.collect(names)

    def collect(self, names: list[str] | None = None) -> None:
        """Records to tables, all tables joined, and the environment that follows from the records."""
        records = read_store(self.folder.records)
        parts = {name: self.frames(name, records) for name in self.sweeps(names)}
        tables.write(merge(parts), self.folder.tables)
        write_json(self.folder.environment, self.environment(records))

    def collected(self) -> list[str]:
        """The run's folder and its measured sweeps, as steps take them."""
        there = [name for name in self.sweeps() if self.folder.sweep(name).is_dir()]
        return [str(self.folder.root), *there]

    def write_environment(self, **over: Any) -> None:
        """environment.json, with some of it replaced."""
        write_json(self.folder.environment, self.environment() | over)

    def environment(self, records: Records | None = None) -> Fields:
        """What environment.json says, of the records of the run, unless they were read before."""
        store = read_store(self.folder.records) if records is None else records
        here = HERE | {"device": self.device, "arch": self.arch}
        return here | measured_on(
            store, pd.DataFrame({"session": list(store.sessions)})
        )

    def plans(self) -> dict[str, Plan]:
        return {
            path.stem: read_plan(path)
            for path in sorted((self.folder.root / "plans").glob("*.json"))
        }


def make_facts(variant: Variant) -> Fields:
    """Facts as the compiler writes them."""
    params = variant.params
    radius = int(params.get("radius", 0))
    coarsen = int(params.get("coarsen", 1))
    spills = 64 if radius >= 12 and coarsen == 8 else 0
    return {
        "variant": variant.id,
        "kernel": variant.kernel.name,
        "params": dict(params),
        "dtype": variant.dtype,
        "layout": variant.layout,
        "arch": "sm_90a",
        "entry": "kernel",
        "cubin": variant.id,
        "status": "ok",
        "reason": None,
        "registers": 32 + 4 * radius + 4 * coarsen,
        "shared_bytes_static": 8192,
        "shared_bytes_dynamic": 0,
        "local_bytes": spills,
        "spill_store_bytes": spills,
        "spill_load_bytes": spills,
        "threads_per_block": 256,
        "blocks_per_sm": 2,
        "occupancy": 0.25,
        "occupancy_limit": "registers",
        "compile_s": 0.2,
        "instructions": 900,
        "ffma": 512,
        "lds_32": 0 if params.get("transpose_a") else 128,
        "lds_128": 32 if params.get("transpose_a") else 16,
        "source_sha256": "a" * 64,
        "cubin_sha256": f"{variant.id:x<64}"[:64],
        # As with a compiler, what the code says and not what the variant is called.
        "machine_code": digest_json(
            [variant.kernel.name, dict(params), variant.dtype, variant.layout]
        ),
        "nvrtc": "13.0",
    }


def make_record(
    sweep: Sweep,
    place: Place,
    speedup: float,
    reference_us: float,
    random_numbers: random.Random,
) -> Fields:
    """What was measured of a variant at a size: a result a regime, and what they share."""
    variant = place.variant
    against = sweep.reference.variant_for(variant)
    name = against.id if against is not None else sweep.reference.libraries[0]
    regimes = {}
    for regime in sweep.regimes if reference_us < 200 else sweep.regimes[:1]:
        scale = 0.93 if regime == "warm" else 1.0
        own = [
            reference_us / speedup * scale * random_numbers.gauss(1, 0.002)
            for _ in range(20)
        ]
        theirs = [
            reference_us * scale * random_numbers.gauss(1, 0.002) for _ in range(20)
        ]
        regimes[regime] = {
            "variant_us": own,
            "reference_us": theirs,
            "reference": name,
            "speedup": speedup,
            "speedup_low": speedup * 0.998,
            "speedup_high": speedup * 1.002,
            "stopped_by": "precision",
        }
    record: Fields = {
        "status": "ok",
        "reason": None,
        "check": {"max_error": 1e-6, "error_bound": 1e-5},
        "regimes": regimes,
        "copy_us": 503.0 if sweep.problem.name == "stencil" else None,
        "device": {
            "sm_clock_mhz": 1980,
            "power_w": 500.0,
            "temperature_c": 50,
            "clock_events": [],
            "busy": False,
        },
        "observations": [],
        "built": {
            "source_sha256": "a" * 64,
            "cubin_sha256": f"{variant.id:x<64}"[:64],
            "nvrtc": "13.0",
        },
    }
    if sweep.problem.name == "banks":
        degree = conflict_degree(int(variant.params.get("stride", 1)))
        record["observations"] = [
            {"metric": "cycles_per_access", "unit": "cycles", "value": degree * 1.01},
            {"metric": "predicted_wavefronts", "unit": "wavefronts", "value": degree},
        ]
    return record


def over(record: Fields, speedup: float) -> Fields:
    """The same, timed against something that is so much faster than the reference."""
    for regime in record["regimes"].values():
        for name in ENDS:
            regime[name] /= speedup
    return record


def slowed(record: Fields, times: float) -> Fields:
    """The same, of a kernel that takes so many times as long."""
    for regime in record["regimes"].values():
        regime["variant_us"] = [us * times for us in regime["variant_us"]]
    return over(record, times)


def failed(status: str, reason: str) -> Callable[[Fields], Fields]:
    """Turn a record into one of a failed cell."""

    def change(record: Fields) -> Fields:
        return record | {"status": status, "reason": reason, "regimes": {}}

    return change


def make_profile(place: Place) -> list[Fields]:
    """What the profiler counted, with ncu's names."""
    degree = conflict_degree(int(place.variant.params.get("stride", 1)))
    requests = 1_000_000
    wavefronts = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
    return [
        {"metric": wavefronts, "unit": "", "value": degree * requests},
        {
            "metric": "smsp__inst_executed_op_shared_ld.sum",
            "unit": "inst",
            "value": requests,
        },
    ]


def make_job(cells: int) -> Fields:
    """job.json of a measuring job."""
    return {
        "cells": cells,
        "kept": 0,
        "measured": cells,
        "wall_s": 100.0,
        "gpu_s": 83.0,
        "check_s": 8.3,
        "worker_starts": 1,
        "started": "2026-11-20T10:00:00Z",
        "finished": "2026-11-20T10:01:40Z",
    }

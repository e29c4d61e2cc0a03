"""A small project with synthetic raw records: what measuring a catalogue like the real one leaves behind.

The numbers follow simple models (a speed per rung, gcd for bank conflicts), with seeded noise, so that
tests can state what the tables must say. Nothing here is compiled or launched.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from ladder.catalog import Variant, load_catalog
from ladder.collect import collect_sweep, merge, read_json, write_tables
from ladder.config import Config, load_config
from ladder.layout import Project, RunFolder
from ladder.plan import plan_sweep, write_plan
from ladder.sweeps import Cell, Sweep, load_sweeps

DEVICE = "nvidia-h200"
CUBLAS_TFLOPS = {"fp32": 51.4, "fp16": 750.0}
SPEED = {
    "gemm_naive": 0.09,
    "gemm_shared_tile": 0.16,
    "gemm_register_tile": 0.66,
    "wmma_naive": 0.08,
    "wmma_tile": 0.31,
}


def _axis(*values: int | str, default: int | str | None = None) -> dict[str, Any]:
    return {
        "values": list(values),
        "default": values[0] if default is None else default,
        "description": "an axis",
    }


def _kernel(problem: str, dtypes: list[str], parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    pointer = {"gemm": "c", "banks": "cycles", "stencil": "output"}[problem]
    return {
        "summary": f"a {problem} kernel of the tests",
        "problem": problem,
        "rows": [],
        "origin": ["tests"],
        "entry": "kernel",
        "dtypes": {dtype: {} for dtype in dtypes},
        "min_arch": "sm_80",
        "parameters": parameters,
        "launch": {"grid": [1], "block": [32]},
        "arguments": [{"pointer": pointer}],
    } | more


KERNELS = {
    "gemm_naive": _kernel("gemm", ["fp32"], {"mapping": _axis("row", "column")}),
    "gemm_shared_tile": _kernel("gemm", ["fp32"], {}),
    "gemm_register_tile": _kernel(
        "gemm",
        ["fp32"],
        {"bm": _axis(64, 128, default=128), "bk": _axis(8, 16), "transpose_a": _axis(0, 1, default=1)},
        sizes=[{"expr": "m % bm == 0", "reason": "M must be a multiple of BM"}],
    ),
    "wmma_naive": _kernel("gemm", ["fp16"], {}),
    "wmma_tile": _kernel("gemm", ["fp16"], {"warps": _axis(2, 4)}),
    "bank_stride": _kernel("banks", ["int32"], {"stride": _axis(*range(1, 34)), "warps": _axis(1, 8)}),
    "bank_column": _kernel(
        "banks", ["int32"], {"layout": _axis("plain", "padded", "xor"), "warps": _axis(1, 8)}
    ),
    "stencil_shared": _kernel(
        "stencil", ["int32"], {"k": _axis(2, 4, 8, 12, 16, 24, 32), "coarsen": _axis(1, 2, 4, 8)}
    ),
    "stencil_register_cache": _kernel(
        "stencil", ["int32"], {"k": _axis(2, 4, 8, 12, 16, 24, 32), "coarsen": _axis(1, 2, 4, 8)}
    ),
}

SWEEPS: dict[str, dict[str, Any]] = {
    "fp32_ladder": {
        "title": "The FP32 ladder",
        "question": "What does each rung buy?",
        "problem": "gemm",
        "dtypes": ["fp32"],
        "sizes": [512, 1024, 2048, 4096, 8192],
        "variants": [
            {
                "kernel": "gemm_naive",
                "params": {"mapping": "column"},
                "rung": "naive",
                "technique": "uncoalesced",
            },
            {"kernel": "gemm_naive", "rung": "coalesced", "technique": "lanes walk along a row"},
            {
                "kernel": "gemm_shared_tile",
                "rung": "shared tile",
                "technique": "32x32 tiles in shared memory",
            },
            {
                "kernel": "gemm_register_tile",
                "params": {"transpose_a": 0},
                "rung": "register tile",
                "technique": "8x8 outputs per thread",
            },
            {"kernel": "gemm_register_tile", "rung": "transposed A", "technique": "LDS.128 fragments"},
        ],
        "references": ["cublas"],
        "counters": {"groups": ["banks"], "sizes": [4096]},
        "figures": [
            {"kind": "ladder", "caption": "Speed of each rung relative to cuBLAS.", "at": 4096},
            {"kind": "curves", "caption": "Speed over the size."},
            {"kind": "roofline", "caption": "Roofline.", "at": 4096},
        ],
    },
    "fp32_transpose": {
        "title": "Transposing A",
        "question": "Does the transposed store pay?",
        "problem": "gemm",
        "dtypes": ["fp32"],
        "sizes": [1024, 4096],
        "variants": [
            {
                "kernel": "gemm_register_tile",
                "params": {"bm": [64, 128], "bk": [8, 16], "transpose_a": 1},
            }
        ],
        "references": [{"kernel": "gemm_register_tile", "params": {"transpose_a": 0}}],
        "figures": [
            {"kind": "heatmap", "caption": "Gain by tile.", "x": "bm", "y": "bk", "at": 4096},
        ],
    },
    "tensor_ladder": {
        "title": "Tensor cores",
        "question": "How far does WMMA go?",
        "problem": "gemm",
        "dtypes": ["fp16"],
        "sizes": [4096],
        "variants": [
            {"kernel": "wmma_naive", "rung": "WMMA naive", "technique": "fragments from global memory"},
            {"kernel": "wmma_tile", "rung": "WMMA tile", "technique": "shared tile and warp tile"},
        ],
        "references": ["cublas"],
        "figures": [{"kind": "ladder", "caption": "WMMA against cuBLAS."}],
    },
    "bank_stride": {
        "title": "Bank conflicts by stride",
        "question": "Is the degree of a conflict gcd(stride, 32)?",
        "problem": "banks",
        "dtypes": ["int32"],
        "sizes": [1024],
        "variants": [{"kernel": "bank_stride", "params": {"stride": list(range(1, 34))}}],
        "references": [{"kernel": "bank_stride", "params": {"stride": 1}}],
        "regimes": ["cold"],
        "counters": {"groups": ["banks"]},
        "figures": [{"kind": "banks", "caption": "Three views of a conflict.", "x": "stride"}],
    },
    "stencil_reach": {
        "title": "Register cache",
        "question": "Does the register cache beat shared memory?",
        "problem": "stencil",
        "dtypes": ["int32"],
        "sizes": ["2**28"],
        "variants": [
            {"kernel": "stencil_shared", "params": {"k": [2, 4, 8, 12, 16, 24, 32]}},
            {
                "kernel": "stencil_register_cache",
                "params": {"k": [2, 4, 8, 12, 16, 24, 32], "coarsen": [1, 2, 4, 8]},
            },
        ],
        "references": [{"kernel": "stencil_shared", "params": {"coarsen": 1}}],
        "figures": [
            {"kind": "stencil", "caption": "Speed-up over shared memory.", "x": "k", "hue": "coarsen"}
        ],
    },
}

ENVIRONMENT: dict[str, Any] = {
    "device": DEVICE,
    "gpu": {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "architecture": "sm_90",
        "sms": 132,
        "memory_bytes": 150_000_000_000,
        "l2_bytes": 62_914_560,
        "sm_clock_max_mhz": 1980,
        "power_limit_w": 700.0,
        "fp32_peak_tflops": 66.9,
        "tensor_peak_tflops": {"fp16": 989.4},
        "copy_gbytes_per_s": 4270.0,
    },
    "driver": "580.95",
    "cuda": "13.0",
    "nvrtc": "13.0",
    "cublas": "13.1",
    "ncu": "2025.3.1",
    "python": "3.11.2",
    "packages": {"cuda-core": "1.2.2"},
    "host": {"cpu": "a CPU", "cores": 16, "memory_bytes": 1 << 37},
    "started": "2026-11-20T10:00:00Z",
    "finished": "2026-11-20T10:20:00Z",
    "tree": {"digest": "d" * 64, "commit": "c" * 40, "clean": True},
    "timings_from": "measured",
}


def conflict_degree(stride: int) -> int:
    """Distinct words of 32 lanes that fall into the fullest of 32 banks."""
    words = {lane * stride for lane in range(32)}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


def true_speedup(variant: Variant, size: dict[str, int]) -> float:
    """The speed-up the synthetic device shows for a variant."""
    params, name = variant.params, variant.kernel.name
    if variant.kernel.problem == "banks":
        return 1 / conflict_degree(int(params.get("stride", 1)))
    if variant.kernel.problem == "stencil":
        k, coarsen = int(params["k"]), int(params["coarsen"])
        if name == "stencil_shared":
            return 1.0
        spill = 0.5 if k >= 24 and coarsen == 8 else 1.0
        return spill * (1.05 - 0.014 * (k - 2)) * (1 + 0.12 * math.log2(coarsen))
    speed = SPEED[name] * (0.7 if size["m"] < 1024 else 1.0)
    if params.get("mapping") == "column":
        speed /= 6
    if name == "gemm_register_tile":
        speed *= 1.0 if params["transpose_a"] else 0.8
        speed *= {64: 0.93, 128: 1.0}[int(params["bm"])] * {8: 1.0, 16: 1.02}[int(params["bk"])]
    return speed


@dataclass
class Lab:
    """A project folder and a run folder to fill with records; hooks change single cells before writing."""

    root: Path
    run: str = "main"
    device: str = DEVICE
    environment: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(ENVIRONMENT)))
    seed: int = 7

    def __post_init__(self) -> None:
        self.project = Project(self.root)
        for name, document in KERNELS.items():
            self._write(self.project.kernels / f"{name}.yaml", document)
            (self.project.kernels / f"{name}.cu").write_text("// the tests compile nothing\n")
        for name, document in SWEEPS.items():
            self._write(self.project.sweeps / f"{name}.yaml", document)

    @staticmethod
    def _write(path: Path, document: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(document, sort_keys=False))

    @property
    def folder(self) -> RunFolder:
        return self.project.run(self.run, self.device)

    def sweeps(self, names: list[str] | None = None) -> dict[str, Sweep]:
        return load_sweeps(self.project.sweeps, load_catalog(self.project.kernels), names)

    def config(self) -> Config:
        path = Path(__file__).parents[1] / "config" / "config.yaml"
        return load_config(path)

    def record(
        self,
        names: list[str] | None = None,
        change: Callable[[Cell, dict[str, Any]], dict[str, Any] | None] = lambda _, record: record,
        facts: Callable[[Variant, dict[str, Any]], dict[str, Any]] = lambda _, given: given,
        metrics: bool = True,
    ) -> None:
        """Write plans, facts, cells, profiles and jobs; `change` may alter a record or drop it (None)."""
        random_numbers = random.Random(self.seed)
        self.folder.environment.parent.mkdir(parents=True, exist_ok=True)
        self.folder.environment.write_text(json.dumps(self.environment))
        for name, sweep in self.sweeps(names).items():
            write_plan(plan_sweep(sweep, self.config(), "sm_90a"), self.folder.plan(name))
            for variant in sweep.variants:
                path = self.folder.facts(variant.id)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(facts(variant, make_facts(variant))))
            lines = []
            for cell in sweep.cells():
                if cell.unsupported is None:
                    record = change(cell, make_record(sweep, cell, random_numbers))
                    if record is not None:
                        lines.append(json.dumps(record))
            folder = self.folder.sweep(name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cells.jsonl").write_text("".join(line + "\n" for line in lines))
            (folder / "job.json").write_text(json.dumps(make_job(len(lines))))
            if metrics and sweep.counter_groups:
                profiles = [
                    json.dumps(make_profile(cell))
                    for cell in sweep.cells()
                    if cell.size in sweep.counter_sizes and cell.variant in sweep.counter_variants
                ]
            else:
                profiles = [json.dumps({"note": {"subject": "ncu", "reason": "ncu was not found"}})]
            (folder / "profile.jsonl").write_text("".join(line + "\n" for line in profiles))

    def collect(self, names: list[str] | None = None) -> None:
        """Raw records to tables, and all tables joined."""
        sweeps = self.sweeps(names)
        for name, sweep in sweeps.items():
            plan = read_json(self.folder.plan(name))
            assert plan is not None
            frames = collect_sweep(sweep, plan, self.folder, read_json(self.folder.environment))
            write_tables(frames, self.folder.sweep(name))
        write_tables(merge(self.folder, list(sweeps)), self.folder.tables)


def make_facts(variant: Variant) -> dict[str, Any]:
    """Facts as the compiler writes them."""
    params = variant.params
    k, coarsen = int(params.get("k", 0)), int(params.get("coarsen", 1))
    spills = 64 if k >= 24 and coarsen == 8 else 0
    return {
        "variant": variant.id,
        "kernel": variant.kernel.name,
        "params": dict(params),
        "dtype": variant.dtype,
        "layout": variant.layout,
        "arch": "sm_90a",
        "entry": "kernel",
        "status": "ok",
        "reason": None,
        "registers": 32 + 2 * k + 4 * coarsen,
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
        "nvrtc": "13.0",
    }


def make_record(sweep: Sweep, cell: Cell, random_numbers: random.Random) -> dict[str, Any]:
    """One line of cells.jsonl."""
    variant, size = cell.variant, dict(cell.size)
    speedup = true_speedup(variant, size)
    if sweep.name == "fp32_transpose":
        speedup = 1.25
    if sweep.problem.name == "gemm":
        work = sweep.problem.work(size, variant.dtype, variant.params)
        reference_us = work.operations / CUBLAS_TFLOPS[variant.dtype] / 1e6
    else:
        reference_us = {"banks": 40.0, "stencil": 600.0}[sweep.problem.name]
    reference = sweep.references[0]
    name = reference.library or reference.variant_for(variant).id
    regimes = {}
    for regime in sweep.regimes if reference_us < 200 else sweep.regimes[:1]:
        scale = 1.0 if regime == "cold" else 0.93
        own = [reference_us / speedup * scale * random_numbers.gauss(1, 0.002) for _ in range(20)]
        theirs = [reference_us * scale * random_numbers.gauss(1, 0.002) for _ in range(20)]
        regimes[regime] = {
            "variant_us": own,
            "reference_us": theirs,
            "reference": name,
            "speedup": speedup,
            "speedup_low": speedup * 0.998,
            "speedup_high": speedup * 1.002,
            "stopped_by": "precision",
        }
    record: dict[str, Any] = {
        "key": f"key of {variant.id} {size}",
        "variant": variant.id,
        "kernel": variant.kernel.name,
        "dtype": variant.dtype,
        "layout": variant.layout,
        "size": size,
        "status": "ok",
        "reason": None,
        "check": {"max_error": 1e-6, "error_bound": 1e-5, "detail": ""},
        "regimes": regimes,
        "copy_us": 503.0 if sweep.problem.name == "stencil" else None,
        "device": {
            "sm_clock_mhz": 1980,
            "power_w": 500.0,
            "temperature_c": 50,
            "throttled": False,
            "busy": False,
        },
        "observations": [],
        "gpu_s": 0.3,
        "wall_s": 0.35,
    }
    if sweep.problem.name == "banks":
        degree = conflict_degree(int(variant.params.get("stride", 1)))
        record["observations"] = [
            {"metric": "cycles_per_access", "unit": "cycles", "value": degree * 1.01},
            {"metric": "predicted_wavefronts", "unit": "wavefronts", "value": degree},
        ]
    return record


def failed(status: str, reason: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Turn a record into one of a failed cell."""

    def change(record: dict[str, Any]) -> dict[str, Any]:
        return record | {"status": status, "reason": reason, "regimes": {}}

    return change


def make_profile(cell: Cell) -> dict[str, Any]:
    """One line of profile.jsonl, with ncu's names."""
    degree = conflict_degree(int(cell.variant.params.get("stride", 1)))
    requests = 1_000_000
    return {
        "key": "k",
        "variant": cell.variant.id,
        "size": dict(cell.size),
        "dtype": cell.variant.dtype,
        "metrics": [
            {
                "metric": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
                "unit": "",
                "value": degree * requests,
            },
            {"metric": "smsp__inst_executed_op_shared_ld.sum", "unit": "inst", "value": requests},
        ],
    }


def make_job(cells: int) -> dict[str, Any]:
    """job.json of a measuring job."""
    return {
        "cells": cells,
        "kept": 0,
        "measured": cells,
        "wall_s": 100.0,
        "gpu_s": 83.0,
        "worker_starts": 1,
        "started": "2026-11-20T10:00:00Z",
        "finished": "2026-11-20T10:01:40Z",
    }

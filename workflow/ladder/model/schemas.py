"""The columns of every table, in one place.

Kinds: `text`, `float`, `int` (nullable), `bool` (nullable). Units stand in the names; `share` columns are 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping

REGIMES = ("cold", "dirty", "warm")
"""cold: the L2 holds none of a kernel's data, and nothing that has yet to be written to memory. dirty: flushed by a
memset, whose lines have yet to be written, as NVBench does it. warm: back to back in a CUDA graph."""

STATUSES = ("ok", "compile_error", "unsupported", "launch_error", "incorrect", "timeout")
"""What can become of a cell. `unmeasured` cells have no row."""

VERDICTS = ("holds", "refuted", "inconclusive", "not measured")

TIMINGS = {
    "sweep": "text",
    "problem": "text",
    "kernel": "text",
    "variant": "text",
    "rung": "text",
    "params": "text",
    "dtype": "text",
    "layout": "text",
    "m": "int",
    "n": "int",
    "k": "int",
    "elements": "int",
    "taps": "int",
    "status": "text",
    "reason": "text",
    "samples": "int",
    "regime": "text",
    "median_us": "float",
    "median_us_low": "float",
    "median_us_high": "float",
    "cv": "float",
    "reference": "text",
    "reference_median_us": "float",
    "speedup": "float",
    "speedup_low": "float",
    "speedup_high": "float",
    "stopped_by": "text",
    "tflops": "float",
    "peak_fraction": "float",
    "gbytes_per_s": "float",
    "copy_fraction": "float",
    "sm_clock_mhz": "float",
    "power_w": "float",
    "temperature_c": "float",
    "throttled": "bool",
    "busy": "bool",
    "max_error": "float",
    "error_bound": "float",
    "source_sha256": "text",
    "cubin_sha256": "text",
}

RESOURCES = {
    "kernel": "text",
    "variant": "text",
    "params": "text",
    "dtype": "text",
    "layout": "text",
    "arch": "text",
    "status": "text",
    "reason": "text",
    "registers": "int",
    "shared_bytes_static": "int",
    "shared_bytes_dynamic": "int",
    "local_bytes": "int",
    "spill_store_bytes": "int",
    "spill_load_bytes": "int",
    "threads_per_block": "int",
    "blocks_per_sm": "int",
    "occupancy": "float",
    "occupancy_limit": "text",
    "compile_s": "float",
    "instructions": "int",
    "ffma": "int",
    "hmma": "int",
    "hgmma": "int",
    "lds_32": "int",
    "lds_64": "int",
    "lds_128": "int",
    "ldsm": "int",
    "sts": "int",
    "ldg": "int",
    "stg": "int",
    "ldgsts": "int",
    "utmaldg": "int",
    "shfl": "int",
    "bar": "int",
    "ldl": "int",
    "stl": "int",
    "source_sha256": "text",
    "cubin_sha256": "text",
}

SESSIONS = {
    "sweep": "text",
    "variant": "text",
    "dtype": "text",
    "layout": "text",
    "m": "int",
    "n": "int",
    "k": "int",
    "elements": "int",
    "taps": "int",
    "regime": "text",
    "session": "text",
    "gpu_uuid": "text",
    "started": "text",
    "commit": "text",
    "reference": "text",
    "algorithm": "text",
    "median_us": "float",
    "reference_median_us": "float",
    "speedup": "float",
    "speedup_low": "float",
    "speedup_high": "float",
    "samples": "int",
    "sm_clock_mhz": "float",
    "power_w": "float",
}
"""One row per cell and measuring session: which GPU, when, and at which commit (else the digest of the tree)."""

METRICS = {
    "sweep": "text",
    "variant": "text",
    "m": "int",
    "n": "int",
    "k": "int",
    "elements": "int",
    "taps": "int",
    "metric": "text",
    "unit": "text",
    "value": "float",
}

CLAIMS = {
    "id": "text",
    "source": "text",
    "statement": "text",
    "verdict": "text",
    "evidence": "text",
    "where": "text",
}

NOTES = {"sweep": "text", "stage": "text", "subject": "text", "reason": "text"}
"""What could not be had, and why: missing metrics, no profiler, a reference a library lacks."""

JOBS = {
    "sweep": "text",
    "cells": "int",
    "kept": "int",
    "measured": "int",
    "wall_s": "float",
    "gpu_s": "float",
    "gpu_share": "float",
    "worker_starts": "int",
    "started": "text",
    "finished": "text",
}
"""One row per measuring job: how much of its wall time the GPU worked."""

CLOCK_NVBENCH = {
    "subject": "text",
    "median_us": "float",
    "median_us_low": "float",
    "median_us_high": "float",
    "nvbench_us": "float",
    "nvbench_noise": "float",
    "difference": "float",
}
"""Our cold median against NVBench's of the same kernel: difference = ours / NVBench - 1."""

CLOCK_AA = {
    "trial": "int",
    "subject": "text",
    "samples": "int",
    "speedup": "float",
    "speedup_low": "float",
    "speedup_high": "float",
    "covers": "bool",
}
"""A kernel against itself: `covers` says whether the interval holds 1.0."""

SCHEMAS: dict[str, Mapping[str, str]] = {
    "timings": TIMINGS,
    "sessions": SESSIONS,
    "resources": RESOURCES,
    "metrics": METRICS,
    "claims": CLAIMS,
    "notes": NOTES,
    "jobs": JOBS,
    "clock_nvbench": CLOCK_NVBENCH,
    "clock_aa": CLOCK_AA,
}

SWEEP_TABLES = ("timings", "sessions", "metrics", "resources", "notes", "jobs")
"""Tables that are made sweep by sweep."""

SIZE_COLUMNS = ("m", "n", "k", "elements")

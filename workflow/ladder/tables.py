"""The schemas of every table, in one place, and reading and writing them as CSV with parquet beside it.

Column kinds: `text`, `float`, `int` (nullable), `bool` (nullable). Units stand in the names; `share` columns are 0..1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.errors import LadderError

if TYPE_CHECKING:
    import pandas as pd

REGIMES = ("cold", "clean", "warm")
STATUSES = ("ok", "compile_error", "unsupported", "launch_error", "incorrect", "timeout")
"""What can become of a cell. `unmeasured` cells have no row."""

VERDICTS = ("holds", "refuted", "inconclusive", "not measured")

_PANDAS_KINDS = {"text": "string", "float": "float64", "int": "Int64", "bool": "boolean"}

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
    "resources": RESOURCES,
    "metrics": METRICS,
    "claims": CLAIMS,
    "notes": NOTES,
    "jobs": JOBS,
    "clock_nvbench": CLOCK_NVBENCH,
    "clock_aa": CLOCK_AA,
}

SIZE_COLUMNS = ("m", "n", "k", "elements")


def frame(table: str, rows: list[dict[str, object]]) -> pd.DataFrame:
    """A frame of `table`'s schema from rows; absent columns are empty. A column the schema lacks is a KeyError."""
    import pandas as pd

    columns = SCHEMAS[table]
    for row in rows:
        if extra := set(row) - set(columns):
            raise KeyError(f"{table} has no column {sorted(extra)}")
    return pd.DataFrame(
        {
            name: pd.Series([row.get(name) for row in rows], dtype=_PANDAS_KINDS[kind])
            for name, kind in columns.items()
        }
    )


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` so that a reader sees either the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def write(table: str, data: pd.DataFrame, folder: Path) -> None:
    """Write `folder`/TABLE.csv and TABLE.parquet, each replaced atomically."""
    import io

    ordered = data[list(SCHEMAS[table])]
    replace_file(folder / f"{table}.csv", ordered.to_csv(index=False, float_format="%.7g").encode("utf-8"))
    buffer = io.BytesIO()
    ordered.to_parquet(buffer, index=False)
    replace_file(folder / f"{table}.parquet", buffer.getvalue())


def read(table: str, folder: Path) -> pd.DataFrame:
    """Read `folder`/TABLE.csv. Raises LadderError where it is missing or its columns are not the schema's."""
    import pandas as pd

    path = folder / f"{table}.csv"
    columns = SCHEMAS[table]
    if not path.is_file():
        raise LadderError(f"{path}: the table is missing")
    header = path.read_text(encoding="utf-8").split("\n", 1)[0].split(",")
    if header != list(columns):
        differing = sorted(set(header) ^ set(columns)) or ["their order"]
        raise LadderError(f"{path}: the columns are not those of {table}: {', '.join(differing)}")
    kinds = {name: _PANDAS_KINDS[kind] for name, kind in columns.items()}
    return pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=[""])

"""The published tables of the first release as records, with what is known of them: medians, but no raw times or
session.

Their `cold` is what is `dirty` now, and their `clean` what is `cold` now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.measure.store import Records
from ladder.model.cell import COUNTERS, Cell, Reference
from ladder.model.errors import LadderError
from ladder.model.files import read_json
from ladder.model.record import Conditions, Record, Session
from ladder.model.sweep import Sweep
from ladder.results.statistics import params_of, records as rows_of, size_of

_REGIMES = {"cold": "dirty", "clean": "cold", "warm": "warm"}
_OWN = ("accesses", "cycles_per_access", "predicted_wavefronts")
"""Metrics that a kernel reported about itself; the others are the profiler's."""
_PLANNED = ("unsupported", "compile_error")
"""Statuses that follow from the documents and the compiler: there is nothing to record."""
NOTE = "imported from published tables: the session and the GPU are not known, raw times were not kept"


def _session(environment: Mapping[str, Any]) -> Session:
    """All that the environment of a run says of its sessions. Two GPUs stood under one UUID, so none is named."""
    started = str(environment["started"])
    versions = {name: environment.get(name) for name in ("driver", "cublas", "python", "packages", "nvrtc", "ncu")}
    return Session(
        id=f"imported-{started.replace('-', '').replace(':', '')}",
        started=started,
        gpu={name: value for name, value in environment["gpu"].items() if name != "uuid"},
        host=environment.get("host") or {},
        versions=versions,
        tree=environment.get("tree") or {},
        note=NOTE,
    )


def _known(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Columns of a row under other names, as far as they hold something."""
    found = {new: row.get(old) for new, old in names.items()}
    return {name: value for name, value in found.items() if value is not None and not pd.isna(value)}


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _result(row: Mapping[str, Any]) -> dict[str, Any]:
    summary = _same("samples", "median_us", "median_us_low", "median_us_high", "cv", "reference_median_us")
    result = {
        "summary": _known(row, summary),
        **_known(row, _same("reference", "speedup", "speedup_low", "speedup_high", "stopped_by")),
        "check": _known(row, _same("max_error", "error_bound")),
        "device": _known(row, _same("sm_clock_mhz", "power_w", "temperature_c", "throttled", "busy")),
        "built": _known(row, _same("source_sha256", "cubin_sha256")),
    }
    fraction = row.get("copy_fraction")
    copied = {} if fraction is None or pd.isna(fraction) else {"copy_us": fraction * row["median_us"]}
    return result | copied


def _reference(row: Mapping[str, Any], sweep: Sweep | None, resources: Mapping[str, Any]) -> Reference:
    name = row.get("reference")
    if (given := resources.get(str(name))) is not None:
        return Reference(kernel=given["kernel"], params=params_of(given["params"]))
    return Reference(libraries=sweep.reference.libraries if sweep else (str(name),))


def import_tables(folder: Path, sweeps: Mapping[str, Sweep]) -> Records:
    """Records of the published tables in `folder`; `sweeps` say which libraries their references were chosen from.

    Raises LadderError where the folder holds no such tables.
    """
    environment = read_json(folder / "environment.json")
    if environment is None or not (folder / "timings.csv").is_file():
        raise LadderError(f"{folder}: no timings.csv and environment.json of a published run in it")
    session = _session(environment)
    found = Records(sessions={session.id: session})
    text = {"layout": "string", "reason": "string"}
    frames = {name: rows_of(pd.read_csv(folder / f"{name}.csv", dtype=text)) for name in ("timings", "resources", "metrics")}
    resources = {row["variant"]: row for row in frames["resources"]}
    cells: dict[tuple[Any, ...], Cell] = {}
    observed: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in frames["metrics"]:
        place = (row["sweep"], row["variant"], *size_of(row).items())
        unit = "" if pd.isna(row["unit"]) else row["unit"]
        given = {"metric": row["metric"], "unit": unit, "value": row["value"]}
        observed.setdefault((row["metric"] in _OWN, *place), []).append(given)

    def add(cell: Cell, row: Mapping[str, Any], status: str, result: Mapping[str, Any]) -> None:
        reason = "" if pd.isna(row.get("reason")) else str(row["reason"])
        time = str(environment["finished"])
        known = (Conditions(), row["variant"], row["sweep"], session.id, time, status, reason)
        found.add(Record(cell, *known, result=result))

    for row in frames["timings"]:
        if row["status"] in _PLANNED:
            continue
        place, layout = (row["sweep"], row["variant"], *size_of(row).items()), row["layout"]
        reference = _reference(row, sweeps.get(row["sweep"]), resources)
        where = (json.loads(row["params"]), row["dtype"], "" if pd.isna(layout) else str(layout), size_of(row))
        cell = Cell(row["kernel"], *where, _REGIMES[row["regime"]], reference)
        first = place not in cells
        cells.setdefault(place, cell)
        own = {"observations": observed[True, *place]} if first and (True, *place) in observed else {}
        add(cell, row, row["status"], _result(row) | own)
        if first and (False, *place) in observed:
            add(cell.in_regime(COUNTERS), row, "ok", {"observations": observed[False, *place]})
    return found

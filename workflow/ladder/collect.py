"""From raw records of one sweep (plan, facts, cells.jsonl, profile.jsonl, job.json) to tidy tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ladder import tables
from ladder.catalog import Variant
from ladder.errors import LadderError, refuse
from ladder.intervals import median, median_interval
from ladder.layout import RunFolder
from ladder.statistics import coefficient_of_variation
from ladder.sweeps import Cell, Sweep

SWEEP_TABLES = ("timings", "metrics", "resources", "notes", "jobs")
CellKey = tuple[str, tuple[tuple[str, int], ...]]
Row = dict[str, object]


def cell_key(variant: str, size: Mapping[str, int]) -> CellKey:
    """What tells one cell of a sweep from another; the variant's name holds its dtype and layout."""
    return variant, tuple(sorted((name, int(value)) for name, value in size.items()))


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """JSON objects of a file of lines, and how many lines in its middle could not be read.

    A killed writer leaves a truncated last line; that is no damage, the cell is simply not there yet.
    """
    if not path.is_file():
        return [], 0
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found, broken = [], 0
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            broken += number < len(lines) - 1
            continue
        if isinstance(record, dict):
            found.append(record)
        else:
            broken += 1
    return found, broken


def read_json(path: Path) -> dict[str, Any] | None:
    """One JSON object, or None where the file is missing."""
    if not path.is_file():
        return None
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise LadderError(f"{path}: not valid JSON: {error}") from error
    return document


def read_facts(folder: RunFolder, variant: str) -> dict[str, Any]:
    """What compiling found out about a variant. Raises LadderError where it was not compiled."""
    facts = read_json(folder.facts(variant))
    if facts is None:
        raise LadderError(f"{folder.facts(variant)}: missing; compile the variant {variant} first")
    return facts


@dataclass
class Collector:
    """Rows of one sweep as they grow."""

    sweep: Sweep
    peaks: Mapping[str, float]
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in SWEEP_TABLES})

    def note(self, stage: str, subject: str, reason: str) -> None:
        """Something that could not be had, and why."""
        self.rows["notes"].append(
            {"sweep": self.sweep.name, "stage": stage, "subject": subject, "reason": reason}
        )

    def head(self, cell: Cell, facts: Mapping[str, Any]) -> Row:
        """The columns that say which cell a row is about."""
        variant = cell.variant
        return {
            "sweep": self.sweep.name,
            "problem": self.sweep.problem.name,
            "kernel": variant.kernel.name,
            "variant": variant.id,
            "rung": cell.entry.rung or None,
            "params": json.dumps(dict(variant.params)),
            "dtype": variant.dtype,
            "layout": variant.layout or None,
            **dict(cell.size),
            "taps": self.sweep.problem.taps(variant.params),
            "source_sha256": facts.get("source_sha256"),
            "cubin_sha256": facts.get("cubin_sha256"),
        }

    def failed(self, cell: Cell, facts: Mapping[str, Any], status: str, reason: str | None) -> Row:
        """A cell without a result has one row, under the sweep's first regime."""
        return self.head(cell, facts) | {
            "status": status,
            "reason": reason,
            "regime": self.sweep.regimes[0],
        }

    def measured(self, cell: Cell, facts: Mapping[str, Any], record: Mapping[str, Any]) -> Iterator[Row]:
        """Rows of a recorded cell: one a regime where it is ok. Raises LadderError for an unknown status."""
        if record["status"] not in tables.STATUSES:
            raise refuse("cells.jsonl", f"{cell.variant.id}: status", record["status"], tables.STATUSES)
        check, device = record.get("check") or {}, record.get("device") or {}
        common = {
            "max_error": check.get("max_error"),
            "error_bound": check.get("error_bound"),
            **{name: device.get(name) for name in ("sm_clock_mhz", "power_w", "temperature_c")},
            **{name: device.get(name) for name in ("throttled", "busy")},
        }
        regimes = record.get("regimes") or {}
        if record["status"] != "ok" or not regimes:
            reason = record.get("reason") or check.get("detail") or None
            yield self.failed(cell, facts, record["status"], reason) | common
            return
        for regime in sorted(regimes, key=tables.REGIMES.index):
            timed = self.timed(cell, regimes[regime], record.get("copy_us") if regime == "cold" else None)
            yield self.head(cell, facts) | common | timed | {"status": "ok", "regime": regime}

    def timed(self, cell: Cell, regime: Mapping[str, Any], copy_us: float | None) -> Row:
        """Times, ratios and rates of one regime; rates are the problem's work over the median time."""
        own = regime["variant_us"]
        middle = median(own)
        low, high = median_interval(own)
        variant = cell.variant
        work = self.sweep.problem.work(cell.size, variant.dtype, variant.params)
        # Integer additions are no floating-point operations: no TFLOP/s for them.
        floating = work.operations > 0 and not variant.dtype.startswith("int")
        tflops = work.operations / middle / 1e6 if floating else None
        peak = self.peaks.get(variant.dtype)
        return {
            "samples": len(own),
            "median_us": middle,
            "median_us_low": low,
            "median_us_high": high,
            "cv": coefficient_of_variation(own),
            "reference": regime.get("reference"),
            "reference_median_us": median(regime["reference_us"]) if regime.get("reference_us") else None,
            **{name: regime.get(name) for name in ("speedup", "speedup_low", "speedup_high", "stopped_by")},
            "tflops": tflops,
            "peak_fraction": tflops / peak if tflops and peak else None,
            "gbytes_per_s": work.bytes / middle / 1e3 if work.bytes > 0 else None,
            "copy_fraction": copy_us / middle if copy_us else None,
        }

    def metric(self, cell: Cell, given: Mapping[str, Any]) -> Row:
        """A row of metrics.csv."""
        return {
            "sweep": self.sweep.name,
            "variant": cell.variant.id,
            **dict(cell.size),
            "taps": self.sweep.problem.taps(cell.variant.params),
            "metric": given["metric"],
            "unit": given.get("unit"),
            "value": given["value"],
        }

    def resources(self, folder: RunFolder) -> None:
        """Rows of every compiled variant of the sweep, references included."""
        for variant in self.sweep.variants:
            self.rows["resources"].append(resource_row(variant, read_facts(folder, variant.id)))

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables collected so far."""
        return {name: tables.frame(name, rows) for name, rows in self.rows.items()}


def resource_row(variant: Variant, facts: Mapping[str, Any]) -> Row:
    """The row of resources.csv for one variant."""
    known = {name: facts.get(name) for name in tables.RESOURCES if name in facts}
    return known | {
        "kernel": variant.kernel.name,
        "variant": variant.id,
        "params": json.dumps(dict(variant.params)),
        "dtype": variant.dtype,
        "layout": variant.layout or None,
    }


def dtype_peaks(environment: Mapping[str, Any] | None) -> dict[str, float]:
    """Peak TFLOP/s by dtype, as far as the environment knows them."""
    gpu = (environment or {}).get("gpu") or {}
    peaks = {dtype: value for dtype, value in (gpu.get("tensor_peak_tflops") or {}).items() if value}
    if gpu.get("fp32_peak_tflops"):
        peaks["fp32"] = gpu["fp32_peak_tflops"]
    return peaks


def _collect_profile(
    collector: Collector, cells: Mapping[CellKey, Cell], written: list[dict[str, Any]]
) -> None:
    latest: dict[CellKey, dict[str, Any]] = {}
    for record in written:
        if "note" in record:
            collector.note("profile", str(record["note"].get("subject", "")), record["note"]["reason"])
        else:
            latest[cell_key(record["variant"], record["size"])] = record
    for key, record in latest.items():
        if key in cells:
            collector.rows["metrics"] += [collector.metric(cells[key], given) for given in record["metrics"]]


def collect_sweep(
    sweep: Sweep,
    plan: Mapping[str, Any],
    folder: RunFolder,
    environment: Mapping[str, Any] | None = None,
) -> dict[str, pd.DataFrame]:
    """Tables of one measured sweep, by name.

    Where a cell was recorded twice the later record counts. Raises LadderError where the plan is not its own.
    """
    cells = list(sweep.cells())
    planned = [cell_key(cell["variant"], cell["size"]) for cell in plan["cells"]]
    if planned != [cell_key(cell.variant.id, cell.size) for cell in cells]:
        raise LadderError(
            f"{folder.plan(sweep.name)}: not the plan of {sweep.path}; make it anew with `ladder plan`"
        )
    collector = Collector(sweep, dtype_peaks(environment))
    written, broken = read_lines(folder.cells(sweep.name))
    latest = {cell_key(record["variant"], record["size"]): record for record in written}
    facts = {variant.id: read_facts(folder, variant.id) for variant in sweep.variants}
    for cell, given, key in zip(cells, plan["cells"], planned, strict=True):
        own = facts.get(cell.variant.id, {})  # none of what a constraint excludes
        if own.get("status", "ok") != "ok":
            rows = [collector.failed(cell, own, own["status"], own.get("reason"))]
        elif "unsupported" in given:
            rows = [collector.failed(cell, own, "unsupported", given["unsupported"])]
        elif (record := latest.get(key)) is None:
            collector.note("measure", f"{key[0]} at {dict(cell.size)}", "not measured")
            continue
        else:
            rows = list(collector.measured(cell, own, record))
            for observation in record.get("observations") or ():
                collector.rows["metrics"].append(collector.metric(cell, observation))
        collector.rows["timings"] += rows
    profile, broken_profile = read_lines(folder.profile(sweep.name))
    _collect_profile(collector, dict(zip(planned, cells, strict=True)), profile)
    if broken or broken_profile:
        collector.note("collect", "raw records", f"{broken + broken_profile} unreadable lines were left out")
    job = read_json(folder.sweep(sweep.name) / "job.json")
    if job is not None:
        row: Row = {name: job.get(name) for name in tables.JOBS if name in job}
        share = job["gpu_s"] / job["wall_s"] if job.get("gpu_s") is not None and job.get("wall_s") else None
        collector.rows["jobs"].append(row | {"sweep": sweep.name, "gpu_share": share})
    collector.resources(folder)
    return collector.frames()


def write_tables(frames: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Write every frame as FOLDER/NAME.csv and .parquet."""
    for name, data in frames.items():
        tables.write(name, data, folder)


def merge(folder: RunFolder, sweeps: list[str]) -> dict[str, pd.DataFrame]:
    """Tables of all sweeps joined in the order given; a variant that several share has one resources row."""
    merged = {}
    for name in SWEEP_TABLES:
        parts = [tables.read(name, folder.sweep(sweep)) for sweep in sweeps]
        filled = [part for part in parts if len(part)] or parts[:1]
        data = pd.concat(filled, ignore_index=True) if filled else tables.frame(name, [])
        merged[name] = data.drop_duplicates("variant", ignore_index=True) if name == "resources" else data
    return merged

"""From records to the tidy tables of one sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ladder.measure.view import View
from ladder.model.cell import COUNTERS
from ladder.model.errors import refuse
from ladder.model.intervals import median, median_interval
from ladder.model.plan import Task
from ladder.model.record import Record
from ladder.model.schemas import SCHEMAS, STATUSES, SWEEP_TABLES
from ladder.problems.registry import PROBLEMS
from ladder.results import tables
from ladder.results.statistics import coefficient_of_variation

Row = dict[str, object]

_SHOWN_SESSION = 12
"""Letters of a digest that stand for a commit which is not known."""


def dtype_peaks(gpu: Mapping[str, Any]) -> dict[str, float]:
    """Peak TFLOP/s by dtype, as far as they are known of a GPU."""
    peaks = {dtype: value for dtype, value in (gpu.get("tensor_peak_tflops") or {}).items() if value}
    if gpu.get("fp32_peak_tflops"):
        peaks["fp32"] = gpu["fp32_peak_tflops"]
    return peaks


def times(result: Mapping[str, Any]) -> Row:
    """Median of a record's times with its interval, their spread, and the reference's median (us)."""
    if "variant_us" not in result:
        return dict(result.get("summary") or {})
    own = result["variant_us"]
    low, high = median_interval(own)
    return {
        "samples": len(own),
        "median_us": median(own),
        "median_us_low": low,
        "median_us_high": high,
        "cv": coefficient_of_variation(own),
        "reference_median_us": median(result["reference_us"]),
    }


def _throttled(device: Mapping[str, Any], share: float) -> bool | None:
    """Whether the SM clock lay by more than `share` below the one that the session began with."""
    if "throttled" in device:
        return bool(device["throttled"])
    clock, began = device.get("sm_clock_mhz"), device.get("start_clock_mhz")
    return clock < began * (1 - share) if clock and began else None


@dataclass
class Collector:
    """Rows of one sweep as they grow."""

    view: View
    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in SWEEP_TABLES})

    def __post_init__(self) -> None:
        self.plan = self.view.plan
        self.problem = PROBLEMS[self.plan.problem]

    def note(self, stage: str, subject: str, reason: str) -> None:
        """Something that could not be had, and why; said once."""
        row: Row = {"sweep": self.plan.sweep, "stage": stage, "subject": subject, "reason": reason}
        if row not in self.rows["notes"]:
            self.rows["notes"].append(row)

    def place(self, task: Task) -> Row:
        """The columns that say which task a row is about."""
        cell = task.cell
        place = {"sweep": self.plan.sweep, "variant": task.variant}
        return {**place, **cell.size, "taps": self.problem.taps(cell.params)}

    def head(self, task: Task, built: Mapping[str, Any]) -> Row:
        """The first columns of timings.csv."""
        cell = task.cell
        return {
            **self.place(task),
            "problem": self.plan.problem,
            "kernel": cell.kernel,
            "rung": task.rung or None,
            "params": json.dumps(dict(cell.params)),
            "dtype": cell.dtype,
            "layout": cell.layout or None,
            "source_sha256": built.get("source_sha256"),
            "cubin_sha256": built.get("cubin_sha256"),
        }

    def failed(self, task: Task, built: Mapping[str, Any], status: str, reason: str | None) -> Row:
        """A task without a result has one row, under the sweep's first regime."""
        outcome = {"status": status, "reason": reason or None, "regime": self.plan.regimes[0]}
        return {**self.head(task, built), **outcome}

    def measured(self, task: Task, record: Record) -> Row:
        """A row of timings.csv. Raises LadderError for an unknown status."""
        if record.status not in STATUSES:
            raise refuse("records", f"{record.variant}: status", record.status, STATUSES)
        result = record.result
        check, device = result.get("check") or {}, result.get("device") or {}
        common: Row = {
            "max_error": check.get("max_error"),
            "error_bound": check.get("error_bound"),
            **{name: device.get(name) for name in ("sm_clock_mhz", "power_w", "temperature_c", "busy")},
            "throttled": _throttled(device, self.plan.job["throttle_share"]),
        }
        built = result.get("built") or {}
        if record.status != "ok":
            return self.failed(task, built, record.status, record.reason) | common
        regime = record.cell.regime
        head = self.head(task, built) | {"status": "ok", "regime": regime}
        return head | common | self.speed(task, record)

    def speed(self, task: Task, record: Record) -> Row:
        """Times, ratios and rates of a record; rates are the problem's work over the median time."""
        result, cell = record.result, task.cell
        found = times(result)
        middle: Any = found["median_us"]
        work = self.problem.work(cell.size, cell.dtype, cell.params)
        # Integer additions are no floating-point operations: no TFLOP/s for them.
        floating = work.operations > 0 and not cell.dtype.startswith("int")
        tflops = work.operations / middle / 1e6 if floating else None
        peak = dtype_peaks(self.view.session(record).gpu).get(cell.dtype)
        copy_us = result.get("copy_us") if record.cell.regime != "warm" else None
        return found | {
            "reference": result.get("reference"),
            **{name: result.get(name) for name in ("speedup", "speedup_low", "speedup_high", "stopped_by")},
            "tflops": tflops,
            "peak_fraction": tflops / peak if tflops and peak else None,
            "gbytes_per_s": work.bytes / middle / 1e3 if work.bytes > 0 else None,
            "copy_fraction": copy_us / middle if copy_us else None,
        }

    def metrics(self, task: Task, record: Record | None) -> None:
        """Rows of metrics.csv: what a kernel said of itself, or the profiler of it."""
        for given in (record.result.get("observations") or ()) if record is not None else ():
            value = {name: given.get(name) for name in ("metric", "unit", "value")}
            self.rows["metrics"].append({**self.place(task), **value})

    def sessions(self, task: Task, record: Record) -> None:
        """Rows of sessions.csv: every record that is like this one."""
        for one in self.view.alike(record):
            if one.status != "ok":
                continue
            session, found = self.view.session(one), times(one.result)
            commit = session.tree.get("commit") or str(session.tree.get("digest") or "")[:_SHOWN_SESSION]
            known: Row = {name: one.result.get(name) for name in ("reference", "algorithm", "speedup")}
            known |= {name: one.result.get(name) for name in ("speedup_low", "speedup_high")}
            known |= {name: found.get(name) for name in ("samples", "median_us", "reference_median_us")}
            device = one.result.get("device") or {}
            self.rows["sessions"].append(
                {
                    **self.place(task),
                    "dtype": task.cell.dtype,
                    "layout": task.cell.layout or None,
                    "regime": one.cell.regime,
                    "session": one.session,
                    "gpu_uuid": session.gpu.get("uuid"),
                    "started": session.started or None,
                    "commit": commit or None,
                    **known,
                    **{name: device.get(name) for name in ("sm_clock_mhz", "power_w")},
                }
            )

    def resources(self) -> None:
        """Rows of every compiled variant of the sweep, references included."""
        for variant in self.plan.variants:
            self.rows["resources"].append(resource_row(self.view.made.facts[variant]))

    def timed(self, task: Task) -> Iterator[Row]:
        """Rows of one task: a row a regime that gave a result, else one row with the reason."""
        made = self.view.made
        if task.launch is None:
            yield self.failed(task, made.facts.get(task.variant, {}), "unsupported", task.absent)
            return
        facts = made.facts[task.launch.variant]
        if (broken := made.broken(task)) is not None:
            yield self.failed(task, facts, str(facts["status"]), broken)
            return
        found = [self.view.find(task, regime) for regime in self.plan.regimes]
        if found[0] is None:
            self.note("measure", f"{task.variant} at {dict(task.cell.size)}", "not measured")
        for place, record in enumerate(found):
            if record is None or (place and record.status != "ok"):
                continue
            self.sessions(task, record)
            for given in record.result.get("notes") or ():
                self.note("reference", task.variant, given)
            yield self.measured(task, record)
        self.metrics(task, found[0])
        if task.counted:
            self.metrics(task, self.view.find(task, COUNTERS))

    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables collected so far."""
        return {name: tables.frame(name, rows) for name, rows in self.rows.items()}


def resource_row(facts: Mapping[str, Any]) -> Row:
    """The row of resources.csv for one variant, from its facts."""
    known = {name: facts.get(name) for name in SCHEMAS["resources"] if name in facts}
    return known | {"params": json.dumps(facts["params"]), "layout": facts["layout"] or None}


def collect_sweep(
    view: View, job: Mapping[str, Any] | None = None, profile: Mapping[str, Any] | None = None
) -> dict[str, pd.DataFrame]:
    """Tables of one sweep, by name; `job` and `profile` are the accounts of its measuring and profiling jobs."""
    collector = Collector(view)
    for task in view.plan.tasks:
        collector.rows["timings"] += list(collector.timed(task))
    for note in (profile or {}).get("notes", ()):
        collector.note("profile", note["subject"], note["reason"])
    if unreadable := view.records.unreadable:
        collector.note("collect", "records", f"{unreadable} unreadable lines were left out")
    if job is not None:
        row: Row = {name: job.get(name) for name in SCHEMAS["jobs"] if name in job}
        share = job["gpu_s"] / job["wall_s"] if job.get("gpu_s") is not None and job.get("wall_s") else None
        collector.rows["jobs"].append(row | {"sweep": view.plan.sweep, "gpu_share": share})
    collector.resources()
    return collector.frames()


def changed_sources(view: View) -> dict[str, int]:
    """Kernels whose source is not the one their records were measured with: how many variants each."""
    changed: dict[str, set[str]] = {}
    for _, task in view.launched():
        record = view.find(task)
        was = ((record.result.get("built") or {}) if record else {}).get("source_sha256")
        if was and was != view.made.facts[task.variant].get("source_sha256"):
            changed.setdefault(task.cell.kernel, set()).add(task.variant)
    return {kernel: len(variants) for kernel, variants in changed.items()}


def merge(parts: Mapping[str, Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Tables of all sweeps joined in their order; a variant that several share has one resources row."""
    merged = {}
    for name in SWEEP_TABLES:
        data = tables.concat([frames[name] for frames in parts.values()], name)
        merged[name] = data.drop_duplicates("variant", ignore_index=True) if name == "resources" else data
    return merged

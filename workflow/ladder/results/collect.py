"""From records to the tidy tables of one sweep."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from ladder.measure.view import View
from ladder.model.cell import COUNTERS
from ladder.model.errors import refuse
from ladder.model.intervals import median, median_interval
from ladder.model.plan import Task
from ladder.model.record import Record
from ladder.model.schemas import STATUSES, SWEEP_TABLES
from ladder.problems.registry import PROBLEMS
from ladder.results import tables

Row = dict[str, object]


def dtype_peaks(gpu: Mapping[str, Any]) -> dict[str, float]:
    """Peak TFLOP/s by dtype, as far as they are known of a GPU."""
    peaks = {dtype: value for dtype, value in (gpu.get("tensor_peak_tflops") or {}).items() if value}
    return peaks | ({"fp32": gpu["fp32_peak_tflops"]} if gpu.get("fp32_peak_tflops") else {})


def times(result: Mapping[str, Any]) -> dict[str, Any]:
    """Median of a record's times with its interval, their spread, and the reference's median (us)."""
    if "variant_us" not in result:
        return dict(result.get("summary") or {})
    own = result["variant_us"]
    low, high = median_interval(own)
    middle = {"median_us": median(own), "median_us_low": low, "median_us_high": high}
    spread = {"samples": len(own), "cv": stdev(own) / fmean(own) if len(own) > 1 else None}
    return {**middle, **spread, "reference_median_us": median(result["reference_us"])}


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

    def add(self, table: str, *parts: Mapping[str, Any]) -> None:
        """A row of a table from what `parts` say of its columns; the last one wins."""
        self.rows[table].append(tables.row(table, *parts, {"sweep": self.plan.sweep}))

    def note(self, stage: str, subject: str, reason: str) -> None:
        """Something that could not be had, and why; said once."""
        row: Row = {"sweep": self.plan.sweep, "stage": stage, "subject": subject, "reason": reason}
        if row not in self.rows["notes"]:
            self.rows["notes"].append(row)

    def about(self, task: Task) -> Row:
        """The columns that say which task a row is about."""
        cell, own = task.cell, {"problem": self.plan.problem, "rung": task.rung or None}
        own |= {"kernel": cell.kernel, "variant": task.variant, "params": json.dumps(dict(cell.params))}
        own |= {"dtype": cell.dtype, "layout": cell.layout or None}
        return {**own, **cell.size, "taps": self.problem.taps(cell.params)}

    def failed(self, task: Task, status: str, reason: str | None, *known: Mapping[str, Any]) -> None:
        """A task without a result has one row, under the sweep's first regime."""
        outcome = {"status": status, "reason": reason or None, "regime": self.plan.regimes[0]}
        self.add("timings", *known, self.about(task), outcome)

    def measured(self, task: Task, record: Record) -> None:
        """A row of timings.csv. Raises LadderError for an unknown status."""
        if record.status not in STATUSES:
            raise refuse("records", f"{record.variant}: status", record.status, STATUSES)
        result = record.result
        known = [result.get(name) or {} for name in ("built", "check", "device")]
        known += [{"throttled": _throttled(known[-1], self.plan.job["throttle_share"])}]
        if record.status != "ok":
            self.failed(task, record.status, record.reason, *known)
            return
        outcome = {"status": "ok", "regime": record.cell.regime}
        self.add("timings", result, *known, self.about(task), self.speed(task, record), outcome)

    def speed(self, task: Task, record: Record) -> Row:
        """Times and rates of a record; rates are the problem's work over the median time."""
        found, cell = times(record.result), task.cell
        middle = found["median_us"]
        work = self.problem.work(cell.size, cell.dtype, cell.params)
        # Integer additions are no floating-point operations: no TFLOP/s for them.
        floating = work.operations > 0 and not cell.dtype.startswith("int")
        tflops = work.operations / middle / 1e6 if floating else None
        peak = dtype_peaks(self.view.session(record).gpu).get(cell.dtype)
        copy_us = record.result.get("copy_us") if record.cell.regime != "warm" else None
        return found | {
            "tflops": tflops,
            "peak_fraction": tflops / peak if tflops and peak else None,
            "gbytes_per_s": work.bytes / middle / 1e3 if work.bytes > 0 else None,
            "copy_fraction": copy_us / middle if copy_us else None,
        }

    def metrics(self, task: Task, record: Record | None) -> None:
        for given in (record.result.get("observations") or ()) if record is not None else ():
            self.add("metrics", given, self.about(task))

    def sessions(self, task: Task, record: Record) -> None:
        """Rows of sessions.csv: every record with a result that is like this one."""
        for one in self.view.alike(record):
            session = self.view.session(one)
            commit = session.tree.get("commit") or str(session.tree.get("digest") or "")[:12]
            made = {"session": one.session, "started": session.started or None, "commit": commit or None}
            made |= {"gpu_uuid": session.gpu.get("uuid"), "regime": one.cell.regime}
            if one.status == "ok":
                found = (times(one.result), one.result.get("device") or {}, self.about(task), made)
                self.add("sessions", one.result, *found)

    def task(self, task: Task) -> None:
        """What there is to say of one task: a row a regime that gave a result, else one row with the reason."""
        plan = self.plan
        if task.launch is None:
            self.failed(task, "unsupported", task.absent, plan.variants.get(task.variant, {}))
            return
        facts = plan.variants[task.launch.variant]
        if (broken := plan.broken(task)) is not None:
            self.failed(task, str(facts["status"]), broken, facts)
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
            self.measured(task, record)
        self.metrics(task, found[0])
        self.metrics(task, self.view.find(task, COUNTERS) if task.counted else None)


def collect_sweep(
    view: View, job: Mapping[str, Any] | None = None, profile: Mapping[str, Any] | None = None
) -> dict[str, pd.DataFrame]:
    """Tables of one sweep, by name; `job` and `profile` are the accounts of its measuring and profiling jobs."""
    collector = Collector(view)
    for task in view.plan.tasks:
        collector.task(task)
    for note in (profile or {}).get("notes", ()):
        collector.note("profile", note["subject"], note["reason"])
    if unreadable := view.records.unreadable:
        collector.note("collect", "records", f"{unreadable} unreadable lines were left out")
    if job is not None:
        share = job["gpu_s"] / job["wall_s"] if job.get("gpu_s") is not None and job.get("wall_s") else None
        collector.add("jobs", job, {"gpu_share": share})
    for facts in view.plan.variants.values():
        words = {"params": json.dumps(facts["params"]), "layout": facts["layout"] or None}
        collector.add("resources", facts, words)
    return {name: tables.frame(name, rows) for name, rows in collector.rows.items()}


def changed_sources(view: View) -> dict[str, int]:
    """Kernels whose source is not the one their records were measured with: how many variants each."""
    changed: dict[str, set[str]] = {}
    for _, task in view.launched():
        record = view.find(task)
        was = ((record.result.get("built") or {}) if record else {}).get("source_sha256")
        if was and was != view.plan.variants[task.variant].get("source_sha256"):
            changed.setdefault(task.cell.kernel, set()).add(task.variant)
    return {kernel: len(variants) for kernel, variants in changed.items()}


def merge(parts: Mapping[str, Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Tables of all sweeps joined in their order; a variant that several share has one resources row."""
    merged = {}
    for name in SWEEP_TABLES:
        data = tables.concat([frames[name] for frames in parts.values()], name)
        merged[name] = data.drop_duplicates("variant", ignore_index=True) if name == "resources" else data
    return merged

"""From records to the tidy tables of one sweep."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from ladder.measure.choice import library_times, partners
from ladder.measure.ncu import Note
from ladder.measure.plan_records import WRONG, PlanRecords
from ladder.measure.store import Account
from ladder.model.cell import BACK_TO_BACK, COUNTERS, SUSTAINED
from ladder.model.folders import RunFolder
from ladder.model.intervals import abba_ratios, median, median_interval
from ladder.model.plan import Plan, Task
from ladder.model.record import Record
from ladder.model.schemas import SWEEP_TABLES, TableRow
from ladder.problems.registry import PROBLEMS
from ladder.results import tables
from ladder.results.counters import times_and_counters
from ladder.results.environment import read_as
from ladder.results.sessions import combine_sessions
from ladder.results.statistics import BOTH, OVER, lag_1

_STEP_US = 0.032
"""Between two of the timestamps by which the GPU's own clock times a launch: all times on an H200 are multiples."""
_MOST_CORRELATED = 0.98
"""Of successive ratios: the interval is then ten times as wide. Published records reach 0.91."""
_THROTTLING = ("POWER_CAP", "SLOWDOWN")
"""How NVML's names of what holds clocks down for power or heat end; their beginnings differ between versions."""
_FEWEST_SESSIONS = 3
"""Of fewer sessions no reading is the typical one."""
OTHER_CODE = "counters made under other code"
"""Subject of a note; its reason is their date."""


def dtype_peaks(gpu: Mapping[str, Any]) -> dict[str, float]:
    """Peak TFLOP/s by dtype, as far as they are known of a GPU."""
    peaks = {
        **(gpu.get("tensor_peak_tflops") or {}),
        "fp32": gpu.get("fp32_peak_tflops"),
    }
    return {dtype: peak for dtype, peak in peaks.items() if peak}


def device_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Clock, temperature and so on of a result; power only of launches without a pause: else it averages pauses."""
    device = {
        name: value
        for name, value in (result.get("device") or {}).items()
        if name != "power_w"
    }
    sustained = result.get("sustained") or {}
    return device | (sustained.get("variant") or {})


def _throttled(events: Sequence[str] | None) -> bool | None:
    """Whether NVML named power or heat while a cell was measured; None where it said nothing."""
    if events is None:
        return None
    return any(event.endswith(_THROTTLING) for event in events)


def summarised(result: Mapping[str, Any]) -> TableRow:
    """A record's result with medians of its times (us), the spread of the variant's, and wider intervals.

    The record's interval of the speed-up takes its groups of launches as independent. If successive ratios have the
    autocorrelation r > 0, n groups count as n (1 - r) / (1 + r) (first-order process; Bayley & Hammersley 1946), and
    the interval is widened by the root of n over that, in logarithms. Then half a step of the clock in each time moves
    both ends outwards.
    """
    if "variant_us" not in result:  # of a record without times
        return dict(result)
    times, reference_times = result["variant_us"], result["reference_us"]
    half_step_us = _STEP_US / 2 if result.get("clock") == "device" else 0.0
    low, high = median_interval(times)
    row: TableRow = {
        **result,
        "median_us": median(times),
        "median_us_low": low - half_step_us,
        "median_us_high": high + half_step_us,
        "samples": len(times),
        "cv": np.std(times, ddof=1) / np.mean(times) if len(times) > 1 else None,
        "reference_median_us": median(reference_times),
    }
    correlation = lag_1(abba_ratios(times, reference_times))
    correlation = min(max(correlation, 0.0), _MOST_CORRELATED)
    wider = math.sqrt((1 + correlation) / (1 - correlation))
    steps = half_step_us / row["median_us"] + half_step_us / row["reference_median_us"]
    speedup = result["speedup"]
    low = speedup * (result["speedup_low"] / speedup) ** wider
    high = speedup * (result["speedup_high"] / speedup) ** wider
    row["speedup_low"] = low * (1 - steps)
    row["speedup_high"] = high * (1 + steps)
    return row


def over_libraries(result: Mapping[str, Any], choice: Record | None) -> TableRow:
    """The speed-up over one library alone, by the times that the reference was chosen by."""
    if choice is None or choice.status != "ok":
        return {}
    times_us = library_times(choice.result)
    chosen = str(result.get("reference"))
    row: TableRow = {}
    for column, library in zip(OVER, BOTH, strict=True):
        if library in times_us and chosen in times_us:
            row[column] = result["speedup"] * times_us[library] / times_us[chosen]
    return row


class Collector:
    """Rows of one sweep as they grow. They may say more than their table has columns for."""

    def __init__(self, view: PlanRecords) -> None:
        self.view, self.plan = view, view.plan
        self.problem = PROBLEMS[view.plan.problem]
        self.rows: dict[str, list[TableRow]] = {name: [] for name in SWEEP_TABLES}
        # Of a tuning sweep: which cells may be chosen, and the sessions that chose the fastest. What was chosen as the
        # largest of many reads too high, so that later sessions count.
        self.competitors = set[str]()
        self.chose = dict[str, str]()
        for competitors in view.competitors():
            self.competitors |= {task.cell.id for _, task in competitors}
            for winner in view.fastest(competitors):
                if winner.fresh:
                    self.chose[winner.record.cell.id] = winner.record.session

    def note(self, stage: str, subject: str, reason: str) -> None:
        """Something that is missing, and why; said once."""
        row = {
            "sweep": self.plan.sweep,
            "stage": stage,
            "subject": subject,
            "reason": reason,
        }
        if row not in self.rows["notes"]:
            self.rows["notes"].append(row)

    def about(self, task: Task) -> TableRow:
        """The columns that say which task a row is about."""
        cell = task.cell
        return {
            "sweep": self.plan.sweep,
            "problem": self.plan.problem,
            "rung": task.rung or None,
            "baseline": task.baseline or None,
            "kernel": cell.kernel,
            "variant": task.variant,
            "params": json.dumps(dict(cell.params)),
            "dtype": cell.dtype,
            "layout": cell.layout or None,
            "taps": self.problem.taps(cell.params),
            **cell.size,
        }

    def task(self, task: Task) -> None:
        """A row for each regime that gave a result, else one row with the reason."""
        facts, broken = self.plan.variants.get(task.variant, {}), self.view.broken(task)
        if task.launch is None:
            self.add_failure(task, facts, "unsupported", broken or task.absent)
            return
        if broken is not None:
            self.add_failure(task, facts, facts["status"], broken)
            return
        records = [
            self.view.current_record(task, regime)
            for regime in self.plan.regimes_of(task)
        ]
        self.note_missing(task, records)
        first, *others = records
        if first is not None:
            self.add_record(task, first)
        for record in others:
            if record is None:
                continue
            if record.status == "ok":
                self.add_record(task, record)
            elif record.cell.regime == SUSTAINED and record.status not in WRONG:
                subject = f"{task.variant} at {dict(task.cell.size)}, sustained"
                self.note("measure", subject, record.reason or "")
        counted = self.view.current_record(task, COUNTERS) if task.counted else None
        if counted is not None and not self.view.is_current(task, counted):
            self.note("profile", OTHER_CODE, counted.time[:10])
        for record in (None if task.beside else first, counted):
            if record is not None:
                for metric in record.result.get("observations") or ():
                    self.rows["metrics"].append({**metric, **self.about(task)})

    def note_missing(self, task: Task, records: Sequence[Record | None]) -> None:
        """Notes on a task that was not measured, or was wrong, as far as no row says it."""
        first, subject = records[0], f"{task.variant} at {dict(task.cell.size)}"
        if first is None and not task.beside:
            self.note("measure", subject, "not measured")
        wrong = [
            record
            for record in records
            if record is not None and record.status in WRONG
        ]
        # The row of the first regime says why that one is wrong, but not in how many sessions.
        if wrong and (
            wrong[0] is not first or self.reason(wrong[0]) != wrong[0].reason
        ):
            self.note("measure", subject, self.reason(wrong[0]))

    def add_record(self, task: Task, record: Record) -> None:
        """Rows of timings.csv and sessions.csv, and what is to be said of the reference."""
        if record.status == "ok":
            self.add_sessions(task, record)
        for reason in record.result.get("notes") or ():
            self.note("reference", task.variant, reason)
        self.note_choice(record)
        self.add_timing(task, self.typical(record))

    def add_failure(
        self, task: Task, known: Mapping[str, Any], status: str, reason: str | None
    ) -> None:
        """A task without a result has one row, under the sweep's first regime."""
        outcome = {
            "status": status,
            "reason": reason or None,
            "regime": self.plan.regimes[0],
        }
        self.rows["timings"].append({**known, **self.about(task), **outcome})

    def reason(self, record: Record) -> str:
        """Why a record has no result; in how many sessions, where others found the kernel right."""
        number, sessions = self.view.sessions_of(record)
        if record.status not in WRONG or number == sessions:
            return record.reason
        return f"{record.status} in {number} of {sessions} sessions: {record.reason}"

    def add_timing(self, task: Task, record: Record) -> None:
        """A row of timings.csv."""
        result, device = record.result, device_of(record.result)
        known = {
            "throttled": _throttled(device.get("clock_events")),
            **(result.get("built") or {}),
            **(result.get("check") or {}),
            **device,
        }
        if record.status != "ok":
            self.add_failure(task, known, record.status, self.reason(record))
            return
        row = {**summarised(result), **known, **self.about(task)}
        row |= self.rates(task, record, row["median_us"])
        choice = self.view.choice(record)
        row |= over_libraries(result, choice)
        if choice is not None and choice.status == "ok":
            row["reference_is"] = "tied" if choice.result["tied"] else "faster"
        row |= {
            "status": "ok",
            "regime": record.cell.regime,
            "algorithm": result.get("algorithm") or None,
        }
        if record.cell.id in self.competitors:
            row["fresh"] = record.cell.id in self.chose
        self.rows["timings"].append(row)

    def rates(self, task: Task, record: Record, median_us: float) -> TableRow:
        """TFLOP/s, GB/s, shares of peaks and energy at a median time; None where there is no such number."""
        cell, gpu = task.cell, self.view.session(record).gpu
        work = self.problem.work(cell.size, cell.dtype, cell.params)
        row: TableRow = dict.fromkeys(
            (
                "tflops",
                "peak_fraction",
                "gbytes_per_s",
                "copy_fraction",
                "memory_fraction",
            )
        )
        launch_j = device_of(record.result).get("launch_j")
        # Integer additions are no floating-point operations: no TFLOP/s for them.
        if work.operations > 0 and not cell.dtype.startswith("int"):
            row["tflops"] = work.operations / median_us / 1e6
            if peak := dtype_peaks(gpu).get(cell.dtype):
                row["peak_fraction"] = row["tflops"] / peak
            if launch_j is not None:
                row["energy_pj_per_flop"] = launch_j * 1e12 / work.operations
        if work.bytes > 0:
            row["gbytes_per_s"] = work.bytes / median_us / 1e3
            if memory := gpu.get("memory_peak_gbytes_per_s"):
                row["memory_fraction"] = work.bytes / median_us / 1e3 / memory
            if launch_j is not None:
                row["energy_pj_per_byte"] = launch_j * 1e12 / work.bytes
        copy_us = record.result.get("copy_us")
        if copy_us and record.cell.regime not in BACK_TO_BACK:
            row["copy_fraction"] = copy_us / median_us
        return row

    def add_sessions(self, task: Task, record: Record) -> None:
        """Rows of sessions.csv: every record with a result that is like this one."""
        for reading in self.view.same_conditions(record):
            if reading.status != "ok":
                continue
            session = self.view.session(reading)
            commit = (
                session.tree.get("commit") or str(session.tree.get("digest") or "")[:12]
            )
            row = {
                **summarised(reading.result),
                **device_of(reading.result),
                **self.about(task),
            }
            row |= {
                "session": reading.session,
                "started": session.started or None,
                "commit": commit or None,
                "gpu_uuid": session.gpu.get("uuid"),
                "regime": reading.cell.regime,
                "host_gpus": session.host.get("gpus"),
                "clock_floor_us": session.clock_floor_us,
                "algorithm": reading.result.get("algorithm") or None,
                "bound": self.bound(task, row, session.gpu),
            }
            if self.chose.get(reading.cell.id) == reading.session:
                row["chose"] = True
            self.rows["sessions"].append(row)

    def bound(
        self, task: Task, times: Mapping[str, Any], gpu: Mapping[str, Any]
    ) -> str | None:
        """What binds a pair, as sessions.csv has it; None where the rate of a copy is not known."""
        if not (rate := gpu.get("copy_gbytes_per_s")):
            return None
        moving_us = (
            self.problem.work(task.cell.size, task.cell.dtype, task.cell.params).bytes
            / 1e3
            / rate
        )
        memory_bound = moving_us >= times["median_us"] / 2
        reference_memory_bound = moving_us >= times["reference_median_us"] / 2
        if memory_bound != reference_memory_bound:
            return "mixed"
        return "memory" if memory_bound else "compute"

    def typical(self, record: Record) -> Record:
        """For the columns that are of one session: of three or more that with the median time, else the latest."""
        good = [
            reading
            for reading in self.view.same_conditions(record)
            if reading.status == "ok"
        ]
        if record.status != "ok" or len(good) < _FEWEST_SESSIONS:
            return record
        good.sort(key=lambda reading: float(summarised(reading.result)["median_us"]))
        return good[(len(good) - 1) // 2]

    def note_choice(self, record: Record) -> None:
        """Notes on the choice of a record's reference: what could not be had, and what ties."""
        choice = self.view.choice(record)
        if choice is None:
            return
        subject = (
            f"{choice.cell.dtype} at {dict(choice.cell.size)}, {choice.cell.regime}"
        )
        for reason in choice.result.get("notes") or ():
            self.note("reference", subject, reason)
        if choice.status == "ok" and choice.result["tied"]:
            winner, *tied = map(str, partners(choice.result))
            self.note(
                "reference",
                subject,
                f"{winner} ties with {' and '.join(tied)}: either may be the faster one",
            )


_MEASURED, _PROFILED = TypeAdapter(Account), TypeAdapter(dict[str, list[Note]])


def accounts_of(
    folder: RunFolder, plan: Plan
) -> tuple[list[TableRow], TableRow | None]:
    """The accounts of the jobs that measured and profiled a sweep, as far as there are any."""
    job = read_as(_MEASURED, folder.account("measured", plan.sweep))
    return [job] if job else [], read_as(
        _PROFILED, folder.account("profiled", plan.sweep)
    )


def _share(job: Mapping[str, Any], part: str, whole: str) -> float | None:
    if job.get(part) is None or not job.get(whole):
        return None
    return float(job[part] / job[whole])


def collect_sweep(
    view: PlanRecords,
    jobs: Sequence[Mapping[str, Any]] = (),
    profile: Mapping[str, Any] | None = None,
) -> dict[str, pd.DataFrame]:
    """Tables of one sweep, by name; `jobs` and `profile` are as `accounts_of` gives them."""
    collector, sweep = Collector(view), view.plan.sweep
    for task in view.plan.tasks:
        collector.task(task)
    for note in (profile or {}).get("notes", ()):
        collector.note("profile", note["subject"], note["reason"])
    if unreadable := view.records.unreadable:
        collector.note(
            "collect", "records", f"{len(unreadable)} unreadable lines were left out"
        )
    for job in jobs:
        shares = {
            "gpu_share": _share(job, "gpu_s", "wall_s"),
            "check_share": _share(job, "check_s", "gpu_s"),
        }
        collector.rows["jobs"].append({**job, "sweep": sweep, **shares})
    for facts in view.plan.variants.values():
        words = {
            "params": json.dumps(facts["params"]),
            "layout": facts["layout"] or None,
        }
        collector.rows["resources"].append({**facts, **words, "sweep": sweep})
    return {name: tables.frame(name, rows) for name, rows in collector.rows.items()}


def changed_code(view: PlanRecords) -> dict[str, int]:
    """Kernels whose machine code is not that of their records: how many variants each."""
    changed = dict[tuple[str, str], None]()
    for _, task in view.launched():
        record = view.current_record(task)
        if record is None:
            continue
        measured_code = str(record.conditions.tree.get("machine_code"))
        compiled_code = str(view.plan.variants[task.variant].get("machine_code"))
        if not compiled_code.startswith(measured_code):
            changed[task.cell.kernel, task.variant] = None
    return Counter(kernel for kernel, _ in changed)


def merge(parts: Mapping[str, Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Tables of all sweeps joined in their order, with what the sessions of all of them say together."""
    joined = {
        name: tables.concat([frames[name] for frames in parts.values()], name)
        for name in SWEEP_TABLES
    }
    combined = combine_sessions(joined)
    counted = times_and_counters(combined["timings"], combined["metrics"])
    return combined | {
        "times_and_counters": tables.concat([counted], "times_and_counters")
    }

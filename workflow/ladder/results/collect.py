"""From records to the tidy tables of one sweep."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import TypeAdapter

from ladder.measure.choice import library_times, partners
from ladder.measure.ncu import Note
from ladder.measure.plan_records import WRONG, PlanRecords
from ladder.measure.store import Account
from ladder.model.cell import BACK_TO_BACK, COUNTERS
from ladder.model.folders import RunFolder
from ladder.model.intervals import abba_ratios, median, median_interval
from ladder.model.plan import Task
from ladder.model.problem import Work
from ladder.model.record import Record
from ladder.model.schemas import SWEEP_TABLES, Fields, TableRow
from ladder.problems.registry import PROBLEMS
from ladder.results import tables
from ladder.results.counters import times_and_counters
from ladder.results.environment import read_as
from ladder.results.sessions import combine_sessions
from ladder.results.statistics import BOTH, lag_1, listed

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


PRODUCTS_SWEEP = "fp32_tensor"
"""Its GEMMs make a product in FP32 of three in TF32, on tensor cores."""


def dtype_peaks(gpu: Fields) -> dict[str, float]:
    """Peak TFLOP/s by dtype, as far as they are known of a GPU."""
    peaks = dict(gpu.get("tensor_peak_tflops") or {})
    peaks["fp32"] = gpu.get("fp32_peak_tflops")
    return {dtype: peak for dtype, peak in peaks.items() if peak}


def device_of(result: Fields) -> TableRow:
    """Clock, temperature and so on of a result; power only of launches without a pause: else it averages pauses."""
    device = dict(result.get("device") or {})
    device.pop("power_w", None)
    sustained = result.get("sustained") or {}
    return device | (sustained.get("variant") or {})


def throttled(events: Sequence[str] | None) -> bool | None:
    """Whether NVML named power or heat while a cell was measured; None where it said nothing."""
    if events is None:
        return None
    return any(event.endswith(_THROTTLING) for event in events)


def summarised(result: Fields) -> TableRow:
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
        "algorithm": result.get("algorithm") or None,
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


def over_libraries(result: Fields, choice: Record) -> TableRow:
    """The speed-up over one library alone, by the times that the reference was chosen by."""
    times_us = library_times(choice.result)
    chosen_us = times_us.get(result["reference"], math.nan)
    return {
        f"over_{library}": result["speedup"] * times_us[library] / chosen_us
        for library in BOTH
        if library in times_us
    }


class Collector:
    """Rows of one sweep as they grow. They may say more than their table has columns for."""

    def __init__(self, view: PlanRecords) -> None:
        self.view, self.plan = view, view.plan
        self.problem = PROBLEMS[view.plan.problem]
        self.rows: dict[str, list[TableRow]] = {name: [] for name in SWEEP_TABLES}
        # Cells of a tuning sweep, each with the session that chose it as one of the fastest. What was chosen as the
        # largest of many reads too high, so that later sessions count.
        self.chose = dict[str, str | None]()
        for competitors in view.competitors():
            self.chose |= {task.cell.id: None for _, task in competitors}
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
        facts = self.plan.variants.get(task.variant, {})
        broken = self.view.broken(task)
        if task.launch is None:
            self.add_failure(task, facts, "unsupported", broken or task.absent)
            return
        if broken is not None:
            self.add_failure(task, facts, facts["status"], broken)
            return
        regimes = self.plan.regimes_of(task)
        records = [self.view.current_record(task, regime) for regime in regimes]
        self.note_missing(task, records)
        first = records[0]
        for record in filter(None, records):
            if record is first or record.status == "ok":
                self.add_record(task, record)
            elif record.cell.regime != "warm" and record.status not in WRONG:
                subject = f"{_name(task)}, {record.cell.regime}"
                self.note("measure", subject, record.reason)
        if first is not None and not task.beside:
            self.add_metrics(task, [first])
        counted = self.view.current_record(task, COUNTERS) if task.counted else None
        if counted is not None:
            if not self.view.is_current(task, counted):
                self.note("profile", OTHER_CODE, counted.time[:10])
            self.add_metrics(task, self.view.same_conditions(counted))

    def add_metrics(self, task: Task, records: Sequence[Record]) -> None:
        """Rows of metrics.csv: what kernel or profiler counts, of several records the median."""
        values = defaultdict[tuple[str, str | None], list[float]](list)
        for record in records:
            for counted in record.result.get("observations") or ():
                if counted["value"] is not None:
                    values[counted["metric"], counted["unit"]].append(counted["value"])
        for (metric, unit), counts in values.items():
            row = {"metric": metric, "unit": unit, "value": median(counts)}
            self.rows["metrics"].append({**row, **self.about(task)})

    def note_missing(self, task: Task, records: Sequence[Record | None]) -> None:
        """Notes on a task that was not measured, or was wrong, as far as no row says it."""
        first = records[0]
        if first is None and not task.beside:
            self.note("measure", _name(task), "not measured")
        for record in filter(None, records):
            if record.status in WRONG:
                reason = self.reason(record)
                # The row of the first regime says why that one is wrong, but not in how many sessions.
                if record is not first or reason != record.reason:
                    self.note("measure", _name(task), reason)
                return

    def add_record(self, task: Task, record: Record) -> None:
        """Rows of timings.csv and sessions.csv, and what is to be said of the reference."""
        typical = record
        if record.status == "ok":
            alike = self.view.same_conditions(record)
            readings = [reading for reading in alike if reading.status == "ok"]
            for reading in readings:
                self.add_session(task, reading)
            # For the columns that are of one session: of three or more that with the median time, else the latest.
            if len(readings) >= _FEWEST_SESSIONS:
                readings.sort(key=lambda reading: median(reading.result["variant_us"]))
                typical = readings[(len(readings) - 1) // 2]
        for reason in record.result.get("notes") or ():
            self.note("reference", task.variant, reason)
        self.note_choice(record)
        self.add_timing(task, typical)

    def add_failure(
        self, task: Task, columns: Fields, status: str, reason: str | None
    ) -> None:
        """A task without a result has one row, under the sweep's first regime."""
        row = {
            **columns,
            **self.about(task),
            "status": status,
            "reason": reason or None,
            "regime": self.plan.regimes[0],
        }
        self.rows["timings"].append(row)

    def reason(self, record: Record) -> str:
        """Why a record has no result; in how many sessions, where others found the kernel right."""
        number, sessions = self.view.sessions_of(record)
        if record.status not in WRONG or number == sessions:
            return record.reason
        return f"{record.status} in {number} of {sessions} sessions: {record.reason}"

    def add_timing(self, task: Task, record: Record) -> None:
        result, device = record.result, device_of(record.result)
        columns = {
            "throttled": throttled(device.get("clock_events")),
            **(result.get("built") or {}),
            **(result.get("check") or {}),
            **device,
        }
        if record.status != "ok":
            self.add_failure(task, columns, record.status, self.reason(record))
            return
        row = {**summarised(result), **columns, **self.about(task)}
        row |= self.rates(task, record, row["median_us"])
        choice = self.view.decision_behind(record)
        if choice is not None and choice.status == "ok":
            row |= over_libraries(result, choice)
            row["reference_is"] = "tied" if choice.result["tied"] else "faster"
        row["status"] = "ok"
        row["regime"] = record.cell.regime
        if record.cell.id in self.chose:
            row["fresh"] = self.chose[record.cell.id] is not None
        self.rows["timings"].append(row)

    def work(self, task: Task) -> Work:
        """What a task has to compute and to move."""
        cell = task.cell
        return self.problem.work(cell.size, cell.dtype, cell.params)

    def rates(self, task: Task, record: Record, median_us: float) -> TableRow:
        """TFLOP/s, GB/s, shares of peaks and energy at a median time; NaN or absent where there is no such number."""
        dtype, gpu = task.cell.dtype, self.view.session(record).gpu
        work = self.work(task)
        launch_pj = (device_of(record.result).get("launch_j") or math.nan) * 1e12
        row: TableRow = {}
        # Integer additions are no floating-point operations: no TFLOP/s for them.
        if work.operations > 0 and not dtype.startswith("int"):
            row["tflops"] = work.operations / median_us / 1e6
            peaks = dtype_peaks(gpu)
            peak = peaks.get(dtype, math.nan)
            if self.plan.sweep == PRODUCTS_SWEEP:
                peak = peaks.get("tf32", math.nan) / 3
            row["peak_fraction"] = row["tflops"] / peak
            row["energy_pj_per_flop"] = launch_pj / work.operations
        if work.bytes > 0:
            peak = gpu.get("memory_peak_gbytes_per_s") or math.nan
            row["gbytes_per_s"] = work.bytes / median_us / 1e3
            row["memory_fraction"] = row["gbytes_per_s"] / peak
            row["energy_pj_per_byte"] = launch_pj / work.bytes
        copy_us = record.result.get("copy_us")
        if copy_us and record.cell.regime not in BACK_TO_BACK:
            row["copy_fraction"] = copy_us / median_us
        return row

    def add_session(self, task: Task, record: Record) -> None:
        session = self.view.session(record)
        tree = session.tree
        commit = tree.get("commit") or str(tree.get("digest") or "")[:12]
        times = summarised(record.result)
        row = {
            **times,
            **device_of(record.result),
            **self.about(task),
            "session": record.session,
            "started": session.started or None,
            "commit": commit or None,
            "gpu_uuid": session.gpu.get("uuid"),
            "regime": record.cell.regime,
            "host_gpus": session.host.get("gpus"),
            "clock_floor_us": session.clock_floor_us,
            "bound": self.bound(task, times, session.gpu),
        }
        if self.chose.get(record.cell.id) == record.session:
            row["chose"] = True
        self.rows["sessions"].append(row)

    def bound(self, task: Task, times: TableRow, gpu: Fields) -> str | None:
        """What binds a pair, as sessions.csv has it; None where the rate of a copy is not known."""
        rate = gpu.get("copy_gbytes_per_s")
        if not rate:
            return None
        moving_us = self.work(task).bytes / 1e3 / rate
        sides = times["median_us"], times["reference_median_us"]
        by_memory = [moving_us >= us / 2 for us in sides]
        if all(by_memory):
            return "memory"
        return "mixed" if any(by_memory) else "compute"

    def note_choice(self, record: Record) -> None:
        """Notes on the choice of a record's reference: what could not be had, and what ties."""
        choice = self.view.decision_behind(record)
        if choice is None:
            return
        cell = choice.cell
        subject = f"{cell.dtype} at {dict(cell.size)}, {cell.regime}"
        for reason in choice.result.get("notes") or ():
            self.note("reference", subject, reason)
        if choice.status == "ok" and choice.result["tied"]:
            winner, *tied = map(str, partners(choice.result))
            ties = f"{winner} ties with {' and '.join(tied)}"
            self.note("reference", subject, f"{ties}: either may be the faster one")


def _name(task: Task) -> str:
    return f"{task.variant} at {dict(task.cell.size)}"


_MEASURED, _PROFILED = TypeAdapter(Account), TypeAdapter(dict[str, list[Note]])


def accounts_of(
    folder: RunFolder, sweep: str
) -> tuple[TableRow | None, TableRow | None]:
    """The accounts of the jobs that measured and profiled a sweep; None where there is none."""
    return (
        read_as(_MEASURED, folder.account("measured", sweep)),
        read_as(_PROFILED, folder.account("profiled", sweep)),
    )


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def collect_sweep(
    view: PlanRecords, job: Fields | None = None, profile: Fields | None = None
) -> tables.Frames:
    """Tables of one sweep, by name; `job` and `profile` are as `accounts_of` gives them."""
    collector, sweep = Collector(view), view.plan.sweep
    for task in view.plan.tasks:
        collector.task(task)
    for note in profile["notes"] if profile else ():
        collector.note("profile", note["subject"], note["reason"])
    if places := view.records.unreadable:
        reason = f"{len(places)} unreadable lines were left out: {listed(places, 3)}"
        collector.note("collect", "records", reason)
    if job:
        row = {**job, "sweep": sweep}
        row["gpu_share"] = _share(job.get("gpu_s"), job.get("wall_s"))
        row["check_share"] = _share(job.get("check_s"), job.get("gpu_s"))
        collector.rows["jobs"].append(row)
    for facts in view.plan.variants.values():
        row = {
            **facts,
            "sweep": sweep,
            "params": json.dumps(facts["params"]),
            "layout": facts["layout"] or None,
        }
        collector.rows["resources"].append(row)
    return {name: tables.frame(name, rows) for name, rows in collector.rows.items()}


def changed_code(view: PlanRecords) -> dict[str, int]:
    """Kernels whose machine code is not that of their records: how many variants each."""
    changed = set[tuple[str, str]]()
    for _, task in view.launched():
        record = view.current_record(task)
        if record is None:
            continue
        measured_code = str(record.conditions.tree.get("machine_code"))
        compiled_code = str(view.plan.variants[task.variant].get("machine_code"))
        if not compiled_code.startswith(measured_code):
            changed.add((task.cell.kernel, task.variant))
    return Counter(kernel for kernel, _ in sorted(changed))


def merge(parts: Mapping[str, tables.Frames]) -> tables.Frames:
    """Tables of all sweeps joined in their order, with what the sessions of all of them say together."""
    joined = {}
    for name in SWEEP_TABLES:
        joined[name] = tables.concat([frames[name] for frames in parts.values()], name)
    combined = combine_sessions(joined)
    # A cell that several sweeps counted has one number in all: the median of theirs.
    metrics = combined["metrics"]
    cell = [*metrics.columns.drop(["sweep", "unit", "value"])]
    combined["metrics"] = metrics.assign(
        value=metrics.groupby(cell, dropna=False)["value"].transform("median")
    )
    both = times_and_counters(combined["timings"], combined["metrics"])
    combined["times_and_counters"] = tables.concat([both], "times_and_counters")
    return combined

"""From records to the tidy tables of one sweep."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter

from ladder.measure.account import Job, accounts
from ladder.measure.choice import library_times, partners
from ladder.measure.ncu import Note
from ladder.measure.plan_records import WRONG, PlanRecords
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


def dtype_peaks(gpu: Mapping[str, Any]) -> dict[str, float]:
    """Peak TFLOP/s by dtype, as far as they are known of a GPU."""
    peaks = {**(gpu.get("tensor_peak_tflops") or {}), "fp32": gpu.get("fp32_peak_tflops")}
    return {dtype: peak for dtype, peak in peaks.items() if peak}


_STEP_US = 0.032
"""Between two of the timestamps by which the GPU's own clock times a launch: all times on an H200 are multiples."""


_MOST_CORRELATED = 0.98
"""Of successive ratios: the interval is then ten times as wide. Published records reach 0.91."""


def _half_step_us(result: Mapping[str, Any]) -> float:
    """By how much a record's medians may be wrong because its clock moves in steps."""
    return _STEP_US / 2 if result.get("clock") == "device" else 0.0


def device_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Clock, temperature and so on of a result; power only of launches without a pause: else it averages pauses."""
    known = {name: value for name, value in (result.get("device") or {}).items() if name != "power_w"}
    return known | ((result.get("sustained") or {}).get("variant") or {})


_THROTTLING = ("POWER_CAP", "SLOWDOWN")
"""How NVML's names of what holds clocks down for power or heat end; their beginnings differ between versions."""


def _throttled(events: Sequence[str] | None) -> bool | None:
    """Whether NVML named power or heat while a cell was measured; None where it said nothing."""
    return None if events is None else any(event.endswith(_THROTTLING) for event in events)


def summarised(result: Mapping[str, Any]) -> TableRow:
    """A record's result with medians of its times (us), the spread of the variant's, and wider intervals.

    The record's interval of the speed-up takes its groups of launches as independent. If successive ratios have the
    autocorrelation r > 0, n groups count as n (1 - r) / (1 + r) (first-order process; Bayley & Hammersley 1946), and
    the interval is widened by the root of n over that, in logarithms. Then half a step of the clock in each time moves
    both ends outwards.
    """
    if "variant_us" not in result:  # of a record without times
        return dict(result)
    own, reference, half = result["variant_us"], result["reference_us"], _half_step_us(result)
    low, high = median_interval(own)
    found = {**result, "median_us": median(own), "median_us_low": low - half, "median_us_high": high + half}
    found |= {"samples": len(own), "cv": np.std(own, ddof=1) / np.mean(own) if len(own) > 1 else None}
    found |= {"reference_median_us": median(reference)}
    correlation = min(max(lag_1(abba_ratios(own, reference)), 0.0), _MOST_CORRELATED)
    wider = math.sqrt((1 + correlation) / (1 - correlation))
    steps = half / found["median_us"] + half / found["reference_median_us"]
    low, high = (
        result["speedup"] * (result[f"speedup_{end}"] / result["speedup"]) ** wider for end in ("low", "high")
    )
    return found | {"speedup_low": low * (1 - steps), "speedup_high": high * (1 + steps)}


def over_libraries(result: Mapping[str, Any], choice: Record | None) -> TableRow:
    """The speed-up over one library alone, by the times that the reference was chosen by."""
    times_us = library_times(choice.result) if choice is not None and choice.status == "ok" else {}
    chosen = str(result.get("reference"))
    return {
        name: result["speedup"] * times_us[library] / times_us[chosen]
        for name, library in zip(OVER, BOTH, strict=True)
        if library in times_us and chosen in times_us
    }


OTHER_CODE = "counters made under other code"
"""Subject of a note; its reason is their date."""


class Collector:
    """Rows of one sweep as they grow. They may say more than their table has columns for."""

    def __init__(self, view: PlanRecords) -> None:
        self.view, self.plan, self.problem = view, view.plan, PROBLEMS[view.plan.problem]
        self.rows: dict[str, list[TableRow]] = {name: [] for name in SWEEP_TABLES}
        # Of a tuning sweep: which cells may be chosen, and the sessions that chose the fastest, where later ones count.
        every = view.competitors()
        self.competitors = {task.cell.id for among in every for _, task in among}
        chosen = [one.record for among in every for one in view.fastest(among) if one.fresh]
        self.chose = {record.cell.id: record.session for record in chosen}

    def note(self, stage: str, subject: str, reason: str) -> None:
        """Something that is missing, and why; said once."""
        row = {"sweep": self.plan.sweep, "stage": stage, "subject": subject, "reason": reason}
        if row not in self.rows["notes"]:
            self.rows["notes"].append(row)

    def about(self, task: Task) -> TableRow:
        """The columns that say which task a row is about."""
        cell = task.cell
        own: TableRow = {"sweep": self.plan.sweep, "problem": self.plan.problem, "rung": task.rung or None}
        own |= {
            "baseline": task.baseline or None,
            "beta": cell.beta or None,
            "kernel": cell.kernel,
            "variant": task.variant,
            "params": json.dumps(dict(cell.params)),
        }
        own |= {"dtype": cell.dtype, "layout": cell.layout or None, "taps": self.problem.taps(cell.params)}
        return {**own, **cell.size}

    def failed(self, task: Task, known: Mapping[str, Any], status: str, reason: str | None) -> None:
        """A task without a result has one row, under the sweep's first regime."""
        outcome = {"status": status, "reason": reason or None, "regime": self.plan.regimes[0]}
        self.rows["timings"].append({**known, **self.about(task), **outcome})

    def reason(self, record: Record) -> str:
        """Why a record has no result; in how many sessions, where others found the kernel right."""
        number, sessions = self.view.sessions_of(record)
        if record.status not in WRONG or number == sessions:
            return record.reason
        return f"{record.status} in {number} of {sessions} sessions: {record.reason}"

    def measured(self, task: Task, record: Record) -> None:
        """A row of timings.csv."""
        result, gpu = record.result, self.view.session(record).gpu
        device = device_of(result)
        known = {
            "throttled": _throttled(device.get("clock_events")),
            **(result.get("built") or {}),
            **(result.get("check") or {}),
            **device,
        }
        if record.status != "ok":
            self.failed(task, known, record.status, self.reason(record))
            return
        found, cell = summarised(result), task.cell
        middle = found["median_us"]
        work = self.problem.work(cell.size, cell.dtype, cell.params)
        # Integer additions are no floating-point operations: no TFLOP/s for them.
        floating = work.operations > 0 and not cell.dtype.startswith("int")
        tflops = work.operations / middle / 1e6 if floating else None
        peak, memory = dtype_peaks(gpu).get(cell.dtype), gpu.get("memory_peak_gbytes_per_s")
        copy_us = result.get("copy_us") if record.cell.regime not in BACK_TO_BACK else None
        rates = {
            "tflops": tflops,
            "peak_fraction": tflops / peak if tflops and peak else None,
            "gbytes_per_s": work.bytes / middle / 1e3 if work.bytes > 0 else None,
            "copy_fraction": copy_us / middle if copy_us else None,
            "memory_fraction": work.bytes / middle / 1e3 / memory if memory and work.bytes > 0 else None,
        }
        if (launch_j := device.get("launch_j")) is not None:
            rates["energy_pj_per_flop"] = launch_j * 1e12 / work.operations if floating else None
            rates["energy_pj_per_byte"] = launch_j * 1e12 / work.bytes if work.bytes > 0 else None
        outcome = {"status": "ok", "regime": record.cell.regime, "algorithm": result.get("algorithm") or None}
        if record.cell.id in self.competitors:
            outcome["fresh"] = record.cell.id in self.chose
        choice = self.view.choice(record)
        rates |= over_libraries(result, choice)
        if choice is not None and choice.status == "ok":
            rates["reference_is"] = "tied" if choice.result["tied"] else "faster"
        self.rows["timings"].append({**found, **known, **self.about(task), **rates, **outcome})

    def sessions(self, task: Task, record: Record) -> None:
        """Rows of sessions.csv: every record with a result that is like this one."""
        for one in self.view.same_conditions(record):
            if one.status == "ok":
                session = self.view.session(one)
                commit = session.tree.get("commit") or str(session.tree.get("digest") or "")[:12]
                made = {"session": one.session, "started": session.started or None, "commit": commit or None}
                made |= {"gpu_uuid": session.gpu.get("uuid"), "regime": one.cell.regime}
                made |= {"host_gpus": session.host.get("gpus"), "clock_floor_us": session.clock_floor_us}
                made |= {"algorithm": one.result.get("algorithm") or None}
                made |= {"chose": True} if self.chose.get(one.cell.id) == one.session else {}
                found = {**summarised(one.result), **device_of(one.result)}
                made["bound"] = self.bound(task, found, session.gpu)
                self.rows["sessions"].append(found | self.about(task) | made)

    def bound(self, task: Task, times: Mapping[str, Any], gpu: Mapping[str, Any]) -> str | None:
        """What binds a pair, as sessions.csv has it; None where the rate of a copy is not known."""
        if not (rate := gpu.get("copy_gbytes_per_s")):
            return None
        moved = self.problem.work(task.cell.size, task.cell.dtype, task.cell.params).bytes / 1e3 / rate
        sides = {moved >= times[name] / 2 for name in ("median_us", "reference_median_us")}
        return "mixed" if len(sides) > 1 else "memory" if sides.pop() else "compute"

    def typical(self, record: Record) -> Record:
        """For the columns that are of one session: of three or more that with the median time, else the latest."""
        good = [one for one in self.view.same_conditions(record) if one.status == "ok"]
        if record.status != "ok" or len(good) < 3:
            return record
        return sorted(good, key=lambda one: float(summarised(one.result)["median_us"]))[(len(good) - 1) // 2]

    def choice(self, record: Record) -> None:
        """Notes on the choice of a record's reference: what could not be had, and what ties."""
        choice = self.view.choice(record)
        if choice is None:
            return
        about = f"{choice.cell.dtype} at {dict(choice.cell.size)}, {choice.cell.regime}"
        for given in choice.result.get("notes") or ():
            self.note("reference", about, given)
        if choice.status == "ok" and choice.result["tied"]:
            first, *tied = map(str, partners(choice.result))
            self.note(
                "reference", about, f"{first} ties with {' and '.join(tied)}: either may be the faster one"
            )

    def task(self, task: Task) -> None:
        """A row for each regime that gave a result, else one row with the reason."""
        facts, broken = self.plan.variants.get(task.variant, {}), self.view.broken(task)
        if task.launch is None or broken is not None:
            status = "unsupported" if task.launch is None else facts["status"]
            self.failed(task, facts, status, broken or task.absent)
            return
        found = [self.view.current_record(task, regime) for regime in self.plan.regimes_of(task)]
        beta = f", beta = {task.cell.beta:g}" if task.cell.beta else ""
        own = f"{task.variant} at {dict(task.cell.size)}{beta}"
        if found[0] is None and not task.beside:
            self.note("measure", own, "not measured")
        wrong = [record for record in found if record is not None and record.status in WRONG]
        elsewhere = wrong and (task.cell.beta or wrong[0] is not found[0])
        if wrong and (elsewhere or self.reason(wrong[0]) != wrong[0].reason):
            self.note("measure", own, self.reason(wrong[0]))
        for place, record in enumerate(found):
            if record is None:
                continue
            if place and record.status != "ok":
                if record.cell.regime == SUSTAINED and record.status not in WRONG:
                    self.note("measure", f"{own}, sustained", record.reason or "")
                continue
            if record.status == "ok":
                self.sessions(task, record)
            for given in record.result.get("notes") or ():
                self.note("reference", task.variant, given)
            self.choice(record)
            self.measured(task, self.typical(record))
        counted = self.view.current_record(task, COUNTERS) if task.counted else None
        if counted is not None and not self.view.is_current(task, counted):
            self.note("profile", OTHER_CODE, counted.time[:10])
        for record in (None if task.beside else found[0], counted):
            for given in (record.result.get("observations") or ()) if record is not None else ():
                self.rows["metrics"].append({**given, **self.about(task)})


_MEASURED, _PROFILED = TypeAdapter(Job), TypeAdapter(dict[str, list[Note]])


def accounts_of(folder: RunFolder, plan: Plan) -> tuple[list[TableRow], TableRow | None]:
    """The accounts of the jobs that measured and profiled a sweep, as far as there are any."""
    jobs = [read_as(_MEASURED, folder.account(name, plan.sweep)) for name in accounts(plan)]
    return [job for job in jobs if job], read_as(_PROFILED, folder.account("profiled", plan.sweep))


def _share(job: Mapping[str, Any], part: str, of: str) -> float | None:
    return job[part] / job[of] if job.get(part) is not None and job.get(of) else None


def collect_sweep(
    view: PlanRecords, jobs: Sequence[Mapping[str, Any]] = (), profile: Mapping[str, Any] | None = None
) -> dict[str, pd.DataFrame]:
    """Tables of one sweep, by name; `jobs` and `profile` are as `accounts_of` gives them."""
    collector = Collector(view)
    for task in view.plan.tasks:
        collector.task(task)
    for note in (profile or {}).get("notes", ()):
        collector.note("profile", note["subject"], note["reason"])
    if unreadable := view.records.unreadable:
        collector.note("collect", "records", f"{len(unreadable)} unreadable lines were left out")
    for job in jobs:
        shares = {"gpu_share": _share(job, "gpu_s", "wall_s"), "check_share": _share(job, "check_s", "gpu_s")}
        collector.rows["jobs"].append({**job, "sweep": view.plan.sweep, **shares})
    for facts in view.plan.variants.values():
        words = {"params": json.dumps(facts["params"]), "layout": facts["layout"] or None}
        collector.rows["resources"].append({**facts, **words, "sweep": view.plan.sweep})
    return {name: tables.frame(name, rows) for name, rows in collector.rows.items()}


def changed_code(view: PlanRecords) -> dict[str, int]:
    """Kernels whose machine code is not that of their records: how many variants each."""
    changed: dict[tuple[str, str], None] = {}
    for _, task in view.launched():
        if (record := view.current_record(task)) is not None:
            was = str(record.conditions.tree.get("machine_code"))
            if not str(view.plan.variants[task.variant].get("machine_code")).startswith(was):
                changed[task.cell.kernel, task.variant] = None
    return Counter(kernel for kernel, _ in changed)


def merge(parts: Mapping[str, Mapping[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    """Tables of all sweeps joined in their order, with what the sessions of all of them say together."""
    joined = {name: tables.concat([frames[name] for frames in parts.values()], name) for name in SWEEP_TABLES}
    combined = combine_sessions(joined)
    counted = times_and_counters(combined["timings"], combined["metrics"])
    return combined | {"times_and_counters": tables.concat([counted], "times_and_counters")}

"""Steps of a ladder: what a rung gains over the rung it changes, and the profiler's counter that moved with it."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.model.kernel import Variant
from ladder.report.markdown import figure, magnitude
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results.statistics import Estimate, records

_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
_WAITS = {
    "long_scoreboard": "for global memory",
    "short_scoreboard": "for shared memory",
    "mio_throttle": "for the queue of shared memory",
    "lg_throttle": "for the queue of global memory",
    "barrier": "at barriers",
    "wait": "for a fixed latency",
}
_STALLS = [f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in _WAITS]
# A counter below this share of the whole counts as that share, so that trifles do not move many times over.
_NEGLIGIBLE = 0.05


@dataclass(frozen=True)
class Counter:
    """A sum of metrics, each times its factor; `better` is the sign of its change where a kernel gets faster."""

    words: str
    metrics: Mapping[str, float]
    unit: str = ""
    whole: Sequence[str] = ()
    """Metrics whose sum, with `rest`, this is a part of; without any it is a whole itself."""
    rest: float = 0.0
    better: int = -1

    def value(self, values: Mapping[str, float]) -> float:
        """What was counted, NaN where something is missing."""
        return sum(factor * values.get(name, math.nan) for name, factor in self.metrics.items())

    def floor(self, values: Mapping[str, float]) -> float:
        """The least that matters."""
        whole = [values.get(name, 0.0) for name in self.whole] or [self.value(values)]
        return _NEGLIGIBLE * (sum(whole) + self.rest)

    def moved(self, below: Mapping[str, float], above: Mapping[str, float]) -> tuple[float, str]:
        """Logarithm of the factor it moved by, NaN where it is unknown; `load requests fall from 303 M to 171 M`."""
        before, after = self.value(below), self.value(above)
        floor = max(self.floor(below), self.floor(above))
        log = math.log(max(after, floor) / max(before, floor)) if floor > 0 else math.nan
        verb = "fall" if after < before else "rise"
        told = f"{verb} from {magnitude(before, self.unit)} to {magnitude(after, self.unit)}"
        return log, f"{self.words} {told}"


_LOADED = {
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": 32,  # bytes of a sector
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum": 1,
}
# Besides its waits an instruction takes the cycle it is issued in.
_STALLED = [
    Counter(f"cycles per instruction that warps wait {words} ({reason})", {metric: 1}, "", _STALLS, rest=1.0)
    for (reason, words), metric in zip(_WAITS.items(), _STALLS, strict=True)
]
_CAUSES = [
    Counter("warps' load requests", {"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 1}),
    Counter("bytes loaded by threads and copy engine", _LOADED, "B"),
    Counter("bytes read from DRAM", {"dram__bytes_read.sum": 1}, "B"),
    Counter("wavefronts of shared memory", {_WAVEFRONTS: 1}),
    Counter("bank conflicts of shared loads", {f"{_CONFLICTS}_op_ld.sum": 1}, "", [_WAVEFRONTS]),
    Counter("bank conflicts of shared stores", {f"{_CONFLICTS}_op_st.sum": 1}, "", [_WAVEFRONTS]),
    *_STALLED,
]
_ACTIVE = "active.avg.pct_of_peak_sustained_active"
_TENSOR = Counter("busy cycles of the tensor cores", {f"sm__pipe_tensor_cycles_{_ACTIVE}": 1}, "%", better=1)
_SLOTS = Counter("used issue slots", {f"smsp__issue_{_ACTIVE}": 1}, "%", better=1)
"""These two tell that a kernel got faster, not why: named where no cause moved."""
_LEAST_TENSOR = 1.0  # per cent of busy tensor cores below which a kernel does not use them
_LEAST_CAUSE, _LEAST_EFFECT = math.log(1.05), math.log(1.01)  # what a counter must move by to be named


@dataclass(frozen=True)
class Step:
    """A rung against the rung below, which it changes."""

    below: Variant
    above: Variant
    gain: Estimate
    movement: str | None  # of the counter that moved most in favour of the faster
    counted: bool  # whether the profiler looked at both


def _changes(one: Variant, other: Variant) -> int:
    return sum(other.params[name] != value for name, value in one.params.items())


def rungs_below(rungs: Sequence[Variant]) -> list[Variant]:
    """For every rung but the first the one that it changes.

    Where the rungs differ less from the first than from one another (an ablation), that is the first; on a ladder
    it is the one of the same kernel that a rung differs least from, else the one before it.
    """
    first, same = rungs[0], len({rung.kernel.name for rung in rungs}) == 1
    if same and sum(_changes(first, rung) for rung in rungs) < sum(map(_changes, rungs, rungs[1:])):
        return [first] * (len(rungs) - 1)
    below = []
    for place, rung in enumerate(rungs[1:], 1):
        own = [one for one in rungs[:place] if one.kernel.name == rung.kernel.name]
        below.append(min(reversed(own), key=functools.partial(_changes, rung)) if own else rungs[place - 1])
    return below


def moved_most(gain: Estimate, below: Mapping[str, float], above: Mapping[str, float]) -> str | None:
    """The cause that moved most in favour of the faster rung, else the effect; where neither is, any cause."""
    direction = 1 if gain.low > 1 else -1 if gain.high < 1 else 0

    def most(counters: Sequence[Counter], least: float) -> str | None:
        fitting: dict[float, str] = {}
        for counter in counters:
            log, told = counter.moved(below, above)
            if abs(log) >= least and (not direction or log * counter.better * direction > 0):
                fitting.setdefault(abs(log), told)
        return fitting[max(fitting)] if fitting else None

    cause = most(_CAUSES, _LEAST_CAUSE)
    if cause or not direction:
        return cause
    return most([_TENSOR if _TENSOR.value(above) >= _LEAST_TENSOR else _SLOTS], _LEAST_EFFECT)


def steps(data: SweepData) -> list[Step]:
    """Every rung with a result at the size to speak about, but the first of each dtype, in the sweep's order."""
    rows = {row["variant"]: row for row in records(data.here())}
    counted = stats.metric_table(data.metrics)
    size = tuple(data.size.items())
    found = []
    for dtype in data.sweep.dtypes:
        measured = (entry.variant for entry in data.sweep.entries if entry.variant.id in rows)
        rungs = [variant for variant in measured if variant.dtype == dtype]
        for below, above in zip(rungs_below(rungs), rungs[1:], strict=True) if rungs else ():
            gain = stats.speedup_over(rows[above.id], rows[below.id])
            values = [counted.get((data.sweep.name, one.id, size), {}) for one in (below, above)]
            movement = moved_most(gain, *values) if gain.known else None
            found.append(Step(below, above, gain, movement, counted=all(values)))
    return found


def rate(row: Mapping[str, Any]) -> str:
    """51.4 TFLOP/s; empty where the row is of no work."""
    column = stats.rate_column(pd.DataFrame([row]))
    return f"{figure(row[column[0]], 3)} {column[1]}" if column else ""


def rungs(data: SweepData) -> list[dict[str, Any]]:
    """Of a ladder against a library the `entry` and `row` of each rung with a result, and its `step` but for the first.

    Empty for other sweeps.
    """
    if data.paired_with_kernel or not all(entry.rung for entry in data.sweep.entries):
        return []
    above = {step.above.id: step for step in steps(data)}
    rows = {row["variant"]: row for row in records(data.here())}
    told = [entry for entry in data.sweep.entries if entry.variant.id in rows]
    return [{"entry": one, "row": rows[one.variant.id], "step": above.get(one.variant.id)} for one in told]

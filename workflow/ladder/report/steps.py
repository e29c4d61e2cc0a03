"""Steps of a ladder: what a rung gains over the rung it changes, and the profiler's counter that moved with it."""

import functools
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pandas as pd

from ladder.model.kernel import Variant
from ladder.model.sweep import Entry, Sweep
from ladder.report.markdown import figure, magnitude
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results.statistics import UNKNOWN, Estimate, records

_WAVEFRONTS = itemgetter("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
_COPIED = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_ACTIVE = "active.avg.pct_of_peak_sustained_active"
_WAITS = {
    "long_scoreboard": "for global memory",
    "short_scoreboard": "for shared memory",
    "mio_throttle": "for the queue of shared memory",
    "lg_throttle": "for the queue of global memory",
    "barrier": "at barriers",
    "wait": "for a fixed latency",
}
# A counter below this share of the whole counts as that share, so that trifles do not move many times over.
_NEGLIGIBLE = 0.05
_LEAST_TENSOR = 1.0  # per cent of busy tensor cores below which a kernel does not use them
_LEAST_CAUSE, _LEAST_EFFECT = math.log(1.05), math.log(1.01)  # what a counter must move by to be named

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Counter:
    """Something counted, the `whole` that it is a part of, and the sign of its change where a kernel gets faster."""

    words: str
    value: Callable[[Metrics], float]
    unit: str = ""
    whole: Callable[[Metrics], float] | None = None
    better: int = -1

    def moved(self, below: Metrics, above: Metrics) -> tuple[float, str]:
        """Logarithm of the factor it moved by, NaN where it is unknown; `load requests fall from 303 M to 171 M`."""
        before, after = self.value(below), self.value(above)
        floor = _NEGLIGIBLE * max(map(self.whole or self.value, (below, above)))
        log = math.log(max(after, floor) / max(before, floor)) if floor > 0 else math.nan
        verb = "fall" if after < before else "rise"
        ends = [magnitude(value, self.unit) for value in (before, after)]
        return log, f"{self.words} {verb} from {ends[0]} to {ends[1]}"


def _per_instruction(metrics: Metrics) -> float:
    """Cycles from instruction to instruction: besides its waits one takes the cycle that it is issued in."""
    return 1 + sum(metrics.get(_STALL.format(reason), 0.0) for reason in _WAITS)


_CAUSES = [
    Counter("warps' load requests", itemgetter("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")),
    Counter("bytes loaded by threads and TMA", lambda each: 32 * each[_SECTORS] + each[_COPIED], "B"),
    Counter("bytes read from DRAM", itemgetter("dram__bytes_read.sum"), "B"),
    Counter("wavefronts of shared memory", _WAVEFRONTS),
    Counter("bank conflicts of shared loads", itemgetter(f"{_CONFLICTS}_op_ld.sum"), whole=_WAVEFRONTS),
    Counter("bank conflicts of shared stores", itemgetter(f"{_CONFLICTS}_op_st.sum"), whole=_WAVEFRONTS),
]
for _reason, _words in _WAITS.items():
    _text = f"cycles per instruction that warps wait {_words} ({_reason})"
    _CAUSES.append(Counter(_text, itemgetter(_STALL.format(_reason)), whole=_per_instruction))
_TENSOR = Counter(
    "busy cycles of the tensor cores", itemgetter(f"sm__pipe_tensor_cycles_{_ACTIVE}"), "%", better=1
)
_SLOTS = Counter("used issue slots", itemgetter(f"smsp__issue_{_ACTIVE}"), "%", better=1)
"""These two say that a kernel got faster, not why: named where no cause moved."""


@dataclass(frozen=True)
class Step:
    """A rung with its results, and what it gains over the rung it changes; the first of a dtype changes none."""

    entry: Entry
    row: Mapping[str, Any]
    below: str = ""  # the id of the variant that it changes
    gain: Estimate = UNKNOWN
    direct: bool = False  # whether the two were launched in pairs; else it is the quotient of two speeds
    movement: str | None = None  # of the counter that moved most in favour of the faster
    counted: bool = False  # whether the profiler looked at both


def is_branch(rung: str) -> bool:
    """Whether no later rung builds on this one: its number has a letter, as `7b split loaders`."""
    return re.match(r"\d+[a-z]\b", rung) is not None


def rungs_below(rungs: Sequence[Variant]) -> list[Variant]:
    """For every rung but the first the one that it changes, in a sweep that names no baselines.

    Where the rungs differ less from the first than from one another (an ablation), that is the first; on a ladder
    it is the one of the same kernel that a rung differs least from, else the one before it.
    """

    def changes(one: Variant, other: Variant) -> int:
        return sum(other.params[name] != value for name, value in one.params.items())

    same = len({rung.kernel.name for rung in rungs}) == 1
    if same and sum(changes(rungs[0], rung) for rung in rungs) < sum(map(changes, rungs, rungs[1:])):
        return [rungs[0]] * (len(rungs) - 1)
    below = []
    for place, rung in enumerate(rungs[1:], 1):
        own = [one for one in rungs[:place] if one.kernel.name == rung.kernel.name]
        below.append(min(reversed(own), key=functools.partial(changes, rung)) if own else rungs[place - 1])
    return below


def moved_most(gain: Estimate, below: Metrics, above: Metrics) -> str | None:
    """The cause that moved most in favour of the faster rung, else the effect; where neither is, any cause."""
    direction = 1 if gain.low > 1 else -1 if gain.high < 1 else 0
    below, above = (defaultdict(lambda: math.nan, metrics) for metrics in (below, above))

    def most(counters: Sequence[Counter], least: float) -> str | None:
        moves = [(direction * counter.better, *counter.moved(below, above)) for counter in counters]
        fitting = [(abs(log), text) for sign, log, text in moves if abs(log) >= least and log * sign >= 0]
        return max(fitting, key=itemgetter(0))[1] if fitting else None

    cause = most(_CAUSES, _LEAST_CAUSE)
    if cause or not direction:
        return cause
    return most([_TENSOR if _TENSOR.value(above) >= _LEAST_TENSOR else _SLOTS], _LEAST_EFFECT)


def _below(sweep: Sweep, measured: Sequence[Entry]) -> dict[Variant, Variant]:
    """The baseline of each rung with one; where the sweep names none, the rung that it differs least from."""
    if any(entry.baseline for entry in sweep.entries):
        return {entry.variant: entry.baseline.variant for entry in measured if entry.baseline}
    below: dict[Variant, Variant] = {}
    for dtype in sweep.dtypes:
        rungs = [entry.variant for entry in measured if entry.variant.dtype == dtype]
        below |= dict(zip(rungs[1:], rungs_below(rungs), strict=True))
    return below


def steps(data: SweepData) -> list[Step]:
    """Rungs of a ladder against a library with a result at the sweep's size; none of other sweeps.

    A gain is of direct pairs where there are any, else the quotient of two speeds over the same library.
    """
    if data.sweep.reference.kernel or not all(entry.rung for entry in data.sweep.entries):
        return []
    rows = {row["variant"]: row for row in records(data.here)}
    measured = [entry for entry in data.sweep.entries if entry.variant.id in rows]
    pairs = stats.at_size(stats.ok_rows(data.pairs, data.regime), data.size)
    direct = {(row["variant"], row["reference"]): row for row in records(pairs)}
    counted = stats.metric_table(data.metrics)
    below = _below(data.sweep, measured)
    found = []
    for entry in measured:
        row, other = rows[entry.variant.id], below.get(entry.variant)
        if other is None or other.id not in rows:
            found.append(Step(entry, row, other.id if other else ""))
            continue
        pair = direct.get((entry.variant.id, other.id))
        gain = stats.speedup_over(pair or row, rows[other.id])
        values = [counted.get(stats.cell_of(one), {}) for one in (rows[other.id], row)]
        movement = moved_most(gain, *values) if gain.known else None
        found.append(Step(entry, row, other.id, gain, bool(pair), movement, all(values)))
    return found


def rate(row: Mapping[str, Any]) -> str:
    """51.4 TFLOP/s; empty where the row is of no work."""
    column = stats.rate_column(pd.DataFrame([row]))
    return f"{figure(row[column[0]], 3)} {column[1]}" if column else ""

"""Steps of a ladder: what a rung gains over the rung it changes, and the profiler's counter that moved with it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.model.kernel import Variant
from ladder.report.markdown import cell, figure, magnitude, spread
from ladder.report.sweep_data import SweepData
from ladder.results.statistics import (
    Estimate,
    at_size,
    estimate,
    metric_table,
    rate_column,
    records,
    speedup_over,
)

_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
_STALLS = {
    reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in ("long_scoreboard", "short_scoreboard", "mio_throttle", "lg_throttle", "barrier", "wait")
}
_SECTOR_BYTES = 32
_NEGLIGIBLE = 0.05
"""Share of the whole below which a counter counts as that share, so that trifles do not move many times over."""


@dataclass(frozen=True)
class Counter:
    """A sum of metrics, each times its factor; `better` is the sign of its change where a kernel gets faster."""

    words: str
    unit: str
    metrics: Mapping[str, float]
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


def _stall(reason: str, words: str) -> Counter:
    told = f"cycles per instruction that warps wait {words} ({reason})"
    # Besides its waits an instruction takes the cycle it is issued in.
    return Counter(told, "", {_STALLS[reason]: 1}, tuple(_STALLS.values()), rest=1.0)


_CAUSES = (
    Counter("warps' load requests", "", {"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": 1}),
    Counter(
        "bytes loaded by threads and copy engine",
        "B",
        {
            "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": _SECTOR_BYTES,
            "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum": 1,
        },
    ),
    Counter("bytes read from DRAM", "B", {"dram__bytes_read.sum": 1}),
    Counter("wavefronts of shared memory", "", {_WAVEFRONTS: 1}),
    Counter("bank conflicts of shared loads", "", {f"{_CONFLICTS}_op_ld.sum": 1}, (_WAVEFRONTS,)),
    Counter("bank conflicts of shared stores", "", {f"{_CONFLICTS}_op_st.sum": 1}, (_WAVEFRONTS,)),
    _stall("long_scoreboard", "for global memory"),
    _stall("short_scoreboard", "for shared memory"),
    _stall("mio_throttle", "for the queue of shared memory"),
    _stall("lg_throttle", "for the queue of global memory"),
    _stall("barrier", "at barriers"),
    _stall("wait", "for a fixed latency"),
)
_EFFECTS = (
    Counter(
        "busy cycles of the tensor cores",
        "%",
        {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 1},
        better=1,
    ),
    Counter("used issue slots", "%", {"smsp__issue_active.avg.pct_of_peak_sustained_active": 1}, better=1),
)
"""They tell that a kernel got faster, not why: named where no cause moved."""
_LEAST_TENSOR = 1.0
"""Per cent of busy tensor cores below which a kernel does not use them."""
_LEAST_CAUSE, _LEAST_EFFECT = math.log(1.05), math.log(1.01)
"""What a counter must move by to be named."""


@dataclass(frozen=True)
class Movement:
    """A counter's values at the lower and the upper rung."""

    counter: Counter
    before: float
    after: float
    floor: float

    @property
    def log(self) -> float:
        """Logarithm of the factor it moved by."""
        return math.log(max(self.after, self.floor) / max(self.before, self.floor))

    def __str__(self) -> str:
        """`bytes read from DRAM fall from 303 MB to 171 MB`."""
        verb = "fall" if self.after < self.before else "rise"
        ends = [magnitude(value, self.counter.unit) for value in (self.before, self.after)]
        return f"{self.counter.words} {verb} from {ends[0]} to {ends[1]}"


@dataclass(frozen=True)
class Step:
    """A rung against the rung it changes; `movement` is the counter that moved most in favour of the faster.

    `counted` says whether the profiler looked at both.
    """

    below: Variant
    above: Variant
    gain: Estimate
    movement: Movement | None
    counted: bool

    @property
    def decided(self) -> bool:
        """Whether the interval tells which is faster."""
        return self.gain.low > 1 or self.gain.high < 1


def _changes(one: Variant, other: Variant) -> int:
    """How many parameters two variants of a kernel differ in."""
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


def _movements(
    counters: Sequence[Counter], below: Mapping[str, float], above: Mapping[str, float]
) -> list[Movement]:
    found = []
    for counter in counters:
        before, after = counter.value(below), counter.value(above)
        floor = max(counter.floor(below), counter.floor(above))
        if floor > 0 and not math.isnan(before + after):
            found.append(Movement(counter, before, after, floor))
    return found


def moved_most(gain: Estimate, below: Mapping[str, float], above: Mapping[str, float]) -> Movement | None:
    """The cause that moved most in favour of the faster rung, else the effect; where neither is, any cause."""
    direction = 1 if gain.low > 1 else -1 if gain.high < 1 else 0

    def most(counters: Sequence[Counter], least: float) -> Movement | None:
        fitting = [
            one
            for one in _movements(counters, below, above)
            if abs(one.log) >= least and (not direction or one.log * one.counter.better * direction > 0)
        ]
        return max(fitting, key=lambda one: abs(one.log), default=None)

    cause = most(_CAUSES, _LEAST_CAUSE)
    if cause or not direction:
        return cause
    tensor, slots = _EFFECTS
    return most([tensor if tensor.value(above) >= _LEAST_TENSOR else slots], _LEAST_EFFECT)


def steps(data: SweepData) -> list[Step]:
    """Every rung with a result at the size to speak about, but the first of each dtype, in the sweep's order."""
    rows = {row["variant"]: row for row in records(at_size(data.ok(), data.size))}
    counted = metric_table(data.metrics)
    size = tuple(data.size.items())
    found = []
    for dtype in data.sweep.dtypes:
        rungs = [
            entry.variant
            for entry in data.sweep.entries
            if entry.variant.id in rows and entry.variant.dtype == dtype
        ]
        for below, above in zip(rungs_below(rungs), rungs[1:], strict=True) if rungs else ():
            gain = speedup_over(rows[above.id], rows[below.id])
            values = [counted.get((data.sweep.name, one.id, size), {}) for one in (below, above)]
            movement = moved_most(gain, *values) if gain.known else None
            found.append(Step(below, above, gain, movement, counted=all(values)))
    return found


def _sentence(step: Step, names: Mapping[str, str]) -> str:
    if not step.gain.known:
        return f"not to be compared with {names[step.below.id]}"
    text = f"{spread(step.gain)} times as fast as {names[step.below.id]}"
    if not step.decided:
        text += ", which the interval cannot tell apart"
        return f"{text}, though {step.movement}" if step.movement else text
    if step.movement:
        return f"{text}; {step.movement}"
    return f"{text}; no counter that was collected moved with it" if step.counted else text


def step_sentences(data: SweepData) -> list[str]:
    """One sentence a rung of a ladder against a library, of its first rung the speed; none for other sweeps."""
    if data.paired_with_kernel or not all(entry.rung for entry in data.sweep.entries):
        return []
    rows = {row["variant"]: row for row in records(at_size(data.ok(), data.size))}
    names = data.labels(data.timings)
    above = {step.above.id: step for step in steps(data)}
    sentences = []
    for entry in data.sweep.entries:
        name = entry.variant.id
        if name not in rows:
            continue
        text = _sentence(above[name], names) if name in above else _first(rows[name])
        technique = f" ({cell(entry.technique)})" if entry.technique else ""
        sentences.append(f"**{cell(names[name])}**{technique}: {text}.")
    return sentences


def _first(row: Mapping[str, Any]) -> str:
    rate = rate_column(pd.DataFrame([row]))
    speed = f"{figure(row[rate[0]], 3)} {rate[1]}, " if rate else ""
    return f"{speed}{spread(estimate(row, 'speedup'))} times the speed of {row['reference']}"

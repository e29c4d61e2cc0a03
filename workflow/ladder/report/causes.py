"""Why one launch takes less time than another: the counter that accounts for the difference, if one does.

Three kinds of causes, in this order:

- a **limit**: the launch needs less of what the hardware gives at a fixed rate, and that took half of the time or more;
- **work removed** from a unit that was busy for half of the time, or a **wait** that became shorter, whichever accounts
  for more nearly all of the difference. Where none does, the waits for a memory and for its queue count as one;
- **in part** the wait that changed most, where it accounts for a quarter of the difference.

Each is named only where its counter moved, by at least 5 %, the way that the time did, and where the launches that were
counted differ in cycles as those that were timed do in time. That a pipe is busier is no cause: of the same work in
less time each pipe is.

Counters of loads and of shared memory do not see what TMA copies, so they are not compared with those of a launch
without it. With TMA some warps only copy, and waits are means over all: they are named without a share.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ladder.model.schemas import Fields, TableRow
from ladder.report.markdown import magnitude, share
from ladder.results import statistics as stats
from ladder.results.counters import (
    CYCLES,
    DRAM_READ,
    DRAM_WRITE,
    SECTORS,
    SHARED_WAVEFRONTS,
    STALL_FOR,
)

Metrics = Mapping[str, float]
Launch = tuple[TableRow, Metrics]

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
_SPECIAL = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
_FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
_LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
_BY_TMA = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
_BY_SHARE = (
    ("cycles of tensor cores", "tensor cores", _TENSOR, 1),
    ("cycles of special functions", "special functions", _SPECIAL, 1),
    ("instructions issued", "issue slots", _ISSUED, 4),
)
"""Words, unit, the share of the time that it works, and what a multiprocessor makes in a cycle of it."""
_BY_COUNT = (
    ("wavefronts of shared memory", "shared memory", SHARED_WAVEFRONTS, 1),
    ("sectors loaded through the L1", "L1 loads", SECTORS, 4),
    ("warps' load requests", "L1 loads", _REQUESTS, 1),
)
"""Words, unit, a count, and how many a multiprocessor makes in a cycle."""
_ALONE = {
    "long_scoreboard": "waits for global memory or an mbarrier",
    "short_scoreboard": "waits for shared memory",
    "mio_throttle": "waits for the queue of shared memory",
    "lg_throttle": "waits for the queue of global memory",
    "barrier": "waits at barriers",
    "wait": "waits for a fixed latency",
    "math_pipe_throttle": "",
    "gmma": "",
    "dispatch_stall": "waits for dispatch",
    "no_instruction": "",
}
"""Reasons of the profiler, and their words; none of a busy pipe, and of code not yet there."""
_WITH_QUEUE = {
    "long_scoreboard lg_throttle": "waits for global memory and its queue",
    "short_scoreboard mio_throttle": "waits for shared memory and its queue",
}
_OF_ALL_WARPS = "mean of all warps, also of those that only copy"
# Shares of the difference that a counter must account for, to be its cause.
_LEAST, _MOST = 0.5, 1.5
_IN_PART = 0.25
_ALL = 0.995  # a share of at least so much reads as all
_MOVED = math.log(1.05)  # by less no counter changes anything
# Shares of the slower one's time: of a need that fills it, and of one that limits it or whose unit is in use.
_FILLS, _LIMITS = 0.75, 0.5
_ROUNDS = 0.005  # of the rate: less reads as nothing


@dataclass(frozen=True)
class Need:
    """Something that a launch needs: how much, and the seconds that so much takes at the GPU's rate; NaN if unknown.

    `pipe`: the unit that works so long; empty where another need is of the same unit. `per`: what numbers are counted
    in, where the words do not say it.
    """

    words: str
    amount: float
    seconds: float
    pipe: str = ""
    unit: str = ""
    per: str = ""


@dataclass(frozen=True)
class Cause:
    """What accounts for the difference of two times, with its numbers and in short, and for which share of it.

    share: 0 where no counter does, and the words say which contradict each other. change: the words without the share;
    empty where nothing accounts for the difference.
    """

    words: str = ""
    short: str = ""
    share: float = 0.0
    change: str = ""


def _fact(gpu: Fields, name: str) -> float:
    """A number of the GPU; NaN where it is unknown."""
    return float(gpu.get(name) or math.nan)


def needs(row: TableRow, metrics: Metrics, gpu: Fields) -> list[Need]:
    """What a launch moves, loads, multiplies and issues."""

    def counted(name: str) -> float:
        return metrics.get(name, math.nan)

    seconds = row["median_us"] * 1e-6
    cycles = counted(CYCLES)  # of all multiprocessors
    moved = counted(DRAM_READ) + counted(DRAM_WRITE)
    copied = _fact(gpu, "copy_gbytes_per_s") * 1e9
    ffma, flops = counted(_FFMA), _fact(gpu, "fp32_peak_tflops") * 1e12
    needed = [
        Need("bytes to and from DRAM", moved, moved / copied, "DRAM", "B"),
        Need("FFMA instructions of threads", ffma, 2 * ffma / flops, "FP32 units"),
        Need("bytes copied by TMA", counted(_BY_TMA), math.nan, unit="B"),
    ]
    for words, pipe, metric, rate in _BY_SHARE:
        works = counted(metric) / 100
        needed.append(Need(words, works * cycles * rate, works * seconds, pipe))
    for words, pipe, metric, rate in _BY_COUNT:
        amount = counted(metric)
        needed.append(Need(words, amount, amount / rate / cycles * seconds, pipe))
    return needed


def waits(
    row: TableRow, metrics: Metrics, named: Mapping[str, str] = _ALONE
) -> list[Need]:
    """The cycles of each instruction that warps wait for the `named` reasons, and the part of the time.

    In the cycles in which a scheduler issues nothing all of its warps wait: a reason takes the part of this time that
    it has of all waits.
    """
    stalls = {
        reason: metrics.get(STALL_FOR.format(reason), math.nan) for reason in _ALONE
    }
    # Issuing is no wait, nor is another warp's turn. Of the rest some has no name here, such as waits in a cluster.
    ready = 1 + metrics.get(STALL_FOR.format("not_selected"), math.nan)
    all_waits = metrics.get(_LATENCY, math.nan) - ready
    idle = 1 - metrics.get(_ISSUED, math.nan) / 100
    second_a_cycle = row["median_us"] * 1e-6 * idle / all_waits
    waited = []
    for reasons, words in named.items():
        cycles = sum(stalls[reason] for reason in reasons.split())
        seconds = cycles * second_a_cycle
        waited.append(Need(words, cycles, seconds, per=" cycles an instruction"))
    return waited


def busy(row: TableRow, metrics: Metrics, gpu: Fields) -> dict[str, float]:
    """Unit -> the share of the time that it works (DRAM: of its peak rate), of those counted, the busiest first."""
    shares: dict[str, float] = {}
    peak = _fact(gpu, "memory_peak_gbytes_per_s") * 1e9
    for need in needs(row, metrics, gpu):
        # A need of DRAM takes its time at the rate of a copy, which is below the peak.
        seconds = need.amount / peak if need.pipe == "DRAM" else need.seconds
        part = seconds / row["median_us"] * 1e6
        if need.pipe and part >= max(_ROUNDS, shares.get(need.pipe, 0.0)):  # NaN is not
            shares[need.pipe] = part
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def longest_wait(row: TableRow, metrics: Metrics) -> str:
    """What warps wait for most, and the share of the time in which nothing is issued for it; empty if it is unknown."""
    named = [wait for wait in waits(row, metrics) if wait.words]
    longest = max(named, key=lambda wait: wait.seconds)
    if math.isnan(longest.seconds):
        return ""
    part = share(longest.seconds / row["median_us"] * 1e6, ".0f")
    return f"{longest.words.removeprefix('waits ')}, {part}"


class _Pair:
    """Two launches with their counters, the one below first, and the seconds that the other one saves.

    with_tma: whether one of them copies by TMA.
    """

    def __init__(self, launches: Sequence[Launch], gpu: Fields) -> None:
        self.times = [float(row["median_us"]) * 1e-6 for row, _ in launches]
        self.saved = self.times[0] - self.times[1]
        self.cycles = [metrics.get(CYCLES, math.nan) for _, metrics in launches]
        by_tma = [metrics.get(_BY_TMA, 0.0) > 0 for _, metrics in launches]
        self.with_tma = any(by_tma)
        needed = [needs(*launch, gpu) for launch in launches]
        waited = [waits(*launch) for launch in launches]
        with_queue = [waits(*launch, _WITH_QUEUE) for launch in launches]
        unseen = {words for words, *_ in _BY_COUNT} if len({*by_tma}) > 1 else {}
        self.needs = [
            need for need in zip(*needed, strict=True) if need[0].words not in unseen
        ]
        issued = [need for need in self.needs if need[0].pipe == "issue slots"]
        self.spent = [*issued, *zip(*waited, strict=True)]
        self.with_queue = list(zip(*with_queue, strict=True))

    def moved_along(self, below: float, above: float) -> float:
        """The logarithm of a count's quotient, positive where the count moved as the time did; 0 if it is unknown."""
        if not min(below, above) > 0:
            return 0.0
        return math.copysign(1, self.saved) * math.log(below / above)

    @property
    def factor(self) -> float:
        """The logarithm of the slower one's time over the other's."""
        return self.moved_along(*self.times)

    @property
    def counted_alike(self) -> bool:
        """Whether the launches that were counted differ in cycles as the times do; also where cycles are unknown."""
        if math.isnan(sum(self.cycles)):
            return True
        return self.moved_along(*self.cycles) >= _LEAST * self.factor

    def moved(self, below: Need, above: Need) -> float:
        """`moved_along` of what was needed."""
        return self.moved_along(below.amount, above.amount)

    def part(self, below: Need, above: Need) -> float:
        """The share of the seconds saved that the change of a need takes."""
        return (below.seconds - above.seconds) / self.saved


def _moves(below: Need, above: Need) -> str:
    """waits at barriers fall."""
    return f"{below.words} {'fall' if above.amount < below.amount else 'rise'}"


def _change(below: Need, above: Need) -> str:
    """waits at barriers fall from 3.00 to 1.00 cycles an instruction."""
    before, after = (magnitude(need.amount, need.unit) for need in (below, above))
    return f"{_moves(below, above)} from {before} to {after}{below.per}"


def _causes(
    pair: _Pair,
    changes: Iterable[tuple[Need, Need, float]],
    took: float = 0.0,
    most: float = _MOST,
    in_part: bool = False,
) -> list[Cause]:
    """Needs with words that moved as the time did, with the share of the difference that each accounts for.

    `took`: the share of the slower one's time that they took at least. `most`: the largest share of the difference.
    `in_part`: other needs take some of it back.
    """
    causes = []
    for below, above, part in changes:
        time = max(below.seconds, above.seconds) / max(pair.times)
        moved = pair.moved(below, above) > _MOVED
        least = _IN_PART if in_part else _LEAST
        if not (below.words and time >= took and moved and least <= part <= most):
            continue
        explained = "all" if part >= _ALL else share(part, ".0f")
        time_moved = "time saved" if pair.saved > 0 else "time lost"
        hedge, end = "", f", which explains {explained} of the {time_moved}"
        if below.per and pair.with_tma:
            hedge, end = "perhaps ", f" ({_OF_ALL_WARPS})"
        elif in_part:
            hedge, end = "in part ", ""
        change = hedge + _change(below, above)
        causes.append(Cause(change + end, hedge + _moves(below, above), part, change))
    return causes


def _limits(pair: _Pair) -> list[Cause]:
    """Needs by the time that their change takes at the hardware's rate.

    What filled the time may account for more than all of the difference: once it is gone, something else limits.
    """
    limits = [(*need, pair.part(*need)) for need in pair.needs]
    filled = _causes(pair, limits, took=_FILLS, most=math.inf)
    return filled or _causes(pair, limits, took=_LIMITS)


def _removed(pair: _Pair) -> list[Cause]:
    """Work of units in use, by the share of the factor by which the time changed."""
    work = [(*need, pair.moved(*need) / pair.factor) for need in pair.needs]
    return _causes(pair, work, took=_LIMITS)


def _spent(pair: _Pair) -> list[Cause]:
    """Issuing and waits, by the time that warps spend so; where there is none, waits for a memory and its queue as one.

    A wait may have another name in the other launch: at `__syncthreads` it is `barrier`, at an mbarrier
    `long_scoreboard`. So what other waits rise by is taken off what one falls by, and the other way round where time is
    lost.
    """
    parts = [pair.part(*spent) for spent in pair.spent]
    under_other_names = sum(part for part in parts if part < 0)
    alone, with_queue = (
        [(*spent, pair.part(*spent) + under_other_names) for spent in times]
        for times in (pair.spent, pair.with_queue)
    )
    return _causes(pair, alone) or _causes(pair, with_queue)


def _in_part(pair: _Pair) -> list[Cause]:
    """Issuing and waits that account for a part of the difference, of which no other one takes back as much.

    Waits for a busy pipe take nothing back: where others become shorter, warps come to the pipe sooner.
    """
    parts = [(*spent, pair.part(*spent)) for spent in pair.spent if spent[0].words]
    taken_back = min(0.0, *(part for *_, part in parts))  # NaN is not
    left = [one for one in parts if one[2] + taken_back > 0]
    return _causes(pair, left, most=math.inf, in_part=True)


def _contradiction(pair: _Pair) -> str:
    """The counter that moved most as the time did, and that which moved most against it."""
    moved = {}
    for change in (*pair.needs, *pair.spent):
        part, by = pair.part(*change), pair.moved(*change)
        if change[0].words and abs(by) > _MOVED and part * by > 0:  # NaN is not
            moved[part] = _change(*change)
    along, against = max([0.0, *moved]), min([0.0, *moved])
    ends = [moved[part] for part in (along, against) if part]
    return ", but ".join(ends) or "none moved"


def cause(launches: Sequence[Launch], gpu: Fields) -> Cause:
    """What accounts for the difference of the times of two launches, or that nothing does."""
    pair = _Pair(launches, gpu)
    if not pair.saved:
        return Cause("as fast", "?")
    if not pair.counted_alike:
        before, after = (magnitude(cycles) for cycles in pair.cycles)
        words = f"the launches that were counted took {before} and {after} cycles"
        return Cause(f"not explained by the counters: {words}", "?")
    found = _limits(pair) or [*_removed(pair), *_spent(pair)] or _in_part(pair)
    if not found:
        return Cause(f"not explained by the counters: {_contradiction(pair)}", "?")
    return min(found, key=lambda one: abs(math.log(one.share)))


def relieved(change: str) -> str:
    """barriers: 3.00 to 1.00, of "waits at barriers fall from 3.00 to 1.00"; barriers, of a cause in short."""
    numbers = re.sub(r" (?:fall|rise) from ", ": ", change)
    return re.sub(r"waits (?:for|at) | fall$", "", numbers)


def resident(below: TableRow, above: TableRow) -> str:
    """That the faster one has a larger occupancy, by more blocks on a multiprocessor; else, or where unknown, empty."""
    slow, fast = sorted((below, above), key=lambda row: -row["median_us"])
    for fact in ("blocks_per_sm", "occupancy"):
        if not (slow.get(fact) or math.inf) < (fast.get(fact) or 0):
            return ""
    fitting = stats.count(int(above["blocks_per_sm"]), "block")
    before = int(below["blocks_per_sm"])
    then, now = (share(row["occupancy"], ".3g") for row in (below, above))
    return (
        f"{fitting} a multiprocessor instead of {before}: occupancy {now}, not {then}"
    )

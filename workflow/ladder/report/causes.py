"""Why one launch takes less time than another: the counter that accounts for the difference, if one does.

Four kinds of causes, in this order:

- a **limit**: the launch needs less of what the hardware gives at a fixed rate, and that took half of the time or more;
- **work removed**, or a **wait** that became shorter, whichever accounts for more nearly all of the difference. Where
  none does, the waits for a memory and for its queue count as one;
- a **busier pipe**: the work is the same, and the busiest unit works for more of the time. The wait that changed most
  stands beside it. Where there is one, it may also be a unit that does what the result takes, or the busiest pipe with
  the time counted in which multiprocessors have nothing to do.

Each is named only where its counter moved, by at least 5 %, the way that the time did.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ladder.model.schemas import Fields, TableRow
from ladder.report.markdown import magnitude, share
from ladder.results import statistics as stats
from ladder.results.counters import (
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
_THROUGHPUT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
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
    "dispatch_stall": "waits for dispatch",
    "no_instruction": "",
}
"""Reasons of the profiler, and their words; none of a busy pipe, and of code not yet there."""
_SHARED = "short_scoreboard mio_throttle"
_WITH_QUEUE = {
    "long_scoreboard lg_throttle": "waits for global memory and its queue",
    _SHARED: "waits for shared memory and its queue",
}
# A change of instructions may turn one wait for shared memory into the other.
_BESIDE_PIPES = {
    **{reason: words for reason, words in _ALONE.items() if reason not in _SHARED},
    _SHARED: _WITH_QUEUE[_SHARED],
}
# Units that do what the result takes, which others only bring and fetch.
_WORKERS = ("tensor cores", "FP32 units", "DRAM")
_OF_ALL = "the busiest pipe of all multiprocessors"
# Shares of the difference that a counter must account for, to be its cause.
_LEAST, _MOST = 0.5, 1.5
_ALL = 0.995  # a share of at least so much reads as all
_MOVED = math.log(1.05)  # by less no counter changes anything
_SAME_WORK = math.log(1.1)
# Shares of the slower one's time: of a need that fills it, of one that limits it, and of a unit whose work counts.
_FILLS, _LIMITS, _USED = 0.75, 0.5, 0.1
_BUSY = 0.25  # share of the time that the pipe works at least, which does the work
_BESIDE = 0.25  # share of the difference that a wait takes at least, to be named beside a pipe
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

    A pipe accounts for all of it; 0 where no counter does, and the words say which contradict each other. `change`:
    what says most by itself, such as the wait beside a pipe; empty where nothing accounts for the difference.
    """

    words: str = ""
    short: str = ""
    share: float = 0.0
    change: str = ""


def _fact(facts: Fields, name: str) -> float:
    """A number of a row or of the GPU; NaN where it is unknown."""
    return float(facts.get(name) or math.nan)


def needs(row: TableRow, metrics: Metrics, gpu: Fields) -> list[Need]:
    """What a launch moves, loads, multiplies and issues."""

    def counted(name: str) -> float:
        return metrics.get(name, math.nan)

    seconds = row["median_us"] * 1e-6
    # Of all multiprocessors in a second.
    cycles = _fact(gpu, "sms") * _fact(row, "sm_clock_mhz") * 1e6
    moved = counted(DRAM_READ) + counted(DRAM_WRITE)
    copied = _fact(gpu, "copy_gbytes_per_s") * 1e9
    ffma, flops = counted(_FFMA), _fact(gpu, "fp32_peak_tflops") * 1e12
    needed = [
        Need("bytes to and from DRAM", moved, moved / copied, "DRAM", "B"),
        Need("FFMA instructions of threads", ffma, 2 * ffma / flops, "FP32 units"),
        Need("bytes copied by TMA", counted(_BY_TMA), math.nan, unit="B"),
    ]
    for words, pipe, metric, rate in _BY_SHARE:
        works = seconds * counted(metric) / 100
        needed.append(Need(words, works * cycles * rate, works, pipe))
    for words, pipe, metric, rate in _BY_COUNT:
        amount = counted(metric)
        needed.append(Need(words, amount, amount / rate / cycles, pipe))
    return needed


def waits(
    row: TableRow, metrics: Metrics, named: Mapping[str, str] = _ALONE
) -> list[Need]:
    """The cycles of each instruction, and the part of the time, that warps wait for the `named` reasons.

    Besides its waits an instruction takes a cycle.
    """
    stalls = {
        reason: metrics.get(STALL_FOR.format(reason), math.nan) for reason in _ALONE
    }
    second_a_cycle = row["median_us"] * 1e-6 / (1 + sum(stalls.values()))
    waited = []
    for reasons, words in named.items():
        cycles = sum(stalls[reason] for reason in reasons.split())
        seconds = cycles * second_a_cycle
        waited.append(Need(words, cycles, seconds, per=" cycles an instruction"))
    return waited


def busy(row: TableRow, metrics: Metrics, gpu: Fields) -> dict[str, float]:
    """Unit -> the share of its peak rate that a launch takes, of those that were counted, the busiest first."""
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
    """What the warps of a launch wait for most, and in which share of their time; empty where it was not counted."""
    named = [wait for wait in waits(row, metrics) if wait.words]
    longest = max(named, key=lambda wait: wait.seconds)
    if math.isnan(longest.seconds):
        return ""
    part = share(longest.seconds / row["median_us"] * 1e6, ".0f")
    return f"{longest.words.removeprefix('waits ')}, {part}"


class _Pair:
    """Two launches with their counters, the one below first, and the seconds that the other one saves."""

    def __init__(self, launches: Sequence[Launch], gpu: Fields) -> None:
        self.times = [float(row["median_us"]) * 1e-6 for row, _ in launches]
        self.saved = self.times[0] - self.times[1]
        needed = [needs(*launch, gpu) for launch in launches]
        waited = [waits(*launch) for launch in launches]
        with_queue = [waits(*launch, _WITH_QUEUE) for launch in launches]
        self.needs = list(zip(*needed, strict=True))
        beside = [waits(*launch, _BESIDE_PIPES) for launch in launches]
        self.beside = list(zip(*beside, strict=True))
        self.waits = list(zip(*waited, strict=True))
        self.with_queue = list(zip(*with_queue, strict=True))
        self.busy = []
        for row, metrics in launches:
            throughput = metrics.get(_THROUGHPUT, math.nan) / 100
            self.busy.append({**busy(row, metrics, gpu), _OF_ALL: throughput})

    def moved_along(self, below: float, above: float) -> float:
        """The logarithm of a count's quotient, positive where the count moved as the time did; 0 if it is unknown."""
        if not min(below, above) > 0:
            return 0.0
        return math.copysign(1, self.saved) * math.log(below / above)

    @property
    def factor(self) -> float:
        """The logarithm of the slower one's time over the other's."""
        return self.moved_along(*self.times)

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
    least: float,
    most: float = _MOST,
) -> list[Cause]:
    """Needs with words that moved as the time did, with the share of the difference that each accounts for.

    `least`: the share of the slower one's time that they took. `most`: the largest share of the difference.
    """
    causes = []
    for below, above, part in changes:
        took = max(below.seconds, above.seconds) / max(pair.times)
        moved = pair.moved(below, above) > _MOVED
        if below.words and took >= least and moved and _LEAST <= part <= most:
            change = _change(below, above)
            causes.append(Cause(change, _moves(below, above), part, change))
    return causes


def _counts(pair: _Pair) -> list[Cause]:
    """Limits, else work removed or waits.

    Limits count by the time that their change takes at the hardware's rate, work of units in use by the share of the
    factor by which the time changed, and waits by the time that warps spend in them. What filled the time may account
    for more than all of the difference: once it is gone, something else limits.

    A wait may have another name in the other launch: at `__syncthreads` it is `barrier`, at an mbarrier
    `long_scoreboard`. So what other waits rise by is taken off what one falls by, and the other way round where time is
    lost.
    """
    limits = [(*need, pair.part(*need)) for need in pair.needs]
    causes = _causes(pair, limits, _FILLS, math.inf) or _causes(pair, limits, _LIMITS)
    if causes:
        return causes
    work = [(*need, pair.moved(*need) / pair.factor) for need in pair.needs]
    parts = [pair.part(*wait) for wait in pair.waits]
    under_other_names = sum(part for part in parts if part < 0)
    alone, with_queue = (
        [(*wait, pair.part(*wait) + under_other_names) for wait in waited]
        for waited in (pair.waits, pair.with_queue)
    )
    causes = [*_causes(pair, work, _USED), *_causes(pair, alone, 0.0)]
    return causes or _causes(pair, with_queue, 0.0)


def _moved(pair: _Pair, changes: Iterable[tuple[Need, Need]]) -> dict[float, str]:
    """Share of the difference -> the change with words that takes it; below 0 where it moved against the time."""
    moved = {}
    for change in changes:
        part, by = pair.part(*change), pair.moved(*change)
        if change[0].words and abs(by) > _MOVED and part * by > 0:  # NaN is not
            moved[part] = _change(*change)
    return moved


def _beside(pair: _Pair) -> str:
    """The wait that changed most the way that the time did; empty where none took enough of it."""
    moved = _moved(pair, pair.beside)
    most = max(moved, default=0.0)
    return moved[most] if most >= _BESIDE else ""


def _busier(pair: _Pair) -> Cause | None:
    """The pipe that works for more of the time at the same work: the busiest one, else one with a wait beside it."""
    before, after = pair.busy
    pipes = ({*before} & {*after}) - {"issue slots", _OF_ALL}
    ordered = sorted(pipes, key=lambda name: -max(before[name], after[name]))
    beside = _beside(pair)
    others = [name for name in ordered[1:] if name in _WORKERS]
    for pipe in [*ordered[:1], *([*others, _OF_ALL] if beside else [])]:
        then, now = before[pipe], after[pipe]
        same_work = pair.moved_along(then * pair.times[0], now * pair.times[1])
        part = pair.moved_along(now, then) / pair.factor
        is_cause = _LEAST <= part <= _MOST and abs(same_work) <= _SAME_WORK
        if is_cause and max(then, now) >= _BUSY:
            digits = ".0f" if share(then, ".0f") != share(now, ".0f") else ".1f"
            words = f"{pipe} busy for {share(now, digits)} of the time instead of {share(then, digits)}"
            short = f"{pipe} {'busier' if now > then else 'less busy'}"
            both = f"{words}; {beside}" if beside else words
            return Cause(both, short, 1.0, beside or words)
    return None


def _contradiction(pair: _Pair) -> str:
    """The counter that moved most as the time did, and that which moved most against it."""
    moved = _moved(pair, (*pair.needs, *pair.waits))
    along, against = max([0.0, *moved]), min([0.0, *moved])
    ends = [moved[part] for part in (along, against) if part]
    return ", but ".join(ends) or "none moved"


def cause(launches: Sequence[Launch], gpu: Fields) -> Cause:
    """What accounts for the difference of the times of two launches, or that nothing does."""
    pair = _Pair(launches, gpu)
    if not pair.saved:
        return Cause("as fast", "?")
    causes = _counts(pair)
    if not causes:
        words = f"not explained by the counters: {_contradiction(pair)}"
        return _busier(pair) or Cause(words, "?")
    best = min(causes, key=lambda cause: abs(math.log(cause.share)))
    part = "all" if best.share >= _ALL else share(best.share, ".0f")
    change = "saved" if pair.saved > 0 else "lost"
    words = f"{best.words}, which explains {part} of the time {change}"
    return replace(best, words=words)


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

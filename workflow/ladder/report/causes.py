"""Why one launch takes less time than another: the counter that accounts for the difference, if one does.

Four kinds of causes, in this order:

- a **limit**: the launch needs less of what the hardware gives at a fixed rate, and that took half of the time or more;
- **work removed**, or a **wait** that became shorter, whichever accounts for more nearly all of the difference;
- a **busier pipe**: the work is the same, and the unit that does most of it works for more of the time. The wait that
  changed most stands beside it.

Each is named only where its counter moved, by at least 5 %, the way that the time did.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ladder.model.schemas import TableRow
from ladder.report.markdown import magnitude, share
from ladder.results import statistics as stats
from ladder.results.counters import (
    DRAM_READ,
    DRAM_WRITE,
    SECTORS,
    SHARED_WAVEFRONTS,
    STALL_FOR,
)

NOT_COUNTED, NOT_EXPLAINED = "not counted", "not explained by the counters"

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
_SPECIAL = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
_FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
_BY_TMA = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
_SECTORS_A_CYCLE, _SCHEDULERS = (
    4,
    4,
)  # of a multiprocessor: 128 bytes from its L1; instructions
WAITS = {
    "long_scoreboard": "for global memory or an mbarrier",
    "short_scoreboard": "for shared memory",
    "mio_throttle": "for the queue of shared memory",
    "lg_throttle": "for the queue of global memory",
    "barrier": "at barriers",
    "wait": "for a fixed latency",
}
_STALLS = [*WAITS, "math_pipe_throttle", "dispatch_stall", "no_instruction"]
_LEAST, _MOST = (
    0.5,
    1.5,
)  # shares of the difference that a counter must account for, to be its cause
_ALL = 0.995  # a share of at least so much reads as all
_LIMITS = 0.5  # share of the slower one's time that a need takes at least, to limit it
_MOVED = math.log(1.05)  # by less no counter changes anything
_SAME_WORK = math.log(1.1)
_BUSY = 0.25  # share of the time that the pipe works at least, which does the work
_USED = (
    0.1  # share of the slower one's time that a unit works at least, whose work counts
)
_BESIDE = 0.25  # share of the difference that a wait takes at least, to be named beside a pipe
_ROUNDS = 0.005  # of the rate: less reads as nothing

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Need:
    """Something that a launch needs: how much, and the seconds that so much takes at the GPU's rate; NaN if unknown.

    `pipe`: the unit that works so long; empty where another need is of the same unit.
    """

    words: str
    amount: float
    seconds: float
    unit: str = ""
    pipe: str = ""


@dataclass(frozen=True)
class Wait:
    """The part of a launch's time that warps wait for a `reason`, and its cycles for each instruction."""

    reason: str
    cycles: float
    seconds: float

    @property
    def words(self) -> str:
        """at barriers; empty for reasons that say nothing of memory or barriers, which are never a cause."""
        return WAITS.get(self.reason, "")


def needs(row: TableRow, metrics: Metrics, gpu: Mapping[str, Any]) -> list[Need]:
    """What a launch moves, loads, multiplies and issues."""

    def counted(name: str) -> float:
        return metrics.get(name, math.nan)

    seconds = row["median_us"] * 1e-6
    hertz = (row.get("sm_clock_mhz") or math.nan) * 1e6
    cycles = (gpu.get("sms") or math.nan) * hertz  # of all multiprocessors in a second
    moved = counted(DRAM_READ) + counted(DRAM_WRITE)
    copied = (gpu.get("copy_gbytes_per_s") or math.nan) * 1e9
    flops = (gpu.get("fp32_peak_tflops") or math.nan) * 1e12
    tensor, special, issued = (
        seconds * counted(name) / 100 for name in (_TENSOR, _SPECIAL, _ISSUED)
    )
    return [
        Need("bytes to and from DRAM", moved, moved / copied, "B", "DRAM"),
        Need("cycles of tensor cores", tensor * cycles, tensor, pipe="tensor cores"),
        Need(
            "cycles of special functions",
            special * cycles,
            special,
            pipe="special functions",
        ),
        Need(
            "FFMA instructions of threads",
            counted(_FFMA),
            2 * counted(_FFMA) / flops,
            pipe="FP32 units",
        ),
        Need(
            "wavefronts of shared memory",
            counted(SHARED_WAVEFRONTS),
            counted(SHARED_WAVEFRONTS) / cycles,
            pipe="shared memory",
        ),
        Need(
            "sectors loaded through the L1",
            counted(SECTORS),
            counted(SECTORS) / _SECTORS_A_CYCLE / cycles,
            pipe="L1 loads",
        ),
        Need(
            "warps' load requests",
            counted(_REQUESTS),
            counted(_REQUESTS) / cycles,
            pipe="L1 loads",
        ),
        Need("bytes copied by TMA", counted(_BY_TMA), math.nan, "B"),
        Need(
            "instructions issued",
            issued * cycles * _SCHEDULERS,
            issued,
            pipe="issue slots",
        ),
    ]


def waits(row: TableRow, metrics: Metrics) -> list[Wait]:
    """The parts of the time that warps wait for each reason; besides its waits an instruction takes a cycle."""
    stalls = {
        reason: metrics.get(STALL_FOR.format(reason), math.nan) for reason in _STALLS
    }
    whole = 1 + sum(stalls.values())
    return [
        Wait(reason, cycles, row["median_us"] * 1e-6 * cycles / whole)
        for reason, cycles in stalls.items()
    ]


def busy(row: TableRow, metrics: Metrics, gpu: Mapping[str, Any]) -> dict[str, float]:
    """Unit -> the share of its peak rate that a launch takes, of those that were counted, the busiest first."""
    shares: dict[str, float] = {}
    for need in needs(row, metrics, gpu):
        part = need.seconds / row["median_us"] * 1e6
        if need.pipe == "DRAM":
            # The row has the share of the peak rate that the bytes take which the problem needs.
            rate, share_of_peak = (
                row.get(name) or math.nan
                for name in ("gbytes_per_s", "memory_fraction")
            )
            part = need.amount / row["median_us"] / 1e3 / rate * share_of_peak
        if need.pipe and part >= max(_ROUNDS, shares.get(need.pipe, 0.0)):  # NaN is not
            shares[need.pipe] = part
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Cause:
    """What accounts for the difference of two times, in words, and for which share of it; a pipe has no share."""

    words: str
    share: float | None = None

    @property
    def distance(self) -> float:
        """How far from all of the difference it accounts for."""
        return abs(math.log(self.share)) if self.share else math.inf


@dataclass(frozen=True)
class _Pair:
    """Two launches with their counters, the one below first."""

    rows: tuple[TableRow, TableRow]
    counters: tuple[Metrics, Metrics]
    gpu: Mapping[str, Any]

    @property
    def saved(self) -> float:
        """Seconds; negative where time was lost."""
        below, above = (float(row["median_us"]) for row in self.rows)
        return (below - above) * 1e-6

    @property
    def log(self) -> float:
        """The logarithm of the quotient of the times, positive where time was saved."""
        return math.log(self.rows[0]["median_us"] / self.rows[1]["median_us"])

    @cached_property
    def needs(self) -> list[tuple[Need, Need]]:
        below, above = (
            needs(row, metrics, self.gpu)
            for row, metrics in zip(self.rows, self.counters, strict=True)
        )
        return list(zip(below, above, strict=True))

    @cached_property
    def waits(self) -> list[tuple[Wait, Wait]]:
        below, above = (
            waits(row, metrics)
            for row, metrics in zip(self.rows, self.counters, strict=True)
        )
        return list(zip(below, above, strict=True))

    def moved_along(self, below: float, above: float) -> float:
        """The logarithm of a count's quotient, positive where the count moved as the time did; 0 if it is unknown."""
        if not min(below, above) > 0:
            return 0.0
        log = math.log(below / above)
        return log if self.saved > 0 else -log


def _change(below: float, above: float, unit: str = "") -> str:
    return f"{'fall' if above < below else 'rise'} from {magnitude(below, unit)} to {magnitude(above, unit)}"


def _counts(
    pair: _Pair, used: float, part_of: Callable[[Need, Need], float]
) -> list[Cause]:
    """Needs that moved as the time did and took a share of at least `used` of the slower one's.

    `part_of`: for which share of the difference a change of the need accounts.
    """
    least = used * max(row["median_us"] for row in pair.rows) * 1e-6
    causes = []
    for below, above in pair.needs:
        part = part_of(below, above)
        enough = max(below.seconds, above.seconds) >= least
        moved = pair.moved_along(below.amount, above.amount) > _MOVED
        if enough and moved and _LEAST <= part <= _MOST:
            causes.append(
                Cause(
                    f"{below.words} {_change(below.amount, above.amount, below.unit)}",
                    part,
                )
            )
    return causes


def _limits(pair: _Pair) -> list[Cause]:
    """Needs that took half of the slower one's time, by the time that their change takes at the hardware's rate."""
    return _counts(
        pair, _LIMITS, lambda below, above: (below.seconds - above.seconds) / pair.saved
    )


def _work(pair: _Pair) -> list[Cause]:
    """Counts of units in use that changed by the factor by which the time did, or most of it."""
    return _counts(
        pair,
        _USED,
        lambda below, above: (
            pair.moved_along(below.amount, above.amount) / abs(pair.log)
        ),
    )


def _waits(pair: _Pair) -> list[Cause]:
    """Waits by the time that warps spend in them.

    A wait may have another name in the other launch: at `__syncthreads` it is `barrier`, at an mbarrier
    `long_scoreboard`. So what other waits rise by is taken off what one falls by, and the other way round where time is
    lost.
    """
    pairs = pair.waits
    parts = [(below.seconds - above.seconds) / pair.saved for below, above in pairs]
    elsewhere = -sum(part for part in parts if part < 0)
    causes = []
    for part, (below, above) in zip(parts, pairs, strict=True):
        left = part - elsewhere
        moved = pair.moved_along(below.cycles, above.cycles) > _MOVED
        if below.words and moved and _LEAST <= left <= _MOST:
            change = _change(below.cycles, above.cycles)
            words = f"cycles per instruction that warps wait {below.words} ({below.reason}) {change}"
            causes.append(Cause(words, left))
    return causes


def _busier(pair: _Pair) -> Cause | None:
    """The pipe that does most of the work, where the work is the same and it works in more of the time.

    The words name the wait beside it that changed most, if one did that has a name.
    """
    before, after = (
        busy(row, metrics, pair.gpu)
        for row, metrics in zip(pair.rows, pair.counters, strict=True)
    )
    pipes = [pipe for pipe in before if pipe in after and pipe != "issue slots"]
    pipe = max(pipes, key=lambda name: max(before[name], after[name]), default="")
    if not pipe or max(before[pipe], after[pipe]) < _BUSY:
        return None
    work = [
        shares[pipe] * row["median_us"]
        for shares, row in zip((before, after), pair.rows, strict=True)
    ]
    if abs(pair.moved_along(*work)) > _SAME_WORK:
        return None
    if not _LEAST <= math.log(after[pipe] / before[pipe]) / pair.log <= _MOST:
        return None
    digits = ".0f" if share(before[pipe], ".0f") != share(after[pipe], ".0f") else ".1f"
    words = f"{pipe} busy for {share(after[pipe], digits)} of the time instead of {share(before[pipe], digits)}"
    changed = [
        (first, second)
        for first, second in pair.waits
        if first.words
        and (first.seconds - second.seconds) / pair.saved >= _BESIDE
        and pair.moved_along(first.cycles, second.cycles) > _MOVED
    ]
    if changed:
        first, second = max(
            changed,
            key=lambda waits: (waits[0].seconds - waits[1].seconds) / pair.saved,
        )
        words += f"; waits {first.words} {_change(first.cycles, second.cycles)} cycles an instruction"
    return Cause(words)


def cause(
    below: TableRow,
    above: TableRow,
    counters: Sequence[Metrics],
    gpu: Mapping[str, Any],
) -> Cause | None:
    """What accounts for the difference of two times; None where no counter does."""
    first, second = counters
    pair = _Pair((below, above), (first, second), gpu)
    if not pair.saved:
        return None
    limits = _limits(pair)
    found = limits or [*_work(pair), *_waits(pair)]
    return min(found, key=lambda each: each.distance) if found else _busier(pair)


def resident(below: TableRow, above: TableRow) -> str:
    """That the faster one has a larger occupancy, by more blocks on a multiprocessor; else, or where unknown, empty."""
    names = ("blocks_per_sm", "occupancy")
    if any(row.get(name) is None for row in (below, above) for name in names):
        return ""
    blocks, occupancy = ([row[name] for row in (below, above)] for name in names)
    slow, fast = (0, 1) if above["median_us"] < below["median_us"] else (1, 0)
    if not all(ends[slow] < ends[fast] for ends in (blocks, occupancy)):
        return ""
    before, now = (share(end, ".3g") for end in occupancy)
    fitting = f"{stats.count(int(blocks[1]), 'block')} a multiprocessor instead of {int(blocks[0])}"
    return f"{fitting}: occupancy {now}, not {before}"


def explanation(
    below: TableRow,
    above: TableRow,
    counters: Sequence[Metrics],
    gpu: Mapping[str, Any],
) -> tuple[str, bool]:
    """What explains the difference of two times, in words, and whether a counter does.

    Where none does, but the faster one has a larger occupancy, that is said: it may be the cause.
    """
    if not all(counters):
        return NOT_COUNTED, False
    found = cause(below, above, counters, gpu)
    if found is None:
        return "; ".join(filter(None, (NOT_EXPLAINED, resident(below, above)))), False
    if found.share is None:
        return found.words, True
    change = "saved" if above["median_us"] < below["median_us"] else "lost"
    part = "all" if found.share >= _ALL else share(found.share, ".0f")
    return f"{found.words}, which explains {part} of the time {change}", True


def short(why: str) -> str:
    """What explains a step, without its numbers: waits at barriers fall; tensor cores busier."""
    pipe, busier, _ = why.partition(" busy for ")
    if busier:
        return f"{pipe} busier" if _is_more(why) else f"{pipe} less busy"
    words = re.sub(r" \(\w+\)|cycles per instruction that warps ", "", why)
    return words.partition(" from ")[0].replace("wait ", "waits ", 1)


def _is_more(why: str) -> bool:
    after, before = re.findall(r"([\d.]+) %", why)[:2]
    return float(after) > float(before)

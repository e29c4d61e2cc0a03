"""Steps of a ladder: what a rung gains over the rung it changes, and the counter that accounts for the time."""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from ladder.model.schemas import TableRow
from ladder.model.sweep import Entry
from ladder.report.markdown import magnitude, number, share
from ladder.results import statistics as stats
from ladder.results.counters import DRAM_READ, DRAM_WRITE, SECTORS, SHARED_WAVEFRONTS, STALL_FOR
from ladder.results.statistics import Estimate, records
from ladder.results.sweep_data import SweepData
from ladder.results.verdicts import NO_GAIN, SLOWER, TIED, Gain, gain_over, verdicts

_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
_ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_SECTORS_A_CYCLE, _SCHEDULERS = 4, 4  # of a multiprocessor: 128 bytes from its L1; instructions
_WAITS = {
    "long_scoreboard": "for global memory or an mbarrier",
    "short_scoreboard": "for shared memory",
    "mio_throttle": "for the queue of shared memory",
    "lg_throttle": "for the queue of global memory",
    "barrier": "at barriers",
    "wait": "for a fixed latency",
}
_STALLS = [*_WAITS, "math_pipe_throttle", "dispatch_stall", "no_instruction"]
_LEAST, _MOST = 0.5, 1.5  # shares of the change of the time that a counter must account for, to be its cause
_ALL = 0.995  # a share of at least so much reads as all
_LIMITS = 0.5  # share of the slower one's time that a need takes at least, to limit it
_ABLATION = 2  # rungs of the longest chain where all change one
_MOVED = math.log(1.05)  # by less no counter changes anything

NOT_COUNTED = "not counted"

Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Counted:
    """Something a launch needs: how much of it, and the seconds that so much takes at the GPU's rate.

    Without words it is never a cause.
    """

    words: str
    amount: float
    seconds: float
    unit: str = ""


def needs(row: TableRow, metrics: Metrics, gpu: Mapping[str, Any]) -> list[Counted]:
    """What a launch moves, loads and issues; NaN where it was not counted."""

    def of(name: str) -> float:
        return metrics.get(name, math.nan)

    seconds, hertz = row["median_us"] * 1e-6, (row.get("sm_clock_mhz") or math.nan) * 1e6
    cycles = (gpu.get("sms") or math.nan) * hertz
    moved, rate = of(DRAM_READ) + of(DRAM_WRITE), gpu.get("copy_gbytes_per_s")
    issued = seconds * of(_ISSUED) / 100
    return [
        Counted("bytes to and from DRAM", moved, moved / 1e9 / (rate or math.nan), "B"),
        Counted("wavefronts of shared memory", of(SHARED_WAVEFRONTS), of(SHARED_WAVEFRONTS) / cycles),
        Counted("sectors loaded through the L1", of(SECTORS), of(SECTORS) / _SECTORS_A_CYCLE / cycles),
        Counted("warps' load requests", of(_REQUESTS), of(_REQUESTS) / cycles),
        Counted("instructions issued", issued * cycles * _SCHEDULERS, issued),
    ]


def waits(row: TableRow, metrics: Metrics, _: Mapping[str, Any]) -> list[Counted]:
    """The parts of the time that warps wait for each reason; besides its waits an instruction takes a cycle.

    Those that say nothing of a kernel's memory or barriers have no words.
    """
    stalls = {reason: metrics.get(STALL_FOR.format(reason), math.nan) for reason in _STALLS}
    whole, seconds = 1 + sum(stalls.values()), row["median_us"] * 1e-6
    return [
        Counted(
            f"cycles per instruction that warps wait {_WAITS[reason]} ({reason})" if reason in _WAITS else "",
            cycles,
            seconds * cycles / whole,
        )
        for reason, cycles in stalls.items()
    ]


def cause(
    below: TableRow, above: TableRow, counters: Sequence[Metrics], gpu: Mapping[str, Any]
) -> tuple[str, float] | None:
    """What accounts for the difference of two times: in words, and the share of it; None where no counter does.

    A count of what a launch needs, each at the rate of the hardware, goes before a wait, which may be a symptom. It
    explains the time where its change takes from half to one and a half times as long as the times differ; a count only
    where what is needed takes half of the slower one's time.

    A wait may have another name in the other launch: at `__syncthreads` it is `barrier`, at an mbarrier
    `long_scoreboard`. So what the other waits rise by is taken off what one falls by (and the other way round where
    time is lost), and half of the difference must be left.
    """
    saved = (below["median_us"] - above["median_us"]) * 1e-6
    least = _LIMITS * max(below["median_us"], above["median_us"]) * 1e-6
    for kinds, limit in ((needs, least), (waits, 0.0)):
        before, after = (
            kinds(row, metrics, gpu) for row, metrics in zip((below, above), counters, strict=True)
        )
        pairs = list(zip(before, after, strict=True))
        parts = [(one.seconds - other.seconds) / saved if saved else math.nan for one, other in pairs]
        elsewhere = -sum(part for part in parts if part < 0) if kinds is waits else 0.0
        found = []
        for part, (one, other) in zip(parts, pairs, strict=True):
            left = part - elsewhere
            log = math.log(one.amount / other.amount) if min(one.amount, other.amount) > 0 else 0.0
            moved = math.copysign(1, saved) * log > _MOVED  # the faster one has less of it
            enough = left >= _LEAST and part <= _MOST
            if one.words and enough and moved and max(one.seconds, other.seconds) >= limit:
                found.append((abs(math.log(left)), left, one, other))
        if found:
            _, left, one, other = min(found, key=lambda each: each[0])
            verb = "fall" if other.amount < one.amount else "rise"
            ends = [magnitude(each.amount, each.unit) for each in (one, other)]
            return f"{one.words} {verb} from {ends[0]} to {ends[1]}", left
    return None


@dataclass(frozen=True)
class Step:
    """A rung with its results, and what it gains over the rung it changes, if it changes one."""

    entry: Entry
    row: TableRow
    below: str = ""  # the id of the variant that it changes
    gain: Gain = NO_GAIN
    direct: bool = False  # whether the two were launched in pairs; else it is the quotient of two speeds
    why: str = ""  # the counter that accounts for the gain, or that none does
    explained: bool = False  # whether one does
    blocks: str = ""  # where none does, that the faster one has more blocks on a multiprocessor

    @property
    def short_why(self) -> str:
        """The counter that explains the gain, without its numbers; a question mark where none of those counted does."""
        if self.tie or not self.gain.known:
            return ""
        words = re.sub(r" \(\w+\)|cycles per instruction that warps ", "", self.why) if self.explained else ""
        words = words.partition(" from ")[0].replace("wait ", "waits ", 1)
        unknown = "" if self.why == NOT_COUNTED else "?"
        return words or ("more blocks a multiprocessor, perhaps" if self.blocks else unknown)

    @property
    def tie(self) -> bool:
        return self.gain.verdict == TIED


def resident(below: TableRow, above: TableRow) -> str:
    """That the faster one has a larger occupancy, by more blocks on a multiprocessor; else, or where unknown, empty."""
    names = ("blocks_per_sm", "occupancy")
    if any(row.get(name) is None for row in (below, above) for name in names):
        return ""
    blocks, occupancy = ([row[name] for row in (below, above)] for name in names)
    slow, fast = (0, 1) if above["median_us"] < below["median_us"] else (1, 0)
    if not all(ends[slow] < ends[fast] for ends in (blocks, occupancy)):
        return ""
    before, now = (share(one, ".3g") for one in occupancy)
    fitting = f"{stats.count(int(blocks[1]), 'block')} a multiprocessor instead of {int(blocks[0])}"
    return f"{fitting}: occupancy {now}, not {before}"


def explanation(
    below: TableRow, above: TableRow, counters: Sequence[Metrics], gpu: Mapping[str, Any]
) -> tuple[str, bool]:
    """What explains the difference of two times, in words, and whether a counter does.

    Where none does, but the faster one has a larger occupancy, that is said: it may be the cause.
    """
    if not all(counters):
        return NOT_COUNTED, False
    found = cause(below, above, counters, gpu)
    if found is None:
        return "; ".join(filter(None, ("not explained by the counters", resident(below, above)))), False
    change = "saved" if above["median_us"] < below["median_us"] else "lost"
    part = "all" if found[1] >= _ALL else share(found[1], ".0f")
    return f"{found[0]}, which explains {part} of the time {change}", True


@functools.lru_cache
def steps(data: SweepData) -> Sequence[Step]:
    """Rungs of a ladder with a result at the sweep's size; none of a sweep that is no ladder.

    A gain is of direct pairs where there are any, else the quotient of two speeds over the same library.
    """
    is_ladder = not data.sweep.reference.kernel or any(one.kind == "ladder" for one in data.sweep.figures)
    if not is_ladder or not all(entry.rung for entry in data.sweep.entries):
        return []
    below = [(entry, entry.baseline.variant.id if entry.baseline else "") for entry in data.sweep.entries]
    return _steps(data, below)


def climb(data: SweepData) -> list[Step]:
    """The rungs of `path` with a result, each over the one before it there, so that the gains make up the whole."""
    here = {*data.here["variant"]}
    shown = [entry for entry in path_to_fastest(data) if entry.variant.id in here]
    return _steps(data, list(zip(shown, ["", *(entry.variant.id for entry in shown)], strict=False)))


def _steps(data: SweepData, rungs: Sequence[tuple[Entry, str]]) -> list[Step]:
    """Rungs with a result, each over the variant with the id beside it, if that has one too."""
    rows = {row["variant"]: row for row in records(data.here)}
    direct = {(row["variant"], row["reference"]): row for row in records(data.pairs_here)}
    counted, found = stats.metric_table(data.metrics), []
    code = {row["variant"]: row for row in records(data.resources[["variant", "blocks_per_sm", "occupancy"]])}
    for entry, other in rungs:
        row = rows.get(entry.variant.id)
        if row is None or other not in rows:
            found += [Step(entry, row, other)] if row else []
            continue
        below, pair = rows[other], direct.get((entry.variant.id, other))
        tie = "a tie: on another GPU either may be the faster"
        gain = gain_over(pair or row, below)
        step = Step(entry, row, other, gain, bool(pair) or row["reference"] == other, tie)
        if not step.tie:
            counters = [counted.get(stats.cell_of(one), {}) for one in (below, row)]
            one, two = ({**each, **code.get(each["variant"], {})} for each in (below, row))
            why, explained = explanation(one, two, counters, data.gpu)
            step = replace(step, why=why, explained=explained, blocks="" if explained else resident(one, two))
        found.append(step)
    return found


@functools.lru_cache
def path_to_fastest(data: SweepData) -> Sequence[Entry]:
    """The rungs that lead to the fastest, each as fast as all before it: `path_of_baselines` without its losses.

    A rung counts by the product of the gains up to it, a tie as none. One that is slower than a rung before it is left
    out, though later rungs may need it; never the last.
    """
    known = {step.entry.variant.id: step for step in steps(data)}
    kept, reached, most = list[Entry](), 1.0, 1.0
    for entry in (whole := path_of_baselines(data)):
        step = known.get(entry.variant.id)
        counted = step.gain if step and not step.tie else NO_GAIN
        gain = counted.measured if counted.known else Estimate(1.0, 1.0, 1.0)
        high = reached * gain.high
        reached *= gain.value
        if high >= most or entry is whole[-1]:
            kept.append(entry)
        most = max(most, reached)
    return kept


def changed_by_all(data: SweepData) -> str:
    """The variant that all others change, where no path leads on from it, as in an ablation; else empty."""
    changed = {step.below for step in steps(data) if step.below}
    return changed.pop() if len(changed) == 1 and len(path_to_fastest(data)) <= _ABLATION else ""


def changed_rungs(data: SweepData, order: Sequence[str]) -> dict[str, str]:
    """Variant -> the rung that it changes, by its number or else its name, where that is not the one it stands under.

    That is the last of the path above it. `order`: variants as they are shown.
    """
    known = {step.row["variant"]: step for step in steps(data)}
    main, above, found = {entry.variant.id for entry in path_to_fastest(data)}, "", {}
    for variant in order:
        below = known[variant].below if variant in known else ""
        if below and below != above:
            ordinal = re.match(r"\d+[a-z]?(?= (?!x ))", data.names[below])
            found[variant] = ordinal[0] if ordinal else data.names[below]
        above = variant if variant in main else above
    return found


def path_of_baselines(data: SweepData) -> list[Entry]:
    """The rungs that lead to the fastest, the first of the ladder first: the chain of their baselines.

    Candidates are the rungs that tie with the fastest which computes the same (causal attention is another task), and
    are not slower than the rung that they change; without results, all rungs. The way is the longest chain that ends
    in a candidate, of equally long ones the fastest. Where no chain is longer than a step, as in an ablation, and in a
    tuning sweep it is the shortest chain: the rung that the others change, or a fast one that changes none.
    """
    chains = {entry.variant.id: _chain(entry, data.sweep.entries) for entry in data.sweep.entries}
    here = data.here[data.here["variant"].isin(chains)]
    tied = set(chains)
    if len(here):
        asked = [stats.parameter(here, name) for name in data.sweep.problem.parameters]
        same = [own for _, own in here.groupby(asked)] if asked else [here]
        best = [(stats.fastest(own), own) for own in same]
        tied = {
            name for top, own in best for name in own[own["speedup_high"] >= top["speedup_low"]]["variant"]
        }
        slower = data.pairs_here[verdicts(data.pairs_here) == SLOWER]["variant"]
        tied -= {*slower} - {top["variant"] for top, _ in best}
    leads = max(map(len, chains.values())) > _ABLATION and not data.sweep.tuning
    speeds = dict(zip(here["variant"], here["speedup"], strict=True))
    kept = [chain for variant, chain in chains.items() if variant in tied]
    if not leads:
        return min(kept, key=len)
    return max(kept, key=lambda chain: (len(chain), speeds.get(chain[-1].variant.id, 0.0)))


def _chain(entry: Entry, entries: Sequence[Entry]) -> list[Entry]:
    by_id: dict[str, Entry] = {one.variant.id: one for one in entries}
    chain = [entry]
    while (below := chain[0].baseline) is not None and by_id[below.variant.id] not in chain:
        chain.insert(0, by_id[below.variant.id])
    return chain


def rate(row: TableRow) -> str:
    """51.4 TFLOP/s; empty where the row is of no work."""
    column = stats.rate_column(pd.DataFrame([row]))
    return f"{number(row[column[0]], 3)} {column[1]}" if column else ""

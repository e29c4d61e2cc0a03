"""Steps of a ladder: what a rung gains over the rung it changes, and why; and the path to the fastest rung."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from ladder.model.schemas import Fields, TableRow
from ladder.model.sweep import Entry
from ladder.report.causes import Cause, Launch, cause, resident
from ladder.report.markdown import number
from ladder.results.statistics import (
    cell_of,
    fastest,
    metric_table,
    parameter,
    rate_column,
    records,
)
from ladder.results.sweep_data import SweepData
from ladder.results.verdicts import NO_GAIN, SLOWER, TIED, Gain, gain_over, verdicts

_NO_CAUSE = Cause()
_ABLATION = 2  # rungs of the longest chain where all change one


@dataclass(frozen=True)
class Step:
    """A rung with its results, and what it gains over the rung it changes, if it changes one.

    `direct`: the two were launched in pairs; else the gain is the quotient of two speeds. `why`: the counter that
    accounts for the gain, or that none does.
    """

    entry: Entry
    row: TableRow
    below: str = ""  # the id of the variant that it changes
    gain: Gain = NO_GAIN
    direct: bool = False
    why: Cause = _NO_CAUSE


@functools.lru_cache
def steps(data: SweepData) -> Sequence[Step]:
    """Rungs of a ladder with a result at the sweep's size; none of a sweep that is no ladder.

    A gain is of direct pairs where there are any, else the quotient of two speeds over the same library.
    """
    entries = data.sweep.entries
    drawn = any(figure.kind == "ladder" for figure in data.sweep.figures)
    is_ladder = drawn or not data.sweep.reference.kernel
    if not is_ladder or not all(entry.rung for entry in entries):
        return []
    return _steps(data, [(entry.baseline, entry) for entry in entries])


def climb(data: SweepData) -> list[Step]:
    """The rungs of `path` with a result, each over the one before it there, so that the gains make up the whole."""
    timed = {*data.here["variant"]}
    rungs = path_to_fastest(data).items()
    path = [entry for variant, entry in rungs if variant in timed]
    return _steps(data, zip([None, *path], path, strict=False))


def _steps(data: SweepData, rungs: Iterable[tuple[Entry | None, Entry]]) -> list[Step]:
    """Rungs with a result, each over the one beside it, if that has one too."""
    facts = data.resources[["variant", "blocks_per_sm", "occupancy"]]
    here = data.here.merge(facts, on="variant", how="left")
    rows = {row["variant"]: row for row in records(here)}
    pairs = {
        (row["variant"], row["reference"]): row for row in records(data.pairs_here)
    }
    counters = metric_table(data.metrics)
    made = []
    for below, entry in rungs:
        row = rows.get(entry.variant.id)
        if row is None:
            continue
        changed = below.variant.id if below else ""
        if changed not in rows:
            made.append(Step(entry, row, changed))
            continue
        other, pair = rows[changed], pairs.get((entry.variant.id, changed))
        gain = gain_over(pair or row, other)
        direct = pair is not None or row["reference"] == changed
        why = Cause("a tie: on another GPU either may be the faster")
        if gain.verdict != TIED:
            # Rows alone may be of different GPUs.
            paired = {**other, "median_us": row["median_us"] * gain.value}
            launches = [(of, counters.get(cell_of(of), {})) for of in (paired, row)]
            why = _explanation(launches, data.gpu)
        made.append(Step(entry, row, changed, gain, direct, why))
    return made


def _explanation(launches: Sequence[Launch], gpu: Fields) -> Cause:
    """Why a step gains: by the counters of both rungs, and by more blocks."""
    (before, after), counters = zip(*launches, strict=True)
    why = cause(launches, gpu) if all(counters) else Cause("not counted")
    blocks = resident(before, after)
    if not blocks:
        return why
    more = after["blocks_per_sm"] > before["blocks_per_sm"]
    short = f"{'more' if more else 'fewer'} blocks a multiprocessor"
    if before["cubin_sha256"] == after["cubin_sha256"]:
        return Cause(f"{why.words}; {blocks}, with the same code", short, 1.0, blocks)
    short = why.short if why.share else f"{short}, perhaps"
    return Cause(f"{why.words}; {blocks}", short, why.share, blocks)


@functools.lru_cache
def path_to_fastest(data: SweepData) -> Mapping[str, Entry]:
    """By variant the rungs that lead to the fastest, each as fast as all before it: no losses of `path_of_baselines`.

    A rung counts by the product of the gains up to it, a tie as none. One that is slower than a rung before it is left
    out, though later rungs may need it; never the last.
    """
    gains = {step.entry.variant.id: step.gain for step in steps(data)}
    kept = {}
    reached = most = 1.0
    *path, last = path_of_baselines(data)
    for entry in path:
        gain = gains.get(entry.variant.id, NO_GAIN)
        high = reached
        if gain.known and gain.verdict != TIED:
            high = reached * gain.measured.high
            reached *= gain.value
        if high >= most:
            kept[entry.variant.id] = entry
        most = max(most, reached)
    return {**kept, last.variant.id: last}


def changed_by_all(data: SweepData) -> str:
    """The variant that all others change, where no path leads on from it, as in an ablation; else empty."""
    changed = {step.below for step in steps(data) if step.below}
    is_ablation = len(changed) == 1 and len(path_to_fastest(data)) <= _ABLATION
    return changed.pop() if is_ablation else ""


def changed_rungs(data: SweepData, order: Sequence[str]) -> dict[str, str]:
    """Variant -> the rung that it changes, by its number or else its name, where that is not the one it stands under.

    That is the last of the path above it. `order`: variants as they are shown.
    """
    changed = {step.row["variant"]: step.below for step in steps(data)}
    path = path_to_fastest(data)
    above, named = "", {}
    for variant in order:
        below = changed.get(variant)
        if below and below != above:
            ordinal = re.match(r"\d+[a-z]?(?= (?!x ))", data.names[below])
            named[variant] = ordinal[0] if ordinal else data.names[below]
        if variant in path:
            above = variant
    return named


def path_of_baselines(data: SweepData) -> list[Entry]:
    """The rungs that lead to the fastest, the first of the ladder first: the chain of their baselines.

    The way is the longest chain that ends in one of the `_candidates`, of equally long ones the fastest. Where no chain
    is longer than a step, as in an ablation, and in a tuning sweep it is the shortest chain: the rung that the others
    change, or a fast one that changes none.
    """
    entries = {entry.variant.id: entry for entry in data.sweep.entries}
    chains = {variant: _chain(entry, entries) for variant, entry in entries.items()}
    here = data.here[data.here["variant"].isin(chains)]
    ends = _candidates(data, here) if len(here) else {*chains}
    kept = [chain for variant, chain in chains.items() if variant in ends]
    if data.sweep.tuning or max(map(len, chains.values())) <= _ABLATION:
        return min(kept, key=len)
    speeds = dict(zip(here["variant"], here["speedup"], strict=True))
    return max(
        kept, key=lambda chain: (len(chain), speeds.get(chain[-1].variant.id, 0.0))
    )


def _candidates(data: SweepData, rows: DataFrame) -> set[str]:
    """Rungs that tie with the fastest which computes the same, and are not slower than the rung that they change.

    Causal attention is another task than attention: both have a fastest.
    """
    lost = data.pairs_here[verdicts(data.pairs_here) == SLOWER]["variant"]
    asked = [parameter(rows, name) for name in data.sweep.problem.parameters]
    candidates: set[str] = set()
    for _, alike in rows.groupby([rows["sweep"], *asked]):
        top = fastest(alike)
        tied = alike[alike["speedup_high"] >= top["speedup_low"]]["variant"]
        candidates |= {top["variant"], *tied} - ({*lost} - {top["variant"]})
    return candidates


def _chain(entry: Entry, entries: Mapping[str, Entry]) -> list[Entry]:
    """A rung behind the rungs that it builds on; `entries` by the ids of their variants."""
    chain = [entry]
    while chain[0].baseline:
        below = entries[chain[0].baseline.variant.id]
        if below in chain:
            break
        chain.insert(0, below)
    return chain


def rate(row: TableRow) -> str:
    """51.4 TFLOP/s; empty where the row is of no work."""
    column = rate_column(DataFrame([row]))
    return f"{number(row[column[0]], 3)} {column[1]}" if column else ""

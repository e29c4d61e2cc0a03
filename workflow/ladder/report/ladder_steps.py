"""Steps of a ladder: what a rung gains over the rung it changes, and why; and the path to the fastest rung."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from ladder.model.schemas import TableRow
from ladder.model.sweep import Entry
from ladder.report.causes import NOT_COUNTED, explanation, resident, short
from ladder.report.markdown import number
from ladder.results import statistics as stats
from ladder.results.statistics import Estimate, records
from ladder.results.sweep_data import SweepData
from ladder.results.verdicts import NO_GAIN, SLOWER, TIED, Gain, gain_over, verdicts

_ABLATION = 2  # rungs of the longest chain where all change one


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
    blocks: str = (
        ""  # where none does, that the faster one has more blocks on a multiprocessor
    )

    @property
    def short_why(self) -> str:
        """The counter that explains the gain, without its numbers; a question mark where none of those counted does."""
        if self.tie or not self.gain.known:
            return ""
        if self.explained:
            return short(self.why)
        if self.blocks:
            return "more blocks a multiprocessor, perhaps"
        return "" if self.why == NOT_COUNTED else "?"

    @property
    def tie(self) -> bool:
        return self.gain.verdict == TIED


@functools.lru_cache
def steps(data: SweepData) -> Sequence[Step]:
    """Rungs of a ladder with a result at the sweep's size; none of a sweep that is no ladder.

    A gain is of direct pairs where there are any, else the quotient of two speeds over the same library.
    """
    is_ladder = not data.sweep.reference.kernel or any(
        one.kind == "ladder" for one in data.sweep.figures
    )
    if not is_ladder or not all(entry.rung for entry in data.sweep.entries):
        return []
    below = [
        (entry, entry.baseline.variant.id if entry.baseline else "")
        for entry in data.sweep.entries
    ]
    return _steps(data, below)


def climb(data: SweepData) -> list[Step]:
    """The rungs of `path` with a result, each over the one before it there, so that the gains make up the whole."""
    here = {*data.here["variant"]}
    shown = [entry for entry in path_to_fastest(data) if entry.variant.id in here]
    return _steps(
        data,
        list(zip(shown, ["", *(entry.variant.id for entry in shown)], strict=False)),
    )


def _steps(data: SweepData, rungs: Sequence[tuple[Entry, str]]) -> list[Step]:
    """Rungs with a result, each over the variant with the id beside it, if that has one too."""
    rows = {row["variant"]: row for row in records(data.here)}
    direct = {
        (row["variant"], row["reference"]): row for row in records(data.pairs_here)
    }
    counted, found = stats.metric_table(data.metrics), []
    code = {
        row["variant"]: row
        for row in records(data.resources[["variant", "blocks_per_sm", "occupancy"]])
    }
    for entry, other in rungs:
        row = rows.get(entry.variant.id)
        if row is None or other not in rows:
            found += [Step(entry, row, other)] if row else []
            continue
        below, pair = rows[other], direct.get((entry.variant.id, other))
        tie = "a tie: on another GPU either may be the faster"
        gain = gain_over(pair or row, below)
        step = Step(
            entry, row, other, gain, bool(pair) or row["reference"] == other, tie
        )
        if not step.tie:
            counters = [counted.get(stats.cell_of(one), {}) for one in (below, row)]
            one, two = (
                {**each, **code.get(each["variant"], {})} for each in (below, row)
            )
            why, explained = explanation(one, two, counters, data.gpu)
            step = replace(
                step,
                why=why,
                explained=explained,
                blocks="" if explained else resident(one, two),
            )
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
    return (
        changed.pop()
        if len(changed) == 1 and len(path_to_fastest(data)) <= _ABLATION
        else ""
    )


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
    chains = {
        entry.variant.id: _chain(entry, data.sweep.entries)
        for entry in data.sweep.entries
    }
    here = data.here[data.here["variant"].isin(chains)]
    tied = set(chains)
    if len(here):
        asked = [stats.parameter(here, name) for name in data.sweep.problem.parameters]
        same = [own for _, own in here.groupby(asked)] if asked else [here]
        best = [(stats.fastest(own), own) for own in same]
        tied = {
            name
            for top, own in best
            for name in own[own["speedup_high"] >= top["speedup_low"]]["variant"]
        }
        slower = data.pairs_here[verdicts(data.pairs_here) == SLOWER]["variant"]
        tied -= {*slower} - {top["variant"] for top, _ in best}
    leads = max(map(len, chains.values())) > _ABLATION and not data.sweep.tuning
    speeds = dict(zip(here["variant"], here["speedup"], strict=True))
    kept = [chain for variant, chain in chains.items() if variant in tied]
    if not leads:
        return min(kept, key=len)
    return max(
        kept, key=lambda chain: (len(chain), speeds.get(chain[-1].variant.id, 0.0))
    )


def _chain(entry: Entry, entries: Sequence[Entry]) -> list[Entry]:
    by_id: dict[str, Entry] = {one.variant.id: one for one in entries}
    chain = [entry]
    while (below := chain[0].baseline) is not None and by_id[
        below.variant.id
    ] not in chain:
        chain.insert(0, by_id[below.variant.id])
    return chain


def rate(row: TableRow) -> str:
    """51.4 TFLOP/s; empty where the row is of no work."""
    column = stats.rate_column(pd.DataFrame([row]))
    return f"{number(row[column[0]], 3)} {column[1]}" if column else ""

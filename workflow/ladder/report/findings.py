"""Two sentences about a sweep, drawn from its tables; one function per kind of problem."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from statistics import geometric_mean
from typing import Any

import pandas as pd

from ladder.model.cell import size_label
from ladder.report.markdown import figure, spread
from ladder.report.steps import Step, rate, steps
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results.statistics import count, records, size_of

Row = dict[str, Any]
_SPEED = itemgetter("speedup")


def _against(data: SweepData, row: Row) -> str:
    name = data.reference_name if data.paired_with_kernel else row["reference"]
    return f"{spread(stats.estimate(row, 'speedup'), 3)} times the speed of {name}"


def _steps(data: SweepData) -> list[str]:
    """The largest step from a rung to one that changes it, and the steps that lose."""
    names, known = data.labels(), [step for step in steps(data) if step.gain.known]

    def told(step: Step) -> str:
        return f"{names[step.above.id]}, {spread(step.gain, 3)} times as fast as {names[step.below.id]}"

    sentences = []
    slower = sorted((step for step in known if step.gain.high < 1), key=lambda step: step.gain.value)
    largest = max(known, key=lambda step: step.gain.value, default=None)
    if largest is not None and largest.gain.low > 1:
        sentences.append(f"The largest step is {told(largest)}, the rung it changes.")
    if len(slower) == 1:
        sentences.append(f"One rung is slower than the rung it changes: {told(slower[0])}.")
    elif slower:
        rungs = len({one.id for step in known for one in (step.below, step.above)})
        most = f"most of all {told(slower[0])}"
        sentences.append(f"{len(slower)} of {rungs} rungs are slower than the rung they change, {most}.")
    return sentences


def _verdicts(rows: Sequence[Row], at: str, of: str = "") -> str:
    """How many are faster than their reference, slower, and undecided."""
    faster = sum(row["speedup_low"] > 1 for row in rows)
    slower = sum(row["speedup_high"] < 1 for row in rows)
    undecided = f"undecided (the 95 % interval holds 1) {at} {len(rows) - faster - slower}"
    return f"faster {at} {faster}{of}, slower {at} {slower}, and {undecided}"


def _range(rows: Sequence[Row], names: dict[str, str] | None = None) -> str:
    """The lowest and the highest ratio, and where they were found."""

    def told(row: Row) -> str:
        name = f"{names[row['variant']]}, " if names else ""
        return f"{figure(row['speedup'], 3)} ({name}{size_label(size_of(row))})"

    return f"runs from {told(min(rows, key=_SPEED))} to {told(max(rows, key=_SPEED))}"


def _gemm(data: SweepData) -> list[str]:
    if data.paired_with_kernel:
        given = records(data.against_others())
        if not given:
            return ["Only the reference itself gave a result."]
        verdicts = _verdicts(given, "in", f" of {count(len(given), 'cell')}")
        first = f"Against its twin, {data.reference_name}, a variant is {verdicts}."
        median = figure(stats.median_of([row["speedup"] for row in given]).value, 3)
        return [first, f"The median ratio is {median}; it {_range(given, data.labels())}."]
    if data.over_shapes:
        given, wanted = stats.fastest_by_size(data.ok()), len(data.sweep.shapes())
        over = f"{len(given)} of " if len(given) < wanted else ""
        mean = geometric_mean([row["speedup"] for row in given])
        return [
            f"Over {over}{count(wanted, 'shape')} the fastest variant has {mean:.3f} times the speed of "
            f"{data.reference_name} in the geometric mean: it is {_verdicts(given, 'at')}.",
            f"The ratio {_range(given)}.",
        ]
    here = data.here()
    if not len(here):
        return [f"No cell at {data.size_text} gave a result."]
    best = stats.fastest(here)
    name, speed = data.labels()[best["variant"]], rate(best) or f"{figure(best['median_us'], 3)} µs"
    sentences = [f"At {data.size_text} the fastest is {name} with {speed}, {_against(data, best)}."]
    if data.has_rungs:
        return sentences + _steps(data)
    if len(here) > 1:
        middle = stats.median_of(list(here["tflops"])).value
        sentences.append(
            f"Over {count(len(here), 'variant')} the choice of parameters is worth a factor of "
            f"{figure(best['tflops'] / here['tflops'].min(), 3)}, and {figure(best['tflops'] / middle, 3)} "
            "over the median variant."
        )
    return sentences


def _banks(data: SweepData) -> list[str]:
    costs, names, sentences = stats.access_costs(data.ok(), data.metrics), data.labels(), []
    timed = costs.dropna(subset=["cycles", "model"])
    if len(timed):
        worst = max(records(timed), key=lambda row: abs(row["cycles"] / row["model"] - 1))
        off = 100 * abs(worst["cycles"] / worst["model"] - 1)
        sentences.append(
            f"Cycles per access follow the bank model within {figure(off, 2)} % in all "
            f"{count(len(timed), 'cell')}; the farthest is {names[worst['variant']]} with "
            f"{figure(worst['cycles'], 3)} cycles where {figure(worst['model'], 3)} are predicted."
        )
    counted = costs.dropna(subset=["wavefronts", "model"])
    if not len(counted):
        return [*sentences, "The profiler's wavefronts were not measured."]
    same = int(((counted["wavefronts"] / counted["model"] - 1).abs() < 0.05).sum())
    dearest = max(records(counted), key=itemgetter("wavefronts"))
    sentences.append(
        f"The profiler's wavefronts per request agree with the model within 5 % in {same} of "
        f"{count(len(counted), 'cell')}; the dearest access is {names[dearest['variant']]} with "
        f"{figure(dearest['wavefronts'], 3)} wavefronts."
    )
    return sentences


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(str(value) for value in sorted(values))


def _best_against_best(own: pd.DataFrame, others: pd.DataFrame, name: str) -> str:
    """The reference's kernel may be coarsened as well: at which reach is our best ahead of its best?"""
    ahead = {}
    for reach, mine in own.groupby("reach"):
        theirs = others[(others["reach"] == reach) & others["dtype"].isin(mine["dtype"])]
        if len(theirs):
            best, rival = (max(records(rows), key=_SPEED) for rows in (mine, theirs))
            ahead[reach] = stats.speedup_over(best, rival).low > 1
    reaches = [reach for reach in ahead if ahead[reach]]
    where = f"k = {_listed(reaches)} of {_listed(ahead)}" if reaches else "none"
    where = "every k" if ahead and all(ahead.values()) else where
    return f"Against the best {name} of the same reach, coarsened too, it is ahead at {where}."


def _stencil(data: SweepData) -> list[str]:
    rows, names, reference = data.here(), data.labels(), data.sweep.reference.kernel
    if not len(rows):
        return [f"No cell at {data.size_text} gave a result."]
    rows = rows.assign(reach=stats.parameter(rows, "k"))
    is_own = rows["kernel"] != (reference.name if reference else "")
    own = rows[is_own] if is_own.any() else rows
    best = max(records(own), key=_SPEED)
    sentence = f"At {data.size_text} the greatest gain is {names[best['variant']]}: {_against(data, best)}"
    behind = set(own["reach"]) - set(own[own["speedup_low"] > 1]["reach"])
    sentence += f"; at k = {_listed(behind)} no variant is ahead of it" if behind else ""
    sentences = [f"{sentence}."]
    if reference is not None and len(own) < len(rows):
        sentences.append(_best_against_best(own, rows[~is_own], reference.name))
    fastest = max(records(own), key=itemgetter("gbytes_per_s"))
    text = f"The highest rate is {rate(fastest)} ({names[fastest['variant']]})"
    if not pd.isna(fastest["copy_fraction"]):
        copied = figure(100 * fastest["copy_fraction"], 3)
        text += f", {copied} % of a device-to-device copy of the same bytes"
    spilled = data.resources[data.resources["local_bytes"].fillna(0) > 0]["variant"]
    spills = [names[variant] for variant in spilled[spilled.isin(own["variant"])]]
    spilling = "no variant spills registers"
    if spills:
        spilling = f"registers spill in {count(len(spills), 'variant')}, the first being {spills[0]}"
    return [*sentences, f"{text}; {spilling}."]


_FINDINGS: dict[str, Callable[[SweepData], list[str]]] = {"gemm": _gemm, "banks": _banks, "stencil": _stencil}


def findings(data: SweepData) -> list[str]:
    """Sentences about the sweep; of a problem that has none of its own, the fastest cell."""
    results = records(data.ok())
    if not results:
        return ["No cell of this sweep has a result, so there is nothing to find."]
    if special := _FINDINGS.get(data.sweep.problem.name):
        return special(data)
    best = max(results, key=_SPEED)
    return [f"The fastest is {data.labels()[best['variant']]}: {_against(data, best)}."]

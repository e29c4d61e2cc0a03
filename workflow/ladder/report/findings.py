"""Two sentences about a sweep, drawn from its tables; one function per kind of problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pandas as pd

from ladder.report.markdown import count, figure, spread
from ladder.report.steps import Step, steps
from ladder.report.sweep_data import SweepData
from ladder.results.statistics import (
    access_costs,
    at_size,
    estimate,
    fastest,
    fastest_by_size,
    geometric_mean,
    median_of,
    parameter,
    rate_column,
    records,
    size_label,
    size_of,
    speedup_over,
)

Row = dict[str, Any]


def _rate(row: Row) -> str:
    rate = rate_column(pd.DataFrame([row]))
    return f"{figure(row[rate[0]], 3)} {rate[1]}" if rate else f"{figure(row['median_us'], 3)} µs"


def _against(data: SweepData, row: Row) -> str:
    name = data.reference_name if data.paired_with_kernel else row["reference"]
    return f"{spread(estimate(row, 'speedup'), 3)} times the speed of {name}"


def _steps(data: SweepData, names: dict[str, str]) -> str:
    """The largest step from a rung to one that changes it, and the steps that lose."""
    known = [step for step in steps(data) if step.gain.known]
    if not known:
        return ""

    def told(step: Step) -> str:
        return f"{names[step.above.id]}, {spread(step.gain, 3)} times as fast as {names[step.below.id]}"

    slower = [step for step in known if step.gain.high < 1]
    largest = max(known, key=lambda step: step.gain.value)
    sentences = []
    if largest.gain.low > 1:
        sentences.append(f"The largest step is {told(largest)}, the rung it changes")
    if slower:
        lost = told(min(slower, key=lambda step: step.gain.value))
        rungs = len({one.id for step in known for one in (step.below, step.above)})
        several = f"{len(slower)} of {rungs} rungs are slower than the rung they change, most of all {lost}"
        sentences.append(
            several if len(slower) > 1 else f"One rung is slower than the rung it changes: {lost}"
        )
    return "".join(f"{sentence}. " for sentence in sentences).strip()


def _verdicts(rows: list[Row]) -> Counter[str]:
    """How many are faster than their reference, slower, and undecided."""
    return Counter(
        "faster" if row["speedup_low"] > 1 else "slower" if row["speedup_high"] < 1 else "undecided"
        for row in rows
    )


def _twins(data: SweepData, rows: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """Cells against their twins: how many are faster, and by how much; a twin itself is not counted."""
    given = [row for row in records(rows) if row["reference"] != row["variant"]]
    if not given:
        return ["Only the reference itself gave a result."]
    verdicts = _verdicts(given)
    best, worst = max(given, key=lambda row: row["speedup"]), min(given, key=lambda row: row["speedup"])
    middle = median_of([row["speedup"] for row in given])
    first = (
        f"Against its twin, {data.reference_name}, a variant is faster in {verdicts['faster']} of "
        f"{count(len(given), 'cell')}, slower in {verdicts['slower']}, and undecided (the 95 % interval "
        f"holds 1) in {verdicts['undecided']}."
    )
    second = (
        f"The median ratio is {figure(middle.value, 3)}; it runs from {figure(worst['speedup'], 3)} "
        f"({names[worst['variant']]}, {size_label(size_of(worst))}) to {figure(best['speedup'], 3)} "
        f"({names[best['variant']]}, {size_label(size_of(best))})."
    )
    return [first, second]


def _shapes(data: SweepData, rows: pd.DataFrame) -> list[str]:
    """The fastest of every shape together: their mean, where they stand, and the two ends."""
    given = fastest_by_size(rows)
    verdicts, mean = _verdicts(given), geometric_mean([row["speedup"] for row in given])
    wanted = len(data.sweep.shapes())
    missing = f"{len(given)} of " if len(given) < wanted else ""
    best, worst = max(given, key=lambda row: row["speedup"]), min(given, key=lambda row: row["speedup"])
    first = (
        f"Over {missing}{count(wanted, 'shape')} the fastest variant has {mean:.3f} times the speed of "
        f"{data.reference_name} in the geometric mean: it is faster at {verdicts['faster']}, slower at "
        f"{verdicts['slower']}, and undecided (the 95 % interval holds 1) at {verdicts['undecided']}."
    )
    second = (
        f"The ratio runs from {figure(worst['speedup'], 3)} ({size_label(size_of(worst))}) to "
        f"{figure(best['speedup'], 3)} ({size_label(size_of(best))})."
    )
    return [first, second]


def _gemm(data: SweepData) -> list[str]:
    rows = data.ok()
    names = data.labels(data.timings)
    if data.paired_with_kernel:
        return _twins(data, rows, names)
    if data.over_shapes:
        return _shapes(data, rows)
    here = records(at_size(rows, data.size))
    if not here:
        return [f"No cell at {data.size_text} gave a result."]
    best = fastest(pd.DataFrame(here))
    sentences = [
        f"At {data.size_text} the fastest is {names[best['variant']]} with {_rate(best)}, "
        f"{_against(data, best)}."
    ]
    if any(entry.rung for entry in data.sweep.entries):
        sentences.append(_steps(data, names))
    elif len(here) > 1:
        middle = median_of([row["tflops"] for row in here])
        worst = min(here, key=lambda row: row["tflops"])
        sentences.append(
            f"Over {count(len(here), 'variant')} the choice of parameters is worth a factor of "
            f"{figure(best['tflops'] / worst['tflops'], 3)}, and {figure(best['tflops'] / middle.value, 3)} "
            "over the median variant."
        )
    return sentences


def _banks(data: SweepData) -> list[str]:
    costs = access_costs(data.ok(), data.metrics)
    names = data.labels(data.timings)
    sentences = []
    timed = costs.dropna(subset=["cycles", "model"])
    if len(timed):
        off = ((timed["cycles"] / timed["model"]) - 1).abs()
        worst = records(timed.loc[[off.idxmax()]])[0]
        sentences.append(
            f"Cycles per access follow the bank model within {figure(100 * off.max(), 2)} % in all "
            f"{count(len(timed), 'cell')}; the farthest is {names[worst['variant']]} with "
            f"{figure(worst['cycles'], 3)} cycles where {figure(worst['model'], 3)} are predicted."
        )
    counted = costs.dropna(subset=["wavefronts", "model"])
    if len(counted):
        same = int(((counted["wavefronts"] / counted["model"] - 1).abs() < 0.05).sum())
        dearest = records(counted.loc[[counted["wavefronts"].idxmax()]])[0]
        sentences.append(
            f"The profiler's wavefronts per request agree with the model within 5 % in {same} of "
            f"{count(len(counted), 'cell')}; the dearest access is {names[dearest['variant']]} with "
            f"{figure(dearest['wavefronts'], 3)} wavefronts."
        )
    else:
        sentences.append("The profiler's wavefronts were not measured.")
    return sentences


def _listed(values: set[Any]) -> str:
    return ", ".join(str(value) for value in sorted(values))


def _best_against_best(own: pd.DataFrame, others: pd.DataFrame, name: str) -> str:
    """The reference's kernel may be coarsened as well: at which reach is our best ahead of its best?"""
    ahead, all_reaches = set(), set()
    for reach, mine in own.groupby(parameter(own, "k")):
        theirs = others[parameter(others, "k") == reach]
        theirs = theirs[theirs["dtype"].isin(mine["dtype"])]
        if len(theirs):
            all_reaches.add(reach)
            best, rival = (max(records(rows), key=lambda row: row["speedup"]) for rows in (mine, theirs))
            if speedup_over(best, rival).low > 1:
                ahead.add(reach)
    if not ahead:
        return f"Against the best {name} of the same reach, coarsened too, it is ahead at none."
    where = "every k" if ahead == all_reaches else f"k = {_listed(ahead)} of {_listed(all_reaches)}"
    return f"Against the best {name} of the same reach, coarsened too, it is ahead at {where}."


def _stencil(data: SweepData) -> list[str]:
    rows = at_size(data.ok(), data.size)
    if not len(rows):
        return [f"No cell at {data.size_text} gave a result."]
    names = data.labels(data.timings)
    reference = data.sweep.reference.kernel
    own = rows if reference is None else rows[rows["kernel"] != reference.name]
    own = own if len(own) else rows
    best = max(records(own), key=lambda row: row["speedup"])
    sentence = f"At {data.size_text} the greatest gain is {names[best['variant']]}: {_against(data, best)}"
    reach = own.assign(reach=parameter(own, "k"))
    behind = set(reach["reach"]) - set(reach[reach["speedup_low"] > 1]["reach"])
    if behind:
        sentence += f"; at k = {_listed(behind)} no variant is ahead of it"
    sentences = [sentence + "."]
    if reference is not None and len(own) < len(rows):
        sentences.append(_best_against_best(own, rows[rows["kernel"] == reference.name], reference.name))
    spilled = data.resources[data.resources["local_bytes"].fillna(0) > 0]
    spilled = spilled[spilled["variant"].isin(own["variant"])]
    fastest = max(records(own), key=lambda row: row["gbytes_per_s"])
    text = f"The highest rate is {_rate(fastest)} ({names[fastest['variant']]})"
    if not pd.isna(fastest["copy_fraction"]):
        text += (
            f", {figure(100 * fastest['copy_fraction'], 3)} % of a device-to-device copy of the same bytes"
        )
    spills = [names[variant] for variant in spilled["variant"]]
    if spills:
        text += f"; registers spill in {count(len(spills), 'variant')}, the first being {spills[0]}"
    else:
        text += "; no variant spills registers"
    return [*sentences, text + "."]


_FINDINGS: dict[str, Callable[[SweepData], list[str]]] = {"gemm": _gemm, "banks": _banks, "stencil": _stencil}


def findings(data: SweepData) -> list[str]:
    """Sentences about the sweep; of a problem that has none of its own, the fastest cell."""
    if not len(data.ok()):
        return ["No cell of this sweep has a result, so there is nothing to find."]
    special = _FINDINGS.get(data.sweep.problem.name)
    if special is not None:
        return [sentence for sentence in special(data) if sentence]
    best = max(records(data.ok()), key=lambda row: row["speedup"])
    return [f"The fastest is {data.labels(data.timings)[best['variant']]}: {_against(data, best)}."]

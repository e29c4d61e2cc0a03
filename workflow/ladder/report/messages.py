"""What a figure says, in one line: the title inside it and its text where pictures are not shown."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd

from ladder.model.cell import size_label
from ladder.report.markdown import figure, share
from ladder.report.steps import path, steps
from ladder.report.sweep_data import FigureData
from ladder.results import statistics as stats
from ladder.results.statistics import records, size_of
from ladder.results.verdicts import FASTER, SLOWER, verdict_of, verdicts


def _over(data: FigureData, row: Mapping[str, Any]) -> str:
    return f"{figure(row['speedup'], 3)} x {data.short_reference}"


def _fastest(data: FigureData, rows: pd.DataFrame) -> str:
    best = stats.fastest(rows)
    return f"“{data.names[best['variant']]}” is fastest: {_over(data, best)}"


def _ladder(data: FigureData) -> str:
    found = {step.entry.variant: step for step in steps(data)}
    known = [step for step in found.values() if step.gain.known]
    if data.sweep.tuning or not known:
        return _fastest(data, data.here)
    chain = [found[entry.variant] for entry in path(data) if entry.variant in found]
    if len(chain) <= 2 < len(known):
        worst = min(known, key=lambda step: step.gain.value)
        of = f"{figure(worst.gain.value, 3)} x the speed of “{data.names[worst.below]}”"
        return f"“{worst.entry.rung}” costs most: {of}"
    largest = max((step for step in chain if step.gain.known), key=lambda step: step.gain.value)
    end = f"“{chain[-1].entry.rung}” ends at {_over(data, chain[-1].row)}"
    return f"{end}; “{largest.entry.rung}” brings most, {figure(largest.gain.value, 3)} x"


def _curves(data: FigureData) -> str:
    rows = data.against_others
    rows = rows[~rows["variant"].isin(data.own_baselines)]
    last = rows[rows[data.sweep.problem.size_fields[0]] == rows[data.sweep.problem.size_fields[0]].max()]
    at = f"At {size_label(size_of(records(last)[0]))}"
    if stats.comparable(last):
        best = stats.fastest(last)
        if data.sweep.reference.kernel and verdict_of(best) == SLOWER:
            slower = f"“{data.names[best['variant']]}” has {figure(best['speedup'], 3)} x its speed"
            return f"{at} none is as fast as the baseline: {slower}"
        return f"{at} {_fastest(data, last)}"
    # Each has a baseline of its own, so that the largest gain need not be the fastest.
    most = records(last.loc[[last["speedup"].idxmax()]])[0]
    everyone = stats.ranking(stats.at_size(data.ok, size_of(most)))
    behind = float(everyone.loc[last["speedup"].idxmax()] / everyone.max())
    but = f", but has {figure(behind, 3)} x the speed of the fastest" if behind < 0.995 else ""
    return f"{at} “{data.names[most['variant']]}” gains most: {_over(data, most)}{but}"


def _heatmap(data: FigureData) -> str:
    rows = data.in_table
    best = stats.fastest(rows)
    params = [
        f"{name} = {stats.parameter(rows, name)[rows['variant'] == best['variant']].iloc[0]}"
        for name in (data.figure.y, data.figure.x)
        if name
    ]
    speeds = rows["speedup"]
    if stats.comparable(rows):
        spread = f"all choices differ by {figure(speeds.max() / speeds.min(), 3)} x"
    else:  # speed-ups over one baseline and over another do not make a quotient
        shown = data.best_by_place["speedup"]
        spread = f"the table goes from {figure(shown.min(), 3)} to {figure(shown.max(), 3)} x"
    return f"Best with {', '.join(params)}: {_over(data, best)}; {spread}"


def _shapes(data: FigureData) -> str:
    rows = data.fastest_by_size
    mean = stats.mean_of(records(rows)).value
    faster, slower = ((verdicts(rows) == word).sum() for word in (FASTER, SLOWER))
    shapes = f"over {len(rows)} shapes: faster at {faster}, slower at {slower}"
    return f"{figure(mean, 3)} x {data.short_reference} {shapes}"


def _banks(data: FigureData) -> str:
    costs = stats.access_costs(data.ok, data.metrics).dropna(subset=["cycles", "model"])
    if not len(costs):
        return data.sweep.title
    off = (costs["cycles"] / costs["model"] - 1).abs().max()
    most = records(costs.loc[[costs["cycles"].idxmax()]])[0]
    return (
        f"Cycles follow the bank model within {share(off, '.1f')}: up to {figure(most['cycles'], 3)}"
        f" with “{data.names[most['variant']]}”"
    )


def _roofline(data: FigureData) -> str:
    best = stats.fastest(data.here)
    return f"“{data.names[best['variant']]}” reaches {share(best['peak_fraction'], '.0f')} of the peak"


_MESSAGES: Mapping[str, Callable[[FigureData], str]] = {
    "ladder": _ladder,
    "curves": _curves,
    "heatmap": _heatmap,
    "roofline": _roofline,
    "banks": _banks,
    "stencil": lambda data: _fastest(data, data.here),
    "shapes": _shapes,
}


_AT_ONE_SIZE = ("ladder", "roofline", "stencil")


def message(data: FigureData) -> str:
    """The message of a figure; the title of its sweep where there are no results to draw one from."""
    kind = data.figure.kind
    rows = data.in_table if kind == "heatmap" else data.here if kind in _AT_ONE_SIZE else data.ok
    return _MESSAGES[data.figure.kind](data) if len(rows) else data.sweep.title

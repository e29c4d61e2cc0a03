"""What a figure says, in one line: the title inside it and its text where pictures are not shown."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ladder.model.cell import size_label
from ladder.model.problem import COPY
from ladder.report import words
from ladder.report.ladder_steps import changed_by_all, climb, steps
from ladder.report.markdown import number, share
from ladder.results import statistics as stats
from ladder.results.statistics import records, size_of
from ladder.results.sweep_data import FigureData, plain
from ladder.results.verdicts import FASTER, SLOWER, gain

_SAID = 60  # characters of a description that an axis has room for
_WORDS = 5  # of a name in a title


def rival(data: FigureData) -> str:
    """What cells are timed against in a word or two; cuBLAS is the faster of cuBLAS and cuBLASLt."""
    reference = data.sweep.reference
    if reference.kernel:
        return "its baseline"
    shown = [
        one
        for one in reference.libraries
        if one != "cublaslt" or "cublas" not in reference.libraries
    ]
    names = dict.fromkeys(
        "a copy" if one == COPY else words.proper(one.removesuffix("_fast"))
        for one in shown
    )
    return " or ".join(names) if len(names) < 3 else "the fastest library"


def change_label(value: float) -> str:
    """A gain beside a bar: +14 %, -5 %, and from two times on 2.7 times."""
    return words.change_by(value).replace("-", "\N{MINUS SIGN}")


def _over(data: FigureData, row: Mapping[str, Any]) -> str:
    """3 % faster than cuBLAS; as fast as cuBLAS where the range of another GPU holds 1."""
    return words.speed(gain(row), rival(data), ranged=False)


def said(name: str, value: Any) -> str:
    """A parameter's value in words: the value alone where it is one, else with the parameter's name."""
    text = str(value).replace("_", " ")
    return (
        text if re.fullmatch(r"[^\W\d].*", text) else f"{name.replace('_', ' ')} {text}"
    )


def differing(labels: Iterable[str]) -> dict[str, str]:
    """Labels such as `bk=8, stages=3` without the parts that all of them have, in words."""
    parts = {label: label.split(", ") for label in dict.fromkeys(labels)}
    common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    return {
        label: ", ".join(
            said(*part.split("=", 1)) if "=" in part else part
            for part in own
            if part not in common
        )
        or label
        for label, own in parts.items()
    }


def axis_words(data: FigureData, name: str) -> str:
    """A parameter in words with its unit, for an axis: how its kernel's description begins, and its name."""
    axes = (entry.variant.kernel.parameters.get(name) for entry in data.sweep.entries)
    found = next((axis for axis in axes if axis), None)
    if found is None:
        return name
    meaning = re.split(r"[;:,(]", found.description)[0].strip()
    unit = f", {found.unit}" if found.unit and found.unit not in meaning else ""
    return f"{meaning}{unit} ({name})" if len(meaning) <= _SAID else f"{name}{unit}"


def _fastest(data: FigureData, rows: pd.DataFrame) -> str:
    best = stats.fastest(rows)
    name = f"“{plain(data.names[best['variant']])}”"
    return f"{name} is fastest: {_over(data, best)}"


def _ladder(data: FigureData) -> str:
    known = [step for step in steps(data) if step.gain.known]
    if data.sweep.tuning or not known:
        return _fastest(data, data.here)
    chain = climb(data)
    if changed_by_all(data) and len(known) > 1:
        worst = min(known, key=lambda step: step.gain.value)
        name = plain(worst.entry.rung)
        change = f"Without {name[3:]}" if name.startswith("no ") else f"With “{name}”"
        return f"{change}: {change_label(worst.gain.value)}, the most of {len(known)} changes"
    gains = sorted(
        (step for step in chain if step.gain.known), key=lambda step: -step.gain.value
    )
    whole = chain[-1].row["speedup"] / chain[0].row["speedup"]
    if whole < 2 or len(gains) < 2:
        return f"The ladder ends {_over(data, chain[-1].row)}"
    both = gains[0].gain.value * gains[1].gain.value
    if len(gains) == 2:
        return "; ".join(
            f"“{plain(step.entry.rung)}” brings {change_label(step.gain.value)}"
            for step in gains
        )
    first, second = (plain(step.entry.rung) for step in gains[:2])
    part, all_ = (
        number(value, 2 if value < 10 else 3 if value >= 100 else 2)
        for value in (both, whole)
    )
    return f"“{first}” and “{second}” bring {part} of the {all_} times"


def _curves(data: FigureData) -> str:
    if data.figure.x:
        return _over_parameter(data, data.figure.x)
    rows = data.against_others
    rows = rows[~rows["variant"].isin(data.own_baselines)]
    if stats.comparable(rows) and not data.sweep.reference.kernel:
        return _everywhere(data, records(data.fastest_by_size))
    most = stats.row_with_most(rows, rows["speedup"])
    at = size_label(size_of(most))
    if gain(most).verdict != FASTER:
        return "No choice is faster than its baseline at any size"
    return f"“{_short(data, most['variant'])}” gains most: {change_label(most['speedup'])} at {at}"


def _over_parameter(data: FigureData, name: str) -> str:
    rows = data.ok if data.figure.size is None else data.here
    others = rows[rows["variant"] != rows["reference"]]
    rows = others if len(others) else rows
    most = stats.row_with_most(rows, rows["speedup"])
    value = json.loads(most["params"]).get(name)
    return f"Up to {_over(data, most)}, at {name} = {value}"


def _everywhere(data: FigureData, best: Sequence[Mapping[str, Any]]) -> str:
    """At how many sizes the fastest there is ahead of the libraries."""
    verdicts, places = (
        [gain(row).verdict for row in best],
        "cases" if len(data.sweep.dtypes) > 1 else "sizes",
    )
    ahead, behind = (
        f"at all {len(best)} {places}"
        if count == len(best)
        else f"at {count} of {len(best)} {places}"
        for count in (verdicts.count(FASTER), verdicts.count(SLOWER))
    )
    if len(best) == 1:
        said = _over(data, best[0])
        return f"{said[0].upper()}{said[1:]} at {size_label(size_of(best[0]))}"
    if FASTER in verdicts:
        most = max(
            row["speedup"]
            for row, verdict in zip(best, verdicts, strict=True)
            if verdict == FASTER
        )
        return f"Faster than {rival(data)} {ahead}, up to {change_label(most)}"
    return (
        f"Slower than {rival(data)} {behind}"
        if SLOWER in verdicts
        else f"A tie with {rival(data)} everywhere"
    )


def _short(data: FigureData, variant: str) -> str:
    """The first words of a name."""
    parts = plain(differing(data.names.values())[data.names[variant]]).split(", ")
    few = [
        part
        for place, part in enumerate(parts)
        if len(" ".join(parts[: place + 1]).split()) <= _WORDS
    ]
    return ", ".join(few or parts[:1]) + ("…" if len(few) < len(parts) else "")


def _heatmap(data: FigureData) -> str:
    rows = data.in_table
    best = stats.fastest(rows)
    params = {
        name: stats.parameter(rows, name)[rows["variant"] == best["variant"]].iloc[0]
        for name in (data.figure.y, data.figure.x)
        if name
    }
    if set(params) == {"bm", "bn"}:
        return f"A tile of {params['bm']} x {params['bn']} is best: {_over(data, best)}"
    choice = ", ".join(f"{name} = {value}" for name, value in params.items())
    return f"Best with {choice}: {_over(data, best)}"


def _banks(data: FigureData) -> str:
    costs = stats.access_costs(data.ok, data.metrics).dropna(subset=["cycles", "model"])
    if not len(costs):
        return data.sweep.title
    off = (costs["cycles"] / costs["model"] - 1).abs().max()
    return f"Cycles follow the bank model within {share(off, '.1f')}"


def _roofline(data: FigureData) -> str:
    best = stats.fastest(data.here)
    return f"“{plain(data.names[best['variant']])}” reaches {share(best['peak_fraction'], '.0f')} of the peak"


_MESSAGES: Mapping[str, Callable[[FigureData], str]] = {
    "ladder": _ladder,
    "curves": _curves,
    "heatmap": _heatmap,
    "roofline": _roofline,
    "banks": _banks,
    "shapes": lambda data: _everywhere(data, records(data.fastest_by_size)),
}


_AT_ONE_SIZE = ("ladder", "roofline")


def message(data: FigureData) -> str:
    """The message of a figure: that of the answer which it shows; else its own; without results its sweep's title."""
    kind = data.figure.kind
    rows = data.ok
    if kind == "heatmap":
        rows = data.in_table
    elif kind in _AT_ONE_SIZE or data.figure.size is not None:
        rows = data.here
    return data.title or (_MESSAGES[kind](data) if len(rows) else data.sweep.title)

"""What a figure says, in one line: the title inside it and its text where pictures are not shown."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from ladder.model.cell import size_label
from ladder.report.markdown import figure, share
from ladder.report.steps import path, steps
from ladder.report.sweep_data import FigureData
from ladder.results import statistics as stats
from ladder.results.statistics import records, size_of

_SAID = 60  # characters of a description that an axis has room for
_WORDS = 5  # of a name in a title
_PROPER = {"cublas": "cuBLAS", "cublaslt": "cuBLASLt", "cublaslt_fast": "cuBLASLt", "copy": "a copy"}


def rival(data: FigureData) -> str:
    """What cells are timed against in a word or two; cuBLAS is the faster of cuBLAS and cuBLASLt."""
    reference = data.sweep.reference
    if reference.kernel:
        return "its baseline"
    first = reference.libraries[0]
    return _PROPER.get(first, first)


def times(value: float) -> str:
    """A factor as people say it: +14 %, -5 %, and from two times on 2.7 times."""
    if value >= 2:
        return f"{figure(value, 3 if value >= 10 else 2)} times"
    percent = 100 * (value - 1)
    if value < 0.5:
        return f"{figure(value, 2)} times"
    text = f"{percent:+.{0 if abs(percent) >= 9.95 else 1}f} %"
    return "0.0 %" if text.strip("+-") == "0.0 %" else text.replace("-", "\N{MINUS SIGN}")


def _over(data: FigureData, row: Mapping[str, Any]) -> str:
    """3 % faster than cuBLAS; as fast as cuBLAS where the range of another GPU holds 1."""
    value, range_ = row["speedup"], stats.predicted(row)
    range_ = range_ if range_.known else stats.estimate(row, "speedup")
    if range_.low <= 1 <= range_.high:
        return f"as fast as {rival(data)}"
    if value >= 2 or value < 0.5:
        return f"{figure(value, 2)} times {rival(data)}"
    percent = 100 * abs(value - 1)
    return f"{figure(percent, 2)} % {'faster' if value > 1 else 'slower'} than {rival(data)}"


def _name(label: str) -> str:
    """A rung's name without its number."""
    return re.sub(r"^\d+[a-z]?\s+(?!x )", "", label)


def said(name: str, value: Any) -> str:
    """A parameter's value in words: the value alone where it is one, else with the parameter's name."""
    text = str(value).replace("_", " ")
    return text if re.fullmatch(r"[^\W\d].*", text) else f"{name.replace('_', ' ')} {text}"


def differing(labels: Iterable[str]) -> dict[str, str]:
    """Labels such as `bk=8, stages=3` without the parts that all of them have, in words."""
    parts = {label: label.split(", ") for label in dict.fromkeys(labels)}
    common = set.intersection(*map(set, parts.values())) if len(parts) > 1 else set()
    return {
        label: ", ".join(
            said(*part.split("=", 1)) if "=" in part else part for part in own if part not in common
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
    words = re.split(r"[;:,(]", found.description)[0].strip()
    unit = f", {found.unit}" if found.unit and found.unit not in words else ""
    return f"{words}{unit} ({name})" if len(words) <= _SAID else f"{name}{unit}"


def _fastest(data: FigureData, rows: pd.DataFrame) -> str:
    best = stats.fastest(rows)
    return f"“{_name(data.names[best['variant']])}” is fastest: {_over(data, best)}"


def _ladder(data: FigureData) -> str:
    found = {step.entry.variant: step for step in steps(data)}
    known = [step for step in found.values() if step.gain.known]
    if data.sweep.tuning or not known:
        return _fastest(data, data.here)
    chain = [found[entry.variant] for entry in path(data) if entry.variant in found]
    if len(chain) <= 2 < len(known):
        worst = min(known, key=lambda step: step.gain.value)
        return f"“{_name(worst.entry.rung)}” matters most: {times(worst.gain.value)}"
    gains = sorted((step for step in chain if step.gain.known), key=lambda step: -step.gain.value)
    whole = chain[-1].row["speedup"] / chain[0].row["speedup"]
    if whole < 2 or len(gains) < 2:
        return f"The ladder ends {_over(data, chain[-1].row)}"
    both = gains[0].gain.value * gains[1].gain.value
    if len(gains) == 2:
        return "; ".join(f"“{_name(step.entry.rung)}” brings {times(step.gain.value)}" for step in gains)
    first, second = (_name(step.entry.rung) for step in gains[:2])
    part, all_ = (figure(value, 2 if value < 10 else 3 if value >= 100 else 2) for value in (both, whole))
    return f"“{first}” and “{second}” bring {part} of the {all_} times"


def _curves(data: FigureData) -> str:
    rows = data.against_others
    rows = rows[~rows["variant"].isin(data.own_baselines)]
    if stats.comparable(rows) and not data.sweep.reference.kernel:
        best = records(data.fastest_by_size)
        ahead = [row for row in best if _range(row).low > 1]
        if not ahead:
            behind = sum(_range(row).high < 1 for row in best)
            return f"Not faster than {rival(data)} anywhere, slower at {behind} of {len(best)} sizes"
        most = max(ahead, key=lambda row: row["speedup"])
        kinds = "dtypes and sizes" if len(data.sweep.dtypes) > 1 else "sizes"
        share_ = f"all {len(best)}" if len(ahead) == len(best) else f"{len(ahead)} of {len(best)}"
        return f"Faster than {rival(data)} at {share_} {kinds}, up to {times(most['speedup'])}"
    most = records(rows.loc[[rows["speedup"].idxmax()]])[0]
    at = size_label(size_of(most))
    if _range(most).low <= 1:
        return "No choice is faster than its baseline at any size"
    return f"“{_short(data, most['variant'])}” gains most: {times(most['speedup'])} at {at}"


def _short(data: FigureData, variant: str) -> str:
    """The first words of a name."""
    parts = _name(differing(data.names.values())[data.names[variant]]).split(", ")
    few = [part for place, part in enumerate(parts) if len(" ".join(parts[: place + 1]).split()) <= _WORDS]
    return ", ".join(few or parts[:1]) + ("…" if len(few) < len(parts) else "")


def _range(row: Mapping[str, Any]) -> stats.Estimate:
    elsewhere = stats.predicted(row)
    return elsewhere if elsewhere.known else stats.estimate(row, "speedup")


def _by(row: Mapping[str, Any]) -> str:
    return times(row["speedup"]).removeprefix("+")


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
    return f"Best with {', '.join(said(*one) for one in params.items())}: {_over(data, best)}"


def _shapes(data: FigureData) -> str:
    rows = records(data.fastest_by_size)
    mean = stats.mean_of(rows).value
    ahead, behind = sum(_range(row).low > 1 for row in rows), sum(_range(row).high < 1 for row in rows)
    tie = abs(mean - 1) < 0.01
    whole = (
        f"A tie with {rival(data)} on average"
        if tie
        else f"{_by({'speedup': mean})} {'faster' if mean > 1 else 'slower'} than {rival(data)} on average".lstrip(
            "\u2212"
        )
    )
    return f"{whole}: ahead at {ahead}, behind at {behind} shapes"


def _banks(data: FigureData) -> str:
    costs = stats.access_costs(data.ok, data.metrics).dropna(subset=["cycles", "model"])
    if not len(costs):
        return data.sweep.title
    off = (costs["cycles"] / costs["model"] - 1).abs().max()
    return f"Cycles follow the bank model within {share(off, '.1f')}"


def _roofline(data: FigureData) -> str:
    best = stats.fastest(data.here)
    return f"“{_name(data.names[best['variant']])}” reaches {share(best['peak_fraction'], '.0f')} of the peak"


def _stencil(data: FigureData) -> str:
    rows = data.here[data.here["variant"] != data.here["reference"]]
    rows = rows if len(rows) else data.here
    x = data.figure.x or "k"
    rows = rows.assign(value=stats.parameter(rows, x))
    most = records(rows.loc[[rows["speedup"].idxmax()]])[0]
    value = most["value"]
    return f"Up to {_over(data, most)}, at {x} = {value}"


_MESSAGES: Mapping[str, Callable[[FigureData], str]] = {
    "ladder": _ladder,
    "curves": _curves,
    "heatmap": _heatmap,
    "roofline": _roofline,
    "banks": _banks,
    "stencil": _stencil,
    "shapes": _shapes,
}


_AT_ONE_SIZE = ("ladder", "roofline", "stencil")


def message(data: FigureData) -> str:
    """The message of a figure; the title of its sweep where there are no results to draw one from."""
    kind = data.figure.kind
    rows = data.in_table if kind == "heatmap" else data.here if kind in _AT_ONE_SIZE else data.ok
    return _MESSAGES[data.figure.kind](data) if len(rows) else data.sweep.title

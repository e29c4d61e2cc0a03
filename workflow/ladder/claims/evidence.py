"""Sentences that carry the numbers behind a verdict; every word of evidence is made here from the data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ladder.claims.ledger import Measure, Test
from ladder.claims.rows import Row
from ladder.claims.verdicts import Measured, Outcome
from ladder.results.statistics import Estimate, count_label, params_of, size_label

_WORDS = {"at_least": "at least", "at_most": "at most", "equals": "equal to"}
_SHOWN = 6


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday magnitudes."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def quantity(value: Estimate, unit: str) -> str:
    """1.234 x [1.230, 1.238]; without brackets where the value is exact."""
    ending = f" {unit}" if unit else ""
    if value.low == value.high:
        return f"{number(value.value)}{ending}"
    return f"{number(value.value)}{ending} [{number(value.low)}, {number(value.high)}]"


def _axis(rows: Sequence[Row]) -> list[str]:
    """Parameters in which the rows differ."""
    seen: dict[str, set[Any]] = {}
    for row in rows:
        for name, value in params_of(row.names.get("params")).items():
            seen.setdefault(name, set()).add(value)
    return [name for name, values in seen.items() if len(values) > 1]


def _params(row: Row, axis: Sequence[str]) -> list[tuple[str, Any]]:
    params = params_of(row.names.get("params"))
    return [(name, params[name]) for name in axis if name in params]


def _place(row: Row, axis: Sequence[str]) -> str:
    # A rung's name says more than the many parameters that lead to it.
    rung = row.names.get("rung")
    parts = [str(rung)] if rung else [f"{name}={value}" for name, value in _params(row, axis)]
    if row.size:
        parts.append(f"size {size_label(row.size)}")
    return ", ".join(parts) or str(row.names["variant"])


def opening(label: str) -> str:
    """A label at the beginning of a sentence."""
    return f"{label[0].upper()}{label[1:]}"


def sentence(test: Test, outcome: Outcome) -> str:
    """How many rows meet the condition, and the extremes with their intervals and places; or why there are none."""
    if outcome.why:
        return f"{opening(test.label)}: not measured: {outcome.why}"
    decided, missing = outcome.decided, outcome.missing
    axis = _axis([one.row for one in decided])
    threshold = test.threshold if isinstance(test.threshold, str) else number(test.threshold)
    counts = Counter(one.verdict for one in decided)
    tally = ", ".join(f"{counts[name]} {name}" for name in ("refuted", "inconclusive") if counts[name])
    text = f"{opening(test.label)}: "
    if len(decided) > 1:
        text += f"{counts['holds']} of {len(decided)} cells are {_WORDS[test.condition]} {threshold}"
        text += f" ({tally}); " if tally else "; "
    else:
        text += f"{_WORDS[test.condition]} {number(decided[0].threshold)} is stated; "
    extremes = [
        min(decided, key=lambda one: one.value.value),
        max(decided, key=lambda one: one.value.value),
    ]
    shown = [f"{quantity(one.value, test.unit)} at {_place(one.row, axis)}" for one in extremes]
    alike = extremes[0].value.value == extremes[1].value.value
    text += (
        f"found {shown[0]}"
        if len(decided) == 1
        else f"all {shown[0].split(' at ')[0]}"
        if alike
        else (f"from {shown[0]} to {shown[1]}")
    )
    if missing:
        text += "; left out for want of " + ", ".join(f"{name} ({total})" for name, total in missing.items())
    return text


def measured(measure: Measure, taken: Measured) -> str:
    """`label: 2 at k=2, 12 at k=12`: a measure's numbers, by what its rows differ in; or why there are none."""
    found = taken.found
    if not found:
        return f"{measure.label}: not measured: {taken.why}"
    rows = [row for row, _ in found]
    axis = _axis(rows)
    several_kernels = len({row.names["kernel"] for row in rows}) > 1
    several_sizes = len({tuple(row.size.items()) for row in rows}) > 1

    def order(entry: tuple[Row, float]) -> tuple[Any, ...]:
        row = entry[0]
        return (
            row.names["kernel"],
            _sortable([value for _, value in _params(row, axis)]),
            *row.size.values(),
        )

    unit = f" {measure.unit}" if measure.unit else ""
    parts = []
    for row, value in sorted(found, key=order)[:_SHOWN]:
        place = [str(row.names["kernel"])] if several_kernels else []
        place += [f"{name}={value}" for name, value in _params(row, axis)]
        place += [f"size {size_label(row.size)}"] if several_sizes else []
        parts.append(f"{number(value)}{unit}" + (f" at {', '.join(place)}" if place else ""))
    more = f"; {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{measure.label}: {', '.join(parts)}{more}"


def _values(values: Sequence[Any], everything: Sequence[Any]) -> str:
    """A set of group values, as a bound where it is one end of all there are."""
    numeric = all(isinstance(value, int | float) for value in everything)
    if len(values) == len(everything) > 1 and numeric:
        return f"= {_show(values[0])} … {_show(values[-1])}"
    if numeric and len(values) > 1 and list(values) == list(everything[-len(values) :]):
        return f">= {_show(values[0])}"
    if numeric and len(values) > 1 and list(values) == list(everything[: len(values)]):
        return f"<= {_show(values[-1])}"
    shown = ", ".join(_show(value) for value in values[:_SHOWN])
    return f"= {shown}" + (f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else "")


def _show(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return count_label(value) if isinstance(value, int) and value > 0 else str(value)


def where_sentence(per: Sequence[str], verdicts: Mapping[tuple[Any, ...], str]) -> str:
    """`holds at n >= 2048; refuted at n = 1024`."""
    parts = []
    for verdict in ("holds", "refuted", "inconclusive"):
        keys = sorted((key for key, given in verdicts.items() if given == verdict), key=_sortable)
        if not keys:
            continue
        if len(per) == 1:
            everything = [key[0] for key in sorted(verdicts, key=_sortable)]
            parts.append(f"{verdict} at {per[0]} {_values([key[0] for key in keys], everything)}")
        else:
            shown = "; ".join(
                ", ".join(f"{name}={_show(value)}" for name, value in zip(per, key, strict=True))
                for key in keys[:_SHOWN]
            )
            more = f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
            parts.append(f"{verdict} at ({shown}{more})")
    return "; ".join(parts)


def _sortable(key: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((isinstance(value, str), value) for value in key)

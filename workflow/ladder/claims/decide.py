"""Claims decided: a row of claims.csv for each, its verdict with sentences that carry the numbers behind it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.claims.ledger import Claim, Measure, Test
from ladder.claims.verdicts import Decided, Outcome, Row, Tables, carry_out, combine, numbers, together
from ladder.model.cell import count_label, size_label
from ladder.model.sweep import Sweep
from ladder.results import tables
from ladder.results.statistics import Estimate, changing, listed

_WORDS = {"at_least": "at least", "at_most": "at most", "equals": "equal to"}
_SHOWN = 6


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday magnitudes."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def quantity(value: Estimate, unit: str) -> str:
    """1.234 x [1.230, 1.238]; without brackets where the value is exact."""
    interval = "" if value.low == value.high else f" [{number(value.low)}, {number(value.high)}]"
    return f"{number(value.value)} {unit}".rstrip() + interval


def _params(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Of each row, the parameters in which the rows differ."""
    every = [json.loads(row.names["params"]) for row in rows]
    names = changing(every)
    return [{name: params[name] for name in names if name in params} for params in every]


def _place(params: Mapping[str, Any], size: Mapping[str, int]) -> list[str]:
    equations = [f"{name}={value}" for name, value in params.items()]
    return [*equations, f"size {size_label(size)}"] if size else equations


def _found(decided: Sequence[Decided], unit: str) -> str:
    """The extremes with their intervals and places."""
    params = _params([one.row for one in decided])
    values = [one.value.value for one in decided]
    ends = []
    for index in (values.index(min(values)), values.index(max(values))):
        one, names = decided[index], decided[index].row.names
        # A rung's name says more than the many parameters that lead to it.
        place = [names["rung"]] if names.get("rung") else []
        place += _place({} if place else params[index], one.row.size)
        ends.append(f"{quantity(one.value, unit)} at {', '.join(place) or names['variant']}")
    if len(decided) == 1:
        return f"found {ends[0]}"
    alike = min(values) == max(values)
    return f"all {quantity(decided[0].value, unit)}" if alike else f"from {ends[0]} to {ends[1]}"


def sentence(test: Test, outcome: Outcome) -> str:
    """How many rows meet the condition, and the extremes with their intervals and places; or why there are none."""
    label = f"{test.label[0].upper()}{test.label[1:]}"
    if outcome.why:
        return f"{label}: not measured: {outcome.why}"
    decided, condition = outcome.decided, _WORDS[test.condition]
    text = f"{condition} {number(decided[0].threshold)} is stated"
    if len(decided) > 1:
        counts = Counter(one.verdict for one in decided)
        tally = ", ".join(f"{counts[name]} {name}" for name in ("refuted", "inconclusive") if counts[name])
        threshold = test.threshold if isinstance(test.threshold, str) else number(test.threshold)
        text = f"{counts['holds']} of {len(decided)} cells are {condition} {threshold}"
        text += f" ({tally})" if tally else ""
    text = f"{label}: {text}; {_found(decided, test.unit)}"
    if outcome.missing:
        missing = ", ".join(f"{name} ({total})" for name, total in outcome.missing.items())
        text += f"; left out because of missing data: {missing}"
    return text


def measured(measure: Measure, data: Tables) -> str:
    """`label: 2 at k=2, 12 at k=12`: a measure's numbers, by what its rows differ in; or why there are none."""
    found, missing = numbers(measure, data)
    if not found:
        return f"{measure.label}: not measured: {data.why_empty(measure.sweep, missing)}"
    rows = [row for row, _ in found]
    several_kernels = len({row.names["kernel"] for row in rows}) > 1
    several_sizes = len({tuple(row.size.items()) for row in rows}) > 1
    parts = []
    for (row, (value,)), params in zip(found, _params(rows), strict=True):
        place = [str(row.names["kernel"])] if several_kernels else []
        place += _place(params, row.size if several_sizes else {})
        text = quantity(Estimate(value, value, value), measure.unit)
        order = (row.names["kernel"], _sortable(list(params.values())), *row.size.values())
        parts.append((order, f"{text} at {', '.join(place)}" if place else text))
    texts = [text for _, text in sorted(parts, key=itemgetter(0))]
    more = f"; {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{measure.label}: {', '.join(texts[:_SHOWN])}{more}"


def _show(value: Any) -> str:
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return count_label(value) if isinstance(value, int) and value > 0 else str(value)


def _values(values: Sequence[Any], everything: Sequence[Any]) -> str:
    """A set of group values, as a bound where it is one end of all there are."""
    if len(values) > 1 and all(isinstance(value, int | float) for value in everything):
        if len(values) == len(everything):
            return f"= {_show(values[0])} … {_show(values[-1])}"
        if values == everything[-len(values) :]:
            return f">= {_show(values[0])}"
        if values == everything[: len(values)]:
            return f"<= {_show(values[-1])}"
    return f"= {listed([_show(value) for value in values], _SHOWN, ', ')}"


def where_sentence(per: Sequence[str], verdicts: Mapping[tuple[Any, ...], str]) -> str:
    """`holds at n >= 2048; refuted at n = 1024`."""
    ordered = sorted(verdicts, key=_sortable)
    parts = []
    for verdict in ("holds", "refuted", "inconclusive"):
        keys = [key for key in ordered if verdicts[key] == verdict]
        if keys and len(per) == 1:
            values = _values([key[0] for key in keys], [key[0] for key in ordered])
            parts.append(f"{verdict} at {per[0]} {values}")
        elif keys:
            shown = [", ".join(f"{n}={_show(v)}" for n, v in zip(per, key, strict=True)) for key in keys]
            parts.append(f"{verdict} at ({listed(shown, _SHOWN)})")
    return "; ".join(parts)


def _sortable(key: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((isinstance(value, str), value) for value in key)


def decide(claim: Claim, data: Tables) -> dict[str, object]:
    """The row of claims.csv for one claim."""
    outcomes = [carry_out(test, data) for test in claim.tests]
    groups = together(claim.tests, outcomes)
    verdicts = [outcome.verdict for outcome in outcomes]
    # Tests that hold at different values each hold together at none.
    verdicts += [combine(list(found.values()), "any") for found in groups.values()]
    sentences = [sentence(test, outcome) for test, outcome in zip(claim.tests, outcomes, strict=True)]
    if claim.because:
        beside = "; ".join(measured(measure, data) for measure in claim.because)
        sentences.append(f"Counted beside it: {beside}")
    return claim.model_dump(include={"id", "source", "statement"}) | {
        "verdict": combine(verdicts, "all"),
        "evidence": " ".join(f"{text.rstrip('.')}." for text in sentences),
        "where": "; ".join(where_sentence(*found) for found in groups.items()) or None,
    }


def decide_tables(claims: Sequence[Claim], folder: Path, sweeps: Mapping[str, Sweep]) -> pd.DataFrame:
    """Decide the claims over the tables in a folder, which are about `sweeps`, and write claims.csv beside them."""
    data = Tables(folder, sweeps)
    decided = tables.frame("claims", [decide(claim, data) for claim in claims])
    tables.write({"claims": decided}, folder)
    return decided

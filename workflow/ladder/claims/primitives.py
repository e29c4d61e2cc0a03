"""What claims are made of: verdicts over values of the tables' rows.

Verdict of a value: what another GPU is predicted to read (where nothing is predicted, the 95 % interval over what was
measured) lies inside the condition (holds), outside (refuted) or across its edge (undecided); where all of it lies
within the margin around the edge, no difference matters (equivalent). A count has no interval. Where more is better,
what lies above all that was said holds and more.

A part of a statement has the worst verdict of its values, or the best where the statement says "sometimes". Where it is
decided by size, and holds at some and is refuted at others, it holds only there. The more values a part has, the
likelier one of them is refuted by chance, or holds by chance where one is enough: these verdicts stand only where they
survive Holm's correction (Holm 1979).
"""

import json
import math
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ladder.model.cell import size_label
from ladder.model.errors import refuse
from ladder.model.schemas import VERDICTS
from ladder.results import statistics as stats
from ladder.results.run_data import Value, Values
from ladder.results.statistics import Estimate
from ladder.results.verdicts import NORMAL, SESSION

HOLDS, MORE, ONLY_WHERE, REFUTED, EQUIVALENT, UNDECIDED, NOT_MEASURED = VERDICTS
_WORST_FIRST = (REFUTED, ONLY_WHERE, NOT_MEASURED, UNDECIDED, EQUIVALENT, HOLDS, MORE)
SLIGHT = 0.01  # "faster" and "slower" mean by more than this share, where a source says no more
_MOST_LISTED = 8


@dataclass(frozen=True)
class Part:
    """One part of a statement, and what decided it: `decisive` is the value that is worst for the statement."""

    label: str  # the quantity and its condition
    verdict: str
    where: str
    evidence: str
    values: Values
    unit: str
    decisive: Value | None = None

    @property
    def span(self) -> str:
        return self.values.span(self.unit)

    def either(self, holds: str, otherwise: str) -> str:
        """The first where the part holds, for advice."""
        return holds if self.verdict in (HOLDS, MORE) else otherwise


Parts = Generator[Part | str, Any, str]
"""What the function of a claim yields: parts, which each `yield` gives back, and numbers beside them; and returns: one
sentence of advice."""


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday magnitudes."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def combine(verdicts: Iterable[str], some: bool = False) -> str:
    """Verdict of several: the worst, or with `some` the best."""
    return (max if some else min)(verdicts, key=_WORST_FIRST.index)


def combine_groups(verdicts: Iterable[str], some: bool = False) -> str:
    """Verdict over sizes or other values of a column: only where, if it holds at some and is refuted at others."""
    known = {*verdicts}
    if not some and REFUTED in known and known & {HOLDS, MORE}:
        return ONLY_WHERE
    return combine(known, some)


def verdict_of_value(
    value: Estimate, least: float, most: float, margin: float = 0.0, more: bool = False
) -> str:
    """Verdict of one value that is said to lie from `least` to `most`; `margin` is a share of the one edge there is.

    more: a value above `most` is better than said.
    """
    low, high = min(value.low, value.value), max(value.high, value.value)
    edge = least if math.isfinite(least) else most
    if margin and edge * (1 - margin) <= low and high <= edge * (1 + margin):
        return EQUIVALENT
    if more and least <= low:
        return MORE if low > most else HOLDS
    if least <= low and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else UNDECIDED


def _room(value: Estimate, least: float, most: float) -> float:
    """How many times its half-width the interval of a value may have before it reaches an edge; both sides count."""
    reaches = [
        (abs(value.value - edge), abs(end - value.value))
        for edge in (least, most)
        if math.isfinite(edge)
        for end in (value.high if edge > value.value else value.low,)
    ]
    return min(far / half if half else math.inf for far, half in reaches)


def corrected(
    values: Sequence[Estimate],
    verdicts: Sequence[str],
    least: float,
    most: float,
    some: bool = False,
) -> list[str]:
    """Verdicts of a part's values, of which those that decide the part alone have passed Holm's correction.

    That is `refuted`, and `holds` where `some` value is enough. The value farthest from the edge must lie beyond it at
    the level 0.05 / n, the next one at 0.05 / (n - 1), and so on; from the first that does not all are undecided. A
    value that is refuted lies beyond one edge only. Counts have no chance in them, and are no values of these n.
    """
    from scipy.special import (
        ndtri,
    )  # slow to import, and the report imports claims for their words

    alone, found = HOLDS if some else REFUTED, [*verdicts]
    chance = [place for place, value in enumerate(values) if value.low < value.high]
    edges = dict.fromkeys(chance, (least, most))
    if alone == REFUTED:
        for place in chance:
            edges[place] = (
                (least, math.inf) if values[place].value < least else (-math.inf, most)
            )
    hasty = [place for place in chance if found[place] == alone]
    ranked = sorted(hasty, key=lambda place: -_room(values[place], *edges[place]))
    for rank, place in enumerate(ranked):
        wanted = float(ndtri(1 - 0.025 / (len(chance) - rank)))
        if NORMAL * _room(values[place], *edges[place]) < wanted:
            for later in ranked[rank:]:
                found[later] = UNDECIDED
            break
    return found


def decide_part(
    label: str,
    values: Values,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    near: float | None = None,
    margin: float | None = None,
    per: str | None = None,
    some: bool = False,
    more: bool = False,
    unit: str = "x",
) -> Part:
    """A part of a statement: every value (with `some`, one) is at least `least`, at most `most`, or near a number.

    With both ends it lies between them; with `more`, what lies above `most` is better than said.

    `margin` is what counts as equal: a share of the edge, of `near` the distance from it. Without one it is, for values
    that were timed, what sessions on one GPU differ by. With `per` each value of that column has a verdict of its own.
    Raises LadderError where the margin is smaller than the noise of the values.
    """
    if margin is None:
        timed = near is None and any(one.timed for one in values.values)
        margin = max(SESSION["kernel"], values.noise) if timed else 0.0
    said = (
        f"at least {number(least)}"
        if math.isfinite(least)
        else f"at most {number(most)}"
    )
    if math.isfinite(least) and math.isfinite(most):
        said = f"from {number(least)} to {number(most)}"
    if near is not None:
        least, most = near - margin, near + margin
        said = f"{number(near)} within {number(margin)}" if margin else number(near)
    label = f"{label}: {said}"
    if margin and values.noise > margin:
        measured = f">= {number(values.noise)}, the noise that the precision of {values.sweep} leaves"
        raise refuse(f"part {label!r}", "margin", margin, measured)
    if not values.values:
        return Part(
            label,
            NOT_MEASURED,
            "",
            f"Not measured: {values.why or 'no pair of rows'}.",
            values,
            unit,
        )
    equal = margin if near is None else 0.0
    decisive = [one.deciding for one in values.values]
    alone = [verdict_of_value(value, least, most, equal, more) for value in decisive]
    verdicts = corrected(decisive, alone, least, math.inf if more else most, some)
    by_key: dict[Any, list[str]] = {}
    for one, own in zip(values.values, verdicts, strict=True):
        by_key.setdefault(one.row[per] if per else None, []).append(own)
    groups = {key: combine(own, some) for key, own in by_key.items()}
    verdict = combine_groups(groups.values(), some)

    def favour(value: Value) -> float:
        found = value.value
        return (
            -abs(found - near)
            if near is not None
            else found
            if math.isfinite(least)
            else -found
        )

    worst = REFUTED if verdict == ONLY_WHERE else verdict
    deciding = [
        one for one, own in zip(values.values, verdicts, strict=True) if own == worst
    ]
    shown = [
        (own, [str(key) for key in groups if groups[key] == own]) for own in VERDICTS
    ]
    where = "; ".join(
        f"{own} at {per} = {', '.join(keys)}" for own, keys in shown if per and keys
    )
    evidence = _found(values, verdicts, unit)
    evidence += (
        f"; left out because of missing data: {values.left_out}."
        if values.left_out
        else "."
    )
    return Part(
        label,
        verdict,
        where,
        evidence,
        values,
        unit,
        (max if some else min)(deciding, key=favour),
    )


def _shown(values: Values, unit: str, ends: bool) -> list[str]:
    """Each value with its interval, what another GPU is predicted to show, and what sets its row apart."""
    rows = [one.row for one in values.values]
    params = [json.loads(row["params"]) for row in rows]
    differing = stats.changing(params)
    kernels, sizes = (
        len({row["kernel"] for row in rows}) > 1,
        len({str(row.size) for row in rows}) > 1,
    )
    found = []
    for one, own in zip(values.values, params, strict=True):
        estimate = one.measured
        text = f"{number(estimate.value)} {unit}".strip()
        if ends and estimate.low != estimate.high:
            text += f" [{number(estimate.low)}, {number(estimate.high)}]"
        if ends and one.predicted.known:
            text += f" (predicted on another GPU: {number(one.predicted.low)} to {number(one.predicted.high)})"
        place = [one.row["kernel"]] * kernels + [
            f"{name}={own[name]}" for name in differing if name in own
        ]
        place = (
            [one.row["rung"]] if place and "rung" in one.row else place
        )  # which says more
        place += [f"size {size_label(one.row.size)}"] * sizes
        found.append(text + (f" at {', '.join(place)}" if place else ""))
    return found


def _found(values: Values, verdicts: Sequence[str], unit: str) -> str:
    """All values where they are few, else the extremes and how many meet the condition."""
    shown, found = _shown(values, unit, ends=True), [one.value for one in values.values]
    if len(found) > 1 and len(set(found)) == 1:
        return f"All {len(found)} are {number(found[0])} {unit}".strip()
    if len(found) <= 4:
        return ", ".join(shown)
    least, most = (shown[found.index(choose(found))] for choose in (min, max))
    counts = ", ".join(f"{n} {verdict}" for verdict, n in Counter(verdicts).items())
    return f"From {least} to {most}; of {len(found)}: {counts}"


def note(label: str, values: Values, unit: str = "") -> str:
    """Numbers printed next to a claim as an explanation; they do not affect its verdict."""
    if not values.values:
        return f"{label}: not measured: {values.why}"
    return (
        f"{label}: {stats.listed(_shown(values, unit, ends=False), _MOST_LISTED, ', ')}"
    )

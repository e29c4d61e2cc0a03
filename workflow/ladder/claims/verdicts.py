"""Verdicts: the ledger's tests carried out over the tables; claims.schema.yaml says how verdicts combine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ladder.claims.ledger import OTHER, Measure, Test
from ladder.claims.rows import MissingError, Row, Tables
from ladder.model.errors import LadderError
from ladder.model.expressions import evaluate, words
from ladder.model.schemas import VERDICTS
from ladder.results.statistics import Estimate

HOLDS, REFUTED, INCONCLUSIVE, NOT_MEASURED = VERDICTS


@dataclass(frozen=True)
class Decided:
    """A row's value and verdict."""

    row: Row
    value: Estimate
    threshold: float
    verdict: str


@dataclass
class Outcome:
    """What a test came to: its rows, what others lacked, or why there are none; the verdict of each group."""

    verdict: str
    decided: list[Decided] = field(default_factory=list)
    missing: Counter[str] = field(default_factory=Counter)
    why: str = ""
    groups: dict[tuple[Any, ...], str] = field(default_factory=dict)


@dataclass
class Measured:
    """What a measure came to: its numbers, or why there are none."""

    found: list[tuple[Row, float]]
    why: str = ""


def _evaluate(expression: str | int | float, row: Row, other: Row | None = None) -> Any:
    names = dict(row.names)
    functions: dict[str, Callable[..., Any]] = {"metric": row.metric}
    if other is not None:
        names |= {OTHER + name: value for name, value in other.names.items()}
        functions[OTHER + "metric"] = other.metric
    for name in sorted(words(expression)[0] - set(names)):
        raise MissingError(name)
    return evaluate(expression, names, functions)


def _keeps(expression: str | None, row: Row) -> bool:
    """A row that lacks what `where` asks for is not selected."""
    try:
        return expression is None or bool(_evaluate(expression, row))
    except MissingError:
        return False


def _select(rows: Sequence[Row], kernel: str | None, where: str | None) -> list[Row]:
    return [row for row in rows if kernel in (None, row.names["kernel"]) and _keeps(where, row)]


def _partner(measure: Measure, row: Row, candidates: Sequence[Row]) -> Row | None:
    if measure.against is None:
        return None
    against = measure.against
    found = [
        other
        for other in candidates
        if other is not row and all(row.names.get(name) == other.names.get(name) for name in against.match)
    ]
    if not found:
        raise MissingError("partner row")
    if against.pick is not None:
        return max(found, key=lambda other: float(_evaluate(against.pick or 0, other)))
    if len(found) > 1:
        raise LadderError(
            f"{measure.label}: {row.names['variant']} has {len(found)} partners; "
            "say more in against.match or against.where, or give against.pick"
        )
    return found[0]


def judge(condition: str, value: Estimate, threshold: float, tolerance: float, noise: float) -> str:
    """Verdict of one value: its interval, widened by `noise` (a share of it), against the condition."""
    margin = abs(value.value) * noise
    low, high = min(value.low, value.value) - margin, max(value.high, value.value) + margin
    least = {"at_least": threshold, "at_most": -float("inf"), "equals": threshold - tolerance}[condition]
    most = {"at_least": float("inf"), "at_most": threshold, "equals": threshold + tolerance}[condition]
    if least <= low and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else INCONCLUSIVE


def _decide(test: Test, row: Row, candidates: Sequence[Row]) -> Decided:
    other = _partner(test, row, candidates)

    def number(expression: str | int | float) -> float:
        return float(_evaluate(expression, row, other))

    value = Estimate(
        *(number(test.value if end is None else end) for end in (test.value, test.low, test.high))
    )
    threshold = number(test.threshold)
    verdict = judge(test.condition, value, threshold, number(test.tolerance), test.noise_percent / 100)
    return Decided(row, value, threshold, verdict)


def combine(verdicts: Sequence[str], require: str) -> str:
    """Verdict of several: with `all` the worst, with `any` the best, inconclusive in between."""
    worst_first = [REFUTED, NOT_MEASURED, INCONCLUSIVE, HOLDS]
    order = worst_first if require == "all" else [HOLDS, INCONCLUSIVE, NOT_MEASURED, REFUTED]
    return min(verdicts, key=order.index)


def _rows(measure: Measure, data: Tables) -> tuple[list[Row], list[Row]]:
    """Rows of a measure, and those their partners are among."""
    rows = _select(data.rows(measure.sweep, measure.rows, measure.regime), measure.kernel, measure.where)
    if measure.against is None:
        return rows, []
    against = measure.against
    others = data.rows(measure.partner_sweep, measure.rows, measure.regime)
    return rows, _select(others, against.kernel, against.where)


def take(measure: Measure, data: Tables) -> Measured:
    """The numbers of a measure; it decides nothing."""
    rows, candidates = _rows(measure, data)
    found: list[tuple[Row, float]] = []
    missing: Counter[str] = Counter()
    for row in rows:
        try:
            partner = _partner(measure, row, candidates)
            found.append((row, float(_evaluate(measure.value, row, partner))))
        except MissingError as lack:
            missing[str(lack)] += 1
    return Measured(found, "" if found else data.why_empty(measure.sweep, missing))


def carry_out(test: Test, data: Tables) -> Outcome:
    """One test over the tables."""
    rows, candidates = _rows(test, data)
    decided: list[Decided] = []
    missing: Counter[str] = Counter()
    for row in rows:
        try:
            decided.append(_decide(test, row, candidates))
        except MissingError as lack:
            missing[str(lack)] += 1
    if not decided:
        return Outcome(NOT_MEASURED, why=data.why_empty(test.sweep, missing))
    if test.rows == "timings":
        without = len(_select(data.failed(test.sweep), test.kernel, test.where))
        missing |= Counter({"a result": without}) if without else Counter()
    groups: dict[tuple[Any, ...], list[str]] = {}
    for one in decided:
        groups.setdefault(tuple(one.row.names.get(name) for name in test.per), []).append(one.verdict)
    verdicts = {key: combine(group, test.require) for key, group in groups.items()}
    across = "any" if test.per and test.scope == "somewhere" else "all"
    verdict = combine(list(verdicts.values()), across)
    return Outcome(verdict, decided, missing, groups=verdicts if test.per else {})


def together(
    tests: Sequence[Test], outcomes: Sequence[Outcome]
) -> dict[tuple[str, ...], dict[tuple[Any, ...], str]]:
    """By the columns tests depend on, for each of their values: whether all tests hold there.

    Tests that depend on no value count at each.
    """
    everywhere = [
        outcome.verdict
        for test, outcome in zip(tests, outcomes, strict=True)
        if not test.per and outcome.verdict != NOT_MEASURED
    ]
    by_names: dict[tuple[str, ...], dict[tuple[Any, ...], list[str]]] = {}
    for test, outcome in zip(tests, outcomes, strict=True):
        for key, verdict in outcome.groups.items():
            by_names.setdefault(tuple(test.per), {}).setdefault(key, list(everywhere)).append(verdict)
    return {
        names: {key: combine(found, "all") for key, found in groups.items()}
        for names, groups in by_names.items()
    }

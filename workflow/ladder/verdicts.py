"""Verdicts: the ledger's tests carried out over the tables; claims.schema.yaml says how verdicts combine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ladder import tables
from ladder.errors import LadderError
from ladder.expressions import evaluate, words
from ladder.ledger import OTHER, Claim, Expression, Measure, Test
from ladder.statistics import Estimate, metric_table, params_of, records, size_of

HOLDS, REFUTED, INCONCLUSIVE, NOT_MEASURED = tables.VERDICTS


class MissingError(Exception):
    """A row lacks something an expression asks for."""


@dataclass(frozen=True)
class Row:
    """One row of a test: its columns and parameters by name, and its metrics."""

    names: Mapping[str, Any]
    metrics: Mapping[str, float]
    size: Mapping[str, int]

    def metric(self, name: str) -> float:
        """A metric of the row's cell. Raises MissingError where it was not collected."""
        if name not in self.metrics:
            raise MissingError(f"metric {name}")
        return self.metrics[name]


@dataclass(frozen=True)
class Decided:
    """A row's value and verdict."""

    row: Row
    value: Estimate
    threshold: float
    verdict: str


@dataclass
class Outcome:
    """What a test came to."""

    verdict: str
    evidence: str
    groups: dict[tuple[Any, ...], str] = field(default_factory=dict)


@dataclass
class Tables:
    """The frames verdicts are drawn from; `variants` names the compiled variants of each sweep of the run."""

    timings: pd.DataFrame
    resources: pd.DataFrame
    metrics: pd.DataFrame
    notes: pd.DataFrame
    variants: Mapping[str, Collection[str]]

    def __post_init__(self) -> None:
        self._metrics = metric_table(self.metrics)
        self._resources = {row["variant"]: _known(row) for row in records(self.resources)}

    def failed(self, sweep: str) -> list[Row]:
        """Cells of a sweep without a result."""
        bad = self.timings[
            ((self.timings["sweep"] == sweep) & (self.timings["status"] != "ok")).fillna(False)
        ]
        return [Row(_with_params(_known(record)), {}, size_of(record)) for record in records(bad)]

    def rows(self, sweep: str, kind: str, regime: str) -> list[Row]:
        """Rows of a sweep as names; of timings only those with status ok, of cells whatever became of them."""
        if kind == "resources":
            found = [
                self._resources[name] for name in self.variants.get(sweep, ()) if name in self._resources
            ]
            return [Row(_with_params(names), {}, {}) for names in found if names["status"] == "ok"]
        timings = self.timings
        wanted = (timings["sweep"] == sweep) & (timings["regime"] == regime)
        if kind == "timings":
            wanted &= timings["status"] == "ok"
        kept = timings[wanted.fillna(False)]
        rows = []
        for record in records(kept):
            names = self._resources.get(record["variant"], {}) | _known(record)
            # A parameter may be called like a size (the stencil's k), so sizes are kept beside the names.
            size = size_of(record)
            metrics = self._metrics.get((sweep, record["variant"], tuple(size.items())), {})
            rows.append(Row(_with_params(names), metrics, size))
        return rows

    def why_empty(self, sweep: str, missing: Counter[str]) -> str:
        """Why a test of this sweep has no row to go by."""
        if sweep not in self.variants:
            return f"the sweep {sweep} is not part of this run"
        notes = self.notes[(self.notes["sweep"] == sweep).fillna(False)]
        if missing:
            what = ", ".join(missing)
            reasons = notes[(notes["stage"] == "profile").fillna(False)]["reason"].dropna().unique()
            return f"no {what}" + (f": {'; '.join(reasons[:2])}" if len(reasons) else "")
        failed = self.timings[
            ((self.timings["sweep"] == sweep) & (self.timings["status"] != "ok")).fillna(False)
        ]
        if len(failed):
            counts = ", ".join(
                f"{count} {status}" for status, count in failed["status"].value_counts().items()
            )
            return f"no cell of {sweep} that it selects gave a result ({counts})"
        reasons = notes["reason"].dropna().unique()
        return f"{sweep} has no such row" + (f": {reasons[0]}" if len(reasons) else "")


def _known(record: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in record.items() if not pd.isna(value)}


def _with_params(names: Mapping[str, Any]) -> dict[str, Any]:
    return {**names, **params_of(names.get("params"))}


def _evaluate(expression: Expression, row: Row, other: Row | None = None) -> Any:
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

    def number(expression: Expression) -> float:
        return float(_evaluate(expression, row, other))

    value = Estimate(number(test.value), number(test.low), number(test.high))
    threshold = number(test.threshold)
    verdict = judge(test.condition, value, threshold, number(test.tolerance), test.noise)
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
    others = data.rows(against.sweep, measure.rows, measure.regime)
    return rows, _select(others, against.kernel, against.where)


def told(measure: Measure, data: Tables) -> str:
    """What a measure came to, in words; it decides nothing."""
    from ladder.evidence import measured

    rows, candidates = _rows(measure, data)
    found: list[tuple[Row, float]] = []
    missing: Counter[str] = Counter()
    for row in rows:
        try:
            partner = _partner(measure, row, candidates)
            found.append((row, float(_evaluate(measure.value, row, partner))))
        except MissingError as lack:
            missing[str(lack)] += 1
    if not found:
        return f"{measure.label}: not measured: {data.why_empty(measure.sweep, missing)}"
    return measured(measure, found)


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
        from ladder.evidence import opening

        why = data.why_empty(test.sweep, missing)
        return Outcome(NOT_MEASURED, f"{opening(test.label)}: not measured: {why}")
    if test.rows == "timings":
        without = len(_select(data.failed(test.sweep), test.kernel, test.where))
        missing |= Counter({"a result": without}) if without else Counter()
    groups: dict[tuple[Any, ...], list[str]] = {}
    for one in decided:
        groups.setdefault(tuple(one.row.names.get(name) for name in test.per), []).append(one.verdict)
    verdicts = {key: combine(group, test.require) for key, group in groups.items()}
    across = "any" if test.per and test.scope == "somewhere" else "all"

    from ladder.evidence import sentence

    grouped = verdicts if test.per else {}
    return Outcome(combine(list(verdicts.values()), across), sentence(test, decided, missing), grouped)


def _together(
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


def decide(claim: Claim, data: Tables) -> dict[str, object]:
    """The row of claims.csv for one claim."""
    from ladder.evidence import where_sentence

    outcomes = [carry_out(test, data) for test in claim.tests]
    together = _together(claim.tests, outcomes)
    verdicts = [outcome.verdict for outcome in outcomes]
    # Tests that hold at different values each hold together at none.
    verdicts += [combine(list(groups.values()), "any") for groups in together.values()]
    evidence = [outcome.evidence for outcome in outcomes]
    if claim.because:
        evidence.append(f"Counted beside it: {'; '.join(told(measure, data) for measure in claim.because)}")
    return {
        "id": claim.id,
        "source": claim.source,
        "statement": claim.statement,
        "verdict": combine(verdicts, "all"),
        "evidence": " ".join(f"{text.rstrip('.')}." for text in evidence),
        "where": "; ".join(where_sentence(*found) for found in together.items()) or None,
    }


def decide_all(claims: Sequence[Claim], data: Tables) -> pd.DataFrame:
    """claims.csv as a frame."""
    return tables.frame("claims", [decide(claim, data) for claim in claims])

"""Verdicts: the ledger's tests carried out over rows of the tables; `ladder.claims.ledger` says how they combine."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.claims.ledger import OTHER, Measure, Test
from ladder.model.errors import LadderError
from ladder.model.expressions import evaluate, words
from ladder.model.schemas import VERDICTS
from ladder.model.sweep import Sweep
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.statistics import Estimate

HOLDS, REFUTED, INCONCLUSIVE, NOT_MEASURED = VERDICTS
Groups = dict[tuple[Any, ...], str]  # verdicts by the values of the columns a test depends on


class MissingError(Exception):
    """A row lacks something an expression asks for."""


@dataclass(frozen=True)
class Row:
    """One row of a test: its columns and parameters by name, and its metrics.

    A parameter may be called like a size (the stencil's k), so sizes are kept beside the names.
    """

    names: Mapping[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)

    def metric(self, name: str) -> float:
        """A metric of the row's cell. Raises MissingError where it was not collected."""
        if name not in self.metrics:
            raise MissingError(f"metric {name}")
        return self.metrics[name]


class Tables:
    """The tables of a folder, which are about `sweeps`, as rows."""

    def __init__(self, folder: Path, sweeps: Mapping[str, Sweep]) -> None:
        self.sweeps = sweeps
        self.timings, self.notes = (tables.read(name, folder) for name in ("timings", "notes"))
        self.metrics = stats.metric_table(tables.read("metrics", folder))
        compiled = stats.records(tables.read("resources", folder))
        self.resources = {record["variant"]: _names(record) for record in compiled}

    def failed(self, sweep: str) -> list[Row]:
        """Cells of a sweep without a result."""
        bad = stats.failures(self.timings[self.timings["sweep"] == sweep])
        return [Row(_names(record)) for record in stats.records(bad)]

    def rows(self, sweep: str, kind: str, regime: str) -> list[Row]:
        """Rows of a sweep as names; of timings only those with status ok, of cells whatever became of them."""
        if kind == "resources":
            variants = self.sweeps[sweep].variants if sweep in self.sweeps else ()
            compiled = (self.resources.get(variant.id, {}) for variant in variants)
            return [Row(names) for names in compiled if names.get("status") == "ok"]
        timings = self.timings[(self.timings["sweep"] == sweep) & (self.timings["regime"] == regime)]
        rows = []
        for record in stats.records(timings if kind == "cells" else stats.ok_rows(timings, regime)):
            size = stats.size_of(record)
            metrics = self.metrics.get((sweep, record["variant"], tuple(size.items())), {})
            rows.append(Row(self.resources.get(record["variant"], {}) | _names(record), metrics, size))
        return rows

    def why_empty(self, sweep: str, missing: Counter[str]) -> str:
        """Why a test of this sweep has no row to go by."""
        if sweep not in self.sweeps:
            return f"the sweep {sweep} is not part of this run"
        notes = self.notes[self.notes["sweep"] == sweep]
        if missing:
            reasons = notes[notes["stage"] == "profile"]["reason"].dropna().unique()
            return f"no {', '.join(missing)}" + (f": {'; '.join(reasons[:2])}" if len(reasons) else "")
        if failed := self.failed(sweep):
            counts = Counter(row.names["status"] for row in failed).most_common()
            told = ", ".join(f"{count} {status}" for status, count in counts)
            return f"no cell of {sweep} that it selects gave a result ({told})"
        reasons = notes["reason"].dropna().unique()
        return f"{sweep} has no such row" + (f": {reasons[0]}" if len(reasons) else "")


def _names(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a row: its columns, and over them its parameters."""
    known = {name: value for name, value in record.items() if not pd.isna(value)}
    return known | stats.params_of(known.get("params"))


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
    groups: Groups = field(default_factory=dict)


def _evaluate(expression: Any, row: Row, other: Row | None = None) -> Any:
    names = dict(row.names)
    functions: dict[str, Callable[..., Any]] = {"metric": row.metric}
    if other is not None:
        names |= {OTHER + name: value for name, value in other.names.items()}
        functions[OTHER + "metric"] = other.metric
    for name in sorted(words(expression)[0] - set(names)):
        raise MissingError(name)
    return evaluate(expression, names, functions)


def _select(rows: Sequence[Row], kernel: str | None, where: str | None) -> list[Row]:
    """Rows of a kernel that `where` keeps; one that lacks what it asks for is not selected."""

    def kept(row: Row) -> bool:
        try:
            return kernel in (None, row.names["kernel"]) and (where is None or bool(_evaluate(where, row)))
        except MissingError:
            return False

    return [row for row in rows if kept(row)]


def _partner(measure: Measure, row: Row, candidates: Sequence[Row]) -> Row | None:
    if (against := measure.against) is None:
        return None

    def key(one: Row) -> list[Any]:
        return [one.names.get(name) for name in against.match]

    found = [one for one in candidates if one is not row and key(one) == key(row)]
    if not found:
        raise MissingError("partner row")
    if against.pick is not None:
        return max(found, key=lambda other: float(_evaluate(against.pick, other)))
    if len(found) > 1:
        raise LadderError(
            f"{measure.label}: {row.names['variant']} has {len(found)} partners; "
            "say more in against.match or against.where, or give against.pick"
        )
    return found[0]


def _each(measure: Measure, data: Tables, of: Callable[..., Any]) -> tuple[list[Any], Counter[str]]:
    """What `of` makes of every row and its partner, and what the others lacked."""
    rows = _select(data.rows(measure.sweep, measure.rows, measure.regime), measure.kernel, measure.where)
    candidates: list[Row] = []
    if (against := measure.against) is not None:
        others = data.rows(measure.partner_sweep, measure.rows, measure.regime)
        candidates = _select(others, against.kernel, against.where)
    found = []
    missing: Counter[str] = Counter()
    for row in rows:
        try:
            found.append(of(row, _partner(measure, row, candidates)))
        except MissingError as lack:
            missing[str(lack)] += 1
    return found, missing


def take(measure: Measure, data: Tables) -> tuple[list[tuple[Row, float]], str]:
    """The numbers of a measure, or why there are none; it decides nothing."""
    found, missing = _each(measure, data, lambda *pair: (pair[0], float(_evaluate(measure.value, *pair))))
    return found, "" if found else data.why_empty(measure.sweep, missing)


def judge(condition: str, value: Estimate, threshold: float, tolerance: float, noise: float) -> str:
    """Verdict of one value: its interval, widened by `noise` (a share of it), against the condition."""
    margin = abs(value.value) * noise
    low, high = min(value.low, value.value) - margin, max(value.high, value.value) + margin
    least = {"at_least": threshold, "at_most": -float("inf"), "equals": threshold - tolerance}[condition]
    most = {"at_least": float("inf"), "at_most": threshold, "equals": threshold + tolerance}[condition]
    if least <= low and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else INCONCLUSIVE


def combine(verdicts: Sequence[str], require: str) -> str:
    """Verdict of several: with `all` the worst, with `any` the best, inconclusive in between."""
    worst_first = [REFUTED, NOT_MEASURED, INCONCLUSIVE, HOLDS]
    return (min if require == "all" else max)(verdicts, key=worst_first.index)


def carry_out(test: Test, data: Tables) -> Outcome:
    """One test over the tables."""

    def decide(row: Row, other: Row | None) -> Decided:
        ends = (test.value if end is None else end for end in (test.value, test.low, test.high))
        value = Estimate(*(float(_evaluate(end, row, other)) for end in ends))
        threshold, tolerance = (float(_evaluate(one, row, other)) for one in (test.threshold, test.tolerance))
        verdict = judge(test.condition, value, threshold, tolerance, test.noise_percent / 100)
        return Decided(row, value, threshold, verdict)

    decided, missing = _each(test, data, decide)
    if not decided:
        return Outcome(NOT_MEASURED, why=data.why_empty(test.sweep, missing))
    if test.rows == "timings" and (without := _select(data.failed(test.sweep), test.kernel, test.where)):
        missing["a result"] = len(without)
    groups: Groups = {}
    for one in decided:
        key = tuple(one.row.names.get(name) for name in test.per)
        groups[key] = combine([groups.get(key, one.verdict), one.verdict], test.require)
    across = "any" if test.per and test.scope == "somewhere" else "all"
    verdict = combine(list(groups.values()), across)
    return Outcome(verdict, decided, missing, groups=groups if test.per else {})


def together(tests: Sequence[Test], outcomes: Sequence[Outcome]) -> dict[tuple[str, ...], Groups]:
    """By the columns tests depend on, for each of their values: whether all tests hold there.

    Tests that depend on no value count at each.
    """
    pairs = list(zip(tests, outcomes, strict=True))
    everywhere = [one.verdict for test, one in pairs if not test.per and one.verdict != NOT_MEASURED]
    found: dict[tuple[str, ...], Groups] = {}
    for test, outcome in pairs:
        groups = found.setdefault(tuple(test.per), {}) if outcome.groups else {}
        for key, verdict in outcome.groups.items():
            groups[key] = combine([verdict, groups[key]] if key in groups else [verdict, *everywhere], "all")
    return found

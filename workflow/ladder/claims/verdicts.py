"""Verdicts: the ledger's tests carried out over rows of the tables; `ladder.claims.ledger` says how they combine."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ladder.claims.ledger import OTHER, Against, Measure, Test
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
    """A row has no such name or metric."""


@dataclass(frozen=True)
class Row:
    """One row of a test: its columns and parameters by name, and its metrics; those of its partner as other_NAME.

    A parameter may be called like a size (the stencil's k), so sizes are kept beside the names. `params` are those in
    which the rows of a measure differ.
    """

    names: Mapping[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)
    size: Mapping[str, int] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)

    def evaluate(self, expression: Any) -> Any:
        """Value of an expression over the row. Raises MissingError for a name or a metric that it does not have."""

        def metric(name: str) -> float:
            if name not in self.metrics:
                raise MissingError(f"metric {name}")
            return self.metrics[name]

        for name in sorted(words(expression)[0] - set(self.names)):
            raise MissingError(name)
        functions = {"metric": metric, OTHER + "metric": lambda name: metric(OTHER + name)}
        return evaluate(expression, self.names, functions)

    def beside(self, other: "Row") -> "Row":
        """This row with a partner."""
        names = {OTHER + name: value for name, value in other.names.items()}
        metrics = {OTHER + name: value for name, value in other.metrics.items()}
        return Row({**self.names, **names}, {**self.metrics, **metrics}, self.size)


class Tables:
    """The tables of a folder, which are about `sweeps`, as rows."""

    def __init__(self, folder: Path, sweeps: Mapping[str, Sweep]) -> None:
        self.sweeps, self.notes = sweeps, tables.read("notes", folder)
        self.resources: dict[str, dict[str, dict[str, Any]]] = {}  # by sweep and variant
        for row in stats.records(tables.read("resources", folder)):
            self.resources.setdefault(row["sweep"], {})[row["variant"]] = _names(row)
        metrics = stats.metric_table(tables.read("metrics", folder))
        self.cells: dict[str, list[Row]] = {}
        for row in stats.records(tables.read("timings", folder)):
            names = self.resources.get(row["sweep"], {}).get(row["variant"], {}) | _names(row)
            known = Row(names, metrics.get(stats.cell_of(row), {}), stats.size_of(row))
            self.cells.setdefault(row["sweep"], []).append(known)

    def failed(self, sweep: str) -> list[Row]:
        """Cells of a sweep without a result."""
        return [row for row in self.cells.get(sweep, []) if row.names["status"] != "ok"]

    def rows(self, sweep: str, kind: str, regime: str) -> list[Row]:
        """Rows of a sweep: of timings only those with status ok, of cells whatever became of them."""
        if kind == "resources":
            rows = [Row(names) for names in self.resources.get(sweep, {}).values() if sweep in self.sweeps]
        else:
            rows = [row for row in self.cells.get(sweep, []) if row.names["regime"] == regime]
        return [row for row in rows if kind == "cells" or row.names["status"] == "ok"]

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
            statuses = ", ".join(f"{count} {status}" for status, count in counts)
            return f"no cell of {sweep} that it selects gave a result ({statuses})"
        reasons = notes["reason"].dropna().unique()
        return f"{sweep} has no such row" + (f": {reasons[0]}" if len(reasons) else "")


def _names(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a row: its columns, and over them its parameters."""
    known = {name: value for name, value in row.items() if not pd.isna(value)}
    return {**known, **json.loads(row["params"])}


@dataclass(frozen=True)
class Decided:
    """A row's value and verdict."""

    row: Row
    value: Estimate
    threshold: float
    verdict: str


@dataclass
class Outcome:
    """The result of a test: its rows, what is missing of others, or why there are none; the verdict of each group."""

    verdict: str
    decided: Sequence[Decided] = ()
    missing: Counter[str] = field(default_factory=Counter)
    why: str = ""
    groups: Groups = field(default_factory=dict)


def _select(rows: Sequence[Row], kernel: str | None, where: str | None) -> list[Row]:
    """Rows of a kernel that `where` keeps; a row without a name or metric in it is not selected."""
    kept = []
    for row in rows:
        with suppress(MissingError):
            if kernel in (None, row.names["kernel"]) and (where is None or row.evaluate(where)):
                kept.append(row)
    return kept


def _partner(measure: Measure, against: Against, row: Row, candidates: Sequence[Row]) -> Row:
    same = {name: row.names.get(name) for name in against.match}.items()
    found = [one for one in candidates if one is not row and all(one.names.get(n) == v for n, v in same)]
    if not found:
        raise MissingError("partner row")
    if against.pick is not None:
        return max(found, key=lambda other: float(other.evaluate(against.pick)))
    if len(found) > 1:
        raise LadderError(
            f"{measure.label}: {row.names['variant']} has {len(found)} partners; "
            "say more in against.match or against.where, or give against.pick"
        )
    return found[0]


def numbers(measure: Measure, data: Tables) -> tuple[list[tuple[Row, list[float]]], Counter[str]]:
    """Rows of a measure with its value, of a test also ends, threshold, tolerance; and what is missing of others."""
    wanted = [measure.value]
    if isinstance(measure, Test):
        ends = [measure.value if end is None else end for end in (measure.low, measure.high)]
        wanted += [*ends, measure.threshold, measure.tolerance]
    rows = _select(data.rows(measure.sweep, measure.rows, measure.regime), measure.kernel, measure.where)
    if against := measure.against:
        others = data.rows(against.sweep or measure.sweep, measure.rows, measure.regime)
        candidates = _select(others, against.kernel, against.where)
    found = []
    missing: Counter[str] = Counter()
    for row in rows:
        try:
            pair = row.beside(_partner(measure, against, row, candidates)) if against else row
            found.append((pair, [float(pair.evaluate(one)) for one in wanted]))
        except MissingError as error:
            missing[str(error)] += 1
    params = [json.loads(row.names["params"]) for row, _ in found]
    differing = stats.changing(params)
    own = [{name: given[name] for name in differing if name in given} for given in params]
    return [(replace(row, params=own[place]), values) for place, (row, values) in enumerate(found)], missing


def judge(condition: str, value: Estimate, threshold: float, tolerance: float, noise: float) -> str:
    """Verdict of one value: its interval, widened by `noise` (a share of it), against the condition."""
    margin = abs(value.value) * noise
    low, high = min(value.low, value.value) - margin, max(value.high, value.value) + margin
    bounds = {"at_least": (threshold, math.inf), "at_most": (-math.inf, threshold)}
    least, most = bounds.get(condition, (threshold - tolerance, threshold + tolerance))
    if least <= low and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else INCONCLUSIVE


def combine(verdicts: Sequence[str], require: str) -> str:
    """Verdict of several: with `all` the worst, with `any` the best, inconclusive in between."""
    worst_first = [REFUTED, NOT_MEASURED, INCONCLUSIVE, HOLDS]
    return (min if require == "all" else max)(verdicts, key=worst_first.index)


def carry_out(test: Test, data: Tables) -> Outcome:
    """One test over the tables."""
    found, missing = numbers(test, data)
    if not found:
        return Outcome(NOT_MEASURED, why=data.why_empty(test.sweep, missing))
    if test.rows == "timings" and (without := _select(data.failed(test.sweep), test.kernel, test.where)):
        missing["a result"] = len(without)
    decided, groups = [], dict[tuple[Any, ...], str]()
    for row, (*ends, threshold, tolerance) in found:
        value = Estimate(*ends)
        verdict = judge(test.condition, value, threshold, tolerance, test.noise_percent / 100)
        decided.append(Decided(row, value, threshold, verdict))
        key = tuple(row.names.get(name) for name in test.per)
        groups[key] = combine([groups.get(key, verdict), verdict], test.require)
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
        for key, verdict in outcome.groups.items():
            groups = found.setdefault(tuple(test.per), {})
            others = [groups[key]] if key in groups else everywhere
            groups[key] = combine([verdict, *others], "all")
    return found

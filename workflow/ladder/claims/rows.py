"""Rows of the tables as claims see them: columns, parameters and metrics by name."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from ladder.results import statistics as stats


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


@dataclass
class Tables:
    """The frames verdicts are drawn from; `variants` names the compiled variants of each sweep of the run."""

    timings: pd.DataFrame
    resources: pd.DataFrame
    metrics: pd.DataFrame
    notes: pd.DataFrame
    variants: Mapping[str, Collection[str]]

    def __post_init__(self) -> None:
        self._metrics = stats.metric_table(self.metrics)
        self._resources = {row["variant"]: _names(row) for row in stats.records(self.resources)}

    def failed(self, sweep: str) -> list[Row]:
        """Cells of a sweep without a result."""
        bad = stats.failures(self.timings[self.timings["sweep"] == sweep])
        return [Row(_names(record)) for record in stats.records(bad)]

    def rows(self, sweep: str, kind: str, regime: str) -> list[Row]:
        """Rows of a sweep as names; of timings only those with status ok, of cells whatever became of them."""
        if kind == "resources":
            compiled = (self._resources.get(name, {}) for name in self.variants.get(sweep, ()))
            return [Row(names) for names in compiled if names.get("status") == "ok"]
        timings = self.timings[(self.timings["sweep"] == sweep) & (self.timings["regime"] == regime)]
        rows = []
        for record in stats.records(timings if kind == "cells" else stats.ok_rows(timings, regime)):
            size = stats.size_of(record)
            metrics = self._metrics.get((sweep, record["variant"], tuple(size.items())), {})
            rows.append(Row(self._resources.get(record["variant"], {}) | _names(record), metrics, size))
        return rows

    def why_empty(self, sweep: str, missing: Counter[str]) -> str:
        """Why a test of this sweep has no row to go by."""
        if sweep not in self.variants:
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

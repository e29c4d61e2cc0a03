"""Rows of the tables as claims see them: columns, parameters and metrics by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.results.statistics import metric_table, params_of, records, size_of


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

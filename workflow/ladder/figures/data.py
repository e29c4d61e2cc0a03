"""What a figure is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.statistics import at_size, ok_rows, params_of, records, size_label, size_of
from ladder.sweeps import Figure, Sweep


class NoDataError(Exception):
    """A figure has nothing to show; the message says why."""


@dataclass(frozen=True)
class FigureData:
    """One figure's request and the frames of its sweep."""

    sweep: Sweep
    figure: Figure
    timings: pd.DataFrame
    resources: pd.DataFrame
    metrics: pd.DataFrame
    environment: Mapping[str, Any]

    @property
    def source(self) -> Mapping[str, Any]:
        """Environment of the run the timings come from."""
        published: Mapping[str, Any] | None = self.environment.get("published")
        return published or self.environment

    @property
    def gpu(self) -> Mapping[str, Any]:
        """The GPU the timings come from, as far as it is known."""
        return self.source.get("gpu") or {}

    @property
    def subtitle(self) -> str:
        """Device and date of the measurement."""
        name = self.gpu.get("name") or self.source.get("device") or "unknown device"
        date = str(self.source.get("started") or "")[:10]
        published = "published run, " if self.environment.get("timings_from") == "published" else ""
        return f"{name}, {published}{date}" if date else str(name)

    @property
    def size(self) -> dict[str, int]:
        """The size shown where a figure shows one: as asked, else the largest with a result."""
        if self.figure.at is not None:
            return dict(self.figure.at)
        sizes = [dict(size) for size in self.sweep.sizes]
        measured = [size for size in sizes if len(at_size(self.ok(), size))] or sizes
        return max(measured, key=lambda size: [float(value) for value in size.values()])

    @property
    def size_text(self) -> str:
        """Size as a title shows it."""
        fields = " = ".join(name.upper() for name in self.size) if "elements" not in self.size else "elements"
        if len(set(self.size.values())) == 1:
            # No-break spaces keep the size in one piece where a title is wrapped.
            return f"{fields} = {size_label(self.size)}".replace(" ", "\u00a0")
        return ", ".join(f"{name.upper()} = {value}" for name, value in self.size.items())

    def ok(self, regime: str = "cold") -> pd.DataFrame:
        """Rows with a result; everything else must never be drawn as one.

        Raises nothing; a sweep measured in one other regime only falls back on that regime.
        """
        rows = ok_rows(self.timings, regime)
        return (
            rows
            if len(rows) or regime in self.sweep.regimes
            else ok_rows(self.timings, self.sweep.regimes[0])
        )

    def some(self, rows: pd.DataFrame, what: str) -> pd.DataFrame:
        """`rows`, or NoDataError with the statuses that explain their absence."""
        if len(rows):
            return rows
        bad = self.timings[self.timings["status"] != "ok"]["status"].value_counts()
        counts = ", ".join(f"{count} {status}" for status, count in bad.items())
        raise NoDataError(f"no {what}" + (f" ({counts})" if counts else "; the sweep has not been measured"))

    def labels(self, rows: pd.DataFrame) -> dict[str, str]:
        """A short name for each variant of `rows`: its rung, else what tells it from the others."""
        found = {row["variant"]: row for row in records(rows)}
        kernels = {row["kernel"] for row in found.values()}
        params = {name: params_of(row["params"]) for name, row in found.items()}
        axes = {
            axis
            for name, given in params.items()
            for axis, value in given.items()
            for other, theirs in params.items()
            if found[other]["kernel"] == found[name]["kernel"] and theirs.get(axis) != value
        }
        labels = {}
        for name, row in found.items():
            differing = ", ".join(f"{axis}={value}" for axis, value in params[name].items() if axis in axes)
            plain = row["kernel"] if len(kernels) > 1 or not differing else ""
            label = row["rung"] if not pd.isna(row["rung"]) else f"{plain} {differing}".strip()
            labels[name] = label
        return labels


def along_sizes(data: FigureData) -> str:
    """The size column that changes from row to row: m, n or k where only that one does, else the first."""
    fields = data.sweep.problem.size_fields
    varying = [name for name in fields if len({size[name] for size in data.sweep.sizes}) > 1]
    return varying[0] if varying else fields[0]


def size_key(row: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """A hashable size of a row."""
    return tuple(size_of(row).items())

"""What a figure is drawn from."""

from dataclasses import dataclass

import pandas as pd

from ladder.model.sweep import Figure
from ladder.report.sweep_data import SweepData


class NoDataError(Exception):
    """A figure has nothing to show; the message says why."""


@dataclass(frozen=True)
class FigureData(SweepData):
    """One figure's request and the frames of its sweep."""

    figure: Figure

    @property
    def subtitle(self) -> str:
        """Device and date of the measurement."""
        name = self.gpu.get("name") or self.source.get("device") or "unknown device"
        date = str(self.source.get("started") or "")[:10]
        published = "published run, " if self.environment.get("timings_from") == "published" else ""
        return f"{name}, {published}{date}" if date else str(name)

    @property
    def size(self) -> dict[str, int]:
        """The size this figure shows: as asked, else the sweep's."""
        return dict(self.figure.size) if self.figure.size is not None else super().size

    def some(self, rows: pd.DataFrame, what: str = "") -> pd.DataFrame:
        """`rows`, or NoDataError with the statuses that explain their absence; they are a `what`, or a result."""
        if len(rows):
            return rows
        bad = self.timings[self.timings["status"] != "ok"]["status"].value_counts()
        counts = ", ".join(f"{count} {status}" for status, count in bad.items())
        why = f" ({counts})" if counts else "; the sweep has not been measured"
        raise NoDataError(f"no {what or f'result at {self.size_text}'}{why}")

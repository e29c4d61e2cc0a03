"""Errors by kind of inputs, also from the table that earlier releases published of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from ladder.model.problem import ERROR_INPUTS
from ladder.model.record import NO_NUMBER
from ladder.model.schemas import TableRow, columns
from ladder.results.statistics import cell_of, metric_table, records

EARLIER: Mapping[str, Mapping[str, str]] = {
    # Errors over |A||B|, both against fp64, by kind of inputs, all fp32; of a library there is no variant.
    "accuracy": columns(
        """gpu_uuid sweep variant rung dtype layout m:int n:int k:int inputs who max_error:float
        rms_error:float"""
    ),
}
"""Table -> its columns with their kinds."""

_PLACE = ("layout", "k", "inputs")


@dataclass(frozen=True)
class Errors:
    """The largest errors of a cell's kernel and of its reference with some inputs; None where that is no number."""

    row: TableRow
    inputs: str
    own: float
    reference: float | None

    @property
    def ratio(self) -> float | None:
        """The kernel's over the reference's."""
        return self.own / self.reference if self.reference else None


def errors_by_inputs(timings: pd.DataFrame, metrics: pd.DataFrame) -> list[Errors]:
    """Those of the cells in `timings` whose sweep asks for them.

    Columns of timings: those of a cell; of metrics as in `metric_table`.
    """
    known = metric_table(metrics[metrics["metric"].str.contains("max_error_")])
    rows = {cell: row for row in records(timings) if (cell := cell_of(row)) in known}
    return [
        Errors(row, kind, known[cell][f"max_error_{kind}"], other if other < NO_NUMBER else None)
        for cell, row in rows.items()
        for kind in ERROR_INPUTS
        if f"max_error_{kind}" in known[cell]
        and (other := known[cell].get(f"reference_max_error_{kind}")) is not None
    ]


def errors_over_cublas(frames: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, str, str, float]]:
    """Sweep, dtype, kind of inputs, and the largest error of a GEMM over that of cuBLAS, if any were measured.

    `frames` have timings and metrics, or accuracy.
    """
    timings = frames["timings"]
    beside = timings[timings["reference"].str.startswith("cublas", na=False) & timings["baseline"].isna()]
    every = errors_by_inputs(beside, frames["metrics"])
    found = [(one.row["sweep"], one.row["dtype"], one.inputs, one.ratio) for one in every if one.ratio]
    yield from found or _errors_of_accuracy(records(frames["accuracy"]))


def _errors_of_accuracy(rows: list[TableRow]) -> Iterator[tuple[str, str, str, float]]:
    known = {
        tuple(row[one] for one in _PLACE): row["max_error"]
        for row in rows
        if (row["who"], row["dtype"]) == ("cublas", "fp32")
    }
    for row in rows:
        base = known.get(tuple(row[one] for one in _PLACE))
        if row["who"] == "kernel" and base:
            yield row["sweep"], row["dtype"], row["inputs"], row["max_error"] / base

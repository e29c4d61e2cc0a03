"""Errors by kind of inputs and cells with beta = 1, also from two tables that earlier releases published of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from ladder.model.problem import ERROR_INPUTS
from ladder.model.schemas import columns
from ladder.results.statistics import cell_of, metric_table, records

Row = dict[str, Any]

EARLIER: Mapping[str, Mapping[str, str]] = {
    # Errors over |A||B|, both against fp64, by kind of inputs, all fp32; of a library there is no variant.
    "accuracy": columns(
        """gpu_uuid sweep variant rung dtype layout m:int n:int k:int inputs who max_error:float
        rms_error:float"""
    ),
    # Cold launches of a kernel and of a library in turns, with C = A B + beta C.
    "accumulation": columns(
        """gpu_uuid sweep variant rung dtype layout m:int n:int k:int beta:float reference algorithm clock samples:int
        median_us:float reference_median_us:float speedup:float speedup_low:float speedup_high:float"""
    ),
}
"""Table -> its columns with their kinds."""

_PLACE = ("layout", "k", "inputs")


def errors_over_cublas(frames: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, str, str, float]]:
    """Sweep, dtype, kind of inputs, and the largest error of a kernel over that of the library, if any were measured.

    `frames` have timings and metrics, or accuracy.
    """
    known, dtypes = metric_table(frames["metrics"]), {}
    for row in records(frames["timings"]):
        dtypes[cell_of(row)] = row["dtype"]
    found = [
        (cell[0], dtypes[cell], kind, of[f"max_error_{kind}"] / base)
        for cell, of in known.items()
        for kind in ERROR_INPUTS
        if (base := of.get(f"reference_max_error_{kind}")) and cell in dtypes
    ]
    yield from found or _errors_of_accuracy(records(frames["accuracy"]))


def _errors_of_accuracy(rows: list[Row]) -> Iterator[tuple[str, str, str, float]]:
    known = {
        tuple(row[one] for one in _PLACE): row["max_error"]
        for row in rows
        if (row["who"], row["dtype"]) == ("cublas", "fp32")
    }
    for row in rows:
        base = known.get(tuple(row[one] for one in _PLACE))
        if row["who"] == "kernel" and base:
            yield row["sweep"], row["dtype"], row["inputs"], row["max_error"] / base


def pairs_of_betas(frames: Mapping[str, pd.DataFrame]) -> list[tuple[Row, Row]]:
    """Rows of cells with beta = 0 and beta = 1, each over the faster library, from timings or from accumulation."""
    timings = frames["timings"]
    good = timings[(timings["status"] == "ok") & timings["baseline"].isna()]
    plain = {(*cell_of(row), row["regime"]): row for row in records(good[good["beta"].isna()])}
    added = [((*cell_of(row), row["regime"]), row) for row in records(good[good["beta"].notna()])]
    found = [(plain[cell], row) for cell, row in added if cell in plain]
    return found or _pairs_of_accumulation(records(frames["accumulation"]))


def _pairs_of_accumulation(rows: list[Row]) -> list[tuple[Row, Row]]:
    groups: dict[tuple[Any, ...], dict[float, Row]] = {}
    for row in rows:
        by_beta = groups.setdefault((row["variant"], row["dtype"], row["m"]), {})
        other = by_beta.setdefault(row["beta"], row)
        by_beta[row["beta"]] = min(other, row, key=lambda one: one["reference_median_us"])
    return [(by_beta[0.0], by_beta[1.0]) for by_beta in groups.values() if {*by_beta} == {0.0, 1.0}]

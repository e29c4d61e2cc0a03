"""Do ranges hold? Readings that are left out, against the ranges that the others give.

Functions take rows of `sessions.prepare_sessions`. A cell that several sweeps name counts once.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pandas import DataFrame

from ladder.model.schemas import TableRow
from ladder.results.prediction import ranges
from ladder.results.statistics import FEW


def against(held: DataFrame, others: DataFrame) -> DataFrame:
    """Readings of cells that the others read too, with `half_width` of the cell's range and how far they are `outside`.

    Both are logarithms; `outside` is 0 where the range holds the reading.
    """
    once = others.drop_duplicates(["cell", "session"])
    ends = ranges(once.assign(entry=once["cell"]))[["predicted_low", "predicted_high"]]
    readings = (
        held.drop_duplicates(["cell", "session"])
        .join(ends, on="cell")
        .dropna(subset="predicted_low")
    )
    low, high = readings["predicted_low"], readings["predicted_high"]
    outside = (readings["log"] - readings["log"].clip(low, high)).abs()
    return readings.assign(half_width=(high - low) / 2, outside=outside)


def left_out(rows: DataFrame, by: str) -> DataFrame:
    """`against` the others for each GPU (`by` gpu), or each kind of host (`by` host), in turn."""
    return pd.concat(
        [
            against(rows[rows[by] == value], rows[rows[by] != value])
            for value in rows[by].unique()
        ]
    )


def _parts(readings: DataFrame, by: str) -> Iterator[tuple[Any, DataFrame]]:
    """Readings all together, by kind of reference, by class (small ones pooled), and by what was left out."""
    yield "all", readings
    yield "kernel", readings[readings["kind"] == "kernel"]
    over_library = readings[readings["kind"] == "library"]
    yield "library, over 50 us", over_library[over_library["median_us"] > 50]
    cells = readings.groupby("class")["cell"].transform("nunique")
    yield from readings[cells >= FEW].groupby("class")
    yield f"classes of fewer than {FEW} cells", readings[cells < FEW]
    yield from readings.groupby(
        "gpu" if by == "gpu" else readings["host"].map("GPUs of the host: {:g}".format)
    )


def coverage(rows: DataFrame) -> list[TableRow]:
    """Rows of coverage.csv: how often readings that are left out fall into the ranges made without them.

    interval_score: the width, and 40 times the distance of what lies outside, in the mean (Winkler 1972; Gneiting &
    Raftery 2007).
    """
    table = []
    for by, name in (("gpu", "GPU"), ("host", "kind of host")):
        if rows[by].nunique() < 2:
            continue
        for part, readings in _parts(left_out(rows, by), by):
            if readings.empty:
                continue
            half_width, outside = readings["half_width"], readings["outside"]
            row = {
                "left_out": name,
                "part": str(part),
                "cells": readings["cell"].nunique(),
                "readings": len(readings),
                "covered": (outside == 0).mean(),
                "half_width": half_width.median(),
                "interval_score": (2 * half_width + 40 * outside).mean(),
            }
            table.append(row)
    return table

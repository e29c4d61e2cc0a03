"""Several devices side by side: how fast the same cells are on each, and where a claim's verdict differs."""

from collections.abc import Sequence
from statistics import geometric_mean

import pandas as pd
from pandas import DataFrame

from ladder.claims.ledger import overall
from ladder.claims.primitives import HOLDS, NOT_MEASURED
from ladder.model.folders import RunFolder
from ladder.model.schemas import Fields
from ladder.results.run_data import RunData
from ladder.results.statistics import CELL, against_references

_CELL = [*CELL, "taps", "reference"]


def _timed(data: RunData) -> DataFrame:
    """The cells of a run with a result. A variant's id, reference included, means the same kernel everywhere."""
    timings = against_references(data.frames["timings"])
    return timings.loc[timings["status"] == "ok", [*_CELL, "median_us", "speedup"]]


def _decided(data: RunData) -> "pd.Series[str]":
    """Claim -> its verdict, of those that were measured."""
    verdicts = overall(data.frames["claims"])
    return verdicts[verdicts != NOT_MEASURED]


def _mean(ratios: "pd.Series[float]") -> float | None:
    """Geometric mean; None of none."""
    return geometric_mean(ratios.dropna()) if ratios.notna().any() else None


def _row(name: str, here: RunData, there: RunData) -> Fields:
    """A device: its `cells` with a result, those in `common` with this run's, and `speed` and `speedup` over these."""
    cells, verdicts = _timed(there), _decided(there)
    common = _timed(here).merge(cells, on=_CELL, suffixes=("", "_there"))
    return {
        "name": name,
        "cells": len(cells),
        "common": len(common),
        "speed": _mean(common["median_us"] / common["median_us_there"]),
        "speedup": _mean(common["speedup_there"] / common["speedup"]),
        "hold": int((verdicts == HOLDS).sum()),
        "decided": len(verdicts),
    }


def side_by_side(
    data: RunData, others: Sequence[tuple[RunFolder, RunData]]
) -> Fields | None:
    """`rows`, the first this run's, and `differing` claims: the verdict on each device. None without others."""
    if not others:
        return None
    devices = {data.name: data}
    for folder, there in others:
        devices[label_of(folder) if there.name in devices else there.name] = there
    verdicts = DataFrame({name: _decided(run) for name, run in devices.items()})
    differing = verdicts[verdicts.nunique(axis=1) > 1]
    return {
        "rows": [_row(name, data, run) for name, run in devices.items()],
        "differing": {claim: row.dropna() for claim, row in differing.iterrows()},
    }


def label_of(folder: RunFolder) -> str:
    """RUN/DEVICE."""
    return "/".join(folder.root.parts[-2:])

"""Several devices side by side: how fast the same cells are on each, and where a claim's verdict differs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ladder.claims.ledger import overall
from ladder.claims.primitives import HOLDS, NOT_MEASURED
from ladder.model.folders import RunFolder
from ladder.model.schemas import SIZE_COLUMNS
from ladder.results.run_data import RunData
from ladder.results.statistics import against_references

_CELL = [
    "sweep",
    "variant",
    "dtype",
    "layout",
    *SIZE_COLUMNS,
    "taps",
    "regime",
    "reference",
]


def _mean(ratios: "pd.Series[Any]") -> float | None:
    """Geometric mean; None of none."""
    logs = np.log(ratios.dropna())
    return float(np.exp(logs.mean())) if len(logs) else None


def _row(
    name: str, own: pd.DataFrame, ok: pd.DataFrame, claims: pd.DataFrame
) -> dict[str, Any]:
    """A device: its `cells` with a result, those in `common` with `own`, and `speed` and `speedup` over these."""
    # A variant's id, reference included, means the same kernel everywhere.
    both = own[[*_CELL, "median_us", "speedup"]].merge(
        ok, on=_CELL, suffixes=("", "_there")
    )
    counts = overall(claims).value_counts()
    return {
        "name": name,
        "cells": len(ok),
        "common": len(both),
        "speed": _mean(both["median_us"] / both["median_us_there"]),
        "speedup": _mean(both["speedup_there"] / both["speedup"]),
        "hold": int(counts.get(HOLDS, 0)),
        "decided": int(counts.sum() - counts.get(NOT_MEASURED, 0)),
    }


def side_by_side(
    data: RunData, others: Sequence[tuple[RunFolder, RunData]]
) -> dict[str, Any] | None:
    """`rows`, the first this run's, and `differing` claims: by id the devices of each verdict. None without others."""
    if not others:
        return None
    devices = {data.name: data}
    for folder, there in others:
        devices[there.name if there.name not in devices else label_of(folder)] = there
    timings = {
        one: against_references(found.frames["timings"])
        for one, found in devices.items()
    }
    ok = {one: found[found["status"] == "ok"] for one, found in timings.items()}
    known = {one: found.frames["claims"] for one, found in devices.items()}
    verdicts: dict[str, dict[str, list[str]]] = {}
    for one, claims in known.items():
        for claim, verdict in overall(claims).items():
            if verdict != NOT_MEASURED:
                verdicts.setdefault(str(claim), {}).setdefault(verdict, []).append(one)
    return {
        "rows": [_row(one, ok[data.name], ok[one], known[one]) for one in devices],
        "differing": {claim: said for claim, said in verdicts.items() if len(said) > 1},
    }


def label_of(folder: RunFolder) -> str:
    """RUN/DEVICE."""
    return "/".join(folder.root.parts[-2:])

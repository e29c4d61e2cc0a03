"""Several devices side by side: how fast the same cells are on each, and where a claim's verdict differs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ladder.claims.ledger import overall
from ladder.claims.primitives import HOLDS, NOT_MEASURED
from ladder.model.folders import RunFolder
from ladder.model.schemas import SIZE_COLUMNS
from ladder.results import tables
from ladder.results.environment import read_environment
from ladder.results.statistics import against_references

_CELL = ["sweep", "variant", "dtype", "layout", *SIZE_COLUMNS, "taps", "regime", "reference"]


def _mean(ratios: "pd.Series[Any]") -> float | None:
    """Geometric mean; None of none."""
    logs = np.log(ratios.dropna())
    return float(np.exp(logs.mean())) if len(logs) else None


def _row(name: str, own: pd.DataFrame, ok: pd.DataFrame, claims: pd.DataFrame) -> dict[str, Any]:
    """A device: its `cells` with a result, those in `common` with `own`, and `speed` and `speedup` over these."""
    # A variant's id, reference included, means the same kernel everywhere.
    both = own[[*_CELL, "median_us", "speedup"]].merge(ok, on=_CELL, suffixes=("", "_there"))
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
    name: str, frames: Mapping[str, pd.DataFrame], others: Sequence[RunFolder]
) -> dict[str, Any] | None:
    """`rows`, the first this run's on the device `name`, and `differing` claims: by id the devices of each verdict.

    `frames` are the run's timings and claims. None without other devices.
    """
    if not others:
        return None
    known, devices = {name: frames["claims"]}, {name: frames["timings"]}
    for folder in others:
        about = read_environment(folder) if folder.environment.is_file() else {}
        gpu = ((about.get("published") or about).get("gpu") or {}).get("name") or folder.root.name
        label = gpu if gpu not in devices else "/".join(folder.root.parts[-2:])
        devices[label] = against_references(tables.read("timings", folder.tables, required=False))
        known[label] = tables.read("claims", folder.tables, required=False)
    ok = {one: found[found["status"] == "ok"] for one, found in devices.items()}
    verdicts: dict[str, dict[str, list[str]]] = {}
    for one, claims in known.items():
        for claim, verdict in overall(claims).items():
            if verdict != NOT_MEASURED:
                verdicts.setdefault(str(claim), {}).setdefault(verdict, []).append(one)
    return {
        "rows": [_row(one, ok[name], ok[one], known[one]) for one in devices],
        "differing": {claim: said for claim, said in verdicts.items() if len(said) > 1},
    }

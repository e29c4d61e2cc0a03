"""The tables of two runs side by side: what got faster or slower beyond noise, what appeared, what broke."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas import DataFrame

from ladder.results import tables
from ladder.results.published_records import public_uuid
from ladder.results.statistics import identifier, records

WITHIN_A_GPU, BETWEEN_GPUS = 0.005, 0.025
"""Shares within which speed-ups agree from session to session, on one GPU and between GPUs of a model.

Seen on H200s: of 1,496 cells measured on two cards 99 % agree within 2.45 %, 95 % within 1.8 %.
"""


@dataclass(frozen=True)
class Comparison:
    """What differs between two runs, A and B.

    `cells`: those with a speed-up over the same reference in both; columns speedup_a, speedup_b, `faster` (B over A, as
    a share: 0.02 is 2 % faster) and beyond_noise. `slower` and `faster`: those that are so beyond noise, the largest
    change first. `others`: names of cells that cannot be compared, by the reason.
    """

    margin: float
    cells: DataFrame
    slower: DataFrame
    faster: DataFrame
    others: Mapping[str, list[str]]


def gpus_of(sessions: DataFrame) -> set[str]:
    """The GPUs of sessions as they are published, "" for an unknown one. Columns: gpu_uuid."""
    return {public_uuid(uuid) for uuid in sessions["gpu_uuid"].fillna("")}


def margin_of(before: DataFrame, after: DataFrame) -> float:
    """The share within which speed-ups agree: the smaller one where both tables of sessions are of the same GPUs."""
    gpus = gpus_of(before)
    return WITHIN_A_GPU if gpus == gpus_of(after) and "" not in gpus else BETWEEN_GPUS


def compare(before: tables.Frames, after: tables.Frames) -> Comparison:
    """Compare two runs cell by cell; each has the tables `timings` and `sessions`.

    A change is beyond noise where the 95 % intervals within sessions do not overlap, and where it exceeds the share by
    which sessions differ.
    """
    margin = margin_of(before["sessions"], after["sessions"])
    speedups = _speedups(before["sessions"]), _speedups(after["sessions"])
    cells = _beside(*speedups).dropna().reset_index("reference")
    faster = cells["speedup_b"] / cells["speedup_a"] - 1
    is_below = cells["speedup_high_b"] < cells["speedup_low_a"]
    is_above = cells["speedup_low_b"] > cells["speedup_high_a"]
    cells = cells[["speedup_a", "speedup_b"]].assign(
        faster=faster, beyond_noise=(is_below | is_above) & (faster.abs() > margin)
    )
    beyond = cells[cells["beyond_noise"]].sort_values("faster")
    slower, gained = beyond[beyond["faster"] < 0], beyond[beyond["faster"] > 0][::-1]
    others = _incomparable(before["timings"], after["timings"], {*cells.index})
    return Comparison(margin, cells, slower, gained, others)


def _incomparable(
    before: DataFrame, after: DataFrame, compared: set[str]
) -> dict[str, list[str]]:
    """Names of cells by the reason why they have no speed-ups to compare."""
    columns = ["status", "reference"]
    cells = _beside(_by_cell(before)[columns], _by_cell(after)[columns]).fillna("")
    was, now = cells["status_a"], cells["status_b"]
    statuses = was + " -> " + now
    references = cells["reference_a"] + " -> " + cells["reference_b"]
    both = (was == "ok") & (now == "ok") & ~cells.index.isin(compared)
    return {
        "broken": _described(statuses[(was == "ok") & ~now.isin(["ok", ""])]),
        "repaired": _described(statuses[~was.isin(["ok", ""]) & (now == "ok")]),
        "over another library": _described(references[both]),
        "missing in B": [*cells.index[now == ""]],
        "new in B": [*cells.index[was == ""]],
    }


def _by_cell(rows: DataFrame) -> DataFrame:
    """Rows with the names of their cells as index."""
    return rows.assign(cell=[identifier(row) for row in records(rows)]).set_index(
        "cell"
    )


def _speedups(sessions: DataFrame) -> DataFrame:
    """Geometric means over the sessions of a cell with the same reference; index: cell and reference."""
    ends = ["speedup", "speedup_low", "speedup_high"]
    rows = _by_cell(sessions).set_index("reference", append=True)[ends].dropna()
    means = rows.apply(np.log).groupby(level=["cell", "reference"]).mean()
    return means.apply(np.exp)


def _beside(before: DataFrame, after: DataFrame) -> DataFrame:
    """Columns of both sides by their index, with _a and _b behind their names."""
    sides = ("_a", "_b")
    return before.merge(
        after, "outer", left_index=True, right_index=True, suffixes=sides
    )


def _described(cells: "pd.Series[str]") -> list[str]:
    return [f"{name}: {change}" for name, change in cells.items()]

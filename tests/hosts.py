"""What kinds of host add to a speed-up by class of cells, as the next source of `ladder/results/hosts.py`.

    PYTHONPATH=workflow python tests/hosts.py results/published/DEVICE/sessions.parquet [MORE.parquet …]

The files have the columns of sessions.csv. Of the rows that say nothing of what binds a cell, others of the cell do.
Prints the lines of a source: words of a class, what a kind of host adds, and how many cells were read on two kinds.
First by how long they take, then whatever that is. Classes of fewer cells are left to earlier sources.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from ladder.results import tables
from ladder.results.hosts import host_deviation
from ladder.results.prediction import (
    PRIOR_CELLS,
    between_hosts,
    counted_once,
    pairs_of,
    prepare_sessions,
)
from ladder.results.statistics import CELL


def deviations(sessions: pd.DataFrame) -> Iterator[tuple[str, float, int]]:
    """Words of a class, the standard deviation of log speed-ups that a kind of host adds, and of how many cells."""
    own = [name for name in CELL if name not in ("sweep", "baseline")]
    bounds = sessions.dropna(subset="bound").drop_duplicates(own)[[*own, "bound"]]
    bound = sessions[own].merge(bounds, "left", own)["bound"]
    found = counted_once(prepare_sessions(sessions.assign(bound=sessions["bound"].fillna(bound))))
    pairs, began = pairs_of(found), str(found["started"].min())
    words = pairs["class"].str.split(", ").str
    for names in (words[:3], words[:2]):
        of_words = between_hosts(pairs.assign(words=names.str.join(", ")), "words")
        for name, cells, variance in of_words.itertuples():
            if cells >= PRIOR_CELLS:
                before = host_deviation(str(name), began) ** 2
                total = (cells * variance + PRIOR_CELLS * before) / (cells + PRIOR_CELLS)
                yield str(name), total**0.5, int(cells)


def read(path: Path) -> pd.DataFrame:
    """Sessions with the columns of today."""
    found = pd.read_parquet(path)
    return found.reindex(columns=list(tables.SCHEMAS["sessions"])).astype(tables.frame("sessions", []).dtypes)


if __name__ == "__main__":
    every = pd.concat([read(Path(path)) for path in sys.argv[1:]], ignore_index=True)
    print(f"# {every['gpu_uuid'].nunique()} GPUs, until {every['started'].max()}")
    for name, deviation, cells in deviations(every):
        print(f'    "{name}": {deviation:.4f},  # {cells} cells')

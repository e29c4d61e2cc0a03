"""What a speed-up reads on another GPU of the model: the range of a cell, by quantiles.

A range is the mean of a cell's sessions plus and minus a half-width. All numbers here are logarithms of speed-ups. A
deviation is how far the mean of one GPU lies from the mean of the other GPUs that read the cell.

1. The class of the cell gives a first half-width: the 95 % quantile of the deviations in all its cells. A class with
   few deviations takes the quantile of all cells with its kind of reference, library or kernel.
2. The cell's own deviations are pooled with it, as squares. The class counts as two deviations: a few GPUs may agree
   by chance.
3. A cell that one GPU read has no deviations. Over a library it takes those of the library's time, which other cells
   show on other GPUs.
4. Hosts with the same number of GPUs are of one kind. Nobody knows what another kind does to a cell that was read on
   one kind alone. So the quantile of the class is added once more, as squares.

Only the two was chosen by the sessions in the tables. It puts 95.4 % of each GPU's readings into the ranges of the GPUs
before it, as on 37 H200s measured earlier; one puts 94.9 % there. `results/coverage.py` tests the rule.

The functions take rows of `sessions.prepare_sessions`.
"""

import numpy as np
import pandas as pd
from pandas import DataFrame

from ladder.results.statistics import FEW
from ladder.results.verdicts import NORMAL, SESSION

_CLASS = 2
"""How many deviations of a cell its class counts as."""


def deviations(rows: DataFrame) -> DataFrame:
    """How far each GPU is from the mean of the other GPUs of the cell: cell, gpu, deviation (not negative).

    A cell that one GPU read has no row.
    """
    means = rows.groupby(["cell", "gpu"], as_index=False)["log"].mean()
    cells = means.groupby("cell")["log"]
    means["count"] = cells.transform("size")
    means["apart"] = (means["log"] - cells.transform("mean")).abs()
    several: DataFrame = means[means["count"] > 1]
    # The mean of all GPUs holds the GPU itself, so the mean of the others is farther away.
    deviation = several["apart"] * several["count"] / (several["count"] - 1)
    return several[["cell", "gpu"]].assign(deviation=deviation)


def class_quantiles(rows: DataFrame) -> "pd.Series[float]":
    """The 95 % quantile of the deviations by class; NaN where no two GPUs read a cell with this kind of reference."""
    cells = rows.drop_duplicates("cell").set_index("cell")[["class", "kind"]]
    read = deviations(rows).join(cells, on="cell")
    of_class = read.groupby("class")["deviation"].quantile(0.95)
    many = read.groupby("class").size() >= FEW
    kinds = cells.drop_duplicates("class").set_index("class")["kind"]
    of_kind = kinds.map(read.groupby("kind")["deviation"].quantile(0.95))
    return of_class[many].reindex(kinds.index).fillna(of_kind).astype(float)


def _squares(read: DataFrame) -> DataFrame:
    """By cell the sum and the number (`sum`, `size`) of the squared deviations."""
    return (read["deviation"] ** 2).groupby(read["cell"]).agg(["sum", "size"])


def half_widths(rows: DataFrame) -> DataFrame:
    """By `cell` the half-width for another GPU: `alike` on the kinds of host that read it, `anywhere` on all kinds.

    NaN where no two GPUs read a cell with this kind of reference.
    """
    cells = rows.drop_duplicates("cell").set_index("cell")
    prior = cells["class"].map(class_quantiles(rows))
    times = rows.dropna(subset="library")
    log_us = np.log(times["reference_median_us"])
    times = times.assign(cell=times["library"], log=log_us)
    of_library = _squares(deviations(times)).reindex(cells["library"])
    read = _squares(deviations(rows)).reindex(cells.index)
    read = read.fillna(of_library.set_axis(cells.index)).fillna(0.0)
    of_class, of_cell = _CLASS * prior**2, NORMAL**2 * read["sum"]
    alike = ((of_class + of_cell) / (_CLASS + read["size"])) ** 0.5
    hosts = rows.groupby("cell")["host"].nunique()
    other_hosts = prior.where(hosts == 1, 0.0)
    return DataFrame({"alike": alike, "anywhere": np.hypot(alike, other_hosts)})


def ranges(rows: DataFrame) -> DataFrame:
    """By `entry` the mean, `speedup`, with its 95 % interval (`speedup_low`, `_high`), and the range (`predicted_low`).

    The mean of n GPUs is known better than a reading of one more, by the root of n. A single session adds the interval
    of its own launches. Where no two GPUs say how far they differ, sessions do, and there is no range.
    """
    entries = rows.drop_duplicates("entry").set_index("entry")
    readings = rows.groupby("entry")
    half = half_widths(rows).reindex(entries["cell"]).set_axis(entries.index)
    sessions = readings.size()
    of_sessions = NORMAL * entries["kind"].map(SESSION) / sessions**0.5
    of_mean = (half["alike"] / readings["gpu"].nunique() ** 0.5).fillna(of_sessions)
    measured = (of_mean**2 + entries["launches"].where(sessions == 1, 0.0) ** 2) ** 0.5
    predicted = half["anywhere"].clip(lower=measured)
    value = readings["log"].mean()
    return DataFrame(
        {
            "speedup": value,
            "speedup_low": value - measured,
            "speedup_high": value + measured,
            "predicted_low": value - predicted,
            "predicted_high": value + predicted,
        }
    )

"""How often sessions on GPUs of which nothing is published fell into the published ranges.

    PYTHONPATH=workflow python tests/unseen.py SESSIONS.parquet results/published/DEVICE results/unseen/DEVICE

SESSIONS has the columns of sessions.csv. Such sessions choose none of these ranges, which would else hold in them and
say nothing of the next GPU. Those of the publication after may.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from ladder.model.schemas import SIZE_COLUMNS
from ladder.results import tables
from ladder.results.prediction import SMALL, prepare_sessions

CELL = ["sweep", "variant", "baseline", "dtype", "layout", *SIZE_COLUMNS, "taps", "regime", "beta"]


def readings(sessions: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """Sessions of cells with a published range, with whether their speed-up is `covered` by it.

    A kernel against itself is none; neither is the session that chose a cell as one of the fastest, which reads too
    high by chance.
    """
    own = sessions[
        ~sessions["chose"].fillna(False).astype(bool) & (sessions["variant"] != sessions["reference"])
    ]
    ranges = timings.dropna(subset=["predicted_low", "predicted_high"])
    found = own.merge(ranges[[*CELL, "predicted_low", "predicted_high"]], on=CELL)
    return found.assign(covered=found["speedup"].between(found["predicted_low"], found["predicted_high"]))


def parts(found: pd.DataFrame, classes: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """All readings, those against libraries and those against kernels, those of each sweep and of each large class."""
    library = found["reference"].str.startswith("cublas")
    yield from (("all", found), ("library", found[library]), ("kernel", found[~library]))
    yield from found.groupby("sweep")
    for name, own in found.merge(classes, on=CELL).groupby("class"):
        if len(own.drop_duplicates(CELL)) >= SMALL:
            yield str(name), own


def unseen(sessions: pd.DataFrame, timings: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """The table `unseen`; a cell is of the class that its `published` sessions are of."""
    found = readings(sessions, timings)
    classes = prepare_sessions(published).drop_duplicates(CELL)[[*CELL, "class"]]
    rows: list[dict[str, Any]] = [
        {
            "part": name,
            "gpus": own["gpu_uuid"].nunique(),
            "cells": len(own.drop_duplicates(CELL)),
            "readings": len(own),
            "covered": own["covered"].mean(),
            "day": own["started"].max()[:10],
        }
        for name, own in parts(found, classes)
        if len(own)
    ]
    return tables.frame("unseen", rows)


def main(file: Path, published: Path, into: Path) -> None:
    """Write the table. Raises ValueError where a published session is of one of the GPUs."""
    sessions = tables.frame("sessions", pd.read_parquet(file).to_dict("records"))  # type: ignore[arg-type]
    seen = tables.read("sessions", published)
    known = {*seen["gpu_uuid"].dropna()} & {*sessions["gpu_uuid"]}
    if known:
        raise ValueError(f"{file}: sessions on {', '.join(sorted(known))} are published: they were seen")
    tables.write({"unseen": unseen(sessions, tables.read("timings", published), seen)}, into)
    (into / "unseen.parquet").unlink()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))

"""How often sessions on a GPU that was new fell into the ranges that had been printed before it.

    PYTHONPATH=workflow python tests/unseen.py results/published/DEVICE results/unseen/DEVICE

No range was made from these sessions: they had not been measured. git has the tables as they were.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from ladder.results import tables
from ladder.results.sessions import prepare_sessions
from ladder.results.statistics import CELL, FEW

WARM_CHANGED = "2026-11-30"
"""Since then warm chains are longer beside a slow side (version 2): ranges from before say nothing of such readings."""


def readings(sessions: pd.DataFrame, timings: pd.DataFrame) -> pd.DataFrame:
    """Sessions of cells with a published range, with whether their speed-up is `covered` by it.

    A kernel against itself is none; neither is the session that chose a cell as one of the fastest, which reads too
    high by chance.
    """
    own = sessions[
        ~sessions["chose"].fillna(False).astype(bool)
        & (sessions["variant"] != sessions["reference"])
    ]
    ranges = timings.dropna(subset=["predicted_low", "predicted_high"])
    found = own.merge(ranges[[*CELL, "predicted_low", "predicted_high"]], on=CELL)
    return found.assign(
        covered=found["speedup"].between(
            found["predicted_low"], found["predicted_high"]
        )
    )


def parts(
    found: pd.DataFrame, classes: pd.DataFrame
) -> Iterator[tuple[str, pd.DataFrame]]:
    """All readings, those against libraries and those against kernels; of each kind of host, sweep and large class."""
    library = found["reference"].str.startswith("cublas")
    yield from (
        ("all", found),
        ("library", found[library]),
        ("kernel", found[~library]),
    )
    for number, own in found.groupby("host_gpus"):
        yield f"GPUs of the host: {number:g}", own
    yield from found.groupby("sweep")
    for name, own in found.merge(classes, on=CELL).groupby("class"):
        if len(own.drop_duplicates(CELL)) >= FEW:
            yield str(name), own


def unseen(found: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """The table `unseen` of `readings`; a cell is of the class that its `published` sessions are of."""
    classes = prepare_sessions(published).drop_duplicates(CELL)[[*CELL, "class"]]
    rows: list[dict[str, Any]] = [
        {
            "part": name,
            "gpus": own["gpu_uuid"].nunique(),
            "cells": len(own.drop_duplicates(CELL)),
            "readings": len(own),
            "covered": own["covered"].mean(),
            "host_gpus": " or ".join(
                f"{number:g}" for number in sorted(own["host_gpus"].dropna().unique())
            ),
            "day": own["started"].max()[:10],
        }
        for name, own in parts(found, classes)
        if len(own)
    ]
    return tables.frame("unseen", rows)


def _as_of(commit: str, table: str, folder: Path) -> pd.DataFrame:
    """A table with the columns that it had in a commit."""
    command = ["git", "-C", str(folder), "show", f"{commit}:./{table}.parquet"]
    return pd.read_parquet(
        io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)
    )


def when_new(published: Path) -> pd.DataFrame:
    """`readings` of each GPU in the ranges of the last publication without it; of the first one's GPUs there are none.

    Raises ValueError where git knows no publication without one of the GPUs.
    """
    waiting = tables.read("sessions", published).dropna(subset="gpu_uuid")
    log = ["git", "-C", str(published), "log", "--format=%H", "--", "sessions.parquet"]
    found = list[pd.DataFrame]()
    for commit in subprocess.run(
        log, capture_output=True, check=True, text=True
    ).stdout.split():
        before = _as_of(commit, "sessions", published)
        if before["started"].max() < WARM_CHANGED:
            changed = waiting["regime"].eq("warm") & (waiting["started"] > WARM_CHANGED)
            waiting = waiting[~changed]
        known = waiting["gpu_uuid"].isin(before["gpu_uuid"].dropna())
        if not known.all():
            ranges = _as_of(commit, "timings", published).to_dict("records")
            found.append(readings(waiting[~known], tables.frame("timings", ranges)))  # type: ignore[arg-type]
            waiting = waiting[known]
        if waiting.empty:
            break
    if not found:
        raise ValueError(f"{published}: git knows no publication before its GPUs")
    return pd.concat(found, ignore_index=True)


def main(published: Path, into: Path) -> None:
    found = unseen(when_new(published), tables.read("sessions", published))
    tables.write({"unseen": found}, into)
    (into / "unseen.parquet").unlink()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))

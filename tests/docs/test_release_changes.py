"""What release notes say of two publications, from their tables alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
from checkout import PUBLISHED
from release_changes import changes


def rows_of(text: str, heading: str) -> list[list[str]]:
    """Cells of each row below a heading."""
    lines = text.partition(f"## {heading}\n")[2].partition("\n## ")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][
        1:
    ]


def test_what_moved_is_named_and_what_did_not_is_the_same(tmp_path: Path) -> None:
    for table in ("timings", "sessions", "claims"):
        shutil.copy(PUBLISHED.tables / f"{table}.parquet", tmp_path)
    text = changes(PUBLISHED.tables, tmp_path)
    assert rows_of(text, "Claims with another verdict") == []
    gemms = rows_of(text, "The fastest GEMMs")
    assert len(gemms) > 20
    assert all(before == now for _, before, _, now, _ in gemms)
    timings, claims = (
        pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("timings", "claims")
    )
    at_4096 = (
        timings["dtype"].eq("bf16")
        & timings["m"].eq(4096)
        & timings["regime"].eq("cold")
    )
    timings.loc[at_4096, "speedup"] *= 2
    timings.to_parquet(tmp_path / "timings.parquet")
    claims.loc[0, "verdict"] = "undecided"
    claims.to_parquet(tmp_path / "claims.parquet")
    text = changes(PUBLISHED.tables, tmp_path)
    moved = [row for row in rows_of(text, "The fastest GEMMs") if row[1] != row[3]]
    assert {row[0].split()[0] for row in moved} == {"bf16"}
    assert all(row[-1] == "the same, outside what was predicted" for row in moved)
    ((claim, part, _, now),) = rows_of(text, "Claims with another verdict")
    assert (claim, part, now) == (
        f"`{claims['id'][0]}`",
        claims["part"][0],
        "undecided",
    )

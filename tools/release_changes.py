"""What changed between two published folders, as markdown for release notes.

`python tools/release_changes.py BEFORE AFTER` reads their parquet tables and prints how many GPUs measured when, the
fastest GEMM of each type, layout, size and regime with what another GPU was predicted to read, and changed claims.
"""

import sys
from pathlib import Path

import pandas as pd

PLACE = ["dtype", "layout", "m", "regime"]
CLAIM = ["id", "part"]


def fastest_gemms(folder: Path) -> pd.DataFrame:
    """The row of timings with the least time in each place, of square GEMMs that were timed against a library."""
    rows = pd.read_parquet(folder / "timings.parquet")
    rows = rows[
        (rows["problem"] == "gemm") & (rows["status"] == "ok") & rows["baseline"].isna()
    ]
    rows = rows[
        (rows["m"] == rows["n"])
        & (rows["m"] == rows["k"])
        & rows["reference"].str.startswith("cublas")
    ]
    return (
        rows.sort_values("median_us")
        .drop_duplicates(PLACE)
        .sort_values(PLACE)
        .set_index(PLACE)
    )


def gemm_lines(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """A line a place: both speed-ups, and whether the new one lies where the old tables predicted another GPU."""
    both = before.join(after, suffixes=("_old", "_new"), how="inner")
    lines = [
        "| GEMM | before | predicted | now | the kernel |",
        "|---|---|---|---|---|",
    ]
    for place, row in both.iterrows():
        low, high, now = (
            row["predicted_low_old"],
            row["predicted_high_old"],
            row["speedup_new"],
        )
        kernel = f"{row['variant_new']} for {row['variant_old']}"
        if row["variant_new"] == row["variant_old"]:
            kernel = (
                "the same"
                if low <= now <= high
                else "the same, outside what was predicted"
            )
        name = " ".join(str(part) for part in place)
        lines.append(
            f"| {name} | {row['speedup_old']:.3f} | {low:.3f} to {high:.3f} | {now:.3f} | {kernel} |"
        )
    return lines


def claim_lines(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """A line a part of a claim whose verdict is another one, or that one of the two does not have."""
    both = before.set_index(CLAIM).join(
        after.set_index(CLAIM), suffixes=("_old", "_new"), how="outer"
    )
    lines = ["| claim | part | before | now |", "|---|---|---|---|"]
    for (claim, part), row in both.fillna("no claim").iterrows():
        if row["verdict_old"] != row["verdict_new"]:
            lines.append(
                f"| `{claim}` | {part} | {row['verdict_old']} | {row['verdict_new']} |"
            )
    return lines


def changes(before: Path, after: Path) -> str:
    lines = []
    for name, folder in (("before", before), ("now", after)):
        sessions = pd.read_parquet(folder / "sessions.parquet")
        days = sessions["started"].str[:10]
        lines.append(
            f"- {name}: {sessions['gpu_uuid'].nunique()} GPUs, {days.min()} to {days.max()}"
        )
    lines += [
        "",
        "## The fastest GEMMs",
        "",
        *gemm_lines(fastest_gemms(before), fastest_gemms(after)),
    ]
    claims = [
        pd.read_parquet(folder / "claims.parquet")[[*CLAIM, "verdict"]]
        for folder in (before, after)
    ]
    return "\n".join(
        [*lines, "", "## Claims with another verdict", "", *claim_lines(*claims)]
    )


if __name__ == "__main__":
    print(changes(Path(sys.argv[1]), Path(sys.argv[2])))

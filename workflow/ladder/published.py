"""Tables of a sweep where nothing is measured: the numbers of a published run, resources compiled here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from ladder import tables
from ladder.collect import CellKey, Collector, cell_key
from ladder.layout import RunFolder
from ladder.statistics import records
from ladder.sweeps import Sweep


def collect_published(sweep: Sweep, folder: RunFolder, published: Path) -> dict[str, pd.DataFrame]:
    """Tables of a sweep on a host without a GPU: numbers of the published run, resources compiled here.

    Rows of variants or sizes the sweep no longer has are dropped; cells new since then, and kernels whose
    source has changed since then, get a note.
    """
    collector = Collector(sweep, {})
    collector.resources(folder)
    frames = collector.frames()
    if not (published / "timings.csv").is_file():
        collector.note("published", sweep.name, f"no published measurements in {published.name}")
        return collector.frames()
    cells = {cell_key(cell.variant.id, cell.size): cell for cell in sweep.cells()}
    fields = sweep.problem.size_fields
    seen: set[CellKey] = set()
    for name in ("timings", "metrics"):
        rows = tables.read(name, published)
        rows = rows[(rows["sweep"] == sweep.name).fillna(False)]
        keys = [cell_key(row["variant"], {size: row[size] for size in fields}) for row in records(rows)]
        known = pd.Series([key in cells for key in keys], index=rows.index, dtype=bool)
        frames[name] = rows[known].reset_index(drop=True)
        if name == "timings":
            seen = set(keys)
    for name in ("notes", "jobs"):
        rows = tables.read(name, published)
        frames[name] = rows[(rows["sweep"] == sweep.name).fillna(False)].reset_index(drop=True)
    for key, cell in cells.items():
        if key not in seen:
            collector.note("published", f"{key[0]} at {dict(cell.size)}", "not in the published run")
    for kernel, count in _changed_sources(frames).items():
        collector.note("published", kernel, f"source differs from the published run's ({count} variants)")
    frames["notes"] = pd.concat([frames["notes"], collector.frames()["notes"]], ignore_index=True)
    return frames


def _changed_sources(frames: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Kernels with the number of variants whose published timings are those of another source."""
    here = frames["resources"].set_index("variant")["source_sha256"].to_dict()
    changed: dict[str, set[str]] = {}
    for row in records(frames["timings"]):
        sources = (row["source_sha256"], here.get(row["variant"]))
        if not any(pd.isna(source) for source in sources) and sources[0] != sources[1]:
            changed.setdefault(row["kernel"], set()).add(row["variant"])
    return {kernel: len(variants) for kernel, variants in changed.items()}

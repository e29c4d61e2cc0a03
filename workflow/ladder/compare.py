"""Two runs side by side: what got faster or slower beyond noise, what appeared, what broke."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ladder import tables
from ladder.collect import read_json
from ladder.errors import LadderError
from ladder.statistics import Estimate, estimate, records, size_label, size_of

NOISE, NOISE_ACROSS_GPUS = 0.005, 0.02
"""Shares by which undisturbed runs differ: on one GPU, and between two of one model (seen on H200s)."""

CellId = tuple[str, str, str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class Change:
    """One matched cell: how much faster B is than A, as a share (0.02 is 2 % faster)."""

    cell: CellId
    before: Estimate
    after: Estimate
    faster: float
    beyond_noise: bool


@dataclass(frozen=True)
class Comparison:
    """Everything that differs between two runs, and how many cells were matched."""

    changes: tuple[Change, ...]
    broken: tuple[tuple[CellId, str, str], ...]
    repaired: tuple[tuple[CellId, str, str], ...]
    missing: tuple[CellId, ...]
    new: tuple[CellId, ...]

    def faster(self) -> list[Change]:
        """Cells faster beyond noise, the greatest gain first."""
        found = [change for change in self.changes if change.beyond_noise and change.faster > 0]
        return sorted(found, key=lambda change: -change.faster)

    def slower(self) -> list[Change]:
        """Cells slower beyond noise, the greatest loss first."""
        found = [change for change in self.changes if change.beyond_noise and change.faster < 0]
        return sorted(found, key=lambda change: change.faster)

    def regressions(self, threshold: float) -> list[Change]:
        """Cells slower by more than `threshold` (a share), beyond noise."""
        return [change for change in self.slower() if -change.faster > threshold]


def tables_folder(given: Path) -> Path:
    """Where a run (results/RUN/DEVICE) or a published run keeps its tables. Raises LadderError elsewhere."""
    for folder in (given / "tables", given):
        if (folder / "timings.csv").is_file():
            return folder
    raise LadderError(f"{given}: no timings.csv in it or in its tables/; a run is results/RUN/DEVICE")


def _origin(folder: Path) -> dict[str, Any]:
    """The environment the timings of a run were made in; empty where it is unknown."""
    environment = read_json(folder / "environment.json") or {}
    origin: dict[str, Any] = environment.get("published") or environment
    return origin


def on_one_gpu(run_a: Path, run_b: Path) -> bool | None:
    """Whether two runs were measured on the same GPU, by its UUID; None where that is not known."""
    uuids = [(_origin(folder).get("gpu") or {}).get("uuid") for folder in (run_a, run_b)]
    return uuids[0] == uuids[1] if all(uuids) else None


def describe(folder: Path) -> str:
    """Device, date and tree of a run, as far as they are known."""
    source = _origin(folder)
    gpu, tree = source.get("gpu") or {}, source.get("tree") or {}
    parts = [gpu.get("name"), str(source.get("started") or "")[:10], str(tree.get("commit") or "")[:12]]
    return ", ".join(part for part in parts if part) or "unknown origin"


def _by_cell(timings: pd.DataFrame) -> dict[CellId, dict[str, Any]]:
    return {
        (row["sweep"], row["variant"], row["regime"], tuple(size_of(row).items())): row
        for row in records(timings)
    }


def _change(cell: CellId, before: dict[str, Any], after: dict[str, Any], by: str, margin: float) -> Change:
    column = "speedup" if by == "speedup" else "median_us"
    old, new = estimate(before, column), estimate(after, column)
    faster = new.value / old.value - 1 if by == "speedup" else old.value / new.value - 1
    apart = new.low > old.high or new.high < old.low
    return Change(cell, old, new, faster, apart and abs(faster) > margin)


def compare(
    before: pd.DataFrame, after: pd.DataFrame, by: str = "speedup", margin: float = NOISE
) -> Comparison:
    """Match the cells of two timings tables.

    A change is beyond noise where the 95 % intervals do not overlap and it exceeds `margin`, the share by
    which undisturbed runs differ.
    """
    old, new = _by_cell(before), _by_cell(after)
    changes, broken, repaired = [], [], []
    for cell in (cell for cell in old if cell in new):
        was, is_ = old[cell]["status"], new[cell]["status"]
        if was == "ok" and is_ == "ok":
            changes.append(_change(cell, old[cell], new[cell], by, margin))
        elif was == "ok":
            broken.append((cell, was, is_))
        elif is_ == "ok":
            repaired.append((cell, was, is_))
    return Comparison(
        tuple(changes),
        tuple(broken),
        tuple(repaired),
        tuple(cell for cell in old if cell not in new),
        tuple(cell for cell in new if cell not in old),
    )


def _name(cell: CellId) -> str:
    sweep, variant, regime, size = cell
    return f"{sweep}  {variant}  {size_label(dict(size))}  {regime}"


def _lines(title: str, changes: list[Change], unit: str, most: int) -> list[str]:
    if not changes:
        return []
    width = max(len(_name(change.cell)) for change in changes[:most])
    lines = [f"{title} ({len(changes)}):"]
    for change in changes[:most]:
        numbers = f"{change.before.value:.4g} -> {change.after.value:.4g}{unit}"
        lines.append(f"  {100 * change.faster:+7.2f} %  {_name(change.cell):<{width}}  {numbers}")
    return lines + _rest(len(changes), most)


def _rest(total: int, most: int) -> list[str]:
    return [f"  … and {total - most} more"] if total > most else []


def _listing(title: str, names: Iterable[str], most: int) -> list[str]:
    names = list(names)
    return (
        [f"{title} ({len(names)}):", *(f"  {name}" for name in names[:most]), *_rest(len(names), most)]
        if names
        else []
    )


def text(result: Comparison, by: str, most: int = 40) -> str:
    """What differs, for people to read."""
    unit = "x" if by == "speedup" else " us"
    same = len(result.changes) - len(result.faster()) - len(result.slower())
    lines = _lines("slower", result.slower(), unit, most)
    lines += _lines("faster", result.faster(), unit, most)
    lines += _listing("broken", (f"{_name(cell)}: {was} -> {now}" for cell, was, now in result.broken), most)
    lines += _listing(
        "repaired", (f"{_name(cell)}: {was} -> {now}" for cell, was, now in result.repaired), most
    )
    lines += _listing("missing in B", map(_name, result.missing), most)
    lines += _listing("new in B", map(_name, result.new), most)
    lines.append(f"{len(result.changes)} cells matched, {same} of them alike within noise")
    return "\n".join(lines)


def compare_folders(run_a: Path, run_b: Path, by: str, margin: float) -> Comparison:
    """Compare the timings of two run folders. Raises LadderError where one has no tables."""
    before = tables.read("timings", tables_folder(run_a))
    return compare(before, tables.read("timings", tables_folder(run_b)), by, margin)

"""Markdown as GitHub shows it: tables, intervals, text cut to length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ladder.results.statistics import Estimate, count

__all__ = ["cell", "count", "cut", "figure", "magnitude", "spread", "table"]

NOTHING = ""


def cell(text: Any) -> str:
    """Text that cannot break out of a table cell."""
    if text is None or (not isinstance(text, str) and pd.isna(text)):
        return NOTHING
    return " ".join(str(text).split()).replace("|", "\\|").replace("<", "&lt;")


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = ()) -> str:
    """A table; columns whose index is in `right` are flush right. Cells are given as finished markdown."""
    rule = ["---:" if index in right else "---" for index in range(len(header))]
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join(rule) + " |"]
    lines += ["| " + " | ".join(str(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def cut(text: str, length: int = 240) -> str:
    """Text on one line, its end replaced by an ellipsis where it is longer than `length`."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def figure(value: Any, digits: int = 4) -> str:
    """A number with `digits` significant digits and no exponent; empty where it is unknown."""
    if value is None or pd.isna(value):
        return NOTHING
    number = float(value)
    if number == 0:
        return "0"
    if abs(number) >= 10 ** (digits - 1):
        return f"{number:.0f}"
    if abs(number) < 1e-3:
        return f"{number:.{digits - 1}g}"
    return f"{number:#.{digits}g}".rstrip(".")


def magnitude(value: float, unit: str = "") -> str:
    """1.61 GB, 286 M: three significant digits and a prefix where the number is large."""
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{figure(value / limit, 3)} {prefix}{unit}"
    return f"{figure(value, 3)} {unit}".strip()


def spread(value: Estimate, digits: int = 4) -> str:
    """1.234 [1.230, 1.238]."""
    if not value.known:
        return NOTHING
    return f"{figure(value.value, digits)} [{figure(value.low, digits)}, {figure(value.high, digits)}]"

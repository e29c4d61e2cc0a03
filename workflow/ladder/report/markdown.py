"""Markdown as GitHub shows it: tables, intervals, text cut to length."""

import math
import re
import sys
from dataclasses import astuple
from typing import Any

from ladder.results.statistics import Estimate


def anchor(title: str) -> str:
    """The anchor GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def text(value: Any) -> str:
    """Text that shows as it is, in a sentence, a link or a cell of a table; empty where it is unknown."""
    marks = r"[\\`*\[\]|~$]|(?<!\w)_|_(?!\w)|&(?=#?\w+;)"
    return re.sub(marks, r"\\\g<0>", cut(value, sys.maxsize)).replace("<", "&lt;")


def code(value: Any) -> str:
    """A name as code, or as text where it has what would end that."""
    line = cut(value, sys.maxsize)
    return text(line) if {"`", "|"} & {*line} else f"`{line}`"


def unlinked(text: str) -> str:
    """Text with links replaced by their words."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def cut(text: Any, length: int = 240) -> str:
    """Text on one line, its end replaced by an ellipsis where it is longer than `length`; empty where it is unknown."""
    line = "" if text is None else " ".join(str(text).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def number(value: Any, digits: int = 4) -> str:
    """A number with `digits` significant digits and no exponent; empty where it is unknown."""
    if value is None or math.isnan(value):
        return ""
    value = float(value)
    if value == 0 or abs(value) >= 10 ** (digits - 1):
        return f"{value:.0f}"
    if abs(value) < 1e-3:
        return f"{value:.{digits - 1}g}"
    return f"{value:#.{digits}g}".rstrip(".")


def share(value: Any, form: str) -> str:
    """A share in percent, in a format such as .2f; empty where it is unknown."""
    return "" if value is None or math.isnan(value) else f"{100 * value:{form}} %"


def magnitude(value: float, unit: str = "") -> str:
    """1.61 GB, 286 M: three significant digits and a prefix where the number is large."""
    for limit, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{number(value / limit, 3)} {prefix}{unit}"
    return f"{number(value, 3)} {unit}".strip()


def spread(value: Estimate, digits: int = 4) -> str:
    """1.234 [1.230, 1.238], with a digit or two more where both ends would read alike; empty where it is unknown."""
    if not value.known:
        return ""
    for more in range(digits, digits + 3):
        if number(value.low, more) != number(value.high, more):
            digits = more
            break
    middle, low, high = (number(part, digits) for part in astuple(value))
    return f"{middle} [{low}, {high}]"

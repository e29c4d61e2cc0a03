"""Numbers as sentences have them, and tables under sentences.

Below a factor of two a speed-up is a difference in percent, above it a factor. A range is what another GPU of the model
is predicted to read.
"""

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ladder.report.markdown import number
from ladder.results.statistics import Estimate, from_to
from ladder.results.verdicts import FASTER, TIED, Gain

_FACTOR = 2.0

Line = Sequence[tuple[str, str]]
"""A row of a table: heads, the same in all rows, with its cells."""


class Table:
    """Rows under heads, all as markdown; a column that is empty in all rows is left out."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        columns = [
            column
            for column in zip(*lines, strict=True)
            if any(cell for _, cell in column)
        ]
        self.heads = [head for (head, _), *_ in columns]
        self.rows = list(
            zip(*([cell for _, cell in column] for column in columns), strict=True)
        )


def ends(of: Estimate) -> str:
    """0.98 to 1.02, once where both read alike; empty where it is unknown."""
    return from_to(number(of.low, 3), number(of.high, 3)) if of.known else ""


_LIBRARIES = {
    "cublas": "cuBLAS",
    "cublaslt": "cuBLASLt",
    "cublaslt_fast": "cuBLASLt with fast accumulation",
}


def proper(names: str) -> str:
    """Text with the libraries' own names in place of those of the tables."""
    return re.sub(
        r"\bcublas\w*", lambda found: _LIBRARIES.get(found[0], found[0]), names
    )


def sentence(words: str) -> str:
    """Words as a sentence begins: the first letter large, all others as they are."""
    return words[:1].upper() + words[1:]


def percent(share: float, signed: bool = False) -> str:
    """3 or 0.4: a share in percent, without the sign for percent."""
    value = 100 * share
    digits = 0 if abs(value) >= 0.95 or not value else 1
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-0.0", "0").replace(
        "+0.0", "0"
    )


def times(value: float) -> str:
    """12, 2.7."""
    return f"{value:.0f}" if value >= 9.95 else number(value, 2)


def amount(gain: Gain, ranged: bool = False) -> str:
    """What a step brings: 38 %, or 2.7 times; with the range of another GPU if `ranged`."""
    size = (
        f"{times(gain.value)} times"
        if gain.value >= _FACTOR
        else f"{percent(abs(gain.value - 1))} %"
    )
    return f"{size} ({elsewhere(gain)})" if ranged and gain.predicted.known else size


def change(gain: Gain) -> str:
    """+3 %, -30 %, 2.6 times: a speed-up where there is little room."""
    return change_by(gain.value)


def change_by(value: float) -> str:
    """The same of a speed-up alone."""
    factor = value >= _FACTOR or value <= 1 / _FACTOR
    return f"{times(value)} times" if factor else f"{percent(value - 1, signed=True)} %"


def elsewhere(gain: Gain) -> str:
    """1 to 5 %, 2.57 to 2.62 times: what another GPU is predicted to read; with signs where it may be a tie."""
    low, high = gain.predicted.low, gain.predicted.high
    if gain.value >= _FACTOR or gain.value <= 1 / _FACTOR:
        return from_to(number(low, 3), number(high, 3))
    ends = [percent(one - 1, signed=True) for one in (low, high)]
    if gain.verdict != TIED:
        ends = [one.lstrip("+-") for one in (ends if low > 1 else reversed(ends))]
    return f"{from_to(*ends)} %"


def ranged(gain: Gain) -> str:
    """1 to 5 %, 2.57 to 2.62 times: the range where there is one, else +3 % as measured."""
    if not gain.predicted.known:
        return change(gain)
    return elsewhere(gain) + ("" if change(gain).endswith("%") else " times")


_NARROW = 0.035  # share of the speed; the ends read 3 %


def mark(gain: Gain) -> str:
    """▲ faster, ▼ slower; = a tie, ~ undecided where the range that holds 1 is wide."""
    if gain.verdict == TIED:
        return "=" if _narrow(gain) else "~"
    return "▲" if gain.verdict == FASTER else "▼"


def _narrow(gain: Gain) -> bool:
    """Whether both ends of the range lie so near 1 that no difference matters."""
    return max(1 - gain.deciding.low, gain.deciding.high - 1) < _NARROW


def speed(gain: Gain, than: str = "", ranged: bool = True) -> str:
    """3 % faster than cuBLAS (1 to 5 %), 2.6 times as fast as cuBLAS, as fast as cuBLAS (-1 to +2 %).

    A tie whose range is wide is undecided: undecided against cuBLAS (-5 to +13 %).
    """
    value = gain.value
    if gain.verdict == TIED:
        word, before = ("as fast", "as") if _narrow(gain) else ("undecided", "against")
        said = f"{word} {before} {than}" if than else word
    elif value >= _FACTOR or value <= 1 / _FACTOR:
        said = f"{times(value) if value >= 1 else number(value, 2)} times as fast" + (
            f" as {than}" if than else ""
        )
    else:
        said = f"{percent(abs(value - 1))} % {'faster' if value > 1 else 'slower'}" + (
            f" than {than}" if than else ""
        )
    return f"{said} ({elsewhere(gain)})" if ranged and gain.predicted.known else said


def span(gains: Iterable[Gain], signed: bool = False) -> str:
    """13 to 66 %, of gains or of losses alike; -5 to +8 % where there are both, or if `signed`.

    Where one end is a factor of two or more: -5 % to 2.6 times.
    """
    values = sorted(gain.value for gain in gains)
    if values[-1] >= _FACTOR or values[0] <= 1 / _FACTOR:
        return from_to(change_by(values[0]), change_by(values[-1]))
    changes = [values[0] - 1, values[-1] - 1]
    signed = signed or changes[0] < 0 < changes[-1]
    sizes = changes if signed else sorted(map(abs, changes))
    return f"{from_to(percent(sizes[0], signed), percent(sizes[-1], signed))} %"


def shares(values: Iterable[float]) -> str:
    """9 to 14 %: the least and the greatest of some shares."""
    known = sorted(values)
    return f"{from_to(percent(known[0]), percent(known[-1]))} %"


def numbers(found: Sequence[Any]) -> str:
    """2048, 4096 and 8192; from three in a row on 2048 to 8192."""
    if len(found) > 2 and all(
        math.isclose(b / a, 2) for a, b in itertools.pairwise(found)
    ):
        return f"{found[0]} to {found[-1]}"
    return listing([str(one) for one in found])


def listing(names: Sequence[str]) -> str:
    """a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last

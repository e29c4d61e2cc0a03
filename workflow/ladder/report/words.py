"""Numbers as sentences have them.

Below a factor of two a speed-up is a difference in percent, above it a factor. A range is what another GPU of the model
is predicted to read.
"""

import itertools
import re
from collections.abc import Iterable, Sequence

from ladder.report.markdown import number
from ladder.results.statistics import Estimate, from_to
from ladder.results.verdicts import FASTER, SLOWER, TIED, Gain

_FACTOR = 2.0
_NARROW = 0.035  # share of the speed; the ends read 3 %
_LIBRARIES = {
    "cublas": "cuBLAS",
    "cublaslt": "cuBLASLt",
    "cublaslt_fast": "cuBLASLt with fast accumulation",
    "cublaslt_block": "cuBLASLt with block scales",
    "geam": "cuBLAS geam",
}


def proper(names: str) -> str:
    """Text with the libraries' own names in place of those of the tables."""
    return re.sub(
        r"\b(?:cublas\w*|geam)\b",
        lambda match: _LIBRARIES.get(match[0], match[0]),
        names,
    )


def sentence(words: str) -> str:
    """Words as a sentence begins: the first letter large, all others as they are."""
    return words[:1].upper() + words[1:]


def listing(names: Sequence[str]) -> str:
    """a, b and c."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def numbers(sizes: Sequence[int]) -> str:
    """2048, 4096 and 8192; from three on that double each time 2048 to 8192."""
    doubling = all(2 * size == after for size, after in itertools.pairwise(sizes))
    if doubling and len(sizes) > 2:
        return f"{sizes[0]} to {sizes[-1]}"
    return listing([str(size) for size in sizes])


def ends(of: Estimate) -> str:
    """0.98 to 1.02, once where both read alike; empty where it is unknown."""
    return from_to(number(of.low, 3), number(of.high, 3)) if of.known else ""


def percent(share: float, signed: bool = False) -> str:
    """3 or 0.4: a share in percent, without the sign for percent."""
    digits = 0 if abs(share) >= 0.0095 else 1
    text = f"{100 * share:{'+' if signed else ''}.{digits}f}"
    return text if float(text) else "0"


def shares(values: Iterable[float]) -> str:
    """9 to 14 %: the least and the greatest of some shares."""
    in_order = sorted(values)
    return f"{from_to(percent(in_order[0]), percent(in_order[-1]))} %"


def times(value: float) -> str:
    """12, 2.7."""
    return f"{value:.0f}" if value >= 9.95 else number(value, 2)


def _is_factor(value: float) -> bool:
    return value >= _FACTOR or value <= 1 / _FACTOR


def change_by(value: float) -> str:
    """+3 %, -30 %, 2.6 times: a speed-up where there is little room."""
    if _is_factor(value):
        return f"{times(value)} times"
    return f"{percent(value - 1, signed=True)} %"


def change(gain: Gain) -> str:
    """The same of a gain."""
    return change_by(gain.value)


def amount(gain: Gain) -> str:
    """What a step brings: 38 %, 2.7 times; -3 % where it costs."""
    return change(gain).removeprefix("+")


def elsewhere(gain: Gain) -> str:
    """1 to 5 %, 2.57 to 2.62: what another GPU is predicted to read; with signs where it may be a tie."""
    if _is_factor(gain.value):
        return ends(gain.predicted)
    changes = [gain.predicted.low - 1, gain.predicted.high - 1]
    if gain.verdict == SLOWER:
        changes = [-change for change in reversed(changes)]
    tied = gain.verdict == TIED
    return f"{from_to(*(percent(change, tied) for change in changes))} %"


def ranged(gain: Gain) -> str:
    """1 to 5 %, 2.57 to 2.62 times: the range where there is one, else +3 % as measured."""
    if not gain.predicted.known:
        return change(gain)
    return elsewhere(gain) + (" times" if _is_factor(gain.value) else "")


def _narrow(gain: Gain) -> bool:
    """Whether both ends of the range lie so near 1 that no difference matters."""
    return max(1 - gain.deciding.low, gain.deciding.high - 1) < _NARROW


def mark(gain: Gain) -> str:
    """▲ faster, ▼ slower; = a tie, ~ undecided where the range that holds 1 is wide."""
    if gain.verdict == TIED:
        return "=" if _narrow(gain) else "~"
    return "▲" if gain.verdict == FASTER else "▼"


def _compared(gain: Gain) -> tuple[str, str]:
    """What a gain is called, and the word that joins it to what it is over."""
    if gain.verdict == TIED:
        return ("as fast", "as") if _narrow(gain) else ("undecided", "against")
    if _is_factor(gain.value):
        return f"{times(gain.value)} times as fast", "as"
    direction = "faster" if gain.value > 1 else "slower"
    return f"{percent(abs(gain.value - 1))} % {direction}", "than"


def speed(gain: Gain, than: str = "", ranged: bool = True) -> str:
    """3 % faster than cuBLAS (1 to 5 %), 2.6 times as fast as cuBLAS, as fast as cuBLAS (-1 to +2 %).

    A tie whose range is wide is undecided: undecided against cuBLAS (-5 to +13 %).
    """
    said, joint = _compared(gain)
    if than:
        said = f"{said} {joint} {than}"
    return f"{said} ({elsewhere(gain)})" if ranged and gain.predicted.known else said


def span(gains: Iterable[Gain], signed: bool = False) -> str:
    """13 to 66 %, of gains; -5 to +8 % where there is a loss, or if `signed`.

    Where one end is a factor of two or more: -5 % to 2.6 times.
    """
    values = sorted(gain.value for gain in gains)
    least, most = values[0], values[-1]
    if _is_factor(least) or _is_factor(most):
        return from_to(change_by(least), change_by(most))
    signed = signed or least < 1
    ends_of = [percent(value - 1, signed) for value in (least, most)]
    return f"{from_to(*ends_of)} %"

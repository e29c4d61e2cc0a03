"""What claims are made of: verdicts over values of the tables' rows.

Verdict of a value: what another GPU is predicted to read (where nothing is predicted, the 95 % interval over what was
measured) lies inside the condition (holds), outside (refuted) or across its edge (undecided); where all of it lies
within the margin around the edge, no difference matters (equivalent). A count has no interval. Where more is better,
what lies above all that was said holds and more.

A part of a statement has the worst verdict of its values, or the best where the statement says "sometimes". Where it is
decided by size, and holds at some and is refuted at others, it holds only there. The more values a part has, the
likelier one of them is refuted by chance, or holds by chance where one is enough: these verdicts stand only where they
survive Holm's correction (Holm 1979).
"""

import math
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ladder.model.cell import size_label
from ladder.model.errors import refuse
from ladder.model.schemas import VERDICTS
from ladder.results import statistics as stats
from ladder.results.run_data import Rows, RunData, Value, Values
from ladder.results.statistics import Estimate, grouped
from ladder.results.verdicts import NO_GAIN, NORMAL, SESSION, Gain

HOLDS, MORE, ONLY_WHERE, REFUTED, EQUIVALENT, UNDECIDED, NOT_MEASURED = VERDICTS
_WORST_FIRST = (REFUTED, ONLY_WHERE, NOT_MEASURED, UNDECIDED, EQUIVALENT, HOLDS, MORE)
SLIGHT = 0.01  # "faster" and "slower" mean by more than this share, where a source says no more
WRITTEN = "fp32_as_written"  # the sweep of kernels as the texts have them
_MOST_LISTED = 8


@dataclass(frozen=True)
class Part:
    """One part of a statement, and what decided it.

    `decisive` is the value that is worst for the statement; it is unknown where nothing was measured.
    """

    label: str  # the quantity and its condition
    verdict: str
    where: str
    evidence: str
    values: Values
    decisive: Gain = NO_GAIN

    @property
    def span(self) -> str:
        return self.values.span

    def either(self, holds: str, otherwise: str) -> str:
        """The first where the part holds, for advice."""
        return holds if self.verdict in (HOLDS, MORE) else otherwise


Parts = Generator[Part | str, Any, str]
"""What the function of a claim yields: parts, which each `yield` gives back, and numbers beside them; and returns: one
sentence of advice."""


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday magnitudes."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def combine(verdicts: Iterable[str], some: bool = False) -> str:
    """Verdict of several: the worst, or with `some` the best."""
    return (max if some else min)(verdicts, key=_WORST_FIRST.index)


def combine_groups(verdicts: Iterable[str], some: bool = False) -> str:
    """Verdict over sizes or other values of a column: only where, if it holds at some and is refuted at others."""
    among = {*verdicts}
    if not some and REFUTED in among and among & {HOLDS, MORE}:
        return ONLY_WHERE
    return combine(among, some)


def verdict_of_value(
    value: Estimate, least: float, most: float, margin: float = 0.0, more: bool = False
) -> str:
    """Verdict of one value that is said to lie from `least` to `most`; `margin` is a share of the one edge there is.

    more: a value above `most` is better than said.
    """
    low, high = min(value.low, value.value), max(value.high, value.value)
    edge = least if math.isfinite(least) else most
    if margin and edge * (1 - margin) <= low and high <= edge * (1 + margin):
        return EQUIVALENT
    if more and least <= low:
        return MORE if low > most else HOLDS
    if least <= low and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else UNDECIDED


def _room(value: Estimate, least: float, most: float) -> float:
    """How many times its half-width the interval of a value may have before it reaches the nearer edge."""
    rooms = []
    for edge in filter(math.isfinite, (least, most)):
        end = value.high if edge > value.value else value.low
        half = abs(end - value.value)
        rooms.append(abs(value.value - edge) / half if half else math.inf)
    return min(rooms)


def corrected(
    values: Sequence[Estimate],
    verdicts: Sequence[str],
    least: float,
    most: float,
    some: bool = False,
) -> list[str]:
    """Verdicts of a part's values, of which those that decide the part alone have passed Holm's correction.

    That is `refuted`, and `holds` where `some` value is enough. The value farthest from the edge must lie beyond it at
    the level 0.05 / n, the next one at 0.05 / (n - 1), and so on; from the first that does not all are undecided.
    Counts have no chance in them, and are no values of these n.
    """
    # Slow to import, and the report imports claims for their words.
    from scipy.special import ndtri

    chance = [place for place, value in enumerate(values) if value.low < value.high]
    alone = HOLDS if some else REFUTED
    rooms = {
        place: _room(values[place], least, most)
        for place in chance
        if verdicts[place] == alone
    }
    passed = [*verdicts]
    hasty = sorted(rooms, key=rooms.__getitem__, reverse=True)
    for rank, place in enumerate(hasty):
        if NORMAL * rooms[place] < ndtri(1 - 0.025 / (len(chance) - rank)):
            for later in hasty[rank:]:
                passed[later] = UNDECIDED
            break
    return passed


def _condition(least: float, most: float, near: float | None, margin: float) -> str:
    """What a value must be, in words."""
    if near is not None:
        return number(near) + (f" within {number(margin)}" if margin else "")
    if math.isfinite(least) and math.isfinite(most):
        return f"from {number(least)} to {number(most)}"
    if math.isfinite(least):
        return f"at least {number(least)}"
    return f"at most {number(most)}"


def decide_part(
    label: str,
    values: Values,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    near: float | None = None,
    margin: float | None = None,
    per: str | None = None,
    some: bool = False,
    more: bool = False,
) -> Part:
    """A part of a statement: every value (with `some`, one) is at least `least`, at most `most`, or near a number.

    With both ends it lies between them; with `more`, what lies above `most` is better than said.

    `margin` is what counts as equal: a share of the edge, of `near` the distance from it. Without one it is, for values
    that were timed, what sessions on one GPU differ by. With `per` each value of that column has a verdict of its own.
    Raises LadderError where the margin is smaller than the noise of the values.
    """
    if margin is None:
        timed = near is None and any(value.timed for value in values.values)
        margin = max(SESSION["kernel"], values.noise) if timed else 0.0
    label = f"{label}: {_condition(least, most, near, margin)}"
    equal = margin
    if near is not None:
        least, most, equal = near - margin, near + margin, 0.0
    if margin and values.noise > margin:
        measured = f">= {number(values.noise)}, the noise that the precision of {values.sweep} leaves"
        raise refuse(f"part {label!r}", "margin", margin, measured)
    if not values.values:
        evidence = f"Not measured: {values.why or 'no pair of rows'}."
        return Part(label, NOT_MEASURED, "", evidence, values)
    decisive = [value.deciding for value in values.values]
    alone = [verdict_of_value(value, least, most, equal, more) for value in decisive]
    limit = math.inf if more else most
    verdicts = corrected(decisive, alone, least, limit, some)
    pairs = [*zip(values.values, verdicts, strict=True)]
    by_key = grouped(pairs, lambda pair: pair[0].row[per] if per else None)
    groups = {}
    for key, inside in by_key.items():
        groups[key] = combine((verdict for _, verdict in inside), some)
    whole = combine_groups(groups.values(), some)

    def room(value: Value) -> float:
        """How far inside the nearer limit a value lies."""
        return min(value.value - least, limit - value.value)

    worst = REFUTED if whole == ONLY_WHERE else whole
    deciding = [value for value, verdict in pairs if verdict == worst]
    where = []
    for verdict in VERDICTS if per else ():
        if keys := [str(key) for key in groups if groups[key] == verdict]:
            where.append(f"{verdict} at {per} = {', '.join(keys)}")
    evidence = _found(values, verdicts)
    if values.left_out:
        evidence += f"; left out because of missing data: {values.left_out}"
    least_good = (max if some else min)(deciding, key=room)
    return Part(label, whole, "; ".join(where), f"{evidence}.", values, least_good)


def is_faster(label: str, values: Values, per: str | None = None) -> Part:
    """A part that says that something is faster, and no more."""
    return decide_part(label, values, least=1, margin=SLIGHT, per=per)


def is_slower(label: str, values: Values, per: str | None = None) -> Part:
    """A part that says that something is not faster."""
    return decide_part(label, values, most=1, margin=SLIGHT, per=per)


def rung_over(
    data: RunData, sweep: str, rung: str, below: str, match: str = "n", **wanted: Any
) -> Values:
    """Speed of a rung over another one of its sweep, at each value of a field of the size."""
    rows, others = (data.timed(sweep, rung=name, **wanted) for name in (rung, below))
    return data.speeds_over(rows, others, match)


def lanes(data: RunData, lane_map: str, split: str, **wanted: Any) -> Rows:
    """Cells of lane maps, with tiles of 128 x 128 that are not interleaved."""
    given = {"lane_map": lane_map, "split": split, "bm": 128, "tiles": "padded"}
    return data.timed("fp32_lane_maps", "gemm_staged", **given | wanted)


def _shown(values: Values, ends: bool) -> list[str]:
    """Each value with its interval, what another GPU is predicted to show, and what sets its row apart."""
    rows = [value.row for value in values.values]
    params = [row.params for row in rows]
    differing = stats.changing(params)
    kernels = len({row["kernel"] for row in rows}) > 1
    sizes = len({str(row.size) for row in rows}) > 1
    shown = []
    for value, row, of_row in zip(values.values, rows, params, strict=True):
        estimate, elsewhere = value.measured, value.predicted
        text = f"{number(estimate.value)} {values.unit}".strip()
        if ends and estimate.low != estimate.high:
            text += f" [{number(estimate.low)}, {number(estimate.high)}]"
        if ends and elsewhere.known:
            text += f" (predicted on another GPU: {number(elsewhere.low)} to {number(elsewhere.high)})"
        place = [f"{name}={of_row[name]}" for name in differing if name in of_row]
        if kernels:
            place.insert(0, row["kernel"])
        if place and "rung" in row:  # which says more
            place = [row["rung"]]
        if sizes:
            place.append(f"size {size_label(row.size)}")
        shown.append(text + (f" at {', '.join(place)}" if place else ""))
    return shown


def _found(values: Values, verdicts: Sequence[str]) -> str:
    """All values where they are few, else the extremes and how many meet the condition."""
    shown = _shown(values, ends=True)
    numbers = [value.value for value in values.values]
    if len(numbers) > 1 and len(set(numbers)) == 1:
        return f"All {len(numbers)} are {number(numbers[0])} {values.unit}".strip()
    if len(numbers) <= 4:
        return ", ".join(shown)
    least, most = (shown[numbers.index(choose(numbers))] for choose in (min, max))
    counts = [f"{count} {verdict}" for verdict, count in Counter(verdicts).items()]
    return f"From {least} to {most}; of {len(numbers)}: {', '.join(counts)}"


def note(label: str, values: Values) -> str:
    """Numbers printed next to a claim as an explanation; they do not affect its verdict."""
    if not values.values:
        return f"{label}: not measured: {values.why}"
    shown = stats.listed(_shown(values, ends=False), _MOST_LISTED, ", ")
    return f"{label}: {shown}"

"""What claims are made of: rows of the tables, numbers with intervals, and verdicts over them.

Verdict of a value: what another GPU is predicted to read (where nothing is predicted, the 95 % interval over what was
measured) lies inside the condition (holds), outside (refuted) or across its edge (undecided); where all of it lies
within the margin around the edge, no difference matters (equivalent). A count has no interval. A part of a statement
has the worst verdict of its values, or the best where the statement says "sometimes". The more values a part has, the
likelier one of them is refuted by chance, or holds by chance where one is enough: these verdicts stand only where they
survive Holm's correction (Holm 1979).
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.special import ndtri

from ladder.model.cell import size_label
from ladder.model.errors import LadderError, refuse
from ladder.model.schemas import VERDICTS
from ladder.model.sweep import Sweep
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.statistics import UNKNOWN, Estimate
from ladder.results.verdicts import NORMAL, SESSION, deciding

HOLDS, REFUTED, EQUIVALENT, UNDECIDED, NOT_MEASURED = VERDICTS
_WORST_FIRST = (REFUTED, NOT_MEASURED, UNDECIDED, EQUIVALENT, HOLDS)
SLIGHT = 0.01  # "faster" and "slower" mean by more than this share, where a source says no more
TABLES = ("timings", "resources", "metrics", "notes")
_MOST_LISTED = 8


class Unmeasured(Exception):
    """A number that is not in the tables, and why."""


@dataclass(frozen=True)
class Row:
    """A row: its columns and over them its parameters, which may be called like a size; and its metrics."""

    names: Mapping[str, Any]
    size: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        if name not in self.names:
            raise Unmeasured(f"no {name}")
        return self.names[name]

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of its variant."""
        found: dict[str, Any] = json.loads(self["params"])
        return found

    def metric(self, name: str) -> float:
        if name not in self.metrics:
            raise Unmeasured(f"no metric {name}")
        return self.metrics[name]


@dataclass(frozen=True)
class Rows:
    """Rows of a sweep that a claim selects; where there are none, `why`."""

    sweep: str
    found: Sequence[Row]
    why: str


@dataclass(frozen=True)
class Value:
    """A number of a row with its 95 % interval, and the interval that another GPU is predicted to fall into.

    `timed`: the rows with the pairs that it is made from; none where it is a count.
    """

    row: Row
    estimate: Estimate
    predicted: Estimate = UNKNOWN
    timed: tuple[Row, ...] = ()

    @property
    def deciding(self) -> Estimate:
        """The number with the interval that the verdict follows."""
        return deciding(self.estimate, self.predicted)


@dataclass(frozen=True)
class Values:
    """A number of several rows; `noise` is the half-width, as a share, to which it is measured."""

    sweep: str
    found: Sequence[Value]
    why: str = ""
    noise: float = 0.0
    left_out: str = ""  # what rows without the number are without

    def best(self, per: str, choose: Callable[..., Value] = max) -> "Values":
        """For each value of a column or parameter the greatest number, or the least with `min`."""
        groups: dict[Any, list[Value]] = {}
        for value in self.found:
            groups.setdefault(value.row[per], []).append(value)
        found = [choose(group, key=lambda one: one.estimate.value) for group in groups.values()]
        return replace(self, found=found)

    def only(self, **wanted: Any) -> "Values":
        """Those of rows with these columns or parameters."""
        found = [
            one for one in self.found if all(_fits(one.row.names.get(name), w) for name, w in wanted.items())
        ]
        return replace(self, found=found, why=self.why or f"no such row of {self.sweep}")

    def over(self, other: "Values", *match: str) -> "Values":
        """Quotients of these and the values of `other` whose rows agree in the columns `match`: how a gain changes."""
        by_key = {tuple(one.row[name] for name in match): one for one in other.found}
        found = []
        for one in self.found:
            if divisor := by_key.get(tuple(one.row[name] for name in match)):
                quotient = stats.ratio(one.estimate, divisor.estimate)
                elsewhere = stats.ratio(one.predicted, divisor.predicted)
                found.append(Value(one.row, quotient, elsewhere, one.timed + divisor.timed))
        return Values(self.sweep, found, self.why or other.why, self.noise + other.noise)

    @property
    def least(self) -> float:
        """Like `most` and `span`, it raises Unmeasured where there is no value."""
        return min(self._numbers())

    @property
    def most(self) -> float:
        return max(self._numbers())

    def span(self, unit: str = "x") -> str:
        """1.03 to 1.66 x, for advice."""
        ends = dict.fromkeys(map(short, (self.least, self.most)))
        return f"{' to '.join(ends)} {unit}".strip()

    def _numbers(self) -> list[float]:
        if not self.found:
            raise Unmeasured(self.why or "no pair of rows")
        return [one.estimate.value for one in self.found]


@dataclass(frozen=True)
class Part:
    """One part of a statement, and what decided it: `decisive` is the value that is worst for the statement."""

    label: str  # the quantity and its condition
    verdict: str
    where: str
    evidence: str
    values: Values
    unit: str
    decisive: Value | None = None

    @property
    def span(self) -> str:
        return self.values.span(self.unit)

    def either(self, holds: str, otherwise: str) -> str:
        """The first where the part holds, for advice."""
        return holds if self.verdict == HOLDS else otherwise


Answer = Generator[Part | str, Any, str]
"""What the function of a claim yields: parts, which each `yield` gives back, and numbers beside them; and returns: one
sentence of advice."""


def number(value: float) -> str:
    """Four significant digits, no exponent for everyday magnitudes."""
    if value and not 1e-4 <= abs(value) < 1e7:
        return f"{value:.3e}"
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"


def short(value: float) -> str:
    """Three significant digits, of a whole number no more than it has."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:#.3g}"


def _fits(found: Any, wanted: Any) -> bool:
    if found is None or callable(wanted):
        return found is not None and bool(wanted(found))
    return found in wanted if isinstance(wanted, tuple) else bool(found == wanted)


def _names(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in row.items() if not pd.isna(value)}, **json.loads(row["params"])}


class Tables:
    """The tables of `sweeps`; no other is part of the run. `precision` is that of sweeps without one of their own."""

    def __init__(
        self, frames: Mapping[str, pd.DataFrame], sweeps: Mapping[str, Sweep], precision: float = 0.0
    ) -> None:
        self.sweeps, self.precision, self.notes = sweeps, precision, frames["notes"]
        self._resources = [Row(_names(row)) for row in stats.records(frames["resources"])]
        code = {(row["sweep"], row["variant"]): row.names for row in self._resources}
        metrics = stats.metric_table(frames["metrics"])
        self._cells = []
        timings = frames["timings"]
        for row in stats.records(timings[timings["beta"].isna()]):
            names = {**code.get((row["sweep"], row["variant"]), {}), **_names(row)}
            self._cells.append(Row(names, stats.size_of(row), metrics.get(stats.cell_of(row), {})))
        good = [row for row in self._cells if row["status"] == "ok" and row["sweep"] in sweeps]
        self._direct = {_pair(row, row["reference"]): row for row in good}
        self._cells = [row for row in self._cells if "baseline" not in row.names]

    @classmethod
    def read(cls, folder: Path, sweeps: Mapping[str, Sweep]) -> "Tables":
        frames = {name: tables.read(name, folder) for name in TABLES}
        return cls({**frames, "timings": tables.with_rungs(frames["timings"], sweeps.values())}, sweeps)

    def cells(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells in the sweep's first regime, unless another one is wanted: a value, a tuple of values or a function."""
        regime = self.sweeps[sweep].regimes[0] if sweep in self.sweeps else ""
        return self._select(self._cells, sweep, kernel, {"regime": regime, **wanted})

    def timed(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells with a result."""
        rows = self.cells(sweep, kernel, **wanted)
        good = [row for row in rows.found if row["status"] == "ok"]
        counts = Counter(row["status"] for row in rows.found).items()
        failed = f"no such cell of {sweep} gave a result ({', '.join(f'{n} {name}' for name, n in counts)})"
        return Rows(sweep, good, failed if rows.found and not good else rows.why)

    def compiled(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Variants that compiled, with what their machine code says; this needs no GPU."""
        return self._select(self._resources, sweep, kernel, {**wanted, "status": "ok"})

    def _select(self, rows: Iterable[Row], sweep: str, kernel: Any, wanted: Mapping[str, Any]) -> Rows:
        if sweep not in self.sweeps:
            return Rows(sweep, [], f"the sweep {sweep} is not part of this run")
        given = {"sweep": sweep, **({"kernel": kernel} if kernel else {}), **wanted}
        found = [row for row in rows if all(_fits(row.names.get(name), one) for name, one in given.items())]
        shown = [f"such {name}" if callable(one) else f"{name} = {one}" for name, one in given.items()]
        reasons = self.notes[self.notes["sweep"] == sweep]["reason"].dropna().unique()
        why = f"no row with {', '.join(shown)}" + (f": {reasons[0]}" if len(reasons) else "")
        return Rows(sweep, found, "" if found else why)

    def speeds(self, rows: Rows) -> Values:
        """Speed over the reference that the sweep names."""
        return Values(rows.sweep, [_speed(row, row) for row in rows.found], rows.why, self._noise(rows))

    def speeds_over(self, rows: Rows, others: Rows, *match: str) -> Values:
        """Speed over the row of `others` that agrees in the columns `match`.

        From direct pairs where any sweep has them, else the quotient of two speeds over one reference.
        """
        found = []
        for row, other in _partners(rows, others, match):
            direct = self._direct.get(_pair(row, other["variant"]))
            found.append(_speed(row, direct) if direct else _quotient(row, other))
        return Values(rows.sweep, found, rows.why or others.why, 2 * self._noise(rows))

    def numbers(self, rows: Rows, of: Callable[[Row], float]) -> Values:
        """A number of each row that has it."""
        return self._counted(rows, [(row, (row,)) for row in rows.found], of, rows.why)

    def ratios(self, rows: Rows, others: Rows, of: Callable[[Row], float], *match: str) -> Values:
        """A number of each row over that of the row of `others` that agrees in the columns `match`."""
        pairs = [(row, (row, other)) for row, other in _partners(rows, others, match)]
        return self._counted(rows, pairs, of, rows.why or others.why)

    def _counted(
        self, rows: Rows, given: Sequence[tuple[Row, tuple[Row, ...]]], of: Callable[[Row], float], why: str
    ) -> Values:
        found, missing = [], Counter[str]()
        for row, whose in given:
            try:
                value, *divisor = (float(of(one)) for one in whose)
                value /= math.prod(divisor) or math.nan
                found.append(Value(row, Estimate(value, value, value)))
            except Unmeasured as error:
                missing[str(error)] += 1
        if missing and not found:
            profile = self.notes[(self.notes["sweep"] == rows.sweep) & (self.notes["stage"] == "profile")]
            return Values(rows.sweep, [], ": ".join([*missing, *profile["reason"].dropna().unique()]))
        return Values(
            rows.sweep, found, why, left_out=", ".join(f"{name} ({n})" for name, n in missing.items())
        )

    def _noise(self, rows: Rows) -> float:
        return self.sweeps[rows.sweep].precision or self.precision if rows.sweep in self.sweeps else 0.0


def _pair(row: Row, reference: str) -> tuple[Any, ...]:
    return row["variant"], reference, row["regime"], *row.size.items()


def _speed(row: Row, timed: Row) -> Value:
    return Value(row, stats.estimate(timed.names, "speedup"), stats.predicted(timed.names), (timed,))


def _quotient(row: Row, other: Row) -> Value:
    known = row.names, other.names
    return Value(row, stats.speedup_over(*known), stats.predicted_over(*known), (row, other))


def _partners(rows: Rows, others: Rows, match: Sequence[str]) -> list[tuple[Row, Row]]:
    found = []
    for row in rows.found:
        same = [
            one for one in others.found if all(one.names.get(name) == row.names.get(name) for name in match)
        ]
        if len(same) > 1:
            shown = ", ".join(match)
            raise LadderError(
                f"{rows.sweep}: {row['variant']}: {len(same)} rows agree in {shown}; accepted: one"
            )
        found += [(row, other) for other in same]
    return found


def combine(verdicts: Iterable[str], some: bool = False) -> str:
    """Verdict of several: the worst, or with `some` the best."""
    return (max if some else min)(verdicts, key=_WORST_FIRST.index)


def judge(value: Estimate, least: float, most: float, margin: float = 0.0) -> str:
    """Verdict of one value that is said to lie from `least` to `most`; `margin` is a share of the one edge there is."""
    low, high = min(value.low, value.value), max(value.high, value.value)
    edge = least if math.isfinite(least) else most
    if margin and edge * (1 - margin) <= low and high <= edge * (1 + margin):
        return EQUIVALENT
    if least <= low and high <= most:
        return HOLDS
    return REFUTED if high < least or low > most else UNDECIDED


def _room(value: Estimate, least: float, most: float) -> float:
    """How many times its half-width the interval of a value may have before it reaches an edge; both sides count."""
    reaches = [
        (abs(value.value - edge), abs(end - value.value))
        for edge in (least, most)
        if math.isfinite(edge)
        for end in (value.high if edge > value.value else value.low,)
    ]
    return min(far / half if half else math.inf for far, half in reaches)


def corrected(
    values: Sequence[Estimate], verdicts: Sequence[str], least: float, most: float, some: bool = False
) -> list[str]:
    """Verdicts of a part's values, of which those that decide the part alone have passed Holm's correction.

    That is `refuted`, and `holds` where `some` value is enough. The value farthest from the edge must lie beyond it at
    the level 0.05 / n, the next one at 0.05 / (n - 1), and so on; from the first that does not all are undecided. A
    value that is refuted lies beyond one edge only. Counts have no chance in them, and are no values of these n.
    """
    alone, found = HOLDS if some else REFUTED, [*verdicts]
    chance = [place for place, value in enumerate(values) if value.low < value.high]
    edges = dict.fromkeys(chance, (least, most))
    if alone == REFUTED:
        for place in chance:
            edges[place] = (least, math.inf) if values[place].value < least else (-math.inf, most)
    hasty = [place for place in chance if found[place] == alone]
    ranked = sorted(hasty, key=lambda place: -_room(values[place], *edges[place]))
    for rank, place in enumerate(ranked):
        wanted = float(ndtri(1 - 0.025 / (len(chance) - rank)))
        if NORMAL * _room(values[place], *edges[place]) < wanted:
            for later in ranked[rank:]:
                found[later] = UNDECIDED
            break
    return found


def decide(
    label: str,
    values: Values,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    near: float | None = None,
    margin: float | None = None,
    per: str | None = None,
    some: bool = False,
    unit: str = "x",
) -> Part:
    """A part of a statement: every value (with `some`, one) is at least `least`, at most `most`, or near a number.

    `margin` is what counts as equal: a share of the edge, of `near` the distance from it. Without one it is, for values
    that were timed, what sessions on one GPU differ by. With `per` each value of that column has a verdict of its own.
    Raises LadderError where the margin is smaller than the noise of the values.
    """
    if margin is None:
        timed = near is None and any(one.timed for one in values.found)
        margin = max(SESSION["kernel"], values.noise) if timed else 0.0
    said = f"at least {number(least)}" if math.isfinite(least) else f"at most {number(most)}"
    if near is not None:
        least, most = near - margin, near + margin
        said = f"{number(near)} within {number(margin)}" if margin else number(near)
    label = f"{label}: {said}"
    if margin and values.noise > margin:
        measured = f">= {number(values.noise)}, the noise that the precision of {values.sweep} leaves"
        raise refuse(f"part {label!r}", "margin", margin, measured)
    if not values.found:
        return Part(
            label, NOT_MEASURED, "", f"Not measured: {values.why or 'no pair of rows'}.", values, unit
        )
    equal = margin if near is None else 0.0
    decisive = [one.deciding for one in values.found]
    alone = [judge(value, least, most, equal) for value in decisive]
    verdicts = corrected(decisive, alone, least, most, some)
    groups: dict[Any, str] = {}
    for one, own in zip(values.found, verdicts, strict=True):
        key = one.row[per] if per else None
        groups[key] = combine([groups.get(key, own), own], some)
    verdict = combine(groups.values(), some)

    def favour(value: Value) -> float:
        found = value.estimate.value
        return -abs(found - near) if near is not None else found if math.isfinite(least) else -found

    deciding = [one for one, own in zip(values.found, verdicts, strict=True) if own == verdict]
    shown = [(own, [str(key) for key in groups if groups[key] == own]) for own in VERDICTS]
    where = "; ".join(f"{own} at {per} = {', '.join(keys)}" for own, keys in shown if per and keys)
    evidence = _found(values, verdicts, unit)
    evidence += f"; left out because of missing data: {values.left_out}." if values.left_out else "."
    return Part(label, verdict, where, evidence, values, unit, (max if some else min)(deciding, key=favour))


def _shown(values: Values, unit: str, ends: bool) -> list[str]:
    """Each value with its interval, what another GPU is predicted to show, and what sets its row apart."""
    rows = [one.row for one in values.found]
    params = [json.loads(row["params"]) for row in rows]
    differing = stats.changing(params)
    kernels, sizes = len({row["kernel"] for row in rows}) > 1, len({str(row.size) for row in rows}) > 1
    found = []
    for one, own in zip(values.found, params, strict=True):
        estimate = one.estimate
        text = f"{number(estimate.value)} {unit}".strip()
        if ends and estimate.low != estimate.high:
            text += f" [{number(estimate.low)}, {number(estimate.high)}]"
        if ends and one.predicted.known:
            text += (
                f" (predicted on another GPU: {number(one.predicted.low)} to {number(one.predicted.high)})"
            )
        place = [one.row["kernel"]] * kernels + [f"{name}={own[name]}" for name in differing if name in own]
        place = [one.row["rung"]] if place and "rung" in one.row.names else place  # which says more
        place += [f"size {size_label(one.row.size)}"] * sizes
        found.append(text + (f" at {', '.join(place)}" if place else ""))
    return found


def _found(values: Values, verdicts: Sequence[str], unit: str) -> str:
    """All values where they are few, else the extremes and how many meet the condition."""
    shown, found = _shown(values, unit, ends=True), [one.estimate.value for one in values.found]
    if len(found) > 1 and len(set(found)) == 1:
        return f"All {len(found)} are {number(found[0])} {unit}".strip()
    if len(found) <= 4:
        return ", ".join(shown)
    least, most = (shown[found.index(choose(found))] for choose in (min, max))
    counts = ", ".join(f"{n} {verdict}" for verdict, n in Counter(verdicts).items())
    return f"From {least} to {most}; of {len(found)}: {counts}"


def beside(label: str, values: Values, unit: str = "") -> str:
    """Numbers printed next to a claim as an explanation; they do not affect its verdict."""
    if not values.found:
        return f"{label}: not measured: {values.why}"
    return f"{label}: {stats.listed(_shown(values, unit, ends=False), _MOST_LISTED, ', ')}"

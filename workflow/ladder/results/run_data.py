"""The tables of a run as claims, answers, figures and pages read them: sweep by sweep, and row by row.

`RunData` selects rows; a number of a row is a `Gain`, or a `Value`, which knows its row. What is not in the tables has
a reason: `Rows` and `Values` carry it, `RunData.rows` and a row's missing number raise it as `Unmeasured`.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import geometric_mean
from typing import Any, TypeVar

import pandas as pd

from ladder.model.errors import LadderError
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.sweep import Sweep
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.environment import read_environment
from ladder.results.statistics import UNKNOWN, Estimate
from ladder.results.sweep_data import Origin, SweepData, of_sweep, plain
from ladder.results.verdicts import Gain, gain, gain_over

Item = TypeVar("Item")
_REQUIRED = ("timings", "resources", "metrics", "notes", "jobs")
_OPTIONAL = (
    "sessions",
    "claims",
    "components",
    "coverage",
    "clock_nvbench",
    "zeros",
    "unseen",
)


class Unmeasured(Exception):
    """A number that is not in the tables, and why."""


class Row(dict[str, Any]):
    """A row: its columns and over them its parameters, which may be called like a size; beside these its metrics.

    What a row does not have raises Unmeasured.
    """

    def __init__(
        self,
        names: Mapping[str, Any],
        size: Mapping[str, int] | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(names)
        self.size, self.metrics = size or {}, metrics or {}

    def __missing__(self, name: str) -> Any:
        raise Unmeasured(f"its {name} is not recorded")

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of its variant."""
        found: dict[str, Any] = json.loads(self["params"])
        return found

    def metric(self, name: str) -> float:
        if name not in self.metrics:
            raise Unmeasured(f"the metric {name} is not recorded")
        return self.metrics[name]


@dataclass(frozen=True)
class Rows:
    """Rows of a sweep that were selected; where there are none, `why`."""

    sweep: str
    found: Sequence[Row]
    why: str


@dataclass(frozen=True)
class Value(Gain):
    """A number of a row. `timed`: the rows with the pairs that it is made from; none where it is a count."""

    row: Row = field(kw_only=True)
    timed: tuple[Row, ...] = field(default=(), kw_only=True)


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
        groups = grouped(self.found, lambda one: one.row[per], ordered=False)
        return replace(self, found=[choose(own, key=lambda one: one.value) for own in groups.values()])

    def only(self, **wanted: Any) -> "Values":
        """Those of rows with these columns or parameters."""
        found = [one for one in self.found if _fits(one.row, wanted)]
        return replace(self, found=found, why=self.why or f"no such row of {self.sweep}")

    def over(self, other: "Values", *match: str) -> "Values":
        """Quotients of these and the values of `other` whose rows agree in the columns `match`: how a gain changes."""
        by_key = {tuple(one.row[name] for name in match): one for one in other.found}
        found = []
        for one in self.found:
            if divisor := by_key.get(tuple(one.row[name] for name in match)):
                gain = Gain.over(one, divisor)
                timed = one.timed + divisor.timed
                found.append(Value(gain.measured, gain.predicted, row=one.row, timed=timed))
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
        return f"{stats.from_to(short(self.least), short(self.most))} {unit}".strip()

    def _numbers(self) -> list[float]:
        if not self.found:
            raise Unmeasured(self.why or "no pair of rows")
        return [one.value for one in self.found]


def short(value: float) -> str:
    """Three significant digits, of a whole number no more than it has."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:#.3g}"


def _fits(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Whether a row has all that is wanted: of a column or parameter a value, one of a tuple, what a function takes."""

    def fits(found: Any, one: Any) -> bool:
        if found is None or callable(one):
            return found is not None and bool(one(found))
        return found in one if isinstance(one, tuple) else bool(found == one)

    return all(fits(row.get(name), one) for name, one in wanted.items())


def mean(rows: Sequence[Mapping[str, Any]]) -> Gain:
    """The geometric mean of speed-ups; its intervals are those of the ends, which are wide."""
    gains = [gain(row) for row in rows]
    return Gain(_mean([one.measured for one in gains]), _mean([one.predicted for one in gains]))


def _mean(found: Sequence[Estimate]) -> Estimate:
    if not all(one.known for one in found):
        return UNKNOWN
    return Estimate(*map(geometric_mean, zip(*map(astuple, found), strict=True)))


def grouped(items: Iterable[Item], of: Callable[[Item], Any], ordered: bool = True) -> dict[Any, list[Item]]:
    """Items by a key, in its order if `ordered`."""
    found = defaultdict(list)
    for item in items:
        found[of(item)].append(item)
    return {key: found[key] for key in (sorted(found) if ordered else found)}


def best(rows: Sequence[Row]) -> Row:
    """The fastest over one reference; where some were measured again after they had been chosen, one of those."""
    again = [row for row in rows if row.get("fresh") is True]
    return max(again or rows, key=lambda row: row["speedup"])


def read_frames(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables in a folder by name. Raises LadderError where one that every run has is missing."""
    found = {name: tables.read(name, folder) for name in _REQUIRED}
    return found | {name: tables.read(name, folder, required=False) for name in _OPTIONAL}


def _names(row: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: value for name, value in row.items() if value is not None}
    return {**known, **json.loads(row["params"])}


class RunData(Origin):
    """The tables of a run about `sweeps`; no other sweep is part of it.

    `frames`: tables by name, those that are absent empty. `precision`: that of sweeps without one of their own.
    """

    def __init__(
        self,
        sweeps: Mapping[str, Sweep],
        frames: Mapping[str, pd.DataFrame],
        environment: Mapping[str, Any] | None = None,
        precision: float = 0.0,
    ) -> None:
        empty = {name: tables.frame(name, []) for name in (*_REQUIRED, *_OPTIONAL) if name not in frames}
        self.sweeps, self.frames, self.precision = sweeps, {**frames, **empty}, precision
        self.environment = environment or {}

    @classmethod
    def read(cls, folder: RunFolder, sweeps: Mapping[str, Sweep]) -> "RunData":
        """The tables in a folder. Raises LadderError where one that every run has is missing, or the environment."""
        environment, frames = read_environment(folder), read_frames(folder.tables)
        source = environment.get("published") or (environment if isinstance(folder, PublishedFolder) else {})
        frames["unseen"] = tables.read("unseen", folder.unseen(source.get("device", "")), required=False)
        return cls(sweeps, frames, environment)

    @cached_property
    def parts(self) -> Mapping[str, SweepData]:
        """Every sweep with its tables."""
        return {name: of_sweep(sweep, self.frames, self.environment) for name, sweep in self.sweeps.items()}

    @property
    def name(self) -> str:
        """What the GPU, or else the device, is called."""
        return str(self.gpu.get("name") or self.source["device"])

    @cached_property
    def _code(self) -> Sequence[Row]:
        return [Row(_names(row)) for row in stats.records(self.frames["resources"])]

    @cached_property
    def _timings(self) -> Sequence[Row]:
        """Rows of the timings without a beta, those of rungs against their baselines too."""
        code = {(row["sweep"], row["variant"]): row for row in self._code}
        metrics, found = stats.metric_table(self.frames["metrics"]), []
        timings = self.frames["timings"]
        timings = tables.with_rungs(timings[timings["beta"].isna()], self.sweeps.values())
        for row in stats.records(timings):
            names = {**code.get((row["sweep"], row["variant"]), {}), **_names(row)}
            found.append(Row(names, stats.size_of(row), metrics.get(stats.cell_of(row), {})))
        return found

    @cached_property
    def _cells(self) -> Mapping[str, Sequence[Row]]:
        """Sweep -> its rows against its own reference."""
        cells = [row for row in self._timings if "baseline" not in row]
        return grouped(cells, lambda row: row["sweep"])

    @cached_property
    def _pairs(self) -> Mapping[tuple[Any, ...], Row]:
        """Rows with a result by variant, reference, regime and size."""
        good = [row for row in self._timings if row["status"] == "ok" and row["sweep"] in self.sweeps]
        return {_pair(row, row["reference"]): row for row in good}

    def cells(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells in the sweep's first regime, unless another one is wanted: a value, a tuple of values or a function."""
        regime = self.sweeps[sweep].regimes[0] if sweep in self.sweeps else ""
        return self._select(self._cells.get(sweep, ()), sweep, kernel, {"regime": regime, **wanted})

    def timed(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells with a result."""
        rows = self.cells(sweep, kernel, **wanted)
        good = [row for row in rows.found if row["status"] == "ok"]
        counts = Counter(row["status"] for row in rows.found).items()
        reasons = {row.get("reason") for row in rows.found}
        why = f": {reasons.pop()}" if len(reasons) == 1 and None not in reasons else ""
        failed = (
            f"no such cell of {sweep} gave a result ({', '.join(f'{n} {name}' for name, n in counts)}{why})"
        )
        return Rows(sweep, good, failed if rows.found and not good else rows.why)

    def compiled(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Variants that compiled, with what their machine code says; this needs no GPU."""
        return self._select(self._code, sweep, kernel, {**wanted, "status": "ok"})

    def rows(self, sweep: str, kernel: Any = None, **wanted: Any) -> Sequence[Row]:
        """Cells with a result. Raises Unmeasured where there is none."""
        found = self.timed(sweep, kernel, **wanted)
        if found.found:
            return found.found
        if sweep in self.sweeps and sweep not in self._cells:
            raise Unmeasured(
                f"{sweep} has no timings" + "".join(f": {why}" for why in self._notes(sweep)[:1])
            )
        raise Unmeasured(found.why)

    def part(self, sweep: str) -> SweepData:
        """A sweep with a result at the size that its findings are about. Raises Unmeasured where it has none."""
        self.rows(sweep)
        data = self.parts[sweep]
        if not len(data.here):
            raise Unmeasured(f"no cell of {sweep} at {data.size_text} gave a result")
        return data

    def _notes(self, sweep: str, stage: str = "") -> list[str]:
        """Reasons that the run gives for what a sweep is without."""
        notes = self.frames["notes"]
        own = notes[(notes["sweep"] == sweep) & ((notes["stage"] == stage) | (not stage))]
        return [str(reason) for reason in own["reason"].dropna().unique()]

    def _select(self, rows: Iterable[Row], sweep: str, kernel: Any, wanted: Mapping[str, Any]) -> Rows:
        if sweep not in self.sweeps:
            return Rows(sweep, [], f"the sweep {sweep} is not part of this run")
        given = {"sweep": sweep, **({"kernel": kernel} if kernel else {}), **wanted}
        if found := [row for row in rows if _fits(row, given)]:
            return Rows(sweep, found, "")
        shown = [f"such {name}" if callable(one) else f"{name} = {one}" for name, one in given.items()]
        return Rows(sweep, [], ": ".join([f"no row with {', '.join(shown)}", *self._notes(sweep)[:1]]))

    def speeds(self, rows: Rows) -> Values:
        """Speed over the reference that the sweep names."""
        return Values(rows.sweep, [_speed(row, row) for row in rows.found], rows.why, self._noise(rows))

    def speeds_over(self, rows: Rows, others: Rows, *match: str) -> Values:
        """Speed over the row of `others` that agrees in the columns `match`."""
        found = [self.over(row, other) for row, other in _partners(rows, others, match)]
        return Values(rows.sweep, found, rows.why or others.why, 2 * self._noise(rows))

    def over(self, row: Row, other: Row) -> Value:
        """How many times as fast as another row: of pairs where there are any, else of speeds over one reference."""
        if direct := self._pairs.get(_pair(row, other["variant"])):
            return _speed(row, direct)
        both = gain_over(row, other)
        return Value(both.measured, both.predicted, row=row, timed=(row, other))

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
                if not all(divisor):
                    raise Unmeasured("it would be divided by 0")
                value /= math.prod(divisor)
                found.append(Value(Estimate(value, value, value), row=row))
            except Unmeasured as error:
                missing[str(error)] += 1
        if missing and not found:
            return Values(rows.sweep, [], ": ".join([*missing, *self._notes(rows.sweep, "profile")]))
        return Values(
            rows.sweep, found, why, left_out=", ".join(f"{name} ({n})" for name, n in missing.items())
        )

    def _noise(self, rows: Rows) -> float:
        return self.sweeps[rows.sweep].precision or self.precision if rows.sweep in self.sweeps else 0.0

    @cached_property
    def against_libraries(self) -> Sequence[Sweep]:
        """Sweeps of GEMMs that are timed against libraries."""
        gemms = (sweep for sweep in self.sweeps.values() if sweep.problem.name == "gemm")
        return [sweep for sweep in gemms if sweep.reference.kernel is None]

    def over_most_libraries(self, rows: Sequence[Row]) -> list[Row]:
        """Those of the rows that were timed against most libraries.

        A speed-up over the fastest of two libraries is no speed-up over one of them.
        """
        libraries = [len(self.sweeps[row["sweep"]].reference.libraries) for row in rows]
        return [row for row, count in zip(rows, libraries, strict=True) if count == max(libraries)]

    @cached_property
    def _configurations(self) -> Mapping[str, str]:
        """Variant -> the rung that a sweep gives it, without its number: a ladder's, else that of the first by name."""
        entries = [entry for _, sweep in sorted(self.sweeps.items()) for entry in sweep.entries if entry.rung]
        entries.sort(key=lambda one: plain(one.rung) == one.rung)
        return {one.variant.id: plain(one.rung) for one in reversed(entries)}

    def configuration(self, row: Mapping[str, Any]) -> str:
        """The one name of a row's variant beside that of its kernel, wherever it was measured."""
        label = self.parts[row["sweep"]].names[row["variant"]].removesuffix(f" ({row['dtype']})")
        return self._configurations.get(row["variant"], label.removeprefix(row["kernel"]).strip())


def _pair(row: Row, reference: str) -> tuple[Any, ...]:
    return row["variant"], reference, row["regime"], *row.size.items()


def _speed(row: Row, timed: Row) -> Value:
    own = gain(timed)
    return Value(own.measured, own.predicted, row=row, timed=(timed,))


def _partners(rows: Rows, others: Rows, match: Sequence[str]) -> list[tuple[Row, Row]]:
    found = []
    for row in rows.found:
        same = [one for one in others.found if all(one.get(name) == row.get(name) for name in match)]
        if len(same) > 1:
            shown = ", ".join(match)
            raise LadderError(
                f"{rows.sweep}: {row['variant']}: {len(same)} rows agree in {shown}; accepted: one"
            )
        found += [(row, other) for other in same]
    return found

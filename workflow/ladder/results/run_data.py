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
    "unseen",
)


class Unmeasured(Exception):
    """A number that is not in the tables, and why."""


class Row(dict[str, Any]):
    """A row of timings, by its columns, with the parameters of its variant over them; and its metrics.

    A parameter goes before a column of the same name. A name that a row lacks raises Unmeasured.
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
        params: dict[str, Any] = json.loads(self["params"])
        return params

    def metric(self, name: str) -> float:
        if name not in self.metrics:
            raise Unmeasured(f"the metric {name} is not recorded")
        return self.metrics[name]


@dataclass(frozen=True)
class Rows:
    """Rows of a sweep that were selected; where there are none, `why`."""

    sweep: str
    rows: Sequence[Row]
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
    values: Sequence[Value]
    why: str = ""
    noise: float = 0.0
    left_out: str = ""  # what rows without the number are without

    def best(self, per: str, choose: Callable[..., Value] = max) -> "Values":
        """For each value of a column or parameter the greatest number, or the least with `min`."""
        groups = grouped(
            self.values, lambda value: value.row[per], ordered=False
        ).values()
        return replace(
            self,
            values=[choose(group, key=lambda value: value.value) for group in groups],
        )

    def only(self, **wanted: Any) -> "Values":
        """Those of rows with these columns or parameters."""
        fitting = [value for value in self.values if _fits(value.row, wanted)]
        return replace(
            self, values=fitting, why=self.why or f"no such row of {self.sweep}"
        )

    def over(self, other: "Values", *match: str) -> "Values":
        """Quotients of these and the values of `other` whose rows agree in the columns `match`: how a gain changes."""
        divisors = {
            tuple(value.row[name] for name in match): value for value in other.values
        }
        quotients = []
        for value in self.values:
            divisor = divisors.get(tuple(value.row[name] for name in match))
            if divisor:
                gain = Gain.over(value, divisor)
                timed = value.timed + divisor.timed
                quotients.append(
                    Value(gain.measured, gain.predicted, row=value.row, timed=timed)
                )
        return Values(
            self.sweep, quotients, self.why or other.why, self.noise + other.noise
        )

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
        if not self.values:
            raise Unmeasured(self.why or "no pair of rows")
        return [value.value for value in self.values]


def short(value: float) -> str:
    """Three significant digits, of a whole number no more than it has."""
    return (
        f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:#.3g}"
    )


def _fits(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Whether a row has what is wanted of each column: a value, one of a tuple, or what a function takes."""

    def fits(value: Any, wish: Any) -> bool:
        if value is None:
            return False
        if callable(wish):
            return bool(wish(value))
        return value in wish if isinstance(wish, tuple) else bool(value == wish)

    return all(fits(row.get(name), wish) for name, wish in wanted.items())


def mean(rows: Sequence[Mapping[str, Any]]) -> Gain:
    """The geometric mean of speed-ups; its intervals are those of the ends, which are wide."""
    gains = [gain(row) for row in rows]
    return Gain(
        _mean([gain.measured for gain in gains]),
        _mean([gain.predicted for gain in gains]),
    )


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    if not all(estimate.known for estimate in estimates):
        return UNKNOWN
    return Estimate(*map(geometric_mean, zip(*map(astuple, estimates), strict=True)))


def grouped(
    items: Iterable[Item], of: Callable[[Item], Any], ordered: bool = True
) -> dict[Any, list[Item]]:
    """Items by a key, in its order if `ordered`."""
    groups = defaultdict(list)
    for item in items:
        groups[of(item)].append(item)
    return {key: groups[key] for key in (sorted(groups) if ordered else groups)}


def best(rows: Sequence[Row]) -> Row:
    """The row with the largest speed-up, of those measured again after they were chosen if there are any."""
    again = [row for row in rows if row.get("fresh") is True]
    return max(again or rows, key=lambda row: row["speedup"])


def read_frames(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables in a folder by name. Raises LadderError where one that every run has is missing."""
    required = {name: tables.read(name, folder) for name in _REQUIRED}
    return required | {
        name: tables.read(name, folder, required=False) for name in _OPTIONAL
    }


def _names(row: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: value for name, value in row.items() if value is not None}
    return {**columns, **json.loads(row["params"])}


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
        empty = {
            name: tables.frame(name, [])
            for name in (*_REQUIRED, *_OPTIONAL)
            if name not in frames
        }
        self.sweeps, self.frames, self.precision = (
            sweeps,
            {**frames, **empty},
            precision,
        )
        self.environment = environment or {}

    @classmethod
    def read(cls, folder: RunFolder, sweeps: Mapping[str, Sweep]) -> "RunData":
        """The tables in a folder. Raises LadderError where one that every run has is missing, or the environment."""
        environment, frames = read_environment(folder), read_frames(folder.tables)
        source = environment.get("published") or (
            environment if isinstance(folder, PublishedFolder) else {}
        )
        frames["unseen"] = tables.read(
            "unseen", folder.unseen(source.get("device", "")), required=False
        )
        return cls(sweeps, frames, environment)

    @cached_property
    def parts(self) -> Mapping[str, SweepData]:
        """Every sweep with its tables."""
        return {
            name: of_sweep(sweep, self.frames, self.environment)
            for name, sweep in self.sweeps.items()
        }

    @property
    def name(self) -> str:
        """What the GPU, or else the device, is called."""
        return str(self.gpu.get("name") or self.source["device"])

    @cached_property
    def _code(self) -> Sequence[Row]:
        return [Row(_names(row)) for row in stats.records(self.frames["resources"])]

    @cached_property
    def _timings(self) -> Sequence[Row]:
        """Rows of the timings, those of rungs against their baselines too."""
        code = {(row["sweep"], row["variant"]): row for row in self._code}
        metrics = stats.metric_table(self.frames["metrics"])
        rows = []
        timings = tables.with_rungs(self.frames["timings"], self.sweeps.values())
        for row in stats.records(timings):
            names = {**code.get((row["sweep"], row["variant"]), {}), **_names(row)}
            rows.append(
                Row(names, stats.size_of(row), metrics.get(stats.cell_of(row), {}))
            )
        return rows

    @cached_property
    def _cells(self) -> Mapping[str, Sequence[Row]]:
        """Sweep -> its rows against its own reference."""
        cells = [row for row in self._timings if "baseline" not in row]
        return grouped(cells, lambda row: row["sweep"])

    @cached_property
    def _pairs(self) -> Mapping[tuple[Any, ...], Row]:
        """Rows with a result by variant, reference, regime and size."""
        good = [
            row
            for row in self._timings
            if row["status"] == "ok" and row["sweep"] in self.sweeps
        ]
        return {_pair(row, row["reference"]): row for row in good}

    def cells(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells in the sweep's first regime, unless another one is wanted: a value, a tuple of values or a function."""
        regime = self.sweeps[sweep].regimes[0] if sweep in self.sweeps else ""
        return self._select(
            self._cells.get(sweep, ()), sweep, kernel, {"regime": regime, **wanted}
        )

    def timed(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells with a result."""
        cells = self.cells(sweep, kernel, **wanted)
        good = [row for row in cells.rows if row["status"] == "ok"]
        if good or not cells.rows:
            return Rows(sweep, good, cells.why)
        counts = Counter(row["status"] for row in cells.rows).items()
        shown = ", ".join(f"{count} {status}" for status, count in counts)
        reasons = {row.get("reason") for row in cells.rows}
        reason = (
            f": {reasons.pop()}" if len(reasons) == 1 and None not in reasons else ""
        )
        return Rows(
            sweep, [], f"no such cell of {sweep} gave a result ({shown}{reason})"
        )

    def compiled(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Variants that compiled, with what their machine code says; this needs no GPU."""
        return self._select(self._code, sweep, kernel, {**wanted, "status": "ok"})

    def rows(self, sweep: str, kernel: Any = None, **wanted: Any) -> Sequence[Row]:
        """Cells with a result. Raises Unmeasured where there is none."""
        timed = self.timed(sweep, kernel, **wanted)
        if timed.rows:
            return timed.rows
        if sweep in self.sweeps and sweep not in self._cells:
            raise Unmeasured(
                ": ".join([f"{sweep} has no timings", *self._notes(sweep)[:1]])
            )
        raise Unmeasured(timed.why)

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
        notes = notes[
            (notes["sweep"] == sweep) & ((notes["stage"] == stage) | (not stage))
        ]
        return [str(reason) for reason in notes["reason"].dropna().unique()]

    def _select(
        self, rows: Iterable[Row], sweep: str, kernel: Any, wanted: Mapping[str, Any]
    ) -> Rows:
        if sweep not in self.sweeps:
            return Rows(sweep, [], f"the sweep {sweep} is not part of this run")
        given = {"sweep": sweep, **({"kernel": kernel} if kernel else {}), **wanted}
        fitting = [row for row in rows if _fits(row, given)]
        if fitting:
            return Rows(sweep, fitting, "")
        shown = [
            f"such {name}" if callable(wish) else f"{name} = {wish}"
            for name, wish in given.items()
        ]
        return Rows(
            sweep,
            [],
            ": ".join([f"no row with {', '.join(shown)}", *self._notes(sweep)[:1]]),
        )

    def speeds(self, rows: Rows) -> Values:
        """Speed over the reference that the sweep names."""
        return Values(
            rows.sweep,
            [_speed(row, row) for row in rows.rows],
            rows.why,
            self._noise(rows),
        )

    def speeds_over(self, rows: Rows, others: Rows, *match: str) -> Values:
        """Speed over the row of `others` that agrees in the columns `match`."""
        speeds = [
            self.over(row, other) for row, other in _partners(rows, others, match)
        ]
        return Values(rows.sweep, speeds, rows.why or others.why, 2 * self._noise(rows))

    def over(self, row: Row, other: Row) -> Value:
        """How many times as fast as another row: of pairs where there are any, else of speeds over one reference."""
        pair = self._pairs.get(_pair(row, other["variant"]))
        if pair:
            return _speed(row, pair)
        quotient = gain_over(row, other)
        return Value(quotient.measured, quotient.predicted, row=row, timed=(row, other))

    def numbers(self, rows: Rows, of: Callable[[Row], float]) -> Values:
        """A number of each row that has it."""
        return self._counted(rows, [(row, (row,)) for row in rows.rows], of, rows.why)

    def ratios(
        self, rows: Rows, others: Rows, of: Callable[[Row], float], *match: str
    ) -> Values:
        """A number of each row over that of the row of `others` that agrees in the columns `match`."""
        pairs = [(row, (row, other)) for row, other in _partners(rows, others, match)]
        return self._counted(rows, pairs, of, rows.why or others.why)

    def _counted(
        self,
        rows: Rows,
        given: Sequence[tuple[Row, tuple[Row, ...]]],
        of: Callable[[Row], float],
        why: str,
    ) -> Values:
        values = []
        missing = Counter[str]()
        for row, operands in given:
            try:
                number, *divisor = (float(of(operand)) for operand in operands)
                if not all(divisor):
                    raise Unmeasured("it would be divided by 0")
                number /= math.prod(divisor)
                values.append(Value(Estimate(number, number, number), row=row))
            except Unmeasured as error:
                missing[str(error)] += 1
        if missing and not values:
            return Values(
                rows.sweep,
                [],
                ": ".join([*missing, *self._notes(rows.sweep, "profile")]),
            )
        left_out = ", ".join(f"{reason} ({count})" for reason, count in missing.items())
        return Values(rows.sweep, values, why, left_out=left_out)

    def _noise(self, rows: Rows) -> float:
        return (
            self.sweeps[rows.sweep].precision or self.precision
            if rows.sweep in self.sweeps
            else 0.0
        )

    @cached_property
    def against_libraries(self) -> Sequence[Sweep]:
        """Sweeps of GEMMs that are timed against libraries."""
        gemms = (
            sweep for sweep in self.sweeps.values() if sweep.problem.name == "gemm"
        )
        return [sweep for sweep in gemms if sweep.reference.kernel is None]

    def over_most_libraries(self, rows: Sequence[Row]) -> list[Row]:
        """Those of the rows that were timed against most libraries.

        A speed-up over the fastest of two libraries is no speed-up over one of them.
        """
        libraries = [len(self.sweeps[row["sweep"]].reference.libraries) for row in rows]
        return [
            row
            for row, count in zip(rows, libraries, strict=True)
            if count == max(libraries)
        ]

    @cached_property
    def _configurations(self) -> Mapping[str, str]:
        """Variant -> the rung that a sweep gives it, without its number: a ladder's, else that of the first by name."""
        entries = [
            entry
            for _, sweep in sorted(self.sweeps.items())
            for entry in sweep.entries
            if entry.rung
        ]
        entries.sort(key=lambda entry: plain(entry.rung) == entry.rung)
        return {entry.variant.id: plain(entry.rung) for entry in reversed(entries)}

    def configuration(self, row: Mapping[str, Any]) -> str:
        """The one name of a row's variant beside that of its kernel, wherever it was measured."""
        label = (
            self.parts[row["sweep"]]
            .names[row["variant"]]
            .removesuffix(f" ({row['dtype']})")
        )
        return self._configurations.get(
            row["variant"], label.removeprefix(row["kernel"]).strip()
        )


def _pair(row: Row, reference: str) -> tuple[Any, ...]:
    return row["variant"], reference, row["regime"], *row.size.items()


def _speed(row: Row, timed: Row) -> Value:
    speed = gain(timed)
    return Value(speed.measured, speed.predicted, row=row, timed=(timed,))


def _partners(rows: Rows, others: Rows, match: Sequence[str]) -> list[tuple[Row, Row]]:
    pairs = []
    for row in rows.rows:
        partners = [
            other
            for other in others.rows
            if all(other.get(name) == row.get(name) for name in match)
        ]
        if len(partners) > 1:
            agree = f"{len(partners)} rows agree in {', '.join(match)}"
            raise LadderError(f"{rows.sweep}: {row['variant']}: {agree}; accepted: one")
        pairs += [(row, other) for other in partners]
    return pairs

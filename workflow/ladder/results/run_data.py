"""The tables of a run as claims, answers, figures and pages read them: sweep by sweep, and row by row.

`RunData` selects rows; a number of a row is a `Gain`, or a `Value`, which knows its row. What is not in the tables has
a reason: `Rows` and `Values` carry it, `RunData.rows` and a row's missing number raise it as `Unmeasured`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from ladder.model.errors import LadderError
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.schemas import SCHEMAS, SWEEP_TABLES, Fields, TableRow
from ladder.model.sweep import Sweep
from ladder.results import tables
from ladder.results.environment import read_environment
from ladder.results.statistics import (
    Estimate,
    cell_of,
    from_to,
    grouped,
    metric_table,
    records,
    size_of,
)
from ladder.results.sweep_data import Origin, SweepData, of_sweep, plain
from ladder.results.verdicts import Gain, gain, gain_over


class Unmeasured(Exception):
    """A number that is not in the tables, and why."""


class Row(TableRow):
    """A row of timings, by its columns, with the parameters of its variant over them; and its metrics.

    A parameter goes before a column of the same name. A name that a row lacks raises Unmeasured.
    """

    def __init__(
        self,
        names: Fields,
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
    """A number of several rows, in `unit`; `noise` is the half-width, as a share, to which it is measured."""

    sweep: str
    values: Sequence[Value]
    why: str = ""
    unit: str = "x"
    noise: float = 0.0
    left_out: str = ""  # what rows without the number are without

    def best(self, per: str, choose: Callable[..., Value] = max) -> "Values":
        """For each value of a column or parameter the greatest number, or the least with `min`."""
        groups = grouped(self.values, lambda value: value.row[per])
        values = [
            choose(group, key=lambda value: value.value) for group in groups.values()
        ]
        return replace(self, values=values)

    def only(self, **wanted: Any) -> "Values":
        """Those of rows with these columns or parameters."""
        values = [value for value in self.values if _fits(value.row, wanted)]
        why = self.why or f"no such row of {self.sweep}"
        return replace(self, values=values, why=why)

    def over(self, other: "Values", *match: str) -> "Values":
        """Quotients of these and the values of `other` whose rows agree in the columns `match`: how a gain changes."""
        divisors = {_place(value.row, match): value for value in other.values}
        quotients = []
        for value in self.values:
            divisor = divisors.get(_place(value.row, match))
            if divisor is not None:
                quotient = Gain.over(value, divisor)
                timed = value.timed + divisor.timed
                quotients.append(Value(**vars(quotient), row=value.row, timed=timed))
        why, noise = self.why or other.why, self.noise + other.noise
        return Values(self.sweep, quotients, why, noise=noise)

    @property
    def least(self) -> float:
        """Like `most` and `span`, it raises Unmeasured where there is no value."""
        return min(self._numbers())

    @property
    def most(self) -> float:
        return max(self._numbers())

    @property
    def span(self) -> str:
        """1.03 to 1.66 x, for advice."""
        ends = from_to(short(self.least), short(self.most))
        return f"{ends} {self.unit}".strip()

    def _numbers(self) -> list[float]:
        if not self.values:
            raise Unmeasured(self.why or "no pair of rows")
        return [value.value for value in self.values]


def short(value: float) -> str:
    """Three significant digits, of a whole number no more than it has."""
    is_whole = abs(value) >= 100 or value == int(value)
    return f"{value:.0f}" if is_whole else f"{value:#.3g}"


def _place(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in names)


def _fits(row: Row, wanted: Fields) -> bool:
    """Whether a row has what is wanted of each column: a value, one of a tuple, or what a function takes."""
    for name, wish in wanted.items():
        value = row.get(name)
        if value is None:
            return False
        if callable(wish):
            if not wish(value):
                return False
        elif value not in (wish if isinstance(wish, tuple) else (wish,)):
            return False
    return True


def mean(rows: Sequence[Fields]) -> Gain:
    """The geometric mean of speed-ups; its intervals are those of the ends, which are wide."""
    gains = [gain(row) for row in rows]
    measured = _mean([gain.measured for gain in gains])
    return Gain(measured, _mean([gain.predicted for gain in gains]))


def _mean(estimates: Sequence[Estimate]) -> Estimate:
    """Of every column of the estimates; not a number where one of them is unknown."""
    columns = zip(*map(astuple, estimates), strict=True)
    return Estimate(*map(geometric_mean, columns))


def best(rows: Sequence[Row]) -> Row:
    """The row with the largest speed-up, of those measured again after they were chosen if there are any."""
    again = [row for row in rows if row.get("fresh") is True]
    return max(again or rows, key=lambda row: row["speedup"])


def read_frames(folder: Path) -> tables.Frames:
    """The tables in a folder by name. Raises LadderError where one that every run has is missing."""
    return {
        name: tables.read(name, folder, required=name in SWEEP_TABLES)
        for name in SCHEMAS
    }


def _names(row: TableRow) -> TableRow:
    columns = {name: value for name, value in row.items() if value is not None}
    return {**columns, **json.loads(row["params"])}


class RunData(Origin):
    """The tables of a run about `sweeps`; no other sweep is part of it.

    `frames`: tables by name, those that are absent empty. `precision`: that of sweeps without one of their own.
    """

    def __init__(
        self,
        sweeps: Mapping[str, Sweep],
        frames: tables.Frames,
        environment: Fields | None = None,
        precision: float = 0.0,
    ) -> None:
        self.sweeps = sweeps
        self.frames = {name: tables.frame(name, []) for name in SCHEMAS} | {**frames}
        self.environment = environment or {}
        self.precision = precision

    @classmethod
    def read(cls, folder: RunFolder, sweeps: Mapping[str, Sweep]) -> "RunData":
        """The tables in a folder. Raises LadderError where one that every run has is missing, or the environment."""
        data = cls(sweeps, read_frames(folder.tables), read_environment(folder))
        if data.environment["published"] or isinstance(folder, PublishedFolder):
            unseen = folder.unseen(data.source["device"])
            data.frames["unseen"] = tables.read("unseen", unseen, required=False)
        return data

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
    def _code(self) -> Mapping[tuple[str, str], Row]:
        """What the compiler says, by sweep and variant."""
        rows = map(_names, records(self.frames["resources"]))
        return {(row["sweep"], row["variant"]): Row(row) for row in rows}

    @cached_property
    def _timings(self) -> Sequence[Row]:
        """Rows of the timings, those of rungs against their baselines too."""
        metrics = metric_table(self.frames["metrics"])
        rows = []
        for row in records(self.frames["timings"]):
            code = self._code.get((row["sweep"], row["variant"]), Row({}))
            size, counted = size_of(row), metrics.get(cell_of(row))
            rows.append(Row({**code, **_names(row)}, size, counted))
        return rows

    @cached_property
    def _cells(self) -> Mapping[str, Sequence[Row]]:
        """Sweep -> its rows against its own reference."""
        cells = [row for row in self._timings if "baseline" not in row]
        return grouped(cells, lambda row: row["sweep"])

    @cached_property
    def _pairs(self) -> Mapping[tuple[Any, ...], Row]:
        """Rows with a result by variant, reference, regime and size."""
        return {
            _pair(row, row["reference"]): row
            for row in self._timings
            if row["status"] == "ok" and row["sweep"] in self.sweeps
        }

    def cells(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells in the sweep's first regime, unless another one is wanted: a value, a tuple of values or a function."""
        if sweep in self.sweeps:
            wanted = {"regime": self.sweeps[sweep].regimes[0], **wanted}
        return self._select(self._cells.get(sweep, ()), sweep, kernel, wanted)

    def timed(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Cells with a result."""
        cells = self.cells(sweep, kernel, **wanted)
        good = [row for row in cells.rows if row["status"] == "ok"]
        if good or not cells.rows:
            return Rows(sweep, good, cells.why)
        counts = Counter(row["status"] for row in cells.rows)
        failures = ", ".join(f"{count} {status}" for status, count in counts.items())
        reasons = {row.get("reason") for row in cells.rows}
        if len(reasons) == 1 and None not in reasons:
            failures += f": {reasons.pop()}"
        return Rows(sweep, [], f"no such cell of {sweep} gave a result ({failures})")

    def compiled(self, sweep: str, kernel: Any = None, **wanted: Any) -> Rows:
        """Variants that compiled, with what their machine code says; this needs no GPU."""
        return self._select(
            self._code.values(), sweep, kernel, {**wanted, "status": "ok"}
        )

    def rows(self, sweep: str, kernel: Any = None, **wanted: Any) -> Sequence[Row]:
        """Cells with a result. Raises Unmeasured where there is none."""
        timed = self.timed(sweep, kernel, **wanted)
        if timed.rows:
            return timed.rows
        if sweep in self.sweeps and sweep not in self._cells:
            raise Unmeasured(self._with_note(f"{sweep} has no timings", sweep))
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
        notes = notes[notes["sweep"] == sweep]
        if stage:
            notes = notes[notes["stage"] == stage]
        return [str(reason) for reason in notes["reason"].dropna().unique()]

    def _with_note(self, why: str, sweep: str) -> str:
        return ": ".join([why, *self._notes(sweep)[:1]])

    def _select(
        self, rows: Iterable[Row], sweep: str, kernel: Any, wanted: Fields
    ) -> Rows:
        if sweep not in self.sweeps:
            return Rows(sweep, [], f"the sweep {sweep} is not part of this run")
        wanted = {"sweep": sweep, **({"kernel": kernel} if kernel else {}), **wanted}
        fitting = [row for row in rows if _fits(row, wanted)]
        if fitting:
            return Rows(sweep, fitting, "")
        wishes = ", ".join(
            f"such {name}" if callable(wish) else f"{name} = {wish}"
            for name, wish in wanted.items()
        )
        return Rows(sweep, [], self._with_note(f"no row with {wishes}", sweep))

    def speeds(self, rows: Rows) -> Values:
        """Speed over the reference that the sweep names."""
        speeds = [Value(**vars(gain(row)), row=row, timed=(row,)) for row in rows.rows]
        return Values(rows.sweep, speeds, rows.why, noise=self._noise(rows))

    def speeds_over(self, rows: Rows, others: Rows, *match: str) -> Values:
        """Speed over the row of `others` that agrees in the columns `match`."""
        speeds = [
            self.over(row, other) for row, other in _partners(rows, others, match)
        ]
        why, noise = rows.why or others.why, 2 * self._noise(rows)
        return Values(rows.sweep, speeds, why, noise=noise)

    def over(self, row: Row, other: Row) -> Value:
        """How many times as fast as another row: of pairs where there are any, else of speeds over one reference."""
        pair = self._pairs.get(_pair(row, other["variant"]))
        if pair:
            return Value(**vars(gain(pair)), row=row, timed=(pair,))
        return Value(**vars(gain_over(row, other)), row=row, timed=(row, other))

    def numbers(self, rows: Rows, of: Callable[[Row], float], unit: str = "") -> Values:
        """A number of each row that has it."""
        operands = [(row,) for row in rows.rows]
        return self._counted(rows.sweep, operands, of, rows.why, unit)

    def ratios(
        self, rows: Rows, others: Rows, of: Callable[[Row], float], *match: str
    ) -> Values:
        """A number of each row over that of the row of `others` that agrees in the columns `match`."""
        return self._counted(
            rows.sweep,
            _partners(rows, others, match),
            lambda row, other: of(row) / of(other),
            rows.why or others.why,
            "x",
        )

    def _counted(
        self,
        sweep: str,
        operands: Sequence[tuple[Row, ...]],
        of: Callable[..., float],
        why: str,
        unit: str,
    ) -> Values:
        values, missing = [], Counter[str]()
        for rows in operands:
            try:
                number = float(of(*rows))
            except (Unmeasured, ZeroDivisionError) as error:
                missing[str(error)] += 1
            else:
                values.append(Value(Estimate(number, number, number), row=rows[0]))
        if missing and not values:
            why = ": ".join([*missing, *self._notes(sweep, "profile")])
        left_out = ", ".join(f"{reason} ({count})" for reason, count in missing.items())
        return Values(sweep, values, why, unit, left_out=left_out)

    def _noise(self, rows: Rows) -> float:
        if rows.sweep not in self.sweeps:
            return 0.0
        return self.sweeps[rows.sweep].precision or self.precision

    @cached_property
    def against_libraries(self) -> Sequence[Sweep]:
        """Sweeps of GEMMs that are timed against libraries."""
        return [
            sweep
            for sweep in self.sweeps.values()
            if sweep.problem.name == "gemm" and sweep.reference.kernel is None
        ]

    def over_most_libraries(self, rows: Sequence[Row]) -> list[Row]:
        """Those of the rows that were timed against most libraries.

        A speed-up over the fastest of two libraries is no speed-up over one of them.
        """
        groups = grouped(
            rows, lambda row: len(self.sweeps[row["sweep"]].reference.libraries)
        )
        return groups[max(groups)]

    @cached_property
    def _configurations(self) -> Mapping[str, str]:
        """Variant -> the rung that a sweep gives it, without its number: a ladder's, else that of the first by name."""
        entries = []
        for _, sweep in sorted(self.sweeps.items(), reverse=True):
            entries += [entry for entry in reversed(sweep.entries) if entry.rung]
        # Later entries replace earlier ones: those of ladders, whose rungs have numbers, come last.
        entries.sort(key=lambda entry: plain(entry.rung) != entry.rung)
        return {entry.variant.id: plain(entry.rung) for entry in entries}

    def configuration(self, row: Fields) -> str:
        """The one name of a row's variant beside that of its kernel, wherever it was measured."""
        label = self._configurations.get(row["variant"])
        if label is None:
            label = self.parts[row["sweep"]].names[row["variant"]]
            label = label.removesuffix(f" ({row['dtype']})")
        return label.removeprefix(row["kernel"]).strip()


def _pair(row: Row, reference: str) -> tuple[Any, ...]:
    return row["variant"], reference, row["regime"], *row.size.items()


def _partners(rows: Rows, others: Rows, match: Sequence[str]) -> list[tuple[Row, Row]]:
    partners = grouped(others.rows, lambda row: _place(row, match))
    pairs = []
    for row in rows.rows:
        alike = partners[_place(row, match)]
        if len(alike) > 1:
            agree = f"{len(alike)} rows agree in {', '.join(match)}"
            raise LadderError(f"{rows.sweep}: {row['variant']}: {agree}; accepted: one")
        pairs += [(row, other) for other in alike]
    return pairs

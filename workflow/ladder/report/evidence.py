"""What findings and questions are answered from: the tables of a run, sweep by sweep and row by row."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from statistics import geometric_mean
from typing import Any

import pandas as pd

from ladder.claims.primitives import TABLES, Row, Rows, Tables, Unmeasured
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.sweep import Sweep
from ladder.report.markdown import figure, text
from ladder.report.sweep_data import SweepData, of_sweep
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.earlier import EARLIER
from ladder.results.environment import read_environment
from ladder.results.statistics import UNKNOWN, Estimate
from ladder.results.verdicts import verdict

_REQUIRED = ("timings", "resources", "metrics", "notes", "jobs")
_OPTIONAL = ("sessions", "claims", "components", "coverage", "clock_nvbench", *EARLIER, "sanitizer")


@dataclass(frozen=True)
class Gain:
    """A speed-up as it was measured, and between the ends of what another GPU is predicted to read."""

    measured: Estimate
    predicted: Estimate = UNKNOWN

    @property
    def value(self) -> float:
        return self.measured.value

    @property
    def verdict(self) -> str:
        """faster, slower or tied, by what another GPU is predicted to read."""
        return verdict(self.measured, self.predicted)

    def over(self, other: "Gain") -> "Gain":
        """How many times faster than another one over the same reference."""
        return Gain(stats.ratio(self.measured, other.measured), stats.ratio(self.predicted, other.predicted))

    @property
    def elsewhere(self) -> str:
        """What another GPU is predicted to read; empty where nothing is predicted."""
        return ends(self.predicted.low, self.predicted.high) if self.predicted.known else ""


def ends(low: float, high: float) -> str:
    """0.98 to 1.02, once where both read alike."""
    return " to ".join(dict.fromkeys(figure(value, 3) for value in (low, high)))


def gain(row: Mapping[str, Any]) -> Gain:
    """A row's speed-up over what it was timed against."""
    return Gain(stats.estimate(row, "speedup"), stats.predicted(row))


def mean(rows: Sequence[Row]) -> Gain:
    """The geometric mean of speed-ups; its intervals are those of the ends, which are wide."""
    gains = [gain(row.names) for row in rows]
    return Gain(_mean([one.measured for one in gains]), _mean([one.predicted for one in gains]))


def _mean(found: Sequence[Estimate]) -> Estimate:
    if not all(one.known for one in found):
        return UNKNOWN
    return Estimate(*map(geometric_mean, zip(*map(astuple, found), strict=True)))


def grouped(rows: Iterable[Row], of: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by a key, in its order."""
    found = defaultdict(list)
    for row in rows:
        found[of(row)].append(row)
    return {key: found[key] for key in sorted(found)}


def best(rows: Sequence[Row]) -> Row:
    """The fastest over one reference; where some were measured again after they had been chosen, one of those."""
    again = [row for row in rows if row.names.get("fresh") is True]
    return max(again or rows, key=lambda row: row["speedup"])


def plain(rung: str) -> str:
    """The name of a rung without its number, which no tile's size is."""
    return re.sub(r"^\d{1,2}[a-z]?\s+(?!x )", "", rung)


def is_cube(row: Row) -> bool:
    return len({*row.size.values()}) == 1


_LIBRARIES = {
    "cublas": "cuBLAS",
    "cublaslt": "cuBLASLt",
    "cublaslt_fast": "cuBLASLt with fast accumulation",
}


def proper(names: str) -> str:
    """Text with the libraries' own names in place of those of the tables."""
    return re.sub(r"\bcublas\w*", lambda found: _LIBRARIES.get(found[0], found[0]), names)


@dataclass(frozen=True)
class Evidence:
    """The tables of a run about some sweeps. What is not in them raises Unmeasured, with the reason."""

    sweeps: Mapping[str, Sweep]
    frames: Mapping[str, pd.DataFrame]
    environment: Mapping[str, Any]

    @classmethod
    def read(cls, folder: RunFolder, sweeps: Mapping[str, Sweep]) -> "Evidence":
        """The tables in a folder. Raises LadderError where one that every run has is missing, or the environment."""
        frames = {name: tables.read(name, folder.tables) for name in _REQUIRED}
        frames |= {name: tables.read(name, folder.tables, required=False) for name in _OPTIONAL}
        environment = read_environment(folder)
        source = environment.get("published") or (environment if isinstance(folder, PublishedFolder) else {})
        frames["unseen"] = tables.read("unseen", folder.unseen(source.get("device", "")), required=False)
        return cls(sweeps, frames, environment)

    @cached_property
    def tables(self) -> Tables:
        return Tables({name: self.frames[name] for name in TABLES}, self.sweeps)

    @cached_property
    def parts(self) -> Mapping[str, SweepData]:
        """Every sweep with its tables."""
        return {name: of_sweep(sweep, self.frames, self.environment) for name, sweep in self.sweeps.items()}

    @property
    def source(self) -> Mapping[str, Any]:
        """Environment of the run the timings come from."""
        return self.environment.get("published") or self.environment

    @property
    def gpu(self) -> Mapping[str, Any]:
        """The GPU the timings come from, as far as it is known."""
        return self.source.get("gpu") or {}

    @property
    def name(self) -> str:
        """What the GPU, or else the device, is called."""
        return str(self.gpu.get("name") or self.source["device"])

    def rows(self, name: str, kernel: Any = None, **wanted: Any) -> Sequence[Row]:
        """Cells of a sweep with a result, in its first regime unless another one is wanted."""
        found = self.tables.timed(name, kernel, **wanted)
        if not found.found:
            raise Unmeasured(self._nothing(name) or found.why)
        return found.found

    def _nothing(self, name: str) -> str:
        """That a sweep has no row at all, with the reason that the run gives; empty where it has one."""
        if name not in self.sweeps or (self.frames["timings"]["sweep"] == name).any():
            return ""
        notes = self.frames["notes"]
        reasons = notes[notes["sweep"] == name]["reason"].dropna().unique()
        return f"{name} has no timings" + (f": {reasons[0]}" if len(reasons) else "")

    def part(self, name: str) -> SweepData:
        """A sweep with a result at the size that its findings are about."""
        self.rows(name)
        data = self.parts[name]
        if not len(data.here):
            raise Unmeasured(f"no cell of {name} at {data.size_text} gave a result")
        return data

    def over(self, row: Row, other: Row) -> Gain:
        """How many times as fast as another row: of their own pairs where there are any, else of two ratios."""
        own, others = (Rows(str(one["sweep"]), [one], "") for one in (row, other))
        (value,) = self.tables.speeds_over(own, others).found
        if len(value.timed) == 1:
            return gain(value.timed[0].names)
        return Gain(value.estimate, stats.predicted_over(row.names, other.names))

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
        """Variant -> the rung of the first sweep that gives it one, without its number."""
        entries = [entry for sweep in self.sweeps.values() for entry in sweep.entries if entry.rung]
        return {one.variant.id: plain(one.rung) for one in reversed(entries)}

    def configuration(self, row: Row) -> str:
        """The one name of a row's variant beside that of its kernel, wherever it was measured."""
        label = self._configurations.get(row["variant"])
        return text(label) if label else self.label(row).removeprefix(row["kernel"]).strip()

    def label(self, row: Row) -> str:
        """What the pages call a row's variant."""
        return text(self.parts[row["sweep"]].names[row["variant"]])

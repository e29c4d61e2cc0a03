"""The tables of one sweep with what reading them needs: results, labels, the size that prose is about."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pandas import DataFrame

from ladder.model.cell import size_label
from ladder.model.files import read_text
from ladder.model.schemas import Fields, TableRow
from ladder.model.sweep import Entry, Figure, Sweep
from ladder.results import statistics as stats
from ladder.results import tables

_FRAMES = ("timings", "resources", "metrics", "sessions")
MOST_NAMED = 6  # parameters that a name is made of at most where all are named, whatever their values


def distinguishing(variants: Sequence[Fields]) -> list[str]:
    """Parameters that distinguish variants; of those that change together the first is enough."""

    def kinds(names: Iterable[str]) -> int:
        return len({tuple(params.get(name) for name in names) for params in variants})

    needed = stats.changing(variants)
    for name in reversed(needed.copy()):
        others = [other for other in needed if other != name]
        if kinds(others) == kinds(needed):
            needed = others
    return needed


def shown_value(name: str, params: Fields) -> str:
    """A parameter's value as pages show it: rows that are padded by no word are plain."""
    if name == "tiles" and params[name] == "padded" and params.get("pad") == 0:
        return "plain"
    return str(params[name])


def _assigned(names: Iterable[str], params: Fields) -> str:
    """bm=64, bn=128."""
    return ", ".join(f"{name}={shown_value(name, params)}" for name in names)


def plain(rung: str) -> str:
    """The name of a rung without its number, which no tile's size is."""
    return re.sub(r"^\d{1,2}[a-z]?\s+(?!x )", "", rung)


def extent(name: str) -> str:
    """M, N and K, as matrices have them; else a word as it is."""
    return name.upper() if name in ("m", "n", "k") else name


def of_sweep(sweep: Sweep, frames: tables.Frames, environment: Fields) -> "SweepData":
    """What the tables of a run say of one sweep."""
    parts = tables.of_sweep(frames, sweep.name, _FRAMES)
    rows = parts.pop("timings")
    return SweepData(
        sweep,
        stats.against_references(rows),
        **parts,
        pairs=rows[rows["baseline"].notna()],
        environment=environment,
    )


class Origin:
    """What `environment`, the document of a run, says of where its timings come from."""

    environment: Fields

    @property
    def source(self) -> Fields:
        """Environment of the run the timings come from."""
        return self.environment.get("published") or self.environment

    @property
    def gpu(self) -> Fields:
        """The GPU the timings come from, as far as it is known."""
        return self.source.get("gpu") or {}


@dataclass(frozen=True, eq=False)
class SweepData(Origin):
    """A sweep and its frames; `pairs` are timings of rungs against their baselines, `environment` is the run's.

    Equal to itself alone, so that what follows from it can be remembered.
    """

    sweep: Sweep
    timings: DataFrame
    resources: DataFrame
    metrics: DataFrame
    sessions: DataFrame
    pairs: DataFrame
    environment: Fields

    @property
    def days(self) -> str:
        """When its sessions began: 2026-11-22, or 2026-11-22 to 2026-11-28; empty where that is not known."""
        began = self.sessions["started"].dropna().str[:10]
        return stats.from_to(began.min(), began.max()) if len(began) else ""

    @property
    def regime(self) -> str:
        """The regime that figures and findings are about: the sweep's first."""
        return self.sweep.regimes[0]

    @property
    def over_shapes(self) -> bool:
        """Whether the sweep is about the fastest at each of many shapes, and their mean, not about variants at one."""
        return any(figure.kind == "shapes" for figure in self.sweep.figures)

    @property
    def has_rungs(self) -> bool:
        """Whether the sweep names steps of a ladder."""
        return any(entry.rung for entry in self.sweep.entries)

    @property
    def reference_name(self) -> str:
        """What cells are timed against, in few words: the libraries, or the kernel with the parameters it fixes."""
        reference = self.sweep.reference
        if reference.kernel is None:
            *others, last = reference.libraries
            return f"the faster of {', '.join(others)} and {last}" if others else last
        pads = {
            entry.variant.params.get("pad")
            for entry in self.sweep.entries
            if entry.variant.kernel is reference.kernel
        }
        params = {"pad": pads.pop() if len(pads) == 1 else None, **reference.params}
        fixed = _assigned(reference.params, params)
        return f"{reference.kernel.name} ({fixed})" if fixed else reference.kernel.name

    @property
    def builds(self) -> list[str]:
        """Packages that its references import, with the versions that sessions tell: torch 2.11.0."""
        files = {Path(one.file) for one in self.sweep.reference.external.values()}
        code = "\n".join(read_text(file) for file in files if file.suffix == ".py")
        modules = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
        # The package of cudnn is nvidia-cudnn-frontend, that of flash_attn flash-attn-4.
        named = "|".join(modules).replace("_", "-")
        known = self.source.get("builds", {}).get(self.sweep.name, [])
        return [build for build in known if re.match(rf"(\S+-)?({named})[- ]", build)]

    @cached_property
    def own_baselines(self) -> dict[str, str]:
        """Of variants that have another baseline than most of a sweep what sets theirs apart, such as min_blocks=1."""
        baselines = {}
        for entry in self.sweep.entries:
            baseline = self.sweep.reference.variant_for(entry.variant)
            if baseline is not None:
                baselines[entry.variant.id] = tuple(baseline.params.items())
        counts = Counter(baselines.values())
        usual = max(counts, key=counts.__getitem__, default=())
        if 2 * counts[usual] <= len(baselines):
            return {}
        apart = {}
        for variant, params in baselines.items():
            unusual = [name for name, value in params if (name, value) not in usual]
            if unusual:
                apart[variant] = _assigned(unusual, dict(params))
        return apart

    @cached_property
    def own_references(self) -> bool:
        """Whether baselines differ, so that the largest speed-up need not be the fastest kernel."""
        return bool(self.sweep.reference.kernel) and self.ok["reference"].nunique() > 1

    @cached_property
    def size(self) -> dict[str, int]:
        """The size that findings are about: the one a figure of the sweep shows, else the largest with a result."""
        for figure in self.sweep.figures:
            if figure.size is not None:
                return dict(figure.size)
        measured = [
            size for size in self.sweep.sizes if len(stats.at_size(self.ok, size))
        ]
        return dict(
            max(measured or self.sweep.sizes, key=lambda size: (*size.values(),))
        )

    @property
    def size_text(self) -> str:
        """That size as prose shows it; no-break spaces keep it in one piece."""
        size = self.size
        if len(set(size.values())) > 1:
            return ", ".join(
                f"{extent(name)}\u00a0=\u00a0{value}" for name, value in size.items()
            )
        names = [extent(name) for name in size]
        return "\u00a0=\u00a0".join([*names, size_label(size)])

    @cached_property
    def ok(self) -> DataFrame:
        """Rows with a result in the sweep's first regime, the only ones that may be shown as results."""
        return stats.ok_rows(self.timings, self.regime)

    @cached_property
    def unmeasured(self) -> list[tuple[Entry, dict[str, int]]]:
        """Variants and sizes of the sweep that no row is of, not even of a failure."""
        columns = ["variant", *self.sweep.problem.size_fields]
        measured = {*self.timings[columns].itertuples(index=False, name=None)}
        return [
            (entry, dict(size))
            for entry, size in self.sweep.cells
            if (entry.variant.id, *size.values()) not in measured
        ]

    @property
    def against_others(self) -> DataFrame:
        """Those rows but the reference's own: its ratio to itself says nothing."""
        return self.ok[self.ok["variant"] != self.ok["reference"]]

    @cached_property
    def here(self) -> DataFrame:
        """Rows with a result at the size that findings are about."""
        return stats.at_size(self.ok, self.size)

    @cached_property
    def pairs_here(self) -> DataFrame:
        """Rungs against their baselines with a result at that size in the sweep's first regime."""
        return stats.at_size(stats.ok_rows(self.pairs, self.regime), self.size)

    @cached_property
    def most_competitors(self) -> int:
        """How many variants at most have a result at one dtype and size and compute the same."""
        if self.ok.empty:
            return 0
        parameters = {
            name: stats.parameter(self.ok, name)
            for name in self.sweep.problem.parameters
        }
        place = ["dtype", *self.sweep.problem.size_fields, *parameters]
        groups = self.ok.assign(**parameters).groupby(place, dropna=False)
        return int(groups["variant"].nunique().max())

    @cached_property
    def fastest_by_size(self) -> DataFrame:
        """The fastest variant's row for each dtype at each size."""
        rows = self.against_others if len(self.against_others) else self.ok
        per = ["dtype", *self.sweep.problem.size_fields]
        groups = stats.contenders(rows, per).groupby(per, sort=False)
        return rows.loc[[stats.ranking(group).idxmax() for _, group in groups]]

    def drawn(self, figure: Figure, title: str = "") -> "FigureData":
        """The data of one of its figures, with the title that an answer gives it."""
        frames = (self.timings, self.resources, self.metrics, self.sessions, self.pairs)
        return FigureData(self.sweep, *frames, self.environment, figure, title)

    def against(self, row: TableRow) -> str:
        """What one row is timed against: of libraries the fastest."""
        over_kernel = self.sweep.reference.kernel
        return self.reference_name if over_kernel else str(row["reference"])

    @cached_property
    def _kernels(self) -> list[tuple[DataFrame, list[TableRow], list[str]]]:
        """Of each kernel its variants, their parameters, and those of them that a name needs."""
        kernels = []
        variants = self.timings.drop_duplicates("variant")
        for _, rows in variants.groupby("kernel", sort=False):
            params = [json.loads(text) for text in rows["params"]]
            kernels.append((rows, params, distinguishing(params)))
        return kernels

    def unnamed(self) -> tuple[list[str], bool]:
        """Parameters that change although no label needs them, and whether labels leave out defaults."""
        if self.has_rungs:
            return [], False
        unnamed = dict[str, None]()
        leave_out_defaults = False
        for _, params, needed in self._kernels:
            if len(needed) > MOST_NAMED:
                leave_out_defaults = True
                continue
            changing = stats.changing(params)
            unnamed |= dict.fromkeys(name for name in changing if name not in needed)
        return list(unnamed), leave_out_defaults

    @cached_property
    def names(self) -> dict[str, str]:
        """A short name for each variant: its rung, else the parameters that distinguish it.

        Where that takes many parameters, a name has the first of those and whatever is not the kernel's default; so
        does that of a kernel's only variant.
        """
        kernels = self.sweep.kernels
        labels = {}
        dtypes = dict(zip(self.timings["variant"], self.timings["dtype"], strict=True))
        for rows, every_params, needed in self._kernels:
            for row, params in zip(stats.records(rows), every_params, strict=True):
                kernel = row["kernel"]
                named = [name for name in params if name in needed]
                if not 0 < len(needed) <= MOST_NAMED:
                    axes = kernels[kernel].parameters if kernel in kernels else {}
                    usual = {name: axis.default for name, axis in axes.items()}
                    named = [
                        name
                        for name in params
                        if name in named[:1] or usual.get(name) != params[name]
                    ]
                label = _assigned(named, params)
                if len(self._kernels) > 1 or not label:
                    label = f"{kernel} {label}".strip()
                labels[row["variant"]] = row["rung"] or label
        for entry in self.sweep.entries:
            if entry.rung:
                labels.setdefault(entry.variant.id, entry.rung)
                dtypes[entry.variant.id] = entry.variant.dtype
        if len(self.sweep.dtypes) == 1:
            return labels
        return {name: f"{label} ({dtypes[name]})" for name, label in labels.items()}


class NoDataError(Exception):
    """A figure has nothing to show; the message says why."""


@dataclass(frozen=True, eq=False)
class FigureData(SweepData):
    """One figure's request and the frames of its sweep."""

    figure: Figure
    title: str = ""  # what an answer says that it shows

    @cached_property
    def size(self) -> dict[str, int]:
        """The size this figure shows: as asked, else the sweep's."""
        return dict(self.figure.size) if self.figure.size is not None else super().size

    @cached_property
    def in_table(self) -> DataFrame:
        """Rows `here` of kernels that have both parameters of the figure's axes."""
        rows = self.here
        for name in (self.figure.x, self.figure.y):
            rows = rows[stats.parameter(rows, name).notna()] if name else rows
        return rows

    @cached_property
    def best_by_place(self) -> DataFrame:
        """Of those the best at each place of a table, with the place's parameters as `hue`, `y` and `x`."""
        axes = {"hue": self.figure.hue, "y": self.figure.y, "x": self.figure.x}
        rows = self.in_table
        for axis, name in axes.items():
            rows = rows.assign(**{axis: stats.parameter(rows, name) if name else ""})
        rows = stats.contenders(rows, [*axes])
        return rows.loc[rows.groupby([*axes])["speedup"].idxmax()]

    def some(self, rows: DataFrame, what: str = "") -> DataFrame:
        """`rows`, or NoDataError with the statuses that explain their absence; they are a `what`, or a result."""
        if len(rows):
            return rows
        bad = stats.failures(self.timings)["status"].value_counts()
        counts = ", ".join(f"{count} {status}" for status, count in bad.items())
        why = f" ({counts})" if counts else "; the sweep has not been measured"
        raise NoDataError(f"no {what or f'result at {self.size_text}'}{why}")

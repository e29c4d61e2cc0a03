"""The tables of one sweep with what reading them needs: results, labels, the size that prose is about."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pandas import DataFrame

from ladder.model.cell import size_label
from ladder.model.schemas import SIZE_COLUMNS, TableRow
from ladder.model.sweep import Entry, Figure, Sweep
from ladder.results import statistics as stats

MOST_NAMED = 6  # parameters that a name is made of at most where all are named, whatever their values


def distinguishing(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Parameters that distinguish variants; of those that change together the first is enough."""

    def kinds(names: Iterable[str]) -> int:
        return len({tuple(params.get(name) for name in names) for params in variants})

    kept = stats.changing(variants)
    for name in reversed(kept.copy()):
        others = [other for other in kept if other != name]
        kept = others if kinds(others) == kinds(kept) else kept
    return kept


def shown_value(name: str, params: Mapping[str, Any]) -> str:
    """A parameter's value as pages show it: rows that are padded by no word are plain."""
    return (
        "plain"
        if name == "tiles" and params[name] == "padded" and params.get("pad") == 0
        else str(params[name])
    )


def plain(rung: str) -> str:
    """The name of a rung without its number, which no tile's size is."""
    return re.sub(r"^\d{1,2}[a-z]?\s+(?!x )", "", rung)


def extent(name: str) -> str:
    """M, N and K, as matrices have them; else a word as it is."""
    return name.upper() if name in ("m", "n", "k") else name


def of_sweep(
    sweep: Sweep, frames: Mapping[str, DataFrame], environment: Mapping[str, Any]
) -> "SweepData":
    """What the tables of a run say of one sweep."""
    named = ("timings", "resources", "metrics", "sessions")
    own = {
        table: frames[table][frames[table]["sweep"] == sweep.name] for table in named
    }
    rows = own.pop("timings")
    return SweepData(
        sweep,
        stats.against_references(rows),
        **own,
        pairs=rows[rows["baseline"].notna()],
        environment=environment,
    )


class Origin:
    """What `environment`, the document of a run, says of where its timings come from."""

    environment: Mapping[str, Any]

    @property
    def source(self) -> Mapping[str, Any]:
        """Environment of the run the timings come from."""
        return self.environment.get("published") or self.environment

    @property
    def gpu(self) -> Mapping[str, Any]:
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
    environment: Mapping[str, Any]

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
        own = [
            entry.variant.params
            for entry in self.sweep.entries
            if entry.variant.kernel is reference.kernel
        ]
        pads = {params.get("pad") for params in own}
        given = {"pad": pads.pop() if len(pads) == 1 else None, **reference.params}
        fixed = ", ".join(
            f"{name}={shown_value(name, given)}" for name in reference.params
        )
        return f"{reference.kernel.name} ({fixed})" if fixed else reference.kernel.name

    @cached_property
    def own_baselines(self) -> dict[str, str]:
        """Of variants that have another baseline than most of a sweep what sets theirs apart, such as min_blocks=1."""
        found = {
            entry.variant.id: self.sweep.reference.variant_for(entry.variant)
            for entry in self.sweep.entries
        }
        params = {
            variant: tuple(one.params.items()) for variant, one in found.items() if one
        }
        usual, number = (
            Counter(params.values()).most_common(1)[0] if params else ((), 0)
        )
        if 2 * number <= len(params):
            return {}
        apart = {variant: dict(own) for variant, own in params.items() if own != usual}
        return {
            variant: ", ".join(
                f"{name}={shown_value(name, own)}"
                for name in own
                if (name, own[name]) not in usual
            )
            for variant, own in apart.items()
        }

    @cached_property
    def own_references(self) -> bool:
        """Whether baselines differ, so that the largest speed-up need not be the fastest kernel."""
        return (
            self.sweep.reference.kernel is not None
            and self.ok["reference"].nunique() > 1
        )

    @property
    def fixed_in_reference(self) -> str:
        """transpose_a=0: the parameters that the reference's kernel has whatever the variant has."""
        return ", ".join(
            f"{name}={value}" for name, value in self.sweep.reference.params.items()
        )

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
            max(measured or self.sweep.sizes, key=lambda size: tuple(size.values()))
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
        known = {
            (row["variant"], *stats.size_of(row).values())
            for row in stats.records(self.timings)
        }
        asked = [(entry, dict(size)) for entry, size in self.sweep.cells]
        return [
            (entry, size)
            for entry, size in asked
            if (entry.variant.id, *size.values()) not in known
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
        same = {
            name: stats.parameter(self.ok, name)
            for name in self.sweep.problem.parameters
        }
        per = ["dtype", *SIZE_COLUMNS, *same]
        return int(
            self.ok.assign(**same).groupby(per, dropna=False)["variant"].nunique().max()
            if len(self.ok)
            else 0
        )

    @cached_property
    def fastest_by_size(self) -> DataFrame:
        """The fastest variant's row for each dtype at each size."""
        rows = self.against_others if len(self.against_others) else self.ok
        per = ["dtype", *(name for name in SIZE_COLUMNS if rows[name].notna().any())]
        groups = stats.contenders(rows, per).groupby(per, sort=False)
        return rows.loc[[stats.ranking(own).idxmax() for _, own in groups]]

    def drawn(self, figure: Figure, title: str = "") -> "FigureData":
        """The data of one of its figures, with the title that an answer gives it."""
        known = (self.timings, self.resources, self.metrics, self.sessions, self.pairs)
        return FigureData(self.sweep, *known, self.environment, figure, title)

    def against(self, row: TableRow) -> str:
        """What one row is timed against: of libraries the fastest."""
        return (
            self.reference_name
            if self.sweep.reference.kernel
            else str(row["reference"])
        )

    @cached_property
    def _kernels(
        self,
    ) -> list[tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]]:
        """Of each kernel its variants, their parameters, and those of them that a name needs."""
        found = []
        for _, variants in self.timings.drop_duplicates("variant").groupby(
            "kernel", sort=False
        ):
            params = [json.loads(text) for text in variants["params"]]
            found.append((stats.records(variants), params, distinguishing(params)))
        return found

    def unnamed(self) -> tuple[list[str], bool]:
        """Parameters that change although no label needs them, and whether labels leave out defaults."""
        kernels = [] if self.has_rungs else self._kernels
        named = [
            (params, needed)
            for _, params, needed in kernels
            if len(needed) <= MOST_NAMED
        ]
        found = [
            name
            for params, needed in named
            for name in stats.changing(params)
            if name not in needed
        ]
        return list(dict.fromkeys(found)), len(named) < len(kernels)

    @cached_property
    def names(self) -> dict[str, str]:
        """A short name for each variant: its rung, else the parameters that distinguish it.

        Where that takes many parameters, a name has the first of those and whatever is not the kernel's default; so
        does that of a kernel's only variant.
        """
        several = len(self.sweep.dtypes) > 1
        rungs = [
            (entry.variant, entry.rung) for entry in self.sweep.entries if entry.rung
        ]
        names = {
            one.id: rung + (f" ({one.dtype})" if several else "") for one, rung in rungs
        }
        axes = {
            entry.variant.kernel.name: entry.variant.kernel.parameters
            for entry in self.sweep.entries
        }
        for variants, params, needed in self._kernels:
            for row, given in zip(variants, params, strict=True):
                named = [name for name in given if name in needed]
                if not 0 < len(needed) <= MOST_NAMED:
                    usual = {
                        name: axis.default
                        for name, axis in axes.get(row["kernel"], {}).items()
                    }
                    special = {
                        name
                        for name, value in given.items()
                        if usual.get(name) != value
                    }
                    named = [name for name in given if name in {*named[:1], *special}]
                label = ", ".join(
                    f"{name}={shown_value(name, given)}" for name in named
                )
                if len(self._kernels) > 1 or not label:
                    label = f"{row['kernel']} {label}".strip()
                label = row["rung"] or label
                names[row["variant"]] = label + (
                    f" ({row['dtype']})" if several else ""
                )
        return names


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
        rows = rows.assign(
            **{
                of: stats.parameter(rows, name) if name else ""
                for of, name in axes.items()
            }
        )
        candidates = stats.contenders(rows, [*axes])
        return candidates.loc[candidates.groupby([*axes])["speedup"].idxmax()]

    def some(self, rows: DataFrame, what: str = "") -> DataFrame:
        """`rows`, or NoDataError with the statuses that explain their absence; they are a `what`, or a result."""
        if len(rows):
            return rows
        bad = self.timings[self.timings["status"] != "ok"]["status"].value_counts()
        counts = ", ".join(f"{count} {status}" for status, count in bad.items())
        why = f" ({counts})" if counts else "; the sweep has not been measured"
        raise NoDataError(f"no {what or f'result at {self.size_text}'}{why}")

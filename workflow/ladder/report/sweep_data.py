"""The tables of one sweep with what reading them needs: results, labels, the size to speak about."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.model.cell import size_label
from ladder.model.sweep import Sweep
from ladder.results import statistics as stats

MOST_TELLING = 6  # parameters that a name is made of at most where all are named, whatever their values


def changing(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Parameters that change from variant to variant."""
    every = dict.fromkeys(name for params in variants for name in params)
    return [name for name in every if len({params.get(name) for params in variants}) > 1]


def _telling(variants: Sequence[Mapping[str, Any]]) -> set[str]:
    """Parameters that tell variants apart; of those that change together the first is enough."""

    def kinds(names: Iterable[str]) -> int:
        return len({tuple(params.get(name) for name in names) for params in variants})

    kept = changing(variants)
    for name in reversed(kept.copy()):
        others = [other for other in kept if other != name]
        kept = others if kinds(others) == kinds(kept) else kept
    return set(kept)


def _apart(rows: pd.DataFrame) -> dict[str, tuple[list[dict[str, Any]], set[str]]]:
    """By kernel, the parameters of its variants among `rows`, and the names of those that tell them apart."""
    kernels = rows.drop_duplicates("variant").groupby("kernel", sort=False)["params"]
    params = {str(kernel): [stats.params_of(text) for text in given] for kernel, given in kernels}
    return {kernel: (given, _telling(given)) for kernel, given in params.items()}


def of_sweep(sweep: Sweep, frames: Mapping[str, pd.DataFrame], environment: Mapping[str, Any]) -> "SweepData":
    """What the tables of a run say of one sweep."""
    own = {table: frames[table][frames[table]["sweep"] == sweep.name] for table in ("timings", "metrics")}
    variants = frames["resources"]["variant"].isin([variant.id for variant in sweep.variants])
    return SweepData(sweep, **own, resources=frames["resources"][variants], environment=environment)


@dataclass(frozen=True)
class SweepData:
    """A sweep and its frames; `environment` is the run's."""

    sweep: Sweep
    timings: pd.DataFrame
    resources: pd.DataFrame
    metrics: pd.DataFrame
    environment: Mapping[str, Any]

    @property
    def regime(self) -> str:
        """The regime to speak about: the sweep's first."""
        return self.sweep.regimes[0]

    @property
    def source(self) -> Mapping[str, Any]:
        """Environment of the run the timings come from."""
        return self.environment.get("published") or self.environment

    @property
    def gpu(self) -> Mapping[str, Any]:
        """The GPU the timings come from, as far as it is known."""
        return self.source.get("gpu") or {}

    @property
    def paired_with_kernel(self) -> bool:
        """Whether cells are timed against a kernel of the catalogue rather than a library."""
        return self.sweep.reference.kernel is not None

    @property
    def over_shapes(self) -> bool:
        """Whether the sweep is about the fastest at each of many shapes, and their mean, not about variants at one."""
        return any(asked.kind == "shapes" for asked in self.sweep.figures)

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
        fixed = ", ".join(f"{name}={value}" for name, value in reference.params.items())
        return f"{reference.kernel.name} ({fixed})" if fixed else reference.kernel.name

    @property
    def size(self) -> dict[str, int]:
        """The size to speak about: the one a figure of the sweep shows, else the largest with a result."""
        for asked in self.sweep.figures:
            if asked.size is not None:
                return dict(asked.size)
        measured = [size for size in self.sweep.sizes if len(stats.at_size(self.ok(), size))]
        return dict(max(measured or self.sweep.sizes, key=lambda size: tuple(size.values())))

    @property
    def size_text(self) -> str:
        """That size as prose shows it; no-break spaces keep it in one piece."""
        size = self.size
        if len(set(size.values())) > 1:
            return ", ".join(f"{name.upper()}\u00a0=\u00a0{value}" for name, value in size.items())
        names = ["elements"] if "elements" in size else [name.upper() for name in size]
        return "\u00a0=\u00a0".join([*names, size_label(size)])

    def ok(self) -> pd.DataFrame:
        """Rows with a result in the regime to speak about, the only ones that may be shown as such."""
        return stats.ok_rows(self.timings, self.regime)

    def against_others(self) -> pd.DataFrame:
        """Those rows but the reference's own: its ratio to itself says nothing."""
        rows = self.ok()
        return rows[rows["variant"] != rows["reference"]]

    def here(self) -> pd.DataFrame:
        """Rows with a result at the size to speak about."""
        return stats.at_size(self.ok(), self.size)

    def unnamed(self, rows: pd.DataFrame) -> tuple[list[str], bool]:
        """Parameters that change in `rows` although no label needs them, and whether labels leave out defaults."""
        kernels = list(_apart(rows[rows["rung"].isna()]).values())
        named = [(given, told) for given, told in kernels if len(told) <= MOST_TELLING]
        found = dict.fromkeys(name for given, told in named for name in changing(given) if name not in told)
        return list(found), len(named) < len(kernels)

    def labels(self, rows: pd.DataFrame | None = None, brief: bool = False) -> dict[str, str]:
        """A short name for each variant of `rows`, or of the sweep: its rung, else what tells it from the others.

        Where it takes many parameters to tell them apart, a name has the first of those and whatever is not the
        kernel's default; with `brief` it never has more, nor the dtype.
        """
        rows = self.timings if rows is None else rows
        labels, apart = {}, _apart(rows)
        kernels = {entry.variant.kernel.name: entry.variant.kernel.parameters for entry in self.sweep.entries}
        for row in stats.records(rows.drop_duplicates("variant")):
            kernel, params = row["kernel"], stats.params_of(row["params"])
            named = [axis for axis in params if axis in apart[kernel][1]]
            crowded = len(named) > MOST_TELLING
            if crowded or brief:
                usual = {axis: given.default for axis, given in kernels.get(kernel, {}).items()}
                special = {axis for axis, value in params.items() if usual.get(axis) != value}
                named = [axis for axis in (params if crowded else named) if axis in {*named[:1], *special}]
            differing = ", ".join(f"{axis}={params[axis]}" for axis in named)
            plain = kernel if len(apart) > 1 or not differing else ""
            label = f"{plain} {differing}".strip() if pd.isna(row["rung"]) else str(row["rung"])
            dtype = "" if brief or len(self.sweep.dtypes) == 1 else f" ({row['dtype']})"
            labels[row["variant"]] = label + dtype
        return labels

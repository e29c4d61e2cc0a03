"""The tables of one sweep with what reading them needs: results, labels, the size to speak about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.model.sweep import Sweep
from ladder.results.statistics import at_size, ok_rows, params_of, records, size_label

MOST_TELLING = 6
"""Parameters that a name is made of at most where all of them are named, whatever their values."""


def _telling(variants: Sequence[Mapping[str, Any]]) -> set[str]:
    """Parameters that tell variants apart; of those that change together the first is enough."""

    def kinds(names: Iterable[str]) -> int:
        return len({tuple(params.get(name) for name in names) for params in variants})

    every = dict.fromkeys(name for params in variants for name in params)
    kept = [name for name in every if kinds([name]) > 1]
    for name in reversed(kept.copy()):
        others = [other for other in kept if other != name]
        if kinds(others) == kinds(kept):
            kept = others
    return set(kept)


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
        published: Mapping[str, Any] | None = self.environment.get("published")
        return published or self.environment

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
        shown = next((figure.size for figure in self.sweep.figures if figure.size is not None), None)
        if shown is not None:
            return dict(shown)
        sizes = [dict(size) for size in self.sweep.sizes]
        measured = [size for size in sizes if len(at_size(self.ok(), size))] or sizes
        return max(measured, key=lambda size: [float(value) for value in size.values()])

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
        return ok_rows(self.timings, self.regime)

    def unnamed(self, rows: pd.DataFrame) -> list[str]:
        """Parameters that change from variant to variant of `rows` although no label needs them."""
        found: dict[str, None] = {}
        for given in self._params(rows[rows["rung"].isna()]).values():
            told = _telling(given)
            for name in dict.fromkeys(name for params in given for name in params):
                several = len({params.get(name) for params in given}) > 1
                if several and name not in told and len(told) <= MOST_TELLING:
                    found[name] = None
        return list(found)

    def leaves_out_defaults(self, rows: pd.DataFrame) -> bool:
        """Whether a label of `rows` leaves out what is the kernel's default."""
        given = self._params(rows[rows["rung"].isna()])
        return any(len(_telling(own)) > MOST_TELLING for own in given.values())

    def labels(self, rows: pd.DataFrame) -> dict[str, str]:
        """A short name for each variant of `rows`: its rung, else what tells it from the others.

        Where it takes many parameters to tell them apart, a name has the first of those and whatever is not the
        kernel's default.
        """
        found = {row["variant"]: row for row in records(rows)}
        apart = {kernel: _telling(given) for kernel, given in self._params(rows).items()}
        defaults = self._defaults
        several = len(apart) > 1
        labels = {}
        for name, row in found.items():
            telling, params = apart[row["kernel"]], params_of(row["params"])
            if len(telling) > MOST_TELLING:
                first = next(axis for axis in params if axis in telling)
                given = defaults.get(row["kernel"], {})
                named = [axis for axis, value in params.items() if axis == first or given.get(axis) != value]
            else:
                named = [axis for axis in params if axis in telling]
            differing = ", ".join(f"{axis}={params[axis]}" for axis in named)
            plain = row["kernel"] if several or not differing else ""
            label = f"{plain} {differing}".strip() if pd.isna(row["rung"]) else str(row["rung"])
            labels[name] = label if len(self.sweep.dtypes) == 1 else f"{label} ({row['dtype']})"
        return labels

    @property
    def _defaults(self) -> dict[str, dict[str, Any]]:
        """Defaults of the sweep's kernels' parameters, by kernel and name."""
        kernels = {entry.variant.kernel.name: entry.variant.kernel for entry in self.sweep.entries}
        return {
            name: {axis: given.default for axis, given in kernel.parameters.items()}
            for name, kernel in kernels.items()
        }

    def _params(self, rows: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
        """The parameters of every variant of `rows`, by kernel."""
        found = {row["variant"]: row for row in records(rows)}
        kernels: dict[str, list[dict[str, Any]]] = {}
        for row in found.values():
            kernels.setdefault(row["kernel"], []).append(params_of(row["params"]))
        return kernels

"""The tables of one sweep with what reading them needs: results, labels, the size to speak about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.statistics import at_size, ok_rows, params_of, records, size_label
from ladder.sweeps import Sweep


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
        return self.sweep.references[0].kernel is not None

    @property
    def reference_name(self) -> str:
        """What cells are timed against, in few words: the libraries, or the kernel with the parameters it fixes."""
        first = self.sweep.references[0]
        if first.kernel is None:
            names = [reference.library for reference in self.sweep.references]
            return names[0] if len(names) == 1 else f"the faster of {', '.join(names[:-1])} and {names[-1]}"
        fixed = ", ".join(f"{name}={value}" for name, value in first.params)
        return f"{first.kernel.name} ({fixed})" if fixed else first.kernel.name

    @property
    def size(self) -> dict[str, int]:
        """The size to speak about: the one a figure of the sweep shows, else the largest with a result."""
        shown = next((figure.at for figure in self.sweep.figures if figure.at is not None), None)
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

    def ok(self, regime: str = "cold") -> pd.DataFrame:
        """Rows with a result, the only ones that may be shown as such.

        A sweep that is measured in another regime only gives the rows of that one.
        """
        rows = ok_rows(self.timings, regime)
        return (
            rows
            if len(rows) or regime in self.sweep.regimes
            else ok_rows(self.timings, self.sweep.regimes[0])
        )

    def unnamed(self, rows: pd.DataFrame) -> list[str]:
        """Parameters that change from variant to variant of `rows` although no label needs them."""
        found: dict[str, None] = {}
        without_rung = rows[rows["rung"].isna()].drop_duplicates("variant")
        for _, own in without_rung.groupby("kernel"):
            given = [params_of(text) for text in own["params"]]
            told = _telling(given)
            for name in dict.fromkeys(name for params in given for name in params):
                if name not in told and len({params.get(name) for params in given}) > 1:
                    found[name] = None
        return list(found)

    def labels(self, rows: pd.DataFrame) -> dict[str, str]:
        """A short name for each variant of `rows`: its rung, else what tells it from the others."""
        found = {row["variant"]: row for row in records(rows)}
        kernels: dict[str, list[dict[str, Any]]] = {}
        for row in found.values():
            kernels.setdefault(row["kernel"], []).append(params_of(row["params"]))
        apart = {kernel: _telling(given) for kernel, given in kernels.items()}
        several = len(kernels) > 1
        labels = {}
        for name, row in found.items():
            differing = ", ".join(
                f"{axis}={value}"
                for axis, value in params_of(row["params"]).items()
                if axis in apart[row["kernel"]]
            )
            plain = row["kernel"] if several or not differing else ""
            label = f"{plain} {differing}".strip() if pd.isna(row["rung"]) else str(row["rung"])
            labels[name] = label if len(self.sweep.dtypes) == 1 else f"{label} ({row['dtype']})"
        return labels

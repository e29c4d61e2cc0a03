"""Which configuration of a kernel suits a shape: `params: best` of a sweep, chosen from another sweep's timings.

At a size of that sweep it is the fastest there. Elsewhere a configuration is taken to cost a start and a time for each
unit of the kernel's `work` (rounds of tiles on the GPU x steps of K, say), both fitted to the sizes it was measured at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder import documents
from ladder.catalog import Kernel, ParamValue, Size, Variant
from ladder.errors import LadderError, refuse
from ladder.expressions import evaluate, refuse_unknown
from ladder.problems import problem_named

if TYPE_CHECKING:
    import pandas as pd

    from ladder.sweeps import Entry, Sweep


@dataclass(frozen=True)
class Configuration:
    """Parameters, what they cost, and where the sweep tries them: an expression over them and the size, or nothing."""

    params: Mapping[str, ParamValue]
    start_us: float
    us_per_work: float
    where: str = ""


@dataclass(frozen=True)
class Choices:
    """What was fastest at each measured size, and what every configuration costs elsewhere."""

    path: Path
    kernel: Kernel
    fastest: tuple[tuple[Size, Mapping[str, ParamValue]], ...]
    configurations: tuple[Configuration, ...]

    def check(self) -> None:
        """Raises LadderError for a size, parameter or expression that the kernel cannot have."""
        fields = problem_named(self.kernel.problem).size_fields
        dtype, layout = next(iter(self.kernel.dtypes)), self.kernel.layouts[0]
        names = dict.fromkeys(fields, 1)
        for index, (size, params) in enumerate(self.fastest):
            if size.keys() != set(fields):
                raise refuse(self.path, f"fastest[{index}].size", dict(size), ", ".join(fields))
            self._variant(params, dtype, layout, f"fastest[{index}].")
        for index, one in enumerate(self.configurations):
            variant = self._variant(one.params, dtype, layout, f"configurations[{index}].")
            try:
                refuse_unknown(one.where or "0", variant.names(names))
            except LadderError as error:
                raise LadderError(f"{self.path}: configurations[{index}].where: {error}") from error

    def at(self, size: Size, dtype: str, layout: str | None) -> Variant:
        """The variant for `size`: the fastest where it was measured, else the least time expected (us).

        Of those that support `size` the ones are compared that the sweep would try there, or all where there are none.
        What the kernel's constraints exclude, since they changed or for another layout, is passed over. Raises
        LadderError where none supports it.
        """
        for index, (measured, params) in enumerate(self.fastest):
            if measured == size:
                variant = self._variant(params, dtype, layout, f"fastest[{index}].")
                if variant.excluded() is None and variant.unsupported(size) is None:
                    return variant
        variants = [
            (self._variant(one.params, dtype, layout, f"configurations[{index}]."), one)
            for index, one in enumerate(self.configurations)
        ]
        supported = [
            pair for pair in variants if pair[0].excluded() is None and pair[0].unsupported(size) is None
        ]
        if not supported:
            raise LadderError(f"{self.path}: no configuration supports {dict(size)}")
        tried = [
            (variant, one)
            for variant, one in supported
            if not one.where or evaluate(one.where, variant.names(size))
        ]
        return min(
            tried or supported, key=lambda pair: pair[1].start_us + pair[1].us_per_work * _work(pair[0], size)
        )[0]

    def _variant(
        self, params: Mapping[str, ParamValue], dtype: str, layout: str | None, where: str
    ) -> Variant:
        return self.kernel.variant(params, dtype, layout, where=where, file=self.path, excluded=True)


def _work(variant: Variant, size: Size) -> float:
    assert variant.kernel.work is not None
    return float(evaluate(variant.kernel.work, variant.names(size)))


def load_choices(path: Path, kernel: Kernel) -> Choices:
    """Read the file that `ladder choose` wrote for `kernel`. Raises LadderError for the first mistake."""
    if kernel.work is None:
        raise LadderError(f"{kernel.path}: the field 'work' is missing, which `params: best` goes by")
    if not path.is_file():
        raise LadderError(f"{path}: cannot be read: `ladder choose` writes it from a sweep's timings")
    document = documents.load(path, "choices")
    if document["kernel"] != kernel.name:
        raise refuse(path, "kernel", document["kernel"], kernel.name)
    fastest = tuple((one["size"], one["params"]) for one in document["fastest"])
    choices = Choices(
        path, kernel, fastest, tuple(Configuration(**one) for one in document["configurations"])
    )
    choices.check()
    return choices


def choose(sweep: Sweep, timings: pd.DataFrame, source: Mapping[str, Any]) -> str:
    """The document for load_choices, as text: what `timings` say of the variants of `sweep`, of one kernel and dtype.

    A time is the reference's median at the size (us) / the speed-up, which is paired. `source` says where the timings
    are from. Raises LadderError where a size of the sweep has no result, or no configuration has results at two sizes.
    """
    import yaml

    kernels = {entry.variant.kernel.name for entry in sweep.entries}
    if len(kernels) != 1 or len(sweep.dtypes) != 1:
        raise LadderError(f"{sweep.path}: a choice is between configurations of one kernel in one dtype")
    kernel = sweep.entries[0].variant.kernel
    if kernel.work is None:
        raise LadderError(f"{kernel.path}: the field 'work' is missing, which a choice goes by")
    entries = {entry.variant.id: entry for entry in sweep.entries}
    rows = timings[(timings["sweep"] == sweep.name) & (timings["status"] == "ok")]
    rows = rows[rows["regime"] == sweep.regimes[0]]
    fastest = []
    times: dict[str, list[tuple[Size, float]]] = {name: [] for name in entries}
    for size in sweep.sizes:
        asked = [entry.variant.id for entry in sweep.entries if entry.asks(size)]
        here = rows[rows["variant"].isin(asked)]
        for name, value in size.items():
            here = here[here[name] == value]
        if here.empty:
            raise LadderError(f"{sweep.path}: no result at {dict(size)} to choose from")
        best = here["variant"].iloc[int(here["speedup"].argmax())]
        fastest.append({"size": dict(size), "params": _changed(entries[best].variant)})
        reference = float(here["reference_median_us"].median())
        for name, speedup in zip(here["variant"], here["speedup"], strict=True):
            times[name].append((size, reference / speedup))
    configurations = [
        {**_fitted(entries[name].variant, own), **_where(entries[name])}
        for name, own in times.items()
        if len(own) >= 2
    ]
    if not configurations:
        raise LadderError(f"{sweep.path}: no configuration has results at two sizes, which a choice goes by")
    document = {
        "kernel": kernel.name,
        "source": dict(source),
        "fastest": fastest,
        "configurations": configurations,
    }
    body = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=118)
    return f"# Written by `ladder choose` from the timings of {sweep.name}: do not edit.\n{body}"


def _fitted(variant: Variant, times: list[tuple[Size, float]]) -> dict[str, Any]:
    """Start and slope (us) of least squares, neither negative, of the errors relative to the time at each size."""
    import numpy as np
    from scipy.optimize import nnls

    us = np.array([time for _, time in times])
    work = np.array([_work(variant, size) for size, _ in times])
    unit = work.max()  # the expression's unit is the kernel's own, and may be far from a start's
    (start, slope), _ = nnls(np.stack([1 / us, work / unit / us], axis=1), np.ones(len(us)))
    return {
        "start_us": float(f"{start:.5g}"),
        "us_per_work": float(f"{slope / unit:.5g}"),
        "params": _changed(variant),
    }


def _where(entry: Entry) -> dict[str, str]:
    return {"where": entry.conditions} if entry.conditions else {}


def _changed(variant: Variant) -> dict[str, ParamValue]:
    """Parameters that differ from their defaults."""
    parameters = variant.kernel.parameters
    return {name: value for name, value in variant.params.items() if value != parameters[name].default}

"""Which configuration of a kernel suits a shape: `params: best` of a sweep, chosen from another sweep's timings.

Every size of that sweep stands for a class of shapes. Within a class a configuration's time is taken to grow as the
kernel's `work` does (rounds of tiles on the GPU x steps of K, say), so that shapes between the measured ones are
served too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ladder import documents
from ladder.catalog import Kernel, ParamValue, Size, Variant
from ladder.errors import LadderError, refuse
from ladder.expressions import evaluate

if TYPE_CHECKING:
    import pandas as pd

    from ladder.sweeps import Sweep

MOST = 8
"""Configurations kept of a class: those that a near shape with other rounds of tiles may want."""


@dataclass(frozen=True)
class Configuration:
    """Parameters, and the time they took relative to the reference's at the size of their class."""

    params: Mapping[str, ParamValue]
    time: float


@dataclass(frozen=True)
class Choices:
    """Configurations of a kernel by class of shapes, the fastest of each class first."""

    path: Path
    kernel: Kernel
    classes: tuple[tuple[Mapping[str, int], tuple[Configuration, ...]], ...]

    def at(self, size: Size, dtype: str, layout: str | None) -> Variant:
        """The variant for `size`: the least time expected of those of the nearest class (in octaves) that support it.

        Raises LadderError where none does.
        """
        near, configurations = min(
            self.classes, key=lambda one: sum(math.log2(size[name] / one[0][name]) ** 2 for name in size)
        )
        where = f"{dict(near)}: "
        variants = [
            (self.kernel.variant(one.params, dtype, layout, where=where, file=self.path), one.time)
            for one in configurations
        ]
        expected = [
            (time * _work(variant, size) / _work(variant, near), place, variant)
            for place, (variant, time) in enumerate(variants)
            if variant.unsupported(size) is None
        ]
        if not expected:
            raise LadderError(
                f"{self.path}: no configuration of the class {dict(near)} supports {dict(size)}"
            )
        return min(expected, key=lambda one: one[:2])[2]


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
    classes = tuple(
        (one["size"], tuple(Configuration(entry["params"], entry["time"]) for entry in one["configurations"]))
        for one in document["classes"]
    )
    return Choices(path, kernel, classes)


def choose(sweep: Sweep, timings: pd.DataFrame, source: Mapping[str, Any]) -> str:
    """The document for load_choices, as text: what `timings` say of the variants of `sweep`, of one kernel and dtype.

    `source` says where the timings are from. Raises LadderError where a size of the sweep has no result.
    """
    import yaml

    kernels = {entry.variant.kernel.name for entry in sweep.entries}
    if len(kernels) != 1 or len(sweep.dtypes) != 1:
        raise LadderError(f"{sweep.path}: a choice is between configurations of one kernel in one dtype")
    kernel = sweep.entries[0].variant.kernel
    if kernel.work is None:
        raise LadderError(f"{kernel.path}: the field 'work' is missing, which a choice goes by")
    rows = timings[(timings["sweep"] == sweep.name) & (timings["status"] == "ok")]
    rows = rows[rows["regime"] == sweep.regimes[0]]
    variants = {entry.variant.id: entry.variant for entry in sweep.entries}
    classes = []
    for size in sweep.sizes:
        here = rows[rows["variant"].isin(list(variants))]
        for name, value in size.items():
            here = here[here[name] == value]
        if here.empty:
            raise LadderError(f"{sweep.path}: no result at {dict(size)} to choose from")
        fastest = here.sort_values("speedup", ascending=False).head(MOST)
        configurations = [
            {
                "time": round(1 / speedup, 4),
                "params": {
                    name: value
                    for name, value in variants[variant].params.items()
                    if value != kernel.parameters[name].default
                },
            }
            for variant, speedup in zip(fastest["variant"], fastest["speedup"], strict=True)
        ]
        classes.append({"size": dict(size), "configurations": configurations})
    document = {"kernel": kernel.name, "source": dict(source), "classes": classes}
    body = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=118)
    return f"# Written by `ladder choose` from the timings of {sweep.name}: do not edit.\n{body}"

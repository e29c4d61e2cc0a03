"""The measuring plan of a sweep: every cell with its launch geometry worked out, as JSON a worker can follow.

The plan holds only what a measurement depends on, so that rewording a kernel's description re-measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ladder.catalog import Argument, Variant
from ladder.config import Config
from ladder.sweeps import Cell, Reference, Sweep

PROTOCOL = 2
"""Version of the measuring protocol: raise it when the way of measuring changes, and every cell is measured anew."""

_CLUSTERS_FROM = 90


def arch_number(arch: str) -> int:
    """90 for sm_90 and sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("a"))


def runs_on(minimum: str, arch: str) -> bool:
    """Whether a kernel written for `minimum` may run on `arch`; sm_90a code runs on sm_90a alone."""
    if minimum.endswith("a"):
        return arch == minimum
    return arch_number(arch) >= arch_number(minimum)


def _argument(argument: Argument, variant: Variant, size: Mapping[str, int]) -> dict[str, Any]:
    from ladder.expressions import evaluate_int

    if argument.kind == "pointer":
        return {"pointer": argument.name}
    if argument.kind == "scalar":
        names = variant.names(size)
        if argument.name in names:
            return {"value": names[argument.name], "type": argument.type}
        return {"scalar": argument.name, "type": argument.type}
    box = [evaluate_int(extent, variant.names(size)) for extent in argument.box]
    return {
        "tensor_map": argument.name,
        "box": box,
        "swizzle": argument.swizzle,
        "l2_promotion": variant.params.get(argument.l2_promotion, argument.l2_promotion),
    }


def _launch(variant: Variant, size: Mapping[str, int]) -> dict[str, Any]:
    geometry = variant.geometry(size)
    return {
        "variant": variant.id,
        "params": dict(variant.params),
        "grid": geometry.grid,
        "block": geometry.block,
        "cluster": geometry.cluster,
        "shared_bytes": geometry.shared_bytes,
        "arguments": [_argument(argument, variant, size) for argument in variant.kernel.arguments],
    }


def _reference(reference: Reference, variant: Variant, size: Mapping[str, int]) -> dict[str, Any]:
    if reference.kernel is None:
        return {"library": reference.library}
    return _launch(reference.variant_for(variant), size)


def _cell(sweep: Sweep, cell: Cell, arch: str) -> dict[str, Any]:
    variant = cell.variant
    row: dict[str, Any] = {
        "variant": variant.id,
        "kernel": variant.kernel.name,
        "dtype": variant.dtype,
        "layout": variant.layout,
        "size": dict(cell.size),
    }
    if not runs_on(variant.kernel.min_arch, arch):
        return row | {"unsupported": f"needs {variant.kernel.min_arch}, the device is {arch}"}
    if (reason := cell.unsupported) is not None:
        return row | {"unsupported": reason}
    launch = _launch(variant, cell.size)
    if launch["cluster"] and arch_number(arch) < _CLUSTERS_FROM:
        return row | {"unsupported": f"clusters of blocks need sm_{_CLUSTERS_FROM}, the device is {arch}"}
    row["launch"] = launch
    row["references"] = [_reference(reference, variant, cell.size) for reference in sweep.references]
    return row


def plan_sweep(sweep: Sweep, config: Config, arch: str) -> dict[str, Any]:
    """The plan of one sweep on `arch`."""
    settings = config.measure
    problem = sweep.problem
    return {
        "sweep": sweep.name,
        "problem": problem.name,
        "protocol": PROTOCOL,
        "arch": arch,
        "regimes": list(sweep.regimes),
        "settings": {
            "precision": sweep.precision or settings.precision,
            "min_pairs": settings.min_pairs,
            "max_pairs": settings.max_pairs,
            "cell_seconds": settings.cell_seconds,
            "warm_below_us": settings.warm_below_us,
            "lt_heuristics": settings.lt_heuristics,
            "seed": settings.seed,
        },
        "counter_groups": list(sweep.counter_groups),
        "counter_sizes": [dict(size) for size in sweep.counter_sizes],
        "counter_variants": [variant.id for variant in sweep.counter_variants],
        "cells": [_cell(sweep, cell, arch) for cell in sweep.cells()],
    }


def write_plan(plan: Mapping[str, Any], path: Path) -> None:
    """Write a plan with one cell a line, so that a difference between two plans reads well."""
    from ladder.tables import replace_file

    head = {key: value for key, value in plan.items() if key != "cells"}
    lines = ",\n".join("  " + json.dumps(cell) for cell in plan["cells"])
    text = json.dumps(head, indent=1).removesuffix("\n}") + f',\n "cells": [\n{lines}\n ]\n}}\n'
    replace_file(path, text.encode("utf-8"))


def read_plan(path: Path) -> dict[str, Any]:
    """Read a plan written by write_plan."""
    plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return plan

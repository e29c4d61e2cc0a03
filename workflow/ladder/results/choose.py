"""Which configuration is fastest at each size: entries for one sweep from the timings of another."""

from typing import Any

import pandas as pd
import yaml

from ladder.model.errors import LadderError
from ladder.model.sweep import Sweep
from ladder.results.statistics import at_size, ok_rows


def choose(source: Sweep, target: Sweep, timings: pd.DataFrame) -> list[dict[str, Any]]:
    """Items for `variants` of `target`: of the variants of `source` the fastest at each size of `target`.

    Raises LadderError for a size at which `source` has no result.
    """
    rows = ok_rows(timings[timings["sweep"] == source.name], source.regimes[0])
    variants = {entry.variant.id: entry.variant for entry in source.entries}
    chosen: dict[str, list[str]] = {}
    for size in (*target.sizes, *target.unasked):
        found = at_size(rows, size)
        if found.empty:
            raise LadderError(f"{source.path}: no result at {dict(size)} to choose from")
        here = " and ".join(f"{name} == {value}" for name, value in size.items())
        chosen.setdefault(found["variant"].iloc[int(found["speedup"].argmax())], []).append(here)
    return [
        {"kernel": variants[name].kernel.name, "params": variants[name].changed, "where": " or ".join(sizes)}
        for name, sizes in chosen.items()
    ]


def as_yaml(entries: list[dict[str, Any]]) -> str:
    """The entries as a sweep's file writes them."""
    return yaml.safe_dump({"variants": entries}, sort_keys=False, default_flow_style=None, width=118)

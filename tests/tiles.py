"""Tables of two made-up sweeps, `tiles` and `direct`, typed row by row."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from ladder.results import tables
from ladder.results.run_data import RunData


def cell(
    n: int, speedup: float, sweep: str = "tiles", spread: float = 0.002, **over: Any
) -> dict[str, Any]:
    """A row of timings: the kernel `new` with one pad, against the kernel `old`."""
    params = {"pad": over.pop("pad", 0)}
    variant = f"new-pad={params['pad']}"
    row = {
        "sweep": sweep,
        "kernel": "new",
        "variant": variant,
        "params": json.dumps(params),
        "dtype": "fp32",
    }
    row |= {
        "m": n,
        "n": n,
        "k": n,
        "status": "ok",
        "regime": "cold",
        "reference": "old",
        "speedup": speedup,
    }
    return (
        row | {"speedup_low": speedup - spread, "speedup_high": speedup + spread} | over
    )


def made(
    *cells: dict[str, Any],
    metrics: Any = (),
    resources: Any = (),
    notes: Any = (),
    **over: Any,
) -> RunData:
    """RunData of the sweeps `tiles` and `direct`, measured to 0.5 %."""
    sweep: Any = SimpleNamespace(regimes=("cold", "warm"), precision=0.005, entries=())
    given = {
        "timings": cells,
        "metrics": metrics,
        "resources": resources,
        "notes": notes,
    }
    frames = {name: tables.frame(name, list(rows)) for name, rows in given.items()}
    for name, column in over.items():
        frames["timings"][name] = column
    return RunData({"tiles": sweep, "direct": sweep}, frames)

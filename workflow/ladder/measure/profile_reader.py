"""Reads an Nsight Compute report: `python -m ladder.profile_reader REPORT METRIC…` prints JSON.

One object per profiled launch, in order: metric -> [value, unit]; metrics the report lacks are absent.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def _report_module() -> Any:
    try:
        import ncu_report
    except ImportError:
        # A toolkit brings the module along with ncu.
        for folder in sorted(Path("/opt/nvidia/nsight-compute").glob("*/extras/python"), reverse=True):
            sys.path.append(str(folder))
        import ncu_report
    return ncu_report


def launches(report: Path, metrics: list[str]) -> list[dict[str, tuple[float, str]]]:
    """Values of `metrics` for every launch in a report."""
    context = _report_module().load_report(str(report))
    found = []
    for range_index in range(context.num_ranges()):
        profiled = context.range_by_idx(range_index)
        for action_index in range(profiled.num_actions()):
            action = profiled.action_by_idx(action_index)
            existing = set(action.metric_names())
            values = {}
            for name in metrics:
                if name in existing:
                    metric = action.metric_by_name(name)
                    value = metric.value()
                    if value is not None:
                        values[name] = (float(value), metric.unit() or "")
            found.append(values)
    return found


if __name__ == "__main__":
    print(json.dumps(launches(Path(sys.argv[1]), sys.argv[2:])))

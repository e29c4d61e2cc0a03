"""Reads an Nsight Compute report: `python -m ladder.measure.profile_reader REPORT METRIC…` prints JSON.

A list per profiled launch, in order, of {metric, unit, value}; metrics the report lacks are absent.
"""

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


def launches(report: Path, metrics: list[str]) -> list[list[dict[str, Any]]]:
    """The metrics of every launch in a report."""
    context = _report_module().load_report(str(report))
    ranges = [context.range_by_idx(index) for index in range(context.num_ranges())]
    actions = [one.action_by_idx(index) for one in ranges for index in range(one.num_actions())]
    found = []
    for action in actions:
        there = set(action.metric_names())
        known = [(name, action.metric_by_name(name)) for name in metrics if name in there]
        rows = [{"metric": name, "unit": one.unit() or "", "value": one.value()} for name, one in known]
        found.append([{**row, "value": float(row["value"])} for row in rows if row["value"] is not None])
    return found


if __name__ == "__main__":
    print(json.dumps(launches(Path(sys.argv[1]), sys.argv[2:])))

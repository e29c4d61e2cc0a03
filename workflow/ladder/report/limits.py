"""What limits a launch, by Nsight Compute: how busy it keeps the units of the GPU, and what its warps wait for most."""

import math
import re
from collections.abc import Mapping
from typing import Any

from ladder.model.cell import size_label
from ladder.model.schemas import TableRow
from ladder.report import sections
from ladder.report.ladder_steps import Metrics, needs, waits
from ladder.report.markdown import share, text
from ladder.report.words import Table
from ladder.results import statistics as stats
from ladder.results.sweep_data import SweepData

_PIPES = {
    "tensor cores": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "special functions": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
}
_LEAST = 0.005  # of the rate: less reads as nothing
_UNITS = (*_PIPES, "issue slots", "DRAM", "shared memory", "L1 loads")


def busy(row: TableRow, metrics: Metrics, gpu: Mapping[str, Any]) -> dict[str, float]:
    """Unit -> the share of its peak rate that a launch takes, of those that were counted, the busiest first."""
    dram, *others = needs(row, metrics, gpu)
    shared, sectors, requests, issued = (one.seconds / row["median_us"] * 1e6 for one in others)
    # The row has the share that the bytes take which the problem needs.
    rate, share_of_peak = (row.get(name) or math.nan for name in ("gbytes_per_s", "memory_fraction"))
    moved = dram.amount / row["median_us"] / 1e3
    shares = [metrics.get(name, math.nan) / 100 for name in _PIPES.values()]
    shares += [issued, moved / rate * share_of_peak, shared, max(sectors, requests)]
    known = {unit: one for unit, one in zip(_UNITS, shares, strict=True) if one >= _LEAST}  # NaN is not
    return dict(sorted(known.items(), key=lambda one: -one[1]))


def longest_wait(row: TableRow, metrics: Metrics, gpu: Mapping[str, Any]) -> str:
    """What the warps of a launch wait for most, and in which share of their time; empty where it was not counted."""
    named = [one for one in waits(row, metrics, gpu) if one.words and not math.isnan(one.seconds)]
    if not named:
        return ""
    most = max(named, key=lambda one: one.seconds)
    what = re.sub(r"cycles per instruction that warps wait | \(\w+\)", "", most.words)
    return f"{what}, {share(most.seconds / row['median_us'] * 1e6, '.0f')}"


def counters(data: SweepData) -> Table:
    """What the cells of a sweep that were counted keep busy; of many those that its page shows."""
    known = stats.metric_table(data.metrics)
    found = [
        (row, metrics, of)
        for row in stats.records(data.ok)
        if (metrics := known.get(stats.cell_of(row))) and len(of := busy(row, metrics, data.gpu)) > 1
    ]
    if len(found) > sections.MOST_ROWS:
        shown = {*map(stats.cell_of, stats.records(sections.selected(data)))}
        found = [one for one in found if stats.cell_of(one[0]) in shown]
    return Table(
        [
            [
                ("variant", text(data.names[row["variant"]])),
                ("size", size_label(stats.size_of(row))),
                *((unit, share(of.get(unit), ".0f")) for unit in _UNITS),
                ("longest wait", longest_wait(row, metrics, data.gpu)),
            ]
            for row, metrics, of in found
        ]
    )

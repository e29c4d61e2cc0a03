"""What limits a launch, by Nsight Compute: how busy it keeps the units of the GPU, and what its warps wait for most."""

import math

from ladder.model.cell import size_label
from ladder.model.schemas import TableRow
from ladder.report import sections
from ladder.report.causes import Metrics, busy, waits
from ladder.report.markdown import share, text
from ladder.report.words import Table
from ladder.results import statistics as stats
from ladder.results.sweep_data import SweepData

_UNITS = (
    "tensor cores",
    "special functions",
    "FP32 units",
    "issue slots",
    "DRAM",
    "shared memory",
    "L1 loads",
)


def longest_wait(row: TableRow, metrics: Metrics) -> str:
    """What the warps of a launch wait for most, and in which share of their time; empty where it was not counted."""
    named = [
        wait
        for wait in waits(row, metrics)
        if wait.words and not math.isnan(wait.seconds)
    ]
    if not named:
        return ""
    longest = max(named, key=lambda wait: wait.seconds)
    return f"{longest.words}, {share(longest.seconds / row['median_us'] * 1e6, '.0f')}"


def counters(data: SweepData) -> Table:
    """What the cells of a sweep that were counted keep busy; of many those that its page shows."""
    known = stats.metric_table(data.metrics)
    found = [
        (row, metrics, of)
        for row in stats.records(data.ok)
        if (metrics := known.get(stats.cell_of(row)))
        and len(of := busy(row, metrics, data.gpu)) > 1
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
                ("longest wait", longest_wait(row, metrics)),
            ]
            for row, metrics, of in found
        ]
    )

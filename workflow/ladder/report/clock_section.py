"""The report's fragments on the timer itself: against NVBench, against itself, and how much of a job was GPU time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ladder.report.markdown import cell, count, figure, spread, table
from ladder.results.statistics import Estimate, coverage_interval, estimate, median_of, records


def clock_nvbench(frame: pd.DataFrame) -> str:
    """Our cold medians against NVBench's, and whether they meet 0.5 % from 100 µs up."""
    lines = [
        [
            f"`{row['subject']}`",
            spread(estimate(row, "median_us")),
            figure(row["nvbench_us"]),
            "" if pd.isna(row["nvbench_noise"]) else f"{100 * row['nvbench_noise']:.2f} %",
            f"{100 * row['difference']:+.2f} %",
        ]
        for row in records(frame)
    ]
    text = table(
        ["kernel", "this timer, µs [95 %]", "NVBench, µs", "its noise", "difference"],
        lines,
        right=[1, 2, 3, 4],
    )
    long = frame[frame["nvbench_us"] >= 100]
    if len(long):
        worst = 100 * float(long["difference"].abs().max())
        text += f"\n\nFrom 100 µs up the two differ by at most {worst:.2f} % ({count(len(long), 'kernel')})."
    return text


def _fine(value: Estimate) -> str:
    """A ratio so close to 1 that only the fifth digit differs."""
    return f"{value.value:.5f} [{value.low:.5f}, {value.high:.5f}]"


def clock_aa(frame: pd.DataFrame) -> str:
    """How often the interval of a kernel against itself holds 1."""
    sentences = []
    for subject, trials in frame.groupby("subject", sort=False):
        covered, total = int(trials["covers"].fillna(False).sum()), len(trials)
        low, high = coverage_interval(covered, total)
        middle = median_of([float(value) for value in trials["speedup"]])
        half = 50 * float((trials["speedup_high"] - trials["speedup_low"]).median())
        sentences.append(
            f"- `{subject}`: the 95 % interval holds 1.0 in {covered} of {total} trials "
            f"({100 * covered / total:.0f} %, somewhere between {100 * low:.0f} and {100 * high:.0f} %); median "
            f"ratio {_fine(middle)}, typical half-width {half:.3f} %."
        )
    return "\n".join(sentences)


def jobs_table(jobs: pd.DataFrame) -> str:
    """Wall and GPU time of every measuring job."""
    lines = [
        [
            row["sweep"],
            cell(row["cells"]),
            cell(row["kept"]),
            cell(row["measured"]),
            figure(row["wall_s"], 3),
            figure(row["gpu_s"], 3),
            "" if pd.isna(row["gpu_share"]) else f"{100 * row['gpu_share']:.0f} %",
            cell(row["worker_starts"]),
        ]
        for row in records(jobs)
    ]
    header = ["job", "cells", "kept", "measured", "wall s", "GPU s", "GPU share", "worker starts"]
    return table(header, lines, right=range(1, len(header)))


def throughput(document: Mapping[str, Any] | None) -> str:
    """The throughput check in one sentence; empty where it was not made."""
    if document is None:
        return ""
    share = document.get("gpu_share")
    text = (
        f"`{document['sweep']}` ({document['variants']} cubins, {document['cells']} cells) took "
        f"{figure(document['wall_s'], 3)} s from an empty cache, start of the workflow, compiling, "
        "verification and pairing included; the measuring job took "
        f"{figure(document['measure_wall_s'], 3)} s of it"
    )
    return text + (f", of which {100 * share:.0f} % were GPU time." if share is not None else ".")

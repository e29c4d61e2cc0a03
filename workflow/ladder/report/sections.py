"""The report's sections as markdown fragments: headline, sweeps, failures, claims, clock, notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ladder.model.schemas import REGIMES, SIZE_COLUMNS
from ladder.report.findings import findings
from ladder.report.markdown import cell, count, cut, figure, spread, table
from ladder.report.steps import step_sentences
from ladder.report.sweep_data import SweepData
from ladder.results.statistics import (
    access_costs,
    at_size,
    cell_of,
    estimate,
    failures,
    fastest,
    fastest_by_size,
    mean_speed,
    ok_rows,
    ranking,
    rate_column,
    records,
    size_label,
    size_of,
)

MOST_ROWS = 36
BEST, WORST = 10, 3
MOST_FAILURES = 40


def _selected(data: SweepData) -> tuple[pd.DataFrame, str]:
    """Rows the table shows, and the words that say which they are."""
    rows = data.ok()
    if data.over_shapes:
        chosen = {cell_of(row) for row in fastest_by_size(rows)}
        best = rows[[cell_of(row) in chosen for row in records(rows)]]
        by_shape = best.sort_values([name for name in SIZE_COLUMNS if best[name].notna().any()])
        words = (
            f"Shown: the fastest at each of {count(len(best), 'shape')}; {count(len(rows), 'cell')} in all"
        )
        return by_shape, words if len(best) < len(rows) else ""
    if len(rows) <= MOST_ROWS:
        return rows, ""
    here = at_size(rows, data.size)
    if any(entry.rung for entry in data.sweep.entries) and 0 < len(here) <= MOST_ROWS:
        return here, f"Shown: {data.size_text}; {count(len(rows), 'cell')} in all"
    here = here if len(here) else rows
    ranked = here.sort_values("speedup", ascending=False)
    if len(ranked) <= MOST_ROWS:
        return ranked, f"Shown: {data.size_text}; {count(len(rows), 'cell')} in all"
    shown = pd.concat([ranked.head(BEST), ranked.tail(WORST)])
    # Against twins the highest ratio need not be the shortest time.
    ends = (f"{BEST} fastest", f"{WORST} slowest")
    if ranking(here) != "speedup":
        ends = (f"{BEST} farthest ahead of their reference", f"the {WORST} farthest behind")
    return shown, (
        f"Shown: the {' and '.join(ends)} of {count(len(here), 'variant')} at {data.size_text}; "
        f"{count(len(rows), 'cell')} in all"
    )


_Cells = dict[tuple[Any, ...], dict[str, Any]]
"""Rows by variant and size."""


def _other_regimes(data: SweepData, rows: pd.DataFrame) -> dict[str, _Cells]:
    """By regime but that of `rows`, where there is one: the rows of the same cells."""
    cells = {cell_of(row) for row in records(rows)}
    others: dict[str, _Cells] = {}
    for regime in REGIMES:
        if regime != rows["regime"].iloc[0]:
            found = {cell_of(row): row for row in records(ok_rows(data.timings, regime))}
            own = {key: row for key, row in found.items() if key in cells}
            others |= {regime: own} if own else {}
    return others


def _means(rows: pd.DataFrame, others: dict[str, _Cells]) -> str:
    """The geometric mean of the speed over shapes, in every regime."""
    by_regime = {rows["regime"].iloc[0]: records(rows)}
    by_regime |= {regime: list(found.values()) for regime, found in others.items()}
    means = (
        f"{spread(mean_speed(own))} ({regime}{'' if len(own) == len(rows) else f', {len(own)} of them'})"
        for regime, own in by_regime.items()
    )
    return f"Geometric mean of the speed over the shapes: {', '.join(means)}."


def timing_table(data: SweepData) -> str:
    """The sweep's compact table, with the words that say what of the whole it shows."""
    rows, words = _selected(data)
    if not len(rows):
        return "No cell gave a result."
    names = data.labels(data.timings)
    rate = rate_column(rows)
    others = _other_regimes(data, rows)
    what = "rung" if any(entry.rung for entry in data.sweep.entries) else "variant"
    header = [what, "size", "time µs [95 %]", "speed / reference [95 %]"]
    header += [rate[1]] if rate else []
    costs: dict[str, dict[str, Any]] = {}
    if rate is None:
        costs = {row["variant"]: row for row in records(access_costs(rows, data.metrics))}
        header += ["cycles / access", "wavefronts / request", "model"]
    header += [f"{regime}: {name}" for regime in others for name in ("time µs", "speed / reference")]
    lines = []
    for row in records(rows):
        line = [cell(names[row["variant"]]), size_label(size_of(row))]
        line += [spread(estimate(row, "median_us")), spread(estimate(row, "speedup"))]
        line += [figure(row[rate[0]], 3)] if rate else []
        line += [
            figure(costs[row["variant"]][name], 3) for name in ("cycles", "wavefronts", "model") if costs
        ]
        for found in others.values():
            other = found.get(cell_of(row))
            line += [figure(other["median_us"]), figure(other["speedup"])] if other else ["", ""]
        if row["throttled"] is True or row["busy"] is True:
            line[0] += " (throttled)" if row["throttled"] is True else " (GPU shared)"
        lines.append(line)
    text = table(header, lines, right=range(1, len(header)))
    below = [f"Reference: {data.reference_name}.", f"{words}." if words else ""]
    if data.over_shapes:
        below.append(_means(rows, others))
    if unnamed := data.unnamed(data.timings):
        below.append(f"Changing along with those named: {', '.join(unnamed)}.")
    if data.leaves_out_defaults(data.timings):
        below.append("Parameters that are not named have the kernel's defaults.")
    if without := len(failures(data.timings)):
        below.append(f"[{count(without, 'cell')} without a result](#failures).")
    return f"{text}\n\n{' '.join(part for part in below if part)}"


_INSTRUCTIONS = {
    "ffma": "FFMA",
    "hmma": "HMMA",
    "hgmma": "HGMMA",
    "lds_32": "LDS.32",
    "lds_64": "LDS.64",
    "lds_128": "LDS.128",
    "ldsm": "LDSM",
    "sts": "STS",
    "ldg": "LDG",
    "ldgsts": "LDGSTS",
    "utmaldg": "UTMALDG",
    "shfl": "SHFL",
    "bar": "BAR",
}


def _together(names: Sequence[str]) -> str:
    """Names of variants that share a line."""
    if len(names) <= 3:
        return "; ".join(names)
    return f"{names[0]}; {names[1]}; … {names[-1]} ({len(names)} variants)"


def resource_table(data: SweepData) -> str:
    """Registers, shared memory, spills, occupancy and instructions that occur, of the variants shown."""
    shown = list(dict.fromkeys(_selected(data)[0]["variant"])) or list(data.resources["variant"])[:MOST_ROWS]
    known = data.resources.set_index("variant", drop=False)
    rows = known.loc[[name for name in shown if name in known.index]]
    rows = rows[rows["status"] == "ok"]
    if not len(rows):
        return "No variant compiled."
    timed = data.labels(data.timings) if len(data.timings) else {}
    kinds = {name: title for name, title in _INSTRUCTIONS.items() if (rows[name].fillna(0) > 0).any()}
    header = ["variant", "registers", "shared bytes", "spilled bytes", "threads", "occupancy", "limited by"]
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in records(rows):
        shared = (row["shared_bytes_static"], row["shared_bytes_dynamic"])
        total = None if any(pd.isna(value) for value in shared) else sum(shared)
        line = [cell(row["registers"]), cell(total)]
        line += [cell(row["local_bytes"]), cell(row["threads_per_block"])]
        line.append("" if pd.isna(row["occupancy"]) else f"{100 * row['occupancy']:.3g} %")
        line.append(cell(row["occupancy_limit"]))
        line += [cell(row[name]) for name in kinds]
        alike.setdefault(tuple(line), []).append(cell(timed.get(row["variant"], row["variant"])))
    lines = [[_together(names), *line] for line, names in alike.items()]
    if len(lines) > BEST + WORST:
        lines = [*lines[:BEST], ["…", *([""] * (len(header) - 1 + len(kinds)))], *lines[-WORST:]]
    return table([*header, *kinds.values()], lines, right=[1, 2, 3, 4, 5, *range(7, 7 + len(kinds))])


def sweep_section(data: SweepData) -> dict[str, Any]:
    """What the template needs of one sweep."""
    sweep = data.sweep
    cells = len(sweep.asked)
    return {
        "name": sweep.name,
        "title": sweep.title,
        "anchor": anchor(sweep.title),
        "question": " ".join(sweep.question.split()),
        "findings": " ".join(findings(data)),
        "steps": step_sentences(data),
        "size": data.size_text,
        "figures": [
            {
                "path": f"figures/{sweep.name}-{name}.png",
                "alt": f"{sweep.title}: {asked.kind} figure",
                "caption": " ".join(asked.caption.split()),
            }
            for name, asked in zip(sweep.figure_names(), sweep.figures, strict=True)
        ],
        "table": timing_table(data),
        "resources": resource_table(data),
        "cells": cells,
        "excluded": sweep.excluded,
        "ok": len(data.ok()),
    }


def _cost(row: dict[str, Any], data: SweepData) -> str:
    """Cycles per access where the kernel counted them, else the time."""
    cycles = records(access_costs(pd.DataFrame([row]), data.metrics))[0]["cycles"]
    return f"{figure(row['median_us'], 3)} µs" if pd.isna(cycles) else f"{figure(cycles, 3)} cycles / access"


def _dearest(rows: pd.DataFrame, data: SweepData) -> dict[str, Any]:
    """The row with the most cycles per access; of rows without a count, the slowest."""
    costs = access_costs(rows, data.metrics)
    column = "cycles" if costs["cycles"].notna().any() else "median_us"
    return records(costs.loc[[costs[column].astype(float).idxmax()]])[0]


def headline(sections: Sequence[SweepData]) -> str:
    """One line a sweep: its fastest variant where it matters."""
    lines = []
    for data in sections:
        rows = data.ok()
        cells = len(data.sweep.asked)
        title = f"[{cell(data.sweep.title)}](#{anchor(data.sweep.title)})"
        here = at_size(rows, data.size) if len(rows) else rows
        here = here if len(here) else rows
        ok = f"{len(rows)} of {cells}"
        if not len(here):
            lines.append([title, "no result", "", "", "", ok])
            continue
        if data.over_shapes:
            best_rows = fastest_by_size(rows)
            against = f"{spread(mean_speed(best_rows), 3)} x {data.reference_name}"
            lines.append([title, "geometric mean", count(len(best_rows), "shape"), against, "", ok])
            continue
        rate = rate_column(here)
        # Of accesses that do no work the dearest is the one that matters.
        best = fastest(here) if rate else _dearest(here, data)
        reference = data.reference_name if data.paired_with_kernel else best["reference"]
        itself = best["reference"] == best["variant"]
        against = (
            "the reference itself" if itself else f"{spread(estimate(best, 'speedup'), 3)} x {reference}"
        )
        lines.append(
            [
                title,
                ("" if rate else "dearest: ") + cell(data.labels(data.timings)[best["variant"]]),
                size_label(size_of(best)),
                against,
                f"{figure(best[rate[0]], 3)} {rate[1]}" if rate else _cost(best, data),
                ok,
            ]
        )
    header = ["sweep", "fastest", "size", "speed / reference [95 %]", "rate", "cells with a result"]
    return table(header, lines, right=[2, 4, 5])


def anchor(title: str) -> str:
    """The anchor GitHub gives a heading."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_FAILURES
    return "; ".join(names[:MOST_FAILURES]) + (f"; and {count(more, 'more variant')}" if more > 0 else "")


def failure_table(timings: pd.DataFrame, resources: pd.DataFrame) -> str:
    """Every cell without a result and every variant that did not compile; long compiler messages are cut."""
    bad = failures(timings)
    uncompiled = failures(resources)
    uncompiled = uncompiled[~uncompiled["variant"].isin(bad["variant"])]
    if not len(bad) and not len(uncompiled):
        return "Every cell gave a verified result."
    grouped: dict[tuple[str, str, str, str], list[str]] = {
        ("", row["variant"], row["status"], cut(str(row["reason"]))): [] for row in records(uncompiled)
    }
    for row in records(bad):
        reason = "" if pd.isna(row["reason"]) else cut(str(row["reason"]))
        if row["status"] == "incorrect" and not pd.isna(row["max_error"]):
            bound = figure(row["error_bound"], 3)
            reason = f"{reason}; error {figure(row['max_error'], 3)} over the bound {bound}".lstrip("; ")
        key = (row["sweep"], row["variant"], row["status"], reason)
        grouped.setdefault(key, []).append(size_label(size_of(row)))
    rungs = {
        (row["sweep"], row["variant"]): str(row["rung"]) for row in records(bad) if not pd.isna(row["rung"])
    }
    # What a sweep leaves out for one reason shares a line.
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for (sweep, variant, status, reason), sizes in grouped.items():
        name = cell(rungs.get((sweep, variant), f"`{variant}`"))
        alike.setdefault((sweep, ", ".join(sizes), status, reason), []).append(name)
    lines = [
        [sweep, _some(names), sizes, status, cell(reason)]
        for (sweep, sizes, status, reason), names in list(alike.items())[:MOST_FAILURES]
    ]
    text = table(["sweep", "variant", "sizes", "status", "reason"], lines)
    more = len(alike) - MOST_FAILURES
    return text + (f"\n\n{count(more, 'further line')} in `timings.csv`." if more > 0 else "")


def _in_part(verdict: str, where: str) -> str:
    """A reminder where the verdict does not extend to everything the claim was decided for."""
    partly = verdict == "holds" and ("refuted at" in where or "inconclusive at" in where)
    return " in part" if partly else ""


def claims_table(claims: pd.DataFrame) -> tuple[str, list[dict[str, Any]]]:
    """Verdicts as a table, and the evidence of each claim for the list below it."""
    lines, evidence = [], []
    for row in records(claims):
        where = "" if pd.isna(row["where"]) else row["where"]
        in_part = _in_part(row["verdict"], where)
        lines.append(
            [
                f"`{row['id']}`",
                row["source"],
                cell(row["statement"]),
                f"**{row['verdict']}**{in_part}",
                cell(where),
            ]
        )
        evidence.append(
            {
                "id": row["id"],
                "verdict": f"{row['verdict']}{in_part}",
                "text": " ".join(str(row["evidence"]).split()),
            }
        )
    return table(["claim", "source", "statement", "verdict", "where"], lines), evidence


def verdict_counts(claims: pd.DataFrame) -> str:
    """2 hold, 1 refuted."""
    counts = claims["verdict"].value_counts()
    words = {
        "holds": "hold",
        "refuted": "refuted",
        "inconclusive": "inconclusive",
        "not measured": "not measured",
    }
    return ", ".join(f"{counts[name]} {word}" for name, word in words.items() if name in counts)


def notes_table(notes: pd.DataFrame) -> str:
    """What could not be had, alike notes counted."""
    if not len(notes):
        return "Nothing is missing."
    grouped: dict[tuple[str, str, str], list[str]] = {}
    for row in records(notes.fillna("")):
        grouped.setdefault((row["sweep"], row["stage"], cut(row["reason"], 200)), []).append(row["subject"])
    lines = []
    for (sweep, stage, reason), subjects in grouped.items():
        shown = ", ".join(f"`{cut(subject, 90)}`" for subject in subjects[:3] if subject)
        more = f" and {len(subjects) - 3} more" if len(subjects) > 3 else ""
        lines.append([sweep, stage, shown + more, cell(reason)])
    return table(["sweep", "stage", "what", "reason"], lines)

"""The report's sections as markdown fragments: headline, sweeps, failures, claims, notes, and on the timer itself."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ladder.model.schemas import REGIMES, SIZE_COLUMNS, VERDICTS
from ladder.report.findings import findings
from ladder.report.markdown import cell, cut, figure, share, spread, table
from ladder.report.steps import step_sentences
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results.statistics import count, estimate, records, size_label, size_of

MOST_ROWS = 36
BEST, WORST = 10, 3
MOST_FAILURES = 40
_RATIO = "speed / reference [95 %]"
_COSTS = {"cycles": "cycles / access", "wavefronts": "wavefronts / request", "model": "model"}
_INSTRUCTIONS = "ffma hmma hgmma lds_32 lds_64 lds_128 ldsm sts ldg ldgsts utmaldg shfl bar"


def _selected(data: SweepData) -> tuple[pd.DataFrame, str]:
    """Rows the table shows, and the words that say which they are where they are not all."""
    rows = data.ok()
    if data.over_shapes:
        chosen = {stats.cell_of(row) for row in stats.fastest_by_size(rows)}
        best = rows[[stats.cell_of(row) in chosen for row in records(rows)]]
        best = best.sort_values([name for name in SIZE_COLUMNS if best[name].notna().any()])
        words = f"the fastest at each of {count(len(best), 'shape')}"
        return best, words if len(best) < len(rows) else ""
    if len(rows) <= MOST_ROWS:
        return rows, ""
    here = data.here() if len(data.here()) else rows
    ranked = here.sort_values("speedup", ascending=False)
    if len(here) <= MOST_ROWS:
        return here if data.has_rungs else ranked, data.size_text
    # Against twins the highest ratio need not be the shortest time.
    ends = f"{BEST} fastest and {WORST} slowest"
    if stats.ranking(here) != "speedup":
        ends = f"{BEST} farthest ahead of their reference and the {WORST} farthest behind"
    words = f"the {ends} of {count(len(here), 'variant')} at {data.size_text}"
    return pd.concat([ranked.head(BEST), ranked.tail(WORST)]), words


def _below(data: SweepData, by_regime: dict[str, dict[Any, dict[str, Any]]], words: str) -> str:
    """What must be known to read the table: `words` say which rows it shows, `by_regime` has them by cell."""
    below = f"Reference: {data.reference_name}."
    below += f" Shown: {words}; {count(len(data.ok()), 'cell')} in all." if words else ""
    if data.over_shapes:
        most = len(by_regime[data.regime])
        means = []
        for regime, cells in by_regime.items():
            of = "" if len(cells) == most else f", {len(cells)} of them"
            means.append(f"{spread(stats.mean_speed(list(cells.values())))} ({regime}{of})")
        below += f" Geometric mean of the speed over the shapes: {', '.join(means)}."
    if unnamed := data.unnamed(data.timings):
        below += f" Changing along with those named: {', '.join(unnamed)}."
    if data.leaves_out_defaults(data.timings):
        below += " Parameters that are not named have the kernel's defaults."
    if without := len(stats.failures(data.timings)):
        below += f" [{count(without, 'cell')} without a result](#failures)."
    return below


def timing_table(data: SweepData) -> str:
    """The sweep's compact table, with the words that say what of the whole it shows."""
    rows, words = _selected(data)
    if not len(rows):
        return "No cell gave a result."
    cells, by_regime = {stats.cell_of(row) for row in records(rows)}, {}
    for regime in sorted(REGIMES, key=lambda regime: regime != data.regime):
        known = {stats.cell_of(row): row for row in records(stats.ok_rows(data.timings, regime))}
        if own := {key: row for key, row in known.items() if key in cells}:
            by_regime[regime] = own
    names, rate = data.labels(), stats.rate_column(rows)
    what = "rung" if data.has_rungs else "variant"
    lines = []
    for row in records(rows if rate else stats.access_costs(rows, data.metrics)):
        mark = " (throttled)" if row["throttled"] is True else " (GPU shared)" if row["busy"] is True else ""
        line = {what: cell(names[row["variant"]]) + mark, "size": size_label(size_of(row))}
        line["time µs [95 %]"] = spread(estimate(row, "median_us"))
        line[_RATIO] = spread(estimate(row, "speedup"))
        for column, title in ({rate[0]: rate[1]} if rate else _COSTS).items():
            line[title] = figure(row[column], 3)
        for regime, found in list(by_regime.items())[1:]:
            other = found.get(stats.cell_of(row), {})
            line[f"{regime}: time µs"] = figure(other.get("median_us"))
            line[f"{regime}: speed / reference"] = figure(other.get("speedup"))
        lines.append(line)
    return f"{table(lines, left=[what])}\n\n{_below(data, by_regime, words)}"


def _together(names: "pd.Series[str]") -> str:
    if len(names) <= 3:
        return "; ".join(names)
    return f"{names.iloc[0]}; {names.iloc[1]}; … {names.iloc[-1]} ({len(names)} variants)"


def resource_table(data: SweepData) -> str:
    """Registers, shared memory, spills, occupancy and instructions that occur, of the variants shown."""
    asked = list(dict.fromkeys(_selected(data)[0]["variant"])) or list(data.resources["variant"])[:MOST_ROWS]
    known = data.resources.set_index("variant", drop=False)
    rows = known.loc[[name for name in asked if name in known.index]]
    rows = rows[rows["status"] == "ok"]
    if not len(rows):
        return "No variant compiled."
    names = data.labels() if len(data.timings) else {}
    kinds = [name for name in _INSTRUCTIONS.split() if (rows[name].fillna(0) > 0).any()]
    lines = []
    for row in records(rows):
        shared = cell(row["shared_bytes_static"] + row["shared_bytes_dynamic"])
        line = {"variant": cell(names.get(row["variant"], row["variant"]))}
        line |= {"registers": cell(row["registers"]), "shared bytes": shared}
        line |= {"spilled bytes": cell(row["local_bytes"])}
        line |= {"threads": cell(row["threads_per_block"]), "occupancy": share(row["occupancy"], ".3g")}
        line["limited by"] = cell(row["occupancy_limit"])
        lines.append(line | {name.upper().replace("_", "."): cell(row[name]) for name in kinds})
    frame = pd.DataFrame(lines)
    alike = frame.groupby(list(frame.columns[1:]), sort=False)["variant"].agg(_together).reset_index()
    shown = records(alike[frame.columns])
    if len(shown) > BEST + WORST:
        shown[BEST:-WORST] = [dict.fromkeys(frame.columns, "") | {"variant": "…"}]
    return table(shown, left=["variant", "limited by"])


def sweep_section(data: SweepData) -> dict[str, Any]:
    """What the template needs of one sweep."""
    sweep, figures = data.sweep, []
    for name, asked in zip(sweep.figure_names(), sweep.figures, strict=True):
        shown = {"path": f"figures/{sweep.name}-{name}.png", "alt": f"{sweep.title}: {asked.kind} figure"}
        figures.append(shown | {"caption": " ".join(asked.caption.split())})
    return {
        "name": sweep.name,
        "title": sweep.title,
        "anchor": anchor(sweep.title),
        "question": " ".join(sweep.question.split()),
        "findings": " ".join(findings(data)),
        "steps": step_sentences(data),
        "size": data.size_text,
        "figures": figures,
        "table": timing_table(data),
        "resources": resource_table(data),
        "cells": len(sweep.asked),
        "excluded": sweep.excluded,
        "ok": len(data.ok()),
    }


def _head(data: SweepData) -> dict[str, str]:
    """Of a sweep with a result: its fastest variant where it matters, or the mean over its shapes."""
    if data.over_shapes:
        best_rows = stats.fastest_by_size(data.ok())
        against = f"{spread(stats.mean_speed(best_rows), 3)} x {data.reference_name}"
        return {"fastest": "geometric mean", "size": count(len(best_rows), "shape"), _RATIO: against}
    here = data.here()
    here = here if len(here) else data.ok()
    if rate := stats.rate_column(here):
        best, dearest = stats.fastest(here), ""
        cost = f"{figure(best[rate[0]], 3)} {rate[1]}"
    else:
        # Of accesses that do no work the dearest is the one that matters: where cycles were not counted, the slowest.
        costs = stats.access_costs(here, data.metrics)
        column = "cycles" if costs["cycles"].notna().any() else "median_us"
        best, dearest = records(costs.loc[[costs[column].astype(float).idxmax()]])[0], "dearest: "
        cost = f"{figure(best[column], 3)} {_COSTS.get(column, 'µs')}"
    reference = data.reference_name if data.paired_with_kernel else best["reference"]
    against = f"{spread(estimate(best, 'speedup'), 3)} x {reference}"
    return {
        "fastest": dearest + cell(data.labels()[best["variant"]]),
        "size": size_label(size_of(best)),
        _RATIO: "the reference itself" if best["reference"] == best["variant"] else against,
        "rate": cost,
    }


def headline(sections: Sequence[SweepData]) -> str:
    """One line a sweep: its fastest variant where it matters."""
    lines = []
    for data in sections:
        ok = len(data.ok())
        line = {"sweep": f"[{cell(data.sweep.title)}](#{anchor(data.sweep.title)})"}
        line |= {"fastest": "no result", "size": "", _RATIO: "", "rate": ""} | (_head(data) if ok else {})
        lines.append(line | {"cells with a result": f"{ok} of {len(data.sweep.asked)}"})
    return table(lines, left=["sweep", "fastest", _RATIO])


def anchor(title: str) -> str:
    """The anchor GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _some(names: "pd.Series[str]") -> str:
    more = len(names) - MOST_FAILURES
    return "; ".join(names[:MOST_FAILURES]) + (f"; and {count(more, 'more variant')}" if more > 0 else "")


def failure_table(timings: pd.DataFrame, resources: pd.DataFrame) -> str:
    """Every cell without a result and every variant that did not compile; long compiler messages are cut."""
    bad, uncompiled = stats.failures(timings), stats.failures(resources)
    uncompiled = uncompiled[~uncompiled["variant"].isin(bad["variant"])]
    lines = []
    for row in [*records(uncompiled), *records(bad)]:
        name = f"`{row['variant']}`" if pd.isna(row.get("rung")) else row["rung"]
        timed = {"sweep": row["sweep"], "sizes": size_label(size_of(row))} if "sweep" in row else {}
        reason = cut(row["reason"])
        if row["status"] == "incorrect" and not pd.isna(row["max_error"]):
            error = f"error {figure(row['max_error'], 3)} over the bound {figure(row['error_bound'], 3)}"
            reason = f"{reason}; {error}" if reason else error
        line = {"id": row["variant"], "variant": cell(name), "status": row["status"], "reason": reason}
        lines.append({"sweep": "", "sizes": ""} | line | timed)
    if not lines:
        return "Every cell gave a verified result."
    by_variant = pd.DataFrame(lines).groupby(["sweep", "id", "variant", "status", "reason"], sort=False)
    # What a sweep leaves out for one reason shares a line.
    rows = by_variant["sizes"].agg(", ".join).reset_index()
    by_reason = rows.groupby(["sweep", "sizes", "status", "reason"], sort=False)["variant"].agg(_some)
    alike = by_reason.reset_index()[["sweep", "variant", "sizes", "status", "reason"]]
    alike["reason"] = alike["reason"].map(cell)
    more = len(alike) - MOST_FAILURES
    below = f"\n\n{count(more, 'further line')} in `timings.csv`." if more > 0 else ""
    return table(records(alike.head(MOST_FAILURES))) + below


def claims_table(claims: pd.DataFrame) -> tuple[str, list[dict[str, str]]]:
    """Verdicts as a table, and the evidence of each claim for the list below it."""
    lines, evidence = [], []
    for row in records(claims):
        where = cell(row["where"])
        # A reminder where the verdict does not extend to everything the claim was decided for.
        partly = row["verdict"] == "holds" and ("refuted at" in where or "inconclusive at" in where)
        in_part = " in part" if partly else ""
        line = {"claim": f"`{row['id']}`", "source": row["source"], "statement": cell(row["statement"])}
        lines.append(line | {"verdict": f"**{row['verdict']}**{in_part}", "where": where})
        told = " ".join(str(row["evidence"]).split())
        evidence.append({"id": row["id"], "verdict": row["verdict"] + in_part, "text": told})
    return table(lines), evidence


def verdict_counts(claims: pd.DataFrame) -> str:
    """2 hold, 1 refuted."""
    counts = claims["verdict"].value_counts()
    return ", ".join(f"{counts[name]} {name.replace('holds', 'hold')}" for name in VERDICTS if name in counts)


def notes_table(notes: pd.DataFrame) -> str:
    """What could not be had, alike notes counted."""
    notes = notes.fillna("")
    notes["reason"] = [cut(reason, 200) for reason in notes["reason"]]
    lines = []
    for (sweep, stage, reason), alike in notes.groupby(["sweep", "stage", "reason"], sort=False)["subject"]:
        shown = ", ".join(f"`{cut(subject, 90)}`" for subject in alike[:3] if subject)
        shown += f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        lines.append({"sweep": sweep, "stage": stage, "what": shown, "reason": cell(reason)})
    return table(lines) or "Nothing is missing."


def clock_nvbench(frame: pd.DataFrame) -> str:
    """Our dirty medians against NVBench's, and whether they meet 0.5 % from 100 µs up."""
    lines = []
    for row in records(frame):
        line = {"kernel": f"`{row['subject']}`", "this timer, µs [95 %]": spread(estimate(row, "median_us"))}
        line |= {"NVBench, µs": figure(row["nvbench_us"]), "its noise": share(row["nvbench_noise"], ".2f")}
        lines.append(line | {"difference": share(row["difference"], "+.2f")})
    text = table(lines, left=["kernel"])
    long = frame[frame["nvbench_us"] >= 100]
    if len(long):
        worst = 100 * float(long["difference"].abs().max())
        text += f"\n\nFrom 100 µs up the two differ by at most {worst:.2f} % ({count(len(long), 'kernel')})."
    return text


def clock_aa(frame: pd.DataFrame) -> str:
    """How often the interval of a kernel against itself holds 1."""
    sentences = []
    for subject, trials in frame.groupby("subject", sort=False):
        covered, total = int(trials["covers"].fillna(False).sum()), len(trials)
        low, high = stats.coverage_interval(covered, total)
        # So close to 1 that only the fifth digit differs.
        middle = stats.median_of(list(trials["speedup"]))
        ratio = f"{middle.value:.5f} [{middle.low:.5f}, {middle.high:.5f}]"
        half = 50 * float((trials["speedup_high"] - trials["speedup_low"]).median())
        sentences.append(
            f"- `{subject}`: the 95 % interval holds 1.0 in {covered} of {total} trials "
            f"({100 * covered / total:.0f} %, somewhere between {100 * low:.0f} and {100 * high:.0f} %); median "
            f"ratio {ratio}, typical half-width {half:.3f} %."
        )
    return "\n".join(sentences)


def jobs_table(jobs: pd.DataFrame) -> str:
    """Wall and GPU time of every measuring job."""
    lines = []
    for row in records(jobs):
        line = {"job": row["sweep"], **{name: cell(row[name]) for name in ("cells", "kept", "measured")}}
        line |= {"wall s": figure(row["wall_s"], 3), "GPU s": figure(row["gpu_s"], 3)}
        line |= {"GPU share": share(row["gpu_share"], ".0f"), "worker starts": cell(row["worker_starts"])}
        lines.append(line)
    return table(lines, left=["job"])


def throughput(document: Mapping[str, Any] | None) -> str:
    """The throughput check in one sentence; empty where it was not made."""
    if document is None:
        return ""
    busy = share(document.get("gpu_share"), ".0f")
    return (
        f"`{document['sweep']}` ({document['variants']} cubins, {document['cells']} cells) took "
        f"{figure(document['wall_s'], 3)} s from an empty cache, start of the workflow, compiling, "
        "verification and pairing included; the measuring job took "
        f"{figure(document['measure_wall_s'], 3)} s of it{f', of which {busy} were GPU time' if busy else ''}."
    )

"""What the report's tables show: headline, timings and resources of sweeps, failures, notes."""

from typing import Any

import pandas as pd

from ladder.model.cell import size_label
from ladder.model.schemas import REGIMES, SIZE_COLUMNS
from ladder.report.markdown import cell, cut, figure, share, spread, table
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results.statistics import count, estimate, records, size_of

MOST_ROWS = 36
BEST, WORST = 10, 3
MOST_FAILURES = 40
_RATIO = "speed / reference [95 %]"
_COSTS = {"cycles": "cycles / access", "wavefronts": "wavefronts / request", "model": "model"}
_RESOURCES = {
    "variant": "variant",
    "registers": "registers",
    "shared_bytes": "shared bytes",
    "local_bytes": "spilled bytes",
    "threads_per_block": "threads",
    "occupancy": "occupancy",
    "occupancy_limit": "limited by",
}
_INSTRUCTIONS = "ffma hmma hgmma lds_32 lds_64 lds_128 ldsm sts ldg ldgsts utmaldg shfl bar"


def _selected(data: SweepData) -> tuple[pd.DataFrame, str]:
    """Rows the table shows, and the words that say which they are where they are not all."""
    rows = data.ok()
    if data.over_shapes and len(rows):
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


def timing_table(data: SweepData) -> dict[str, Any]:
    """The compact table's `text`, the `words` that say which rows it shows, and these rows `by_regime` and cell."""
    rows, words = _selected(data)
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
    return {"text": table(lines, left=[what]), "words": words, "by_regime": by_regime}


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
    rows = rows.assign(
        variant=[names.get(variant, variant) for variant in rows["variant"]],
        shared_bytes=rows["shared_bytes_static"] + rows["shared_bytes_dynamic"],
        occupancy=[share(value, ".3g") for value in rows["occupancy"]],
    )
    kinds = [name for name in _INSTRUCTIONS.split() if (rows[name].fillna(0) > 0).any()]
    titles = _RESOURCES | {name: name.upper().replace("_", ".") for name in kinds}
    frame = rows[list(titles)].map(cell).rename(columns=titles)
    alike = frame.groupby(list(frame.columns[1:]), sort=False)["variant"].agg(_together).reset_index()
    shown = records(alike[frame.columns])
    if len(shown) > BEST + WORST:
        shown[BEST:-WORST] = [dict.fromkeys(frame.columns, "") | {"variant": "…"}]
    return table(shown, left=["variant", "limited by"])


def headline(data: SweepData) -> dict[str, str]:
    """A sweep in few words: its fastest variant where it matters, or the mean over its shapes."""
    if not len(data.ok()):
        return {"fastest": "no result", "size": "", "speed": "", "rate": ""}
    if data.over_shapes:
        best_rows = stats.fastest_by_size(data.ok())
        speed = f"{spread(stats.mean_speed(best_rows), 3)} x {data.reference_name}"
        shapes = count(len(best_rows), "shape")
        return {"fastest": "geometric mean", "size": shapes, "speed": speed, "rate": ""}
    here = data.here() if len(data.here()) else data.ok()
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
    speed = f"{spread(estimate(best, 'speedup'), 3)} x {reference}"
    return {
        "fastest": dearest + cell(data.labels()[best["variant"]]),
        "size": size_label(size_of(best)),
        "speed": "the reference itself" if best["reference"] == best["variant"] else speed,
        "rate": cost,
    }


def _some(names: "pd.Series[str]") -> str:
    more = len(names) - MOST_FAILURES
    return "; ".join(names[:MOST_FAILURES]) + (f"; and {count(more, 'more variant')}" if more > 0 else "")


def alike_failures(timings: pd.DataFrame, resources: pd.DataFrame) -> list[dict[str, Any]]:
    """Cells without a result and variants that did not compile, by reason; long compiler messages are cut."""
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
        return []
    by_variant = pd.DataFrame(lines).groupby(["sweep", "id", "variant", "status", "reason"], sort=False)
    # What a sweep leaves out for one reason shares a line.
    rows = by_variant["sizes"].agg(", ".join).reset_index()
    by_reason = rows.groupby(["sweep", "sizes", "status", "reason"], sort=False)["variant"].agg(_some)
    return records(by_reason.reset_index())


def alike_notes(notes: pd.DataFrame) -> list[dict[str, Any]]:
    """What could not be had: the subjects of alike notes, those of one sweep and stage with one reason."""
    notes = notes.fillna("").assign(reason=[cut(reason, 200) for reason in notes["reason"]])
    alike = notes.groupby(["sweep", "stage", "reason"], sort=False)["subject"].agg(list)
    return records(alike.reset_index())

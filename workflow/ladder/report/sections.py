"""What pages of sweeps show: timings, counters and resources of variants, failures, and notes of what is missing."""

import pandas as pd
from pandas import DataFrame

from ladder.model.cell import REGIMES, size_label
from ladder.model.schemas import SIZE_COLUMNS, Fields, TableRow
from ladder.report.causes import busy, longest_wait
from ladder.report.markdown import cut, number, share, text
from ladder.results import statistics as stats
from ladder.results.statistics import listed, records, size_of
from ladder.results.sweep_data import SweepData

MOST_ROWS = 36
BEST, WORST = 10, 3
MOST_FAILURES = 40
_COSTS = {
    "cycles": "cycles / access",
    "wavefronts": "wavefronts / request",
    "model": "model",
}
_RESOURCES = {
    "registers": "registers",
    "shared_bytes": "shared bytes",
    "local_bytes": "spilled bytes",
    "threads_per_block": "threads",
    "occupancy": "occupancy",
    "occupancy_limit": "limited by",
}
_BUSY = (
    "tensor cores",
    "special functions",
    "FP32 units",
    "issue slots",
    "DRAM",
    "shared memory",
    "L1 loads",
    "longest wait",
)
_INSTRUCTIONS = (
    "ffma hmma hgmma lds_32 lds_64 lds_128 ldsm sts ldg ldgsts utmaldg shfl bar"
)


def selected(data: SweepData) -> DataFrame:
    """Rows the table shows: all of a small sweep, else the fastest at each shape, or the best and worst at one size."""
    if data.over_shapes and len(data.ok):
        return data.fastest_by_size.sort_values([*SIZE_COLUMNS])
    if len(data.ok) <= MOST_ROWS:
        return data.ok
    here = data.here if len(data.here) else data.ok
    large = len(here) > MOST_ROWS
    if data.has_rungs and not large:
        return here
    # In a whole table a large ratio to a slow baseline of its own is not fast.
    speed = here["speedup"] if large else stats.ranking(here)
    again = here["fresh"].fillna(False)
    order = ["again", "order"]
    ranked = here.assign(again=again, order=speed).sort_values(order, ascending=False)
    return pd.concat([ranked.head(BEST), ranked.tail(WORST)]) if large else ranked


def timings(data: SweepData) -> Fields:
    """Rows of the timing table `by_regime` and cell, and titles of `columns`."""
    rows = selected(data)
    rate = stats.rate_column(rows)
    columns = dict([rate]) if rate else _COSTS
    shown = rows if rate else stats.access_costs(rows, data.metrics)
    cells = {stats.cell_of(row): row for row in records(shown)}
    by_regime = {data.regime: cells}
    for regime in REGIMES:
        for row in records(stats.ok_rows(data.timings, regime)):
            cell = stats.cell_of(row)
            if cell in cells and regime != data.regime:
                by_regime.setdefault(regime, {})[cell] = row
    return {"by_regime": by_regime, "columns": columns}


def resources(data: SweepData) -> Fields:
    """Of the variants shown that compiled `lines`, each for those that use the same, and the `titles` of columns."""
    compiled = data.resources[data.resources["status"] == "ok"]
    shared = compiled["shared_bytes_static"] + compiled["shared_bytes_dynamic"]
    compiled = compiled.assign(shared_bytes=shared)
    variants = selected(data)["variant"].drop_duplicates()
    if variants.empty:
        variants = compiled["variant"].head(MOST_ROWS)
    shown = variants.to_frame().merge(compiled)
    titles = dict(_RESOURCES)
    for name in _INSTRUCTIONS.split():
        if shown[name].any():
            titles[name] = name.upper().replace("_", ".")
    alike = shown.groupby([*titles], dropna=False, sort=False)
    return {"lines": [records(rows) for _, rows in alike], "titles": titles}


def counters(data: SweepData) -> Fields:
    """What the cells of a sweep that were counted keep busy; of many those that its page shows.

    `lines`: a row of timings with its cells by column; `columns` that any line has.
    """
    by_cell = stats.metric_table(data.metrics)
    lines = []
    for row in records(data.ok):
        metrics = by_cell.get(stats.cell_of(row), {})
        shares = busy(row, metrics, data.gpu)
        if len(shares) > 1:
            cells = {unit: share(part, ".0f") for unit, part in shares.items()}
            lines.append((row, {**cells, "longest wait": longest_wait(row, metrics)}))
    if len(lines) > MOST_ROWS:
        shown = {*map(stats.cell_of, records(selected(data)))}
        lines = [(row, cells) for row, cells in lines if stats.cell_of(row) in shown]
    columns = [name for name in _BUSY if any(cells.get(name) for _, cells in lines)]
    return {"lines": lines, "columns": columns}


def _reason(row: TableRow) -> str:
    """Why a row has no result; long compiler messages are cut."""
    reason = cut(row["reason"])
    if row.get("max_error") is None or row["status"] != "incorrect":
        return reason
    error, bound = number(row["max_error"], 3), number(row["error_bound"], 3)
    return f"{reason}; error {error} over the bound {bound}"


def failures(data: SweepData) -> list[dict[str, str]]:
    """Cells without a result and variants that did not compile, those with the same sizes and reason in a line."""
    failed, uncompiled = stats.failures(data.timings), stats.failures(data.resources)
    uncompiled = uncompiled[~uncompiled["variant"].isin(failed["variant"])]
    cells = []
    for row in [*records(uncompiled), *records(failed)]:
        label = size_label(size_of(row))
        cells.append((row["variant"], label, row["status"], _reason(row)))
    for entry, size in data.unmeasured:
        variant = entry.variant.id
        if variant not in set(uncompiled["variant"]):
            label = size_label(size)
            cells.append((variant, label, "not measured", "no record of it"))
    table = DataFrame(cells, columns=["variant", "sizes", "status", "reason"])
    of_variant = table.groupby(["variant", "status", "reason"], sort=False)
    table = of_variant["sizes"].agg(", ".join).reset_index()
    table["name"] = [text(data.names.get(name, name)) for name in table["variant"]]
    alike = table.groupby(["sizes", "status", "reason"], sort=False)["name"]
    variants = alike.agg(lambda names: listed([*names], MOST_FAILURES))
    return records(variants.reset_index(name="variant"))

"""What the report shows: timings and resources of sweeps, what stencils gain, failures, notes."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ladder.model.cell import REGIMES, size_label
from ladder.model.problem import Size
from ladder.model.schemas import SIZE_COLUMNS
from ladder.model.sweep import Entry
from ladder.report.markdown import code, cut, number, text
from ladder.report.words import Table, proper
from ladder.results import statistics as stats
from ladder.results.input_errors import errors_by_inputs
from ladder.results.statistics import listed, records, size_of
from ladder.results.sweep_data import SweepData
from ladder.results.verdicts import FASTER, gain_over, verdicts

MOST_ROWS = 36
BEST, WORST = 10, 3
MOST_FAILURES = 40
COST_TITLES = {
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
_INSTRUCTIONS = (
    "ffma hmma hgmma lds_32 lds_64 lds_128 ldsm sts ldg ldgsts utmaldg shfl bar"
)


def selected(data: SweepData) -> pd.DataFrame:
    """Rows the table shows."""
    rows = data.ok
    if data.over_shapes and len(rows):
        best = data.fastest_by_size
        return best.sort_values(
            [name for name in SIZE_COLUMNS if best[name].notna().any()]
        )
    if len(rows) <= MOST_ROWS:
        return rows
    here = data.here if len(data.here) else rows
    large = len(here) > MOST_ROWS
    # In a whole table a large ratio to a slow baseline of its own is not fast.
    order = here["speedup"] if large else stats.ranking(here)
    again = here["fresh"].fillna(False)
    ranked = here.assign(again=again, order=order).sort_values(
        ["again", "order"], ascending=False
    )
    if not large:
        return here if data.has_rungs else ranked
    return pd.concat([ranked.head(BEST), ranked.tail(WORST)])


def timings(data: SweepData) -> dict[str, Any]:
    """Rows of the timing table `by_regime` and cell, and titles of `columns`."""
    rows = selected(data)
    rate = stats.rate_column(rows)
    shown = rows if rate else stats.access_costs(rows, data.metrics)
    by_regime = {data.regime: {stats.cell_of(row): row for row in records(shown)}}
    for regime in (regime for regime in REGIMES if regime != data.regime):
        known = {
            stats.cell_of(row): row
            for row in records(stats.ok_rows(data.timings, regime))
        }
        if own := {
            cell: known[cell] for cell in by_regime[data.regime] if cell in known
        }:
            by_regime[regime] = own
    return {"by_regime": by_regime, "columns": dict([rate]) if rate else COST_TITLES}


def errors(data: SweepData) -> Table:
    """The largest errors of the cells whose sweep asks for them, beside those of the reference."""
    return Table(
        [
            [
                ("variant", text(data.names[one.row["variant"]])),
                ("size", size_label(size_of(one.row))),
                ("inputs", one.inputs),
                ("largest error", number(one.kernel, 3)),
                ("of", text(proper(one.row["reference"]))),
                (
                    "its largest error",
                    number(one.reference, 3)
                    if one.reference is not None
                    else "no number",
                ),
                (
                    "times its error",
                    number(one.ratio, 3) if one.ratio is not None else "",
                ),
            ]
            for one in errors_by_inputs(data.ok, data.metrics)
        ]
    )


def resources(data: SweepData) -> dict[str, Any]:
    """Of the variants shown that compiled `lines`, each for those that use the same, and the `titles` of columns."""
    wanted = (
        list(dict.fromkeys(selected(data)["variant"]))
        or list(data.resources["variant"])[:MOST_ROWS]
    )
    shown = data.resources[
        (data.resources["status"] == "ok") & data.resources["variant"].isin(wanted)
    ]
    kinds = [name for name in _INSTRUCTIONS.split() if (shown[name] > 0).any()]
    titles = _RESOURCES | {name: name.upper().replace("_", ".") for name in kinds}
    alike: dict[tuple[Any, ...], list[str]] = {}
    for row in sorted(records(shown), key=lambda row: wanted.index(row["variant"])):
        row["shared_bytes"] = row["shared_bytes_static"] + row["shared_bytes_dynamic"]
        alike.setdefault(tuple(row[column] for column in titles), []).append(
            row["variant"]
        )
    lines = [
        (dict(zip(titles, used, strict=True)), variants)
        for used, variants in alike.items()
    ]
    return {"lines": lines, "titles": titles}


def stencil(data: SweepData) -> dict[str, Any]:
    """Its `own` rows at the sweep's size, the `contenders` among them for the fastest, the radii at which none is
    ahead (`behind`), and the variants that spill.

    `ahead` says in each dtype at which radius the best is ahead of the best of the reference's kernel, coarsened as
    well.
    """
    rows, reference = data.here, data.sweep.reference.kernel
    rows = rows.assign(radius=stats.parameter(rows, "radius"))
    is_own = rows["kernel"] != (reference.name if reference else "")
    own = rows[is_own] if is_own.any() else rows
    ahead = dict[Any, dict[Any, bool]]()
    for (dtype, radius), mine in own.groupby(["dtype", "radius"]):
        theirs = rows[~is_own & (rows["radius"] == radius) & (rows["dtype"] == dtype)]
        if len(theirs):
            best, rival = (
                stats.row_with_most(each, each["speedup"]) for each in (mine, theirs)
            )
            ahead.setdefault(dtype, {})[radius] = (
                gain_over(best, rival).verdict == FASTER
            )
    spilled = data.resources[data.resources["local_bytes"] > 0]["variant"]
    return {
        "own": records(own),
        "contenders": records(stats.contenders(own)),
        "ahead": ahead if reference and len(own) < len(rows) else None,
        "behind": sorted(
            set(own["radius"]) - set(own[verdicts(own) == FASTER]["radius"])
        ),
        "spills": list(spilled[spilled.isin(own["variant"])]),
    }


def group_failures(
    timings: pd.DataFrame,
    resources: pd.DataFrame,
    unmeasured: Sequence[tuple[Entry, Size]] = (),
) -> list[dict[str, Any]]:
    """Cells without a result and variants that did not compile, by reason; long compiler messages are cut."""
    bad, uncompiled = stats.failures(timings), stats.failures(resources)
    uncompiled = uncompiled[~uncompiled["variant"].isin(bad["variant"])]
    lines = []
    for row in records(pd.concat([uncompiled, bad])):
        name = text(row["rung"]) if row["rung"] else code(row["variant"])
        reason = cut(row["reason"])
        if row["status"] == "incorrect" and row["max_error"] is not None:
            error = f"error {number(row['max_error'], 3)} over the bound {number(row['error_bound'], 3)}"
            reason = f"{reason}; {error}" if reason else error
        place = {
            "sweep": text(row["sweep"]),
            "sizes": size_label(size_of(row)),
            "variant": name,
        }
        lines.append(
            {**place, "id": row["variant"], "status": row["status"], "reason": reason}
        )
    for entry, size in unmeasured:
        if (variant := entry.variant.id) not in {*uncompiled["variant"]}:
            place = {
                "sweep": "",
                "sizes": size_label(size),
                "variant": text(entry.rung) or code(variant),
            }
            lines.append(
                {
                    **place,
                    "id": variant,
                    "status": "not measured",
                    "reason": "no record of it",
                }
            )
    if not lines:
        return []
    by_variant = pd.DataFrame(lines).groupby(
        ["sweep", "id", "variant", "status", "reason"], sort=False
    )
    # What a sweep leaves out for one reason shares a line.
    rows = by_variant["sizes"].agg(", ".join).reset_index()
    by_reason = rows.groupby(["sweep", "sizes", "status", "reason"], sort=False)[
        "variant"
    ]
    return records(
        by_reason.agg(lambda names: listed(list(names), MOST_FAILURES)).reset_index()
    )


def alike_notes(notes: pd.DataFrame) -> list[dict[str, Any]]:
    """What is missing: the subjects of alike notes, those of one sweep and stage with one reason."""
    notes = notes.fillna("").assign(
        reason=[cut(reason, 200) for reason in notes["reason"]]
    )
    alike = notes.groupby(["sweep", "stage", "reason"], sort=False)["subject"].agg(list)
    return records(alike.reset_index())

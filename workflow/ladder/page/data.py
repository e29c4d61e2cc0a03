"""What the page embeds: tables by column, and what their rows belong to. Its scripts read nothing else."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_it import MarkdownIt

from ladder.claims.sources import titles
from ladder.model.cell import size_label
from ladder.model.files import read_text
from ladder.model.folders import RunFolder
from ladder.model.kernel import Variant
from ladder.model.sweep import Sweep
from ladder.report.answers import Answer, answers
from ladder.report.choices import PRODUCTS_SWEEP, THREE_PRODUCTS, rankings
from ladder.report.document import claim_lines, said
from ladder.report.ladder_steps import (
    changed_by_all,
    changed_rungs,
    path_to_fastest,
    steps,
)
from ladder.report.links import Links
from ladder.report.markdown import unlinked
from ladder.results import tables
from ladder.results.run_data import RunData
from ladder.results.statistics import records, size_of
from ladder.results.sweep_data import SweepData

UNSEEN = ["chose", "host_gpus", "ldl", "stl", "source_sha256", "cubin_sha256"]
"""Columns of the tables that the page does not have."""
MOST_NEXT = (
    6  # configurations of one size that are shown: the recommended one and the next
)
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64, 128)
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


@dataclass(frozen=True)
class _PageLinks(Links):
    """Links from the page, which has the claims itself."""

    def report(self, anchor: str = "") -> str:
        return f"#{anchor}" if anchor == "claims" else super().report(anchor)


def _seen(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(columns=UNSEEN, errors="ignore")


def _plain(value: Any) -> Any:
    """A value as JSON has it: None where it is unknown."""
    return (
        None
        if pd.isna(value) or (isinstance(value, float) and not math.isfinite(value))
        else value
    )


def columns(data: pd.DataFrame) -> dict[str, Any]:
    """Column -> its values, or where these repeat its `words` with the `codes` of the rows, -1 for none.

    Empty ones are absent.
    """
    found: dict[str, Any] = {}
    for name in data.columns[data.notna().any()]:
        column = data[name]
        counted = pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(
            column
        )
        if counted and _REPEATED * column.nunique() > len(column):
            found[str(name)] = [_plain(value) for value in column.tolist()]
        else:
            codes, words = pd.factorize(column)
            found[str(name)] = {
                "words": [
                    _plain(one) if counted else str(one) for one in words.tolist()
                ],
                "codes": codes.tolist(),
            }
    return found


_REPEATED = 4
"""How often a number occurs on average in a column whose rows have codes."""


def _sweep(data: SweepData) -> dict[str, Any]:
    """What charts and details need to know of a sweep. `fastest`: the places in timings of the fastest at each size."""
    sweep = data.sweep
    rungs = (
        {entry.variant.id: entry.technique for entry in sweep.entries}
        if data.has_rungs
        else None
    )
    return {
        "title": sweep.title,
        "question": sweep.question,
        "regime": data.regime,
        "rungs": rungs,
        "tuning": sweep.tuning,
        "size": size_label(data.size),
        "reference": data.reference_name,
        "shapes": data.over_shapes,
        "findings": _html(unlinked(said("findings", data=data))),
        "libraries": [*sweep.problem.libraries],
        "steps": _steps(data),
        "one": data.names.get(changed_by_all(data), ""),
        "own_baselines": [*data.own_baselines],
        "fastest": data.fastest_by_size.index.tolist() if len(data.ok) else [],
    }


def _steps(data: SweepData) -> list[dict[str, Any]]:
    """The rungs of a ladder in reading order: its gain over the rung `below`, and why; else []."""
    found = [] if data.sweep.tuning else steps(data)
    if not any(step.gain.known for step in found):
        return []
    main = {entry.variant.id for entry in path_to_fastest(data)}
    named = changed_rungs(data, [step.row["variant"] for step in found])
    return [
        {
            "variant": step.row["variant"],
            "below": step.below,
            "on": named.get(step.row["variant"], ""),
            "gain": [_plain(value) for value in astuple(step.gain.measured)],
            "predicted": [_plain(value) for value in astuple(step.gain.predicted)],
            "verdict": step.gain.verdict if step.gain.known else "",
            "why": step.why,
            "main": step.row["variant"] in main,
        }
        for step in found
    ]


def _uses(data: RunData, places: Mapping[tuple[Any, ...], int]) -> list[dict[str, Any]]:
    """What to use for each kind of GEMM, layout, size and regime: `places` in timings, the first is recommended.

    `multiples`: of those places, what M, N and K are multiples of.
    """
    found, variants = (
        [],
        {
            entry.variant.id: entry.variant
            for sweep in data.sweeps.values()
            for entry in sweep.entries
        },
    )
    for kind, layout, rows in rankings(data):
        first = rows[0]
        shown = rows[:MOST_NEXT]
        found.append(
            {
                "kind": kind,
                "layout": layout,
                "size": size_label(first.size),
                "m": first.size["m"],
                "n": first.size["n"],
                "k": first.size["k"],
                "regime": first["regime"],
                "places": [
                    places[
                        row["sweep"],
                        row["variant"],
                        size_label(row.size),
                        row["regime"],
                    ]
                    for row in shown
                ],
                # None are known of a variant that its sweep no longer has.
                "multiples": [
                    _multiples(variants[row["variant"]], row.size)
                    if row["variant"] in variants
                    else {}
                    for row in shown
                ],
            }
        )
    return found


def _multiples(variant: Variant, size: Mapping[str, int]) -> dict[str, int]:
    """Of which power of two M, N and K must be multiples for a variant, tried from a size that it takes."""
    found = {}
    for name, value in size.items():
        taken = (
            one
            for one in _MULTIPLES
            if variant.broken({**size, name: value + one}) is None
        )
        found[name] = next(taken, _MULTIPLES[-1])
    return found


def _called(data: RunData, row: Mapping[str, Any]) -> str:
    """The kernel of a row and the one name of its configuration; of one that no sweep has, its variant."""
    part = data.parts.get(row["sweep"])
    if part is None or row["variant"] not in part.names:
        return str(row["variant"])
    return f"{row['kernel']} {data.configuration(row)}".strip()


def _card(answer: Answer) -> dict[str, Any]:
    """An answer with its sentences as HTML."""
    parts = [
        ("", answer.also),
        ("Why. ", answer.why),
        ("But. ", answer.exceptions),
        ("", answer.table),
    ]
    return {
        "name": answer.name,
        "question": answer.question,
        "headline": _html(answer.headline),
        "more": "".join(
            _html(f"**{head.strip()}** {text}" if head else text)
            for head, text in parts
            if text
        ),
        "sweep": answer.sweep,
        "absent": f"Not measured: {answer.absent}." if answer.absent else "",
    }


def _html(text: str) -> str:
    return str(_MARKDOWN.render(text))


def run(
    folder: RunFolder, data: RunData, name: str, beside: RunFolder | None = None
) -> dict[str, Any]:
    """Tables and words of the run in a folder, by this name, for a page that lies in it or in that of another run.

    Raises LadderError where its sessions are missing.
    """
    about = {
        "tables": data.frames,
        "source": data.source,
        "environment": data.environment,
        "name": data.name,
    }
    about["timings_from"] = data.environment["timings_from"]
    timings, claims, found = (
        data.frames["timings"],
        data.frames["claims"],
        answers(data, _PageLinks(folder, (beside or folder).root, data)),
    )
    parts = {
        one: part for one, part in data.parts.items() if one in set(timings["sweep"])
    }
    labels = {
        (one, *pair): label
        for one, data in parts.items()
        for *pair, label in data.names.items()
    }
    rows = records(timings)
    places = {
        (row["sweep"], row["variant"], size_label(size_of(row)), row["regime"]): place
        for place, row in enumerate(rows)
        if row["baseline"] is None
    }
    products = (
        data.sweeps[PRODUCTS_SWEEP].entries if PRODUCTS_SWEEP in data.sweeps else []
    )
    by_products = {entry.variant.kernel.name for entry in products}
    words = {
        "label": [
            labels.get((row["sweep"], row["variant"]), row["variant"]) for row in rows
        ],
        "called": [_called(data, row) for row in rows],
        "kind": [
            THREE_PRODUCTS if row["kernel"] in by_products else row["dtype"]
            for row in rows
        ],
        "size": [size_label(size_of(row)) for row in rows],
    }
    shown = _seen(timings.assign(**words).astype(dict.fromkeys(words, "string")))
    return {
        "name": name,
        "device": data.source["device"],
        "gpu": data.name,
        "measured": bool((timings["status"] == "ok").any()),
        "origin": _html(
            said("origin", **about)
            if beside is None
            else unlinked(said("origin", **about))
        ),
        "day": max(
            (
                str(card.get("started") or "")[:10]
                for card in data.source.get("gpus") or [data.source]
            ),
            default="",
        ),
        "timings_from": data.environment["timings_from"],
        # Empty where nothing was measured that an answer speaks of.
        "cards": []
        if all(one.absent or not one.sweep for one in found)
        else [_card(one) for one in found],
        "uses": _uses(data, places),
        "verdicts": {line["id"]: line["verdict"] for line in claim_lines(claims)},
        "claims": [row | {"text": _source(row["source"])} for row in records(claims)],
        "sweeps": {one: _sweep(data) for one, data in parts.items()},
        "timings": columns(shown),
        "resources": columns(_seen(data.frames["resources"].drop(columns="params"))),
        "sessions": columns(_seen(tables.read("sessions", folder.tables))),
        "metrics": columns(data.frames["metrics"]),
    }


def _source(key: str) -> str:
    """A source by its English title; by its key where docs/sources.md has none."""
    first, _, where = key.partition(" ")
    return f"{titles().get(first, first).rpartition('; ')[2]} {where}".strip()


def kernels(root: Path, sweeps: Mapping[str, Sweep]) -> dict[str, dict[str, str]]:
    """Source file and text of each kernel of sweeps, and of their references."""
    used = [
        entry.variant.kernel for sweep in sweeps.values() for entry in sweep.entries
    ]
    used += [
        sweep.reference.kernel for sweep in sweeps.values() if sweep.reference.kernel
    ]
    by_name = {kernel.name: kernel.source for kernel in used}
    place = {
        name: path.resolve().relative_to(root.resolve())
        for name, path in by_name.items()
    }
    return {
        name: {"file": place[name].as_posix(), "text": read_text(by_name[name])}
        for name in by_name
    }

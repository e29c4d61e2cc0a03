"""What the page embeds: tables by column, and what their rows belong to. Its scripts read nothing else."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markdown_it import MarkdownIt
from pandas import DataFrame
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from ladder.claims.sources import titles
from ladder.model.cell import size_label
from ladder.model.files import read_text
from ladder.model.folders import RunFolder
from ladder.model.kernel import Variant
from ladder.model.sweep import Sweep
from ladder.report.answers import Answer, answers
from ladder.report.choices import THREE_PRODUCTS, rankings
from ladder.report.document import said
from ladder.report.ladder_steps import (
    changed_by_all,
    changed_rungs,
    path_to_fastest,
    steps,
)
from ladder.report.links import Links
from ladder.report.markdown import unlinked
from ladder.report.statements import claim_lines
from ladder.results import tables
from ladder.results.collect import PRODUCTS_SWEEP
from ladder.results.run_data import RunData
from ladder.results.statistics import (
    Estimate,
    identifier,
    records,
    size_of,
)
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

    def claims(self) -> str:
        return "#claims"


def _plain(value: Any) -> Any:
    """A value as JSON has it: None where it is unknown or infinite."""
    infinite = (math.inf, -math.inf)
    return None if pd.isna(value) or value in infinite else value


def columns(data: DataFrame) -> dict[str, Any]:
    """Column -> its values, or where these repeat its `words` with the `codes` of the rows, -1 for none.

    Where rows in succession mostly have the same code, it stands once, and `lengths` say for how many rows.
    Empty columns are absent, and those in `UNSEEN`.
    """
    embedded = dict[str, Any]()
    for name in data.columns[data.notna().any()].difference(UNSEEN, sort=False):
        column = data[name]
        codes, words = pd.factorize(column)
        is_number = is_numeric_dtype(column) or is_bool_dtype(column)
        if is_number and _REPEATED * len(words) > len(column):
            embedded[name] = [_plain(value) for value in column.tolist()]
            continue
        coded = {"words": [_plain(word) for word in words.tolist()]}
        begins = np.flatnonzero(np.diff(codes, prepend=-2))
        if _REPEATED * len(begins) < len(codes):
            coded["lengths"] = np.diff(begins, append=len(codes)).tolist()
            codes = codes[begins]
        embedded[name] = coded | {"codes": codes.tolist()}
    return embedded


_REPEATED = 4
"""How often a number occurs on average in a column of codes, and how long runs of equal codes are, if these do."""


def _sweep(data: SweepData) -> dict[str, Any]:
    """What charts and details need to know of a sweep.

    `fastest`: the places in timings of the fastest at each size. `references`: the kernels that its variants are timed
    against, by the names that timings have for them.
    """
    sweep = data.sweep
    rungs = {entry.variant.id: entry.technique for entry in sweep.entries}
    against = [sweep.reference.variant_for(entry.variant) for entry in sweep.entries]
    return {
        "title": sweep.title,
        "question": sweep.question,
        "regime": data.regime,
        "rungs": rungs if data.has_rungs else None,
        "tuning": sweep.tuning,
        "size": size_label(data.size),
        "reference": data.reference_name,
        "shapes": data.over_shapes,
        "findings": _html(unlinked(said("findings", data=data))),
        "libraries": [*sweep.problem.libraries],
        "references": {
            variant.id: {"kernel": variant.kernel.name, "params": {**variant.params}}
            for variant in filter(None, against)
        },
        "steps": _steps(data),
        "one": data.names.get(changed_by_all(data), ""),
        "own_baselines": [*data.own_baselines],
        "fastest": data.fastest_by_size.index.tolist() if len(data.ok) else [],
    }


def _steps(data: SweepData) -> list[dict[str, Any]]:
    """The rungs of a ladder in reading order: its gain over the rung `below`, and why; else []."""
    rungs = [] if data.sweep.tuning else steps(data)
    if not any(step.gain.known for step in rungs):
        return []
    path = path_to_fastest(data)
    changed = changed_rungs(data, [step.row["variant"] for step in rungs])
    shown = []
    for step in rungs:
        variant = step.row["variant"]
        gain = step.gain
        line = {
            "variant": variant,
            "below": step.below,
            "on": changed.get(variant, ""),
            "gain": _ends(gain.measured),
            "predicted": _ends(gain.predicted),
            "verdict": gain.verdict if gain.known else "",
            "why": step.why.words,
            "main": variant in path,
        }
        shown.append(line)
    return shown


def _ends(estimate: Estimate) -> list[float | None]:
    return [_plain(value) for value in astuple(estimate)]


def _uses(
    data: RunData,
    places: Mapping[str, int],
) -> list[dict[str, Any]]:
    """What to use for each kind of GEMM, layout, size and regime: `places` in timings, the first is recommended.

    `multiples`: of those places, what M, N and K are multiples of.
    """
    variants = dict[str, Variant]()
    for sweep in data.sweeps.values():
        variants |= {entry.variant.id: entry.variant for entry in sweep.entries}
    uses = []
    for (kind, layout, _), rows in rankings(data):
        size = rows[0].size
        shown = rows[:MOST_NEXT]
        multiples = []
        for row in shown:
            # None are known of a variant that its sweep no longer has.
            variant = variants.get(row["variant"])
            multiples.append(_multiples(variant, size) if variant else {})
        use = {
            "kind": kind,
            "layout": layout,
            "size": size_label(size),
            **size,
            "regime": rows[0]["regime"],
            "places": [places[identifier(row)] for row in shown],
            "multiples": multiples,
        }
        uses.append(use)
    return uses


def _multiples(variant: Variant, size: Mapping[str, int]) -> dict[str, int]:
    """Of which power of two M, N and K must be multiples for a variant, tried from a size that it takes."""
    multiples = {}
    for name, extent in size.items():
        for multiple in _MULTIPLES:
            multiples[name] = multiple
            if variant.broken({**size, name: extent + multiple}) is None:
                break
    return multiples


def _card(answer: Answer) -> dict[str, Any]:
    """An answer with its sentences as HTML."""
    parts = {
        "": answer.also,
        "**Why.** ": answer.why,
        "**But.** ": answer.exceptions,
    }
    more = [_html(head + text) for head, text in parts.items() if text]
    return {
        "name": answer.name,
        "question": answer.question,
        "headline": _html(answer.headline),
        "more": "".join(more) + _html(answer.table),
        "sweep": answer.sweep,
        "absent": f"Not measured: {answer.absent}." if answer.absent else "",
    }


def _html(text: str) -> str:
    return str(_MARKDOWN.render(text))


def run(
    folder: RunFolder,
    data: RunData,
    name: str,
    beside: RunFolder | None = None,
) -> dict[str, Any]:
    """Tables and words of the run in a folder, by this name, for a page that lies in it or in that of another run.

    Raises LadderError where its sessions are missing.
    """
    timings = data.frames["timings"]
    claims = data.frames["claims"]
    parts = data.parts.items()
    sweeps = {name: _sweep(part) for name, part in parts if len(part.timings)}
    rows = enumerate(records(timings))
    places = {identifier(row): place for place, row in rows}
    links = _PageLinks(folder, (beside or folder).root, data)
    cards = answers(data, links)
    about_something = any(card.sweep and not card.absent for card in cards)
    origin = said("origin", run=data)
    sessions = data.source.get("gpus") or [data.source]
    days = [str(session.get("started") or "")[:10] for session in sessions]
    resources = data.frames["resources"].drop(columns="params")
    return {
        "name": name,
        "device": data.source["device"],
        "gpu": data.name,
        "measured": bool((timings["status"] == "ok").any()),
        "origin": _html(unlinked(origin) if beside else origin),
        "day": max(days),
        "timings_from": data.environment["timings_from"],
        "cards": [_card(card) for card in cards] if about_something else [],
        "uses": _uses(data, places),
        "verdicts": {line["id"]: line["verdict"] for line in claim_lines(claims)},
        "claims": [{**row, "text": _source(row["source"])} for row in records(claims)],
        "sweeps": sweeps,
        "timings": columns(_named(data, timings)),
        "resources": columns(resources),
        "sessions": columns(tables.read("sessions", folder.tables)),
        "metrics": columns(data.frames["metrics"]),
    }


def _named(data: RunData, timings: DataFrame) -> DataFrame:
    """Timings with the `label`, the name as `called`, the `kind` and the `size` that pages show."""
    products = data.sweeps.get(PRODUCTS_SWEEP)
    by_products = products.kernels if products else ()
    words = []
    for row in records(timings):
        part = data.parts.get(row["sweep"])
        kernel, label = row["kernel"], row["variant"]
        called = label  # of a variant that no sweep has
        if part and label in part.names:
            label = part.names[label]
            called = f"{kernel} {data.configuration(row)}".strip()
        kind = THREE_PRODUCTS if kernel in by_products else row["dtype"]
        words.append([label, called, kind, size_label(size_of(row))])
    names = ["label", "called", "kind", "size"]
    return timings.join(DataFrame(words, timings.index, names, dtype="string"))


def _source(key: str) -> str:
    """A source by its English title; by its key where docs/sources.md has none."""
    first, _, where = key.partition(" ")
    return f"{titles().get(first, first).rpartition('; ')[2]} {where}".strip()


def kernels(root: Path, sweeps: Mapping[str, Sweep]) -> dict[str, dict[str, str]]:
    """Source file and text of each kernel of sweeps, and of their references."""
    sources = {}
    for sweep in sweeps.values():
        for variant in sweep.variants:
            kernel = variant.kernel
            text = kernel.path if kernel.cubin else kernel.source
            sources[kernel.name] = text.resolve()
    embedded = {}
    for name, source in sources.items():
        embedded[name] = {
            "file": source.relative_to(root.resolve()).as_posix(),
            "text": read_text(source),
        }
    return embedded

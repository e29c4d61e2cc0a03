"""What the page embeds: tables by column, and what their rows belong to. Its scripts read nothing else."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from markdown_it import MarkdownIt

from ladder.claims.ledger import overall
from ladder.model.cell import size_label
from ladder.model.files import read_text
from ladder.model.folders import RunFolder
from ladder.model.sweep import Sweep
from ladder.report.answers import answers
from ladder.report.document import said
from ladder.report.evidence import Evidence
from ladder.report.links import Links
from ladder.report.markdown import unlinked
from ladder.report.sweep_data import SweepData
from ladder.results import tables
from ladder.results.statistics import records, size_of

_UNSEEN = ["source_sha256", "cubin_sha256"]
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")


def _plain(value: Any) -> Any:
    """A value as JSON has it: None where it is unknown."""
    return None if pd.isna(value) or (isinstance(value, float) and not math.isfinite(value)) else value


def columns(data: pd.DataFrame) -> dict[str, Any]:
    """Column -> its values, or of text its `words` with the `codes` of the rows, -1 for none. Empty ones are absent."""
    found: dict[str, Any] = {}
    for name in data.columns[data.notna().any()]:
        column = data[name]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            found[str(name)] = [_plain(value) for value in column.tolist()]
        else:
            codes, words = pd.factorize(column)
            found[str(name)] = {"words": [str(word) for word in words], "codes": codes.tolist()}
    return found


def _sweep(data: SweepData) -> dict[str, Any]:
    """What charts and details need to know of a sweep. `fastest`: the places in timings of the fastest at each size."""
    sweep = data.sweep
    rungs = {entry.variant.id: entry.technique for entry in sweep.entries} if data.has_rungs else None
    return {
        "title": sweep.title,
        "question": sweep.question,
        "regime": data.regime,
        "rungs": rungs,
        "tuning": sweep.tuning,
        "size": size_label(data.size),
        "reference": data.reference_name,
        "shapes": data.over_shapes,
        "findings": _rendered("findings", data=data),
        "libraries": [*sweep.problem.libraries],
        "fastest": data.fastest_by_size.index.tolist() if len(data.ok) else [],
    }


def _rendered(template: str, **known: Any) -> str:
    """A template of the report as HTML, without links, which the page's place need not have."""
    return str(_MARKDOWN.render(unlinked(said(template, **known))))


def run(folder: RunFolder, data: Evidence, name: str) -> dict[str, Any]:
    """Tables and words of the run in a folder, by this name. Raises LadderError where its sessions are missing."""
    about = {"tables": data.frames, "source": data.source, "environment": data.environment, "name": data.name}
    about["timings_from"] = data.environment["timings_from"]
    timings, claims, found = (
        data.frames["timings"],
        data.frames["claims"],
        answers(data, Links(folder, folder.root, data)),
    )
    parts = {one: part for one, part in data.parts.items() if one in set(timings["sweep"])}
    labels = {(one, *pair): label for one, data in parts.items() for *pair, label in data.names.items()}
    rows = records(timings)
    shown = timings.assign(
        label=[labels.get((row["sweep"], row["variant"]), row["variant"]) for row in rows],
        size=[size_label(size_of(row)) for row in rows],
    )
    shown = shown.astype({"label": "string", "size": "string"}).drop(columns=_UNSEEN)
    return {
        "name": name,
        "device": data.source["device"],
        "gpu": data.name,
        "measured": bool((timings["status"] == "ok").any()),
        "origin": _rendered("origin", **about),
        # Empty where nothing was measured that an answer speaks of.
        "lines": ""
        if all(one.absent or not one.sweep for one in found)
        else _rendered("answers", answers=found),
        "verdicts": dict(overall(claims)),
        "claims": records(claims.astype(object).where(claims.notna(), None)),
        "sweeps": {one: _sweep(data) for one, data in parts.items()},
        "timings": columns(shown),
        "resources": columns(data.frames["resources"].drop(columns=["params", *_UNSEEN])),
        "sessions": columns(tables.read("sessions", folder.tables)),
        "metrics": columns(data.frames["metrics"]),
    }


def kernels(root: Path, sweeps: Mapping[str, Sweep]) -> dict[str, dict[str, str]]:
    """Source file and text of each kernel of sweeps, and of their references."""
    used = [entry.variant.kernel for sweep in sweeps.values() for entry in sweep.entries]
    used += [sweep.reference.kernel for sweep in sweeps.values() if sweep.reference.kernel]
    by_name = {kernel.name: kernel.source for kernel in used}
    place = {name: path.resolve().relative_to(root.resolve()) for name, path in by_name.items()}
    return {name: {"file": place[name].as_posix(), "text": read_text(by_name[name])} for name in by_name}

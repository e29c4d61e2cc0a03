"""The report: report.md, which answers, evidence.md behind it, methodology.md, and a page per sweep.

Numbers and selections are made here in Python; words and tables stand in the templates of workflow/report.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ladder import __version__
from ladder.claims.ledger import overall
from ladder.claims.primitives import (
    EQUIVALENT,
    HOLDS,
    MORE,
    NOT_MEASURED,
    ONLY_WHERE,
    REFUTED,
    UNDECIDED,
)
from ladder.model.files import read_json, replace_file
from ladder.model.folders import RunFolder
from ladder.model.plan import Plan
from ladder.report import markdown, sections
from ladder.report.answers import Answer, answers
from ladder.report.chapters import chapters
from ladder.report.choices import Choice, choices
from ladder.report.devices import side_by_side
from ladder.report.ladder_steps import path_to_fastest, rate, steps
from ladder.report.limits import counters
from ladder.report.links import Links
from ladder.report.lookups import OTHER_GPU
from ladder.report.shares import shares_of
from ladder.report.titles import message
from ladder.results import statistics as stats
from ladder.results.collect import OTHER_CODE
from ladder.results.run_data import RunData
from ladder.results.sweep_data import SweepData
from ladder.results.templates import TEMPLATES

TEMPLATES.filters["anchor"] = markdown.anchor
TEMPLATES.globals |= {
    "rate": rate,
    "steps": steps,
    "path_to_fastest": path_to_fastest,
    "shares_of": shares_of,
}
TEMPLATES.globals |= {
    "counters": counters,
    "sections": sections,
    "version": __version__,
    "OTHER_CODE": OTHER_CODE,
}
_OF_TEXTS = {"three_steps", "padding_or_swizzling", "double_buffering"}
"""Answers that README leaves out, since its table of the texts says as much."""
NOT_HERE = "not on this GPU"
"""Verdict of a refuted statement of a source that measured another one."""
_SMALL = 2048  # below it sizes have a table of their own
_NEAR = 0.9  # of the library's speed: below it the report names the library alone


def said(template: str, **known: Any) -> str:
    """What a template of the report says."""
    return TEMPLATES.get_template(f"{template}.md.j2").render(known)


def learnt(published: RunFolder, data: RunData, root: Path) -> str:
    """What README, which lies at `root`, says of a device, from what is published of it."""
    found = [
        one
        for one in answers(data, Links(published, root, data))
        if one.name not in _OF_TEXTS
    ]
    lines = {line["id"]: line for line in claim_lines(data.frames["claims"])}
    return said(
        "readme", answers=found, claims=lines, gpu=data.name, device=published.root.name
    )


def render(
    folder: RunFolder,
    data: RunData,
    plans: Mapping[str, Plan],
    run: Path | None = None,
    beside: Sequence[tuple[RunFolder, RunData]] = (),
) -> Iterator[tuple[Path, str]]:
    """The file of each page of the report and its markdown; the report is the first, and pages of sweeps are the last.

    `plans` say how it was measured, `run` names the run's own folder if it is another, and `beside` are other
    runs to compare with.
    """
    sweeps, environment = data.sweeps, data.environment
    frames = {
        **data.frames,
        "timings": stats.against_references(data.frames["timings"]),
    }
    links = Links(folder, folder.root, data)
    found = answers(data, links)
    parts = chapters(data, found)
    planned = [plans[name] for name in sweeps if name in plans]
    # Of the sweeps with a precision of their own the methodology speaks apart.
    plan = min(
        planned, key=lambda plan: sweeps[plan.sweep].precision is not None, default=None
    )
    where = folder.tables.relative_to(folder.root).as_posix()
    lines = claim_lines(frames["claims"])
    context = {
        "answers": found,
        "elsewhere": [
            (_label(one, there), _headlines(one, there))
            for one, there in beside
            if (there.frames["timings"]["status"] == "ok").any()
        ],
        "chapters": parts,
        "links": links,
        "data": data,
        **_use(data),
        "cannot": _cannot(frames["timings"]),
        "messages": {
            ladder.name: _ladder_message(data.parts[ladder.name], found)
            for part in parts
            for ladder in part.ladders
        },
        "by_name": data.parts,
        "claims": lines,
        "by_claim": {
            name: stats.records(own)
            for name, own in frames["claims"].groupby("id", sort=False)
        },
        "environment": environment,
        "devices": side_by_side(data, beside),
        "source": data.source,
        "gpu": data.gpu,
        "name": data.name,
        "timings_from": environment["timings_from"],
        "parts": list(data.parts.values()),
        "sweeps": list(sweeps.values()),
        "tables": frames,
        "itself": stats.against_itself(frames["sessions"]),
        "sanitized": _sanitized(read_json(folder.sanitizer) or {}, frames["resources"]),
        "jobs": stats.records(frames["jobs"]),
        "verdict_counts": _counts([line["verdict"] for line in lines]),
        "throughput": read_json(folder.throughput),
        "settings": {**plan.settings, "arch": plan.arch} if plan else {},
        "csv": "" if where == "." else f"{where}/",
        "folder": (run or folder.root).as_posix(),
        "device": (run or folder.root).name,
    }
    yield folder.report, _page("report", context)
    yield folder.evidence, _page("evidence", context)
    yield folder.methodology, _page("methodology_page", context)
    for sweep, part in data.parts.items():
        yield folder.sweep_page(sweep), _page("sweep", context | {"data": part})


def _label(folder: RunFolder, data: RunData) -> str:
    """NVIDIA H200 (published): the GPU and the run."""
    return f"{data.name} ({folder.root.parent.name})"


def _headlines(folder: RunFolder, data: RunData) -> dict[str, str]:
    """Question -> the headline of its answer, without links."""
    found = answers(data, Links(folder, folder.root, data))
    return {one.name: markdown.unlinked(one.headline) for one in found}


def claim_lines(claims: pd.DataFrame) -> list[dict[str, Any]]:
    """A line a claim, what fails first: `id`, `source` (the text), `statement`, `verdict`, and the `number`.

    The verdict and the number are those of its worst part, and `where` says at which values it holds only there.
    Columns: id, verdict, source, statement, where, part, effect.
    """
    whole, lines = overall(claims), []
    for name, own in claims.groupby("id", sort=False):
        parts, verdict = stats.records(own), whole[name]
        part = next(one for one in parts if one["verdict"] == verdict)
        text = part["source"].split(" ")[0]
        lines.append(
            {
                "id": name,
                "source": text,
                "statement": part["statement"],
                "verdict": NOT_HERE
                if verdict == REFUTED and text in OTHER_GPU
                else verdict,
                "where": _where(part) if verdict == ONLY_WHERE else "",
                "number": _number(part, short=verdict not in (REFUTED, ONLY_WHERE)),
            }
        )
    return sorted(lines, key=lambda line: _WORST_FIRST.index(line["verdict"]))


_WORST_FIRST = (
    REFUTED,
    NOT_HERE,
    ONLY_WHERE,
    UNDECIDED,
    EQUIVALENT,
    HOLDS,
    MORE,
    NOT_MEASURED,
)


def _where(part: Mapping[str, Any]) -> str:
    """n = 1024, 2048: at which values a part holds that is refuted at others."""
    found = (part["where"] or "").split("; ")
    holding = [
        one.partition(" at ")[2]
        for one in found
        if one.startswith((f"{HOLDS} at", f"{MORE} at"))
    ]
    return ", ".join(holding)


def _number(part: Mapping[str, Any], short: bool = False) -> str:
    """1.50 x wavefronts per shared load: the number of a part, and what it is of, without details if `short`."""
    if part["effect"] is None:
        return ""
    label = str(part["part"]).rpartition(": ")[0]
    of = re.sub(r" over (?:[^,(]|\([^)]*\))*", "", label)
    unit, of = "x " if of != label else "", re.split(_DETAILS, of)[0] if short else of
    return f"{markdown.number(part['effect'], 3)} {unit}{of}"


_DETAILS = r",| of | with | without | above | that | at "


def _counts(verdicts: Sequence[str]) -> dict[str, int]:
    """How many of each verdict there are, what fails first."""
    return {one: verdicts.count(one) for one in _WORST_FIRST if one in verdicts}


def _use(data: RunData) -> dict[str, Any]:
    """What to use: choices `use` by place and size, the `large` and `small` sizes, those where an `other` is the
    fastest for seconds, and who is far `behind` where."""
    near, behind = dict[str, dict[int, Choice]](), dict[str, list[int]]()
    for one in choices(data):
        place = f"{one.kind} {one.layout}".strip()
        if one.gain.measured.high < _NEAR:
            behind.setdefault(place, []).append(one.size)
        else:
            near.setdefault(place, {})[one.size] = one
    sizes = sorted({size for own in near.values() for size in own})
    other = {
        place: {size: one for size, one in own.items() if one.held and not one.same}
        for place, own in near.items()
    }
    return {
        "use": near,
        "large": [size for size in sizes if size >= _SMALL],
        "small": [size for size in sizes if size < _SMALL],
        "behind": behind,
        "other": {place: cells for place, cells in other.items() if cells},
        "configurations": _configurations(
            [one for own in near.values() for one in own.values()]
        ),
    }


def _cannot(timings: pd.DataFrame) -> dict[str, list[str]]:
    """Why kernels cannot run on this GPU's architecture -> their names."""
    rows = timings[timings["reason"].fillna("").str.startswith("needs sm_")]
    return {
        str(reason): sorted(set(own["kernel"]))
        for reason, own in rows.groupby("reason", sort=False)
    }


def _configurations(found: Sequence[Choice]) -> list[dict[str, Any]]:
    """The recommended configurations: each with a row that it is recommended for, and what its kernel needs."""
    rows = [row for one in found for row in one.rows]
    first = {row["variant"]: row for row in reversed(rows)}
    return [
        {"row": row, "cell": stats.identifier(row)} for row in reversed(first.values())
    ]


def _sanitized(seen: Mapping[str, Any], resources: pd.DataFrame) -> dict[str, Any]:
    """Kernels that compute-sanitizer has launched with their present source, and those that it has not.

    `seen`: what sanitizer.json says, empty without the file. Returns names `clean` and `unseen`, and as
    `others` rows with a report or without a result.
    """
    clean, unseen, others = [], [], []
    sources = {
        row["kernel"]: row["source_sha256"]
        for row in stats.records(resources)
        if row["source_sha256"]
    }
    for kernel, source in sources.items():
        entry = seen.get(kernel, {})
        if entry.get("source_sha256") != source:
            unseen.append(kernel)
        elif entry["others"]:
            others += entry["others"]
        else:
            clean.append(kernel)
    return {
        "any": bool(seen),
        "clean": clean,
        "unseen": sorted(unseen),
        "others": others,
    }


def _ladder_message(part: SweepData, found: Sequence[Answer]) -> str:
    """What the figure of a sweep's ladder says."""
    titles = {one.figure: one.title for one in found}
    drawn = zip(part.sweep.figures, part.sweep.figure_names(), strict=True)
    figure, file = next(one for one in drawn if one[0].kind == "ladder")
    return message(part.drawn(figure, titles.get(file, "")))


def _page(template: str, context: Mapping[str, Any]) -> str:
    lines = "\n".join(line.rstrip() for line in said(template, **context).splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


def write(folder: RunFolder, *given: Any, **more: Any) -> None:
    """Write what `render` makes of these, nothing before it has made all."""
    for file, text in dict(render(folder, *given, **more)).items():
        replace_file(file, text.encode("utf-8"))

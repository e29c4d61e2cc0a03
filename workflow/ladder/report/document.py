"""The report: report.md, which answers, evidence.md behind it, methodology.md, and a page per sweep.

Numbers and selections are made here in Python; words and tables stand in the templates of workflow/report.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pandas import DataFrame

from ladder import __version__
from ladder.model.architecture import lacking
from ladder.model.files import read_json, replace_file
from ladder.model.folders import RunFolder
from ladder.model.kernel import Kernel
from ladder.model.plan import Plan
from ladder.model.schemas import Fields
from ladder.report import markdown, sections
from ladder.report.answers import answers
from ladder.report.chapters import chapters
from ladder.report.choices import Choice, choices
from ladder.report.devices import side_by_side
from ladder.report.ladder_steps import rate, steps
from ladder.report.links import Links
from ladder.report.shares import shares_of
from ladder.report.statements import claim_lines
from ladder.report.titles import which
from ladder.results import statistics as stats
from ladder.results.collect import OTHER_CODE
from ladder.results.input_errors import errors_by_inputs
from ladder.results.run_data import Row, RunData
from ladder.results.templates import TEMPLATES

TEMPLATES.filters |= {"anchor": markdown.anchor, "lacking": lacking}
TEMPLATES.globals |= {
    "errors_by_inputs": errors_by_inputs,
    "OTHER_CODE": OTHER_CODE,
    "rate": rate,
    "sections": sections,
    "shares_of": shares_of,
    "steps": steps,
    "version": __version__,
    "which": which,
}
_NEAR = 0.9  # of the library's speed: below it the report names the library alone


def said(template: str, **context: Any) -> str:
    """What a template of the report says."""
    return TEMPLATES.get_template(f"{template}.md.j2").render(context)


def learnt(published: RunFolder, data: RunData, root: Path) -> str:
    """What README, which lies at `root`, says of a device, from what is published of it."""
    return said(
        "readme",
        answers=answers(data, Links(published, root, data)),
        claims={line["id"]: line for line in claim_lines(data.frames["claims"])},
        gpu=data.name,
        device=published.root.name,
    )


def running(catalog: Mapping[str, Kernel], kernels: Path) -> str:
    """How many kernels of each folder of `kernels` run on which cards: a table of docs/run.md."""
    return said("cards", catalog=catalog, kernels=kernels)


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
    frames, links = data.frames, Links(folder, folder.root, data)
    timings = stats.against_references(frames["timings"])
    answered = answers(data, links)
    where = folder.tables.relative_to(folder.root).as_posix()
    own_folder = run or folder.root
    context = {
        "answers": answered,
        "elsewhere": [
            (f"{there.name} ({folder.root.parent.name})", _headlines(folder, there))
            for folder, there in beside
            if (there.frames["timings"]["status"] == "ok").any()
        ],
        "chapters": chapters(data, answered),
        "links": links,
        "run": data,
        **_use(data),
        "cannot": _cannot(timings),
        "titles": {answer.figure: answer.title for answer in answered},
        "claims": claim_lines(frames["claims"]),
        "devices": side_by_side(data, beside),
        "tables": {**frames, "timings": timings},
        "itself": stats.against_itself(frames["sessions"]),
        "sanitized": _sanitized(read_json(folder.sanitizer) or {}, frames["resources"]),
        "settings": _settings(data, plans),
        "csv": "" if where == "." else f"{where}/",
        "folder": own_folder.as_posix(),
        "device": own_folder.name,
    }
    yield folder.report, _page("report", context)
    yield folder.evidence, _page("evidence", context)
    yield folder.methodology, _page("methodology_page", context)
    for sweep, part in data.parts.items():
        yield folder.sweep_page(sweep), _page("sweep", context | {"data": part})


def _settings(data: RunData, plans: Mapping[str, Plan]) -> Fields:
    """How most sweeps were measured: those with a precision of their own the methodology names apart."""
    planned = [sweep for sweep in data.sweeps.values() if sweep.name in plans]
    if not planned:
        return {}
    usual = min(planned, key=lambda sweep: sweep.precision is not None)
    plan = plans[usual.name]
    return {**plan.settings, "arch": plan.arch}


def _headlines(folder: RunFolder, data: RunData) -> dict[str, str]:
    """Question -> the headline of its answer, without links."""
    answered = answers(data, Links(folder, folder.root, data))
    return {answer.name: markdown.unlinked(answer.headline) for answer in answered}


def _use(data: RunData) -> Fields:
    """What to use: choices `use` by place and size, those where an `other` is the fastest for seconds, who is far
    `behind` where, and the recommended `configurations`, each with a row of it."""
    near = defaultdict[str, dict[int, Choice]](dict)
    other = defaultdict[str, dict[int, Choice]](dict)
    behind = defaultdict[str, list[int]](list)
    configurations = dict[str, Row]()
    for choice in choices(data):
        place = f"{choice.kind} {choice.layout}".strip()
        if choice.gain.measured.high < _NEAR:
            behind[place].append(choice.size)
            continue
        near[place][choice.size] = choice
        configurations.setdefault(choice.row["variant"], choice.row)
        if choice.held and not choice.same:
            other[place][choice.size] = choice
            configurations.setdefault(choice.held["variant"], choice.held)
    return {
        "use": near,
        "behind": behind,
        "other": other,
        "configurations": list(configurations.values()),
    }


def _cannot(timings: DataFrame) -> dict[str, list[str]]:
    """Why kernels cannot run on this GPU's architecture -> their names."""
    rows = timings[timings["reason"].fillna("").str.startswith("needs sm_")]
    kernels = rows.groupby("reason", sort=False)["kernel"].unique()
    return {str(reason): sorted(names) for reason, names in kernels.items()}


def _sanitized(seen: Fields, resources: DataFrame) -> Fields:
    """Kernels that compute-sanitizer has launched with their present source, and those that it has not.

    `seen`: what sanitizer.json says, empty without the file. Returns names `clean` and `unseen`, and as
    `others` rows with a report or without a result.
    """
    of_kernel = resources.dropna(subset="source_sha256").groupby("kernel", sort=False)
    clean, unseen, others = [], [], []
    for kernel, source in of_kernel["source_sha256"].last().items():
        entry = seen.get(str(kernel), {})
        if entry.get("source_sha256") != source:
            unseen.append(str(kernel))
        elif entry["others"]:
            others += entry["others"]
        else:
            clean.append(kernel)
    names = {"clean": clean, "unseen": sorted(unseen), "others": others}
    return {"any": bool(seen), **names}


def _page(template: str, context: Fields) -> str:
    lines = "\n".join(line.rstrip() for line in said(template, **context).splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


def write(*of_run: Any, **more: Any) -> None:
    """Write what `render` makes of these, nothing before it has made all."""
    for file, text in dict(render(*of_run, **more)).items():
        replace_file(file, text.encode("utf-8"))

"""report.md: everything a reader needs to believe the numbers, from the tables of a run.

Tables and findings are made here in Python; the words around them stand in the templates of workflow/report.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from ladder import __version__
from ladder.claims.ledger import DEFAULT_NOISE_PERCENT
from ladder.model.files import read_json
from ladder.model.folders import RunFolder
from ladder.model.plan import Plan
from ladder.model.schemas import VERDICTS
from ladder.model.sweep import Sweep
from ladder.report import markdown, sections
from ladder.report.findings import findings
from ladder.report.steps import step_sentences
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results import tables

TEMPLATES = Path(__file__).resolve().parents[2] / "report"
_REQUIRED = ("timings", "resources", "metrics", "notes", "jobs")
_OPTIONAL = ("claims", "clock_nvbench", "clock_aa")
_NAMES = {"findings": findings, "step_sentences": step_sentences, "sections": sections, "stats": stats}
_FILTERS = (markdown.anchor, markdown.cell, markdown.cut, markdown.figure, markdown.share, markdown.spread)
"""Names and filters that the templates use besides the context."""


def _settings(sweeps: Mapping[str, Sweep], plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Settings of the measuring protocol, from a plan without settings of its own where there is one."""
    planned = [name for name in sweeps if name in plans]
    if not planned:
        return {}
    plan = plans[min(planned, key=lambda name: sweeps[name].precision is not None)]
    return {**plan.settings, "arch": plan.arch}


def context(
    folder: RunFolder, sweeps: Mapping[str, Sweep], plans: Mapping[str, Plan], run: Path
) -> dict[str, Any]:
    """Names the templates use."""
    frames = {name: tables.read(name, folder.tables) for name in _REQUIRED}
    for name in _OPTIONAL:
        there = tables.exists(name, folder.tables)
        frames[name] = tables.read(name, folder.tables) if there else tables.frame(name, [])
    timings, resources, metrics = (frames[name] for name in ("timings", "resources", "metrics"))
    environment = read_json(folder.environment) or {}
    parts = []
    for name, sweep in sweeps.items():
        variants = resources["variant"].isin([variant.id for variant in sweep.variants])
        own = timings[timings["sweep"] == name], resources[variants], metrics[metrics["sweep"] == name]
        parts.append(SweepData(sweep, *own, environment))
    where = folder.tables.relative_to(folder.root).as_posix()
    counts = frames["claims"]["verdict"].value_counts()
    return {
        "version": __version__,
        "environment": environment,
        "source": environment.get("published") or environment,
        "timings_from": environment.get("timings_from") or ("measured" if len(timings) else "none"),
        "headline": sections.headline(parts),
        "parts": parts,
        "sweeps": list(sweeps.values()),
        "failures": sections.failure_table(timings, resources),
        "failed_cells": stats.failures(timings)["status"].value_counts().to_dict(),
        "variants": len(resources),
        "broken_variants": len(stats.failures(resources)),
        "claims": stats.records(frames["claims"]),
        "verdict_counts": {name: counts[name] for name in VERDICTS if name in counts},
        "noise_percent": DEFAULT_NOISE_PERCENT,
        "nvbench": stats.records(frames["clock_nvbench"]),
        "trials": sections.clock_trials(frames["clock_aa"]),
        "jobs": stats.records(frames["jobs"]),
        "throughput": read_json(folder.throughput),
        "notes": sections.alike_notes(frames["notes"]),
        "settings": _settings(sweeps, plans),
        "examples": stats.records(stats.ok_rows(timings, None).head(1)),
        "csv": "" if where == "." else f"{where}/",
        "folder": run.as_posix(),
        "device": run.name,
    }


def render(
    folder: RunFolder, sweeps: Mapping[str, Sweep], plans: Mapping[str, Plan], run: Path | None = None
) -> str:
    """The report as markdown; `plans` say how it was measured, and `run` names the run's own folder if it is another.

    Raises LadderError where a merged table is missing.
    """
    whitespace: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **whitespace)
    environment.globals |= _NAMES
    environment.filters |= {function.__name__: function for function in _FILTERS}
    text = environment.get_template("report.md.j2").render(context(folder, sweeps, plans, run or folder.root))
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"

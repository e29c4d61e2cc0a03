"""report.md: everything a reader needs to believe the numbers, from the tables of a run.

Numbers and selections are made here in Python; words and tables stand in the templates of workflow/report.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ladder import __version__
from ladder.claims.ledger import overall
from ladder.model.errors import refuse_unknown
from ladder.model.files import read_json
from ladder.model.folders import RunFolder
from ladder.model.plan import Plan
from ladder.model.schemas import VERDICTS
from ladder.model.sweep import Sweep
from ladder.report import markdown, sections
from ladder.report.devices import side_by_side
from ladder.report.steps import rate, steps
from ladder.report.sweep_data import of_sweep
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.environment import read_environment
from ladder.results.templates import TEMPLATES

_FILTERS = ("anchor", "code", "cut", "figure", "share", "spread", "text")
TEMPLATES.filters |= {name: getattr(markdown, name) for name in _FILTERS}
TEMPLATES.globals |= {"rate": rate, "steps": steps, "sections": sections, "version": __version__}
_REQUIRED = ("timings", "resources", "metrics", "notes", "jobs")
_OPTIONAL = ("claims", "components", "coverage", "clock_nvbench", "clock_aa", "sanitizer")


def learnt(published: RunFolder, sweeps: Mapping[str, Sweep]) -> str:
    """README's lines of what was measured on a device, from its published tables. Raises LadderError without them."""
    frames = {name: tables.read(name, published.tables) for name in (*_REQUIRED, "claims")}
    environment = read_environment(published)
    return TEMPLATES.get_template("readme.md.j2").render(
        sweeps={name: of_sweep(sweep, frames, environment) for name, sweep in sweeps.items()},
        verdicts=list(overall(frames["claims"])),
        parts=len(frames["claims"]),
        device=published.root.name,
    )


def render(
    folder: RunFolder,
    sweeps: Mapping[str, Sweep],
    plans: Mapping[str, Plan],
    run: Path | None = None,
    beside: Sequence[RunFolder] = (),
) -> str:
    """The report as markdown; `plans` say how it was measured, and `run` names the run's own folder if it is another.

    `beside`: folders of other devices, to compare with.

    Raises LadderError where a merged table is missing.
    """
    frames = {name: tables.read(name, folder.tables) for name in _REQUIRED}
    frames |= {name: tables.read(name, folder.tables, required=False) for name in _OPTIONAL}
    frames["timings"] = stats.against_references(frames["timings"])
    environment = read_environment(folder)
    timings_from = environment.get("timings_from") or ("measured" if len(frames["timings"]) else "none")
    refuse_unknown(folder.environment, "timings_from", timings_from, ("measured", "published", "none"))
    planned = [plans[name] for name in sweeps if name in plans]
    # Of the sweeps with a precision of their own the methodology speaks apart.
    plan = min(planned, key=lambda plan: sweeps[plan.sweep].precision is not None, default=None)
    where = folder.tables.relative_to(folder.root).as_posix()
    counts = overall(frames["claims"]).value_counts()
    source = environment.get("published") or environment
    device = (source.get("gpu") or {}).get("name") or source["device"]
    text = TEMPLATES.get_template("report.md.j2").render(
        environment=environment,
        source=source,
        devices=side_by_side(device, frames, beside),
        timings_from=timings_from,
        parts=[of_sweep(sweep, frames, environment) for sweep in sweeps.values()],
        sweeps=list(sweeps.values()),
        tables=frames,
        **{name: stats.records(frames[name]) for name in ("claims", "clock_nvbench", "jobs")},
        verdict_counts={name: counts[name] for name in VERDICTS if name in counts},
        throughput=read_json(folder.throughput),
        settings={**plan.settings, "arch": plan.arch} if plan else {},
        csv="" if where == "." else f"{where}/",
        folder=(run or folder.root).as_posix(),
        device=(run or folder.root).name,
    )
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"

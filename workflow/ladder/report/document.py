"""report.md: everything a reader needs to believe the numbers, from the tables of a run."""

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
from ladder.model.sweep import Sweep
from ladder.report import sections
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results import tables

TEMPLATES = Path(__file__).resolve().parents[2] / "report"


def environment_rows(environment: Mapping[str, Any]) -> list[list[str]]:
    """Field and value of what a run was made on, leaving out what is not known."""
    gpu, host = environment.get("gpu") or {}, environment.get("host") or {}

    def known(name: str, form: str, scale: float = 1) -> str:
        return form.format(gpu[name] / scale) if gpu.get(name) is not None else ""

    peaks = (gpu.get("tensor_peak_tflops") or {}).items()
    tensor = ", ".join(f"{name} {value:.0f}" for name, value in peaks if value)
    cpu = host.get("cpu")
    rows = {
        "GPU": gpu.get("name"),
        "multiprocessors": gpu.get("sms"),
        "memory": known("memory_bytes", "{:.0f} GiB", 2**30),
        "highest SM clock": known("sm_clock_max_mhz", "{:g} MHz"),
        "power limit": known("power_limit_w", "{:.0f} W"),
        "fp32 peak at that clock": known("fp32_peak_tflops", "{:.1f} TFLOP/s"),
        "tensor peaks at that clock, dense": f"{tensor} TFLOP/s" if tensor else "",
        "device copy, measured": known("copy_gbytes_per_s", "{:.0f} GB/s"),
        **{name: environment.get(name.lower()) for name in ("driver", "NVRTC", "cuBLAS")},
        "Nsight Compute": environment.get("ncu"),
        "Python": environment.get("python"),
        "host": f"{cpu}, {host.get('cores')} cores" if cpu is not None else "",
    }
    return [[name, str(value)] for name, value in rows.items() if value]


def _when(source: Mapping[str, Any]) -> str:
    """Every GPU with the time it was measured on."""
    cards = source.get("gpus") or [source]
    parts = []
    for card in cards:
        whose = card.get("uuid") or ("a GPU that is not known" if len(cards) > 1 else "")
        start, end = str(card.get("started") or ""), str(card.get("finished") or "")
        parts.append(f"{whose} from {start[:16].replace('T', ' ')} to {end[11:16]} UTC".lstrip())
    return ", and ".join(parts)


def _trees(source: Mapping[str, Any]) -> str:
    """The commits it was measured from, as far as they are known, and the digests of their trees."""
    parts = []
    for tree in source.get("trees") or [source.get("tree") or {}]:
        commit = f"commit `{tree['commit'][:12]}`" if tree.get("commit") else "no commit known"
        changed = " with local changes" if tree.get("commit") and not tree.get("clean") else ""
        parts.append(f"{commit}{changed} (tree digest `{str(tree.get('digest') or 'unknown')[:16]}`)")
    return ", ".join(parts)


def _settings(sweeps: Mapping[str, Sweep], plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Settings of the measuring protocol, from a plan without settings of its own where there is one."""
    own: dict[float, list[str]] = {}
    for sweep in sweeps.values():
        if sweep.precision is not None:
            own.setdefault(sweep.precision, []).append(f"`{sweep.name}`")
    planned = [name for name in sweeps if name in plans]
    if not planned:
        return {}
    plan = plans[min(planned, key=lambda name: sweeps[name].precision is not None)]
    return {**plan.settings, "arch": plan.arch, "other_precisions": own}


def context(
    folder: RunFolder, sweeps: Mapping[str, Sweep], plans: Mapping[str, Plan], run: Path
) -> dict[str, Any]:
    """Names the template uses."""
    where = folder.tables.relative_to(folder.root).as_posix()
    names = ("timings", "resources", "metrics", "notes", "jobs")
    timings, resources, metrics, notes, jobs = (tables.read(name, folder.tables) for name in names)
    claims, nvbench, trials = (
        tables.read(name, folder.tables) if tables.exists(name, folder.tables) else tables.frame(name, [])
        for name in ("claims", "clock_nvbench", "clock_aa")
    )
    environment = read_json(folder.environment) or {}
    source = environment.get("published") or environment
    parts = []
    for name, sweep in sweeps.items():
        variants = resources["variant"].isin([variant.id for variant in sweep.variants])
        own = timings[timings["sweep"] == name], resources[variants], metrics[metrics["sweep"] == name]
        parts.append(SweepData(sweep, *own, environment))
    claims_text, evidence = sections.claims_table(claims)
    # A cell of the tables, as commands take it.
    done = stats.records(stats.ok_rows(timings, None).head(1))
    examples = [f"{row['variant']}@{stats.size_label(stats.size_of(row))}:{row['regime']}" for row in done]
    return {
        "version": __version__,
        "environment": environment,
        "source": source,
        "measured_when": _when(source),
        "measured_from": _trees(source),
        "environment_rows": environment_rows,
        "timings_from": environment.get("timings_from") or ("measured" if len(timings) else "none"),
        "headline": sections.headline(parts),
        "verdict_counts": sections.verdict_counts(claims),
        "sweeps": [sections.sweep_section(part) for part in parts],
        "failures": sections.failure_table(timings, resources),
        "failed_cells": stats.failures(timings)["status"].value_counts().to_dict(),
        "variants": len(resources),
        "broken_variants": len(stats.failures(resources)),
        "claims": claims_text,
        "evidence": evidence,
        "noise_percent": DEFAULT_NOISE_PERCENT,
        "nvbench": sections.clock_nvbench(nvbench),
        "aa": sections.clock_aa(trials),
        "jobs": sections.jobs_table(jobs),
        "throughput": sections.throughput(read_json(folder.throughput)),
        "notes": sections.notes_table(notes),
        "settings": _settings(sweeps, plans),
        "csv": "" if where == "." else f"{where}/",
        "history_example": (examples or ["VARIANT@SIZE:REGIME"])[0],
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
    text = environment.get_template("report.md.j2").render(context(folder, sweeps, plans, run or folder.root))
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"

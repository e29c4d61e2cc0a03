"""report.md: everything a reader needs to believe the numbers, from the tables of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from ladder import __version__
from ladder.claims.ledger import DEFAULT_NOISE_PERCENT
from ladder.model.files import read_json
from ladder.model.folders import RunFolder
from ladder.model.plan import Plan
from ladder.model.sweep import Sweep
from ladder.report import clock_section, sections
from ladder.report.sweep_data import SweepData
from ladder.results import tables
from ladder.results.statistics import failures, records, size_label, size_of

TEMPLATES = Path(__file__).resolve().parents[2] / "report"


def environment_rows(environment: Mapping[str, Any]) -> list[list[str]]:
    """Field and value of what a run was made on, leaving out what is not known."""
    gpu, host = environment.get("gpu") or {}, environment.get("host") or {}
    tensor = ", ".join(
        f"{name} {value:.0f}" for name, value in (gpu.get("tensor_peak_tflops") or {}).items() if value
    )

    def known(value: Any, text: str) -> str:
        return text if value is not None else ""

    rows = [
        ("GPU", gpu.get("name")),
        ("multiprocessors", gpu.get("sms")),
        ("memory", known(gpu.get("memory_bytes"), f"{(gpu.get('memory_bytes') or 0) / 2**30:.0f} GiB")),
        ("highest SM clock", known(gpu.get("sm_clock_max_mhz"), f"{gpu.get('sm_clock_max_mhz')} MHz")),
        ("power limit", known(gpu.get("power_limit_w"), f"{gpu.get('power_limit_w') or 0:.0f} W")),
        (
            "fp32 peak at that clock",
            known(gpu.get("fp32_peak_tflops"), f"{gpu.get('fp32_peak_tflops') or 0:.1f} TFLOP/s"),
        ),
        ("tensor peaks at that clock, dense", known(tensor or None, f"{tensor} TFLOP/s")),
        (
            "device copy, measured",
            known(gpu.get("copy_gbytes_per_s"), f"{gpu.get('copy_gbytes_per_s') or 0:.0f} GB/s"),
        ),
        ("driver", environment.get("driver")),
        ("NVRTC", environment.get("nvrtc")),
        ("cuBLAS", environment.get("cublas")),
        ("Nsight Compute", environment.get("ncu")),
        ("Python", environment.get("python")),
        ("host", known(host.get("cpu"), f"{host.get('cpu')}, {host.get('cores')} cores")),
    ]
    return [[name, str(value)] for name, value in rows if value]


def _when(source: Mapping[str, Any]) -> str:
    """Every GPU with the time it was measured on."""
    cards = source.get("gpus") or [source]
    parts = []
    for card in cards:
        whose = (
            str(card.get("uuid") or "a GPU that is not known") + " "
            if len(cards) > 1 or card.get("uuid")
            else ""
        )
        start, end = (
            str(card.get("started") or "")[:16].replace("T", " "),
            str(card.get("finished") or "")[11:16],
        )
        parts.append(f"{whose}from {start} to {end} UTC")
    return ", and ".join(parts)


def _trees(source: Mapping[str, Any]) -> str:
    """The commits it was measured from, as far as they are known, and the digests of their trees."""
    parts = []
    for tree in source.get("trees") or [source.get("tree") or {}]:
        commit = f"commit `{tree['commit'][:12]}`" if tree.get("commit") else "no commit known"
        changed = " with local changes" if tree.get("commit") and not tree.get("clean") else ""
        parts.append(f"{commit}{changed} (tree digest `{str(tree.get('digest') or 'unknown')[:16]}`)")
    return ", ".join(parts)


def _settings(sweeps: Sequence[Sweep], plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Settings of the measuring protocol, from a plan without settings of its own where there is one."""
    own: dict[float, list[str]] = {}
    for sweep in sweeps:
        if sweep.precision is not None:
            own.setdefault(sweep.precision, []).append(f"`{sweep.name}`")
    for sweep in sorted(sweeps, key=lambda sweep: sweep.precision is not None):
        if (plan := plans.get(sweep.name)) is not None:
            return {**plan.settings, "arch": plan.arch, "other_precisions": own}
    return {}


def _optional(name: str, folder: Path) -> pd.DataFrame:
    return tables.read(name, folder) if tables.exists(name, folder) else tables.frame(name, [])


def _of_sweep(frame: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    return frame[(frame["sweep"] == sweep.name).fillna(False)]


def _example(timings: pd.DataFrame) -> str:
    """A cell of the tables, as commands take it."""
    done = timings[(timings["status"] == "ok").fillna(False)]
    if done.empty:
        return "VARIANT@SIZE:REGIME"
    row = records(done.head(1))[0]
    return f"{row['variant']}@{size_label(size_of(row))}:{row['regime']}"


def context(
    folder: RunFolder, sweeps: Mapping[str, Sweep], plans: Mapping[str, Plan], run: Path
) -> dict[str, Any]:
    """Names the template uses."""
    where = folder.tables.relative_to(folder.root).as_posix()
    frames = {
        name: tables.read(name, folder.tables)
        for name in ("timings", "resources", "metrics", "notes", "jobs")
    }
    claims = _optional("claims", folder.tables)
    environment = read_json(folder.environment) or {}
    source = environment.get("published") or environment
    parts = [
        SweepData(
            sweep,
            _of_sweep(frames["timings"], sweep),
            frames["resources"][
                frames["resources"]["variant"].isin([variant.id for variant in sweep.variants])
            ],
            _of_sweep(frames["metrics"], sweep),
            environment,
        )
        for sweep in sweeps.values()
    ]
    nvbench, trials = _optional("clock_nvbench", folder.tables), _optional("clock_aa", folder.tables)
    claims_text, evidence = sections.claims_table(claims)
    compiled = frames["resources"]
    broken = compiled[compiled["status"] != "ok"]
    return {
        "version": __version__,
        "environment": environment,
        "source": source,
        "measured_when": _when(source),
        "measured_from": _trees(source),
        "environment_rows": environment_rows,
        "timings_from": environment.get("timings_from") or ("measured" if len(frames["timings"]) else "none"),
        "headline": sections.headline(parts),
        "verdict_counts": sections.verdict_counts(claims),
        "sweeps": [sections.sweep_section(part) for part in parts],
        "failures": sections.failure_table(frames["timings"], compiled),
        "failed_cells": failures(frames["timings"])["status"].value_counts().to_dict(),
        "variants": len(compiled),
        "broken_variants": len(broken),
        "claims": claims_text,
        "evidence": evidence,
        "noise_percent": DEFAULT_NOISE_PERCENT,
        "nvbench": clock_section.clock_nvbench(nvbench) if len(nvbench) else "",
        "aa": clock_section.clock_aa(trials) if len(trials) else "",
        "jobs": clock_section.jobs_table(frames["jobs"]) if len(frames["jobs"]) else "",
        "throughput": clock_section.throughput(read_json(folder.throughput)),
        "notes": sections.notes_table(frames["notes"]),
        "settings": _settings(list(sweeps.values()), plans),
        "csv": "" if where == "." else f"{where}/",
        "history_example": _example(frames["timings"]),
        "folder": run.as_posix(),
        "device": run.name,
    }


def render(
    folder: RunFolder, sweeps: Mapping[str, Sweep], plans: Mapping[str, Plan], run: Path | None = None
) -> str:
    """The report as markdown; `plans` say how it was measured, and `run` names the run's own folder if it is another.

    Raises LadderError where a merged table is missing.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    text = environment.get_template("report.md.j2").render(context(folder, sweeps, plans, run or folder.root))
    lines = [line.rstrip() for line in text.splitlines()]
    kept = [line for index, line in enumerate(lines) if line or (index and lines[index - 1])]
    return "\n".join(kept).strip() + "\n"

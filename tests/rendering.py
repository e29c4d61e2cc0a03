"""A run with made-up records and its report, rendered once for a test to read."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from checkout import PUBLISHED
from conftest import ROOT
from factory import Lab
from ladder.claims.ledger import Claim, rows_of
from ladder.claims.primitives import Parts, decide_part
from ladder.report.answers import Answer, answers
from ladder.report.document import render
from ladder.report.links import Links
from ladder.results import tables
from ladder.results.run_data import RunData

LEFT_BEHIND = re.compile(
    r".{0,60}(?:\bnan\b|\bNone\b|<NA>|&lt;NA&gt;|\*\* No \w+\.).{0,30}"
)
"""What a missing number, table or compiler leaves in a text that was not written for it."""
SWEEPS = ["fp32_ladder", "fp32_transpose", "bank_stride", "stencil_reach"]


def claim(
    source: str = "gemm-practice",
    statement: str = "Transposing pays.",
    label: str = "gain",
    least: float = 1,
) -> Claim:
    """A claim of a function that decides nothing else."""

    def decided(data: RunData) -> Parts:
        gain = decide_part(
            label, data.speeds(data.timed("fp32_transpose")), least=least, per="n"
        )
        yield gain
        return f"Transpose: {gain.span}."

    return Claim("transpose-pays", source, statement, decided)


def report(
    lab: Lab, one: Claim | None = None, **frames: pd.DataFrame
) -> dict[str, str]:
    """The pages by their names without .md, about sweeps that have tables; `frames` stand in for those of the run."""
    sweeps = {
        name: sweep
        for name, sweep in lab.sweeps().items()
        if lab.folder.sweep(name).is_dir()
    }
    data = RunData.read(lab.folder, sweeps)
    claims = tables.frame("claims", rows_of(one or claim(), data))
    data = with_frames(data, **{"claims": claims, **frames})
    return {path.stem: text for path, text in render(lab.folder, data, lab.plans())}


def made(root: Path, sweeps: list[str] | None = None, **more: Any) -> Lab:
    """A run of SWEEPS, or of some, whose ladder says which rung each one changes."""
    lab = Lab(root)
    path = lab.project.sweeps / "fp32_ladder.yaml"
    document = yaml.safe_load(path.read_text())
    for below, rung in itertools.pairwise(document["variants"]):
        rung["baseline"] = below["rung"]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    lab.record_and_collect(sweeps or SWEEPS, **more)
    return lab


def answer_of(data: RunData, name: str) -> Answer:
    """The answer of that name to what is published, or to what stands in its place."""
    found = answers(data, Links(PUBLISHED, ROOT, data))
    return next(answer for answer in found if answer.name == name)


def with_frames(data: RunData, **frames: pd.DataFrame) -> RunData:
    """The same with other tables."""
    return RunData(data.sweeps, {**data.frames, **frames}, data.environment)


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def cells(table: str) -> list[dict[str, str]]:
    """The rows of a table in markdown: head -> cell."""
    lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
    )
    heads, _, *rows = lines
    return [dict(zip(heads, row, strict=True)) for row in rows]

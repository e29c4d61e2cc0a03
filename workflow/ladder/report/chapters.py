"""The chapters of the report: folders of kernels, their sweeps, their ladders, and the answers about them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ladder.model.sweep import Sweep
from ladder.report.answers import Answer
from ladder.report.ladder_steps import Step, climb, steps
from ladder.report.shares import shares_of
from ladder.results.run_data import RunData

_TITLES = {
    "fp32": "The FP32 ladder",
    "simt": "The FP32 ladder",
    "as_written": "The FP32 ladder",
    "warp_mma": "Tensor cores, warp level",
    "hopper": "Hopper",
    "hopper_scaled": "Block scales",
    "triton": "Triton",
    "memory_bound": "Memory-bound kernels",
    "attention": "Attention",
    "shared_memory": "Memory banks",
    "stencil": "Register cache",
}
"""Title by folder of kernels, in reading order."""
_LEAST_RUNGS = 4  # of a ladder that a chapter shows


@dataclass(frozen=True)
class Ladder:
    """A sweep and its rungs: where shares of the peak were predicted all with a result, else those to its fastest."""

    name: str
    rungs: Sequence[Step]


@dataclass(frozen=True)
class Chapter:
    """`ladders` are those that it shows: of each problem that of the sweep with its name, else the longest.

    `cards`: the answers that stand in it: those that are no findings, which stand ahead of all chapters; else all.
    `absent`: why none of its kernels can run on this GPU; empty where one can.
    """

    title: str
    sweeps: Sequence[Sweep]
    cards: Sequence[Answer]
    ladders: Sequence[Ladder]
    absent: str


def title_of(sweep: Sweep) -> str:
    """The title of the innermost folder of its kernels that has one; without any the name of the innermost."""
    source = sweep.entries[0].variant.kernel.source
    folders = [folder.name for folder in source.parents]
    depth = folders.index("kernels") if "kernels" in folders else 1
    for folder in folders[:depth]:
        if folder in _TITLES:
            return _TITLES[folder]
    return folders[0].replace("_", " ").capitalize()


def chapters(data: RunData, answers: Sequence[Answer]) -> list[Chapter]:
    """The chapters that have a sweep in this run, those with a title first."""
    by_title: dict[str, list[Sweep]] = {title: [] for title in _TITLES.values()}
    for sweep in data.sweeps.values():
        by_title.setdefault(title_of(sweep), []).append(sweep)
    shown = []
    for title, sweeps in by_title.items():
        if sweeps:
            names = {sweep.name for sweep in sweeps}
            about = [answer for answer in answers if answer.sweep in names]
            cards = [answer for answer in about if not answer.front] or about
            ladders = _ladders(data, sweeps)
            absent = _absent(data, sweeps)
            shown.append(Chapter(title, sweeps, cards, ladders, absent))
    return shown


def _absent(data: RunData, sweeps: Sequence[Sweep]) -> str:
    """The reason that most cells of these sweeps have, where all of them are unsupported; else empty."""
    rows = pd.concat([data.parts[sweep.name].timings for sweep in sweeps])
    if rows.empty or (rows["status"] != "unsupported").any():
        return ""
    return str(rows["reason"].mode()[0])


def _ladders(data: RunData, sweeps: Sequence[Sweep]) -> list[Ladder]:
    """Of each problem the ladder of the sweep with its name, else the longest."""
    chosen: dict[str, Ladder] = {}
    for sweep in sorted(sweeps, key=lambda sweep: sweep.name != sweep.problem.name):
        part, problem = data.parts[sweep.name], sweep.problem.name
        rungs = steps(part) if shares_of(part) else climb(part)
        drawn = any(figure.kind == "ladder" for figure in sweep.figures)
        if not drawn or len(rungs) < _LEAST_RUNGS:
            continue
        other = chosen.setdefault(problem, Ladder(sweep.name, rungs))
        if other.name != problem and len(rungs) > len(other.rungs):
            chosen[problem] = Ladder(sweep.name, rungs)
    return [*chosen.values()]

"""The chapters of the report: folders of kernels, their sweeps, their ladders, and the answers about them."""

from collections.abc import Mapping, Sequence
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
class Chapter:
    """`ladders`: the sweeps whose ladders it shows, of each problem one, with their rungs.

    `cards`: the answers that stand in it: those that are no findings, which stand ahead of all chapters; else all.
    `absent`: why none of its kernels can run on this GPU; empty where one can.
    """

    title: str
    sweeps: Sequence[Sweep]
    cards: Sequence[Answer]
    ladders: Mapping[str, Sequence[Step]]
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


def _ladders(data: RunData, sweeps: Sequence[Sweep]) -> dict[str, Sequence[Step]]:
    """Of each problem the ladder of the sweep with its name, else the longest.

    By the name of the sweep its rungs: where shares of the peak were predicted all with a result, else those to its
    fastest.
    """
    chosen: dict[str, tuple[str, Sequence[Step]]] = {}
    for sweep in sorted(sweeps, key=lambda sweep: sweep.name != sweep.problem.name):
        part, problem = data.parts[sweep.name], sweep.problem.name
        rungs = steps(part) if shares_of(part) else climb(part)
        is_ladder = sweep.figure_name("ladder") and len(rungs) >= _LEAST_RUNGS
        name, others = chosen.get(problem, ("", ()))
        if is_ladder and name != problem and len(rungs) > len(others):
            chosen[problem] = sweep.name, rungs
    return dict(chosen.values())

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

    `absent`: why none of its kernels can run on this GPU; empty where one can.
    """

    title: str
    sweeps: Sequence[Sweep]
    answers: Sequence[Answer]
    ladders: Sequence[Ladder]
    absent: str = ""

    @property
    def cards(self) -> list[Answer]:
        """The answers that it holds: those that are no findings, which stand ahead of all chapters; else all."""
        return [one for one in self.answers if not one.front] or [*self.answers]


def title_of(sweep: Sweep) -> str:
    """The title of the innermost folder of its kernels that has one; without any the name of the innermost."""
    folders = sweep.entries[0].variant.kernel.source.parts[-2::-1]
    inside = (
        folders[: folders.index("kernels")] if "kernels" in folders else folders[:1]
    )
    found = (_TITLES[name] for name in inside if name in _TITLES)
    return next(found, folders[0].replace("_", " ").capitalize())


def chapters(data: RunData, answers: Sequence[Answer]) -> list[Chapter]:
    """The chapters that have a sweep in this run, those with a title first."""
    by_title: dict[str, list[Sweep]] = {title: [] for title in _TITLES.values()}
    for sweep in data.sweeps.values():
        by_title.setdefault(title_of(sweep), []).append(sweep)
    return [
        Chapter(
            title,
            sweeps,
            [one for one in answers if _TITLES.get(one.chapter, one.chapter) == title],
            _ladders(data, sweeps),
            _absent(data, sweeps),
        )
        for title, sweeps in by_title.items()
        if sweeps
    ]


def _absent(data: RunData, sweeps: Sequence[Sweep]) -> str:
    """The reason that most cells of these sweeps have, where all of them are unsupported; else empty."""
    rows = pd.concat([data.parts[sweep.name].timings for sweep in sweeps])
    if rows.empty or (rows["status"] != "unsupported").any():
        return ""
    return str(rows["reason"].mode()[0])


def _ladders(data: RunData, sweeps: Sequence[Sweep]) -> list[Ladder]:
    longest = dict[str, Ladder]()
    for sweep in sorted(sweeps, key=lambda one: one.name != one.problem.name):
        if any(figure.kind == "ladder" for figure in sweep.figures):
            part = data.parts[sweep.name]
            rungs = steps(part) if shares_of(part) else climb(part)
            known = longest.get(sweep.problem.name)
            named = known is not None and known.name == sweep.problem.name
            if not named and len(rungs) >= max(
                _LEAST_RUNGS, len(known.rungs) + 1 if known else 0
            ):
                longest[sweep.problem.name] = Ladder(sweep.name, rungs)
    return [*longest.values()]

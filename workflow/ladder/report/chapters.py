"""The chapters of the report: a folder of kernels, its sweeps, its ladder, and the answers about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ladder.model.sweep import Sweep
from ladder.report.answers import Answer
from ladder.report.steps import Step, climb
from ladder.results.run_data import RunData

_TITLES = {
    "fp32": "The FP32 ladder",
    "warp_mma": "Tensor cores, warp level",
    "hopper": "Hopper",
    "shared_memory": "Memory banks",
    "stencil": "Register cache",
}
"""Title by folder of kernels, in reading order; a folder that is not among them has its name as its title."""
_SAME = {"simt": "fp32"}
_LEAST_RUNGS = 4  # of a ladder that a chapter shows


@dataclass(frozen=True)
class Chapter:
    """`ladder` is the sweep whose path to its fastest rung the chapter shows, with the `rungs`; empty without one."""

    title: str
    sweeps: Sequence[Sweep]
    answers: Sequence[Answer]
    ladder: str = ""
    rungs: Sequence[Step] = ()


def folder_of(sweep: Sweep) -> str:
    """The folder of the kernels that a sweep is about."""
    folder = sweep.entries[0].variant.kernel.source.parent.name
    return _SAME.get(folder, folder)


def chapters(data: RunData, answers: Sequence[Answer]) -> list[Chapter]:
    """The chapters that have a sweep in this run, those with a title first."""
    by_folder: dict[str, list[Sweep]] = {name: [] for name in _TITLES}
    for sweep in data.sweeps.values():
        by_folder.setdefault(folder_of(sweep), []).append(sweep)
    return [_chapter(data, name, own, answers) for name, own in by_folder.items() if own]


def _chapter(data: RunData, folder: str, sweeps: Sequence[Sweep], answers: Sequence[Answer]) -> Chapter:
    title = _TITLES.get(folder, folder.replace("_", " ").capitalize())
    ladder, rungs = max(_ladders(data, sweeps).items(), key=lambda one: len(one[1]), default=("", ()))
    own = [one for one in answers if one.chapter == folder]
    return (
        Chapter(title, sweeps, own, ladder, rungs)
        if len(rungs) >= _LEAST_RUNGS
        else Chapter(title, sweeps, own)
    )


def _ladders(data: RunData, sweeps: Sequence[Sweep]) -> Mapping[str, Sequence[Step]]:
    """Of each sweep with a figure of a ladder the rungs that lead to its fastest, each over the one before."""
    found = {}
    for sweep in sweeps:
        if any(figure.kind == "ladder" for figure in sweep.figures):
            found[sweep.name] = climb(data.parts[sweep.name])
    return found

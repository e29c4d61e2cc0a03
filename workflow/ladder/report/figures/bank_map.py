"""The 32 banks of shared memory under one access: which word each serves in which turn, and for which lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ladder.build.banks import BANKS
from ladder.report.figures.style import PALETTE

Phase = Mapping[int, Mapping[int, Sequence[int]]]
"""Bank -> word -> the lanes it is for."""

# Free of conflict, shared by lanes, waiting for an earlier turn: told apart by hatching as well as by colour.
_ALONE: dict[str, Any] = {"facecolor": "#dce9f5", "edgecolor": PALETTE[0]}
_SHARED: dict[str, Any] = {"facecolor": "#a9cbe8", "edgecolor": PALETTE[0]}
_WAITS: dict[str, Any] = {"facecolor": "#f7d9b5", "edgecolor": "#a34700", "hatch": "///"}


def lanes_label(lanes: Sequence[int]) -> str:
    """Lanes as runs, one run a line: [0, 1, 2, 5] is 0-2 and 5; of more than three runs the number of lanes."""
    runs: list[list[int]] = []
    for lane in sorted(lanes):
        if runs and lane == runs[-1][-1] + 1:
            runs[-1].append(lane)
        else:
            runs.append([lane])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return "\n".join(texts) if len(texts) <= 3 else f"{len(lanes)}\nlanes"


def _draw_phase(axis: Axes, phase: Phase) -> int:
    """Cells of one phase: bank across, turn down. Returns its turns."""
    turns = max((len(words) for words in phase.values()), default=0)
    for bank, words in phase.items():
        for turn, (_, lanes) in enumerate(sorted(words.items())):
            look = _WAITS if turn else _SHARED if len(lanes) > 1 else _ALONE
            axis.add_patch(Rectangle((bank - 0.5, turn), 1, 1, linewidth=0.8, **look))
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6} if turn else None
            axis.text(bank, turn + 0.5, lanes_label(lanes), ha="center", va="center", fontsize=7, bbox=box)
    axis.set_xlim(-0.5, BANKS - 0.5)
    axis.set_ylim(max(turns, 1), 0)
    axis.set_yticks([turn + 0.5 for turn in range(turns)], [str(turn + 1) for turn in range(turns)])
    axis.set_xticks(range(BANKS))
    axis.tick_params(length=0, labelsize=7)
    axis.set_xticks([bank - 0.5 for bank in range(BANKS + 1)], minor=True)
    axis.grid(which="minor", axis="x", color="#d8d8d8", linewidth=0.6)
    axis.grid(which="major", visible=False)
    axis.set_axisbelow(True)
    return turns


def draw_banks(phases: Sequence[Phase], title: str, file: Path) -> None:
    """Draw one panel per phase into a PNG file. Raises OSError where it cannot be written."""
    turns = [max((len(words) for words in phase.values()), default=1) for phase in phases]
    figure = Figure(
        figsize=(13, 1.7 + sum(0.45 * max(count, 1) + 0.55 for count in turns)), layout="constrained"
    )
    axes = figure.subplots(
        len(phases), 1, squeeze=False, gridspec_kw={"height_ratios": [n + 0.3 for n in turns]}
    )
    for number, (axis, phase) in enumerate(zip(axes[:, 0], phases, strict=True)):
        _draw_phase(axis, phase)
        lanes = {lane for words in phase.values() for held in words.values() for lane in held}
        axis.set_ylabel(f"lanes {min(lanes)}-{max(lanes)}\nturn" if lanes else "turn", fontsize=8)
        if number == len(phases) - 1:
            axis.set_xlabel("bank (numbers in the cells are lanes)", fontsize=9)
    figure.suptitle(title, fontsize=11)
    handles = [
        Rectangle((0, 0), 1, 1, label=label, **look)
        for label, look in (
            ("word of one lane", _ALONE),
            ("word shared by lanes", _SHARED),
            ("another word of a bank: waits", _WAITS),
        )
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)

"""The 32 banks of shared memory under one access: which word each serves in which turn, and for which lanes."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ladder.build.banks import BANKS
from ladder.report.figures.style import PALETTE

Phase = Mapping[int, Mapping[int, Sequence[int]]]
"""Bank -> word -> the lanes it is for."""

_ALONE, _SHARED, _WAITS = "word of one lane", "word shared by lanes", "another word of a bank: waits"
# Hatching distinguishes them as well as colour.
_LOOKS: dict[str, dict[str, Any]] = {
    _ALONE: {"facecolor": "#dce9f5", "edgecolor": PALETTE[0]},
    _SHARED: {"facecolor": "#a9cbe8", "edgecolor": PALETTE[0]},
    _WAITS: {"facecolor": "#f7d9b5", "edgecolor": "#a34700", "hatch": "///"},
}


def lanes_label(lanes: Sequence[int]) -> str:
    """Lanes as runs, one run a line: [0, 1, 2, 5] is 0-2 and 5; of more than three runs the number of lanes."""
    # In a run lanes are as far from their places.
    grouped = itertools.groupby(enumerate(sorted(lanes)), key=lambda pair: pair[1] - pair[0])
    runs = [[lane for _, lane in run] for _, run in grouped]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return "\n".join(texts) if len(texts) <= 3 else f"{len(lanes)}\nlanes"


def draw_banks(phases: Sequence[Phase], title: str, file: Path) -> None:
    """Draw a panel per phase, bank across and turn down, into a PNG file. Raises OSError if it cannot be written."""
    turns = [max((len(words) for words in phase.values()), default=0) for phase in phases]
    rows = [max(count, 1) for count in turns]
    figure = Figure(figsize=(13, 1.7 + sum(0.45 * count + 0.55 for count in rows)), layout="constrained")
    ratios = {"height_ratios": [count + 0.3 for count in rows]}
    axes = figure.subplots(len(phases), 1, squeeze=False, gridspec_kw=ratios)[:, 0]
    for axis, phase, count in zip(axes, phases, turns, strict=True):
        for bank, words in phase.items():
            for turn, (_, lanes) in enumerate(sorted(words.items())):
                look = _LOOKS[_WAITS if turn else _SHARED if len(lanes) > 1 else _ALONE]
                axis.add_patch(Rectangle((bank - 0.5, turn), 1, 1, linewidth=0.8, **look))
                box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6} if turn else None
                axis.text(bank, turn + 0.5, lanes_label(lanes), ha="center", va="center", size=7, bbox=box)
        axis.set(xlim=(-0.5, BANKS - 0.5), ylim=(max(count, 1), 0), xticks=range(BANKS))
        axis.set_yticks([turn + 0.5 for turn in range(count)], [str(turn + 1) for turn in range(count)])
        axis.tick_params(length=0, labelsize=7)
        axis.set_xticks([bank - 0.5 for bank in range(BANKS + 1)], minor=True)
        axis.grid(which="minor", axis="x", color="#d8d8d8", linewidth=0.6)
        axis.grid(which="major", visible=False)
        axis.set_axisbelow(True)
        all_lanes = {lane for words in phase.values() for held in words.values() for lane in held}
        span = f"lanes {min(all_lanes)}-{max(all_lanes)}\n" if all_lanes else ""
        axis.set_ylabel(f"{span}turn", fontsize=8)
    axes[-1].set_xlabel("bank (numbers in the cells are lanes)", fontsize=9)
    figure.suptitle(title, fontsize=11)
    handles = [Rectangle((0, 0), 1, 1, label=label, **look) for label, look in _LOOKS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)

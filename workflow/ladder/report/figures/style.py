"""The one look of all figures, in place of matplotlib's defaults: legible at 830 pixels width."""

from typing import Any

import matplotlib as mpl

DPI = 144
WIDTH = 8.0
PALETTE = [
    "#0072b2",
    "#d55e00",
    "#00805c",
    "#b0508f",
    "#7a5c00",
    "#4d4d4d",
    "#56b4e9",
    "#e69f00",
    "#7fbf7b",
    "#c48ad0",
]
"""Colours of lines that most people who see few colours can distinguish; no figure uses one twice.

The page has the first six.
"""
REFERENCE, MUTED, FAINT, INK = "#333333", "#666666", "#e4e4e4", "#111111"
BEHIND, TIE, AHEAD = "#c2570c", "#8c8c8c", "#0072b2"
"""Colours of speeds below, at and above the reference's."""
PALE = "#a9cfe6"
"""Colour of gains beside the path of a ladder."""


_LOOK: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "ytick.left": False,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "butt",
    "text.color": INK,
    "text.parse_math": False,
}


def apply() -> None:
    """Take back whatever was set before, and set the look of this project."""
    mpl.rcdefaults()
    mpl.rcParams.update(_LOOK)

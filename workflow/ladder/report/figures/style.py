"""The one look of all figures, in place of seaborn's and matplotlib's defaults: legible at 900 pixels width."""

from typing import Any

import matplotlib as mpl
import seaborn as sns

DPI = 144
WIDTH = 8.0
PALETTE = [str(color) for color in sns.color_palette("colorblind").as_hex()]
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "*", "<", ">"]
REFERENCE, MUTED, FAINT, INK = "#333333", "#666666", "#e4e4e4", "#111111"
BEHIND, TIE, AHEAD = "#b35806", "#f4f4f4", "#2166ac"
"""Colours of speeds below, at and above the reference's."""
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "axes.facecolor": "white",
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.bottom": True,
    "ytick.left": False,
    "lines.solid_capstyle": "round",
    "text.parse_math": False,
}


def apply() -> None:
    """Take back whatever was set before, and set the look of this project."""
    mpl.rcdefaults()
    for name, value in _SETTINGS.items():
        mpl.rcParams[name] = value

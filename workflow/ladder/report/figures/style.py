"""The one look of all figures, in place of matplotlib's defaults: legible at 900 pixels width."""

import matplotlib as mpl

DPI = 144
WIDTH = 8.0
_COLORS = "0173b2 de8f05 029e73 d55e00 cc78bc ca9161 fbafe4 949494 ece133 56b4e9"
PALETTE = [f"#{color}" for color in _COLORS.split()]
"""Distinct also to people who see few colours: those of seaborn's palette `colorblind`."""
MARKERS = ["o", "s", "D", "^", "v", "P", "X", "*", "<", ">"]
REFERENCE, MUTED, FAINT, INK = "#333333", "#666666", "#e4e4e4", "#111111"
BEHIND, TIE, AHEAD = "#b35806", "#f4f4f4", "#2166ac"
"""Colours of speeds below, at and above the reference's."""


def apply() -> None:
    """Take back whatever was set before, and set the look of this project."""
    mpl.rcdefaults()
    mpl.rc("font", family="DejaVu Sans", size=11)
    mpl.rc("axes", titlesize=11, labelsize=11, labelcolor=INK, facecolor="white")
    mpl.rc("axes", edgecolor="#999999", linewidth=0.8, axisbelow=True, grid=True)
    mpl.rc("axes.spines", top=False, right=False)
    mpl.rc("grid", color=FAINT, linewidth=0.8)
    mpl.rc("xtick", labelsize=10, color=INK)
    mpl.rc("ytick", labelsize=10, color=INK, left=False)
    mpl.rc("legend", fontsize=10)
    mpl.rc("text", color=INK, parse_math=False)
    mpl.rc("lines", solid_capstyle="round")

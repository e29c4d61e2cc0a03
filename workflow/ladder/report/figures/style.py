"""The one look of all figures, in place of matplotlib's defaults: legible at 830 pixels width."""

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
PALE = {AHEAD: "#a9cfe6", BEHIND: "#f0bd97"}
"""Colours of gains and losses beside the path of a ladder."""


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
    mpl.rc("lines", solid_capstyle="butt")

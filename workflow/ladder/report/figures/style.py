"""The one look of all figures, in place of seaborn's and matplotlib's defaults: legible at 900 pixels width."""

import matplotlib as mpl
import seaborn as sns

DPI = 144
WIDTH = 8.0
PALETTE = [str(color) for color in sns.color_palette("colorblind").as_hex()]
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

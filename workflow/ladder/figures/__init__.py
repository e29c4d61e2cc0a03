"""Figures: one module a kind, one registry. The workflow asks here for file names: no plotting."""

from __future__ import annotations

from ladder.sweeps import Sweep


def figure_names(sweep: Sweep) -> list[str]:
    """Names of a sweep's figures, `INDEX-KIND`, as RunFolder.figure takes them."""
    return [f"{index}-{figure.kind}" for index, figure in enumerate(sweep.figures, start=1)]

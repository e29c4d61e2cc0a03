"""The problems kernels solve: one module each, plain data at import; CUDA comes in through the `gpu` handed over."""

from __future__ import annotations

from ladder.problems.banks import Banks
from ladder.problems.base import Problem
from ladder.problems.gemm import Gemm
from ladder.problems.stencil import Stencil

PROBLEMS: dict[str, Problem] = {problem.name: problem for problem in (Gemm(), Banks(), Stencil())}


def problem_named(name: str) -> Problem:
    """The problem called `name`; a KeyError is a bug, the catalogue has checked the name."""
    return PROBLEMS[name]

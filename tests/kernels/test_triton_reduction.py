"""The sum in Triton: right as far as Triton's interpreter tells, and what is compiled of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from checkout import in_triton
from compiling import compiled_without_spills, opcodes
from conftest import ROOT
from emulator.inputs import drawn, value
from ladder.build.triton_request import compiler
from ladder.model.problem import ELEMENT_BYTES
from ladder.problems.reduction.bounds import error_bound
from triton_run import Launch, interpreted, with_mistake

FOLDER = ROOT / "kernels/memory_bound/reduction"
SMALL = {"block": 2048, "blocks": 132}
CASES = [
    *(
        ("fp32", elements, kind)
        for elements in (1, 33, 2048, 4099)
        for kind in ("uniform", "integers")
    ),
    *((dtype, 2048 * (2 * 132 + 5) + 7, "positive") for dtype in ("fp32", "bf16")),
    *(("fp32", 65537, kind) for kind in ("wide", "positive")),
]
"""Dtype, numbers and kind of inputs: a part of a block, a whole one, some, and several rounds of the grid."""


def errors(
    folders: Sequence[Path], cases: Sequence[tuple[str, int, str]]
) -> list[tuple[float, bool]]:
    """The error of each sum over the bound, 0 where it must be exact and is; and whether what must hold zeros does.

    Each case has the kernel of a folder of its own.
    """
    launches = []
    for folder, (dtype, elements, kind) in zip(folders, cases, strict=True):
        buffers = {
            "input": drawn(dtype, elements, 7, kind),
            "output": np.full(1, np.nan, np.float32),
        }
        size = {"elements": elements}
        launches.append(
            Launch(folder / "triton_reduction.yaml", dtype, size, buffers, SMALL)
        )
    found = []
    for made, (dtype, elements, kind) in zip(interpreted(launches), cases, strict=True):
        numbers = value(drawn(dtype, elements, 7, kind), dtype)
        error = abs(float(made["output"][0]) - numbers.sum()) / max(
            np.abs(numbers).sum(), 1e-300
        )
        bound = error_bound(elements, kind)
        over = error / bound if bound else (0.0 if error == 0 else np.inf)
        found.append((float(np.nan_to_num(over, nan=np.inf)), not made["zeroed"].any()))
    return found


def test_sums_are_right_and_the_counter_is_zero_again() -> None:
    found = errors([FOLDER] * len(CASES), CASES)
    assert all(error <= 1 and zeros for error, zeros in found), [
        *zip(found, CASES, strict=True)
    ]


MISTAKES = [
    ("if own == 0:", "if own < 0:"),
    ("mask=lanes < elements - whole", "mask=lanes < elements - whole - 1"),
    ("whole, blocks * BLOCK", "whole, blocks * BLOCK * 2"),
    ("mask=lanes < blocks", "mask=lanes < blocks - 1"),
    ("== blocks - 1", "== blocks - 2"),
    ("        tl.store(counter, 0)\n", ""),
    ("of_lanes += tl.load(input + first", "of_lanes = tl.load(input + first"),
]


def test_mistakes_show(tmp_path: Path) -> None:
    """Where some blocks have a second round."""
    folders = [
        with_mistake(FOLDER / "triton_reduction.py", tmp_path / str(at), *change)
        for at, change in enumerate(MISTAKES)
    ]
    found = errors(
        folders, [("fp32", 2048 * (132 + 5) + 6, "integers")] * len(MISTAKES)
    )
    for (error, zeros), mistake in zip(found, MISTAKES, strict=True):
        assert error > 1 or not zeros, mistake


@pytest.mark.skipif(not compiler(), reason="Triton is not installed")
def test_each_of_the_sweep_loads_vectors_spills_nothing_and_hands_sums_over_in_order() -> (
    None
):
    # Written, met, made visible and counted; then what others wrote is read past the L1.
    steps = (
        r"STG\.E",
        "BAR",
        r"MEMBAR\S*GPU",
        r"ATOMG\S*ADD\S*GPU",
        r"CCTL\.IVALL",
        "BAR",
        r"LDG\.E\.STRONG\.GPU",
    )
    order = r"\S*( \S+)*? ".join(steps)
    wanted = ("STG", "BAR", "MEMBAR", "ATOMG", "CCTL", "LDG.E.STRONG")
    variants = in_triton("reduction_libraries")
    for one, cubin in zip(variants, compiled_without_spills(variants), strict=True):
        found = opcodes(cubin, "sm_90a")
        block, warps = (int(one.params[name]) for name in ("block", "warps"))
        assert (
            found.count("LDG.E.128")
            == block // (32 * warps) * ELEMENT_BYTES[one.dtype] // 16
        ), one.id
        assert re.search(
            order, " ".join(each for each in found if each.startswith(wanted))
        ), (one.id, found)

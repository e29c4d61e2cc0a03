"""The softmax in Triton: right as far as Triton's interpreter tells, and what is compiled of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from checkout import catalog, facts_without_spills, in_triton
from conftest import ROOT
from emulator.inputs import drawn, value
from emulator.softmax_rule import error_over_bound
from ladder.build.triton_request import compiler
from ladder.model.kernel import Variant
from ladder.model.problem import ELEMENT_BYTES
from triton_run import Launch, interpreted, with_mistake

needs_triton = pytest.mark.skipif(not compiler(), reason="Triton is not installed")
FOLDER = ROOT / "kernels" / "memory_bound" / "softmax"
KINDS = ("uniform", "positive", "wide", "integers", "spikes", "masked", "equal")
HELD = {"block": 128, "warps": 4, "aligned": 1}
ONLINE = HELD | {"online": 1}
DTYPES = catalog()["triton_softmax"].dtypes
CASES = [
    *(
        (dtype, *size, HELD, "uniform")
        for dtype in DTYPES
        for size in ((1, 1), (5, 31), (3, 128))
    ),
    *(
        (dtype, *size, ONLINE, "uniform")
        for dtype in DTYPES
        for size in ((2, 1), (3, 129), (2, 384))
    ),
    *(("fp32", 3, 96, HELD | {"aligned": 16}, kind) for kind in KINDS),
    *(("fp32", 3, 400, ONLINE | {"aligned": 16}, kind) for kind in KINDS),
]
"""Dtype, rows, columns, parameters and kind of inputs."""


def matrix(dtype: str, rows: int, columns: int, kind: str) -> np.ndarray:
    """What is drawn; nothing of it is -inf alone, but where "masked" the first block of the first row is."""
    elements = (
        drawn(dtype, rows * columns, 3 + 11 * rows + columns, kind)
        .reshape(rows, columns)
        .copy()
    )
    if kind == "masked":
        elements[0, :128] = -np.inf
        elements[:, -1] = 0
    return elements


def errors(
    folders: Sequence[Path], cases: Sequence[tuple[str, int, int, dict[str, int], str]]
) -> list[float]:
    """The largest error of each case, with the kernel of its folder, over the bound, by the rule of the problem."""
    launches = []
    for folder, (dtype, rows, columns, params, kind) in zip(
        folders, cases, strict=True
    ):
        given = matrix(dtype, rows, columns, kind)
        poison = np.full_like(given, np.nan if dtype == "fp32" else 0xFFFF)
        buffers = {"input": given, "output": poison}
        size = {"m": rows, "n": columns}
        launches.append(
            Launch(folder / "triton_softmax.yaml", dtype, size, buffers, params)
        )
    return [
        error_over_bound(
            value(made["output"], dtype),
            value(matrix(dtype, rows, columns, kind), dtype),
            dtype,
        )
        for made, (dtype, rows, columns, _, kind) in zip(
            interpreted(launches), cases, strict=True
        )
    ]


def test_outputs_are_right() -> None:
    found = errors([FOLDER] * len(CASES), CASES)
    assert all(error < 1 for error in found), [*zip(found, CASES, strict=True)]


MISTAKES = [
    ("-3.4e38", '-float("inf")', ONLINE, "masked"),
    ("maximum = larger", "maximum = larger + 1", ONLINE, "uniform"),
    (
        "sums = sums * tl.exp(maximum - larger) + tl.exp",
        "sums = sums + tl.exp",
        ONLINE,
        "uniform",
    ),
    (
        "mask=columns < n - first, other=-float",
        "mask=columns < n, other=-float",
        ONLINE,
        "uniform",
    ),
    ('columns < n, other=-float("inf")', "columns < n, other=0.0", HELD, "uniform"),
    ("share = tl.exp(x - tl.max(x))", "share = tl.exp(x)", HELD, "wide"),
]


def test_mistakes_show(tmp_path: Path) -> None:
    folders = [
        with_mistake(FOLDER / "triton_softmax.py", tmp_path / str(at), right, mistaken)
        for at, (right, mistaken, *_) in enumerate(MISTAKES)
    ]
    cases = [
        ("fp32", 3, 300 if params is ONLINE else 96, params, kind)
        for _, _, params, kind in MISTAKES
    ]
    for error, mistake in zip(errors(folders, cases), MISTAKES, strict=True):
        assert error > 1, mistake


IN_SWEEP = in_triton("softmax_libraries")


def work(variant: Variant) -> tuple[int, int, int]:
    """Of a thread: elements, the vectors of 16 bytes that they are, and passes over them besides the last."""
    block, warps, passes = (
        int(variant.params[name]) for name in ("block", "warps", "online")
    )
    elements = block // (32 * warps)
    return elements, elements * ELEMENT_BYTES[variant.dtype] // 16, passes


@needs_triton
@pytest.mark.parametrize("variant", IN_SWEEP, ids=lambda one: one.id)
def test_each_of_the_sweep_reads_and_writes_whole_vectors_and_spills_nothing(
    variant: Variant,
) -> None:
    found = facts_without_spills(variant)
    (_, vectors, passes) = work(variant)
    assert (found["ldg"], found["stg"]) == (vectors * (1 + passes), vectors)

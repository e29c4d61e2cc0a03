"""The stencil kernels on lines of every length from 1 to 200, without a GPU: their PTX runs on the CPU (emulator)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import catalog
from compiling import compile_ptx
from covering import all_pairs
from emulator.hopper import INCLUDE
from emulator.launching import planted
from emulator.ptx import Array, Fault, Memory, parse
from emulator.tensor_ptx import TensorMachine
from ladder.model.kernel import Variant
from ladder.problems.stencil import halo
from numpy.lib.stride_tricks import sliding_window_view

pytestmark = pytest.mark.slow

POISON = 0x7FC0DEAD
BLOCK = 128
LENGTHS = range(1, 201)
RADII = (1, 2, 4, 7, 12, 16, 25, 32)
SHAPES: dict[str, list[dict[str, Any]]] = {
    "stencil_global": [{}],
    "stencil_shared": [{"coarsen": coarsen} for coarsen in (1, 3, 8)],
    "stencil_register_cache": [
        {"coarsen": 1, "lanes": 8},
        {"coarsen": 3, "lanes": 16},
        {"coarsen": 3, "lanes": 32},
        {"coarsen": 8},
        {"mask": "active"},
    ],
    "stencil_window": [
        {"outputs": 4, "exchange": "shuffle"},
        {"outputs": 12, "exchange": "shared"},
        {"outputs": 4, "exchange": "direct"},
        {"outputs": 12, "store": "streaming"},
    ],
}
"""Every stencil kernel, and the parameters beside the radius with which it is tried."""


def variant(name: str, dtype: str = "int32", **params: Any) -> Variant:
    return catalog()[name].variant({"block": BLOCK, **params}, dtype)


def lines(dtype: str, lengths: list[int]) -> list[Array]:
    """Seeded inputs of both signs, one per length."""
    random = np.random.default_rng(4)
    if dtype == "int32":
        return [random.integers(-1000, 1001, length, np.int32) for length in lengths]
    return [random.uniform(-1, 1, length).astype(np.float32) for length in lengths]


def run(
    given: Variant,
    lengths: list[int],
    include: Path = INCLUDE,
    text: str | None = None,
) -> list[tuple[Array, Array]]:
    """(input, output) of a launch for each length, with the geometry of the kernel's YAML; outputs begin as poison."""
    ptx = compile_ptx(given.kernel.source, given.entry, [include], text)
    memory = Memory()
    inputs = lines(given.dtype, lengths)
    places = []
    for launch, line in enumerate(inputs):
        source = memory.buffer(launch, line.view(np.uint32), writable=False)
        target = memory.buffer(
            launch, np.full(len(line), POISON, np.uint32), writable=True
        )
        places.append((source, target, len(line)))
    blocks = [given.geometry({"elements": length}).grid[0] for length in lengths]
    TensorMachine(parse(ptx, 0), memory, BLOCK, blocks, places).run()
    outputs = [
        memory.words[target // 4 : target // 4 + length] for _, target, length in places
    ]
    return list(zip(inputs, outputs, strict=True))


def wrong(given: Variant, line: Array, output: Array) -> str:
    """What is wrong with an output, by the rule of the problem `stencil` (the harness' compare_stencil); else empty."""
    more = halo(given.params)
    means = max(len(line) - more, 0)
    if (output[means:] != POISON).any():
        return f"n = {len(line)}: written behind the last output"
    if not means:
        return ""
    windows = sliding_window_view(
        line.astype(np.int64 if given.dtype == "int32" else np.float64), more + 1
    )
    sums = windows.sum(axis=1)
    found = output[:means].view(line.dtype)
    if given.dtype == "int32":
        expected = np.sign(sums) * (np.abs(sums) // (more + 1))
        bad = found != expected
    else:
        size = np.abs(windows).sum(axis=1)
        bad = ~(
            np.abs(found.astype(np.float64) * (more + 1) - sums)
            <= (more + 2) * 2.0**-24 * size
        )
    return (
        f"n = {len(line)}: wrong at {np.flatnonzero(bad).tolist()[:8]}"
        if bad.any()
        else ""
    )


def around_blocks(given: Variant) -> list[int]:
    """Lengths at which the last block has one output, or all it can have, and their neighbours."""
    outputs = BLOCK * int(given.params.get("outputs", given.params.get("coarsen", 1)))
    more = halo(given.params)
    ends = (outputs, outputs + more, 2 * outputs + more)
    return sorted({end + step for end in ends for step in range(-2, 3)} - set(LENGTHS))


def mistakes(given: Variant, **more: Any) -> list[str]:
    lengths = [*LENGTHS, *around_blocks(given)]
    checked = (wrong(given, *pair) for pair in run(given, lengths, **more))
    return [text for text in checked if text]


def test_every_stencil_kernel_is_tried() -> None:
    stencils = {
        name for name, kernel in catalog().items() if kernel.problem.name == "stencil"
    }
    assert set(SHAPES) == stencils, "SHAPES has the parameters of each stencil"


FAR = [name for name in SHAPES if name != "stencil_window"]
TRIED = [
    *all_pairs(FAR, ["int32", "fp32"], RADII),
    *all_pairs(
        ["stencil_window"],
        ["int32", "fp32"],
        [radius for radius in RADII if radius <= 16],
    ),
]


@pytest.mark.parametrize(("name", "dtype", "radius"), TRIED)
def test_every_length_is_right(name: str, dtype: str, radius: int) -> None:
    for shape in SHAPES[name]:
        given = variant(name, dtype, radius=radius, **shape)
        found = mistakes(given)
        assert not found, f"{given.id}: {found[:3]}"


# A mistake planted in a copy of the kernels is found: the tests above can fail.

OUTSIDE = "outside of its buffer"
BARRIER = "before the barrier"
SHUFFLE = "not all lanes"
WRONG = "wrong at"
BEHIND = "written behind"
EARLY = "    if (first + lane + halo >= elements) return;\n    T cache"
PLANTED: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("stencil_global", {}, "at + halo >= elements", "at + halo > elements", OUTSIDE),
    ("stencil_shared", {}, "first + at < elements", "first + at <= elements", OUTSIDE),
    ("stencil_shared", {}, "__syncthreads();", "", BARRIER),
    (
        "stencil_register_cache",
        {"coarsen": 2},
        "at < outputs + halo &&",
        "at < outputs + halo - 1 &&",
        WRONG,
    ),
    ("stencil_register_cache", {}, "    T cache", EARLY, SHUFFLE),
    (
        "stencil_register_cache",
        {"mask": "active"},
        "    T cache",
        EARLY,
        "not name all lanes",
    ),
    (
        "stencil_register_cache",
        {"radius": 32},
        "near + 1, registers - 1",
        "near + 1, 1",
        WRONG,
    ),
    ("stencil_register_cache", {"lanes": 16}, "turn, Lanes)", "turn)", WRONG),
    ("stencil_window", {}, "place < halo_quads", "place + 1 < halo_quads", WRONG),
    ("stencil_window", {"exchange": "shared"}, "__syncthreads();", "", BARRIER),
    (
        "stencil_window",
        {},
        "if (at + 4 <= elements)",
        "if (at + 3 <= elements)",
        OUTSIDE,
    ),
    ("stencil_window", {}, "if (at + 4 <= end)", "if (at + 3 <= end)", BEHIND),
    (
        "stencil_window",
        {"exchange": "direct", "radius": 5},
        "quad > Halo / 4 ?",
        "quad >= Halo / 4 ?",
        WRONG,
    ),
]
"""A kernel; parameters; what is replaced by what; what the test must find."""


@pytest.mark.parametrize(("name", "params", "old", "new", "finding"), PLANTED)
def test_a_planted_mistake_is_found(
    tmp_path: Path, name: str, params: dict[str, Any], old: str, new: str, finding: str
) -> None:
    given = variant(name, **{"radius": 7, **params})
    more = planted(tmp_path, given.kernel.source, old, new)
    try:
        found = mistakes(given, **more)
    except Fault as fault:
        found = [str(fault)]
    assert any(finding in text for text in found), found[:3]

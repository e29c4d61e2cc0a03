"""The check of a timed stencil, without a GPU: what it looks at."""

from __future__ import annotations

import numpy as np
import pytest
from emulator.inputs import drawn
from emulator.ptx import Array
from problems.check_kernels import KEY, inspected

HALO, POISON = 4, 0x7FC0DEAD
TILE, STRETCH = 1024, 32


def line(elements: int) -> tuple[Array, Array]:
    """An input, and the means of it in fp32 with poison behind the last."""
    given = drawn("fp32", elements, KEY)
    windows = np.lib.stride_tricks.sliding_window_view(given, HALO + 1)
    made = np.full(elements, POISON, np.uint32).view(np.float32)
    made[: len(windows)] = windows.mean(axis=1, dtype=np.float64)
    return given, made


def error(given: Array, made: Array, stretches: int) -> float:
    elements = made.size
    return inspected(
        "stencil",
        "check_stretches<float>",
        [given, made],
        *(elements, HALO, POISON, 0, KEY, 0, stretches),
    )


@pytest.mark.parametrize("elements", [9, 2 * TILE + 40])
def test_what_is_right_passes_and_no_wrong_tile_does(elements: int) -> None:
    """The last tile has fewer outputs than a stretch."""
    given, right = line(elements)
    tiles = -(-elements // TILE)
    assert error(given, right, tiles) <= (HALO + 2) * 2.0**-24
    for first in range(0, elements, TILE):
        wrong = right.copy()
        wrong[first : min(first + TILE, elements - HALO)] += 1
        assert error(given, wrong, tiles) > 0.1, first
        moved = given.copy()
        moved[first : first + TILE] *= 2
        assert error(moved, right, tiles) == 1e300, first


@pytest.mark.parametrize("behind", range(1, HALO + 1))
def test_nobody_may_write_behind_the_last_output(behind: int) -> None:
    given, made = line(3 * TILE)
    made[-behind] = 0.0
    assert error(given, made, 3) == 1e300


def test_of_a_tile_it_looks_at_as_many_outputs_as_a_stretch_has() -> None:
    given, right = line(2 * TILE)  # the end is looked at whole
    seen = 0
    for at in range(0, TILE, STRETCH):
        wrong = right.copy()
        wrong[at : at + STRETCH] += 1
        seen += error(given, wrong, 2) > 0.1
    assert 1 <= seen <= 2

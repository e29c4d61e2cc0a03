"""gemm_tma, of whose warps some copy and the others multiply, without a GPU: results, mistakes, machine code."""

from __future__ import annotations

import pytest
from conftest import ROOT
from covering import all_pairs
from emulator.hopper import wrong_in_fp32
from ladder.catalogue.kernels import load_kernel
from ladder.model.kernel import Variant

pytestmark = pytest.mark.slow

KERNEL = load_kernel(ROOT / "kernels" / "gemm" / "simt" / "gemm_tma.yaml")
LOADS = ("early", "late")
SIZES: list[tuple[tuple[int, int, int], int]] = [
    ((130, 260, 44), 4),  # 2 x 2 tiles of 128 x 256, of which three are cut
    ((127, 252, 7), 1),  # less than a step of K
    ((3, 4, 32), 1),
    ((128, 512, 33), 2),
]
"""M x N x K, and tiles."""


def variant(bk: int = 8, stages: int = 3, walk: str = "searched") -> Variant:
    return KERNEL.variant({"bk": bk, "stages": stages, "walk": walk}, "fp32", "NN")


@pytest.mark.parametrize(
    ("stages", "launch", "loads"), all_pairs([2, 3, 8], SIZES, LOADS)
)
def test_results_are_right(
    stages: int, launch: tuple[tuple[int, int, int], int], loads: str
) -> None:
    """More stages than steps, as many, and fewer."""
    size, tiles = launch
    assert wrong_in_fp32(variant(stages=stages), size, tiles, loads=loads) == 0


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(
    ("bk", "stages", "walk"),
    [(8, 16, "rows"), (16, 4, "snake"), (16, 8, "searched"), (32, 4, "columns")],
)
def test_results_of_other_parameters_are_right(
    bk: int, stages: int, walk: str, loads: str
) -> None:
    assert wrong_in_fp32(variant(bk, stages, walk), (130, 260, 76), 4, loads=loads) == 0


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_k_of_0_and_without_c(beta: float, loads: str) -> None:
    """Where K is 0 the result is beta * C. Where beta is 0, C is not read: it holds NaN."""
    for k in (0, 20):
        assert wrong_in_fp32(variant(), (130, 260, k), 4, beta, loads=loads) == 0


# What is compiled.

"""GEMMs in Triton are right at sizes where kernels break, as far as Triton's interpreter tells."""

from __future__ import annotations

import pytest
from checkout import catalog
from emulator.launching import wrong

PLAIN = (1.0, 0.0)
BOTH = (0.5, -1.5)
CASES = [
    ((1, 272, 136), PLAIN),  # a row
    ((65, 80, 24), PLAIN),  # a tile and more
    ((65, 80, 24), BOTH),
    ((130, 80, 8), BOTH),  # K below a stage
    ((128, 128, 64), PLAIN),  # whole tiles
]
MANY = {"triton_gemm": (300, 80, 8), "triton_persistent": (1100, 464, 8)}
"""More rows of tiles than a group; more tiles than the grid has blocks."""


@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize("kernel", MANY)
def test_a_product_is_right_with_and_without_beta(kernel: str, layout: str) -> None:
    tile = {"bm": 64, "bn": 64, "bk": 32, "group": 4}
    tile |= {"aligned": 1} if kernel == "triton_gemm" else {"blocks": 128}
    one = catalog()[kernel].variant(tile, "fp16", layout)
    for size, (alpha, beta) in (*CASES, (MANY[kernel], BOTH)):
        assert wrong(one, size, beta, alpha) == 0, (size, alpha, beta)

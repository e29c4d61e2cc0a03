"""GEMMs in Triton are right at sizes where kernels break, as far as Triton's interpreter tells."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import ROOT
from triton_run import Launch, interpreted

FOLDER = ROOT / "kernels/gemm/triton"
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


def product(m: int, n: int, k: int, beta: float) -> list[np.ndarray]:
    """A, B and C, which holds NaN where it is not read."""
    random = np.random.default_rng(1)
    a, b, c = (
        random.uniform(-1, 1, of).astype(np.float16) for of in ((m, k), (k, n), (m, n))
    )
    return [a, b, c if beta else np.full_like(c, np.nan)]


@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize("kernel", ["triton_gemm", "triton_persistent"])
def test_a_product_is_right_with_and_without_beta(kernel: str, layout: str) -> None:
    cases = [*CASES, (MANY[kernel], BOTH)]
    tile = {"bm": 64, "bn": 64, "bk": 32, "group": 4}
    tile |= {"aligned": 1} if kernel == "triton_gemm" else {"blocks": 128}
    launches = []
    for size, (alpha, beta) in cases:
        a, b, c = product(*size, beta)
        given = {
            "a": a,
            "b": np.ascontiguousarray(b.T) if layout == "TN" else b,
            "c": c,
        }
        names = dict(zip("mnk", size, strict=True))
        scalars = {"alpha": alpha, "beta": beta}
        launches.append(
            Launch(
                FOLDER / f"{kernel}.yaml", "fp16", names, given, tile, layout, scalars
            )
        )
    for (size, (alpha, beta)), made in zip(cases, interpreted(launches), strict=True):
        a, b, c = (one.astype(float) for one in product(*size, beta))
        wanted = alpha * (a @ b) + (beta * c if beta else 0.0)
        error = np.max(np.abs(made["c"] - wanted) / (np.abs(a) @ np.abs(b) + 1.0))
        assert error < 1e-3, (size, alpha, beta)

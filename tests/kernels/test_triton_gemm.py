"""GEMMs in Triton are right at sizes where kernels break, as far as Triton's interpreter tells."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT, environment
from ladder.build.triton_request import compiler

FOLDER = ROOT / "kernels" / "gemm" / "triton"
SIZES = {
    "a row": (1, 264, 136),
    "a tile and more": (65, 72, 24),
    "K below a stage": (130, 72, 8),
    "tiles": (128, 128, 64),
}
_BROKEN = "only 0-dimensional arrays can be converted"
"""What the interpreter of older versions of Triton says with NumPy from 2.4 on."""


@pytest.mark.skipif(not compiler(), reason="Triton is not installed")
@pytest.mark.parametrize("layout", ["TN", "NN"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kernel", ["triton_gemm", "triton_persistent"])
def test_a_product_is_right_with_and_without_beta(kernel: str, size: str, layout: str) -> None:
    for weights in (("1", "0"), ("0.5", "-1.5")):
        command = [
            sys.executable,
            ROOT / "tests" / "triton_product.py",
            FOLDER,
            kernel,
            *SIZES[size],
            layout,
            *weights,
        ]
        there = environment() | {"PYTHONPATH": ":".join(filter(None, sys.path))}
        done = subprocess.run([*map(str, command)], env=there, capture_output=True, text=True, check=False)
        if _BROKEN in done.stderr:
            pytest.skip("this version of Triton cannot interpret with this version of NumPy")
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) < 1e-3

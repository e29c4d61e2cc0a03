"""A product by a GEMM in Triton, run by Triton's interpreter in NumPy: a program, which chooses that ahead of imports.

usage: python triton_product.py FOLDER KERNEL M N K LAYOUT ALPHA BETA, which prints the largest error over |A||B| + 1.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np

os.environ["TRITON_INTERPRET"] = "1"
TILE = {"BM": 32, "BN": 64, "BK": 16, "GROUP": 2}
BLOCKS = 3  # of the persistent kernel


class Float16(str):
    """What Triton asks a torch.dtype."""

    itemsize = 2


class Tensor:
    """An array as Triton's interpreter takes tensors, at a multiple of 64 bytes."""

    dtype = Float16("torch.float16")

    def __init__(self, values: Any) -> None:
        room = np.empty(values.nbytes + 64, np.uint8)
        self.array = room[-room.ctypes.data % 64 :][: values.nbytes].view(np.float16).reshape(values.shape)
        self.array[...] = values
        self.shape, self.ndim = values.shape, values.ndim

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def stride(self) -> list[int]:
        return [one // 2 for one in self.array.strides]


def error(kernel: str, size: tuple[int, int, int], layout: str, alpha: float, beta: float) -> float:
    from triton.runtime.interpreter import GridExecutor
    from triton.tools.tensor_descriptor import TensorDescriptor

    # Its tensors are copied from no device.
    GridExecutor._init_args_hst = lambda self, args, words: ([*args], {**words})
    GridExecutor._restore_args_dev = lambda self, *args: None
    (m, n, k), random = size, np.random.default_rng(1)
    a, b, c = (random.uniform(-1, 1, of).astype(np.float16) for of in ((m, k), (k, n), (m, n)))
    begins = c if beta else np.full_like(c, np.nan)
    given = [Tensor(a), Tensor(b.T if layout == "TN" else b), Tensor(begins)]
    tiles = -(-m // TILE["BM"]) * -(-n // TILE["BN"])
    function, grid = getattr(importlib.import_module(kernel), kernel), tiles
    arguments: list[Any] = [*given]
    if kernel == "triton_persistent":
        of_b = (TILE["BN"], TILE["BK"]) if layout == "TN" else (TILE["BK"], TILE["BN"])
        boxes = ((TILE["BM"], TILE["BK"]), of_b, (TILE["BM"], TILE["BN"] // 2))
        pairs = zip(given, boxes, strict=True)
        arguments = [TensorDescriptor(one, [*one.shape], one.stride(), [*box]) for one, box in pairs]
        grid = min(BLOCKS, tiles)
    function[(grid,)](*arguments, m, n, k, alpha, beta, **TILE, TN=layout == "TN")
    left, right = a.astype(float), b.astype(float)
    wanted = alpha * (left @ right) + (beta * c.astype(float) if beta else 0.0)
    return float(np.max(np.abs(given[2].array - wanted) / (np.abs(left) @ np.abs(right) + 1.0)))


if __name__ == "__main__":
    folder, name, m, n, k, layout, alpha, beta = sys.argv[1:]
    sys.path.insert(0, folder)
    print(error(name, (int(m), int(n), int(k)), layout, float(alpha), float(beta)))

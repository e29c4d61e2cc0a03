"""The Hopper kernels as their tests use them without a GPU: variants, machine code and static assertions."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from ladder.catalog import Kernel, Variant, load_kernel
from ladder.compiler import compile_source, compile_variant
from ladder.cubin import sass

ROOT = Path(__file__).resolve().parent.parent
HOPPER = ROOT / "kernels" / "gemm" / "hopper"
INCLUDE = ROOT / "kernels" / "include"
ARCH = "sm_90a"
ONE = "hopper_tma_wgmma"
RING = "hopper_gemm"
VARIANTS: list[tuple[str, str, str, dict[str, int | str]]] = [
    (ONE, "bf16", "NN", {}),
    (ONE, "fp16", "TN", {"bm": 64, "bn": 256}),
    (RING, "bf16", "NN", {}),
    (RING, "bf16", "TN", {"cluster_m": 2, "boxes": 4, "stages": 3}),
    (RING, "fp16", "NN", {"cluster_n": 2, "raster": "hilbert"}),
    (RING, "bf16", "TN", {"bm": 256, "bn": 128, "cluster_m": 2, "cluster_n": 2}),
    (RING, "bf16", "NN", {"bn": 128, "store": "direct", "reallocate": 0, "stages": 5, "raster": 0}),
    (RING, "bf16", "NN", {"bn": 128, "consumers": 1, "reallocate": 0}),
    (RING, "bf16", "TN", {"bm": 256, "bn": 192, "stages": 3}),
    (RING, "bf16", "TN", {"bm": 192, "bn": 192, "consumers": 3, "boxes": 1, "raster": "hilbert"}),
    (RING, "tf32", "TN", {"cluster_m": 2}),
    (RING, "fp8", "TN", {"bm": 256, "bn": 128, "cluster_n": 2}),
    (RING, "bf16", "TN", {"stagger": 1, "serpentine": 1}),
    (RING, "fp16", "NN", {"store": "direct", "blocks": 0, "split_k": 4, "stagger": 1}),
    (
        RING,
        "tf32",
        "TN",
        {
            "bm": 64,
            "bn": 64,
            "stages": 8,
            "consumers": 1,
            "reallocate": 0,
            "store": "direct",
            "blocks": 0,
            "split_k": 3,
        },
    ),
]


@functools.cache
def kernel(name: str) -> Kernel:
    return load_kernel(HOPPER / f"{name}.yaml")


def variant(name: str, dtype: str = "bf16", layout: str = "NN", **params: int | str) -> Variant:
    return kernel(name).variant(params, dtype, layout)


@functools.cache
def _compiled(name: str, dtype: str, layout: str, params: str) -> tuple[dict[str, Any], list[str]]:
    cubin, facts = compile_variant(variant(name, dtype, layout, **json.loads(params)), INCLUDE, ARCH)
    assert facts["status"] == "ok", facts["reason"]
    code = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(.+?) ;", sass(cubin), re.MULTILINE)
    return facts, code


def compiled(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> tuple[dict[str, Any], list[str]]:
    """Facts and the instructions in their order, compiled once per test process."""
    return _compiled(name, dtype, layout, json.dumps(params, sort_keys=True))


def hold(text: str, *assertions: str) -> None:
    """Compile `text` with static assertions. Raises LadderError with the compiler's message where one fails."""
    inside = "\n".join(f'static_assert({assertion}, "");' for assertion in assertions)
    source = f"{text}\n__global__ void holds() {{\n{inside}\n}}\n"
    compile_source(source, "holds.cu", ["holds"], [INCLUDE], ARCH)

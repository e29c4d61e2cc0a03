"""Verify kernels on fresh inputs at odd sizes, often: repetitions.py ARCH REPETITIONS [KERNEL ...].

Without a KERNEL: all that load by TMA, and the files of the FP32 and tensor-core ladders. A missing wait or a release
too early shows as a wrong result once in a while. Each repetition draws new inputs, fills C with NaN (or with
numbers, for beta != 0) and compares every output with the fp64 GEMM. Prints a line per kernel and type, and ends with
status 1 where one was wrong.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from compiling import compile_variant
from ladder.build.variants import harness
from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.catalogue.sweeps import load_sweep
from ladder.gpu.device import Gpu, Harness
from ladder.gpu.instance import Maker
from ladder.gpu.launching import load
from ladder.gpu.timing import Timer
from ladder.model.folders import Project
from ladder.model.plan import Plan
from ladder.problems.gemm import PROBLEM
from ladder.problems.gemm.instance import INSTANCE

ROOT = Path(__file__).resolve().parent.parent
SMALL = {"consumers": 1, "reallocate": 0, "blocks": 0}
HINTS = {"evict_a": "last", "evict_b": "first", "evict_c": "first"}
TILE: dict[str, Any] = {"bm": 64, "bn": 64, "tm": 4, "tn": 4}
DEEP = {**TILE, "bk": 16}
NARROW: dict[str, Any] = {"bn": 128, "tn": 8, "stages": 2}
BESIDE_THE_DEFAULT: list[tuple[str, dict[str, Any]]] = [
    ("3_shared_tile", {"tile": 16}),
    ("4_register_tile 4b_transposed", TILE),
    ("5_vectors 5b_padding 5c_lane_map 5d_quadrants", DEEP),
    ("6_register_staging", {**DEEP, "blocks": 1}),
    ("6b_double_buffer", {**DEEP, "min_blocks": 2}),
    ("6d_fragments", {**DEEP, "min_blocks": 1}),
    ("7_async_ring", {**DEEP, "stages": 4}),
    ("7b_wide_tile 7c_snake", {**NARROW, "bk": 16}),
    ("7d_deep_ring 7e_tma", {**NARROW, "bk": 8}),
    ("8_copying_warpgroup", {"bk": 8, "stages": 2}),
    ("1_tma_wgmma 1b_double_buffer", {"bm": 64, "bn": 256}),
    ("2_ring", {"bn": 64, "stages": 6}),
    ("3_wide_tile", {"bm": 256, "bn": 128}),
    ("4_persistent", {"raster": "hilbert"}),
    ("5_multicast", {"cluster_m": 4}),
    ("6_tma_store", {"cluster_m": 1, "buffers": 1}),
    ("6c_stagger", {"bn": 128, "stages": 6, "buffers": 1}),
    ("6d_serpentine", {"bn": 128, "raster": "hilbert"}),
    ("6e_two_widths", {"bn": 128, "narrow": 96, "stages": 6}),
    ("6f_l2_order", {"bn": 192, "stages": 5, "buffers": 1, "blocks": 132}),
    ("7_ping_pong", {"cluster_m": 2}),
    ("7_ping_pong", {"bm": 64, "bn": 192, "stages": 5, "buffers": 1}),
    ("8_stream_k", {"bn": 128, "stages": 6}),
    ("6_block_swizzle", {"strip": 0}),
    ("5_three_stages 7_async_ring 7_mma_sync", {"stages": 2}),
    ("9_warp_tile 10_fragment_buffers", {"stages": 2}),
    ("8_xor_swizzle", {"stages": 4}),
    ("5_three_stages 11_collective_store", {"stages": 5}),
    ("12_tuned", {"bm": 256, "bn": 128, "stages": 2}),
    ("12_tuned", {"stages": 5, "strip": 0}),
    ("13_tma", {"stages": 2, "blocks": 114}),
    ("mma_stream_k", {"blocks": 114, "stages": 2}),
    ("mma_stream_k", {"bm": 128, "stages": 5, "strip": 0}),
]
"""Kernels of `LADDERS`, each with the parameters of a variant beside the one that has the defaults."""
LADDERS = """
1_naive 2_coalesced 3_shared_tile 4_register_tile 4b_transposed 5_vectors 5b_padding 5c_lane_map 5d_quadrants
6_register_staging 6b_double_buffer 6d_fragments
7_async_ring 7b_wide_tile 7c_snake 7d_deep_ring 7e_tma 8_copying_warpgroup

1_tma_wgmma 1b_double_buffer 2_ring 3_wide_tile 4_persistent 5_multicast
6_tma_store 6c_stagger 6d_serpentine 6e_two_widths 6f_l2_order 7_ping_pong 8_stream_k

2_shared_fragments 3_padded_rows 4_two_stages 5_three_stages 6_block_swizzle 7_mma_sync 8_xor_swizzle 9_warp_tile
10_fragment_buffers 11_collective_store 12_tuned 13_tma mma_stream_k
"""
VARIANTS: dict[str, list[dict[str, Any]]] = {name: [{}] for name in LADDERS.split()}
for kernels, parameters in BESIDE_THE_DEFAULT:
    for kernel in kernels.split():
        VARIANTS[kernel].append(parameters)
VARIANTS |= {
    "hopper_gemm": [
        {"stagger": 1},
        {"stagger": 1, "serpentine": 1, "raster": "hilbert"},
        {"stagger": 1, "narrow": 192, "cluster_m": 2, "raster": 0},
        {"stagger": 2, "cluster_m": 2, **HINTS},
        {"cluster_n": 2, "raster": "hilbert", "fetch": "256B"},
        {"bm": 256, "bn": 192, "stages": 3, "narrow": 176, "serpentine": 1},
        {"bn": 128, "stages": 6, "stagger": 1, "cluster_m": 2, "cluster_n": 2},
        {"bn": 320, "consumers_n": 2, "stages": 3, "cluster_m": 2},
        # Boxes of four copies, of which the last has fewer, and hints for the L2.
        {"bn": 80, "boxes": 1, "cluster_m": 2, "cluster_n": 4, "evict_b": "first"},
        {"bn": 112, "stages": 6, "stagger": 1, "cluster_m": 2, "evict_a": "last"},
        {"bn": 144, "boxes": 4, "cluster_n": 2, **HINTS},
        {"bn": 208, "stages": 4, "stagger": 1, "fetch": "256B"},
        {"bn": 240, "boxes": 1, "serpentine": 1, "evict_c": "last"},
        {**SMALL, "bm": 64, "bn": 48, "stages": 11, "boxes": 4, "cluster_m": 2},
        {"stagger": 1, "early": 1},
        {**SMALL, "bm": 64, "bn": 128, "stages": 8, "early": 1},
        {**SMALL, "bm": 64, "bn": 32, "stages": 16, "boxes": 1, "cluster_n": 4},
    ],
    "hopper_ping_pong": [
        {},
        {"bm": 64, "bn": 192, "stages": 5, "boxes": 4, "raster": 0},
        {"bn": 192, "stages": 5, "boxes": 1, "narrow": 176, "serpentine": 1},
        {"bn": 192, "stages": 4, "narrow": 128, "cluster_m": 2},
        {"cluster_n": 2, "raster": "hilbert", "blocks": 114},
        {"bn": 64, "stages": 8, "cluster_m": 2, "cluster_n": 4, "evict_b": "first"},
    ],
    "hopper_split_k": [
        {},
        {"bn": 80, "evict_b": "first"},
        {
            "bm": 64,
            "bn": 64,
            "consumers": 1,
            "reallocate": 0,
            "stages": 8,
            "split_k": 4,
        },
        {"bn": 256, "stages": 4, "consumers_n": 2, "split_k": 3},
    ],
    "hopper_fp8_promoted": [
        {},
        {"stagger": 0, "cluster_m": 2, "raster": "hilbert"},
        {"split": 2, "partials": 2, "chain": 4, "serpentine": 1},
        {"bn": 128, "stages": 6, "partials": 2, "chain": 8, "stagger": 2},
        {"bm": 256, "bn": 128, "stages": 4, "buffers": 2},
        {"bn": 256, "split": 2, "stages": 4, "every": 256, "cluster_m": 4},
        {"bn": 256, "split": 4, "partials": 2, "stages": 4},
        {"bm": 192, "bn": 128, "consumers": 3},
        {"bn": 96, "every": 512, "stages": 6, "stagger": 0},
    ],
    "mma_tma": [
        {"strip": 16},
        {"bm": 256, "bn": 128, "stages": 2},
        {"bn": 128, "stages": 5, "strip": 0, "blocks": 0},
    ],
}
SIZES = [
    {"m": 1, "n": 16, "k": 544},
    {"m": 65, "n": 144, "k": 528},
    {"m": 259, "n": 400, "k": 656},
    {"m": 1000, "n": 1008, "k": 1040},
    {"m": 2050, "n": 1552, "k": 592},
    {
        "m": 1030,
        "n": 8208,
        "k": 528,
    },  # more tiles than multiprocessors, and none of a width that divides N
]
RUNGS = [
    name
    for name in VARIANTS
    if (ROOT / f"kernels/gemm/hopper/{name}.cu").exists() and name[0].isdigit()
]
MANY = ("hopper_gemm", "hopper_ping_pong", "hopper_split_k")
BY_WARPS = [
    name for name in VARIANTS if (ROOT / f"kernels/gemm/warp_mma/{name}.cu").exists()
]
FP32 = [name for name in VARIANTS if (ROOT / f"kernels/gemm/fp32/{name}.cu").exists()]
TYPES = (("bf16", "NN"), ("fp16", "TN"), ("tf32", "TN"), ("fp8", "TN"))
SWEEPS = [
    *((name, "fp32", "NN") for name in FP32),
    *((rung, *types) for rung in RUNGS for types in TYPES[:2]),
    *((name, *types) for name in MANY for types in TYPES),
    ("hopper_fp8_promoted", "fp8", "TN"),
    *((name, dtype, "NN") for name in BY_WARPS for dtype in ("bf16", "fp16", "tf32")),
]


def repeated(kernel: str, dtype: str, layout: str) -> dict[str, Any]:
    """The sweep of a kernel's variants. Some widths are for B along K alone, some rings for 16-bit results."""
    return {
        "title": "t",
        "question": "q?",
        "problem": "gemm",
        "dtypes": [dtype],
        "layout": layout,
        "sizes": SIZES,
        "variants": [
            {"kernel": kernel, "params": params, "unsupported": "record"}
            for params in VARIANTS[kernel]
        ],
        "references": ["cublaslt"],
    }


def wrong_results(
    gpu: Gpu, create: Maker, plan: Plan, cubins: dict[str, bytes], repetitions: int
) -> list[str]:
    """One text per variant with a wrong result. Every cell gets its share of the repetitions."""
    wrong = []
    share = -(-repetitions // len(SIZES))
    for number, task in enumerate(plan.tasks):
        if task.launch is None:
            continue
        instance = create(gpu, task.cell.size, task.cell.dtype, task.cell.layout)
        for repetition in range(share):
            instance.use_scalars(0.75, 0.5 if repetition % 4 == 3 else 0.0)
            instance.fill_inputs(number * share + repetition + 1)
            loaded = load(cubins[task.variant], task.launch, instance)
            instance.poison_outputs()
            loaded()
            gpu.sync()
            check = instance.check(task.launch.params)
            violation = instance.memory_violation()
            if violation or not check.correct:
                found = violation[1] if violation else check
                wrong.append(
                    f"{task.variant} {dict(task.cell.size)} repetition {repetition}: {found}"
                )
                break
        instance.close()
    return wrong


def own_harness(dtype: str, arch: str) -> tuple[bytes, dict[str, str]]:
    cubin, facts = harness(PROBLEM, dtype, arch).compile()
    return cubin, facts["symbols"]


def main(arguments: Sequence[str]) -> int:
    arch = arguments[0]
    repetitions = int(arguments[1])
    only = {*arguments[2:]}
    if unknown := only - {*VARIANTS}:
        raise SystemExit(
            f"no kernel {', '.join(sorted(unknown))}; accepted: {', '.join(VARIANTS)}"
        )
    catalog = load_kernels(ROOT / "kernels")
    config = read_settings(Project(ROOT), (), {})
    compiled = partial(compile_variant, include=ROOT / "kernels/include", arch=arch)
    wrong = []
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(mp_context=get_context("spawn")) as compilers,
    ):
        gpu = Gpu(*own_harness("bf16", arch))
        create = INSTANCE.maker(Timer(gpu), config.measure.model_dump(), PROBLEM)
        for kernel, dtype, layout in SWEEPS:
            if only and kernel not in only:
                continue
            path = Path(folder) / "repetitions.yaml"
            path.write_text(yaml.safe_dump(repeated(kernel, dtype, layout)))
            loaded = load_sweep(path, catalog)
            gpu.harness = Harness(gpu, *own_harness(dtype, arch))
            made = compilers.map(compiled, loaded.variants)
            cubins = {
                one.id: cubin
                for one, (cubin, _) in zip(loaded.variants, made, strict=True)
            }
            plan = plan_sweep(loaded, config, arch)
            found = wrong_results(gpu, create, plan, cubins, repetitions)
            wrong += found
            print(
                f"{kernel} {dtype} {layout}: {len(cubins)} variants, {repetitions} times each, {len(found)} wrong"
            )
    print(*wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The Hopper kernels as their tests use them without a GPU: variants, machine code and static assertions."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import (
    compile_ptx,
    compile_text,
    compile_variant,
    compile_variants,
    instructions,
)
from ladder.catalogue.kernels import load_kernel
from ladder.model.expressions import evaluate, whole
from ladder.model.kernel import Kernel, Variant

from emulator.grid_ptx import GridMachine
from emulator.hopper_ptx import HopperMachine, Map, parse_hopper
from emulator.ptx import UNSET, Array, Memory
from emulator.tensor_ptx import parse_tensor

ROOT = Path(__file__).resolve().parents[2]
HOPPER = ROOT / "kernels" / "gemm" / "hopper"
INCLUDE = ROOT / "kernels" / "include"
ARCH = "sm_90a"
ONE = "1_tma_wgmma"
TWO_STAGES = "1b_double_buffer"
PING_PONG = "7_ping_pong"
STREAM_K = "8_stream_k"
PROMOTED = "hopper_fp8_promoted"
RING = "hopper_gemm"
TURNS = "hopper_ping_pong"
SPLIT = "hopper_split_k"
MANY_PARAMETERS = (PROMOTED, RING, TURNS, SPLIT)
NARROW: dict[str, int | str] = {"consumers": 1, "reallocate": 0, "blocks": 0, "bm": 64}
SHARING: dict[str, int | str] = {"cluster_m": 2, "cluster_n": 4}
HINTS: dict[str, int | str] = {
    "evict_a": "last",
    "evict_b": "first",
    "evict_c": "first",
}
_ALONE: dict[str, int | str] = {"store": "direct", "blocks": 0, "raster": 0}
RUNGS: dict[str, dict[str, int | str]] = {
    "2_ring": {**_ALONE, "bn": 128, "consumers": 1, "reallocate": 0},
    "3_wide_tile": _ALONE,
    "4_persistent": {"store": "direct"},
    "5_multicast": {"store": "direct", "cluster_m": 2},
    "6_tma_store": {"cluster_m": 2},
    "6c_stagger": {"stagger": 1},
    "6d_serpentine": {"stagger": 1, "serpentine": 1},
    "6e_two_widths": {"stagger": 1, "serpentine": 1, "narrow": 240},
    "6f_l2_order": {
        "stagger": 1,
        "serpentine": 1,
        "blocks": 128,
        "raster": 2,
        "evict_b": "first",
    },
}
"""Rungs that hopper_gemm can make, and its parameters for that."""
VARIANTS: list[tuple[str, str, str, dict[str, int | str]]] = [
    (ONE, "bf16", "NN", {}),
    (TWO_STAGES, "bf16", "NN", {}),
    (TWO_STAGES, "fp16", "TN", {"bm": 64, "bn": 256}),
    *((rung, "bf16", "NN", {}) for rung in RUNGS if "narrow" not in RUNGS[rung]),
    ("3_wide_tile", "fp16", "TN", {"bm": 256, "bn": 192, "stages": 3}),
    ("6_tma_store", "fp16", "TN", {"cluster_m": 1, "buffers": 1}),
    (PING_PONG, "bf16", "NN", {}),
    (PING_PONG, "fp16", "TN", {"bn": 176, "stages": 4, "cluster_m": 2, "buffers": 1}),
    (STREAM_K, "bf16", "NN", {}),
    (STREAM_K, "fp16", "TN", {"bn": 192, "stages": 5, "buffers": 1}),
    (RING, "bf16", "NN", {}),
    (RING, "fp16", "NN", {"cluster_n": 2, "raster": "hilbert"}),
    (
        RING,
        "bf16",
        "NN",
        {"bn": 128, "store": "direct", "reallocate": 0, "stages": 5, "raster": 0},
    ),
    (RING, "bf16", "TN", {"bm": 256, "bn": 192, "stages": 3}),
    (RING, "tf32", "TN", {"cluster_m": 2}),
    (RING, "fp8", "TN", {"bm": 256, "bn": 128, "cluster_n": 2}),
    (RING, "bf16", "TN", {"stagger": 1, "serpentine": 1}),
    (SPLIT, "fp16", "NN", {"bn": 256, "stages": 4, "split_k": 4}),
    (
        SPLIT,
        "tf32",
        "TN",
        {
            "bm": 64,
            "bn": 64,
            "consumers": 1,
            "reallocate": 0,
            "stages": 8,
            "split_k": 3,
        },
    ),
    # Widths that are no multiple of 64: boxes of several copies, 64 or 32 bytes wide, and hints for the L2.
    (
        RING,
        "bf16",
        "TN",
        {"bn": 96, "stages": 7, "boxes": 1, "cluster_m": 2, "stagger": 1},
    ),
    (RING, "fp16", "TN", {"bn": 160, "stages": 5, "cluster_m": 4, "fetch": "256B"}),
    (RING, "tf32", "TN", {"bn": 96, "stages": 5, "boxes": 4}),
    (
        RING,
        "bf16",
        "TN",
        {**NARROW, "bn": 32, "stages": 16, "boxes": 1, "cluster_n": 4},
    ),
    (
        RING,
        "bf16",
        "TN",
        {**SHARING, "bn": 80, "boxes": 1, "stages": 8, "evict_b": "first"},
    ),
    (RING, "fp16", "TN", {"bn": 144, "stages": 5, "cluster_n": 2, **HINTS}),
    (
        RING,
        "bf16",
        "TN",
        {"bn": 176, "boxes": 1, "stages": 5, "stagger": 1, "evict_c": "first"},
    ),
    (
        RING,
        "fp8",
        "TN",
        {"bn": 80, "boxes": 1, "stages": 8, "cluster_m": 2, "evict_b": "last"},
    ),
    (RING, "bf16", "NN", {"evict_b": "first", "evict_c": "last"}),
    # Consumers side by side along N.
    (RING, "bf16", "TN", {"bn": 320, "consumers_n": 2, "stages": 3, "cluster_m": 2}),
    (
        RING,
        "bf16",
        "TN",
        {"bn": 352, "consumers_n": 2, "stages": 3, "stagger": 1, "evict_b": "first"},
    ),
    (RING, "fp8", "TN", {"bn": 384, "consumers_n": 2, "stages": 3, "stagger": 1}),
    # The copying warp goes ahead.
    (RING, "bf16", "TN", {"early": 1, "stagger": 1}),
    (RING, "tf32", "TN", {**NARROW, "bn": 128, "stages": 8, "early": 1}),
    # Two consumers with a tile each.
    (TURNS, "bf16", "NN", {}),
    (
        TURNS,
        "fp16",
        "TN",
        {"bn": 176, "stages": 5, "boxes": 1, "cluster_m": 2, **HINTS},
    ),
    (
        TURNS,
        "fp8",
        "TN",
        {"bn": 192, "stages": 5, "boxes": 1, "cluster_m": 2, "cluster_n": 2},
    ),
]

LINE, BOX = 128, 64 * 128
"""Bytes of a swizzled line and of a box of 64 lines."""
WIDTHS = range(32, 257, 16)
"""Columns that a consumer may have: those of a WGMMA."""


def by_copy_engine(line: int, byte: int, width: int = LINE) -> int:
    """Offset at which TMA stores a byte of a box, with a swizzle as wide as the lines.

    Address bits from 4 on are XORed with as many from 7 on: three for 128 bytes, two for 64, one for 32.
    """
    plain = line * width + byte
    return plain ^ (plain >> 7 & width // 16 - 1) << 4


def slow_beside_files(rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Rows that begin with a kernel, for parametrize: those of many parameters are slow, the ladder's files are not."""
    return [
        pytest.param(*row, marks=pytest.mark.slow if row[0] in MANY_PARAMETERS else ())
        for row in rows
    ]


@functools.cache
def kernel(name: str) -> Kernel:
    return load_kernel(HOPPER / f"{name}.yaml")


def variant(
    name: str, dtype: str = "bf16", layout: str = "NN", **params: int | str
) -> Variant:
    return kernel(name).variant(params, dtype, layout)


def box(one: Variant, buffer: str) -> tuple[int, int]:
    """Lines and elements per line of the box that the YAML gives the tensor map of `buffer`, of one matrix."""
    extents = next(
        argument.box
        for argument in one.kernel.arguments
        if argument.name == buffer and argument.box
    )
    *matrices, lines, elements = (whole(extent, one.names()) for extent in extents)
    assert matrices in ([], [1])
    return lines, elements


def arguments_of(
    one: Variant,
    memory: Memory,
    stored: Mapping[str, tuple[int, Array]],
    scalars: Mapping[str, float],
) -> tuple[list[int], dict[int, Map], list[slice]]:
    """A kernel's arguments, its tensor maps by place, and the words of workspaces that must be zero in the end.

    `stored`: of each buffer its address, and its elements as they lie there.
    """
    words, maps, zeroed = list[int](), dict[int, Map](), list[slice]()
    for place, argument in enumerate(one.kernel.arguments):
        if argument.workspace:
            held = 0 if argument.workspace == "zeroed" else UNSET
            size = {name: int(scalars[name]) for name in one.kernel.problem.size_fields}
            room = np.full(
                evaluate(str(argument.bytes), one.names(size)) // 4, held, np.uint32
            )
            words.append(memory.buffer(0, room, writable=True))
            own = slice(words[-1] // 4, words[-1] // 4 + len(room))
            memory.readable[own] = 0
            zeroed += [own] if argument.workspace == "zeroed" else []
        elif argument.tensor_map:
            address, elements = stored[argument.tensor_map]
            extents, swizzled = (
                box(one, argument.tensor_map),
                argument.swizzle != "none",
            )
            shape, matrices = elements.shape[-2:], math.prod(elements.shape[:-2])
            maps[place] = Map(
                address, *shape, extents, elements.itemsize, swizzled, matrices
            )
            words.append(place)
        elif argument.pointer:
            words.append(stored[argument.pointer][0])
        else:
            value = scalars[argument.name]
            words.append(
                int(value)
                if argument.type == "int32"
                else int(np.float32(value).view(np.uint32))
            )
    return words, maps, zeroed


def wrong_in_fp32(
    one: Variant,
    size: tuple[int, int, int],
    clusters: int | None,
    beta: float = 0.5,
    include: Path = INCLUDE,
    loads: str = "late",
    text: str | None = None,
) -> int:
    """How many elements of C = 0.75 * A @ B + beta * C are wrong, in fp32. Warps of a block may go different ways.

    clusters: of the launch, in a row; None for the variant's own grid, whose blocks go one way where nothing is copied
    by TMA: then a missing barrier shows as a race.
    """
    m, n, k = size
    geometry = one.geometry({"m": m, "n": n, "k": k})
    together = (geometry.cluster or (1, 1, 1))[0]
    ptx = compile_ptx(one.kernel.source, one.entry, [include], text)
    rng, memory = np.random.default_rng(1), Memory()
    a, b, c = (
        rng.integers(-4, 5, shape).astype(np.float32)
        for shape in ((m, k), (k, n), (m, n))
    )
    held = c if beta else np.full_like(c, np.nan)
    stored = {
        name: (
            memory.buffer(0, matrix.reshape(-1).view(np.uint32), writable=name == "c"),
            matrix,
        )
        for name, matrix in {
            "a": a,
            "b": b if one.layout == "NN" else b.T.copy(),
            "c": held,
        }.items()
    }
    words = slice(stored["c"][0] // 4, stored["c"][0] // 4 + m * n)
    memory.readable[words] = 0
    scalars = {"m": m, "n": n, "k": k, "alpha": 0.75, "beta": beta}
    arguments, maps, zeroed = arguments_of(one, memory, stored, scalars)
    grid = geometry.grid[:2] if clusters is None else (clusters * together, 1)
    if maps or clusters is not None:
        program = parse_hopper(ptx, geometry.shared_bytes)
        HopperMachine(
            program, memory, geometry.block[0], grid, together, arguments, maps, loads
        ).run()
    else:
        landing = "once" if loads == "early" else "wait"
        program = parse_tensor(ptx, geometry.shared_bytes)
        GridMachine(
            program, memory, geometry.block[0], (*grid, 1), arguments, landing
        ).run()
    assert not any(memory.words[own].any() for own in zeroed)
    found = memory.words[words].view(np.float32).reshape(m, n)
    return int((found != 0.75 * (a @ b) + (beta * c if beta else 0)).sum())


def shared_type(one: Variant) -> str:
    """The structure in shared memory of a variant: Shared<...> in its kernel, with the arguments of its entry."""
    found = re.search(
        r"template <([^>]*)>\n__global__(.*)", one.kernel.source.read_text(), re.DOTALL
    )
    assert found is not None, "a kernel is a template"
    names, body = [name.split()[-1] for name in found[1].split(",")], found[2]
    given = re.findall(
        r"[^,<>]+(?:<(?:[^<>]|<[^<>]*>)*>)?", one.entry[one.entry.index("<") + 1 : -1]
    )
    values = dict(zip(names, map(str.strip, given), strict=True))
    (parameters,) = set(re.findall(r"\bShared<([\w, ]+)>", body))
    return f"Shared<{', '.join(values[name] for name in parameters.split(', '))}>"


@functools.cache
def _compile_files() -> None:
    """Those of VARIANTS that are the ladder's files, by one run of the disassembler."""
    files = [row for row in VARIANTS if row[0] not in MANY_PARAMETERS]
    compile_variants([variant(*row, **params) for *row, params in files], INCLUDE, ARCH)


@functools.cache
def _compiled(
    name: str, dtype: str, layout: str, params: str
) -> tuple[dict[str, Any], list[str]]:
    if name not in MANY_PARAMETERS:
        _compile_files()
    cubin, facts = compile_variant(
        variant(name, dtype, layout, **json.loads(params)), INCLUDE, ARCH
    )
    assert facts["status"] == "ok", facts["reason"]
    return facts, instructions(cubin, ARCH)


def compiled(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> tuple[dict[str, Any], list[str]]:
    """Facts and the instructions in their order, compiled once per test process."""
    return _compiled(name, dtype, layout, json.dumps(params, sort_keys=True))


def hold(text: str, *assertions: str) -> None:
    """Compile `text` with static assertions. Raises LadderError with the compiler's message where one fails."""
    inside = "\n".join(f'static_assert({assertion}, "");' for assertion in assertions)
    source = f"{text}\n__global__ void holds() {{\n{inside}\n}}\n"
    compile_text(source, ["holds"], [INCLUDE], ARCH)

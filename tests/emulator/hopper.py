"""The Hopper kernels as their tests use them without a GPU: variants, boxes and static assertions."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from compiling import compile_text
from ladder.catalogue.kernels import load_kernel
from ladder.model.errors import LadderError
from ladder.model.expressions import whole
from ladder.model.kernel import Kernel, Variant

ROOT = Path(__file__).resolve().parents[2]
HOPPER = ROOT / "kernels/gemm/hopper"
INCLUDE = ROOT / "kernels/include"
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
Params = dict[str, Any]

_ALONE: Params = {"store": "direct", "blocks": 0, "raster": 0}
RUNGS: dict[str, Params] = {
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
WIDTHS = range(32, 257, 16)
"""Columns that a consumer may have: those of a WGMMA."""


def slow_beside_files(rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Rows for parametrize that begin with a kernel, or with a run, which does so.

    Those of kernels of many parameters are slow, the ladder's files are not.
    """
    marked = []
    for row in rows:
        name = row[0] if isinstance(row[0], str) else row[0][0]
        marks = [pytest.mark.slow] if name in MANY_PARAMETERS else []
        marked.append(pytest.param(*row, marks=marks))
    return marked


@functools.cache
def kernel(name: str) -> Kernel:
    return load_kernel(HOPPER / f"{name}.yaml")


def variant(
    name: str, dtype: str = "bf16", layout: str = "NN", **params: Any
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


def shared_type(one: Variant) -> str:
    """The structure in shared memory of a variant: Shared<...> in its kernel, with the arguments of its entry."""
    found = re.search(
        r"template <([^>]*)>\n__global__(.*)", one.kernel.source.read_text(), re.DOTALL
    )
    assert found is not None, "a kernel is a template"
    names = [name.split()[-1] for name in found[1].split(",")]
    body = found[2]
    given = re.findall(
        r"[^,<>]+(?:<(?:[^<>]|<[^<>]*>)*>)?", one.entry[one.entry.index("<") + 1 : -1]
    )
    values = dict(zip(names, map(str.strip, given), strict=True))
    (parameters,) = set(re.findall(r"\bShared<([\w, ]+)>", body))
    return f"Shared<{', '.join(values[name] for name in parameters.split(', '))}>"


def hold(text: str, *assertions: str) -> None:
    """Compile `text` with static assertions. Raises LadderError with the compiler's message where one fails."""
    inside = "\n".join(f'static_assert({assertion}, "");' for assertion in assertions)
    source = f"{text}\n__global__ void holds() {{\n{inside}\n}}\n"
    compile_text(source, ["holds"], [INCLUDE], ARCH)


def refute(text: str, assertion: str) -> None:
    """The assertion does not hold."""
    with pytest.raises(LadderError, match="static assertion failed"):
        hold(text, assertion)

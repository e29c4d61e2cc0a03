"""The harness's own kernels: names, and compiling them once per architecture."""

from __future__ import annotations

import json
from pathlib import Path

from ladder.compiler import compile_source

SOURCE = Path(__file__).with_name("harness.cu")

C_TYPES = {
    "fp32": "float",
    "tf32": "Tf32",
    "fp16": "__half",
    "bf16": "__nv_bfloat16",
    "fp8": "__nv_fp8_e4m3",
    "int32": "int",
}
GATE, READ = "gate", "read_through"
_OUTPUTS = ("fp32", "fp16", "bf16")
ENTRIES = [
    GATE,
    READ,
    *(f"fill_uniform<{c_type}>" for c_type in C_TYPES.values()),
    *(f"widen<{c_type}>" for name, c_type in C_TYPES.items() if name != "int32"),
    *(f"{kernel}<{C_TYPES[name]}>" for kernel in ("compare_product", "count_nan") for name in _OUTPUTS),
    *(f"compare_stencil<{c_type}>" for c_type in ("float", "int")),
]


def compile_harness(arch: str) -> bytes:
    """One file with the cubin and the kernels' symbols: a JSON line, then the cubin. Raises LadderError."""
    cubin, symbols, _ = compile_source(SOURCE.read_text(encoding="utf-8"), SOURCE.name, ENTRIES, [], arch, ())
    return json.dumps(symbols).encode() + b"\n" + cubin


def split_harness(data: bytes) -> tuple[dict[str, str], bytes]:
    """(symbols by entry, cubin) from what compile_harness wrote."""
    head, _, cubin = data.partition(b"\n")
    symbols: dict[str, str] = json.loads(head)
    return symbols, cubin

"""Tensor cores at warp level, without a GPU: results of the kernels' PTX on the CPU, layouts, machine code, limits."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import compile_text
from conftest import edit
from covering import all_pairs
from emulator.ptx import Array, Fault, Memory
from emulator.tensor_ptx import TensorMachine, compiled_program, from_bits, to_bits
from ladder.catalogue.kernels import Catalog
from ladder.model.errors import LadderError
from ladder.model.kernel import Kernel, Variant
from ladder.problems.gemm.bounds import accumulation_bound

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
INCLUDE = KERNELS / "include"
ARCH = "sm_90a"
DTYPES = ("fp16", "bf16", "tf32", "fp16_acc16")
ELEMENT = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "fp16_acc16": "f16"}
ROUNDING = {"fp16": 2**-11, "bf16": 2**-8, "tf32": 2**-24, "fp16_acc16": 2**-11}
SMALL = {"bm": 64, "bn": 64, "wm": 32, "wn": 32}


@functools.cache
def catalog(root: Path = KERNELS) -> dict[str, Kernel]:
    return Catalog(root / "gemm" / "warp_mma")


def variant(name: str, dtype: str, root: Path = KERNELS, **params: Any) -> Variant:
    return catalog(root)[name].variant(params, dtype)


# Results of the kernels' PTX.


def drawn(
    random: np.random.Generator, rows: int, columns: int, element: str
) -> tuple[Array, Array]:
    """Words of a matrix uniform in [-1, 1), and its values."""
    values = random.uniform(-1, 1, (rows, columns)).astype(np.float32)
    if element == "tf32":
        words = values.view(np.uint32) & np.uint32(0xFFFFE000)
        return words.reshape(-1), words.view(np.float32).astype(np.float64)
    bits = to_bits(values, element)
    return bits.reshape(-1).view(np.uint32), from_bits(bits, element).astype(np.float64)


def run(
    given: Variant,
    size: tuple[int, int, int],
    landing: str = "wait",
    beta: float = 0.0,
    include: Path = INCLUDE,
) -> tuple[TensorMachine, float]:
    """One launch on drawn inputs; C begins as NaN where beta is 0. Returns the machine and the error over its bound."""
    m, n, k = size
    geometry = given.geometry(dict(zip("mnk", size, strict=True)))
    assert given.absent(dict(zip("mnk", size, strict=True))) is None
    program = compiled_program(
        given.kernel.source, given.entry, include, geometry.shared_bytes
    )
    random, element = np.random.default_rng(5), ELEMENT[given.dtype]
    (words_a, a), (words_b, b) = (
        drawn(random, m, k, element),
        drawn(random, k, n, element),
    )
    words_c, c = drawn(random, m, n, element)
    memory = Memory()
    pointers = [
        memory.buffer(0, words_a, writable=False),
        memory.buffer(0, words_b, writable=False),
        memory.buffer(
            0,
            words_c if beta else np.full(len(words_c), 2**32 - 1, np.uint32),
            writable=True,
        ),
    ]
    place = slice(pointers[2] // 4, pointers[2] // 4 + len(words_c))
    if beta:
        memory.readable[place] = 0
    alpha = 0.75 if beta else 1.0
    scalars = [int(np.float32(value).view(np.uint32)) for value in (alpha, beta)]
    arguments = [*pointers, m, n, k, *scalars]
    machine = TensorMachine(
        program,
        memory,
        geometry.block[0],
        [geometry.grid[0]],
        [arguments],
        landing=landing,
    )
    machine.run()
    bits = memory.words[place]
    found = (
        bits.view(np.float32)
        if element == "tf32"
        else from_bits(bits.view(np.uint16), element)
    )
    expected = alpha * (a @ b) + (beta * c if beta else 0.0)
    magnitude = alpha * (np.abs(a) @ np.abs(b)) + abs(beta) * np.abs(c)
    bound = (
        ROUNDING[given.dtype] * np.abs(expected)
        + accumulation_bound(given.dtype, k) * magnitude
    )
    error = np.abs(found.reshape(m, n) - expected) / bound
    return machine, float(np.where(np.isnan(error), np.inf, error).max())


MMA: list[dict[str, Any]] = [
    {"stages": 1, "buffers": 1},
    {"stages": 2, "store": "direct", "strip": 0},
    {"stages": 3, "swizzle": "none", "pad": 8, "strip": 1},
    {"stages": 4, "strip": 2, "bk": 64},
    {"bm": 32, "bn": 128, "wm": 16, "wn": 64, "bk": 64, "store": "direct"},
]
WMMA: list[dict[str, Any]] = [
    {"stages": 1, "buffers": 1, "pad": 0, "store": "fragment"},
    {"stages": 3, "strip": 2, "bk": 64, "store": "fragment"},
    {"stages": 5, "strip": 32},
    {"bm": 32, "bn": 128, "wm": 16, "wn": 64, "bk": 64, "pad": 0},
]
SIZES = [(33, 40, 24), (1, 8, 8), (65, 136, 104), (64, 64, 64)]


FORMS = [("mma_staged", params) for params in MMA] + [
    ("wmma_staged", params) for params in WMMA
]
BETAS = [0.0, 0.5]


@pytest.mark.parametrize(
    ("form", "dtype", "size", "landing", "beta"),
    all_pairs(FORMS, DTYPES, SIZES, ["wait", "once"], BETAS),
)
def test_gemm_is_right_at_any_size_and_whenever_copies_land(
    form: tuple[str, dict[str, Any]],
    dtype: str,
    size: tuple[int, int, int],
    landing: str,
    beta: float,
) -> None:
    name, params = form
    assert (
        run(variant(name, dtype, **{**SMALL, **params}), size, landing, beta=beta)[1]
        <= 1
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("mma_staged", {}),
        ("mma_staged", {"bn": 256, "wm": 64}),
        ("mma_staged", {"bm": 256, "store": "direct"}),
        ("wmma_staged", {"wm": 32}),
    ],
)
def test_full_tiles_are_right(name: str, params: dict[str, Any], dtype: str) -> None:
    assert run(variant(name, dtype, **params), (200, 264, 72))[1] <= 1


def is_right(given: Variant, include: Path) -> bool:
    try:
        return all(
            run(given, (65, 136, 104), landing, include=include)[1] <= 1
            for landing in ("wait", "once")
        )
    except Fault:
        return False


@pytest.mark.parametrize(
    ("header", "right", "wrong"),
    [
        (
            "schedule/staged_loop.cuh",
            "wait_for_copies<Stages - 2>();",
            "wait_for_copies<Stages - 1>();",
        ),
        (
            "schedule/staged_loop.cuh",
            "wait_for_copies<Stages - 2>();\n            __syncthreads();",
            "",
        ),
        ("schedule/staged_loop.cuh", "wait_for_copies<0>();\n    __syncthreads();", ""),
        (
            "copy/chunk_copy.cuh",
            "return i * step < rows_left &&",
            "return i * step < rows_left - 1 &&",
        ),
        (
            "layout/chunk_layout.cuh",
            "return (offset ^ mask(rows)",
            "return (offset ^ 0 * mask(rows)",
        ),
        (
            "epilogue/warp_store.cuh",
            "if (row >= m || column >= n) continue;",
            "if (row >= m) continue;",
        ),
    ],
)
def test_wrong_kernels_are_found_out(
    tmp_path: Path, header: str, right: str, wrong: str
) -> None:
    """What a race, a missing wait, a wrong layout or a missing bound would do, these runs see."""
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    edit(include / header, right, wrong)
    # tf32 takes steps of four rows, half of a period of the XOR.
    given = variant(
        "mma_staged",
        "tf32" if "mask" in right else "fp16",
        **SMALL,
        stages=3,
        buffers=1,
    )
    assert is_right(given, INCLUDE)
    assert not is_right(given, include)


# Banks: every wide access, by the addresses the kernel really made.


def worst(given: Variant) -> dict[str, int]:
    machine, error = run(
        given, (given.params["bm"], given.params["bn"], 2 * given.params["bk"]), "once"
    )
    assert error <= 1
    return {opcode: max(counts) for opcode, counts in machine.wavefronts.items()}


IDEAL = {
    "ldmatrix": 4,
    "ldmatrix.trans": 4,
    "ld.shared.v2.u32": 2,
    "cp.async.cg.shared.global": 4,
    "st.shared.v4.u32": 4,
}
"""Wavefronts of a warp's access where no two lanes meet in a bank: 128 bytes each."""


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("dtype", ["fp16", "tf32"])
@pytest.mark.parametrize("bytes_deep", [32, 256])
def test_xor_and_one_chunk_of_padding_have_no_bank_conflicts(
    dtype: str, bytes_deep: int, stages: int
) -> None:
    width = 4 if dtype == "tf32" else 2
    shape = {
        "bm": 64,
        "wm": 32,
        "bk": bytes_deep // width,
        "stages": stages,
        "buffers": 1,
    }
    xor = worst(variant("mma_staged", dtype, **shape))
    padded = worst(
        variant("mma_staged", dtype, **shape, swizzle="none", pad=16 // width)
    )
    assert len(xor) == len(padded) == 3
    for opcode, count in xor.items():
        assert count == IDEAL[opcode], f"XOR: {opcode}"
    for opcode in ("ldmatrix", "ldmatrix.trans", "ld.shared.v2.u32"):
        assert padded.get(opcode, IDEAL[opcode]) == IDEAL[opcode], f"padded: {opcode}"


def test_plain_tiles_conflict() -> None:
    """Rows of 64 bytes put the eight rows of a matrix into four groups of banks, rows of 256 bytes into one."""
    plain = worst(variant("mma_staged", "fp16", swizzle="none"))
    assert (plain["ldmatrix"], plain["ldmatrix.trans"]) == (16, 32)
    tf32 = worst(variant("mma_staged", "tf32", swizzle="none"))
    assert (tf32["ldmatrix"], tf32["ld.shared.v2.u32"]) == (32, 8)
    half = worst(variant("mma_staged", "fp16", swizzle="none", pad=16))
    assert (half["ldmatrix"], half["ldmatrix.trans"]) == (8, 8)


# Chunk layouts, for every row and chunk.


LAYOUTS = """
#include "layout/chunk_layout.cuh"

template <class Layout, int Rows, int Chunks>
__host__ __device__ constexpr bool every_chunk_has_its_own_place(int bytes) {
    for (int row = 0; row < Rows; ++row) {
        for (int chunk = 0; chunk < Chunks; ++chunk) {
            const int offset = Layout::offset(row, chunk);
            // A permutation within the row is one of the whole tile.
            if (offset < row * Layout::pitch || offset >= row * Layout::pitch + Chunks * chunk_bytes) return false;
            for (int other = 0; other < chunk; ++other) {
                if (Layout::offset(row, other) == offset) return false;
            }
        }
    }
    return Rows * Layout::pitch == bytes;
}

// Steps across and below lead where the row and the chunk say.
template <class Layout, int Rows, int Chunks>
__host__ __device__ constexpr bool steps_lead_there() {
    for (int row = 0; row < Rows; ++row) {
        for (int step = 1; step < Chunks; step *= 2) {
            for (int chunk = 0; chunk < Chunks; ++chunk) {
                if ((chunk & step) != 0) continue;
                if (Layout::across(Layout::offset(row, chunk), step) != Layout::offset(row, chunk + step)) return false;
            }
        }
        for (int step = 1; step < Rows; step *= 2) {
            for (int to = step; row < step && row + to < Rows; to += step) {
                if (Layout::below(Layout::offset(row, 1), to) != Layout::offset(row + to, 1)) return false;
            }
        }
    }
    return true;
}

__global__ void layouts() {
    ASSERTIONS
}
"""


def test_layouts_are_permutations_and_steps_lead_to_the_right_chunk() -> None:
    assertions = []
    for chunks in (2, 4, 8, 16, 32, 64):
        for layout, pitch in (
            (f"XorChunks<{chunks}>", chunks),
            (f"PaddedChunks<{chunks}, 1>", chunks + 1),
        ):
            assertions.append(
                f"every_chunk_has_its_own_place<{layout}, 32, {chunks}>({32 * 16 * pitch})"
            )
            assertions.append(f"steps_lead_there<{layout}, 32, {chunks}>()")
    for rows in (32, 64):  # panels lie behind each other; 8 chunks are one panel
        assertions.append(
            f"every_chunk_has_its_own_place<PanelChunks<{rows}>::Panel, {rows}, 8>({rows * 128})"
        )
        assertions.append(f"steps_lead_there<PanelChunks<{rows}>, {rows}, 32>()")
        assertions.append(
            f"PanelChunks<{rows}>::offset(3, 8 + 5) == {rows * 128} + 3 * 128 + (5 ^ 3) * 16"
        )
    text = "\n    ".join(f'static_assert({one}, "");' for one in assertions)
    compile_text(LAYOUTS.replace("ASSERTIONS", text), ["layouts"], [INCLUDE], ARCH)
    wrong = 'static_assert(every_chunk_has_its_own_place<XorChunks<8>, 32, 8>(0), "");'
    with pytest.raises(LadderError, match="static assertion failed"):
        compile_text(LAYOUTS.replace("ASSERTIONS", wrong), ["layouts"], [INCLUDE], ARCH)


# Machine code.


# Shared memory is what the formulas say, and what the kernel uses.


# Loaded by TMA.


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32"])
@pytest.mark.parametrize(
    "params", [{}, {"bm": 256, "bn": 128}, {"bm": 128, "bn": 128, "stages": 5}]
)
@pytest.mark.parametrize("name", ["mma_tma", "mma_stream_k"])
def test_the_shared_struct_is_as_large_as_the_launch_says(
    name: str, params: dict[str, Any], dtype: str
) -> None:
    given = variant(name, dtype, **params)
    p = given.params
    shared = (
        f"MmaRing<{ {'bf16': '__nv_bfloat16', 'tf32': 'float'}.get(dtype, '__half') }, "
        + ", ".join(str(p[name]) for name in ("bm", "bn", "wm", "wn", "stages"))
    )
    said = given.geometry({"m": 512, "n": 512, "k": 512}).shared_bytes
    text = f'#include "{name}.cu"\nstatic_assert(sizeof({shared}>) == {said} - 1024, "");\n__global__ void f() {{}}\n'
    compile_text(text, ["f"], [INCLUDE, given.kernel.source.parent], ARCH)


# What exists, and at which sizes it is right.


@pytest.mark.parametrize(
    ("name", "dtype", "params", "reason"),
    [
        ("mma_staged", "fp16", {"pad": 8}, "padded or XOR-swizzled"),
        (
            "mma_staged",
            "fp16",
            {"swizzle": "none", "pad": 4},
            "rows of the tiles must start on them",
        ),
        ("mma_staged", "fp16", {"stages": 1}, "fragments come from the next stage"),
        ("mma_staged", "fp16", {"bk": 16}, "an even number of steps"),
        ("mma_staged", "tf32", {"bm": 256, "bn": 256}, "half of the 65536 registers"),
        (
            "wmma_staged",
            "fp16",
            {"swizzle": "xor", "pad": 0},
            "takes a base and a stride",
        ),
        ("mma_tma", "tf32", {"bm": 64, "bn": 64}, "one or two warpgroups"),
        ("mma_stream_k", "tf32", {"bm": 128, "bn": 256}, "too few registers"),
    ],
)
def test_what_does_not_exist_is_refused_with_the_reason(
    name: str, dtype: str, params: dict[str, Any], reason: str
) -> None:
    with pytest.raises(LadderError, match=reason):
        variant(name, dtype, **params)


@pytest.mark.parametrize(
    "name", ["mma_staged", "wmma_staged", "mma_tma", "mma_stream_k"]
)
def test_sizes_need_whole_chunks_and_nothing_else(name: str) -> None:
    for dtype, chunk in (("fp16", 8), ("bf16", 8), ("tf32", 4)):
        given = variant(name, dtype)
        assert given.absent({"m": 33, "n": 5 * chunk, "k": 3 * chunk}) is None
        for n, k in ((5 * chunk + chunk // 2, chunk), (chunk, 3 * chunk + 1)):
            assert "multiples of 8 (tf32: 4)" in str(
                given.absent({"m": 33, "n": n, "k": k})
            )
    given = variant(name, "fp16", bm=128, bn=128)
    x, y, _ = given.geometry({"m": 129, "n": 257, "k": 8}).grid
    assert (x, y) == (2 * 3, 1)

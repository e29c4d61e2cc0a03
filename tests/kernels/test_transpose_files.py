"""The ladder of transpositions, without a GPU: outputs on the emulator, planted mistakes, banks, what is compiled."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx, compiled_without_spills
from conftest import ROOT
from emulator.hopper_ptx import Map, parse_hopper
from emulator.inputs import drawn
from emulator.noting_ptx import PlainMachine, TmaMachine
from emulator.ptx import Array, Fault, Memory
from emulator.tensor_ptx import TensorMachine, parse_tensor
from ladder.catalogue.kernels import load_kernel
from ladder.model.expressions import whole
from ladder.model.kernel import Kernel, Variant

FOLDER, INCLUDE = (
    ROOT / "kernels" / "memory_bound" / "transpose",
    ROOT / "kernels" / "include",
)
FILES = {path.stem[0]: path.stem for path in sorted(FOLDER.glob("*.cu"))}
SIZES = ((1, 1), (1, 37), (37, 1), (31, 33), (33, 31), (64, 64), (67, 5))
ALIGNED = ((8, 8), (8, 40), (40, 8), (64, 64), (72, 136), (136, 72))
"""Of kernels that take whole 16 bytes."""


@functools.cache
def kernel(rung: str) -> Kernel:
    return load_kernel(FOLDER / f"{FILES[rung]}.yaml")


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    return kernel(rung).variant(params, dtype)


CASES = [(rung, dtype) for rung in FILES for dtype in kernel(rung).dtypes]


def words(elements: Array) -> Array:
    """As 32-bit words; behind an odd number of 16-bit elements lies one that nobody may write."""
    bits = np.ascontiguousarray(elements).reshape(-1)
    if bits.itemsize == 2 and len(bits) % 2:
        bits = np.append(bits, np.uint16(0xFFFF))
    return bits.view(np.uint32)


def matrix(dtype: str, m: int, n: int) -> Array:
    """Bits of a drawn matrix."""
    bits = drawn(dtype, m * n, 11 * m + n)
    return (bits.view(np.uint32) if dtype == "fp32" else bits).reshape(m, n)


def launch(
    given: Variant, matrix: Array, loads: str = "late", text: str = ""
) -> tuple[Array, TensorMachine]:
    """Output and machine of a launch on an output that holds ones. The first warp of a block comes first if it can."""
    m, n = matrix.shape
    size = {"m": m, "n": n}
    rule = given.geometry(size)
    ptx = compile_ptx(given.kernel.source, given.entry, [INCLUDE], text or None)
    memory, out = Memory(), np.full((n, m), -1, np.int64).astype(matrix.dtype)
    pointers = (
        memory.buffer(0, words(matrix), writable=False),
        memory.buffer(0, words(out), writable=True),
    )
    memory.readable = np.where(memory.writable >= 0, memory.writable, memory.readable)
    grid, threads = rule.grid, rule.block[0]
    maps = [one for one in given.kernel.arguments if one.tensor_map]
    machine: PlainMachine | TmaMachine
    if maps:
        boxes = [
            tuple(whole(one, given.names(size)) for one in argument.box or ())
            for argument in maps
        ]
        shapes = zip(pointers, ((m, n), (n, m)), boxes, strict=True)
        tensors = {
            place: Map(address, *shape, box, matrix.itemsize)
            for place, (address, shape, box) in enumerate(shapes)
        }
        program = parse_hopper(ptx, rule.shared_bytes)
        machine = tma = TmaMachine(
            program, memory, threads, grid[:2], 1, [0, 1], tensors, loads
        )
        tma.behind[np.arange(tma.count) % threads >= 32] = True
    else:
        machine = PlainMachine(
            parse_tensor(ptx, rule.shared_bytes),
            memory,
            threads,
            grid,
            [*pointers, m, n],
        )
    machine.run()
    bits = memory.words[pointers[1] // 4 :].view(matrix.dtype)
    if (m * n * matrix.itemsize) % 4:
        assert bits[m * n] == 0xFFFF, "it wrote behind its output"
    return bits[: m * n].reshape(n, m), machine


def wrong(given: Variant, matrix: Array, **more: Any) -> int:
    """How many outputs are wrong."""
    return int((launch(given, matrix, **more)[0] != matrix.T).sum())


def test_the_ladder_has_eight_files_each_less_than_a_page() -> None:
    assert "".join(FILES) == "12345678"
    for name in FILES.values():
        assert (
            len((FOLDER / f"{name}.cu").read_text(encoding="utf-8").splitlines()) <= 80
        ), name


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_outputs_are_the_inputs_bits_at_every_shape(rung: str, dtype: str) -> None:
    """Copies of TMA land as late as they may, and as early."""
    for place, (m, n) in enumerate(SIZES if rung in "1234" else ALIGNED):
        for loads in ("late", "early") if rung in "67" else ("late",):
            given = variant(
                rung, dtype, **({"side": 1 + place % 2} if rung in "67" else {})
            )
            assert given.absent({"m": m, "n": n}) is None
            assert wrong(given, matrix(dtype, m, n), loads=loads) == 0, (m, n, loads)


@pytest.mark.parametrize("rung", ["1", "2", "3", "4"])
def test_other_blocks_are_right(rung: str) -> None:
    for block in (128, 1024):
        assert wrong(variant(rung, "bf16", block=block), matrix("bf16", 35, 66)) == 0


@pytest.mark.parametrize("strip", [0, 4, 16])
def test_strips_take_each_tile_once(strip: int) -> None:
    """With tiles of two widths, where the last strip is narrower, and the last tiles are cut."""
    for across, size in ((16, (136, 328)), (32, (136, 264))):
        assert (
            wrong(
                variant("8", "fp32", strip=strip, across=across), matrix("fp32", *size)
            )
            == 0
        ), across


def test_kernels_of_whole_vectors_say_which_shapes_they_take() -> None:
    for rung, dtype in CASES:
        takes = {
            size: variant(rung, dtype).absent({"m": size, "n": 64}) is None
            for size in (64, 68, 66)
        }
        assert takes == {
            64: True,
            68: rung in "1234" or dtype == "fp32",
            66: rung in "1234",
        }, (rung, dtype)


def wavefronts(rung: str, dtype: str) -> dict[str, set[int]]:
    """By the bank model, of each load and store of shared memory of the first warp."""
    machine = launch(variant(rung, dtype), matrix(dtype, 128, 128))[1]
    named = (name for name in machine.wavefronts if name.endswith("warp"))
    return {name[:2]: set(machine.wavefronts[name]) for name in named}


def test_padding_and_xor_are_free_of_conflicts_by_the_bank_model_and_the_plain_tile_is_not() -> (
    None
):
    for dtype, of_a_column in (("fp32", 32), ("bf16", 16)):
        assert wavefronts("2", dtype) == {"st": {1}, "ld": {of_a_column}}
        for rung in "34":
            assert wavefronts(rung, dtype) == {"st": {1}, "ld": {1}}, (rung, dtype)


def test_wide_accesses_take_the_fewest_wavefronts() -> None:
    """Four for the 512 bytes of a warp's access, and of four matrices."""
    for rung, dtype in CASES:
        if rung in "5678":
            assert {
                count for of in wavefronts(rung, dtype).values() for count in of
            } == {4}, (rung, dtype)


BARRIER, OUTSIDE, WRONG = "before the barrier", "outside", "wrong"
WHOLE = "    __syncthreads();  // the tile is whole\n"
TURNED = "    __syncthreads();  // the turned tile is whole\n"
FENCE = "    fence_async_proxy();\n"
MISTAKES: list[tuple[str, str, str, str]] = [
    # Rung, what is changed, into what, and how it shows.
    ("1", "row < rows && ", "", OUTSIDE),
    ("1", "column < columns", "column <= columns", OUTSIDE),
    ("2", WHOLE, "", BARRIER),
    ("2", "tile[x][y + step]", "tile[y + step][x]", WRONG),
    ("3", WHOLE, "", BARRIER),
    ("4", WHOLE, "", BARRIER),
    ("4", "tile[y + step][x ^ (y + step)]", "tile[y + step][x]", WRONG),
    ("5", WHOLE, "", BARRIER),
    ("6", "mbarrier_wait(full, 0);", "", WRONG),
    ("6", TURNED, "", "before a barrier"),
    ("6", FENCE, "", "without fence.proxy.async"),
    (
        "6",
        "        wait_for_store_reads<0>();  // the memory is the next block's\n",
        "",
        "ends before",
    ),
    ("8", WHOLE, "", BARRIER),
    ("8", "row >= rows || column", "column", OUTSIDE),
    ("7", "mbarrier_wait(full, 0);", "", WRONG),
    ("7", TURNED, "", "before a barrier"),
    ("7", FENCE, "", "without fence.proxy.async"),
    ("7", "ldmatrix_trans", "ldmatrix", WRONG),
]


@pytest.mark.parametrize(("rung", "right", "mistaken", "shows"), MISTAKES)
def test_mistakes_show(rung: str, right: str, mistaken: str, shows: str) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    given = variant(rung, "bf16")
    text = given.kernel.source.read_text(encoding="utf-8")
    assert text.count(right) == 1, right
    try:
        found = [
            wrong(
                given,
                matrix("bf16", 136, 264 if rung in "5678" else 67),
                text=text.replace(right, mistaken),
                loads=loads,
            )
            for loads in (("late", "early") if rung in "67" else ("late",))
        ]
        saw = "wrong" if any(found) else ""
    except Fault as fault:
        saw = str(fault)
    assert saw
    assert shows in saw


def test_each_compiles_for_hopper_without_spills() -> None:
    compiled_without_spills([variant(rung, dtype) for rung, dtype in CASES])

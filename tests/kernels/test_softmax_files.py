"""The softmax ladder, without a GPU: outputs on the emulator, planted mistakes, and what is compiled."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx, compile_variant, opcodes
from conftest import ROOT
from emulator.grid_ptx import GridMachine
from emulator.inputs import drawn, value
from emulator.ptx import Array, Fault, Memory
from emulator.tensor_ptx import parse_tensor
from ladder.catalogue.kernels import load_kernel
from ladder.model.kernel import Kernel, Variant
from ladder.model.problem import ELEMENT_BYTES
from ladder.problems.softmax.bounds import FLUSHED, PER_DISTANCE, error_bound

FOLDER, INCLUDE = ROOT / "kernels" / "memory_bound" / "softmax", ROOT / "kernels" / "include"
FILES = {path.stem[0]: path.stem for path in sorted(FOLDER.glob("*.cu"))}
SIZES = ((1, 1), (2, 31), (3, 64), (2, 67), (5, 257), (2, 1024))
ALIGNED = ((1, 8), (3, 64), (5, 136), (2, 1024), (2, 1032))
"""Of kernels that take whole 16 bytes."""


@functools.cache
def kernel(rung: str) -> Kernel:
    return load_kernel(FOLDER / f"{FILES[rung]}.yaml")


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    small = {"block": 64} if rung in "12" else {"items": 8}
    return kernel(rung).variant({**small, **params}, dtype)


def words(elements: Array) -> Array:
    """As 32-bit words; behind an odd number of 16-bit elements lies one that nobody may write."""
    bits = np.ascontiguousarray(elements).reshape(-1)
    if bits.itemsize == 2 and len(bits) % 2:
        bits = np.append(bits, np.uint16(0xFFFF))
    return bits.view(np.uint32)


def launch(given: Variant, elements: Array, text: str = "") -> Array:
    """The outputs, as fp64, of a launch on an output that holds NaN."""
    rows, columns = elements.shape
    rule = given.geometry({"rows": rows, "columns": columns})
    ptx = compile_ptx(given.kernel.source, given.entry, [INCLUDE], text or None)
    memory, out = Memory(), np.full(words(elements).shape, 0xFFFFFFFF, np.uint32)
    pointers = memory.buffer(0, words(elements), writable=False), memory.buffer(0, out, writable=True)
    names = {"rows": rows, "columns": columns}
    arguments = [*pointers, *(names[one.scalar] for one in given.kernel.arguments if one.scalar)]
    GridMachine(parse_tensor(ptx, rule.shared_bytes), memory, rule.block[0], rule.grid, arguments).run()
    bits = memory.words[pointers[1] // 4 :].view(np.float32 if given.dtype == "fp32" else np.uint16)
    return value(bits[: elements.size], given.dtype).reshape(rows, columns)


def matrix(dtype: str, rows: int, columns: int, kind: str = "uniform") -> Array:
    """What is drawn; nothing of it is -inf alone."""
    elements = drawn(dtype, rows * columns, 3 + 11 * rows + columns, kind).reshape(rows, columns)
    if kind == "masked":
        elements[:, 0] = 0
    return elements


def worst(made: Array, elements: Array, dtype: str) -> float:
    """The largest error over the bound, by the rule of the problem."""
    x = value(elements, dtype)
    distance = x.max(axis=1, keepdims=True) - x
    right = np.exp(-distance)
    right /= right.sum(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        allowed = np.where(right > 0, PER_DISTANCE * distance * right, 0) + FLUSHED
        beyond = np.abs(made - right) - allowed
        error = np.where(beyond <= 0, 0, beyond / right)
    return float(np.nan_to_num(error, nan=np.inf).max()) / error_bound(x.shape[1], dtype)


CASES = [(rung, dtype) for rung in FILES for dtype in kernel(rung).dtypes]
KINDS = ("uniform", "wide", "integers", "spikes", "masked", "equal")


def test_each_of_the_ladder_s_files_is_about_a_page() -> None:
    assert "".join(FILES) == "1234"
    for name in FILES.values():
        assert len((FOLDER / f"{name}.cu").read_text(encoding="utf-8").splitlines()) <= 85, name


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_outputs_are_right_at_every_size(rung: str, dtype: str) -> None:
    """Far within the bound: threads are few, and so are the roundings."""
    given = variant(rung, dtype)
    for at, (rows, columns) in enumerate(ALIGNED if rung in "4567" else SIZES):
        kinds = KINDS if columns == 64 else (KINDS[at % len(KINDS)],)
        for kind in kinds:
            elements = matrix(dtype, rows, columns, kind)
            assert worst(launch(given, elements), elements, dtype) < 1, (rows, columns, kind)


def test_a_row_without_a_number_harms_no_other_one() -> None:
    for rung in FILES:
        elements = matrix("fp32", 5, 64)
        elements[2] = -np.inf
        rest = [0, 1, 3, 4]
        assert worst(launch(variant(rung, "fp32"), elements)[rest], elements[rest], "fp32") < 1, rung


def test_kernels_of_whole_vectors_say_which_rows_they_take() -> None:
    for rung, dtype in CASES:
        takes = [
            variant(rung, dtype).absent({"rows": 3, "columns": columns}) is None for columns in (64, 68, 66)
        ]
        assert takes == [True, rung in "123" or dtype == "fp32", rung in "123"], (rung, dtype)


def test_rows_in_registers_are_as_long_as_a_block_holds() -> None:
    for rung, threads in (("3", 512), ("4", 1024)):
        given = kernel(rung).variant({}, "fp32")
        most = threads * int(given.params["items"])
        assert given.absent({"rows": 1, "columns": most}) is None
        assert given.geometry({"rows": 1, "columns": most}).block[0] == threads
        assert given.absent({"rows": 1, "columns": most + 8}) is not None


BARRIER, OUTSIDE, WRONG = "before the barrier", "outside", "wrong"
WARPS = "    __syncthreads();  // the numbers of all warps are written\n"
MISTAKES: list[tuple[str, str, str, str, str]] = [
    # Rung, what is changed, into what, how it shows, and with which inputs.
    ("1", WARPS, "", BARRIER, "uniform"),
    ("1", "Lowest = -3.4028235e38f", "Lowest = 0.0f", WRONG, "negative"),
    ("1", "sum += __expf(to_float(from[c]) - maximum)", "sum += __expf(to_float(from[c]))", WRONG, "spikes"),
    ("1", "int apart = Block / 64", "int apart = Block / 128", WRONG, "uniform"),
    ("1", "c < columns; c += Block) {", "c <= columns; c += Block) {", "outside", "uniform"),
    ("2", "    __syncthreads();  // those of all warps are written\n", "", BARRIER, "uniform"),
    (
        "2",
        "sum = sum * __expf(maximum - larger) + __expf(number",
        "sum = sum + __expf(number",
        WRONG,
        "uniform",
    ),
    ("2", "other.sum * __expf(other.maximum - larger)", "other.sum", WRONG, "uniform"),
    (
        "2",
        "constexpr float Lowest = -3.4028235e38f",
        "#define Lowest __int_as_float(0xff800000)\n",
        WRONG,
        "masked",
    ),
    ("3", WARPS, "", BARRIER, "uniform"),
    ("3", "lane < warps ? of_warp[lane] : nothing", "of_warp[lane]", WRONG, "uniform"),
    ("3", "to_float(input[first + c]) : Lowest", "to_float(input[first + c]) : 0.0f", WRONG, "uniform"),
    ("3", "if (c < columns) output", "output", "", "uniform"),
    ("4", WARPS, "", BARRIER, "uniform"),
    ("4", "if (row >= rows) return;", "", OUTSIDE, "uniform"),
    ("4", "const bool by_warp = columns <= 32 * Items;", "const bool by_warp = true;", "", "uniform"),
    ("4", "to_float(loaded.value[j]) : Lowest", "to_float(loaded.value[j]) : 0.0f", WRONG, "uniform"),
]


@pytest.mark.parametrize(("rung", "right", "mistaken", "shows", "kind"), MISTAKES)
def test_mistakes_show(rung: str, right: str, mistaken: str, shows: str, kind: str) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    given = variant(rung, "fp32")
    text = given.kernel.source.read_text(encoding="utf-8")
    assert text.count(right) == 1, right
    saw = ""
    for rows, columns in ((5, 264), (5, 136)):
        elements = matrix("fp32", rows, columns, "positive" if kind == "negative" else kind)
        if kind == "negative":
            elements -= 100
        try:
            error = worst(launch(given, elements, text.replace(right, mistaken)), elements, "fp32")
            saw += "wrong" if not error < 1 else ""
        except Fault as fault:
            saw += str(fault)
    assert saw
    assert shows in saw


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_each_compiles_for_hopper_with_the_accesses_that_it_is_about(rung: str, dtype: str) -> None:
    cubin, facts = compile_variant(kernel(rung).variant({}, dtype), INCLUDE, "sm_90a")
    assert (facts["status"], facts["spill_store_bytes"]) == ("ok", 0), facts["reason"]
    found = opcodes(cubin, "sm_90a")
    count = Counter(one.split(".")[0] for one in found)
    wide = Counter(one.split(".")[0] for one in found if ".128" in one)
    if rung == "3":
        assert (count["LDG"], count["STG"]) == (16, 16)
    elif rung == "4":
        assert wide == dict.fromkeys(("LDG", "STG"), 32 * ELEMENT_BYTES[dtype] // 16)

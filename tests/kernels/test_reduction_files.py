"""The reduction ladder, without a GPU: sums on the emulator, planted mistakes, and what is compiled."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx, compile_variant, instructions
from conftest import ROOT, edit
from emulator.inputs import drawn
from emulator.ptx import Array, Fault, Memory
from emulator.sum_ptx import SumMachine
from emulator.tensor_ptx import parse_tensor
from ladder.catalogue.kernels import load_kernel
from ladder.model.expressions import evaluate
from ladder.model.kernel import Kernel, Variant
from ladder.problems.reduction.bounds import error_bound

FOLDER, INCLUDE = ROOT / "kernels" / "memory_bound" / "reduction", ROOT / "kernels" / "include"
FILES = {path.stem[0]: path.stem for path in sorted(FOLDER.glob("*.cu"))}
BLOCK = 64
NAN = 0xFFFFFFFF
GRID = (
    3  # blocks of the rungs that step over the line; 3 x 64 threads take several rounds, and vectors a rest
)
SIZES = (1, 2, 3, 31, 33, 64, 65, 257, 1031, 2 * GRID * BLOCK * 4 * 4 + 7)


@functools.cache
def kernel(rung: str) -> Kernel:
    return load_kernel(FOLDER / f"{FILES[rung]}.yaml")


def variant(rung: str, **params: Any) -> Variant:
    return kernel(rung).variant({"block": BLOCK, **params}, "fp32")


def launch(
    given: Variant, numbers: Array, arrivals: int = 0, text: str = "", include: Path = INCLUDE
) -> SumMachine:
    """A launch on an output and scratch that hold NaN. The output is the second buffer."""
    program = parse_tensor(compile_ptx(given.kernel.source, given.entry, [include], text or None), 0)
    memory, names = Memory(), given.names({"elements": len(numbers)})
    blocks = given.geometry({"elements": len(numbers)}).grid[0]
    blocks = min(blocks, GRID) if "blocks" in given.params else blocks
    pointers = [memory.buffer(0, numbers.view(np.uint32), writable=False)]
    pointers.append(memory.buffer(0, np.full(1, NAN, np.uint32), writable=True))
    for one in given.kernel.arguments:
        if one.workspace:
            held = 0 if one.workspace == "zeroed" else NAN
            words = evaluate(str(one.bytes), names) // 4
            pointers.append(memory.buffer(0, np.full(words, held, np.uint32), writable=True))
    memory.readable = np.where(memory.writable >= 0, memory.writable, memory.readable)
    arguments = [*pointers[:2], len(numbers), *pointers[2:]]
    threads = int(given.params["block"])
    machine = SumMachine(program, memory, threads, (blocks, 1, 1), arguments, arrivals=arrivals)
    machine.run()
    return machine


def found(given: Variant, numbers: Array, **more: Any) -> tuple[np.float32, bool]:
    """The output, and whether what must hold zeros does."""
    machine, zeros = launch(given, numbers, **more), True
    pointers = [int(machine.arguments[name][0]) // 4 for name in machine.program.parameters]
    workspaces = [one for one in given.kernel.arguments if one.workspace]
    for one, place in zip(workspaces, pointers[3:], strict=True):
        if one.workspace == "zeroed":
            zeros &= not machine.memory.words[place : place + int(one.bytes) // 4].any()
    return machine.memory.words[pointers[1] : pointers[1] + 1].view(np.float32)[0], bool(zeros)


def mistake(given: Variant, numbers: Array, kind: str = "uniform", **more: Any) -> str:
    """What is wrong with a sum, by the rule of the problem; else empty."""
    total, zeros = found(given, numbers, **more)
    wide = numbers.astype(np.float64)
    error = abs(float(total) - wide.sum())
    if not error <= error_bound(len(numbers), kind) * np.abs(wide).sum():
        return f"wrong sum of {len(numbers)}: {total}"
    return "" if zeros else "zeros were left otherwise"


def test_the_ladder_has_seven_files_each_less_than_a_page() -> None:
    assert "".join(FILES) == "1234567"
    for name in FILES.values():
        assert len((FOLDER / f"{name}.cu").read_text(encoding="utf-8").splitlines()) <= 80, name


@pytest.mark.parametrize("rung", FILES)
def test_sums_are_right_at_every_length(rung: str) -> None:
    """Integers exactly; blocks come in another order each time."""
    for arrivals, count in enumerate(SIZES):
        for kind in ("integers", "uniform") if count < 500 else ("wide",):
            numbers = drawn("fp32", count, 7 + count, kind)
            assert mistake(variant(rung), numbers, kind, arrivals=arrivals) == ""


@pytest.mark.parametrize("rung", ["6", "7"])
def test_other_numbers_of_loads_are_right(rung: str) -> None:
    for loads in (1, 2, 8):
        numbers = drawn("fp32", GRID * BLOCK * 4 * (loads + 1) + 5, 3, "integers")
        assert mistake(variant(rung, loads=loads), numbers, "integers") == ""


def test_one_order_gives_the_same_bits_whoever_comes_last() -> None:
    numbers = drawn("fp32", 1000, 5)
    for rung, same in (("7", True), ("1", False)):
        sums = {found(variant(rung), numbers, arrivals=arrivals)[0].tobytes() for arrivals in range(6)}
        assert (len(sums) == 1) is same, rung


def test_sequential_addressing_has_no_bank_conflicts_and_interleaved_has() -> None:
    """Wavefronts of the first warp while all of it is at work, as the file says."""
    numbers = drawn("fp32", 256, 5)
    for rung, ways in (("2", {1, 2, 4, 8}), ("3", {1})):
        machine = launch(variant(rung, block=256), numbers)
        assert {count for *_, count in machine.accesses} == ways, rung


BARRIER, OUTSIDE, WRONG, UNSEEN, ZEROS = "before the barrier", "outside", "wrong", "handed over", "zeros"
HEADER = "header"
ROUND = "        __syncthreads();  // the sums of the round before are written\n"
WARPS = "    __syncthreads();  // the sums of all warps are written\n"
LAST = "is_last_slice(&total->blocks, gridDim.x)"
MISTAKES: list[tuple[str, str, str, str]] = [
    # Rung, what is changed, into what, and how it shows.
    ("1", "if (i < elements)", "if (i <= elements)", OUTSIDE),
    ("1", "atomicExch(&total->sum, 0.0f)", "total->sum", ZEROS),
    ("1", f"{LAST} &&", "", UNSEEN),
    ("2", ROUND, "", BARRIER),
    ("2", "at + apart < Block", "at + apart < Block / 2", WRONG),
    ("2", "2 * apart * thread", "apart * thread", ""),
    ("3", ROUND, "", BARRIER),
    ("3", "left > 0", "left > 1", WRONG),
    ("3", "thread < left", "thread <= left", ""),
    ("4", WARPS, "", BARRIER),
    ("4", "int apart = 16", "int apart = 8", WRONG),
    ("4", "if (threadIdx.x == 0) atomicAdd", "atomicAdd", WRONG),
    ("5", "i += stride", "i += 2 * stride", WRONG),
    ("5", "i < elements; i", "i <= elements; i", OUTSIDE),
    ("5", f"{LAST} &&", "", UNSEEN),
    ("6", "i < elements % 4 ?", "i < elements % 2 ?", WRONG),
    ("6", "i += Loads * stride", "i += stride", WRONG),
    ("6", "i + (Loads - 1) * stride < vectors", "i < vectors", OUTSIDE),
    ("6", "#pragma unroll 1\n    for (; i < vectors;", "    for (; i + 1 < vectors;", WRONG),
    ("7", "block < gridDim.x", "block + 1 < gridDim.x", WRONG),
    ("7", "if (!is_last_slice(arrived, gridDim.x)) return;", "", ""),
    ("7", "gridDim.x)) return", "gridDim.x + 1)) return", WRONG),
    (HEADER, "    __syncthreads();  // the sums of all threads are written\n", "", UNSEEN),
    (HEADER, "atom.acq_rel", "atom.relaxed", UNSEEN),
]


@pytest.mark.parametrize(("rung", "right", "wrong", "shows"), MISTAKES)
def test_mistakes_show(tmp_path: Path, rung: str, right: str, wrong: str, shows: str) -> None:
    """As a wrong sum, as memory that is not zero again, or as what the emulator refuses."""
    header, given = rung == HEADER, variant("1" if rung == HEADER else rung)
    folder = tmp_path / "include"
    if header:
        for name in ("types/index.cuh", "types/vector.cuh", "epilogue/grid_sum.cuh"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text((INCLUDE / name).read_text(encoding="utf-8"), encoding="utf-8")
        edit(folder / "epilogue/grid_sum.cuh", right, wrong)
    text = given.kernel.source.read_text(encoding="utf-8")
    assert header or text.count(right) == 1, right
    numbers = drawn("fp32", 2 * GRID * BLOCK * 4 * 4 + 7 if rung in "567" else 259, 11)
    more: dict[str, Any] = {"include": folder} if header else {"text": text.replace(right, wrong)}
    try:
        saw = mistake(given, numbers, **more)
    except Fault as fault:
        saw = str(fault)
    assert saw
    assert shows in saw


@pytest.mark.parametrize("rung", FILES)
def test_each_compiles_for_hopper_and_vectors_are_asked_for_before_any_is_added(rung: str) -> None:
    cubin, facts = compile_variant(kernel(rung).variant({}, "fp32"), INCLUDE, "sm_90a")
    assert (facts["status"], facts["spill_store_bytes"]) == ("ok", 0), facts["reason"]
    work = [line for line in instructions(cubin, "sm_90a") if "LDG" in line or "FADD" in line]
    kinds = "".join("L" if ".128" in line else "" if "LDG" in line else "+" for line in work)
    assert ("LLLL+" in kinds) is (rung in "67"), kinds

"""The reduction ladder, without a GPU: sums on the emulator, planted mistakes, and what is compiled."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx, compiled_without_spills, listings
from conftest import ROOT, edit
from emulator.hopper_ptx import parse_hopper
from emulator.inputs import drawn, value
from emulator.ptx import Array, Fault, Memory
from emulator.sum_ptx import BulkSumMachine, SumMachine
from emulator.tensor_ptx import parse_tensor
from ladder.catalogue.kernels import load_kernel
from ladder.model.expressions import evaluate
from ladder.model.kernel import Kernel, Variant
from ladder.problems.reduction.bounds import error_bound

FOLDER, INCLUDE = (
    ROOT / "kernels" / "memory_bound" / "reduction",
    ROOT / "kernels" / "include",
)
FILES = {path.stem[0]: path.stem for path in sorted(FOLDER.glob("*.cu"))}
BLOCK = 64
NAN = 0xFFFFFFFF
GRID = 3  # blocks of the rungs that step over the line; 3 x 64 threads take several rounds, and vectors a rest
SIZES = (1, 2, 3, 31, 33, 64, 65, 257, 1031, 2 * GRID * BLOCK * 4 * 4 + 7)


@functools.cache
def kernel(rung: str) -> Kernel:
    return load_kernel(FOLDER / f"{FILES[rung]}.yaml")


def variant(rung: str, dtype: str = "fp32", **params: Any) -> Variant:
    ring = {"stages": 2, "stage": 1024} if rung == "8" else {}
    return kernel(rung).variant({"block": BLOCK, **ring, **params}, dtype)


def launch(
    given: Variant,
    numbers: Array,
    arrivals: int = 0,
    text: str = "",
    include: Path = INCLUDE,
    loads: str = "early",
) -> SumMachine | BulkSumMachine:
    """A launch on an output and scratch that hold NaN. The output is the second buffer."""
    memory, names = Memory(), given.names({"elements": len(numbers)})
    geometry = given.geometry({"elements": len(numbers)})
    blocks = (
        min(geometry.grid[0], GRID) if "blocks" in given.params else geometry.grid[0]
    )
    ptx = compile_ptx(given.kernel.source, given.entry, [include], text or None)
    bulk = "cp.async.bulk" in ptx
    program = (parse_hopper if bulk else parse_tensor)(ptx, geometry.shared_bytes)
    # Whole words: what lies behind the last number of bf16 must not be added.
    words = np.frombuffer(
        numbers.tobytes() + b"\xff" * (-numbers.nbytes % 4), np.uint32
    )
    pointers = [memory.buffer(0, words, writable=False)]
    pointers.append(memory.buffer(0, np.full(1, NAN, np.uint32), writable=True))
    for one in given.kernel.arguments:
        if one.workspace:
            held = 0 if one.workspace == "zeroed" else NAN
            words = evaluate(str(one.bytes), names) // 4
            pointers.append(
                memory.buffer(0, np.full(words, held, np.uint32), writable=True)
            )
    memory.readable = np.where(memory.writable >= 0, memory.writable, memory.readable)
    arguments = [*pointers[:2], len(numbers), *pointers[2:]]
    shape = program, memory, geometry.block[0], (blocks, 1, 1), arguments
    machine = (
        BulkSumMachine(*shape, loads=loads)
        if bulk
        else SumMachine(*shape, arrivals=arrivals)
    )
    machine.run()
    return machine


def found(given: Variant, numbers: Array, **more: Any) -> tuple[np.float32, bool]:
    """The output, and whether what must hold zeros does."""
    machine, zeros = launch(given, numbers, **more), True
    pointers = [
        int(machine.arguments[name][0]) // 4 for name in machine.program.parameters
    ]
    workspaces = [one for one in given.kernel.arguments if one.workspace]
    for one, place in zip(workspaces, pointers[3:], strict=True):
        if one.workspace == "zeroed":
            zeros &= not machine.memory.words[place : place + int(one.bytes) // 4].any()
    return machine.memory.words[pointers[1] : pointers[1] + 1].view(np.float32)[
        0
    ], bool(zeros)


def mistake(given: Variant, numbers: Array, kind: str = "uniform", **more: Any) -> str:
    """What is wrong with a sum, by the rule of the problem; else empty."""
    total, zeros = found(given, numbers, **more)
    wide = value(numbers, given.dtype)
    error = abs(float(total) - wide.sum())
    if not error <= error_bound(len(numbers), kind) * np.abs(wide).sum():
        return f"wrong sum of {len(numbers)}: {total}"
    return "" if zeros else "zeros were left otherwise"


def test_the_ladder_has_eight_files_each_about_a_page() -> None:
    assert "".join(FILES) == "12345678"
    for name in FILES.values():
        assert (
            len((FOLDER / f"{name}.cu").read_text(encoding="utf-8").splitlines()) <= 86
        ), name


RUNS = [(rung, dtype) for rung in FILES for dtype in kernel(rung).dtypes]


@pytest.mark.parametrize(("rung", "dtype"), RUNS)
def test_sums_are_right_at_every_length(rung: str, dtype: str) -> None:
    """Integers exactly; blocks come in another order each time, and copies land early or late."""
    for arrivals, count in enumerate(SIZES):
        for kind in ("integers", "uniform") if count < 500 else ("wide",):
            numbers = drawn(dtype, count, 7 + count, kind)
            more: dict[str, Any] = {
                "arrivals": arrivals,
                "loads": ("early", "late")[arrivals % 2],
            }
            assert mistake(variant(rung, dtype), numbers, kind, **more) == ""


@pytest.mark.parametrize("loads", ["early", "late"])
def test_a_ring_that_goes_round_several_times_is_right(loads: str) -> None:
    for stages, count in ((2, GRID * 256 * 7 + 3), (4, GRID * 256 * 9 + 130)):
        numbers = drawn("fp32", count, 3, "integers")
        assert (
            mistake(variant("8", stages=stages), numbers, "integers", loads=loads) == ""
        )


@pytest.mark.parametrize("rung", ["6", "7"])
def test_other_numbers_of_loads_are_right(rung: str) -> None:
    for loads in (1, 2, 8):
        numbers = drawn("fp32", GRID * BLOCK * 4 * (loads + 1) + 5, 3, "integers")
        assert mistake(variant(rung, loads=loads), numbers, "integers") == ""


def test_one_order_gives_the_same_bits_whoever_comes_last() -> None:
    numbers = drawn("fp32", 1000, 5)
    for rung, same in (("7", True), ("1", False)):
        sums = {
            found(variant(rung), numbers, arrivals=arrivals)[0].tobytes()
            for arrivals in range(6)
        }
        assert (len(sums) == 1) is same, rung


def test_sequential_addressing_has_no_bank_conflicts_and_interleaved_has() -> None:
    """Wavefronts of the first warp while all of it is at work, as the file says."""
    numbers = drawn("fp32", 256, 5)
    for rung, ways in (("2", {1, 2, 4, 8}), ("3", {1})):
        machine = launch(variant(rung, block=256), numbers)
        assert isinstance(machine, SumMachine)
        assert {count for *_, count in machine.accesses} == ways, rung


BARRIER, OUTSIDE, WRONG, UNSEEN, ZEROS = (
    "before the barrier",
    "outside",
    "wrong",
    "handed over",
    "zeros",
)
HEADER, TREE = "header", "        __syncthreads();  // the tree before is done\n"
ROUND = "        __syncthreads();  // the sums of the round before are written\n"
WARPS = "    __syncthreads();  // the sums of all warps are written\n"
LAST = "is_last_slice(&total->blocks, gridDim.x)"
MISTAKES: list[tuple[str, str, str, str]] = [
    # Rung, what is changed, into what, and how it shows.
    ("1", "if (i < elements)", "if (i <= elements)", OUTSIDE),
    ("1", "atomicExch(&total->sum, 0.0f)", "total->sum", ZEROS),
    ("1", f"{LAST} &&", "", UNSEEN),
    ("2", ROUND, "", BARRIER),
    ("2", TREE, "", BARRIER),
    ("3", TREE, "", BARRIER),
    ("3", ROUND, "", BARRIER),
    ("4", WARPS, "", BARRIER),
    (
        "4",
        "    __syncthreads();  // the first warp has read the sums before\n",
        "",
        BARRIER,
    ),
    ("4", "if (threadIdx.x == 0) atomicAdd", "atomicAdd", WRONG),
    ("5", "i < elements; i", "i <= elements; i", OUTSIDE),
    ("5", f"{LAST} &&", "", UNSEEN),
    ("6", "i + (Loads - 1) * stride < vectors", "i < vectors", OUTSIDE),
    ("7", "if (!is_last_slice(arrived, gridDim.x)) return;", "", ""),
    ("8", "barriers.wait_until_empty(at);", "", "more arrivals"),
    ("8", "mbarrier_wait(barriers.full[at.stage], at.parity);", "", "for ever"),
    ("8", "barriers.init(Block / 32)", "barriers.init(1)", "for ever"),
    (
        "8",
        "first + room < vectors ? room : static_cast<int>(vectors - first)",
        "room",
        OUTSIDE,
    ),
    (
        HEADER,
        "    __syncthreads();  // the sums of all threads are written\n",
        "",
        UNSEEN,
    ),
    (HEADER, "atom.acq_rel", "atom.relaxed", UNSEEN),
]


@pytest.mark.parametrize(("rung", "right", "wrong", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, rung: str, right: str, wrong: str, shows: str
) -> None:
    """As a wrong sum, as memory that is not zero again, or as what the emulator refuses."""
    header, given = rung == HEADER, variant("1" if rung == HEADER else rung)
    folder = tmp_path / "include"
    if header:
        for name in ("types/index.cuh", "types/vector.cuh", "epilogue/grid_sum.cuh"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(
                (INCLUDE / name).read_text(encoding="utf-8"), encoding="utf-8"
            )
        edit(folder / "epilogue/grid_sum.cuh", right, wrong)
    text = given.kernel.source.read_text(encoding="utf-8")
    assert header or text.count(right) == 1, right
    numbers = drawn("fp32", 2 * GRID * BLOCK * 4 * 4 + 7 if rung in "5678" else 259, 11)
    more: dict[str, Any] = (
        {"include": folder} if header else {"text": text.replace(right, wrong)}
    )
    saw = ""
    for loads in ("early", "late"):
        try:
            saw += mistake(given, numbers, loads=loads, **more)
        except Fault as fault:
            saw += str(fault)
    assert saw
    assert shows in saw


def test_each_compiles_for_hopper_and_vectors_are_asked_for_before_any_is_added() -> (
    None
):
    cubins = compiled_without_spills(
        [kernel(rung).variant({}, dtype) for rung, dtype in RUNS]
    )
    for (rung, dtype), listing in zip(RUNS, listings(cubins, "sm_90a"), strict=True):
        work = [line for line in listing if "LDG" in line or "FADD" in line]
        kinds = "".join(
            "L" if ".128" in line else "" if "LDG" in line else "+" for line in work
        )
        assert ("LLLL+" in kinds) is (rung in "67"), (rung, dtype, kinds)
        assert any("UBLKCP" in line for line in listing) is (rung == "8"), (rung, dtype)

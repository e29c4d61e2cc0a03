"""The softmax ladder, without a GPU: outputs on the emulator, planted mistakes, and what is compiled."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx, compiled_without_spills, opcodes
from conftest import ROOT, edit
from emulator.grid_ptx import GridMachine
from emulator.hopper_ptx import HopperMachine, parse_hopper
from emulator.inputs import drawn, value
from emulator.ptx import Array, Fault, Memory
from emulator.softmax_rule import error_over_bound
from emulator.tensor_ptx import parse_tensor
from ladder.catalogue.kernels import load_kernel
from ladder.model.kernel import Kernel, Variant

FOLDER, INCLUDE = (
    ROOT / "kernels" / "memory_bound" / "softmax",
    ROOT / "kernels" / "include",
)
FILES = {path.stem[0]: path.stem for path in sorted(FOLDER.glob("*.cu"))}
SIZES = ((1, 1), (2, 31), (3, 64), (2, 67), (5, 257), (2, 1024))
ALIGNED = ((1, 8), (3, 64), (5, 136), (2, 1024), (2, 1032), (1, 4104))
"""Of kernels that take whole 16 bytes."""


@functools.cache
def kernel(rung: str) -> Kernel:
    return load_kernel(FOLDER / f"{FILES[rung]}.yaml")


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    small: dict[str, Any] = (
        {"block": 64}
        if rung in "12"
        else {"items": 8}
        if rung in "34"
        else {"pieces": 2}
    )
    small |= {"cluster": 2} if rung in "67" else {}
    if rung == "7":
        small = {"cluster": 2, "block": 64, "stages": 6, "piece": 1024}
    return kernel(rung).variant({**small, **params}, dtype)


def in_two_clusters(given: Variant) -> Variant:
    """Which stay for several rows where there are more than two."""
    few = load_kernel(given.kernel.path)
    few.launch.grid[0] = 2 * int(given.params["cluster"])
    return few.variant(given.params, given.dtype)


def words(elements: Array) -> Array:
    """As 32-bit words; behind an odd number of 16-bit elements lies one that nobody may write."""
    bits = np.ascontiguousarray(elements).reshape(-1)
    if bits.itemsize == 2 and len(bits) % 2:
        bits = np.append(bits, np.uint16(0xFFFF))
    return bits.view(np.uint32)


def launch(
    given: Variant,
    elements: Array,
    text: str = "",
    loads: str = "late",
    include: Path = INCLUDE,
) -> Array:
    """The outputs, as fp64, of a launch on an output that holds NaN."""
    rows, columns = elements.shape
    rule = given.geometry({"m": rows, "n": columns})
    ptx = compile_ptx(given.kernel.source, given.entry, [include], text or None)
    memory, out = Memory(), np.full(words(elements).shape, 0xFFFFFFFF, np.uint32)
    pointers = (
        memory.buffer(0, words(elements), writable=False),
        memory.buffer(0, out, writable=True),
    )
    names = {"m": rows, "n": columns}
    arguments = [
        *pointers,
        *(names[one.name] for one in given.kernel.arguments if one.kind == "scalar"),
    ]
    shape = memory, rule.block[0]
    if "cp.async.bulk" in ptx:
        cluster = int(given.params.get("cluster", 1))
        program = parse_hopper(ptx, rule.shared_bytes)
        machine = HopperMachine(
            program, *shape, rule.grid[:2], cluster, arguments, {}, loads
        )
        # Of each cluster the first warp goes first if it can, or the whole first block.
        ahead = {"late": 32, "early": machine.threads}[loads]
        machine.behind[
            np.arange(machine.count) % (cluster * machine.threads) >= ahead
        ] = True
        machine.run()
    else:
        GridMachine(parse_tensor(ptx, 0), *shape, rule.grid, arguments).run()
    bits = memory.words[pointers[1] // 4 :].view(
        np.float32 if given.dtype == "fp32" else np.uint16
    )
    return value(bits[: elements.size], given.dtype).reshape(rows, columns)


def matrix(dtype: str, rows: int, columns: int, kind: str = "uniform") -> Array:
    """What is drawn; nothing of it is -inf alone."""
    elements = (
        drawn(dtype, rows * columns, 3 + 11 * rows + columns, kind)
        .reshape(rows, columns)
        .copy()
    )
    if kind == "masked":
        elements[:, 0] = 0
    return elements


def worst(made: Array, elements: Array, dtype: str) -> float:
    """The largest error over the bound, by the rule of the problem."""
    return error_over_bound(made, value(elements, dtype), dtype)


SEVERAL = {"cluster": 8, "stages": 3, "piece": 512}
"""Of rung 7: of 3080 columns a ring has no two rows."""
CASES = [(rung, dtype) for rung in FILES for dtype in kernel(rung).dtypes]
KINDS = ("uniform", "wide", "integers", "spikes", "masked", "equal")


def test_each_of_the_ladder_s_files_is_about_a_page() -> None:
    assert "".join(FILES) == "1234567"
    for name in FILES.values():
        assert (
            len((FOLDER / f"{name}.cu").read_text(encoding="utf-8").splitlines()) <= 105
        ), name


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_outputs_are_right_at_every_size(rung: str, dtype: str) -> None:
    """Far within the bound: threads are few, and so are the roundings."""
    given = variant(rung, dtype)
    for at, (rows, columns) in enumerate(ALIGNED if rung in "4567" else SIZES):
        kinds = KINDS if columns == 64 else (KINDS[at % len(KINDS)],)
        for kind in kinds:
            elements, loads = (
                matrix(dtype, rows, columns, kind),
                ("early", "late")[at % 2],
            )
            assert worst(launch(given, elements, loads=loads), elements, dtype) < 1, (
                rows,
                columns,
                kind,
            )


def test_a_row_without_a_number_harms_no_other_one() -> None:
    for rung in FILES:
        elements = matrix("fp32", 5, 64)
        elements[2] = -np.inf
        rest = [0, 1, 3, 4]
        assert (
            worst(launch(variant(rung, "fp32"), elements)[rest], elements[rest], "fp32")
            < 1
        ), rung


def test_kernels_of_whole_vectors_say_which_rows_they_take() -> None:
    for rung, dtype in CASES:
        takes = [
            variant(rung, dtype).absent({"m": 3, "n": columns}) is None
            for columns in (64, 68, 66)
        ]
        assert takes == [True, rung in "123" or dtype == "fp32", rung in "123"], (
            rung,
            dtype,
        )


def test_rows_in_registers_are_as_long_as_a_block_holds() -> None:
    for rung, threads in (("3", 512), ("4", 1024)):
        given = kernel(rung).variant({}, "fp32")
        most = threads * int(given.params["items"])
        assert given.absent({"m": 1, "n": most}) is None
        assert given.geometry({"m": 1, "n": most}).block[0] == threads
        assert given.absent({"m": 1, "n": most + 8}) is not None


def test_rows_may_be_in_other_numbers_of_pieces_and_of_blocks() -> None:
    elements = matrix("bf16", 2, 1048)
    for rung, params in (
        ("5", {"pieces": 8}),
        ("6", {"cluster": 8}),
        ("6", {"cluster": 4, "pieces": 1}),
    ):
        assert (
            worst(launch(variant(rung, "bf16", **params), elements), elements, "bf16")
            < 1
        ), (rung, params)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_clusters_that_stay_take_all_rows(dtype: str) -> None:
    """Whether the next row comes early or late, and where a ring holds more than one."""
    for params, columns in ((SEVERAL, 3080), (SEVERAL, 264), ({"cluster": 1}, 264)):
        given, elements = (
            in_two_clusters(variant("7", dtype, **params)),
            matrix(dtype, 5, columns),
        )
        for loads in ("early", "late"):
            assert worst(launch(given, elements, loads=loads), elements, dtype) < 1, (
                params,
                columns,
                loads,
            )


def test_a_row_over_eight_blocks_is_as_long_as_their_shared_memory() -> None:
    """Of 224 KiB each; 57344 columns of fp32 in one."""
    for rung, most in (("5", 57344), ("6", 8 * 57344)):
        given = kernel(rung).variant({}, "fp32")
        assert given.absent({"m": 1, "n": most}) is None
        assert given.geometry({"m": 1, "n": most}).shared_bytes == 57344 * 4
        assert given.absent({"m": 1, "n": most + 8}) is not None


BARRIER, OUTSIDE, WRONG, HEADER = "before the barrier", "outside", "wrong", "header"
WARPS = "    __syncthreads();  // the numbers of all warps are written\n"
MISTAKES: list[tuple[str, str, str, str, str]] = [
    # Rung, what is changed, into what, how it shows, and with which inputs.
    ("1", WARPS, "", BARRIER, "uniform"),
    ("1", "Lowest = -3.4028235e38f", "Lowest = 0.0f", WRONG, "negative"),
    (
        "1",
        "sum += __expf(to_float(from[c]) - maximum)",
        "sum += __expf(to_float(from[c]))",
        WRONG,
        "spikes",
    ),
    (
        "2",
        "    __syncthreads();  // those of all warps are written\n",
        "",
        BARRIER,
        "uniform",
    ),
    (
        "2",
        "sum = sum * __expf(maximum - larger) + __expf(number",
        "sum = sum + __expf(number",
        WRONG,
        "uniform",
    ),
    (
        "2",
        "constexpr float Lowest = -3.4028235e38f",
        "#define Lowest __int_as_float(0xff800000)\n",
        WRONG,
        "masked",
    ),
    ("3", WARPS, "", BARRIER, "uniform"),
    ("3", "if (c < columns) output", "output", "", "uniform"),
    ("4", WARPS, "", BARRIER, "uniform"),
    (
        "4",
        "min(width * thread + i * threads, last)",
        "width * thread + i * threads",
        OUTSIDE,
        "uniform",
    ),
    ("4", "if (row >= rows) return;", "", OUTSIDE, "uniform"),
    ("5", "mbarrier_wait(full[p], 0);", "", WRONG, "uniform"),
    ("5", "min(piece, vectors - first)", "piece", OUTSIDE, "uniform"),
    ("6", "mbarrier_wait(full[p], 0);", "", WRONG, "uniform"),
    (
        "6",
        "    cluster_barrier();  // those of all blocks are written\n",
        "",
        WRONG,
        "uniform",
    ),
    (
        "6",
        "    cluster_barrier();  // they have been read: blocks may leave\n",
        "",
        "has ended",
        "uniform",
    ),
    (
        "7",
        "mbarrier_wait(full[ahead.stage], ahead.parity);",
        "",
        "more arrivals",
        "uniform",
    ),
    ("7", "ahead.parity);", "0);", WRONG, "uniform"),
    (
        "7",
        "        cluster_barrier();  // those of all warps of all blocks are written\n",
        "",
        WRONG,
        "uniform",
    ),
    (
        "7",
        "    cluster_barrier();  // what is in this block has been read",
        "//",
        "has ended",
        "uniform",
    ),
    ("7", "16 * min(room, vectors - asked)", "16 * room", OUTSIDE, "uniform"),
    ("7", "if (piece + i >= vectors) continue;", "", "", "uniform"),
    (
        HEADER,
        "    __syncthreads();  // those of all warps are written\n",
        "",
        WRONG,
        "uniform",
    ),
    (
        HEADER,
        "{-3.4028235e38f, 0.0f}",
        "{__int_as_float(0xff800000), 0.0f}",
        WRONG,
        "masked",
    ),
    (HEADER, "        sum *= exp_to_zero(maximum - larger);\n", "", WRONG, "uniform"),
]


@pytest.mark.parametrize(("rung", "right", "mistaken", "shows", "kind"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, rung: str, right: str, mistaken: str, shows: str, kind: str
) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    given, more = variant("5" if rung == HEADER else rung, "fp32"), dict[str, Any]()
    if rung == HEADER:
        more["include"] = shutil.copytree(INCLUDE, tmp_path / "include")
        edit(tmp_path / "include" / "simt" / "normalizer.cuh", right, mistaken)
    else:
        text = given.kernel.source.read_text(encoding="utf-8")
        assert text.count(right) == 1, right
        more["text"] = text.replace(right, mistaken)
    saw = ""
    sizes = (
        ((2, 1060), (3, 140)) if rung in ("5", "6", HEADER) else ((5, 264), (5, 136))
    )
    if rung == "7":
        given, sizes = (
            in_two_clusters(variant("7", "fp32", **SEVERAL)),
            ((5, 3080),) * 2,
        )
    for at, (rows, columns) in enumerate(sizes):
        elements = matrix(
            "fp32", rows, columns, "positive" if kind == "negative" else kind
        )
        if kind == "negative":
            elements -= 100
        try:
            error = worst(
                launch(given, elements, loads=("late", "early")[at], **more),
                elements,
                "fp32",
            )
            saw += "wrong" if not error < 1 else ""
        except Fault as fault:
            saw += str(fault)
    assert saw
    assert shows in saw


def test_each_compiles_for_hopper_without_spills_and_a_row_in_registers_is_asked_for_at_once() -> (
    None
):
    cubins = compiled_without_spills(
        [kernel(rung).variant({}, dtype) for rung, dtype in CASES]
    )
    for (rung, dtype), cubin in zip(CASES, cubins, strict=True):
        kinds = [one.split(".")[0] for one in opcodes(cubin, "sm_90a")]
        assert ("UBLKCP" in kinds, "LDG" in kinds) == (rung in "567", rung in "1234"), (
            rung,
            dtype,
        )
        if rung == "4":
            assert "LDG" not in kinds[kinds.index("FMNMX") :], dtype

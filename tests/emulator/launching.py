"""A launch of any kernel by the emulator, results of GEMMs, and what shows of a mistake that is planted in a kernel."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_run
from compiling import compile_ptx
from ladder.build.sources import include_closure
from ladder.model.expressions import evaluate
from ladder.model.kernel import Argument, Variant
from ladder.problems.gemm import output_dtype

from emulator.formats import from_bits, to_bits
from emulator.grid_ptx import GridMachine
from emulator.hopper import INCLUDE, box
from emulator.hopper_ptx import HopperMachine, Map, parse_hopper
from emulator.ptx import UNSET, Array, Fault, Memory, parse

_OF_HOPPER = ("mbarrier", "cp.async.bulk", "ld.acquire")
"""What GridMachine does not know."""
ALPHA = 0.75
LOADS = ("early", "late")
BOTH: list[dict[str, Any]] = [{"loads": loads} for loads in LOADS]
"""Ways to launch: copies land as early as they may, and as late."""


def words_of(elements: Array) -> Array:
    """As 32-bit words. Bytes behind the last element, which nobody may write, are those of a NaN."""
    return np.frombuffer(
        elements.tobytes() + b"\xff" * (-elements.nbytes % 4), np.uint32
    )


def _workspace(
    argument: Argument, one: Variant, size: Mapping[str, int], memory: Memory
) -> slice:
    """Words for a kernel's own use: zeros, or what nobody has written."""
    count = evaluate(str(argument.bytes), one.names(size)) // 4
    held = 0 if argument.workspace == "zeroed" else UNSET
    room = np.full(count, held, np.uint32)
    begin = memory.buffer(0, room, writable=True) // 4
    words = slice(begin, begin + count)
    memory.readable[words] = 0
    return words


def _map(argument: Argument, one: Variant, address: int, elements: Array) -> Map:
    rows, columns = elements.shape[-2:]
    return Map(
        address,
        rows,
        columns,
        box(one, str(argument.tensor_map)),
        elements.itemsize,
        argument.swizzle != "none",
        math.prod(elements.shape[:-2]),
    )


def launch(
    one: Variant,
    buffers: Mapping[str, Array],
    size: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    *,
    loads: str = "late",
    clusters: int = 0,
    include: Path = INCLUDE,
    text: str | None = None,
    apart: bool = False,
    behind: range = range(0),
    arrivals: int = 0,
    sum_bits: int | None = None,
    notes: bool = False,
) -> tuple[Array, list[tuple[str, int, int]]]:
    """Elements of the last of `buffers`, the output, behind a launch; with `notes` also its accesses to shared memory.

    `buffers` hold elements as bits, as they lie in memory. `clusters` start, where it is not 0, instead of the
    variant's own number. `text` stands in for the source. Warps of a block may go `apart`; threads of a cluster that
    are `behind` go on only where no others may. Raises Fault.
    """
    values = {**size, **(scalars or {})}
    if one.kernel.triton:
        return triton_run.output(one, buffers, size, scalars or {}, clusters, text), []
    *_, output = buffers
    memory = Memory()
    addresses = {
        name: memory.buffer(0, words_of(elements), writable=name == output)
        for name, elements in buffers.items()
    }
    memory.readable = np.maximum(memory.readable, memory.writable)
    arguments = list[int]()
    maps = dict[int, Map]()
    zeroed = list[slice]()
    for place, argument in enumerate(one.kernel.arguments):
        if argument.workspace:
            words = _workspace(argument, one, size, memory)
            arguments.append(4 * words.start)
            if argument.workspace == "zeroed":
                zeroed.append(words)
        elif argument.tensor_map:
            name = argument.tensor_map
            maps[place] = _map(argument, one, addresses[name], buffers[name])
            arguments.append(place)
        elif argument.pointer:
            arguments.append(addresses[argument.pointer])
        elif str(argument.type).startswith("int"):
            arguments.append(int(values[argument.name]))
        else:
            bits = np.float32(values[argument.name]).view(np.uint32)
            arguments.append(int(bits))

    geometry = one.geometry({name: max(extent, 1) for name, extent in size.items()})
    cluster, *_ = geometry.cluster or (1,)
    grid = geometry.grid
    if clusters:
        grid = (clusters * cluster, *grid[1:])
    threads = geometry.block[0]
    ptx = compile_ptx(one.kernel.source, one.entry, [include], text)
    machine: GridMachine | HopperMachine
    if apart or maps or any(word in ptx for word in _OF_HOPPER):
        program = parse_hopper(ptx, geometry.shared_bytes)
        machine = HopperMachine(
            program, memory, threads, grid[:2], cluster, arguments, maps, loads
        )
        machine.sum_bits = sum_bits
        number = np.arange(machine.count) % (threads * cluster)
        machine.behind = np.isin(number, behind)
    else:
        program = parse(ptx, geometry.shared_bytes)
        landing = "once" if loads == "early" else "wait"
        machine = GridMachine(
            program, memory, threads, grid, arguments, landing, arrivals
        )
    machine.notes = notes
    machine.run()
    if any(memory.words[words].any() for words in zeroed):
        raise Fault("a counter or a flag is not zero in the end")
    before = buffers[output]
    made = memory.words[addresses[output] // 4 :].view(np.uint8)
    if (made[before.nbytes :][: -before.nbytes % 4] != 0xFF).any():
        raise Fault("it writes behind its output")
    elements = made[: before.nbytes].view(before.dtype).reshape(before.shape)
    return elements, machine.accesses


# GEMMs.


def product(
    one: Variant,
    inputs: Sequence[Array],
    beta: float = 0.0,
    alpha: float = ALPHA,
    **more: Any,
) -> tuple[Array, list[tuple[str, int, int]]]:
    """alpha * A @ B + beta * C of fp32 matrices, as the kernel computes it, and the accesses that `launch` notes.

    C holds NaN where beta is 0.
    """
    a, b, c = inputs
    m, n = c.shape
    buffers = {
        "a": to_bits(a, one.dtype),
        "b": to_bits(b.T if one.layout == "TN" else b, one.dtype),
        "c": to_bits(c if beta else np.full_like(c, np.nan), output_dtype(one.dtype)),
    }
    size = {"m": m, "n": n, "k": a.shape[1]}
    scalars = {"alpha": alpha, "beta": beta}
    made, accesses = launch(one, buffers, size, scalars, **more)
    return from_bits(made, output_dtype(one.dtype)), accesses


def shapes_of(size: tuple[int, int, int]) -> tuple[tuple[int, int], ...]:
    """Rows and columns of A, B and C."""
    m, n, k = size
    return (m, k), (k, n), (m, n)


def wrong(
    one: Variant,
    size: tuple[int, int, int],
    beta: float = 0.5,
    alpha: float = ALPHA,
    **more: Any,
) -> int:
    """How many elements of alpha * A @ B + beta * C are wrong, with inputs whose sums are exact."""
    rng = np.random.default_rng(1)
    a, b, c = (
        rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes_of(size)
    )
    made, _ = product(one, (a, b, c), beta, alpha, **more)
    exact = alpha * (a @ b) + beta * c
    dtype = output_dtype(one.dtype)
    return int(
        (made != from_bits(to_bits(exact.astype(np.float32), dtype), dtype)).sum()
    )


# Banks.

WAVEFRONTS = {"ldmatrix": 4, "ldmatrix.trans": 4, "ld.shared.v2.u32": 2}
"""Of a warp's access where no two lanes meet in a bank: 128 bytes each."""


def most_wavefronts(
    one: Variant, size: tuple[int, int, int], **more: Any
) -> dict[str, int]:
    """The most wavefronts of each kind of access that reads operands of mma.sync."""
    inputs = [np.ones(shape, np.float32) for shape in shapes_of(size)]
    most = dict[str, int]()
    for opcode, _, count in product(one, inputs, loads="early", notes=True, **more)[1]:
        kind = opcode
        if opcode.startswith("ldmatrix"):
            kind = "ldmatrix.trans" if ".trans." in opcode else "ldmatrix"
        if kind in WAVEFRONTS:
            most[kind] = max(most.get(kind, 0), count)
    return most


# Mistakes.


def planted(folder: Path, source: Path, right: str, mistaken: str) -> dict[str, Any]:
    """What `launch` is given so that a kernel has a mistake: in its source, or in the one header that has the text."""
    text = source.read_text()
    if right in text:
        return {"text": text.replace(right, mistaken)}
    included = include_closure(source, INCLUDE)
    (header,) = (path for path in included if right in path.read_text())
    include = Path(shutil.copytree(INCLUDE, folder / "include"))
    changed = include / header.relative_to(INCLUDE)
    changed.write_text(changed.read_text().replace(right, mistaken))
    return {"include": include}


def assert_shows(
    expected: str,
    is_wrong: Callable[..., object],
    ways: Iterable[Mapping[str, Any]] = BOTH,
) -> None:
    """A launch in one of the ways, which returns whether it is wrong, shows a mistake: as "wrong", or by a fault.

    It is one of the words that `|` separates, or anything where they are none.
    """
    seen = list[str]()
    for way in ways:
        try:
            seen.append("wrong" if is_wrong(**way) else "")
        except Fault as fault:
            seen.append(str(fault))
        if seen[-1] and any(word in seen[-1] for word in expected.split("|")):
            return
    raise AssertionError(f"{seen}, not {expected!r}")

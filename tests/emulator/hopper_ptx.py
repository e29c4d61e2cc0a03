"""Runs the PTX of a Hopper kernel on the CPU: TensorMachine with TMA, wgmma, mbarriers, clusters and named barriers.

Threads that wait let others go on; where all wait, the kernel would hang: a Fault. What is asynchronous is done at one
of two extremes, and a kernel must be right at both. `early` loads land when they are started, while wgmma and the reads
of TMA's stores happen at the last moment: a stage that is overwritten too soon shows. `late` loads land when nothing
else can happen, and wgmma and stores act at once: data that are used too soon show. `shuffled` is `late` in another
order than they were started in: who waits for one load has waited for no other. Copies of cp.async are loads, and land
late when their thread waits for their group too. Generic accesses to shared memory are not checked for races, but what
threads have written there is refused to wgmma and TMA's stores before a fence of the writer and a barrier behind it.
Semantics: PTX ISA 9.0, 9.7.9.12 (st.async), 9.7.9.25.3 (cp.async), 9.7.9.25.4 (cp.async.bulk), 9.7.9.27 (TMA),
9.7.13.15 (mbarrier), 9.7.15 (wgmma).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from emulator.formats import from_bits, towards_zero
from emulator.ptx import (
    RANK_SHIFT,
    Act,
    Array,
    Fault,
    Instruction,
    Machine,
    Memory,
    Program,
    parse,
    registers_in,
)
from emulator.tensor_ptx import Groups, TensorMachine

_NAMED = 16
"""Barriers of a block, named by numbers."""
_FLAG = "ld.acquire.gpu.global.u32"
"""Reads a flag of another block: in a loop until it is raised."""
_WARP = (
    "bar.warp.sync",
    "shfl.sync.down.b32",
    "shfl.sync.bfly.b32",
    "vote.sync.any.pred",
)
_WAITS = (
    "bar.sync",
    "bar.red.or.pred",
    "barrier.cluster.wait.acquire",
    "mbarrier.try_wait.parity.shared::cta.b64",
    _FLAG,
    *_WARP,
)
_WGMMA = "wgmma."
"""Begins what all four warps of a warpgroup carry out together: here the first ones wait for the others."""
_SEEN, _UNMET, _UNFENCED = range(3)
"""What a word in shared memory lacks to be seen by wgmma and TMA."""
_NOTHING = ("prefetch", "setmaxnreg", "fence", "createpolicy", "wgmma.fence")
"""Without a meaning here."""


def truncated_sum(terms: Array, bits: int) -> Array:
    """Sums over the first axis of an adder that keeps `bits` bits below the largest term's, and cuts off the rest.

    A model of fp8's sums in the tensor cores, which are not documented (deepseek-v3, 3.3.2).
    """
    largest = np.maximum(terms.max(axis=0), -terms.min(axis=0))
    unit = np.ldexp(terms.dtype.type(1), np.frexp(largest)[1] - bits)
    scaled = terms / unit
    return np.asarray(np.trunc(scaled, out=scaled).sum(axis=0) * unit)


@dataclass(frozen=True)
class Map:
    """A tensor map of numbers of `width` bytes: matrices one behind the other from a byte address on, and the box.

    A box is of one matrix; it is swizzled as its rows, or not.
    """

    address: int
    rows: int
    columns: int
    box: tuple[int, int]
    width: int = 2
    swizzled: bool = True
    matrices: int = 1

    @property
    def bytes(self) -> int:
        return self.width * self.box[0] * self.box[1]

    def of(self, words: Array) -> Array:
        """A view of words as numbers of the map."""
        return words.view(f"u{self.width}")

    def places(self) -> Array:
        """Number of each element of a box in shared memory, counted from the box."""
        line = self.width * self.box[1]
        lines, elements = self.box
        plain = np.arange(lines)[:, None] * line + self.width * np.arange(elements)
        if self.swizzled:
            plain ^= (plain >> 7 & line // 16 - 1) << 4
        return plain // self.width

    def inside(self, column: int, row: int, matrix: int = 0) -> tuple[Array, Array]:
        """Which elements of the box lie in the matrix, and their numbers in memory."""
        rows = row + np.arange(self.box[0])[:, None]
        columns = column + np.arange(self.box[1])
        within = (rows >= 0) & (rows < self.rows)
        within = within & (columns >= 0) & (columns < self.columns)
        within &= 0 <= matrix < self.matrices
        places = (matrix * self.rows + rows) * self.columns + columns
        return within, np.where(within, self.address // self.width + places, 0)


@dataclass
class Barrier:
    """An mbarrier: arrivals that a phase takes, those still missing, bytes still missing, and the phase's parity."""

    arrivals: int
    missing: int
    bytes: int = 0
    parity: int = 0

    def update(self, arrivals: int, count: int) -> None:
        self.missing -= arrivals
        self.bytes += count
        if self.missing < 0:
            raise Fault("more arrivals at an mbarrier than a phase has")
        if self.missing == 0 and self.bytes == 0:
            self.missing = self.arrivals
            self.parity = self.parity ^ 1


@functools.lru_cache(maxsize=1024)
def _operand_bytes(descriptor: int, extent: int, depth: int, along: bool) -> Array:
    """Addresses of the elements of an operand of wgmma in shared memory, extent x depth."""
    start, leading, stride = ((descriptor >> at & 0x3FFF) * 16 for at in (0, 16, 32))
    place = np.arange(extent)[:, None]
    k = np.arange(depth)
    width = 32 // depth
    if along:
        plain = place % 64 * 2 + place // 64 * leading + k % 8 * 128 + k // 8 * stride
    else:
        plain = place % 8 * 128 + place // 8 * stride + width * k
    address = start + plain
    return np.asarray(address ^ (address >> 7 & 7) << 4)


@functools.cache
def _places(registers: int) -> tuple[Array, Array]:
    """Row and column of a wgmma's sum in each register of each thread of a warpgroup (PTX ISA 9.0, 9.7.15)."""
    i = np.arange(registers)[:, None]
    thread = np.arange(128)
    rows = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
    return rows, i // 4 * 8 + thread % 4 * 2 + i % 2


def _waits(step: Instruction) -> bool:
    return step.opcode in _WAITS or step.opcode.startswith(_WGMMA)


@functools.lru_cache(maxsize=32)
def parse_hopper(text: str, dynamic_bytes: int) -> Program:
    """The one entry of a PTX module. Tensor maps are numbered as arguments, and a wait begins a basic block."""
    program = parse(text, dynamic_bytes)
    blocks: list[tuple[Instruction, ...]] = []
    moved: dict[int, int] = {}
    for place, block in enumerate(program.blocks):
        moved[place] = len(blocks)
        starts = [0, *(i for i, step in enumerate(block) if i and _waits(step))]
        blocks += [
            block[begin:end]
            for begin, end in zip(starts, [*starts[1:], None], strict=True)
        ]
    labels = {name: moved[place] for name, place in program.labels.items()}
    maps = {name: place for place, name in enumerate(program.parameters)}
    return dataclasses.replace(
        program, blocks=tuple(blocks), labels=labels, shared=program.shared | maps
    )


class HopperMachine(TensorMachine):
    """Threads of one launch of grid (x, y), in clusters of neighbours along x, with maps by number of argument."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        threads: int,
        grid: tuple[int, int],
        cluster: int,
        arguments: Sequence[int],
        maps: dict[int, Map],
        loads: str,
    ) -> None:
        assert loads in ("early", "late", "shuffled")
        landing = "once" if loads == "early" else "wait"
        super().__init__(
            program, memory, threads, [grid[0] * grid[1]], [arguments], landing=landing
        )
        self.early = loads == "early"
        self.cluster = cluster
        self.maps = maps
        # Of loads that land.
        self.order = np.random.default_rng(1) if loads == "shuffled" else None
        self.registers |= {
            "%nctaid.x": np.full(self.count, grid[0], np.uint32),
            "%nctaid.y": np.full(self.count, grid[1], np.uint32),
            "%ctaid.x": (self.block % grid[0]).astype(np.uint32),
            "%ctaid.y": (self.block // grid[0]).astype(np.uint32),
            "%cluster_ctarank": (self.block % cluster).astype(np.uint32),
        }
        self.sum_bits: int | None = (
            None  # of the sums of wgmma, which are exact without
        )
        # Threads that go on only where no other one may.
        self.behind = np.zeros(self.count, bool)
        self.ended = np.zeros(self.count, bool)  # threads, where blocks form clusters
        self.mbarriers: dict[tuple[int, int], Barrier] = {}
        # Of a shared word: the thread that wrote it, and what it lacks to be seen by wgmma and TMA.
        self.author = np.zeros(self.shared.shape, np.int32)
        self.lacks = np.full(self.shared.shape, _SEEN, np.uint8)
        # Of a block: loads that have not landed.
        self.loads: dict[int, list[Callable[[], None]]] = defaultdict(list)
        # Of a warpgroup: wgmma that have not been done.
        self.wgmmas: dict[int, Groups] = defaultdict(Groups)
        # Of a thread: stores that have not read shared memory.
        self.stores: dict[int, Groups] = defaultdict(Groups)
        # Of a barrier: arrivals, and how often all came.
        self.arrived = np.zeros(len(self.shared) * (_NAMED + 1), np.int64)
        self.rounds = np.zeros_like(self.arrived)
        # The round of the barrier that a thread has arrived at.
        self.waits_for = np.full(self.count, -1, np.int64)

    # Who may go on.

    def _run(self) -> None:
        waiting = {0: np.ones(self.count, bool)}
        others = ~self.behind
        some_are_behind = bool(self.behind.any())
        with np.errstate(all="ignore"):
            while waiting:
                first = waiting
                if some_are_behind:
                    ahead = {place: mask & others for place, mask in waiting.items()}
                    first = {place: mask for place, mask in ahead.items() if mask.any()}
                place, ready = self._next(first)
                if place is None and some_are_behind:
                    place, ready = self._next(waiting)
                if place is None:
                    self._land_loads(waiting)
                    continue
                rest = waiting.pop(place) & ~ready
                if rest.any():
                    waiting[place] = rest
                self.waits_for[ready] = -1
                active = self._run_block(place, ready, waiting)
                if active.any():
                    self._send(waiting, place + 1, active)
                if self.cluster > 1:
                    self.ended |= ready & ~functools.reduce(
                        np.logical_or, waiting.values(), active
                    )
        left = [*self.wgmmas.values(), *self.stores.values()]
        if any(groups.committed for groups in left):
            raise Fault("the kernel ends before its wgmma or its stores")

    def _land_loads(self, waiting: dict[int, Array]) -> None:
        """A load of each block: nothing else can happen."""
        blocks = [block for block, loads in self.loads.items() if loads]
        if not blocks:
            opcodes = {self.program.blocks[place][0].opcode for place in waiting}
            raise Fault(f"all threads wait for ever, at {sorted(opcodes)}")
        for block in blocks:
            started = self.loads[block]
            first = 0
            if self.order is not None:
                first = self.order.integers(len(started))
            land = started.pop(first)
            land()

    def _next(self, waiting: dict[int, Array]) -> tuple[int | None, Array]:
        """The first place where threads may go on, whole warps before parts of one: the others may still come."""
        part: tuple[int | None, Array] = (None, np.zeros(self.count, bool))
        for place in sorted(waiting):
            block = self.program.blocks[place]
            mask = waiting[place]
            if not block or not _waits(block[0]):
                return place, mask
            ready = self._ready(block[0], mask)
            whole = np.repeat(ready.reshape(-1, 32).all(axis=1), 32)
            if whole.any():
                return place, whole
            if ready.any() and part[0] is None:
                part = place, ready
        return part

    def _ready(self, step: Instruction, mask: Array) -> Array:
        ready = np.zeros(self.count, bool)
        if step.opcode.startswith("mbarrier"):
            place = self._address(step.operands[1])[mask]
            parity = self._value(step.operands[2], "u32")[mask] & 1
            asked = (self.block[mask] << 32 | place) << 1 | parity
            different, which = np.unique(asked, return_inverse=True)
            passed = [
                self._mbarrier(one >> 33, one >> 1 & 0xFFFFFFFF).parity != one & 1
                for one in different.tolist()
            ]
            ready[mask] = np.asarray(passed)[which]
            return ready
        if step.opcode in _WARP or step.opcode.startswith(
            _WGMMA
        ):  # all lanes of a warp, or of four
            width = 32 if step.opcode in _WARP else 128
            ready[:] = np.repeat(mask.reshape(-1, width).all(axis=1), width)
            return ready
        if step.opcode == _FLAG:
            word = self._address(step.operands[1]) // 4
            ready[mask] = self.memory.words[word[mask]] != 0
            return ready
        threads, barriers = self._barriers_of(step, mask)
        if step.opcode in ("bar.sync", "bar.red.or.pred"):
            self._arrive(threads, barriers, self._barrier_count(step))
        since = self.waits_for[threads]
        ready[threads] = (since >= 0) & (self.rounds[barriers] > since)
        return ready

    def _barriers_of(self, step: Instruction, mask: Array) -> tuple[Array, Array]:
        """Threads of a mask and the barrier of each: of a block or, behind all of these, of a cluster."""
        threads = np.flatnonzero(mask)
        block = self.block[threads]
        if step.opcode.startswith("barrier.cluster"):
            return threads, len(self.shared) * _NAMED + block // self.cluster
        number = step.operands[1 if step.opcode.startswith("bar.red") else 0]
        return threads, block * _NAMED + self._value(number, "u32")[threads]

    def _barrier_count(self, step: Instruction) -> int:
        if step.opcode.startswith("barrier.cluster"):
            return self.threads * self.cluster
        counted = len(step.operands) > 1 and step.opcode != "bar.red.or.pred"
        return int(step.operands[1]) if counted else self.threads

    def _arrive(
        self, threads: Array, barriers: Array, count: int, *, waits: bool = True
    ) -> None:
        if waits:
            new = self.waits_for[threads] < 0  # others have arrived before
            threads = threads[new]
            barriers = barriers[new]
        for one in np.unique(barriers).tolist():
            own = threads[barriers == one]
            before = int(self.arrived[one])
            if waits:
                place = before + np.arange(len(own))
                self.waits_for[own] = self.rounds[one] + place // count
            rounds, self.arrived[one] = divmod(before + len(own), count)
            self.rounds[one] += rounds

    # Instructions.

    def _at(self, operand: str, thread: int) -> int:
        """A 32-bit operand, or the address in one, of a thread."""
        if not operand.startswith("["):
            return int(self._value(operand, "u32")[thread])
        base, offset = self._place(operand)
        return int(base[thread]) + offset

    def _decode(self, step: Instruction) -> Act:
        opcode = step.opcode
        operands = step.operands
        if opcode == "fence.proxy.async.shared::cta":
            return partial(self._seen, _UNFENCED)
        if opcode.startswith("createpolicy"):
            return partial(self._set, operands[0], np.zeros(1, np.uint64))
        if opcode.startswith(_NOTHING) or opcode == "barrier.cluster.wait.acquire":
            return lambda mask: None  # whoever gets here need not wait any more
        if opcode == "bar.arrive" or opcode.startswith("barrier.cluster.arrive"):
            return partial(self._arrive_at, step)
        if opcode.startswith("mbarrier"):
            return partial(self._on_mbarriers, opcode, operands)
        if opcode == "elect.sync":
            return partial(self._elect, operands[0].partition("|")[2])
        if opcode.startswith("ld.shared::cluster") or opcode == "ld.f32":
            return partial(self._load_from_block, operands)
        if opcode == "st.v4.f32":
            # To a generic address, which is one in a block's shared memory here, as of ld.f32.
            return partial(self._store_to_block, operands)
        if opcode.startswith("st.async"):
            return partial(self._send_to_block, operands)
        if opcode.startswith("cp.async.bulk"):
            return partial(self._bulk, opcode, operands)
        if opcode.startswith("wgmma"):
            return partial(self._on_wgmmas, opcode, operands)
        if opcode.startswith("stmatrix"):
            return partial(self._store_matrices, operands)
        return super()._decode(step)

    def _barrier(self, mask: Array) -> None:
        # The first ones have waited for the others.
        self._seen(_UNMET, mask)

    _warp_barrier = _barrier

    def _arrive_at(self, step: Instruction, mask: Array) -> None:
        waits = step.opcode != "bar.arrive"
        if not waits:
            self._seen(_UNMET, mask)
        self._arrive(
            *self._barriers_of(step, mask), self._barrier_count(step), waits=waits
        )

    def _elect(self, register: str, mask: Array) -> None:
        chosen = np.zeros((self.count // 32, 32), bool)
        warps = mask.reshape(-1, 32)
        chosen[np.arange(len(warps)), warps.argmax(axis=1)] = warps.any(axis=1)
        self._set(register, chosen.reshape(-1), mask)

    def _check_shared(self, word: Array, thread: Array, *, writes: bool) -> None:
        Machine._check_shared(self, word, thread, writes=writes)
        if writes:
            block = self.block[thread]
            self.author[block, word] = thread
            self.lacks[block, word] = _UNFENCED

    def _seen(self, what: int, mask: Array) -> None:
        """What these threads have written lacks `what` no more."""
        if (lacking := self.lacks == what).any():
            self.lacks[lacking & mask[self.author]] -= 1

    def _refuse_unseen(self, block: int, words: Array) -> None:
        lacks = int(self.lacks[block, words].max(initial=0))
        written = "wgmma or TMA reads what threads have written"
        if lacks == _UNFENCED:
            raise Fault(f"{written} without fence.proxy.async")
        if lacks == _UNMET:
            raise Fault(f"{written} before a barrier")

    def _in_cluster(self, operand: str) -> tuple[Array, Array]:
        """The block and the word that an address from `mapa` names, of all threads."""
        address = self._address(operand)
        owner = self.block // self.cluster * self.cluster + (address >> RANK_SHIFT)
        return owner, address % 2**RANK_SHIFT // 4

    def _load_from_block(self, operands: tuple[str, ...], mask: Array) -> None:
        owner, word = self._in_cluster(operands[1])
        if self.ended.reshape(-1, self.threads).all(axis=1)[owner[mask]].any():
            raise Fault("a block reads the shared memory of one that has ended")
        for offset, register in enumerate(registers_in(operands[0])):
            self._register(register, 4)[mask] = self.shared[
                owner[mask], word[mask] + offset
            ]

    def _store_to_block(self, operands: tuple[str, ...], mask: Array) -> None:
        owner, word = self._in_cluster(operands[0])
        for offset, register in enumerate(registers_in(operands[1])):
            value = self._value(register, "u32")
            self.shared[owner[mask], word[mask] + offset] = value[mask]

    def _send_to_block(self, operands: tuple[str, ...], mask: Array) -> None:
        """st.async: words that land in a block, and are counted at a barrier of it then."""
        owner, word = self._in_cluster(operands[0])
        full = self._address(operands[2]) % 2**RANK_SHIFT
        registers = registers_in(operands[1])
        values = np.stack([self._value(one, "u32") for one in registers])

        def land(thread: int) -> None:
            block = int(owner[thread])
            if self.ended.reshape(-1, self.threads)[block].all():
                raise Fault("a store to the shared memory of a block that has ended")
            words = slice(word[thread], word[thread] + len(values))
            self.shared[block, words] = values[:, thread]
            bytes_ = 4 * len(values)
            self._mbarrier(block, int(full[thread])).update(0, -bytes_)

        for thread in np.flatnonzero(mask).tolist():
            self._start(int(owner[thread]), partial(land, thread))

    # mbarrier.

    def _mbarrier(self, block: int, address: int) -> Barrier:
        known = self.mbarriers.get((block, address))
        if known is None:
            raise Fault(f"no mbarrier was initialised at {address}")
        return known

    def _on_mbarriers(
        self, opcode: str, operands: tuple[str, ...], mask: Array
    ) -> None:
        if "try_wait" in opcode:
            self._set(operands[0], np.ones(1, bool), mask)
            return
        for thread in (int(one) for one in np.flatnonzero(mask)):
            block = int(self.block[thread])
            place = self._at(operands[0 if "init" in opcode else 1], thread)
            if "init" in opcode:
                count = self._at(operands[1], thread)
                self.mbarriers[block, place] = Barrier(count, count)
                continue
            if "shared::cluster" in opcode:
                block = block // self.cluster * self.cluster + (place >> RANK_SHIFT)
            more = self._at(operands[2], thread) if "expect_tx" in opcode else 0
            self._mbarrier(block, place % 2**RANK_SHIFT).update(1, more)

    # cp.async.

    def _copy(self, opcode: str, operands: tuple[str, ...], mask: Array) -> None:
        if opcode == "cp.async.mbarrier.arrive.noinc.shared::cta.b64":
            self._arrive_after_copies(operands[0], mask)
        else:
            super()._copy(opcode, operands, mask)

    def _arrive_after_copies(self, operand: str, mask: Array) -> None:
        """An arrival of each thread, once its copies so far are there. The last thread's land behind the others'.

        So a phase that ends without one of the threads shows.
        """
        for block in (int(one) for one in np.unique(self.block[mask])):
            threads = np.flatnonzero(mask & (self.block == block))
            for some in (threads[:-1], threads[-1:]):
                copies = self._take_copies(some)
                barriers = [
                    self._mbarrier(block, self._at(operand, int(thread)))
                    for thread in some
                ]

                def land(
                    copies: list[Any] = copies, barriers: list[Barrier] = barriers
                ) -> None:
                    for copy in copies:
                        self._land(*copy)
                    for barrier in barriers:
                        barrier.update(1, 0)

                self._start(block, land)

    def _take_copies(self, threads: Array) -> list[tuple[Array, Array, Array]]:
        """Copies of these threads that have not landed. Those of other threads stay in their groups."""
        taken = list[tuple[Array, Array, Array]]()
        for group in (*self.copies.committed, self.copies.started):
            left = list[tuple[Array, Array, Array]]()
            for thread, to, words in group:
                own = np.isin(thread, threads)
                for some, copies in ((own, taken), (~own, left)):
                    if some.any():
                        copies.append((thread[some], to[some], words[:, some]))
            group[:] = left
        return taken

    # TMA.

    def _start(self, block: int, land: Callable[[], None]) -> None:
        """A load lands at once, or when nothing else can happen."""
        if self.early:
            land()
        else:
            self.loads[block].append(land)

    def _bulk(self, opcode: str, operands: tuple[str, ...], mask: Array) -> None:
        for thread in (int(one) for one in np.flatnonzero(mask)):
            if opcode.endswith("commit_group"):
                self.stores[thread].commit()
            elif "wait_group" in opcode:
                for store in self.stores[thread].wait(int(operands[0])):
                    store()
            elif opcode.startswith("cp.async.bulk.shared::cta.global"):
                self._load_line(operands, thread)
            elif re.search(r"\.shared::(cta|cluster)\.global", opcode):
                self._load_box(opcode, operands, thread)
            else:
                self._store_box(operands, thread)

    def _load_line(self, operands: tuple[str, ...], thread: int) -> None:
        """Bytes side by side. Where they leave the buffer, or are no whole chunks of 16, is a fault."""
        to, size, full = (self._at(operands[place], thread) for place in (0, 2, 3))
        begin = int(self._address(operands[1])[thread])
        if to % 16 or begin % 16 or size % 16:
            raise Fault("a bulk copy that is not aligned to 16 bytes")
        if not 0 < size <= self.program.shared_bytes - to:
            raise Fault("a bulk copy outside of shared memory")
        words = np.arange(begin // 4, (begin + size) // 4)
        block = int(self.block[thread])
        self._check_global(words[:, None], np.asarray([thread]), writes=False)

        def land() -> None:
            self.shared[block, to // 4 : (to + size) // 4] = self.memory.words[words]
            self._mbarrier(block, full).update(0, -size)

        self._start(block, land)

    def _box(self, operand: str, thread: int) -> tuple[Map, Array, Array]:
        """The map of a box, which of its elements lie in the matrix, and their numbers in memory."""
        number, *place = re.findall(r"%\w+|\d+", operand)
        which = int(self._value(number, "u64")[thread])
        signed = [int(np.int32(np.uint32(self._at(one, thread)))) for one in place]
        if signed[0] * self.maps[which].width % 16:
            raise Fault("a box of TMA that begins at no multiple of 16 bytes")
        return self.maps[which], *self.maps[which].inside(*signed)

    def _load_box(self, opcode: str, operands: tuple[str, ...], thread: int) -> None:
        to = self._at(operands[0], thread)
        full = self._at(operands[2], thread)
        map_, within, places = self._box(operands[1], thread)
        if to % 128:
            raise Fault("TMA writes to a misaligned address")
        own = int(self.block[thread])
        blocks = [own]
        if "multicast" in opcode:
            bits = int(self._value(operands[3], "u16")[thread])
            first = own // self.cluster * self.cluster
            blocks = [first + rank for rank in range(self.cluster) if bits >> rank & 1]

        def land() -> None:
            values = np.where(within, map_.of(self.memory.words)[places], 0)
            for block in blocks:
                map_.of(self.shared[block])[to // map_.width + map_.places()] = values
                self._mbarrier(block, full).update(0, -map_.bytes)

        self._start(own, land)

    def _store_box(self, operands: tuple[str, ...], thread: int) -> None:
        map_, within, places = self._box(operands[0], thread)
        start = self._at(operands[1], thread)
        block = int(self.block[thread])

        self._refuse_unseen(block, (start + np.arange(0, map_.bytes, 4)) // 4)

        def store() -> None:
            values = map_.of(self.shared[block])[start // map_.width + map_.places()]
            map_.of(self.memory.words)[places[within]] = values[within]

        if self.early:
            self.stores[thread].started.append(store)
        else:
            store()

    # wgmma: operands in shared memory, or A in registers.

    def _warpgroups(self, mask: Array) -> Iterator[int]:
        what = "an instruction of a warpgroup that not all its threads reach"
        return map(int, np.flatnonzero(self._whole(mask, 128, what)))

    def _on_wgmmas(self, opcode: str, operands: tuple[str, ...], mask: Array) -> None:
        for group in self._warpgroups(mask):
            if opcode.startswith("wgmma.commit_group"):
                self.wgmmas[group].commit()
            elif opcode.startswith("wgmma.wait_group"):
                for wgmma in self.wgmmas[group].wait(int(operands[0])):
                    wgmma()
            else:
                wgmma = self._wgmma_of(opcode, operands, group)
                if self.early:
                    self.wgmmas[group].started.append(wgmma)
                else:
                    wgmma()

    def _wgmma_of(
        self, opcode: str, operands: tuple[str, ...], group: int
    ) -> Callable[[], None]:
        """Of A in registers these are read when it is done: they must not change before. Of TF32 sums are cut there."""
        columns, depth = (int(one) for one in re.findall(r"m64n(\d+)k(\d+)", opcode)[0])
        element = opcode.split(".")[-1]
        threads = slice(128 * group, 128 * group + 128)
        held = operands[1].startswith("{")
        block = int(self.block[128 * group])

        def agreed(operand: str, kind: str) -> int:
            value = self._value(operand, kind)[threads]
            if (value != value[0]).any():
                raise Fault("a wgmma whose threads disagree")
            return int(value[0])

        add = agreed(operands[3], "pred")
        # Others have no such operand.
        along_n = 32 // depth == 2 and int(operands[-1]) == 1
        right = self._operand(
            block, agreed(operands[2], "u64"), columns, depth, element, along_n
        )
        if held:
            left = self._fragments(registers_in(operands[1]), element, threads)
        else:
            left = self._operand(
                block, agreed(operands[1], "u64"), 64, depth, element, along=False
            )

        def wgmma() -> None:
            self._accumulate(
                operands[0],
                left(),
                right(),
                threads,
                add,
                cuts=held and element == "tf32",
            )

        return wgmma

    def _operand(
        self,
        block: int,
        descriptor: int,
        extent: int,
        depth: int,
        element: str,
        along: bool,
    ) -> Callable[[], Array]:
        """Reads an operand in shared memory, extent x depth; `along` says that lines run along the extent."""
        address = _operand_bytes(descriptor, extent, depth, along)
        width = 32 // depth
        self._refuse_unseen(block, address // 4)

        def values() -> Array:
            bits = self.shared[block].view(f"u{width}")[address // width]
            return from_bits(bits, element).astype(np.float64)

        return values

    def _fragments(
        self, registers: Sequence[str], element: str, threads: slice
    ) -> Callable[[], Array]:
        """Reads the registers of A: in word i a thread has elements of row i % 2 * 8 of its two and half i // 2."""
        per_word = {"tf32": 1, "e4m3": 4}.get(element, 2)
        thread = np.arange(128)

        def values() -> Array:
            words = np.stack(
                [self._value(register, "u32")[threads] for register in registers]
            )
            i = np.arange(len(registers))[:, None]
            left = np.zeros((64, 8, per_word))
            row = thread // 32 * 16 + thread % 32 // 4 + i % 2 * 8
            bits = words.view(f"u{4 // per_word}")
            left[row, thread % 4 + i // 2 * 4] = from_bits(bits, element).reshape(
                *row.shape, per_word
            )
            return left.reshape(64, -1)

        return values

    def _accumulate(
        self,
        operand: str,
        left: Array,
        right: Array,
        threads: slice,
        add: int,
        *,
        cuts: bool = False,
    ) -> None:
        """Add left @ right.T to the accumulators; with `cuts` sums are cut, by `sum_bits` terms as well."""
        registers = [self._register(name, 4) for name in registers_in(operand)]
        rows, columns = _places(len(registers))
        products = (left @ right.T)[rows, columns]
        held = np.stack([one[threads] for one in registers]).view(np.float32)
        if not add:
            held = np.zeros_like(held)
        totals = products + held
        if self.sum_bits is not None:
            for register, (row, column) in enumerate(zip(rows, columns, strict=True)):
                terms = [held[register], *(left[row] * right[column]).T]
                totals[register] = truncated_sum(np.stack(terms), self.sum_bits)
        sums = towards_zero(totals) if cuts else totals.astype(np.float32)
        for register, words in zip(registers, sums.view(np.uint32), strict=True):
            register[threads] = words

    def _store_matrices(self, operands: tuple[str, ...], mask: Array) -> None:
        thread = self._whole_warps(mask)
        address = self._address(operands[0]).reshape(-1, 32)
        lane = np.arange(32)
        for matrix, register in enumerate(registers_in(operands[1])):
            byte = (address[:, 8 * matrix + lane // 4] + lane % 4 * 4).reshape(-1)[mask]
            self._in_shared(byte // 4, self._value(register, "u32")[mask], thread)

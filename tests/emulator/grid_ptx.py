"""Runs the PTX of a kernel whose blocks work together on the CPU: TensorMachine with clusters and with global sums.

Clusters: blocks of a launch are numbered x first, then y, then z, and a cluster is the blocks along z. An address that
`mapa` makes names the block in its upper bits, as no hardware need do. What another block wrote needs a barrier of the
cluster before it is read, and one must follow the last reading: the owner could overwrite it, or be gone.

Global memory: blocks count themselves by an atomic increment that wraps around, and add up numbers by atomics; who
comes when is drawn (`arrivals`). What another block wrote may be read behind that only if a barrier lies between the
writing and the writer's increment, the increments release and acquire, the writer's came first, and a barrier follows
the reader's. Semantics: PTX ISA 9.0, 9.7.13.5 (barrier.cluster), 9.7.9.23 (mapa), 9.7.13.8 (atom), 9.7.13.1
(barrier.red) and chapter 8 (causality order).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from emulator.ptx import (
    RANK_SHIFT,
    Act,
    Array,
    Fault,
    Instruction,
    Memory,
    Program,
    registers_in,
)
from emulator.tensor_ptx import TensorMachine


class GridMachine(TensorMachine):
    """Threads of one launch of grid (x, y, z), whose clusters are the blocks along z."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        threads: int,
        grid: Sequence[int],
        arguments: Sequence[int],
        landing: str = "wait",
        arrivals: int = 0,
    ) -> None:
        across, down, deep = grid
        self.tiles = across * down
        blocks = self.tiles * deep
        super().__init__(
            program, memory, threads, [blocks], [arguments], landing=landing
        )
        place = self.block % self.tiles
        numbers = {
            "%ctaid.x": place % across,
            "%ctaid.y": place // across,
            "%ctaid.z": self.block // self.tiles,
            "%cluster_ctarank": self.block // self.tiles,
        }
        for name, number in numbers.items():
            self.registers[name] = number.astype(np.uint32)
        for axis, count in zip("xyz", grid, strict=True):
            self.registers[f"%nctaid.{axis}"] = np.full(self.count, count, np.uint32)
        self.random = np.random.default_rng(arrivals)
        self.cluster_barriers = np.zeros(self.tiles, np.int64)
        # The cluster barriers behind which a word was written, and read by another block.
        self.written_in_cluster = np.full(self.shared.shape, -1, np.int32)
        self.read_from_afar = np.full(self.shared.shape, -1, np.int32)
        # Of a word of global memory, who wrote it last and between which barriers.
        self.author = np.full(len(memory.words), -1, np.int64)
        self.authored = np.full(len(memory.words), -1, np.int64)
        # Of a block: the counter it has counted itself at, how many blocks had before, and between which barriers.
        self.counter = np.full(blocks, -1, np.int64)
        self.came = np.full(blocks, -1, np.int64)
        self.counted = np.full(blocks, -1, np.int64)
        # Of an addition: the word, the thread, and between which of its barriers.
        self.added: list[tuple[int, int, int]] = []

    def _run(self) -> None:
        super()._run()
        cluster = np.arange(len(self.shared)) % self.tiles
        last = self.read_from_afar.max(axis=1)
        if (last >= self.cluster_barriers[cluster]).any():
            raise Fault(
                "a block may leave while another one still reads its shared memory"
            )

    def _decode(self, step: Instruction) -> Act:
        if step.opcode == "ld.shared::cluster.v4.f32":
            return partial(self._load_from_block, step.operands)
        if step.opcode == "barrier.cluster.arrive.release":
            return lambda mask: None  # in these kernels the wait follows at once
        if step.opcode == "barrier.cluster.wait.acquire":
            return self._cluster_barrier
        return super()._decode(step)

    # Shared memory of a cluster.

    def _check_shared(self, word: Array, thread: Array, *, writes: bool) -> None:
        super()._check_shared(word, thread, writes=writes)
        if not writes:
            return
        block = self.block[thread]
        at = block * self.shared.shape[1] + word
        barriers = self.cluster_barriers[block % self.tiles]
        if (self.read_from_afar.take(at) >= barriers).any():
            raise Fault(
                "shared memory is overwritten before the cluster barrier that follows its reading"
            )
        self.written_in_cluster.put(at, barriers)

    def _load_from_block(self, operands: tuple[str, ...], mask: Array) -> None:
        if not mask.any():
            return
        address = self._address(operands[1])[mask]
        at = address % 2**RANK_SHIFT
        rank = address >> RANK_SHIFT
        owner = rank * self.tiles + self.block[mask] % self.tiles
        outside = (at + 16 > self.program.shared_bytes) | (owner >= len(self.shared))
        if (at % 16).any() or outside.any():
            raise Fault(
                "a misaligned read of another block's shared memory, or one outside of it"
            )
        barriers = self.cluster_barriers[owner % self.tiles]
        for offset, register in enumerate(registers_in(operands[0])):
            word = at // 4 + offset
            if (self.written_in_cluster[owner, word] >= barriers).any():
                raise Fault(
                    "another block's memory is read before the cluster barrier that follows its writing"
                )
            self.read_from_afar[owner, word] = barriers
            self._register(register, 4)[mask] = self.shared[owner, word]

    def _cluster_barrier(self, mask: Array) -> None:
        here = mask.reshape(-1, self.tiles, self.threads)
        everyone = here.all(axis=(0, 2))
        if (here.any(axis=(0, 2)) != everyone).any():
            raise Fault("a cluster barrier that not all threads of a cluster reach")
        self._barrier(mask)
        self.cluster_barriers[everyone] += 1

    # Global memory.

    def _in_turn(self, mask: Array) -> Array:
        return self.random.permutation(np.flatnonzero(mask))

    def _is_counted(self, opcode: str, word: int, thread: int) -> None:
        block = self.block[thread]
        barriers = int(self.barriers[block])
        if opcode.endswith(".u32"):  # a counter
            if "acq_rel" in opcode:
                self.came[block] = self.came.max() + 1
                self.counter[block] = word
                self.counted[block] = barriers
            return
        if ".add." in opcode:
            self.added.append((word, thread, barriers))
        else:
            self._refuse_unseen(word, thread)
        self.author[word] = thread
        self.authored[word] = barriers

    def _check_global(self, word: Array, thread: Array, *, writes: bool) -> None:
        super()._check_global(word, thread, writes=writes)
        thread = np.broadcast_to(thread, word.shape)
        if writes:
            self.author[word] = thread
            self.authored[word] = self.barriers[self.block[thread]]
            return
        author = self.author[word]
        others = (author >= 0) & (author != thread)
        if others.any():
            reader = self.block[thread[others]]
            writer = self.block[author[others]]
            left = self.authored[word[others]] < self.counted[writer]
            same = self.counter[writer] == self.counter[reader]
            first = self.came[writer] <= self.came[reader]
            counted = self.counted[reader]
            taken = (counted >= 0) & (self.barriers[reader] > counted)
            if not (left & same & first & taken).all():
                raise Fault(
                    "global memory is read that another thread has not handed over"
                )

    def _refuse_unseen(self, word: int, reader: int) -> None:
        """A fault where an addition was not handed over to the thread that takes the sum."""
        for at, thread, barriers in self.added:
            if at == word:
                self.author[word] = thread
                self.authored[word] = barriers
                self._check_global(
                    np.asarray([word]), np.asarray([reader]), writes=False
                )

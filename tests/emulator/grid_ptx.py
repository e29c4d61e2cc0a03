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

import dataclasses
import re
from collections.abc import Sequence
from functools import partial

import numpy as np

from emulator.ptx import Act, Array, Fault, Instruction, Memory, Program
from emulator.tensor_ptx import TensorMachine

_RANK_SHIFT = 24
"""Shared memory of a block is smaller than 2^24 bytes, so that a rank fits above an address."""


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
        opcode = step.opcode
        to, *others = step.operands or ("",)
        if opcode == "mapa.shared::cluster.u32":
            return self._sets(to, _in_block, others, ["u32"] * 2)
        if opcode == "ld.shared::cluster.v4.f32":
            return partial(self._load_from_block, step.operands)
        if opcode == "barrier.cluster.arrive.release":
            return lambda mask: None  # in these kernels the wait follows at once
        if opcode == "barrier.cluster.wait.acquire":
            return self._cluster_barrier
        if opcode == "bar.red.or.pred":
            return partial(self._any, step.operands)
        if opcode in ("atom.global.add.f32", "atom.global.exch.b32"):
            return partial(self._exchange, step)
        if opcode == "div.u64":
            return self._sets(to, _divided, others, ["u64"] * 2)
        if ".volatile" in opcode:
            plain = opcode.replace(".volatile", "")
            return self._decode(dataclasses.replace(step, opcode=plain))
        return super()._decode(step)

    # Shared memory of a cluster.

    def _write_shared(
        self, block: Array, word: Array, value: Array, thread: Array
    ) -> None:
        at = block * self.shared.shape[1] + word
        barriers = self.cluster_barriers[block % self.tiles]
        if (self.read_from_afar.take(at) >= barriers).any():
            raise Fault(
                "shared memory is overwritten before the cluster barrier that follows its reading"
            )
        super()._write_shared(block, word, value, thread)
        self.written_in_cluster.put(at, barriers)

    def _load_from_block(self, operands: tuple[str, ...], mask: Array) -> None:
        if not mask.any():
            return
        address = self._address(operands[1])[mask]
        at = address % 2**_RANK_SHIFT
        rank = address >> _RANK_SHIFT
        owner = rank * self.tiles + self.block[mask] % self.tiles
        outside = (at + 16 > self.program.shared_bytes) | (owner >= len(self.shared))
        if (at % 16).any() or outside.any():
            raise Fault(
                "a misaligned read of another block's shared memory, or one outside of it"
            )
        barriers = self.cluster_barriers[owner % self.tiles]
        for offset, register in enumerate(re.findall(r"%\w+", operands[0])):
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

    def _any(self, operands: tuple[str, ...], mask: Array) -> None:
        self._barrier(mask)
        given = self._value(operands[2], "pred") & mask
        anyone = given.reshape(-1, self.threads).any(axis=1)
        self._set(operands[0], np.repeat(anyone, self.threads), mask)

    def _in_turn(self, mask: Array) -> Array:
        return self.random.permutation(np.flatnonzero(mask))

    def _has_counted(self, opcode: str, word: int, thread: int) -> None:
        if "acq_rel" in opcode:
            block = self.block[thread]
            self.came[block] = self.came.max() + 1
            self.counter[block] = word
            self.counted[block] = self.barriers[block]

    def _global(self, word: Array, value: Array | None, thread: Array) -> Array | None:
        loaded = super()._global(word, value, thread)
        thread = np.broadcast_to(thread, word.shape)
        if value is not None:
            self.author[word] = thread
            self.authored[word] = self.barriers[self.block[thread]]
            return loaded
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
        return loaded

    def _exchange(self, step: Instruction, mask: Array) -> None:
        """One thread after the other: adds, or takes what is there and leaves another number."""
        to, place, by = step.operands
        adds = ".add." in step.opcode
        given = self._value(by, "f32" if adds else "u32")
        given = np.ascontiguousarray(given).view(np.uint32)
        words = self._address(place) // 4
        before = np.zeros(self.count, np.uint32)
        for thread in self._in_turn(mask):
            one = np.asarray([thread])
            word = words[thread : thread + 1]
            if not adds:
                self._refuse_unseen(word, one)
            self.author[word] = -1
            (held,) = self._global(word, None, one)  # type: ignore[misc]
            before[thread] = held
            new = given[thread]
            if adds:
                new = (held.view(np.float32) + new.view(np.float32)).view(np.uint32)
                barriers = int(self.barriers[self.block[thread]])
                self.added.append((int(word[0]), int(thread), barriers))
            self._global(word, np.asarray([new]), one)
        self._set(to, before, mask)

    def _refuse_unseen(self, word: Array, reader: Array) -> None:
        """A fault where an addition was not handed over to the thread that takes the sum."""
        for at, thread, barriers in self.added:
            if at == word[0]:
                self.author[word] = thread
                self.authored[word] = barriers
                self._global(word, None, reader)


def _in_block(address: Array, rank: Array) -> Array:
    return np.asarray(address | rank << _RANK_SHIFT)


def _divided(left: Array, right: Array) -> Array:
    return np.asarray(left // np.maximum(right, 1))

"""Runs the PTX of a kernel whose blocks add up sums through global memory: ClusterMachine with blocks along y.

Blocks count themselves by an atomic increment that wraps around; who comes when is drawn (`arrivals`). What another
block wrote may be read behind that only if a barrier lies between the writing and the writer's increment, the
increments release and acquire, the writer's came first, and a barrier follows the reader's. Semantics: PTX ISA 9.0,
9.7.13.8 (atom), 9.7.13.1 (barrier.red) and chapter 8 (causality order).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from emulator.cluster_ptx import ClusterMachine
from emulator.ptx import Act, Array, Fault, Instruction, Memory, Program


class GridMachine(ClusterMachine):
    """Threads of one launch of grid (x, y, z), whose clusters are the blocks along z."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        threads: int,
        grid: tuple[int, int, int],
        arguments: Sequence[int],
        landing: str = "wait",
        arrivals: int = 0,
    ) -> None:
        super().__init__(
            program, memory, threads, grid[0] * grid[1], grid[2], arguments, landing
        )
        place = self.block % self.tiles
        self.registers |= {
            "%ctaid.x": (place % grid[0]).astype(np.uint32),
            "%ctaid.y": (place // grid[0]).astype(np.uint32),
            "%nctaid.x": np.full(self.count, grid[0], np.uint32),
            "%nctaid.y": np.full(self.count, grid[1], np.uint32),
        }
        self.random = np.random.default_rng(arrivals)
        # Of a word of global memory, who wrote it last and between which barriers.
        self.author = np.full(len(memory.words), -1, np.int64)
        self.authored = np.full(len(memory.words), -1, np.int64)
        # Of a block: the counter it has counted itself at, how many blocks had before, and between which barriers.
        self.counter = np.full(len(self.shared), -1, np.int64)
        self.came = np.full(len(self.shared), -1, np.int64)
        self.counted = np.full(len(self.shared), -1, np.int64)

    def _decode(self, step: Instruction) -> Act:
        if step.opcode == "bar.red.or.pred":
            return partial(self._any, step.operands)
        return super()._decode(step)

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
            self.counter[block], self.counted[block] = word, self.barriers[block]

    def _global(self, word: Array, value: Array | None, thread: Array) -> Array | None:
        found, thread = (
            super()._global(word, value, thread),
            np.broadcast_to(thread, word.shape),
        )
        if value is not None:
            self.author[word], self.authored[word] = (
                thread,
                self.barriers[self.block[thread]],
            )
            return found
        author = self.author[word]
        if (other := (author >= 0) & (author != thread)).any():
            reader, writer = self.block[thread[other]], self.block[author[other]]
            left = self.authored[word[other]] < self.counted[writer]
            met = (self.counter[writer] == self.counter[reader]) & (
                self.came[writer] <= self.came[reader]
            )
            taken = (self.counted[reader] >= 0) & (
                self.barriers[reader] > self.counted[reader]
            )
            if not (left & met & taken).all():
                raise Fault(
                    "global memory is read that another thread has not handed over"
                )
        return found

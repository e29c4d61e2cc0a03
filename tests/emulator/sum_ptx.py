"""Runs the PTX of a kernel whose blocks add to one number in global memory: GridMachine with atomics on fp32.

Atomic additions come in any order, which is drawn (`arrivals`). Who takes the sum must have been handed all of them, as
what is stored must be. Semantics: PTX ISA 9.0, 9.7.13.8 (atom) and 9.7.9.6 (shfl.sync).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.grid_ptx import GridMachine
from emulator.hopper_ptx import HopperMachine
from emulator.ptx import Array, Fault, Instruction
from emulator.tensor_ptx import TensorMachine


def shuffle_down(machine: TensorMachine, operands: tuple[str, ...], mask: Array) -> None:
    """Each lane gets the value of a lane some places above, or keeps its own."""
    to, value, by, _, members = operands
    warps = mask.reshape(-1, 32)
    if (machine._everywhere(members, "u32")[mask] != 0xFFFFFFFF).any():
        raise Fault("a shuffle that does not name all lanes")
    if (warps.any(axis=1) != warps.all(axis=1)).any():
        raise Fault("a shuffle that not all lanes of a warp reach")
    lane, down = np.arange(machine.count), machine._everywhere(by, "u32").astype(np.int64)
    source = np.where(lane % 32 + down < 32, lane + down, lane)
    machine._set(to.partition("|")[0], machine._everywhere(value, "b32")[source], mask)


class BulkSumMachine(HopperMachine):
    """Threads of one launch of blocks along x that get their numbers by bulk copies.

    What is handed over between blocks is not looked at: SumMachine does that, for the same header.
    """

    def __init__(self, *launch: Any, loads: str) -> None:
        program, memory, threads, grid, arguments = launch
        super().__init__(program, memory, threads, grid[:2], 1, arguments, {}, loads)

    def _carry_out(self, step: Instruction, mask: Array) -> None:
        if step.opcode == "shfl.sync.down.b32":
            shuffle_down(self, step.operands, mask)
        elif step.opcode == "atom.acq_rel.gpu.global.inc.u32":
            self._count(step.operands, mask)
        elif step.opcode == "bar.red.or.pred":
            given = self._everywhere(step.operands[2], "pred").reshape(-1, self.threads).any(axis=1)
            self._set(step.operands[0], np.repeat(given, self.threads), mask)
        else:
            super()._carry_out(step, mask)

    def _count(self, operands: tuple[str, ...], mask: Array) -> None:
        to, address, limit = operands
        words, limits = (
            np.broadcast_to(self._address(address), self.count) // 4,
            self._everywhere(limit, "u32"),
        )
        before = np.zeros(self.count, np.uint32)
        for thread in np.flatnonzero(mask):
            before[thread] = self.memory.words[words[thread]]
            self.memory.words[words[thread]] = 0 if before[thread] >= limits[thread] else before[thread] + 1
        self._set(to, before, mask)


class SumMachine(GridMachine):
    """Threads of one launch."""

    def __init__(self, *launch: Any, arrivals: int = 0) -> None:
        super().__init__(*launch, arrivals=arrivals)
        self.added: list[tuple[int, int, int]] = []  # word, thread, and between which of its barriers

    def _carry_out(self, step: Instruction, mask: Array) -> None:
        if step.opcode in ("atom.global.add.f32", "atom.global.exch.b32"):
            self._exchange(step, mask)
        elif step.opcode == "shfl.sync.down.b32":
            shuffle_down(self, step.operands, mask)
        elif step.opcode in ("div.u64", "not.b64"):
            given = [self._everywhere(one, "u64") for one in step.operands[1:]]
            found = np.invert(given[0]) if len(given) == 1 else given[0] // np.maximum(given[1], 1)
            self._set(step.operands[0], found, mask)
        else:
            super()._carry_out(step, mask)

    def _exchange(self, step: Instruction, mask: Array) -> None:
        """One thread after the other: adds, or takes what is there and leaves another number."""
        to, place, by = step.operands
        adds = ".add." in step.opcode
        given = np.ascontiguousarray(self._everywhere(by, "f32" if adds else "u32")).view(np.uint32)
        words, before = (
            np.broadcast_to(self._address(place), self.count) // 4,
            np.zeros(self.count, np.uint32),
        )
        for thread in self.random.permutation(np.flatnonzero(mask)):
            one, word = np.arange(self.count) == thread, words[thread : thread + 1]
            if not adds:
                self._refuse_unseen(word, one)
            self.author[word] = -1
            (held,) = super()._global(word, None, one)  # type: ignore[misc]
            before[thread], new = held, given[thread]
            if adds:
                new = (held.view(np.float32) + new.view(np.float32)).view(np.uint32)
                self.added.append((int(word[0]), int(thread), int(self.barriers[self.block[thread]])))
            super()._global(word, np.asarray([new]), one)
        self._set(to, before, mask)

    def _refuse_unseen(self, word: Array, reader: Array) -> None:
        """A fault where an addition was not handed over to the thread that takes the sum."""
        for at, thread, when in self.added:
            if at == word[0]:
                self.author[word], self.authored[word] = thread, when
                super()._global(word, None, reader)

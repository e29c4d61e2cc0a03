"""Runs the PTX of a kernel whose blocks add to one number in global memory: GridMachine with atomics on fp32.

Atomic additions come in any order, which is drawn (`arrivals`). Who takes the sum must have been handed all of them, as
what is stored must be. Semantics: PTX ISA 9.0, 9.7.13.8 (atom) and 9.7.9.6 (shfl.sync).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from emulator.grid_ptx import GridMachine
from emulator.ptx import Array, Fault, Instruction


class SumMachine(GridMachine):
    """Threads of one launch."""

    def __init__(self, *launch: Any, arrivals: int = 0) -> None:
        super().__init__(*launch, arrivals=arrivals)
        self.added: list[tuple[int, int, int]] = []  # word, thread, and between which of its barriers

    def _carry_out(self, step: Instruction, mask: Array) -> None:
        if step.opcode in ("atom.global.add.f32", "atom.global.exch.b32"):
            self._exchange(step, mask)
        elif step.opcode == "shfl.sync.down.b32":
            self._shuffle_down(step.operands, mask)
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

    def _shuffle_down(self, operands: tuple[str, ...], mask: Array) -> None:
        to, value, by, _, members = operands
        warps = mask.reshape(-1, 32)
        if (self._everywhere(members, "u32")[mask] != 0xFFFFFFFF).any():
            raise Fault("a shuffle that does not name all lanes")
        if (warps.any(axis=1) != warps.all(axis=1)).any():
            raise Fault("a shuffle that not all lanes of a warp reach")
        lane, down = np.arange(self.count), self._everywhere(by, "u32").astype(np.int64)
        source = np.where(lane % 32 + down < 32, lane + down, lane)
        self._set(to.partition("|")[0], self._everywhere(value, "b32")[source], mask)

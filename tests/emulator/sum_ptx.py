"""Runs the PTX of a kernel whose blocks add to one number in global memory: GridMachine with atomics on fp32.

Atomic additions come in any order, which is drawn (`arrivals`). Who takes the sum must have been handed all of them, as
what is stored must be. Semantics: PTX ISA 9.0, 9.7.13.8 (atom).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from emulator.grid_ptx import GridMachine
from emulator.hopper_ptx import HopperMachine
from emulator.ptx import Act, Array, Instruction


class BulkSumMachine(HopperMachine):
    """Threads of one launch of blocks along x that get their numbers by bulk copies.

    What is handed over between blocks is not looked at: SumMachine does that, for the same header.
    """

    def __init__(self, *launch: Any, loads: str) -> None:
        program, memory, threads, grid, arguments = launch
        super().__init__(program, memory, threads, grid[:2], 1, arguments, {}, loads)

    def _decode(self, step: Instruction) -> Act:
        if step.opcode == "bar.red.or.pred":
            return partial(self._any, step.operands)
        return super()._decode(step)

    def _any(self, operands: tuple[str, ...], mask: Array) -> None:
        given = self._value(operands[2], "pred").reshape(-1, self.threads).any(axis=1)
        self._set(operands[0], np.repeat(given, self.threads), mask)


class SumMachine(GridMachine):
    """Threads of one launch."""

    def __init__(self, *launch: Any, arrivals: int = 0) -> None:
        super().__init__(*launch, arrivals=arrivals)
        self.added: list[
            tuple[int, int, int]
        ] = []  # word, thread, and between which of its barriers

    def _decode(self, step: Instruction) -> Act:
        to, *others = step.operands or ("",)
        if step.opcode in ("atom.global.add.f32", "atom.global.exch.b32"):
            return partial(self._exchange, step)
        if step.opcode == "div.u64":
            return self._sets(
                to,
                lambda left, right: left // np.maximum(right, 1),
                others,
                ["u64"] * 2,
            )
        return super()._decode(step)

    def _exchange(self, step: Instruction, mask: Array) -> None:
        """One thread after the other: adds, or takes what is there and leaves another number."""
        to, place, by = step.operands
        adds = ".add." in step.opcode
        given = np.ascontiguousarray(self._value(by, "f32" if adds else "u32")).view(
            np.uint32
        )
        words, before = self._address(place) // 4, np.zeros(self.count, np.uint32)
        for thread in self.random.permutation(np.flatnonzero(mask)):
            one, word = np.asarray([thread]), words[thread : thread + 1]
            if not adds:
                self._refuse_unseen(word, one)
            self.author[word] = -1
            (held,) = super()._global(word, None, one)  # type: ignore[misc]
            before[thread], new = held, given[thread]
            if adds:
                new = (held.view(np.float32) + new.view(np.float32)).view(np.uint32)
                self.added.append(
                    (int(word[0]), int(thread), int(self.barriers[self.block[thread]]))
                )
            super()._global(word, np.asarray([new]), one)
        self._set(to, before, mask)

    def _refuse_unseen(self, word: Array, reader: Array) -> None:
        """A fault where an addition was not handed over to the thread that takes the sum."""
        for at, thread, when in self.added:
            if at == word[0]:
                self.author[word], self.authored[word] = thread, when
                super()._global(word, None, reader)

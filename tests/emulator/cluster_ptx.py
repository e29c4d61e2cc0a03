"""Runs the PTX of a kernel whose blocks form clusters on the CPU: TensorMachine with each other's shared memory.

Blocks of a launch are numbered x first, then z, and a cluster is the blocks of one x. An address that `mapa` makes
names the block in its upper bits, as no hardware need do. What another block wrote needs a barrier of the cluster
before it is read, and one must follow the last reading: the owner could overwrite it, or be gone.
`accesses` holds opcode, lowest address and wavefronts (by the bank model) of the first warp's fp32 accesses.
Semantics: PTX ISA 9.0, 9.7.13.5 (barrier.cluster) and 9.7.9.23 (mapa).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from functools import partial

import numpy as np

from emulator.ptx import Act, Array, Fault, Instruction, Memory, Program
from emulator.tensor_ptx import TensorMachine, wavefronts_of

_NOTED = ("ld.shared.f32", "ld.shared.v4.f32", "st.shared.f32", "st.shared.v4.f32")
_RANK_SHIFT = 24
"""Shared memory of a block is smaller than 2^24 bytes, so that a rank fits above an address."""


class ClusterMachine(TensorMachine):
    """Threads of one launch of `tiles` x 1 x `slices` blocks, whose clusters are the slices of a tile."""

    def __init__(
        self,
        program: Program,
        memory: Memory,
        threads: int,
        tiles: int,
        slices: int,
        arguments: Sequence[int],
        landing: str = "wait",
    ) -> None:
        super().__init__(
            program, memory, threads, [tiles * slices], [arguments], landing=landing
        )
        self.tiles = tiles
        self.accesses: list[tuple[str, int, int]] = []
        rank = (self.block // tiles).astype(np.uint32)
        self.registers |= {
            "%ctaid.x": (self.block % tiles).astype(np.uint32),
            "%ctaid.z": rank,
            "%nctaid.x": np.full(self.count, tiles, np.uint32),
            "%nctaid.z": np.full(self.count, slices, np.uint32),
            "%cluster_ctarank": rank,
        }
        self.cluster_barriers = np.zeros(tiles, np.int64)
        self.written_in_cluster = np.full(self.shared.shape, -1, np.int32)
        # The cluster barrier behind which another block read a word last.
        self.read_from_afar = np.full(self.shared.shape, -1, np.int32)

    def _run(self) -> None:
        super()._run()
        if (
            self.read_from_afar.max(axis=1)
            >= self.cluster_barriers[np.arange(len(self.shared)) % self.tiles]
        ).any():
            raise Fault(
                "a block may leave while another one still reads its shared memory"
            )

    def _decode(self, step: Instruction) -> Act:
        if step.opcode == "mapa.shared::cluster.u32":
            to, *others = step.operands
            return self._sets(
                to,
                lambda address, rank: address | rank << _RANK_SHIFT,
                others,
                ["u32"] * 2,
            )
        if step.opcode == "ld.shared::cluster.v4.f32":
            return partial(self._load_from_block, step.operands)
        if step.opcode == "barrier.cluster.arrive.release":
            return lambda mask: None  # in these kernels the wait follows at once
        if step.opcode == "barrier.cluster.wait.acquire":
            return self._cluster_barrier
        if ".volatile" in step.opcode:
            return self._decode(
                dataclasses.replace(step, opcode=step.opcode.replace(".volatile", ""))
            )
        if step.opcode in _NOTED:
            return self._noted_access(step)
        return super()._decode(step)

    def _noted_access(self, step: Instruction) -> Act:
        """Wavefronts of the first warp's access, with the lowest address it wants."""
        move, loads, width = (
            super()._decode(step),
            step.opcode.startswith("ld"),
            16 if ".v4" in step.opcode else 4,
        )

        def noted(mask: Array) -> None:
            if mask[:32].all():
                offsets = self._address(step.operands[int(loads)])[:32].tolist()
                self.accesses.append(
                    (step.opcode, min(offsets), wavefronts_of(offsets, width, loads))
                )
            move(mask)

        return noted

    def _write_shared(
        self, block: Array, word: Array, value: Array, thread: Array
    ) -> None:
        at, barriers = (
            block * self.shared.shape[1] + word,
            self.cluster_barriers[block % self.tiles],
        )
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
        at, rank = address % 2**_RANK_SHIFT, address >> _RANK_SHIFT
        owner = rank * self.tiles + self.block[mask] % self.tiles
        if (
            (at % 16).any()
            or (at + 16 > self.program.shared_bytes).any()
            or (owner >= len(self.shared)).any()
        ):
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
        if (here.any(axis=(0, 2)) != here.all(axis=(0, 2))).any():
            raise Fault("a cluster barrier that not all threads of a cluster reach")
        self._barrier(mask)
        self.cluster_barriers[here.all(axis=(0, 2))] += 1

"""Runs the PTX of a kernel with notes of what the bank model says of the first warp's accesses to shared memory."""

from __future__ import annotations

from ladder.build.banks import matrix_wavefronts

from emulator.grid_ptx import GridMachine
from emulator.hopper_ptx import HopperMachine
from emulator.ptx import Act, Array, Instruction
from emulator.tensor_ptx import TensorMachine, wavefronts_of


class Noting(TensorMachine):
    """Notes wavefronts by load and store."""

    def _decode(self, step: Instruction) -> Act:
        act, (name, *modifiers) = super()._decode(step), step.opcode.split(".")
        if name not in ("ldmatrix", "stmatrix") and not (
            name in ("ld", "st") and "shared" in modifiers
        ):
            return act
        place = step.operands[0 if name.startswith("st") else 1]

        def noted(mask: Array) -> None:
            if mask[:32].all():
                offsets = self._address(place)[:32].tolist()
                count = matrix_wavefronts(offsets) if "matrix" in name else 0
                if not count:
                    many = int(modifiers[-2][1:]) if modifiers[-2][0] == "v" else 1
                    count = wavefronts_of(
                        offsets, int(modifiers[-1][1:]) // 8 * many, merges=name == "ld"
                    )
                self.wavefronts[f"{name[:2]} of the first warp"].append(count)
            act(mask)

        return noted


class PlainMachine(Noting, GridMachine):
    """Threads of one launch, with races and banks."""


class TmaMachine(Noting, HopperMachine):
    """The same with TMA, without races."""

"""A bank microbenchmark on a device: the sums it must read, its cycles, and what the bank model expects of it."""

import struct

from ladder.gpu import instance
from ladder.gpu.instance import Check, Observation
from ladder.model.problem import Params
from ladder.problems.banks import MAX_THREADS, PATTERNS
from ladder.problems.banks.sums import expected_sums, predicted_wavefronts

_POISON = 0xFFFFFFFF
_LANES = 32


class BanksInstance(instance.Instance):
    """Buffers offsets[32][32] (int32), sums[1024] (uint32) and cycles[1] (int64); there are no inputs."""

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        shapes = {"offsets": (PATTERNS, _LANES), "sums": (MAX_THREADS,), "cycles": (2,)}
        return {name: (shape, "int32") for name, shape in shapes.items()}

    def fill_inputs(self, seed: int) -> None:
        """Nothing is read from device memory."""

    def poison_outputs(self) -> None:
        for name in self.tensors:
            self.poison(name, _POISON)

    def _read(self, name: str, form: str) -> tuple[int, ...]:
        """The first numbers of a buffer, as `struct` unpacks `form`."""
        return struct.unpack(form, self.gpu.download(self.pointers[name], struct.calcsize(form)))

    def _offsets(self) -> list[tuple[int, ...]]:
        words = self._read("offsets", f"<{PATTERNS * _LANES}i")
        return [words[start : start + _LANES] for start in range(0, len(words), _LANES)]

    def check(self, params: Params) -> Check:
        """The error is the share of threads whose sum is not that of the words at their offsets; 0 is demanded."""
        threads, offsets = int(params["warps"]) * _LANES, self._offsets()
        if min(min(row) for row in offsets) < 0:
            return Check(1.0, 0.0, "offsets were not written")
        if self._read("cycles", "<q")[0] <= 0:
            return Check(1.0, 0.0, "cycles were not written")
        expected = expected_sums(offsets, self.size["elements"], params)
        sums = self._read("sums", f"<{threads}I")
        wrong = sum(value != expected[thread % _LANES] for thread, value in enumerate(sums))
        return Check(wrong / threads, 0.0, f"{wrong} of {threads} threads read other words" if wrong else "")

    def observations(self, params: Params) -> list[Observation]:
        accesses = int(params["warps"]) * self.size["elements"]
        predicted = [predicted_wavefronts(row, params) for row in self._offsets()]
        return [
            Observation("accesses", "accesses", accesses),
            Observation("cycles_per_access", "cycles", self._read("cycles", "<q")[0] / accesses),
            Observation("predicted_wavefronts", "wavefronts", sum(predicted) / len(predicted)),
        ]


class Instances(instance.Instances):
    kind = BanksInstance

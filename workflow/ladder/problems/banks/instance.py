"""A bank microbenchmark on a device: the sums it must read, its cycles, and what the bank model expects of it."""

import struct
from collections.abc import Sequence

from cuda.core import Buffer

from ladder.build.banks import (
    LANES,
    MATRIX_ROWS,
    ROW_BYTES,
    least_cycles,
    matrix_wavefronts,
    wavefronts,
)
from ladder.gpu.device import CheckResultSlot, Gpu
from ladder.gpu.instance import Check, HarnessCall, Instance, Shapes
from ladder.model.problem import Params, Size
from ladder.problems.banks import MAX_THREADS, PATTERNS

_CHECKED = {"offsets": PATTERNS * LANES, "sums": MAX_THREADS}
"""Words of the outputs that every launch must repeat."""
HASH = 2654435761  # word w of shared memory holds w * HASH (mod 2**32)


def _width(params: Params) -> int:
    """Bytes of a lane's access; of ldmatrix those of a row."""
    return ROW_BYTES if "matrices" in params else int(params.get("width", 4))


def words_read(offsets: Sequence[int], lane: int, params: Params) -> list[int]:
    """Words `lane` receives in one access: `width` bytes (default 4) from its offset on, read or written and read back.

    With a parameter `matrices` the access is ldmatrix: lanes 8m to 8m + 7 give the rows of matrix m, and lane l gets
    word l % 4 of its row l / 4 (PTX ISA, ldmatrix).
    """
    if "matrices" not in params:
        first = offsets[lane] // 4
        return list(range(first, first + _width(params) // 4))
    row, word = divmod(lane, 4)
    begins = offsets[row : MATRIX_ROWS * int(params["matrices"]) : MATRIX_ROWS]
    return [begin // 4 + word for begin in begins]


def expected_sums(
    patterns: Sequence[Sequence[int]], accesses: int, params: Params
) -> list[int]:
    """Sum (mod 2**32) each lane reads in `accesses` accesses that cycle through the patterns' offsets."""
    repeats = accesses // len(patterns)
    sums = []
    for lane in range(LANES):
        words = sum(sum(words_read(offsets, lane, params)) for offsets in patterns)
        sums.append(repeats * HASH * words % 2**32)
    return sums


def predicted_wavefronts(offsets: Sequence[int], params: Params) -> int:
    """Wavefronts the bank model expects of one access of the kernel with these parameters."""
    if "matrices" in params:
        return matrix_wavefronts(offsets[: MATRIX_ROWS * int(params["matrices"])])
    # Only reads merge: an H200 stores 8 or 16 bytes a lane in 2 or 4 wavefronts, whatever the lanes share.
    merges = params.get("access") != "write"
    return wavefronts(offsets, _width(params), merges=merges)


class BanksInstance(Instance):
    """Buffers offsets[32][32] (int32), sums[1024] (uint32) and cycles[1] (int64); there are no inputs."""

    drawn = ()  # nothing is read from device memory
    outputs = ("offsets", "sums", "cycles")

    def __init__(self, gpu: Gpu, size: Size, dtype: str, layout: str) -> None:
        self._right: dict[str, list[Buffer]] = {}
        super().__init__(gpu, size, dtype, layout)

    def shapes(self) -> Shapes:
        return {
            "offsets": ((PATTERNS, LANES), "int32"),
            "sums": ((MAX_THREADS,), "int32"),
            "cycles": ((2,), "int32"),
        }

    def _read(self, name: str, form: str) -> tuple[int, ...]:
        """The first numbers of a buffer, as `struct` unpacks `form`."""
        size = struct.calcsize(form)
        return struct.unpack(form, self.gpu.download(self.pointer(name), size))

    def _offsets(self) -> list[tuple[int, ...]]:
        words = self._read("offsets", f"<{PATTERNS * LANES}i")
        return [words[start : start + LANES] for start in range(0, len(words), LANES)]

    def error_bound(self, params: Params) -> float:
        return 0.0

    def check(self, params: Params) -> Check:
        """The error is the share of threads whose sum is not that of the words at their offsets; 0 is demanded."""
        offsets, width = self._offsets(), _width(params)
        if min(min(row) for row in offsets) < 0:
            return Check(1.0, 0.0, "offsets were not written")
        if any(offset % width for row in offsets for offset in row):
            detail = f"offsets are no multiples of {width} bytes, as those of such accesses are"
            return Check(1.0, 0.0, detail)
        if self.reported_cycles() <= 0:
            return Check(1.0, 0.0, "cycles were not written")
        threads = int(params["warps"]) * LANES
        expected = expected_sums(offsets, self.size["elements"], params)
        sums = self._read("sums", f"<{threads}I")
        wrong = sum(
            read != expected[thread % LANES] for thread, read in enumerate(sums)
        )
        if wrong:
            detail = f"{wrong} of {threads} threads read other words"
            return Check(wrong / threads, 0.0, detail)
        # There are no inputs to draw: what is right once is right always.
        self._right[str(params)] = [
            self.gpu.upload(self.gpu.download(self.pointer(name), 4 * words))
            for name, words in _CHECKED.items()
        ]
        return Check(0.0, 0.0)

    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """Whether offsets and sums are those that `check` found right."""
        written = [self.pointer(name) for name in _CHECKED]
        right = [int(buffer.handle) for buffer in self._right[str(params)]]
        words = _CHECKED.values()
        arguments = (*written, *right, *words)
        return HarnessCall("compare_words", sum(words), arguments)

    def reported_cycles(self) -> int:
        return self._read("cycles", "<q")[0]

    def _accesses(self, params: Params) -> int:
        return int(params["warps"]) * self.size["elements"]

    def least_cycles(self, params: Params) -> float:
        """What the accesses to the offsets of the last launch take at least, since a bank has one word a cycle."""
        lanes = LANES
        if "matrices" in params:
            lanes = MATRIX_ROWS * int(params["matrices"])
        width = _width(params)
        cycles = [least_cycles(row[:lanes], width) for row in self._offsets()]
        return self._accesses(params) * sum(cycles) / len(cycles)

    def observations(self, params: Params) -> dict[tuple[str, str], float]:
        accesses = self._accesses(params)
        predicted = [predicted_wavefronts(row, params) for row in self._offsets()]
        return {
            ("accesses", "accesses"): accesses,
            ("cycles_per_access", "cycles"): self.reported_cycles() / accesses,
            ("predicted_wavefronts", "wavefronts"): sum(predicted) / len(predicted),
        }


INSTANCE = BanksInstance

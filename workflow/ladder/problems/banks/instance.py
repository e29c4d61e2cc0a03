"""A bank microbenchmark on a device: the sums it must read, its cycles, and what the bank model expects of it."""

import struct
from collections.abc import Mapping, Sequence

from cuda.core import Buffer

from ladder.build.banks import (
    LANES,
    MATRIX_ROWS,
    ROW_BYTES,
    least_cycles,
    matrix_wavefronts,
    wavefronts,
)
from ladder.gpu import instance
from ladder.gpu.device import CheckResultSlot, Gpu
from ladder.gpu.instance import Check
from ladder.model.problem import Params
from ladder.problems.banks import MAX_THREADS, PATTERNS

_REPEATED = ("offsets", "sums")
HASH = 2654435761  # word w of shared memory holds w * HASH (mod 2**32)


def words_read(offsets: Sequence[int], lane: int, params: Params) -> list[int]:
    """Words `lane` receives in one access: `width` bytes (default 4) from its offset on, read or written and read back.

    With a parameter `matrices` the access is ldmatrix: lanes 8m to 8m + 7 give the rows of matrix m, and lane l gets
    word l % 4 of its row l / 4 (PTX ISA, ldmatrix).
    """
    if "matrices" in params:
        rows = (
            offsets[MATRIX_ROWS * matrix + lane // 4]
            for matrix in range(int(params["matrices"]))
        )
        return [row // 4 + lane % 4 for row in rows]
    return [
        offsets[lane] // 4 + part for part in range(int(params.get("width", 4)) // 4)
    ]


def expected_sums(
    patterns: Sequence[Sequence[int]], accesses: int, params: Params
) -> list[int]:
    """Sum (mod 2**32) each lane reads in `accesses` accesses that cycle through the patterns' offsets."""
    read = (
        sum(word for row in patterns for word in words_read(row, lane, params))
        for lane in range(LANES)
    )
    return [accesses // len(patterns) * HASH * words % 2**32 for words in read]


def predicted_wavefronts(offsets: Sequence[int], params: Params) -> int:
    """Wavefronts the bank model expects of one access of the kernel with these parameters."""
    if "matrices" in params:
        return matrix_wavefronts(offsets[: MATRIX_ROWS * int(params["matrices"])])
    # Only reads merge: an H200 stores 8 or 16 bytes a lane in 2 or 4 wavefronts, whatever the lanes share.
    return wavefronts(
        offsets, int(params.get("width", 4)), merges=params.get("access") != "write"
    )


class BanksInstance(instance.Instance):
    """Buffers offsets[32][32] (int32), sums[1024] (uint32) and cycles[1] (int64); there are no inputs."""

    drawn = ()  # nothing is read from device memory
    outputs = ("offsets", "sums", "cycles")

    def __init__(
        self, gpu: Gpu, size: Mapping[str, int], dtype: str, layout: str
    ) -> None:
        self._right: dict[str, list[Buffer]] = {}
        super().__init__(gpu, size, dtype, layout)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        shapes = {"offsets": (PATTERNS, LANES), "sums": (MAX_THREADS,), "cycles": (2,)}
        return {name: (shape, "int32") for name, shape in shapes.items()}

    def _bytes(self, name: str) -> bytes:
        return self.gpu.download(self.pointer(name), self.tensors[name].buffer.size)

    def _read(self, name: str, form: str) -> tuple[int, ...]:
        """The first numbers of a buffer, as `struct` unpacks `form`."""
        return struct.unpack(
            form, self.gpu.download(self.pointer(name), struct.calcsize(form))
        )

    def _offsets(self) -> list[tuple[int, ...]]:
        words = self._read("offsets", f"<{PATTERNS * LANES}i")
        return [words[start : start + LANES] for start in range(0, len(words), LANES)]

    def error_bound(self, params: Params) -> float:
        return 0.0

    def check(self, params: Params) -> Check:
        """The error is the share of threads whose sum is not that of the words at their offsets; 0 is demanded."""
        threads, offsets = int(params["warps"]) * LANES, self._offsets()
        if min(min(row) for row in offsets) < 0:
            return Check(1.0, 0.0, "offsets were not written")
        width = ROW_BYTES if "matrices" in params else int(params.get("width", 4))
        if any(offset % width for row in offsets for offset in row):
            return Check(
                1.0,
                0.0,
                f"offsets are no multiples of {width} bytes, as those of such accesses are",
            )
        if self._read("cycles", "<q")[0] <= 0:
            return Check(1.0, 0.0, "cycles were not written")
        expected = expected_sums(offsets, self.size["elements"], params)
        sums = self._read("sums", f"<{threads}I")
        wrong = sum(
            value != expected[thread % LANES] for thread, value in enumerate(sums)
        )
        if not wrong:
            # There are no inputs to draw: what is right once is right always.
            self._right[str(params)] = [
                self.gpu.upload(self._bytes(name)) for name in _REPEATED
            ]
        return Check(
            wrong / threads,
            0.0,
            f"{wrong} of {threads} threads read other words" if wrong else "",
        )

    def _inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """Whether offsets and sums are those that `check` found right."""
        right = [int(buffer.handle) for buffer in self._right[str(params)]]
        found, sizes = (
            [self.pointer(name) for name in _REPEATED],
            (PATTERNS * LANES, MAX_THREADS),
        )
        self.gpu.harness.run("compare_words", sum(sizes), slot, *found, *right, *sizes)

    def reported_cycles(self) -> int:
        return int(self._read("cycles", "<q")[0])

    def least_cycles(self, params: Params) -> float:
        """What the accesses to the offsets of the last launch take at least, since a bank has one word a cycle."""
        lanes, width = LANES, int(params.get("width", 4))
        if "matrices" in params:
            lanes, width = MATRIX_ROWS * int(params["matrices"]), ROW_BYTES
        patterns = [least_cycles(row[:lanes], width) for row in self._offsets()]
        return (
            int(params["warps"]) * self.size["elements"] * sum(patterns) / len(patterns)
        )

    def observations(self, params: Params) -> dict[tuple[str, str], float]:
        accesses = int(params["warps"]) * self.size["elements"]
        predicted = [predicted_wavefronts(row, params) for row in self._offsets()]
        return {
            ("accesses", "accesses"): accesses,
            ("cycles_per_access", "cycles"): self.reported_cycles() / accesses,
            ("predicted_wavefronts", "wavefronts"): sum(predicted) / len(predicted),
        }


INSTANCE = BanksInstance

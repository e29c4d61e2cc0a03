"""Shared-memory access patterns: a block repeats one access and times it with the SM's clock.

A kernel of this problem fills shared memory with word w = w * 2654435761 (mod 2**32), makes `elements` accesses per
lane that cycle through 32 address patterns, and writes
  offsets[32][32]   byte offset that lane l uses in access pattern j (every warp alike),
  sums[threads]     sum (mod 2**32) of the words each thread read,
  cycles[1]         clock64 cycles from the first access of the block to its last.
A kernel that writes gives word w that value, over memory that held another; after the clock was stopped each lane
reads its words back once, and its sum counts them elements / 32 times, so that the sums are those of a reading kernel.
A kernel of ldmatrix (parameter `matrices`) reports the row address each lane gives.
The check recomputes the sums from the offsets; the bank model predicts wavefronts from the very same offsets.
"""

from ladder.model.problem import Params, Problem, Size, Work

PATTERNS = 32
MAX_THREADS = 1024


class Banks(Problem):
    """Repeated shared-memory accesses; `elements` is the number of accesses per lane."""

    name = "banks"
    check_version = 1
    place = 2
    size_fields = ("elements",)
    dtypes = ("int32",)
    buffers = ("offsets", "sums", "cycles")
    parameters = {"warps": "warps of the one block"}
    # An access of each pattern, or three.
    edge_sizes = [
        [(PATTERNS,)],
        [(3 * PATTERNS,)],
    ]

    def harness(self, dtype: str) -> tuple[str, ...]:
        return ("compare_words",)

    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """No arithmetic and no device memory to speak of: cycles are the measure."""
        return Work(0.0, 0.0)

    def device_bytes(self, size: Size, dtype: str) -> int:
        """The three small outputs."""
        return 4 * PATTERNS * 32 + 4 * MAX_THREADS + 8


PROBLEM = Banks()

"""Claims of `bank-conflicts`: which accesses to shared memory conflict."""

from collections.abc import Generator
from math import gcd
from typing import Any

from ladder.claims.counters import ENOUGH, LOADS, over_fewest, per_request
from ladder.claims.primitives import Part, Parts, decide_part
from ladder.results.run_data import Row, Rows, RunData

_CYCLES = (
    0.15  # share by which cycles may exceed wavefronts: an access has a cost of its own
)


def _three_views(
    data: RunData, rows: Rows, by_stride: bool = False, access: str = "ld"
) -> Generator[Part, Any, Part]:
    """Bank model, profiler and clock, each over the stated degree of conflict; the clock's part comes back."""

    def degree(row: Row) -> int:
        return gcd(row["stride"], 32) if by_stride else 1

    over = "gcd(stride, 32)" if by_stride else "one"
    model = data.numbers(
        rows, lambda row: row.metric("predicted_wavefronts") / degree(row), "x"
    )
    yield decide_part(f"wavefronts of the bank model over {over}", model, near=1)
    counted = data.numbers(
        rows, lambda row: per_request(row, access) / degree(row), "x"
    )
    yield decide_part(
        f"wavefronts by the profiler over {over}", counted, near=1, margin=ENOUGH - 1
    )
    timed = data.numbers(
        rows, lambda row: row.metric("cycles_per_access") / degree(row), "x"
    )
    clock: Part = yield decide_part(
        f"cycles by the clock over {over}", timed, near=1, margin=_CYCLES
    )
    return clock


def stride_gcd(data: RunData) -> Parts:
    """Stride 2 is a two-way bank conflict and stride 3 none; in general the degree is gcd(stride, 32).

    Source: bank-conflicts (strides).
    """
    clock = yield from _three_views(
        data, data.timed("bank_stride", "bank_stride"), by_stride=True
    )
    return f"Use odd strides: a stride s costs {clock.span} gcd(s, 32) cycles."


def broadcast_free(data: RunData) -> Parts:
    """Lanes that read the same word do not conflict.

    Source: bank-conflicts (broadcast).
    """
    shared = data.timed(
        "bank_broadcast",
        "bank_broadcast",
        pattern=lambda pattern: pattern != "two_words",
    )
    clock = yield from _three_views(data, shared)
    return f"Let lanes read the same word: it takes {clock.span} the cycles of an access without conflicts."


def same_word_write(data: RunData) -> Parts:
    """Lanes that write the same word do not serialise.

    Source: bank-conflicts (writes).
    """
    clock = yield from _three_views(
        data,
        data.timed("bank_write", "bank_access", access="write", stride=0),
        access="st",
    )
    return f"Do not guard writes to one word for speed: they take {clock.span} the cycles of one access."


def tiled_gemm_conflict_free(data: RunData) -> Parts:
    """The 32x32 tiled kernel has no load conflicts: reads of A broadcast, reads of B are consecutive.

    Source: bank-conflicts (why it has no bank conflicts).
    """
    # The raw conflict counter is not used, because it counts arbitration as well.
    rows = data.timed("fp32_ladder", "gemm_shared_tile", tile=32, n=1024)
    loads = yield decide_part(LOADS, data.numbers(rows, over_fewest, "x"), most=ENOUGH)
    return f"Look elsewhere for the time of such a tile: its loads take {loads.span} the fewest wavefronts."

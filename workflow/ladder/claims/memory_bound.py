"""Claims of what was written about kernels that the memory bounds: sums, transpositions and softmax."""

from collections.abc import Generator
from dataclasses import replace

from ladder.claims.counters import per_request
from ladder.claims.primitives import (
    SLIGHT,
    Part,
    Parts,
    decide_part,
    is_faster,
    rung_over,
)
from ladder.results.run_data import RunData, Values

_MANY = 2**22
"""Numbers of the sum in Harris's slides: int32 there, fp32 here."""
_SLIGHT = 2 * SLIGHT
"""Sums are timed to 1 % each."""
_FEW = 0.05
"""So few of the conflicts of a tile without padding count as none."""
_AS_FAST = 0.05
"""A kernel is as fast as a copy if it lies within this share of it."""


def _speeds(data: RunData, rung: str, below: str) -> Values:
    return rung_over(data, "reduction", rung, below, "elements", elements=_MANY)


def _faster(
    data: RunData, what: str, rung: str, below: str, times: float
) -> Generator[Part, Part, Part]:
    """That a rung is faster than another one, and by so many times; the first of the two parts."""
    values = _speeds(data, rung, below)
    faster = yield decide_part(f"speed of {what}", values, least=1, margin=_SLIGHT)
    yield decide_part(f"speed of {what}", values, least=times)
    return faster


def sequential_addressing(data: RunData) -> Parts:
    """In the tree of a sum sequential addressing is faster than interleaved addressing, 2.01 times at 2^22 numbers
    (the source on a G80).

    Source: harris-reduction (kernel 3 over kernel 2).
    """
    what = "sequential over interleaved addressing"
    faster = yield from _faster(
        data, what, "3 sequential addressing", "2 shared-memory tree", 2.01
    )
    return f"Add the upper half to the lower half ({faster.span}); better, let warps add up in registers."


def many_numbers_a_thread(data: RunData) -> Parts:
    """A sum whose threads add up many numbers before they meet each other is faster, 1.42 times at 2^22 numbers
    (the source on a G80).

    Source: harris-reduction (kernel 7 over kernel 6).
    """
    what = "many numbers a thread over a round of the block each"
    faster = yield from _faster(
        data, what, "5 many numbers a thread", "4 warp shuffles", 1.42
    )
    return f"Let each thread add up all of its numbers first: {faster.span} the speed."


def sums_in_all(data: RunData) -> Parts:
    """From a tree with interleaved addressing on, all steps together make a sum of 2^22 numbers 12.9 times as fast
    (the source on a G80).

    Source: harris-reduction (kernel 7 over kernel 2).
    """
    values = _speeds(data, "8 bulk copies", "2 shared-memory tree")
    whole = yield decide_part(
        "speed of the last rung over the shared-memory tree", values, least=12.9
    )
    return f"Expect {whole.span} from a tree to the last rung at 2^22 numbers, and more at more."


def padding_frees_transposition(data: RunData) -> Parts:
    """A column of padding frees a transposition from bank conflicts, and makes it as fast as a copy.

    Source: harris-transpose (shared memory bank conflicts).
    """
    padded, plain = (
        data.timed("transpose_fp32", rung=rung) for rung in ("3 padded tile", "2 tile")
    )
    # What meets other traffic counts as a conflict too, also where all banks differ: 3 to 10 % of accesses.
    left = data.ratios(padded, plain, lambda row: per_request(row) - 1, "m")
    left = replace(left, unit="")
    yield decide_part(
        "conflicts of shared loads, of those without padding", left, most=_FEW
    )
    faster = yield is_faster(
        "speed of padded over plain tiles", data.speeds_over(padded, plain, "m"), "m"
    )
    copied = yield decide_part(
        "speed over a copy", data.speeds(padded), least=1, margin=_AS_FAST, per="m"
    )
    return f"Pad the tile ({faster.span}); it has {copied.span} the speed of a copy, and wider accesses bring more."


def online_normalizer(data: RunData) -> Parts:
    """A softmax that finds maximum and sum in one pass over a row is faster than one with a pass for each, by up to 1.3
    times: it takes three memory accesses an element in the place of four.

    Source: milakov-softmax (abstract; online normalizer over safe softmax).
    """
    gains = rung_over(data, "softmax_fp32", "2 online", "1 three passes")
    label = "speed of two reads of a row over three"
    faster = yield is_faster(label, gains, "n")
    yield decide_part(f"{label}, at some length", gains, least=1.3, some=True)
    return f"Find maximum and sum in one pass: {faster.span} the speed. Where a row fits, read it once."

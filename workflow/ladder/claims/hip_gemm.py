"""Claims of `hip-gemm`: a ladder of FP32 GEMMs on an MI100."""

from typing import Any

from ladder.claims.primitives import (
    SLIGHT,
    Part,
    Parts,
    decide_part,
    is_faster,
    lanes,
    note,
)
from ladder.results.run_data import Rows, RunData

_STEPS = {
    # step of the source: what it changes, its sweep and rung, the one below, and whether it was faster in the source
    "2": (
        "32 x 32 tiles in shared memory",
        "fp32_ladder: 3 shared tile",
        "fp32_ladder: 2 coalesced loads",
        True,
    ),
    "3": (
        "several outputs per thread",
        "fp32_ladder: 4 register tile",
        "fp32_ladder: 3 shared tile",
        True,
    ),
    "3.1": (
        "one step of K at a time",
        "fp32_rungs: 4 register tile",
        "fp32_ladder: 4 register tile",
        False,
    ),
    "3.2": (
        "one element of A at a time",
        "fp32_ladder: 5b element of A",
        "fp32_ladder: 5 outer product",
        True,
    ),
    "3.3": (
        "a transposed A and vector loads",
        "fp32_rungs: 4b transposed",
        "fp32_rungs: 4 register tile",
        True,
    ),
    "3.4": (
        "split loaders",
        "fp32_ladder: 7b split loaders",
        "fp32_ladder: 7 transposed A",
        False,
    ),
    "4": ("padding", "fp32_ladder: 8 padding", "fp32_ladder: 7 transposed A", True),
    "5": (
        "shared memory into registers ahead of the multiplications",
        "fp32_as_written: HIP 5",
        "fp32_as_written: HIP 4",
        True,
    ),
    "6": (
        "two shared tiles, in C",
        "fp32_rungs: 6c two blocks",
        "fp32_rungs: 6 register staging",
        False,
    ),
    "7": (
        "two steps of K at a time",
        "fp32_as_written: HIP 7",
        "fp32_as_written: HIP 5",
        True,
    ),
    "7.1": (
        "two-dimensional arrays",
        "fp32_ladder: 8b declared array",
        "fp32_ladder: 8 padding",
        False,
    ),
    "7.2": (
        "a function that reads shared memory",
        "fp32_as_written: HIP 7.2",
        "fp32_as_written: HIP 7",
        False,
    ),
    "7.3": (
        "stores between FFMAs",
        "fp32_buffering: double-buffered tiles and fragments, stores between",
        "fp32_buffering: double-buffered tiles and fragments, one block",
        True,
    ),
    "7.5": (
        "two fragments, in C",
        "fp32_ladder: 13 double-buffered fragments",
        "fp32_ladder: 12 double-buffered tiles",
        False,
    ),
    "7.7": (
        "a warp's outputs side by side",
        "fp32_as_written: HIP 7.7",
        "fp32_as_written: HIP 7",
        False,
    ),
    "9": (
        "outputs in four squares of 2 x 2",
        "fp32_as_written: HIP 9",
        "fp32_as_written: HIP 7",
        False,
    ),
}
"""7.4, two shared tiles in assembler, and 7.6, two fragments in assembler, have no counterpart in CUDA C++."""


def _step(data: RunData, step: str, **condition: Any) -> Part:
    """Speed of a step over the one below it at 4096."""
    what, over, below, _ = _STEPS[step]
    rows, others = (
        data.timed(sweep, rung=rung, n=4096)
        for sweep, rung in (place.split(": ") for place in (over, below))
    )
    label = f"speed with {what} (step {step})"
    return decide_part(label, data.speeds_over(rows, others, "n"), **condition)


def ladder_order(data: RunData) -> Parts:
    """Each step of the HIP ladder moves the time at 4096 in the direction that the source saw on an MI100.

    Source: hip-gemm (#1 to #9).
    """
    steps = {}
    for step, (*_, faster) in _STEPS.items():
        bound = {"least" if faster else "most": 1}
        steps[step] = yield _step(data, step, margin=SLIGHT, **bound)
    paid = [
        f"{step} ({part.span})"
        for step, part in steps.items()
        if part.values.least > 1 + SLIGHT
    ]
    return f"Climb the steps that pay here: {', '.join(paid)}."


def small_tile_beats_large(data: RunData) -> Parts:
    """64 x 64 x 16 tiles beat 128 x 128 x 8 (the source on an MI100).

    Source: hip-gemm (tiles).
    """

    def best(bm: int, bk: int) -> Rows:
        """The best thread tile and padding at each size."""
        rows = data.timed("fp32_tiles", "gemm_staged", bm=bm, bn=bm, bk=bk)
        return Rows(
            rows.sweep,
            [value.row for value in data.speeds(rows).best("n").values],
            rows.why,
        )

    values = data.speeds_over(best(64, 16), best(128, 8), "n")
    speed = yield decide_part(
        "speed of the best small over the best large tile",
        values,
        least=1,
        margin=2 * SLIGHT,
        per="n",
    )
    return f"Choose the tile by the size: the small one has {speed.span} the speed ({speed.where})."


def warp_4x16_over_8x8(data: RunData) -> Parts:
    """The 4 x 16 lane map is faster than 8 x 8, and a zigzag (z-order) is far faster than threads row by row.

    Source: hip-gemm (lane maps).
    """
    # Lanes are four words apart, as in the source. There a thread has 4 x 4 outputs, here it has 8 x 8 in four pieces.
    rows_4x16, rows_8x8, rows_2x16, zigzag_8x4 = (
        lanes(data, name, "contiguous")
        for name in ("rows_4x16", "rows_8x8", "rows_2x16", "zigzag_8x4")
    )
    shapes = data.speeds_over(rows_4x16, rows_8x8, "n")
    shape = yield is_faster("speed of 4 x 16 threads over 8 x 8", shapes, "n")
    # Far faster means 20 %; the source saw 70 %.
    order = data.speeds_over(zigzag_8x4, rows_2x16, "n")
    zigzag = yield decide_part(
        "speed of the zigzag over 2 x 16 threads row by row, outputs in four pieces",
        order,
        least=1.2,
        per="n",
    )
    wide, square = (lanes(data, name, "adjacent") for name in ("rows_4x16", "rows_8x8"))
    beside = data.speeds_over(wide, square, "n")
    yield note("4 x 16 over 8 x 8, a thread's outputs side by side", beside)
    then = f"4 x 16 over 8 x 8 ({shape.span})"
    return f"Time {then} for your own tile, and no zigzag where lanes are four words apart ({zigzag.span})."


def padding_variant_neutral(data: RunData) -> Parts:
    """Changing the padding of the tuned kernel changes nothing.

    Source: hip-gemm (padding).
    """
    # Nothing means less than 1 %. Paddings that break the alignment are another claim.
    parts = []
    for pad in (4, 8):
        values = data.speeds(
            data.timed("fp32_padding", "gemm_staged", loader="async", pad=pad)
        )
        parts.append(
            decide_part(
                f"speed with {pad} words over none",
                values,
                near=1,
                margin=SLIGHT,
                per="n",
            )
        )
        yield parts[-1]
    four, eight = (part.span for part in parts)
    return f"Try paddings that keep the alignment: four words have {four} the speed of none, eight {eight}."


def split_loader_neutral(data: RunData) -> Parts:
    """Loading A with half of the threads and B with the other half costs about 2 %.

    Source: hip-gemm (split loaders).
    """
    # About 2 %: from 1 to 3 %.
    speed = yield _step(data, "3.4", near=0.98, margin=SLIGHT)
    pays = speed.values.least > 1 + SLIGHT  # as `ladder_order` counts it
    advice = (
        "Split the loaders"
        if pays
        else "Split the loaders or not, as the code reads better"
    )
    return f"{advice} of a kernel without overlap: {speed.span} the speed."

"""Claims of `hip-gemm`: a ladder of FP32 GEMMs on an MI100."""

from typing import Any

from ladder.claims.primitives import SLIGHT, Part, Parts, decide_part
from ladder.results.run_data import Rows, RunData

_STEPS = (
    # what, rung, the rung that it is compared with, and whether it was faster in the source
    ("32 x 32 tiles in shared memory over none", "3 shared tile", "2 coalesced loads", True),
    ("several outputs per thread over one", "4 register tile", "3 shared tile", True),
    ("outer products in registers over shared memory", "5 outer product", "4 register tile", False),
    ("one element of A at a time over its column", "5b element of A", "5 outer product", True),
    ("a transposed A and vector loads over one element", "7 transposed A", "5b element of A", True),
    ("split loaders over loaders of both operands", "7b split loaders", "7 transposed A", False),
    ("padding over none", "8 padding", "7 transposed A", True),
    ("register staging over loading in place", "11 register prefetch", "10 quadrants", True),
    ("two-dimensional arrays over linear ones", "8b declared array", "8 padding", False),
    ("two shared tiles over one", "12 double-buffered tiles", "11 register prefetch", True),
    ("two fragments over one", "13 double-buffered fragments", "12 double-buffered tiles", False),
    (
        "stores between FFMAs over stores after them",
        "13b interleaved stores",
        "13 double-buffered fragments",
        True,
    ),
)


def _step(data: RunData, label: str, rung: str, below: str, **condition: Any) -> Part:
    """Speed of one rung of the FP32 ladder over another at 4096."""
    rows, others = (data.timed("fp32_ladder", n=4096, rung=name) for name in (rung, below))
    return decide_part(f"speed of {label}", data.speeds_over(rows, others, "n"), **condition)


def ladder_order(data: RunData) -> Parts:
    """Each step of the HIP ladder moves the time at 4096 in the direction that the source saw on an MI100.

    Source: hip-gemm (#1 to #9).
    """
    steps = {}
    for label, rung, below, faster in _STEPS:
        steps[rung] = yield _step(
            data, label, rung, below, margin=SLIGHT, **{"least" if faster else "most": 1}
        )
    spans = {rung: step.span for rung, step in steps.items()}
    paid = [f"{rung} ({span})" for rung, span in spans.items() if steps[rung].values.least > 1 + SLIGHT]
    return f"Climb the steps that pay here: {', '.join(paid)}."


def small_tile_beats_large(data: RunData) -> Parts:
    """64 x 64 x 16 tiles beat 128 x 128 x 8 (the source on an MI100).

    Source: hip-gemm (tiles).
    """

    def best(bm: int, bk: int) -> Rows:
        """The best thread tile and padding at each size."""
        rows = data.timed("fp32_tiles", "gemm_staged", bm=bm, bn=bm, bk=bk)
        return Rows(rows.sweep, [value.row for value in data.speeds(rows).best("n").found], rows.why)

    values = data.speeds_over(best(64, 16), best(128, 8), "n")
    speed = yield decide_part(
        "speed of the best small over the best large tile", values, least=1, margin=2 * SLIGHT, per="n"
    )
    return f"Choose the tile by the size: the small one has {speed.span} the speed ({speed.where})."


def warp_4x16_over_8x8(data: RunData) -> Parts:
    """The 4 x 16 lane map is faster than 8 x 8, and a zigzag (z-order) is far faster than threads row by row.

    Source: hip-gemm (lane maps).
    """

    def lanes(lane_map: str) -> Rows:
        """With adjacent outputs, as in the source."""
        given = {"lane_map": lane_map, "split": "adjacent", "bm": 128, "tiles": "padded"}
        return data.timed("fp32_lane_maps", "gemm_staged", **given)

    shapes = data.speeds_over(lanes("rows_4x16"), lanes("rows_8x8"), "n")
    shape = yield decide_part("speed of 4 x 16 threads over 8 x 8", shapes, least=1, margin=SLIGHT, per="n")
    # Far faster means 20 %; the source saw 70 %.
    order = data.speeds_over(lanes("zigzag_8x4"), lanes("rows_2x16"), "n")
    zigzag = yield decide_part(
        "speed of the zigzag over 2 x 16 threads row by row", order, least=1.2, per="n"
    )
    first, then = f"a zigzag ({zigzag.span} the speed of rows of 2 x 16)", f"4 x 16 over 8 x 8 ({shape.span})"
    return f"With a thread's outputs adjacent time {first} first, then {then}."


def padding_variant_neutral(data: RunData) -> Parts:
    """Changing the padding of the tuned kernel changes nothing.

    Source: hip-gemm (padding).
    """
    # Nothing means less than 1 %. Paddings that break the alignment are another claim.
    parts = []
    for pad in (4, 8):
        values = data.speeds(data.timed("fp32_padding", "gemm_staged", loader="async", pad=pad))
        parts.append(decide_part(f"speed with {pad} words over none", values, near=1, margin=SLIGHT, per="n"))
        yield parts[-1]
    four, eight = (part.span for part in parts)
    return f"Try paddings that keep the alignment: four words have {four} the speed of none, eight {eight}."


def split_loader_neutral(data: RunData) -> Parts:
    """Loading A with half of the threads and B with the other half costs about 2 %.

    Source: hip-gemm (split loaders).
    """
    label, rung, below, _ = _STEPS[5]
    speed = yield _step(data, label, rung, below, near=0.98, margin=SLIGHT)  # about 2 %: from 1 to 3 %
    pays = speed.values.least > 1 + SLIGHT  # as `ladder_order` counts it
    advice = "Split the loaders" if pays else "Split the loaders or not, as the code reads better"
    return f"{advice} of a kernel without overlap: {speed.span} the speed at rung 7."

"""Claims of `double-buffering`: double buffering, lane maps and bank conflicts of an FP32 GEMM."""

from operator import itemgetter

from ladder.claims.counters import (
    ENOUGH,
    FEW,
    LOADS,
    conflicts,
    over_fewest,
    per_request,
    stalled,
)
from ladder.claims.primitives import (
    SLIGHT,
    WRITTEN,
    Parts,
    decide_part,
    is_faster,
    is_slower,
    lanes,
    note,
    rung_over,
)
from ladder.results.run_data import RunData

CONFLICTS = "conflicts a shared load"


def _waits_for_memory(data: RunData, *rungs: str) -> str:
    rows = data.timed(WRITTEN, rung=rungs, n=4096)
    waits = data.numbers(rows, stalled("long_scoreboard"))
    return note("cycles an instruction waits for global memory", waits)


def double_buffer_barriers(data: RunData) -> Parts:
    """The double-buffered kernel needs one barrier per K step of a tile where the plain one needs two.

    Source: double-buffering (double buffering).
    """
    one, two = (
        data.compiled("fp32_buffering", "gemm_staged", loader="staged", stages=count)
        for count in (1, 2)
    )
    yield decide_part(
        "BAR in the loop, one pair of tiles",
        data.numbers(one, itemgetter("bar")),
        near=2,
    )
    # With two pairs there is one barrier more before the loop, after the first pair is filled.
    double = data.numbers(two, lambda row: row["bar"] - 1)
    part = yield decide_part("BAR in the loop, two pairs of tiles", double, near=1)
    return f"Count on {part.span} barrier per tile with two pairs of tiles; it alone does not make the kernel faster."


def double_buffer_faster(data: RunData) -> Parts:
    """Double buffering, with its prefetch, is faster than kernel 6: load a tile, barrier, multiply, barrier.

    Source: double-buffering (double buffering).
    """
    # The text's listing leaves the registers to the compiler, which takes too many for two blocks a multiprocessor.
    listed = rung_over(data, WRITTEN, "double buffer, one block", "kernel 6")
    yield is_faster(
        "speed over kernel 6, as listed: one block a multiprocessor", listed, "n"
    )
    speeds = rung_over(data, WRITTEN, "double buffer", "kernel 6")
    speed = yield is_faster("speed over kernel 6, two blocks", speeds, "n")
    yield note(
        "over prefetch alone",
        rung_over(data, WRITTEN, "double buffer", "prefetch"),
    )
    alone = rung_over(data, WRITTEN, "double buffer, one block", "prefetch, one block")
    yield note("over prefetch alone, one block a multiprocessor", alone)
    yield _waits_for_memory(data, "kernel 6", "prefetch", "double buffer")
    if not alone.values:
        return f"Double buffer kernel 6: {speed.span} the speed."
    return f"Double buffer where one block fits ({alone.span} over prefetch alone); with two, prefetch is enough."


def store_after_load(data: RunData) -> Parts:
    """A tile that is stored to shared memory right behind its load is not overlapped with the multiplications.

    Source: double-buffering (double buffering, registers in between).
    """
    speeds = rung_over(data, WRITTEN, "prefetch", "kernel 6")
    speed = yield is_faster(
        "speed of storing behind the multiplications over at once", speeds, "n"
    )
    yield note(
        "with the compiler's choice of registers, one block a multiprocessor",
        rung_over(data, WRITTEN, "prefetch, one block", "kernel 6"),
    )
    yield _waits_for_memory(data, "kernel 6", "prefetch")
    return f"Store a tile behind the multiplications of the one before: {speed.span} the speed."


def linear_map_conflicts_b(data: RunData) -> Parts:
    """With a warp's threads as 2 x 16, row by row, reading fragments of B conflicts and reading A does not.

    Source: double-buffering (lane maps).
    """
    both, a = (
        lanes(data, "rows_2x16", "adjacent", n=1024, tiles=one)
        for one in ("padded", "interleaved")
    )
    part = yield decide_part(
        f"{CONFLICTS}, A and B", data.numbers(both, conflicts), least=FEW
    )
    # Interleaved B is read in single words without conflicts, and A as before.
    yield decide_part(
        f"{CONFLICTS}, B interleaved", data.numbers(a, conflicts), most=FEW
    )
    yield note(LOADS, data.numbers(both, over_fewest, "x"))
    advice = part.either("Do not number", "Number")
    return f"{advice} a warp's threads 2 x 16: a load has {part.span} conflicts."


def zigzag_map_conflict_free(data: RunData) -> Parts:
    """The zigzag lane map has no shared load conflicts.

    Source: double-buffering (lane maps), after maxas.
    """
    rows = lanes(data, "zigzag_8x4", "quadrants", n=1024)
    part = yield decide_part(CONFLICTS, data.numbers(rows, conflicts), most=FEW)
    yield note(LOADS, data.numbers(rows, over_fewest, "x"))
    return f"{part.either('Use', 'Check')} a zigzag in quadrants: a load has {part.span} conflicts."


def plain_map_also_conflict_free(data: RunData) -> Parts:
    """The mysterious conflict aside, a plain 4 x 8 lane map in quadrants is conflict-free too: no zigzag is needed.

    Source: double-buffering (lane maps).
    """
    rows = lanes(data, "rows_4x8", "quadrants", n=1024)
    yield decide_part(CONFLICTS, data.numbers(rows, conflicts), most=FEW)
    # Not needed: slower by no more than a slight difference.
    values = data.speeds(lanes(data, "rows_4x8", "quadrants"))
    speed = yield decide_part(
        "speed over the zigzag", values, least=1 - SLIGHT, per="n"
    )
    yield note(
        "wavefronts a load, the mysterious conflict", data.numbers(rows, per_request)
    )
    # Of adjacent outputs `warp_4x16_over_8x8` says the opposite.
    return f"With outputs in quadrants take a plain 4 x 8: {speed.span} the speed of the zigzag."


def transposed_store_conflicts(data: RunData) -> Parts:
    """Storing A transposed conflicts on the store side.

    Source: double-buffering (transposed A).
    """
    rows = data.numbers(
        data.timed("fp32_transpose", transpose_a=1, n=1024),
        lambda row: conflicts(row, "st"),
    )
    plain, padded = (rows.only(tiles="padded", pad=pad) for pad in (0, 4))
    stores = yield decide_part(
        "conflicts a shared store, without padding", plain, least=FEW
    )
    yield note("with four words of padding", padded)
    yield note("XOR-swizzled in groups of four", rows.only(tiles="xor_groups"))
    advice = stores.either("Pad or swizzle", "Leave")
    return f"{advice} the tile of a transposed A: as it is, a store has {stores.span} conflicts."


def compute_first_faster_large(data: RunData) -> Parts:
    """Computing before fetching the next tile is sometimes slightly faster for M = N = K >= 2048.

    Source: double-buffering (double buffering).
    """
    # Register staging that stores a tile behind the FFMAs.
    given = {"loader": "staged", "deposits": "behind", "min_blocks": 2}
    first, fetch = (
        data.timed("fp32_buffering", n=lambda n: n >= 2048, order=order, **given)
        for order in ("compute_first", "prefetch_first")
    )
    # Sometimes and slightly: one buffering at one size is enough, and any gain counts.
    values = data.speeds_over(first, fetch, "n", "stages", "buffers")
    speed = yield decide_part(
        "speed over the same kernel that fetches first",
        values,
        least=1,
        per="n",
        some=True,
    )
    return f"Try both orders last of all: computing first has {speed.span} the speed."


def b_swizzle_loses_vectors(data: RunData) -> Parts:
    """Interleaving B removes the conflicts but loses 128-bit loads, and is slower than a lane map of the warp.

    Source: double-buffering (interleaved B, its kernel 7).
    """
    rows = lanes(data, "rows_2x16", "adjacent", tiles="interleaved", n=1024)
    loads = data.numbers(rows, over_fewest, "x")
    yield decide_part(LOADS, loads, most=ENOUGH)
    own, plain = (
        data.compiled("fp32_lane_maps", tiles=tiles)
        for tiles in ("interleaved", "padded")
    )
    vectors = data.ratios(
        own,
        plain,
        itemgetter("lds_128"),
        "bm",
        "bn",
        "lane_map",
        "split",
        "loader",
    )
    yield decide_part("LDS.128 over those of the plain layout", vectors, most=0.99)
    values = data.speeds(lanes(data, "rows_2x16", "adjacent", tiles="interleaved"))
    speed = yield is_slower("speed over the zigzag in quadrants", values, "n")
    return f"{speed.either('Prefer', 'Compare')} other lane maps: interleaved B has {speed.span} the speed."


def quadrants_vs_contiguous(data: RunData) -> Parts:
    """A warp that owns a piece of each quarter of the tile is faster than one that owns a single piece (a guess).

    Source: double-buffering (lane maps, an open question).
    """
    values = rung_over(data, WRITTEN, "one piece, 128 threads", "four pieces")
    label = "speed of kernel 10's single piece over sgemm_v3's four pieces"
    speed = yield is_slower(label, values, "n")
    yield note(
        "of a single piece, 256 threads",
        rung_over(data, WRITTEN, "one piece, 256 threads", "four pieces"),
    )
    yield note(
        "with a zigzag of 4 x 8",
        data.speeds(lanes(data, "zigzag_4x8", "contiguous")),
    )
    tuned = rung_over(data, "fp32_ablation", "contiguous warps", "all")
    yield note("in the tuned kernel", tuned)
    return f"Let a warp own a piece of each quarter: a single piece has {speed.span} the speed."


def async_copy_helps(data: RunData) -> Parts:
    """cp.async, with no registers in between, is faster than register staging on compute capability 8.0 and later.

    Source: double-buffering (asynchronous copies).
    """
    kernel = {"kernel": "gemm_staged", "buffers": 2, "bk": 8}
    values = data.speeds(data.timed("fp32_async_stages", stages=2, **kernel))
    speed = yield is_faster("speed over register staging", values, "n")
    more = data.timed("fp32_async_stages", stages=(3, 4, 5), n=4096, **kernel)
    yield note("speed of more stages at 4096", data.speeds(more))
    return f"{speed.either('Use', 'Try')} cp.async: {speed.span} the speed of register staging."

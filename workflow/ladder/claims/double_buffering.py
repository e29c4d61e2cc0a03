"""Claims of `double-buffering`: double buffering, lane maps and bank conflicts of an FP32 GEMM."""

from typing import Any

from ladder.claims.counters import ENOUGH, LOADS, over_fewest, per_request, stalled, stores_over_fewest
from ladder.claims.primitives import EQUIVALENT, SLIGHT, Parts, decide_part, note
from ladder.results.run_data import Rows, RunData


def _lanes(data: RunData, lane_map: Any, split: Any, **wanted: Any) -> Rows:
    """Cells of lane maps, with tiles of 128 x 128 that are not interleaved."""
    given = {"lane_map": lane_map, "split": split, "bm": 128, "tiles": "padded", **wanted}
    return data.timed("fp32_lane_maps", "gemm_staged", **given)


def _buffering(data: RunData, **wanted: Any) -> Rows:
    """Cells of register staging that store a tile after the FFMAs."""
    return data.timed("fp32_buffering", "gemm_staged", loader="staged", deposits="behind", **wanted)


def double_buffer_barriers(data: RunData) -> Parts:
    """The double-buffered kernel needs one barrier per K step of a tile where the plain one needs two.

    Source: double-buffering (double buffering).
    """
    one, two = (
        data.compiled("fp32_buffering", "gemm_staged", loader="staged", stages=count) for count in (1, 2)
    )
    yield decide_part(
        "BAR in the loop, one pair of tiles", data.numbers(one, lambda row: row["bar"]), near=2, unit=""
    )
    # With two pairs there is one barrier more before the loop, after the first pair is filled.
    double = data.numbers(two, lambda row: row["bar"] - 1)
    part = yield decide_part("BAR in the loop, two pairs of tiles", double, near=1, unit="")
    return f"Count on {part.span} barrier per tile with two pairs of tiles; it alone does not make the kernel faster."


def double_buffer_faster(data: RunData) -> Parts:
    """Double buffering shared memory and registers is faster than the same kernel without.

    Source: double-buffering (double buffering).
    """
    fetch_first = {"order": "prefetch_first"}
    values = data.speeds(_buffering(data, stages=2, buffers=2, **fetch_first))
    label = "speed of two pairs of tiles and two fragments over one of each"
    speed = yield decide_part(label, values, least=1, margin=SLIGHT, per="n")
    for name, stages, buffers in (("two pairs of tiles alone", 2, 1), ("two fragments alone", 1, 2)):
        yield note(name, data.speeds(_buffering(data, stages=stages, buffers=buffers, **fetch_first)), "x")
    counted = _buffering(data, n=4096, **fetch_first)
    yield note("warps waiting at a barrier per instruction", data.numbers(counted, stalled("barrier")))
    return f"Time both at your size: double buffering has {speed.span} the speed ({speed.where})."


def linear_map_conflicts_b(data: RunData) -> Parts:
    """With a warp's threads as 2 x 16, row by row, reading fragments of B conflicts and reading A does not.

    Source: double-buffering (lane maps).
    """
    both, a = (_lanes(data, "rows_2x16", "adjacent", n=1024, tiles=one) for one in ("padded", "interleaved"))
    part = yield decide_part(f"{LOADS}, A and B", data.numbers(both, over_fewest), least=ENOUGH)
    # Interleaved B is read in single words without conflicts, and A as before.
    yield decide_part(f"{LOADS}, B interleaved", data.numbers(a, over_fewest), most=ENOUGH)
    advice = part.either("Do not number", "Number")
    return f"{advice} a warp's threads 2 x 16: loads take {part.span} the fewest wavefronts."


def zigzag_map_conflict_free(data: RunData) -> Parts:
    """The zigzag lane map has no shared load conflicts.

    Source: double-buffering (lane maps), after maxas.
    """
    rows = _lanes(data, "zigzag_8x4", "quadrants", n=1024)
    loads = yield decide_part(LOADS, data.numbers(rows, over_fewest), most=ENOUGH)
    splits = _lanes(data, "zigzag_4x8", ("adjacent", "contiguous", "quadrants"), n=1024)
    yield note("wavefronts per shared load of the 4 x 8 zigzag", data.numbers(splits, per_request))
    return f"{loads.either('Use', 'Check')} a zigzag in quadrants: loads take {loads.span} the fewest wavefronts."


def plain_map_also_conflict_free(data: RunData) -> Parts:
    """A plain 4 x 8 lane map in quadrants is conflict-free too, so that the zigzag is not needed.

    Source: double-buffering (lane maps).
    """
    rows = _lanes(data, "rows_4x8", "quadrants", n=1024)
    yield decide_part(LOADS, data.numbers(rows, over_fewest), most=ENOUGH)
    # Not needed: slower by no more than a slight difference.
    values = data.speeds(_lanes(data, "rows_4x8", "quadrants"))
    speed = yield decide_part("speed over the zigzag", values, least=1 - SLIGHT, per="n")
    maps = _lanes(data, ("rows_4x8", "zigzag_4x8"), "quadrants", n=1024)
    yield note("warps held up by the queue of shared memory", data.numbers(maps, stalled("mio_throttle")))
    # Of adjacent outputs `warp_4x16_over_8x8` says the opposite.
    of_both = f"with outputs in quadrants a plain 4 x 8 has {speed.span} the speed of the zigzag"
    return f"Time the lane map with the split that you use: {of_both}, conflicts or not."


def transposed_store_conflicts(data: RunData) -> Parts:
    """Storing A transposed conflicts on the store side.

    Source: double-buffering (transposed A).
    """
    rows = data.numbers(data.timed("fp32_transpose", transpose_a=1, n=1024), stores_over_fewest)
    plain, padded = (rows.only(tiles="padded", pad=pad) for pad in (0, 4))
    stores = yield decide_part(
        "wavefronts per shared store over the fewest, without padding", plain, least=ENOUGH
    )
    yield note("with four words of padding", padded, "x")
    yield note("XOR-swizzled in groups of four", rows.only(tiles="xor_groups"), "x")
    advice = stores.either("Pad or swizzle", "Leave")
    return f"{advice} the tile of a transposed A: as it is, stores take {stores.span} the fewest wavefronts."


def compute_first_faster_large(data: RunData) -> Parts:
    """Computing before fetching the next tile is sometimes slightly faster for M = N = K >= 2048.

    Source: double-buffering (double buffering).
    """
    first, fetch = (_buffering(data, order=order) for order in ("compute_first", "prefetch_first"))
    # Sometimes and slightly: one buffering at one size is enough, and any gain counts.
    values = data.speeds_over(first, fetch, "n", "stages", "buffers").only(n=lambda n: n >= 2048)
    speed = yield decide_part(
        "speed over the same kernel that fetches first", values, least=1, per="n", some=True
    )
    return f"Try both orders last of all: computing first has {speed.span} the speed."


def b_swizzle_loses_vectors(data: RunData) -> Parts:
    """Interleaving B removes the conflicts but loses 128-bit loads, and is slower than a lane map of the warp.

    Source: double-buffering (interleaved B, its kernel 7).
    """
    loads = data.numbers(_lanes(data, "rows_2x16", "adjacent", tiles="interleaved", n=1024), over_fewest)
    yield decide_part(LOADS, loads, most=ENOUGH)
    own, plain = (data.compiled("fp32_lane_maps", tiles=tiles) for tiles in ("interleaved", "padded"))
    vectors = data.ratios(own, plain, lambda row: row["lds_128"], "bm", "bn", "lane_map", "split", "loader")
    yield decide_part("LDS.128 over those of the plain layout", vectors, most=0.99)
    values = data.speeds(_lanes(data, "rows_2x16", "adjacent", tiles="interleaved"))
    speed = yield decide_part("speed over the zigzag in quadrants", values, most=1, margin=SLIGHT, per="n")
    return f"{speed.either('Prefer', 'Compare')} other lane maps: interleaved B has {speed.span} the speed."


def quadrants_vs_contiguous(data: RunData) -> Parts:
    """A warp that owns a piece of each quarter of the tile is faster than one that owns a single piece (a guess).

    Source: double-buffering (lane maps, an open question).
    """
    values = data.speeds(_lanes(data, "zigzag_4x8", "contiguous"))
    speed = yield decide_part(
        "speed of a single piece over quadrants", values, most=1, margin=SLIGHT, per="n"
    )
    contiguous, quadrants = (data.timed("fp32_ablation", rung=name) for name in ("contiguous warps", "all"))
    tuned = data.speeds_over(contiguous, quadrants, "n")
    yield note("the same in the tuned kernel", tuned, "x")
    alike = not tuned.found or (tuned.least >= 1 - SLIGHT and tuned.most <= 1 + SLIGHT)
    advice = "Split as is simpler" if speed.verdict == EQUIVALENT and alike else "Time both splits"
    in_tuned = f", in the tuned kernel {tuned.span()}" if tuned.found else ""
    return f"{advice}: a warp with a single piece has {speed.span} the speed{in_tuned}."


def async_copy_helps(data: RunData) -> Parts:
    """cp.async, with no registers in between, is faster than register staging on compute capability 8.0 and later.

    Source: double-buffering (asynchronous copies).
    """
    kernel = {"kernel": "gemm_staged", "buffers": 2, "bk": 8}
    values = data.speeds(data.timed("fp32_async_stages", stages=2, **kernel))
    speed = yield decide_part("speed over register staging", values, least=1, margin=SLIGHT, per="n")
    more = data.timed("fp32_async_stages", stages=(3, 4, 5), n=4096, **kernel)
    yield note("speed of more stages at 4096", data.speeds(more), "x")
    return f"{speed.either('Use', 'Try')} cp.async: {speed.span} the speed of register staging."

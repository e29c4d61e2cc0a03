"""Claims of `gemm-practice`: FP32 and TF32 GEMMs, shared memory, stages, and the threadblock swizzle."""

from ladder.claims.counters import ENOUGH, LOADS, metric, over_fewest, shared_bytes, wavefronts
from ladder.claims.primitives import SLIGHT, Parts, decide_part, note
from ladder.results.counters import DRAM_READ
from ladder.results.run_data import Row, Rows, RunData, Value, Values
from ladder.results.statistics import Estimate, estimate, ratio

_SHARED = 228 * 1024  # bytes of a multiprocessor of compute capability 9.0; the system takes 1 KiB per block
_STAGED = ("mma_staged", "wmma_staged")


def transpose_pays(data: RunData) -> Parts:
    """Storing A transposed slows the stores to shared memory but wins overall, since fragments load as LDS.128.

    Source: gemm-practice (transposed A).
    """
    own = data.timed("fp32_transpose", transpose_a=1, tiles="padded")
    speed = yield decide_part("speed over plain A", data.speeds(own), least=1, margin=SLIGHT, per="n")
    own, plain = (data.timed("fp32_transpose", transpose_a=yes, tiles="padded", n=1024) for yes in (1, 0))
    stores = data.ratios(own, plain, lambda row: wavefronts(row, "st"), "bk", "pad")
    # Padding is the remedy for slow stores: what it leaves of them stands beside.
    yield decide_part(
        "wavefronts of stores over those of plain A, no padding", stores.only(pad=0), least=ENOUGH
    )
    yield note("wavefronts of stores with four words of padding", stores.only(pad=4), "x")
    own, plain = (data.compiled("fp32_transpose", transpose_a=yes, tiles="padded") for yes in (1, 0))
    more = data.ratios(own, plain, lambda row: row["lds_128"], "bk", "pad")
    yield decide_part("LDS.128 over those of plain A", more, least=1.01)
    return f"{speed.either('Transpose A', 'Time both')}: {speed.span} {speed.either('at every size', speed.where)}."


def padding_needs_alignment(data: RunData) -> Parts:
    """Only paddings that keep rows aligned to 16 bytes keep vector access to shared memory.

    Source: gemm-practice (padding).
    """
    kernel = {"kernel": "gemm_staged", "loader": "direct"}
    narrow = data.numbers(data.compiled("fp32_padding", **kernel), lambda row: row["lds_32"] + row["lds_64"])
    aligned, others = (narrow.only(pad=pads) for pads in ((0, 4, 8), (1, 2, 3, 5, 6, 7)))
    yield decide_part("loads narrower than LDS.128 with 0, 4 or 8 words", aligned, near=0, unit="")
    yield decide_part("loads narrower than LDS.128 with other paddings", others, least=1, unit="")
    broken = data.speeds(data.timed("fp32_padding", pad=(1, 2, 3, 5, 6, 7), n=4096, **kernel))
    return f"Pad by multiples of four words: others have {broken.span()} the speed of none in tiles of 128 x 128."


def bcf_still_conflicts(data: RunData) -> Parts:
    """The kernel called conflict-free, threads row by row in quadrants, still needs extra wavefronts.

    Source: gemm-practice (bcf).
    """
    rows = data.timed("fp32_lane_maps", lane_map="rows_2x16", split="quadrants", bm=128, n=1024)
    loads = yield decide_part(LOADS, data.numbers(rows, over_fewest), least=ENOUGH)
    return f"Count wavefronts before you call a kernel conflict-free: this one takes {loads.span} the fewest."


def smem_formula(data: RunData) -> Parts:
    """The shared memory of a staged kernel is stages * BK * (BM + BN) * sizeof(element) bytes.

    Source: gemm-practice (stages).
    """

    def over_formula(row: Row) -> float:
        """Without the padding, which is one of rows along N, and in FP32 of rows along M too."""
        size = {"fp32": 4, "tf32": 4, "fp16": 2}[row["dtype"]]
        lengths = 2 * row["bk"] if row["dtype"] == "fp32" else row["bm"] + row["bk"]
        tile, padding = row["bk"] * (row["bm"] + row["bn"]), lengths * row.get("pad", 0)
        return float((shared_bytes(row) / size / row["stages"] - padding) / tile)

    for name, sweep, kernel in (
        ("FP32", "fp32_async_stages", "gemm_staged"),
        ("TF32", "tensor_stages_swizzle", "mma_staged"),
        ("fp16", "tensor_layouts", _STAGED),
    ):
        bytes_over = data.numbers(data.compiled(sweep, kernel), over_formula)
        yield decide_part(f"bytes without padding over the formula's, {name}", bytes_over, near=1)
    return "Budget shared memory by the formula, and add the padding."


def occupancy_collapse(data: RunData) -> Parts:
    """Above half of a multiprocessor's shared memory, one block per multiprocessor remains.

    Source: gemm-practice (stages).
    """
    for name, sweep, kernel in (
        ("FP32", "fp32_async_stages", "gemm_staged"),
        ("tensor", "tensor_tiles", "mma_staged"),
    ):
        rows = data.compiled(sweep, kernel)
        large = Rows(sweep, [row for row in rows.found if shared_bytes(row) + 1024 > _SHARED / 2], rows.why)
        blocks = data.numbers(large, lambda row: row["blocks_per_sm"])
        yield decide_part(f"blocks per multiprocessor above half, {name} kernels", blocks, near=1, unit="")
    deep = data.speeds(data.timed("fp32_async_stages", "gemm_staged", bk=32, n=4096))
    yield note("speed of tiles of 32 K steps over register staging in tiles of 8", deep, "x")
    return f"Plan for one block per multiprocessor above {_SHARED // 2048} KiB: they have {deep.span()} the speed."


def block_swizzle_l2(data: RunData) -> Parts:
    """A threadblock swizzle raises the L2 hit rate and cuts the bytes read from device memory at large N.

    Source: gemm-practice (block swizzle).
    """
    tf32 = {"kernel": "mma_staged", "stages": 3}
    for name, sweep, wanted in (("FP32", "fp32_block_swizzle", {}), ("TF32", "tensor_stages_swizzle", tf32)):
        own, rows = (data.timed(sweep, strip=strip, **wanted) for strip in (lambda strip: strip > 0, 0))
        # What matters is the width that suits a size. Counters repeat within 0.5 %, and bytes within 1 %.
        hits = data.ratios(own, rows, metric("lts__t_sector_hit_rate.pct"), "n").best("n")
        yield decide_part(f"L2 hit rate of the best width over rows, {name}", hits, least=1.005, per="n")
        read = data.ratios(own, rows, metric(DRAM_READ), "n").best("n", min)
        yield decide_part(f"bytes from DRAM of the best width over rows, {name}", read, most=0.99, per="n")
    speed = data.speeds(data.timed("fp32_block_swizzle", strip=lambda strip: strip > 0)).best("n")
    yield note("speed of the fastest width over rows, FP32", speed, "x")
    than = "at least as fast as rows at some size" if speed.most >= 1 else "slower than rows"
    fastest = f"the fastest width is {than}, {speed.span()} their speed"
    return f"Swizzle to save traffic, and time it: in FP32 {fastest}."


def cublas_best_small(data: RunData) -> Parts:
    """Below 1024 cuBLAS is ahead of every hand-written kernel.

    Source: gemm-practice (results).
    """
    parts = []
    for name in ("fp32", "fp16", "tf32"):
        sweep = "fp32_ladder" if name == "fp32" else f"tensor_ladder_{name}"
        best = data.speeds(data.timed(sweep, n=lambda n: n < 1024)).best("n")
        parts.append(decide_part(f"best speed over cuBLAS, {name}", best, most=1, margin=SLIGHT, per="n"))
        yield parts[-1]
    fp32, fp16, tf32 = (part.span for part in parts)
    return f"Below 1024 expect {fp32} the speed of cuBLAS in FP32, {fp16} in fp16 and {tf32} in TF32."


def tf32_overtakes_at_2048(data: RunData) -> Parts:
    """From 2048 on, TF32 tensor-core kernels pass FP32 cuBLAS.

    Source: gemm-practice (results).
    """
    rows, others = data.timed("tensor_ladder_tf32"), data.timed("fp32_ladder")
    found = []
    for row in rows.found:
        # FP32 cuBLAS is timed beside every rung: the spread of these times is its interval.
        times = sorted(one["reference_median_us"] for one in others.found if one["n"] == row["n"])
        if times:
            cublas = Estimate(times[len(times) // 2], times[0], times[-1])
            found.append(Value(ratio(cublas, estimate(row, "median_us")), row=row, timed=(row,)))
    best = Values(rows.sweep, found, rows.why or others.why).best("n")
    large = best.only(n=lambda n: n >= 2048)
    speed = yield decide_part("speed of the fastest rung over FP32 cuBLAS", large, least=1, per="n")
    yield note("speed of the fastest rung below 2048", best.only(n=lambda n: n < 2048), "x")
    advice = speed.either("Use TF32 where its precision is enough", "Time TF32")
    return f"{advice}: {speed.span} the speed of FP32 cuBLAS from 2048 on."


def stage3_for_16384(data: RunData) -> Parts:
    """At 16384 three stages hold up better than two.

    Source: gemm-practice (stages).
    """
    every, wmma = [], {"kernel": "wmma_staged", "strip": 0}
    for name, sweep, kernel in (
        ("mma.sync", "tensor_stages_swizzle", {}),
        ("WMMA", "tensor_ladder_tf32", wmma),
    ):
        three, two = (data.timed(sweep, n=(8192, 16384), stages=stages, **kernel) for stages in (3, 2))
        gains = data.speeds_over(three, two, "n", "strip")
        large, small = gains.only(n=16384), gains.only(n=8192)
        # To hold up better is to keep more of the speed at 8192: the gain of the third stage grows with the size.
        grown = large.over(small, "strip")
        yield decide_part(f"gain of the third stage at 16384 over that at 8192, {name}", grown, least=1)
        yield note(f"speed of three stages over two at 16384, {name}", large, "x")
        every.append(large)
    mma, by_wmma = (speeds.span() for speeds in every)
    return f"Take three stages at 16384: they have {mma} the speed of two by mma.sync, {by_wmma} by WMMA."


def large_size_retention(data: RunData) -> Parts:
    """The staged TF32 kernel with a threadblock swizzle keeps at least 90 % of its best rate at 16384.

    Source: gemm-practice (results).
    """
    rows = data.timed("tensor_ladder_tf32", _STAGED, strip=8, stages=lambda stages: stages >= 3)

    def rate(row: Row) -> Estimate:
        time = estimate(row, "median_us")
        return Estimate(*(row["tflops"] * time.value / end for end in (time.value, time.high, time.low)))

    best = {}
    for row in sorted(rows.found, key=lambda row: row["tflops"]):
        best[row["variant"]] = row
    large = [(row, best[row["variant"]]) for row in rows.found if row["n"] == 16384]
    kept = [Value(ratio(rate(row), rate(most)), row=row, timed=(row, most)) for row, most in large]
    values = Values(rows.sweep, kept, rows.why)
    part = yield decide_part("rate at 16384 over the best of the same rung", values, least=0.9)
    clocks = data.timed("tensor_ladder_tf32", "mma_staged", n=(2048, 16384), stages=4)
    yield note("clock", data.numbers(clocks, lambda row: row["sm_clock_mhz"]), "MHz")
    return f"Expect {part.span} the best rate at 16384, and look at the clock before you blame the kernel."


def xor_no_extra_memory(data: RunData) -> Parts:
    """An XOR swizzle removes the bank conflicts of ldmatrix without extra shared memory; padding needs extra.

    Source: gemm-practice (ldmatrix, XOR swizzle).
    """

    def over_fewest_ldmatrix(row: Row) -> float:
        """Four wavefronts for an ldmatrix.x4. The collective store adds a few."""
        warps = row["m"] / row["wm"] * row["n"] / row["wn"]
        return float(wavefronts(row) / (warps * row["k"] / 16 * (row["wm"] / 16 + row["wn"] / 16) * 4))

    def over_tiles(row: Row) -> float:
        return float(row["shared_bytes_dynamic"] / (2 * row["stages"] * row["bk"] * (row["bm"] + row["bn"])))

    loads = data.numbers(data.timed("tensor_layouts", "mma_staged"), over_fewest_ldmatrix)
    memory = data.numbers(data.compiled("tensor_layouts", "mma_staged"), over_tiles)
    padded = memory.only(pad=(8, 16))
    best = yield decide_part(
        "wavefronts over those without conflicts, XOR", loads.only(swizzle="xor"), most=ENOUGH
    )
    yield decide_part("bytes over those of the tiles, XOR", memory.only(swizzle="xor"), near=1)
    plain = loads.only(swizzle="none", pad=0)
    yield decide_part("wavefronts over those without conflicts, plain", plain, least=1.5)
    yield decide_part("bytes over those of the tiles, padded", padded, least=1.01)
    matrices = data.timed("bank_ldmatrix", "bank_matrix", tile_layout="xor")
    model = data.numbers(matrices, lambda row: row.metric("predicted_wavefronts") / row["matrices"])
    yield decide_part("wavefronts per matrix by the bank model, XOR", model, near=1)
    yield note("wavefronts, padded", loads.only(pad=(8, 16)), "x")
    yield note("speed over cuBLAS", data.speeds(data.timed("tensor_layouts", "mma_staged")), "x")
    return f"Swizzle with XOR: {best.span} the fewest wavefronts; padding takes {padded.span()} the bytes."


def wmma_cannot_xor(data: RunData) -> Parts:
    """WMMA loads take a base and a stride, so they cannot read an XOR-swizzled tile.

    Source: gemm-practice (XOR swizzle).
    """
    # By the signature of load_matrix_sync, which is a constraint of the kernel.
    cells = data.cells("tensor_layouts", "wmma_staged", swizzle="xor")
    refused = data.numbers(cells, lambda row: row["status"] == "unsupported")
    yield decide_part("share of cells that are unsupported", refused, near=1, unit="")
    speeds = data.speeds(data.timed("tensor_layouts", "wmma_staged"))
    return f"For swizzled tiles use ldmatrix with mma.sync: WMMA without has {speeds.span()} the speed of cuBLAS."

"""Claims of `gemm-practice`: FP32 and TF32 GEMMs, shared memory, stages, and the threadblock swizzle."""

from operator import itemgetter

from ladder.claims.counters import (
    ENOUGH,
    LOADS,
    metric,
    over_fewest,
    stalled,
    wavefronts,
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
from ladder.model.problem import ELEMENT_BYTES
from ladder.results.counters import DRAM_READ
from ladder.results.run_data import Row, RunData, Value, Values
from ladder.results.statistics import Estimate, estimate, ratio

# Bytes of a multiprocessor of compute capability 9.0, and what the system takes of them per block.
_SHARED = 228 * 1024
_OF_SYSTEM = 1024
_STAGED = ("mma_staged", "wmma_staged")
_TF32 = "tensor_ladder_tf32"
WMMA = (
    "2_shared_fragments",
    "3_padded_rows",
    "4_two_stages",
    "5_three_stages",
    "6_block_swizzle",
    "wmma_staged",
)
"""Kernels of the tensor-core ladders that multiply by WMMA and share tiles."""
# Of K in a tile, where a kernel has no parameter `bk`.
_DEPTH_BYTES = 64
_PLAIN, _TRANSPOSED = "practice_plain_a", "practice_transposed_a"


_TEXTBOOK = (
    "4 register tile",
    "5 outer product",
    "6 vector loads",
    "7 transposed A",
    "8 padding",
    "9 lane map",
    "10 quadrants",
    "11 register prefetch",
    "12 double-buffered tiles",
    "13 double-buffered fragments",
)
"""Rungs of fp32_ladder that the text climbs: tiling, vectors, transposing, padding, double buffering."""


def _above_half(shared_bytes: int) -> bool:
    """Whether a block takes more than half of a multiprocessor's shared memory, all of it dynamic."""
    return shared_bytes + _OF_SYSTEM > _SHARED / 2


def transpose_pays(data: RunData) -> Parts:
    """A transposed in shared memory pays, though it slows the stores: fragments load by vectors.

    Source: gemm-practice (why transpose, why though it is slower).
    """
    speeds = rung_over(data, WRITTEN, "transposed A", "plain A")
    speed = yield is_faster("speed over plain A", speeds, "n")
    yield note(
        "with OFFSET 4",
        rung_over(data, WRITTEN, "transposed A, OFFSET 4", "plain A"),
    )
    own, plain = (
        data.timed(WRITTEN, rung=rung, n=4096) for rung in ("transposed A", "plain A")
    )
    yield note(
        "wavefronts of stores over those of plain A",
        data.ratios(own, plain, lambda row: wavefronts(row, "st"), "n"),
    )
    return f"{speed.either('Transpose A', 'Time both')}: {speed.span} the speed."


def plain_a_needs_four_loads(data: RunData) -> Parts:
    """Without transposing, four LDS.32 must be issued for the four values of A that one LDS.128 loads.

    Source: gemm-practice (why transpose).
    """
    plain = data.compiled(WRITTEN, _PLAIN)
    own = data.compiled(WRITTEN, _TRANSPOSED, offset=0)
    single = yield decide_part(
        "LDS.32 of the kernel with plain A",
        data.numbers(plain, itemgetter("lds_32")),
        least=1,
    )
    vectors = data.ratios(plain, own, itemgetter("lds_128"), "dtype")
    yield note("LDS.128 of plain over those of transposed A", vectors)
    advice = single.either("Transpose A for vector loads", "Look at the SASS first")
    return f"{advice}: the compiler may load plain A along K, four steps at once."


def stalls_of_conflicts(data: RunData) -> Parts:
    """Bank conflicts make warps wait by short scoreboard, and by MIO throttle where the queue is full.

    Source: gemm-practice (bank conflicts).
    """
    with_ = lanes(data, "rows_2x16", "adjacent", n=4096)
    without = lanes(data, "zigzag_8x4", "quadrants", n=4096)
    short = data.ratios(with_, without, stalled("short_scoreboard"), "n")
    part = yield decide_part(
        "waits by short scoreboard, with conflicts over without", short, least=ENOUGH
    )
    queue = data.numbers(with_, stalled("mio_throttle"))
    yield decide_part(
        "cycles an instruction waits by MIO throttle, with conflicts",
        queue,
        least=0.1,
    )
    yield note(
        "cycles an instruction waits by short scoreboard",
        data.numbers(with_, stalled("short_scoreboard")),
    )
    return f"Look at short scoreboard where loads conflict: {part.span} the waits."


def registers_for_64_sums(data: RunData) -> Parts:
    """A thread with 64 sums may take 80 to 100 registers.

    Source: gemm-practice (register pressure).
    """
    kernels = data.compiled(WRITTEN, (_PLAIN, _TRANSPOSED))
    registers = data.numbers(kernels, itemgetter("registers"))
    part = yield decide_part(
        "registers a thread", registers, least=80, most=100, some=True
    )
    return f"Plan for {part.span} registers a thread with 64 sums."


def padding_needs_alignment(data: RunData) -> Parts:
    """Only paddings that keep rows aligned to 16 bytes keep vector access to shared memory.

    Source: gemm-practice (padding).
    """
    kernel = {"kernel": "gemm_staged", "loader": "direct"}
    narrow = data.numbers(
        data.compiled("fp32_padding", **kernel),
        lambda row: row["lds_32"] + row["lds_64"],
    )
    aligned, others = (
        narrow.only(pad=pads) for pads in ((0, 4, 8), (1, 2, 3, 5, 6, 7))
    )
    yield decide_part(
        "loads narrower than LDS.128 with 0, 4 or 8 words", aligned, near=0
    )
    yield decide_part(
        "loads narrower than LDS.128 with other paddings", others, least=1
    )
    broken = data.speeds(
        data.timed("fp32_padding", pad=(1, 2, 3, 5, 6, 7), n=4096, **kernel)
    )
    return f"Pad by multiples of four words: others have {broken.span} the speed of none in tiles of 128 x 128."


def bcf_still_conflicts(data: RunData) -> Parts:
    """The kernel called conflict-free, threads row by row in quadrants, still needs extra wavefronts.

    Source: gemm-practice (bcf).
    """
    rows = data.timed(WRITTEN, rung="transposed A", n=1024)
    loads = yield decide_part(LOADS, data.numbers(rows, over_fewest, "x"), least=ENOUGH)
    return f"Count wavefronts before you call a kernel conflict-free: this one takes {loads.span} the fewest."


def smem_formula(data: RunData) -> Parts:
    """The shared memory of a staged kernel is stages * BK * (BM + BN) * sizeof(element) bytes.

    Source: gemm-practice (stages).
    """

    def over_formula(row: Row) -> float:
        """Without the padding, which is one of rows along N, and in FP32 of rows along M too."""
        element = ELEMENT_BYTES[row["dtype"]]
        depth = row.get("bk", _DEPTH_BYTES // element)
        lengths = 2 * depth if row["dtype"] == "fp32" else row["bm"] + depth
        tile, padding = depth * (row["bm"] + row["bn"]), lengths * row.get("pad", 0)
        held = row["shared_bytes_dynamic"] / element / row["stages"]
        return float((held - padding) / tile)

    for name, sweep, kernel in (
        ("FP32", "fp32_async_stages", "gemm_staged"),
        ("TF32", "tensor_stages_swizzle", "12_tuned"),
        ("fp16", "tensor_layouts", _STAGED),
    ):
        bytes_over = data.numbers(data.compiled(sweep, kernel), over_formula, "x")
        yield decide_part(
            f"bytes without padding over the formula's, {name}", bytes_over, near=1
        )
    return "Budget shared memory by the formula, and add the padding."


def occupancy_collapse(data: RunData) -> Parts:
    """Above half of a multiprocessor's shared memory one block remains, and speed collapses: nothing fills its waits.

    Source: gemm-practice (stages).
    """
    for name, sweep, kernel in (
        ("FP32", "fp32_async_stages", "gemm_staged"),
        ("tensor", "tensor_tiles", "mma_staged"),
    ):
        kernels = data.compiled(sweep, kernel)
        blocks = data.numbers(kernels, itemgetter("blocks_per_sm"))
        above = blocks.only(shared_bytes_dynamic=_above_half)
        label = f"blocks a multiprocessor above half, {name} kernels"
        yield decide_part(label, above, near=1)
    # Registers leave one block here, in place of shared memory: the kernel is the same otherwise.
    one, two = (
        data.timed(WRITTEN, rung=rungs)
        for rungs in (
            ("prefetch, one block", "double buffer, one block"),
            ("prefetch", "double buffer"),
        )
    )
    large = data.speeds_over(one, two, "n", "stages").only(n=lambda n: n >= 2048)
    speed = yield decide_part(
        "speed of one block over two, from 2048 on", large, most=0.9, per="rung"
    )
    return (
        f"Leave room for two blocks a multiprocessor: one has {speed.span} the speed."
    )


def block_swizzle_l2(data: RunData) -> Parts:
    """A threadblock swizzle raises the L2 hit rate, cuts the bytes from device memory, and is faster at large N.

    Source: gemm-practice (block swizzle).
    """
    # The text's kernel is WMMA in TF32, and it speaks of 16384.
    below = "5 three-stage pipeline"
    wmma = rung_over(data, _TF32, "6 threadblock swizzle", below, n=16384)
    speed = yield decide_part(
        "speed over rows at 16384, WMMA in TF32", wmma, least=1, margin=2 * SLIGHT
    )
    tf32 = {"kernel": "12_tuned", "stages": 3}
    for name, sweep, wanted in (
        ("FP32", "fp32_block_swizzle", {}),
        ("TF32", "tensor_stages_swizzle", tf32),
    ):
        own, rows = (
            data.timed(sweep, strip=strip, **wanted)
            for strip in (lambda strip: strip > 0, 0)
        )
        # What matters is the width that suits a size. Counters repeat within 0.5 %, and bytes within 1 %.
        hits = data.ratios(own, rows, metric("lts__t_sector_hit_rate.pct"), "n").best(
            "n"
        )
        yield decide_part(
            f"L2 hit rate of the best width over rows, {name}",
            hits,
            least=1.005,
            per="n",
        )
        read = data.ratios(own, rows, metric(DRAM_READ), "n").best("n", min)
        yield decide_part(
            f"bytes from DRAM of the best width over rows, {name}",
            read,
            most=0.99,
            per="n",
        )
    fp32 = data.speeds(
        data.timed("fp32_block_swizzle", strip=lambda strip: strip > 0)
    ).best("n")
    yield note("speed of the fastest width over rows, FP32", fp32)
    return f"Swizzle large TF32 products: {speed.span} the speed at 16384."


def cublas_best_small(data: RunData) -> Parts:
    """Below 1024 tiling and vectors do not beat cuBLAS.

    Source: gemm-practice (results).
    """
    fp32 = data.speeds(
        data.timed("fp32_ladder", n=lambda n: n < 1024, rung=_TEXTBOOK)
    ).best("n")
    part = yield is_slower("best speed over cuBLAS, rungs 4 to 13 in FP32", fp32, "n")
    wmma = data.speeds(data.timed(_TF32, WMMA, n=lambda n: n < 1024)).best("n")
    yield is_slower("best speed over cuBLAS, WMMA in TF32", wmma, "n")
    small = data.speeds(
        data.timed("fp32_ladder", rung="19c small tile", n=lambda n: n < 1024)
    )
    yield note("a tile of 32 x 64 made for such sizes", small)
    return f"Below 1024 use cuBLAS or a small tile: the text's rungs have {part.span} its speed."


def tf32_overtakes_at_2048(data: RunData) -> Parts:
    """From 2048 on, TF32 tensor-core kernels pass FP32 cuBLAS.

    Source: gemm-practice (results).
    """
    rows, others = (
        data.timed(_TF32, WMMA),
        data.timed("fp32_ladder"),
    )
    found = []
    for row in rows.rows:
        # FP32 cuBLAS is timed beside every rung: the spread of these times is its interval.
        times = sorted(
            one["reference_median_us"] for one in others.rows if one["n"] == row["n"]
        )
        if times:
            cublas = Estimate(times[len(times) // 2], times[0], times[-1])
            speed = ratio(cublas, estimate(row, "median_us"))
            found.append(Value(speed, row=row, timed=(row,)))
    best = Values(rows.sweep, found, rows.why or others.why).best("n")
    large = best.only(n=lambda n: n >= 2048)
    speed = yield decide_part(
        "speed of the fastest WMMA rung over FP32 cuBLAS", large, least=1, per="n"
    )
    yield note("speed of the fastest rung below 2048", best.only(n=lambda n: n < 2048))
    advice = speed.either("Use TF32 where its precision is enough", "Time TF32")
    return f"{advice}: {speed.span} the speed of FP32 cuBLAS from 2048 on."


def stage3_for_16384(data: RunData) -> Parts:
    """At 16384 three stages are faster than two.

    Source: gemm-practice (stages).
    """
    below = "4 two-stage pipeline"
    wmma = rung_over(data, _TF32, "5 three-stage pipeline", below, n=16384)
    speed = yield decide_part(
        "speed of three stages over two at 16384, WMMA in TF32",
        wmma,
        least=1,
        margin=2 * SLIGHT,
    )
    three, two = (
        data.timed("tensor_stages_swizzle", n=16384, stages=stages) for stages in (3, 2)
    )
    yield note("the same by mma.sync", data.speeds_over(three, two, "n", "strip"))
    return f"Take three stages at 16384: {speed.span} the speed of two."


def large_size_retention(data: RunData) -> Parts:
    """The TF32 WMMA kernel with three stages and a threadblock swizzle keeps 26 of its best 28 TFLOP/s at 16384.

    Source: gemm-practice (results).
    """
    rows = data.timed(_TF32, rung="6 threadblock swizzle")

    def rate(row: Row) -> Estimate:
        time = estimate(row, "median_us")
        return Estimate(
            *(
                row["tflops"] * time.value / end
                for end in (time.value, time.high, time.low)
            )
        )

    measured = [Value(rate(row), row=row, timed=(row,)) for row in rows.rows]
    rates = Values(rows.sweep, measured, rows.why)
    kept = rates.only(n=16384).over(rates.best("rung"))
    part = yield decide_part("rate at 16384 over its best", kept, least=26 / 28)
    yield note("clock", data.numbers(rows, itemgetter("sm_clock_mhz"), "MHz"))
    return f"Expect {part.span} the best rate at 16384, and look at the clock before you blame the kernel."


def xor_no_extra_memory(data: RunData) -> Parts:
    """An XOR swizzle removes the bank conflicts of ldmatrix without extra shared memory; padding needs extra.

    Source: gemm-practice (ldmatrix, XOR swizzle).
    """

    def over_fewest_ldmatrix(row: Row) -> float:
        """Four wavefronts for an ldmatrix.x4. The collective store adds a few."""
        warps = row["m"] / row["wm"] * row["n"] / row["wn"]
        return float(
            wavefronts(row)
            / (warps * row["k"] / 16 * (row["wm"] / 16 + row["wn"] / 16) * 4)
        )

    def over_tiles(row: Row) -> float:
        return float(
            row["shared_bytes_dynamic"]
            / (2 * row["stages"] * row["bk"] * (row["bm"] + row["bn"]))
        )

    rows = data.timed("tensor_layouts", "mma_staged")
    loads = data.numbers(rows, over_fewest_ldmatrix, "x")
    memory = data.numbers(
        data.compiled("tensor_layouts", "mma_staged"), over_tiles, "x"
    )
    padded = memory.only(pad=(8, 16))
    best = yield decide_part(
        "wavefronts over those without conflicts, XOR",
        loads.only(swizzle="xor"),
        most=ENOUGH,
    )
    yield decide_part(
        "bytes over those of the tiles, XOR", memory.only(swizzle="xor"), near=1
    )
    plain = loads.only(swizzle="none", pad=0)
    yield decide_part(
        "wavefronts over those without conflicts, plain", plain, least=1.5
    )
    yield decide_part("bytes over those of the tiles, padded", padded, least=1.01)
    matrices = data.timed("bank_ldmatrix", "bank_matrix", tile_layout="xor")
    model = data.numbers(
        matrices, lambda row: row.metric("predicted_wavefronts") / row["matrices"], "x"
    )
    yield decide_part("wavefronts per matrix by the bank model, XOR", model, near=1)
    yield note("wavefronts, padded", loads.only(pad=(8, 16)))
    yield note("speed over cuBLAS", data.speeds(rows))
    return f"Swizzle with XOR: {best.span} the fewest wavefronts; padding takes {padded.span} the bytes."


def wmma_cannot_xor(data: RunData) -> Parts:
    """WMMA loads take a base and a stride, so they cannot read an XOR-swizzled tile.

    Source: gemm-practice (XOR swizzle).
    """
    # By the signature of load_matrix_sync, which is a constraint of the kernel.
    cells = data.cells("tensor_layouts", "wmma_staged", swizzle="xor")
    refused = data.numbers(cells, lambda row: row["status"] == "unsupported")
    yield decide_part("share of cells that are unsupported", refused, near=1)
    speeds = data.speeds(data.timed("tensor_layouts", "wmma_staged"))
    return f"For swizzled tiles use ldmatrix with mma.sync: WMMA without has {speeds.span} the speed of cuBLAS."

"""The attention ladder and the kernel in Triton, without a GPU: outputs, planted mistakes, and what is compiled."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import catalog, facts_without_spills, in_triton, rungs_of
from compiling import compile_ptx, compiled_without_spills, instructions
from emulator.attention_rule import errors_over_bound, given, rms_of_errors
from emulator.formats import to_bits
from emulator.hopper import INCLUDE, hold, shared_type
from emulator.hopper_ptx import HopperMachine, parse_hopper
from emulator.inputs import value
from emulator.launching import assert_shows, launch, planted
from emulator.ptx import Array, Memory
from ladder.build.triton_request import compiler
from ladder.model.kernel import Kernel, Variant
from ladder.problems.attention.bounds import promotion_factor, rms_bound

FILES = rungs_of("attention")
PROMOTED = "attention_fp8_promoted"
EVEN = "attention_fp8_even"
"""The files in fp8, which are no rungs."""
TRITON = "triton_attention"
"""Right as far as Triton's interpreter tells."""
SMALL = {"bm": 64, "warps": 4}


def kernel(rung: str) -> Kernel:
    return catalog()[FILES.get(rung, rung)]


def variant(
    rung: str, dtype: str, depth: int, causal: int, bn: int, **params: Any
) -> Variant:
    """Rung 1 has tiles of 64 keys, and rung 7 is always causal."""
    params |= {"depth": depth, "causal": 1 if rung == "7" else causal}
    if rung != "1":
        params["bn"] = bn
    return kernel(rung).variant(params, dtype)


def inputs(dtype: str, shape: tuple[int, int, int], kind: str) -> list[Array]:
    """Bits of q, k and v, heads x sequence x d, as an instance draws them.

    rising: scores grow from key to key, so that a row's maximum does, too. leap: from key 200 on, which is not
    among the early ones of its tile, exponentials are 2^160 times as large, more than fp32 holds.
    """
    heads, sequence, _ = shape
    moves = {
        "rising": np.linspace(-2, 2, sequence),
        "leap": np.where(np.arange(sequence) < 200, -10, 10),
    }
    drawn_as = "positive" if kind in moves else kind
    q, k, v = given(dtype, shape, drawn_as, 3 + 11 * heads + sequence)
    if kind in moves:
        moved = value(k, dtype) + moves[kind][:, None]
        k = to_bits(moved.astype(np.float32), dtype)
        v = given(dtype, shape, "uniform", 1)[2]
    return [q, k, v]


def worst(
    one: Variant, heads: int, sequence: int, kind: str = "uniform", **more: Any
) -> float:
    """The largest error of a launch over the bound, or that of all together where it is beyond its own."""
    depth = int(one.params["depth"])
    q, k, v = inputs(one.dtype, (heads, sequence, depth), kind)
    before = np.full(q.shape, 0xFFFF, np.uint16)
    size = {"heads": heads, "sequence": sequence, "d": depth}
    made, _ = launch(one, {"q": q, "k": k, "v": v, "o": before}, size, **more)
    causal = int(one.params["causal"])
    about = made, (q, k, v), one.dtype, causal, kind
    together = rms_of_errors(*about) / rms_bound(kind, heads * sequence)
    largest = float(errors_over_bound(*about).max())
    return max(largest, together) if together > 1 else largest


Case = tuple[str, int, int, int, int, str, str]
"""Dtype, depth, whether causal, keys of a tile, sequence, kind of inputs, and when copies land. Of two heads."""
OF_EACH: list[Case] = [
    ("fp16", 128, 1, 64, 130, "rising", "early"),
    ("fp16", 64, 0, 64, 264, "equal", "shuffled"),
    ("fp16", 128, 1, 64, 1, "integers", "early"),
]
ODD = ("1", "3", "5", "7", "9")
OF_ODD: list[Case] = [
    ("bf16", 64, 0, 64, 100, "uniform", "late"),
    ("bf16", 128, 0, 128, 136, "spikes", "early"),
]
OF_EVEN: list[Case] = [
    ("bf16", 64, 1, 128, 200, "positive", "late"),
    ("bf16", 128, 0, 64, 130, "wide", "late"),
]


@pytest.mark.parametrize("rung", FILES)
def test_outputs_are_right(rung: str) -> None:
    """Rows and keys beyond the sequence are neither read nor written: there is no buffer."""
    for case in (*OF_EACH, *(OF_ODD if rung in ODD else OF_EVEN)):
        dtype, depth, causal, bn, sequence, kind, loads = case
        one = variant(rung, dtype, depth, causal, bn)
        assert worst(one, 2, sequence, kind, loads=loads) < 1, case


OTHERS: list[tuple[str, dict[str, Any], Case]] = [
    # Rows of 256 elements.
    ("6", {}, ("bf16", 256, 0, 64, 100, "rising", "late")),
    ("7", {}, ("fp16", 256, 1, 64, 130, "rising", "shuffled")),
    # Three consumers share a block of 192 rows.
    ("3", {"consumers": 3}, ("bf16", 64, 0, 64, 330, "wide", "late")),
    ("4", {"consumers": 3}, ("fp16", 64, 1, 64, 257, "rising", "early")),
    ("5", {"consumers": 3}, ("bf16", 64, 0, 64, 330, "wide", "late")),
    ("6", {"consumers": 3}, ("fp16", 64, 1, 64, 257, "rising", "early")),
    ("7", {"consumers": 3}, ("bf16", 64, 1, 64, 330, "wide", "late")),
    ("7b", {"consumers": 3}, ("bf16", 64, 1, 64, 257, "rising", "early")),
    ("7b", {"softmax": "LeanSoftmax"}, ("bf16", 128, 0, 128, 330, "wide", "shuffled")),
    ("7b", {"softmax": "LeanSoftmax"}, ("bf16", 128, 0, 128, 264, "leap", "late")),
    ("7b", {"softmax": "LeanSoftmax"}, ("fp16", 64, 0, 128, 129, "equal", "early")),
    (
        "7b",
        {"softmax": "LeanSoftmax", "consumers": 3},
        ("fp16", 64, 1, 64, 257, "rising", "early"),
    ),
    # Three and four consumers, of which some stop ahead of the last tile.
    ("9", {"consumers": 3}, ("fp16", 128, 1, 80, 257, "rising", "early")),
    ("9", {"consumers": 3}, ("bf16", 64, 0, 128, 330, "leap", "late")),
    ("9", {"consumers": 4}, ("bf16", 64, 1, 64, 330, "wide", "shuffled")),
    ("9", {"consumers": 4}, ("fp16", 64, 0, 64, 257, "spikes", "early")),
    # Rows of 256 elements, and tiles of 80 keys.
    ("10", {}, ("bf16", 256, 0, 80, 161, "rising", "late")),
    ("10", {}, ("fp16", 256, 1, 80, 330, "leap", "shuffled")),
    # Six tiles, more than there are stages.
    ("5", {"stages": 3}, ("bf16", 64, 0, 64, 330, "rising", "early")),
    ("6", {"stages": 4}, ("bf16", 64, 0, 64, 330, "rising", "early")),
    ("7b", {"stages": 3}, ("bf16", 64, 0, 64, 330, "rising", "early")),
    ("9", {"stages": 4}, ("bf16", 64, 1, 64, 330, "rising", "early")),
    ("10", {"stages": 3}, ("bf16", 64, 0, 64, 330, "rising", "early")),
    # Parts of tiles, and more than one.
    *(
        (TRITON, SMALL, ("fp16", 64, causal, 32, sequence, "uniform", "late"))
        for sequence, causal in itertools.product((1, 31, 64, 191), (0, 1))
    ),
    *(
        (TRITON, SMALL, (dtype, 128, causal, 32, 65, "positive", "late"))
        for dtype, causal in itertools.product(("bf16", "fp16"), (0, 1))
    ),
    *(
        (TRITON, SMALL, ("fp16", 64, at % 2, 32, 96, kind, "late"))
        for at, kind in enumerate(("integers", "wide", "equal", "spikes"))
    ),
]


@pytest.mark.parametrize(("rung", "params", "case"), OTHERS, ids=str)
def test_other_parameters_are_right(
    rung: str, params: dict[str, Any], case: Case
) -> None:
    dtype, depth, causal, bn, sequence, kind, loads = case
    one = variant(rung, dtype, depth, causal, bn, **params)
    assert worst(one, 2, sequence, kind, loads=loads) < 1


@pytest.mark.parametrize(
    ("params", "sequence", "kind", "loads"),
    [
        # Sums of a tile alone.
        ({}, 300, "uniform", "late"),
        ({"causal": 1}, 264, "rising", "early"),
        ({}, 130, "positive", "shuffled"),
        ({}, 129, "equal", "early"),
        ({"causal": 1}, 1, "integers", "late"),
        ({}, 264, "spikes", "early"),
        # Sums that stay in the tensor cores: of two tiles.
        ({"every": 256}, 129, "equal", "early"),
        # Five tiles and nine, of which the last are promoted at the end.
        ({"every": 256, "causal": 1}, 600, "rising", "early"),
        ({"every": 512, "stages": 3}, 1030, "rising", "shuffled"),
        ({"every": 512}, 520, "spikes", "late"),
        ({"every": 0}, 400, "wide", "late"),
        ({"every": 0, "stages": 4, "causal": 1}, 700, "leap", "late"),
        # Wide tiles, of which one is not full, and more of them than there are stages.
        ({"every": 0, "bn": 192}, 192, "uniform", "early"),
        ({"every": 0, "bn": 192, "causal": 1}, 600, "rising", "late"),
        ({"every": 0, "bn": 224}, 225, "spikes", "shuffled"),
        ({"every": 0, "bn": 224}, 680, "leap", "late"),
        ({"every": 0, "bn": 224, "causal": 1}, 1, "integers", "early"),
        # Three consumers share a block of 192 rows.
        ({"every": 0, "bn": 96, "consumers": 3}, 330, "uniform", "late"),
        ({"every": 0, "bn": 96, "consumers": 3, "causal": 1}, 500, "rising", "early"),
        ({"every": 0, "bn": 96, "consumers": 3, "stages": 4}, 600, "leap", "shuffled"),
        ({"every": 0, "bn": 96, "consumers": 3, "causal": 1}, 96, "equal", "late"),
    ],
    ids=str,
)
def test_outputs_in_fp8_are_right(
    params: dict[str, Any], sequence: int, kind: str, loads: str
) -> None:
    one = kernel(PROMOTED).variant(params, "fp8")
    assert worst(one, 2, sequence, kind, loads=loads) < 0.5


@pytest.mark.parametrize(
    ("every", "bn", "least"), [(128, 128, 0), (512, 128, 1), (0, 128, 2), (0, 224, 2)]
)
def test_sums_of_14_bits_lose_what_the_bound_of_their_length_says(
    every: int, bn: int, least: float
) -> None:
    """Of values of one sign, and more than is allowed to those that are promoted at each tile."""
    one = kernel(PROMOTED).variant({"every": every, "bn": bn}, "fp8")
    error = worst(one, 1, 1030, "positive", sum_bits=14)
    size = {"sequence": 1030, "heads": 1, "d": 128}
    factor = promotion_factor(size, "positive", every or 1030)
    assert least <= error < 0.7 * factor
    assert worst(one, 1, 1030, "uniform", sum_bits=14) < 0.5


@pytest.mark.parametrize(
    ("rung", "dtype", "depth", "causal", "loads", "more"),
    [
        ("7b", "bf16", 128, 0, "late", {}),
        ("7b", "fp16", 128, 1, "early", {}),
        ("7b", "bf16", 64, 1, "shuffled", {"consumers": 3}),
        ("7b", "bf16", 128, 1, "late", {"softmax": "LeanSoftmax"}),
        ("7b", "fp16", 128, 0, "early", {"softmax": "LeanSoftmax"}),
        ("9", "bf16", 128, 1, "late", {}),
        ("9", "fp16", 64, 1, "shuffled", {"consumers": 3}),
        ("10", "bf16", 128, 1, "early", {}),
        ("10", "fp16", 128, 0, "late", {}),
    ],
)
def test_a_block_that_stays_takes_several_tiles(
    rung: str, dtype: str, depth: int, causal: int, loads: str, more: dict[str, Any]
) -> None:
    """Two blocks, for three heads with tiles of several steps and of one, and for five heads of one tile."""
    one = variant(rung, dtype, depth, causal, 128, **more)
    for heads, sequence, kind in ((3, 264, "rising"), (5, 40, "wide")):
        assert worst(one, heads, sequence, kind, loads=loads, clusters=2) < 1
    assert worst(variant("1", "bf16", 64, 1, 64), 2, 100, clusters=2) < 1


@pytest.mark.parametrize(
    ("rung", "params", "dtype", "depth", "bn", "heads", "sequence", "blocks", "kind"),
    [
        # One block, and as many blocks as tiles, of which none is cut.
        ("9", {}, "fp16", 64, 64, 2, 200, 1, "rising"),
        ("9", {}, "bf16", 64, 64, 1, 130, 2, "uniform"),
        # Of 5 tiles of 10 steps 3 are cut; of 4, all, one of them where keys end.
        ("9", {}, "bf16", 64, 64, 1, 635, 2, "rising"),
        ("10", {}, "bf16", 64, 64, 1, 635, 2, "rising"),
        ("9", {}, "fp16", 64, 64, 2, 200, 3, "rising"),
        ("9", {"consumers": 3}, "bf16", 128, 80, 3, 264, 2, "leap"),
        ("9", {}, "bf16", 128, 80, 3, 330, 2, "wide"),
        ("10", {}, "fp16", 256, 80, 3, 320, 2, "equal"),
        ("9", {"stages": 3}, "bf16", 64, 128, 5, 264, 4, "spikes"),
        ("9", {"consumers": 4}, "bf16", 64, 64, 5, 264, 4, "spikes"),
        # Tiles of one step.
        ("9", {}, "bf16", 64, 128, 5, 100, 2, "positive"),
        ("9", {"consumers": 3}, "bf16", 64, 128, 5, 100, 2, "positive"),
        ("10", {}, "bf16", 256, 80, 5, 80, 2, "wide"),
    ],
)
@pytest.mark.parametrize("loads", ["late", "early", "shuffled"])
def test_tiles_that_blocks_share_are_right(
    rung: str,
    params: dict[str, Any],
    dtype: str,
    depth: int,
    bn: int,
    heads: int,
    sequence: int,
    blocks: int,
    kind: str,
    loads: str,
) -> None:
    one = variant(rung, dtype, depth, 0, bn, **params)
    assert worst(one, heads, sequence, kind, loads=loads, clusters=blocks) < 1


@pytest.mark.parametrize(
    ("softmax", "heads", "sequence", "blocks", "kind", "loads"),
    [
        # One block and more blocks than tiles, of which none is cut.
        ("E4m3Softmax", 2, 200, 1, "rising", "late"),
        ("RareSoftmax", 1, 300, 3, "uniform", "early"),
        # Of 5 tiles 3 are cut; of 4, all, one of them where keys end.
        ("E4m3Softmax", 5, 190, 2, "wide", "shuffled"),
        ("RareSoftmax", 1, 900, 2, "rising", "late"),
        ("RareSoftmax", 2, 380, 3, "leap", "early"),
        ("RareSoftmax", 5, 460, 2, "spikes", "late"),
        # Tiles of one step.
        ("RareSoftmax", 5, 90, 2, "equal", "late"),
    ],
)
def test_tiles_in_fp8_that_blocks_share_are_right(
    softmax: str, heads: int, sequence: int, blocks: int, kind: str, loads: str
) -> None:
    one = kernel(EVEN).variant({"softmax": softmax}, "fp8")
    assert worst(one, heads, sequence, kind, loads=loads, clusters=blocks) < 0.5


def test_a_maximum_gives_way_only_to_one_that_more_than_doubles_the_exponentials() -> (
    None
):
    """After a first tile of zeros the last keys of a second have one score; four lanes hold a row."""
    text = """
        #include "epilogue/bounded_softmax.cuh"
        extern "C" __global__ void kernel(const float* scores, float* factors) {
            BoundedSoftmax<1, 0> softmax(1);
            float first[64] = {}, second[64], factor[2];
            softmax.add(first, factor);
            for (int i = 0; i < 64; ++i) second[i] = i < 60 ? -9.0f : scores[threadIdx.x / 4];
            softmax.add(second, factor);
            factors[threadIdx.x] = factor[0];
        }"""
    program = parse_hopper(
        compile_ptx(INCLUDE / "one.cu", "kernel", [INCLUDE], text), 0
    )
    growths = np.array([-3, 0, 0.5, 0.99, 1.01, 1.5, 4, 9])
    memory = Memory()
    scores = (growths * np.log(2)).astype(np.float32).view(np.uint32)
    pointers = [
        memory.buffer(0, scores, writable=False),
        memory.buffer(0, np.zeros(32, np.uint32), writable=True),
    ]
    HopperMachine(program, memory, 32, (1, 1), 1, pointers, {}, "late").run()
    factors = memory.words.view(np.float32)[pointers[1] // 4 :][:32:4]
    assert factors == pytest.approx(np.where(growths > 1, 2.0**-growths, 1), rel=1e-5)


@pytest.mark.parametrize(
    ("rung", "params"), [("9", {"consumers": 3, "bn": 80}), ("10", {})], ids=str
)
def test_weights_are_packed_ahead_of_the_vote_and_without_maxima(
    rung: str, params: dict[str, Any]
) -> None:
    """Between the wait for scores in the loop and the vote on whether the old maximum was right."""
    one = kernel(rung).variant(params, "bf16")
    (cubin,) = compiled_without_spills([one])
    listing = instructions(cubin, "sm_90a")
    waits = [at for at, line in enumerate(listing) if "WARPGROUP.DEPBAR" in line]
    behind = listing[waits[1] :]
    ahead = behind[: next(at for at, line in enumerate(behind) if "VOTE" in line)]
    counts = {
        name: sum(name in line for line in ahead)
        for name in ("MUFU.EX2", "F2FP", "FMNMX", "SHFL")
    }
    keys = int(one.params["bn"])
    assert counts == {"MUFU.EX2": keys // 2, "F2FP": keys // 4, "FMNMX": 0, "SHFL": 0}


def test_each_tile_of_rows_is_taken_once_and_the_longest_of_a_group_of_heads_first() -> (
    None
):
    """Of seven heads of 600 rows: five tiles, and keys of three heads fit the L2."""
    once = """
        template <class Order> __device__ constexpr bool once(const Order& order) {
            int found[35] = {};
            for (int i = 0; i < order.count(); ++i) ++found[order.at(i).head * 5 + order.at(i).row / 128];
            for (int one : found) if (one != 1) return false;
            return order.count() == 35;
        }"""
    order = "RowTiles<true, 128, 64, 1 << 12>{600, 7}"
    hold(
        f'#include "schedule/row_tiles.cuh"\n{once}',
        f"once({order}) && {order}.together() == 3",
        *(
            f"{order}.at({i}).head == {head}"
            for i, head in ((0, 0), (2, 2), (3, 0), (15, 3), (30, 6), (34, 6))
        ),
        *(
            f"{order}.at({i}).steps == {steps}"
            for i, steps in ((0, 10), (2, 10), (3, 8), (14, 2), (34, 2))
        ),
        "once(RowTiles<false, 128, 64, 64>{600, 7})",
    )


@pytest.mark.parametrize("rung", [*FILES, PROMOTED])
def test_shared_bytes_hold_what_the_kernel_declares(rung: str) -> None:
    """In every variant, and each block finds them on an H200."""
    axes = kernel(rung).parameters
    dtype = next(iter(kernel(rung).dtypes))
    held = ("depth", "bn", "stages", "consumers", "every")
    names = [name for name in held if name in axes]
    assertions = list[str]()
    for values in itertools.product(*(axes[name].values for name in names)):
        params = dict(zip(names, values, strict=True))
        one = kernel(rung).variant(params, dtype, excluded=True)
        size = {"sequence": 1024, "heads": 1, "d": int(one.params["depth"])}
        if one.absent(size, "sm_90a") is None:
            shared = shared_type(one)
            assertions.append(f"sizeof({shared}) == {one.geometry(size).shared_bytes}")
            assertions.append(f"alignof({shared}) == 1024")
    assert len(assertions) >= 4
    hold(kernel(rung).source.read_text(), *assertions)


WRONG = "wrong"
UNFENCED = "without fence.proxy.async"
BARRIER = "before a barrier"
FENCE = "        fence_async_proxy();  // shows the thread's part of P to wgmma\n"
FENCE_OF_ROWS = "    fence_async_proxy();\n    __syncwarp();\n    if"
STORED = "commit_stores();\n    wait_for_store_reads<0>();"
COMMIT = "shared.k[0]);\n        wgmma_commit();"
EITHER = "arrivals|ever|before|without"
MISTAKES: list[tuple[str, str, str, str]] = [
    # Rung, what is changed, into what, and how it shows.
    ("1", "__syncthreads();  // P is written", "", WRONG),
    (
        "1",
        "fence_async_proxy();  // shows the thread's part of P to wgmma",
        "",
        UNFENCED,
    ),
    ("1", "__syncthreads();  // P is in shared memory", "", BARRIER),
    (
        "1",
        "keys_seen<Causal>(first_row + row, sequence)",
        "keys_seen<Causal>(row, sequence)",
        WRONG,
    ),
    ("2", "        softmax.rescale(output[0], factor);\n", "", WRONG),
    (
        "2",
        "mask_scores<Causal>(score[0], first_row, first_key, sequence, thread);",
        "",
        WRONG,
    ),
    ("2", FENCE, "", UNFENCED),
    ("2", "__syncthreads();  // P is written", "", BARRIER),
    ("3", "warpgroup_barrier(warpgroup);  // P is written", "", BARRIER),
    ("3", FENCE, "", UNFENCED),
    ("3", "k_ring.init(Consumers * 4)", "k_ring.init(4)", "arrivals|ever"),
    ("3", "        wait_until_empty(at);\n", "", "arrivals|ever|wrong"),
    ("3", "mbarrier_wait(shared.q_full, 0);", "", WRONG),
    ("3", "v_ring.wait_until_full(at);", "", "arrivals|wrong"),
    ("4", "v_ring.release(at, lane);", "", "ever"),
    (
        "4",
        "            pack_fragments<Element>(score[0], p);\n",
        "",
        "wrong|before it is written",
    ),
    ("5", "++step, v_at.advance()", "++step", "ever|wrong"),
    ("5", COMMIT + "\n        turns.end();", COMMIT, "ever"),
    ("5", "consumer > 0 || !first", "true", "ever"),
    ("6", "wgmma_wait<1>();", "", "wrong|before it is written"),
    ("6", "v_ring.wait_until_full(at);", "", "arrivals|wrong"),
    ("6", "v_ring.wait_until_full(v_at);", "", "arrivals|wrong"),
    ("7", "row + Rows < sequence ? row + Rows", "row < sequence ? row", "ever|wrong"),
    (
        "7b",
        "            at.advance();\n            q_at",
        "            q_at",
        "ever|wrong",
    ),
    ("7b", "turns.end(index >= order.count())", "turns.end(true)", "ever"),
    (
        "7b",
        "            v_ring.release(v_at, lane);\n            v_at.advance();\n            soft",
        "            v_at.advance();\n            soft",
        "ever",
    ),
    ("7b", "tile.steps > 1);", "1);", "wrong|before it is written"),
    ("9", "step * 2 * eight_lines", "step * eight_lines", WRONG),
    ("9", "Keys * line_bytes, eight_lines", "64 * line_bytes, 1024", WRONG),
    ("9", "from, first_key, 64 * i, full", "from, 0, 64 * i, full", WRONG),
    ("7b", "tiles - 1)", "tiles)", "counter"),
    ("7b", "mbarrier_arrive(q_ring.full[q_at.stage]);", "", "ever"),
    (
        "7b",
        "shared.index[q_at.stage] = index;",
        "shared.index[0] = index;",
        "wrong|ever",
    ),
    ("7b", "if (__any_sync(0xffffffffu, shrinks)) ", "if (false) ", WRONG),
    (
        "7b",
        "q_at.advance();\n            q_ring.wait_until_full(q_at);",
        "q_at.advance();",
        "wrong|ever",
    ),
    (
        "7b",
        "write_rows(shared.q[q_at.stage ^ 1]",
        "write_rows(shared.q[q_at.stage]",
        "wrong|ever",
    ),
    (
        "7b",
        "        mbarrier_wait(shared.written[at.stage], at.parity);\n",
        "",
        "wrong|fence|barrier",
    ),
    ("7b", "        shared.q_ring.release(at, 0);\n", "", "ever"),
    ("7b", FENCE_OF_ROWS, "    __syncwarp();\n    if", UNFENCED),
    ("7b", STORED, "commit_stores();", "wrong|ends before"),
    ("9", "own[0] <= largest_sum && own[1] <= largest_sum &&", "", WRONG),
    ("9", "sum[row] += own[row];", ";", WRONG),
    ("9", "                return;\n", "", WRONG),
    ("9", "        pack_fragments<Element>(score, p);\n", "", EITHER),
    ("9", "                turns.pass();\n", "", "ever"),
    ("9", "turns.end(steps == work.steps && work.is_last)", "turns.end(true)", "ever"),
    ("9", "                k_ring.pass(at, lane);\n", "", "ever|wrong"),
    ("9", "                v_ring.pass(v_at, lane);\n", "", "ever|wrong"),
    ("9", "ceil_div(row + 64, BN)", "ceil_div(row, BN)", "ever"),
    ("9", "return part.steps > 0;", "return false;", "counter|wrong"),
    ("9", "if (work.has_last) store_rows", "if (false) store_rows", WRONG),
    ("10", "                    if (step == 0) hand_out_stages();\n", "", "ever"),
    (
        "10",
        "if (step + 1 == steps) mbarrier_arrive",
        "if (false) mbarrier_arrive",
        "ever",
    ),
    ("10", "shared.work[q_at.parity] = work", "shared.work[0] = work", "wrong|ever"),
    ("10", "        ring.wait_until_full(at);\n", "", "ever"),
    ("10", "mine.advance(consumer);", "", "ever|wrong"),
    ("10", "            wait_for_store_reads<0>();\n", "", "wrong|ends before"),
    ("10", "i < Consumers; ++i", "i < 1; ++i", "ever"),
    ("10", "row + first, 64 * i", "row, 64 * i", WRONG),
    ("2", "            sum[row] *= factor[row];\n", "", WRONG),
    ("2", "            maximum[row] = larger;\n", "", WRONG),
    (
        "2",
        "(score[i] - larger) * scale",
        "fmaf(score[i], scale, -larger * scale)",
        WRONG,
    ),
    ("2", "apart < 4", "apart < 2", WRONG),
    (
        PROMOTED,
        "fence_async_proxy();  // shows the thread's part to wgmma",
        "",
        UNFENCED,
    ),
    (PROMOTED, "__syncwarp();", "", BARRIER),
    (PROMOTED, "second = first ^ even ^ odd", "second = first", WRONG),
    (
        PROMOTED,
        "transposed_ring.init(Consumers * 4, transposing_warps)",
        "transposed_ring.init(Consumers * 4)",
        EITHER,
    ),
    (PROMOTED, "transposed_ring.wait_until_empty(at);", "", "arrivals|ever|wrong"),
    (
        PROMOTED,
        "                v_ring.wait_until_full(at);\n",
        "",
        "arrivals|ever|wrong",
    ),
    (PROMOTED, "transposed_ring.release(v_at, lane);", "", "ever"),
    (
        PROMOTED,
        "transposed_ring.wait_until_full(v_at);",
        "",
        "arrivals|wrong|before|without",
    ),
    (PROMOTED, "(into ^ keys % 128)", "into", WRONG),
    (PROMOTED, "^ (column + 16 * i)", "+ (column + 16 * i)", WRONG),
    (PROMOTED, "part += transposing_warps", "part += 4", WRONG),
    (PROMOTED, "            pack_fragments_e4m3(pair, p);\n", "", WRONG),
    (EVEN, "shared.q_ring.wait_until_full(q_at);", "", "wrong|before|without"),
    (EVEN, "shared.q_ring.release(q_at, lane);", ";", "ever"),
    (EVEN, "(work.first + step) * tile_keys, seq", "step * tile_keys, seq", WRONG),
    (EVEN, "if (!work.has_first_step()) add_part", "if (0) add_part", "flag"),
    (EVEN, "softmax.rescale(output[0], factor);", "", WRONG),
    (EVEN, "if (thread == 0) take_flag(flag);", "", "zero"),
    (EVEN, "if (thread == 0) raise_flag(flag);", "", "ever"),
    (EVEN, "+ other[i] *", "+ 2.0f * other[i] *", WRONG),
    (EVEN, "output[i] * factors.own[i / 2 % 2]", "output[i]", WRONG),
    (EVEN, "+ sums[row] * factors.other[row]", "", WRONG),
    (EVEN, "part - consumers * 4", "part - 4", "ever|wrong"),
    (PROMOTED, "v, tiles > 0", "v, 0", WRONG),
    (PROMOTED, "v, tiles > 0", "v, 1", "wrong|before it is written"),
    (PROMOTED, "                tiles = 0;\n", "", WRONG),
    (PROMOTED, "factor[0] = growth[0];", "", WRONG),
    (PROMOTED, "factor[0] *= growth[0];", "", WRONG),
    (PROMOTED, "if (__any_sync(0xffffffffu, grows)) ", "if (false) ", WRONG),
    (
        PROMOTED,
        "            promote();\n            return",
        "            return",
        WRONG,
    ),
]
OF_CUT_TILES: list[tuple[str, str, str]] = [
    # Of rung 9 without a mask: the same but for the rung.
    ("if (lane == 0) take_flag(flags + part);", "", "zero"),
    ("if (thread == 0) raise_flag(flag);", "", "ever"),
    ("+ four.value[w] *", "+ 2.0f * four.value[w] *", WRONG),
    ("output[i + w] * factors.own[w / 2]", "output[i + w]", WRONG),
    ("+ sums[row] * factors.other[row]", "", WRONG),
    ("if (!Causal && !work.has_first)", "if (false)", "zero"),
    ("first_key = work.first_key + step * BN", "first_key = step * BN", WRONG),
    ("first_key + step * BN, seq", "step * BN, seq", WRONG),
    ("if (lane == 0) mbarrier_arrive(written);", "", "ever"),
    ("part - Consumers * 4", "part - 4", "ever|wrong"),
]
WAYS: list[dict[str, Any]] = [
    {"loads": "late", "kind": "rising", "behind": range(32)},
    {"loads": "early", "kind": "wide"},
    {"loads": "shuffled", "kind": "rising"},
    {"loads": "late", "kind": "leap"},
    {"loads": "early", "kind": "uniform"},
]
"""When copies land, inputs, and threads that come last."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("causal", "rung", "right", "mistaken", "shows"),
    [
        *((1, *mistake) for mistake in MISTAKES),
        *((0, "9", *mistake) for mistake in OF_CUT_TILES),
    ],
)
def test_mistakes_show(
    tmp_path: Path,
    causal: int,
    rung: str,
    right: str,
    mistaken: str,
    shows: str,
) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    heads = 2
    sequence = 264
    ways = WAYS
    clusters = 0
    if rung == PROMOTED:
        one = kernel(rung).variant({"causal": 1, "every": 256}, "fp8")
        sequence = 520
        early = {"loads": "early", "kind": "rising"}
        ways = [
            *WAYS,
            *(early | {"behind": range(*ends)} for ends in ((64, 128), (128, 384))),
        ]
    elif rung == EVEN:
        one = kernel(EVEN).variant({"softmax": "RareSoftmax"}, "fp8")
        heads, sequence, clusters = 5, 300, 3
    elif rung in ("7b", "9", "10"):
        params = {"softmax": "LeanSoftmax"} if rung == "7b" else {}
        bn = {"7b": 128, "9": 80, "10": 64}[rung]
        one = variant(rung, "bf16", 128, causal, bn, **params)
        heads = 3
        clusters = 2
    else:
        one = variant(rung, "bf16", 128, 1, 64 if rung == "7" else 128)
    more = planted(tmp_path, one.kernel.source, right, mistaken)
    more["clusters"] = clusters

    def is_wrong(**way: Any) -> bool:
        return not worst(one, heads, sequence, **way, **more) < 1

    assert_shows(shows, is_wrong, ways)


def by_default(rung: str, depth: int, dtype: str) -> Variant:
    """With 256 elements in a row two tiles of 128 keys do not fit shared memory."""
    params = {"depth": depth}
    if depth == 256:
        params["bn"] = 64
    return kernel(rung).variant(params, dtype)


def test_each_compiles_without_spills_and_exponentials_stand_between_the_waits() -> (
    None
):
    """Of scores and of the output: the compiler may move a wait ahead of arithmetic, and nothing would overlap.

    Wgmma that are serialised, or a setmaxnreg that is ignored, would be an error.
    """
    depths = [
        (rung, depth)
        for rung in (*FILES, PROMOTED, EVEN)
        for depth in kernel(rung).parameters["depth"].values
    ]
    variants = []
    for at, (rung, depth) in enumerate(depths):
        dtypes = [*kernel(rung).dtypes]
        variants.append(by_default(rung, int(depth), dtypes[at % len(dtypes)]))
    for params in (
        {"every": 512, "causal": 1},
        {"every": 0, "bn": 224, "causal": 1},
        {"every": 0, "bn": 96, "consumers": 3, "causal": 1},
    ):
        depths.append((PROMOTED, 128))
        variants.append(kernel(PROMOTED).variant(params, "fp8"))
    for rung, params in (
        ("9", {"consumers": 3, "bn": 80, "stages": 3}),
        ("9", {"consumers": 3, "bn": 80, "causal": 1}),
        ("9", {"depth": 64, "consumers": 3, "causal": 1}),
        ("9", {"depth": 64, "consumers": 4, "bn": 64}),
        ("10", {"causal": 1}),
    ):
        depths.append((rung, int(params.get("depth", 128))))
        variants.append(kernel(rung).variant(params, "bf16"))
    cubins = compiled_without_spills(variants)
    for (rung, depth), one, cubin in zip(depths, variants, cubins, strict=True):
        if rung in ("1", "2", "3", "4", "5", "9", "10"):
            continue
        listing = instructions(cubin, "sm_90a")
        waits = [at for at, line in enumerate(listing) if "WARPGROUP.DEPBAR" in line]
        of_scores = [at for at in waits if "0x1" in listing[at]]
        assert of_scores, (rung, depth)
        for first in of_scores:
            between = listing[first : waits[waits.index(first) + 1]]
            exponentials = sum("MUFU.EX2" in line for line in between)
            assert exponentials >= int(one.params.get("bn", 128)) // 2 - 1, (
                rung,
                depth,
            )
            assert not any("GMMA" in line for line in between), (rung, depth)


# In Triton.

IN_TRITON = [
    ("seen = key[None, :] < keys", "seen = key[None, :] < keys + 1", 0),
    ("key[None, :] <= row[:, None]", "key[None, :] < row[:, None] + 2", 1),
    ("whole, end, sequence", "whole, whole, sequence", 0),
    ("first_row if CAUSAL else", "first_row + BN if CAUSAL else", 1),
    ("min(first_row + BM, sequence)", "first_row + 1", 1),
    ("tl.num_programs(1) - 1 - ", "tl.num_programs(1) - 2 + ", 1),
    ("sums = sums * factor + ", "sums = sums + ", 0),
    ("        output = output * factor[:, None]\n", "", 0),
    ("1.4426950408889634", "1.0", 0),
    ("mask=(row < sequence)", "mask=(row < sequence + 1)", 0),
]


@pytest.mark.parametrize(("right", "mistaken", "causal"), IN_TRITON)
def test_mistakes_in_triton_show(
    tmp_path: Path, right: str, mistaken: str, causal: int
) -> None:
    one = variant(TRITON, "fp16", 64, causal, 32, **SMALL)
    more = planted(tmp_path, one.kernel.source, right, mistaken)

    def is_wrong() -> bool:
        return not worst(one, 2, 159, **more) < 1

    assert_shows("wrong|behind", is_wrong, [{}])


@pytest.mark.skipif(not compiler(), reason="Triton is not installed")
@pytest.mark.parametrize(
    "one",
    [*in_triton("attention_libraries"), *in_triton("attention_libraries_64")],
    ids=lambda variant: variant.id,
)
def test_each_in_triton_multiplies_by_wgmma_from_tiles_of_tma_and_spills_nothing(
    one: Variant,
) -> None:
    found = facts_without_spills(one)
    keys = int(one.params["bn"])
    assert [one["box"] for one in found["tensor_maps"]] == [
        [1, 128, 64],
        *[[1, keys, 64]] * 2,
    ]
    assert found["hgmma"] > 0
    assert found["utmaldg"] > 0
    assert found["hmma"] == found["ldg"] == found["ldgsts"] == 0

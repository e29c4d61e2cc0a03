"""The attention ladder, without a GPU: outputs on the emulator, planted mistakes, and what is compiled."""

from __future__ import annotations

import functools
import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiling import compile_ptx, compiled_without_spills, instructions
from conftest import ROOT, edit
from emulator.attention_rule import errors_over_bound, given
from emulator.hopper import arguments_of, hold, shared_type
from emulator.hopper_ptx import HopperMachine, parse_hopper
from emulator.inputs import e4m3, value
from emulator.ptx import Array, Fault, Memory
from emulator.tensor_ptx import to_bits
from ladder.catalogue.kernels import load_kernel
from ladder.model.kernel import Kernel, Variant

FOLDER, INCLUDE = ROOT / "kernels" / "attention", ROOT / "kernels" / "include"
FILES = {path.stem[0]: path.stem for path in sorted(FOLDER.glob("[0-9]*.cu"))}
Bits = tuple[Array, Array, Array]
"""Of q, k and v: heads x sequence x d."""


FP8 = "attention_fp8"
"""The file in fp8, which is no rung."""


@functools.cache
def kernel(rung: str) -> Kernel:
    return load_kernel(FOLDER / f"{FILES.get(rung, rung)}.yaml")


def inputs(dtype: str, heads: int, sequence: int, depth: int, kind: str) -> Bits:
    """As an instance draws them. rising: scores grow from key to key, so that a row's maximum does, too."""
    shape = (heads, sequence, depth)
    q, k, v = given(
        dtype,
        shape,
        "positive" if kind == "rising" else kind,
        3 + 11 * heads + sequence,
    )
    if kind == "rising":
        moved = value(k, dtype) + np.linspace(-2, 2, sequence)[:, None]
        single = moved.astype(np.float32)
        k = (
            e4m3(single)
            if dtype == "fp8"
            else to_bits(single, "bf16" if dtype == "bf16" else "f16")
        )
        v = given(dtype, shape, "uniform", 1)[2]
    return q, k, v


def launch(
    one: Variant,
    qkv: Bits,
    loads: str = "late",
    text: str | None = None,
    include: Path = INCLUDE,
    behind: range = range(0),
    sum_bits: int | None = None,
) -> Array:
    """Bits of the output. The threads `behind` of a block go on only where no others may.

    sum_bits: of the sums of wgmma, which are exact without.
    """
    size = dict(zip(("heads", "sequence", "d"), qkv[0].shape, strict=True))
    rule, memory, stored = one.geometry(size), Memory(), dict[str, tuple[int, Array]]()
    for buffer, bits in zip(
        "qkvo", (*qkv, np.full(qkv[0].shape, 0xFFFF, np.uint16)), strict=True
    ):
        words = np.ascontiguousarray(bits).reshape(-1).view(np.uint32)
        stored[buffer] = memory.buffer(0, words, writable=buffer == "o"), bits
    arguments, maps, zeroed = arguments_of(one, memory, stored, size)
    ptx = compile_ptx(one.kernel.source, one.entry, [include], text)
    program = parse_hopper(ptx, rule.shared_bytes)
    machine = HopperMachine(
        program, memory, rule.block[0], rule.grid[:2], 1, arguments, maps, loads
    )
    machine.sum_bits = sum_bits
    machine.behind = np.isin(np.arange(machine.count) % machine.threads, behind)
    machine.run()
    if any(memory.words[own].any() for own in zeroed):
        raise Fault("a counter is not zero in the end")
    begin = stored["o"][0] // 2
    return memory.words.view(np.uint16)[begin : begin + qkv[0].size].reshape(
        qkv[0].shape
    )


def worst(
    one: Variant, heads: int, sequence: int, kind: str = "uniform", **more: Any
) -> float:
    """The largest error over the bound, by the rule of the problem."""
    qkv = inputs(one.dtype, heads, sequence, int(one.params["depth"]), kind)
    made = launch(one, qkv, **more)
    return float(
        errors_over_bound(made, qkv, one.dtype, int(one.params["causal"]), kind).max()
    )


Case = tuple[str, int, int, int, int, str, str]
"""Dtype, depth, whether causal, keys of a tile, sequence, kind of inputs, and when copies land. Of two heads."""
OF_EACH: list[Case] = [
    ("fp16", 128, 1, 64, 130, "rising", "early"),
    ("fp16", 64, 0, 64, 264, "equal", "shuffled"),
    ("fp16", 128, 1, 64, 1, "integers", "early"),
]
OF_ODD: list[Case] = [
    ("bf16", 64, 0, 64, 100, "uniform", "late"),
    ("bf16", 128, 0, 128, 136, "spikes", "early"),
]
OF_EVEN: list[Case] = [
    ("bf16", 64, 1, 128, 200, "positive", "late"),
    ("bf16", 128, 0, 64, 130, "wide", "late"),
]


def variant(
    rung: str, dtype: str, depth: int, causal: int, bn: int, **params: Any
) -> Variant:
    """Rung 1 has tiles of 64 keys, and rung 7 is always causal."""
    more = {} if rung == "1" else {"bn": bn}
    return kernel(rung).variant(
        {"depth": depth, "causal": 1 if rung == "7" else causal, **more, **params},
        dtype,
    )


def test_each_of_the_ladder_s_files_is_about_a_page() -> None:
    assert "".join(FILES) == "12345678"
    for name in FILES.values():
        assert len(
            (FOLDER / f"{name}.cu").read_text(encoding="utf-8").splitlines()
        ) <= (150 if name[0] == "8" else 120), name


@pytest.mark.parametrize(
    ("rung", "dtype", "depth", "causal", "bn", "sequence", "kind", "loads"),
    [
        (rung, *case)
        for rung in FILES
        for case in (*OF_EACH, *(OF_ODD if rung in "1357" else OF_EVEN))
    ],
)
def test_outputs_are_right(
    rung: str,
    dtype: str,
    depth: int,
    causal: int,
    bn: int,
    sequence: int,
    kind: str,
    loads: str,
) -> None:
    """Rows and keys beyond the sequence are neither read nor written: there is no buffer."""
    assert (
        worst(variant(rung, dtype, depth, causal, bn), 2, sequence, kind, loads=loads)
        < 1
    )


@pytest.mark.parametrize(("rung", "dtype", "causal", "sequence", "kind", "loads"), [
    ("6", "bf16", 0, 100, "rising", "late"), ("6", "fp16", 1, 130, "wide", "early"),
    ("7", "fp16", 1, 130, "rising", "shuffled"), ("7", "bf16", 1, 257, "uniform", "late"),
])  # fmt: skip
def test_rows_may_have_256_elements(
    rung: str, dtype: str, causal: int, sequence: int, kind: str, loads: str
) -> None:
    assert (
        worst(variant(rung, dtype, 256, causal, 64), 2, sequence, kind, loads=loads) < 1
    )


@pytest.mark.parametrize(("causal", "sequence", "kind", "loads"), [
    (0, 300, "uniform", "late"), (1, 264, "rising", "early"), (0, 130, "positive", "shuffled"),
    (1, 200, "wide", "late"), (0, 129, "equal", "early"), (1, 1, "integers", "late"), (0, 264, "spikes", "early"),
])  # fmt: skip
def test_outputs_in_fp8_are_right(
    causal: int, sequence: int, kind: str, loads: str
) -> None:
    """As with sums that tensor cores cut to 14 bits."""
    one = kernel(FP8).variant({"causal": causal}, "fp8")
    for sum_bits in (None, 14) if sequence == 130 else (None,):
        assert worst(one, 2, sequence, kind, loads=loads, sum_bits=sum_bits) < 0.5


@pytest.mark.parametrize("rung", "345678")
@pytest.mark.parametrize(("dtype", "causal", "sequence", "kind", "loads"), [
    ("bf16", 0, 330, "wide", "late"), ("fp16", 1, 257, "rising", "early"), ("fp16", 1, 1, "integers", "shuffled"),
])  # fmt: skip
def test_three_consumers_share_a_block_of_192_rows(
    rung: str, dtype: str, causal: int, sequence: int, kind: str, loads: str
) -> None:
    assert (
        worst(
            variant(rung, dtype, 64, causal, 64, consumers=3),
            2,
            sequence,
            kind,
            loads=loads,
        )
        < 1
    )


def in_two_blocks(one: Variant) -> Variant:
    few = load_kernel(one.kernel.path)
    few.launch.grid[0] = 2
    return few.variant(one.params, one.dtype)


def test_a_block_of_the_first_rung_takes_several_tiles() -> None:
    one = variant("1", "bf16", 64, 1, 64)
    assert one.geometry({"heads": 2, "sequence": 100, "d": 64}).grid[0] == 4
    assert worst(in_two_blocks(one), 2, 100) < 1


@pytest.mark.parametrize(("dtype", "depth", "causal", "loads", "consumers", "softmax"), [
    ("bf16", 128, 0, "late", 2, "OnlineSoftmax"), ("bf16", 128, 0, "late", 2, "LeanSoftmax"),
    ("fp16", 128, 1, "early", 2, "LeanSoftmax"), ("bf16", 64, 1, "shuffled", 3, "OnlineSoftmax"),
])  # fmt: skip
def test_a_block_that_stays_takes_several_tiles(
    dtype: str, depth: int, causal: int, loads: str, consumers: int, softmax: str
) -> None:
    """Two blocks, for three heads with tiles of several steps and of one, and for five heads of one tile."""
    one = in_two_blocks(
        variant("8", dtype, depth, causal, 128, consumers=consumers, softmax=softmax)
    )
    assert worst(one, 3, 264, "rising", loads=loads) < 1
    assert worst(one, 3, 264, "spikes", loads=loads) < 1
    assert worst(one, 5, 40, "wide", loads=loads) < 1


def test_a_maximum_gives_way_only_to_one_that_more_than_doubles_the_exponentials() -> (
    None
):
    """Of each row the second tile is one score, after a first one of zeros; four lanes hold a row."""
    text = """
        #include "epilogue/lean_softmax.cuh"
        extern "C" __global__ void kernel(const float* scores, float* factors) {
            LeanSoftmax softmax(1);
            float first[4] = {}, factor[2];
            softmax.add(first, factor);
            const float score = scores[threadIdx.x / 4];
            float second[4] = {score, score, score, score};
            softmax.add(second, factor);
            factors[threadIdx.x] = factor[0];
        }"""
    program = parse_hopper(
        compile_ptx(INCLUDE / "one.cu", "kernel", [INCLUDE], text), 0
    )
    growths, memory = np.array([-3, 0, 0.5, 0.99, 1.01, 1.5, 4, 9]), Memory()
    scores = (growths * np.log(2)).astype(np.float32).view(np.uint32)
    pointers = [
        memory.buffer(0, scores, writable=False),
        memory.buffer(0, np.zeros(32, np.uint32), writable=True),
    ]
    HopperMachine(program, memory, 32, (1, 1), 1, pointers, {}, "late").run()
    factors = memory.words.view(np.float32)[pointers[1] // 4 :][:32:4]
    assert factors == pytest.approx(np.where(growths > 1, 2.0**-growths, 1), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rung", [one for one in FILES if one > "2"])
@pytest.mark.parametrize("stages", [3, 4])
def test_rings_may_have_more_stages(rung: str, stages: int) -> None:
    """Of six tiles, more than there are stages."""
    assert (
        worst(
            variant(rung, "bf16", 64, 0, 64, stages=stages),
            1,
            330,
            "rising",
            loads="early",
        )
        < 1
    )


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


@pytest.mark.parametrize("rung", [*FILES, FP8])
def test_shared_bytes_hold_what_the_kernel_declares(rung: str) -> None:
    """In every variant, and each block finds them on an H200."""
    assertions, axes = list[str](), kernel(rung).parameters
    names = [name for name in ("depth", "bn", "stages", "consumers") if name in axes]
    for values in itertools.product(*(axes[name].values for name in names)):
        (dtype, *_) = kernel(rung).dtypes
        one = kernel(rung).variant(
            dict(zip(names, values, strict=True)), dtype, excluded=True
        )
        size = {"sequence": 1024, "heads": 1, "d": int(one.params["depth"])}
        if one.absent(size, "sm_90a") is None:
            bytes_, shared = one.geometry(size).shared_bytes, shared_type(one)
            assertions += [
                f"sizeof({shared}) == {bytes_}",
                f"alignof({shared}) == 1024",
            ]
    assert len(assertions) >= (2 if rung == FP8 else 4)
    hold(one.kernel.source.read_text(encoding="utf-8"), *assertions)


WRONG, UNFENCED, BARRIER = "wrong", "without fence.proxy.async", "before a barrier"
SOFTMAX, TILES, TURNS = (
    "epilogue/online_softmax.cuh",
    "mma/attention_tiles.cuh",
    "schedule/turns.cuh",
)
ROWS, LEAN, E4M3 = (
    "schedule/row_tiles.cuh",
    "epilogue/lean_softmax.cuh",
    "epilogue/e4m3_softmax.cuh",
)
STORE, STORER = "epilogue/row_tile_store.cuh", "schedule/store_tiles.cuh"
FENCE = "        fence_async_proxy();  // shows the thread's part of P to wgmma\n"
MISTAKES: list[tuple[str, str, str, str, str]] = [
    # Rung, file, what is changed, into what, and how it shows.
    ("1", "", "__syncthreads();  // P is written", "", WRONG),
    ("1", "", FENCE.strip(), "", UNFENCED),
    ("1", "", "__syncthreads();  // P is in shared memory", "", BARRIER),
    (
        "1",
        "",
        "keys_seen<Causal>(first_row + row, sequence)",
        "keys_seen<Causal>(row, sequence)",
        WRONG,
    ),
    ("2", "", "        softmax.rescale(output[0], factor);\n", "", WRONG),
    (
        "2",
        "",
        "mask_scores<Causal>(score[0], first_row, first_key, sequence, thread);",
        "",
        WRONG,
    ),
    ("2", "", FENCE, "", UNFENCED),
    ("2", "", "__syncthreads();  // P is written", "", BARRIER),
    ("3", "", "warpgroup_barrier(warpgroup);  // P is written", "", BARRIER),
    ("3", "", FENCE, "", UNFENCED),
    ("3", "", "k_ring.init(Consumers * 4)", "k_ring.init(4)", "arrivals|ever"),
    (
        "3",
        "schedule/ring.cuh",
        "        wait_until_empty(at);\n",
        "",
        "arrivals|ever|wrong",
    ),
    ("3", "", "mbarrier_wait(shared.q_full, 0);", "", WRONG),
    ("3", "", "v_ring.wait_until_full(at);", "", "arrivals|wrong"),
    ("4", "", "v_ring.release(at, lane);", "", "ever"),
    (
        "4",
        "",
        "            pack_fragments<Element>(score[0], p);\n",
        "",
        "wrong|before it is written",
    ),
    ("5", "", "++step, v_at.advance()", "++step", "ever|wrong"),
    (
        "5",
        "",
        "shared.k[0]);\n        wgmma_commit();\n        turns.end();",
        "shared.k[0]);\n        wgmma_commit();",
        "ever",
    ),
    ("5", TURNS, "consumer > 0 || !first", "true", "ever"),
    ("6", "", "wgmma_wait<1>();", "", "wrong|before it is written"),
    ("6", "", "v_ring.wait_until_full(at);", "", "arrivals|wrong"),
    ("6", "", "v_ring.wait_until_full(v_at);", "", "arrivals|wrong"),
    (
        "7",
        ROWS,
        "row + Rows < sequence ? row + Rows",
        "row < sequence ? row",
        "ever|wrong",
    ),
    ("8", ROWS, "count() - 1)", "count())", "counter"),
    ("8", "", "mbarrier_arrive(q_ring.full[q_at.stage]);", "", "ever"),
    (
        "8",
        "",
        "shared.index[q_at.stage] = index;",
        "shared.index[0] = index;",
        "wrong|ever",
    ),
    ("8", LEAN, "if (__any_sync(0xffffffffu, shrinks)) ", "if (false) ", WRONG),
    (
        "8",
        "",
        "q_at.advance();\n            q_ring.wait_until_full(q_at);",
        "q_at.advance();",
        "wrong|ever",
    ),
    ("8", "", "overlap(0, add)", "overlap(0, 1)", "wrong|before it is written"),
    ("8", "", "finish(sums, q_at.stage ^ 1)", "finish(sums, q_at.stage)", "wrong|ever"),
    (
        "8",
        STORER,
        "        mbarrier_wait(shared.written[at.stage], at.parity);\n",
        "",
        "wrong|fence|barrier",
    ),
    ("8", STORER, "        shared.q_ring.release(at, 0);\n", "", "ever"),
    ("8", STORE, "    fence_async_proxy();\n", "", UNFENCED),
    ("8", STORE, "    wait_for_store_reads<0>();\n", "", "wrong|ends before"),
    ("2", SOFTMAX, "            sum[row] *= factor[row];\n", "", WRONG),
    ("2", SOFTMAX, "            maximum[row] = larger;\n", "", WRONG),
    (
        "2",
        SOFTMAX,
        "(score[i] - larger) * scale",
        "fmaf(score[i], scale, -larger * scale)",
        WRONG,
    ),
    ("2", SOFTMAX, "apart < 4", "apart < 2", WRONG),
    (
        FP8,
        "",
        "fence_async_proxy();  // shows the thread's part to wgmma",
        "",
        UNFENCED,
    ),
    (FP8, "", "__syncwarp();", "", BARRIER),
    (FP8, "", "second = first ^ even ^ odd", "second = first", WRONG),
    (
        FP8,
        "",
        "transposed_ring.init(consumers * 4, transposing_warps);",
        "transposed_ring.init(consumers * 4);",
        "arrivals|ever|before|without",
    ),
    (FP8, "", "transposed_ring.wait_until_empty(at);", "", "arrivals|ever|wrong"),
    (
        FP8,
        "",
        "                v_ring.wait_until_full(at);\n",
        "",
        "arrivals|ever|wrong",
    ),
    (FP8, "", "transposed_ring.release(v_at, lane);", "", "ever"),
    (
        FP8,
        "",
        "transposed_ring.wait_until_full(v_at);",
        "",
        "arrivals|wrong|before|without",
    ),
    (
        FP8,
        "",
        "            scale_and_add(output[0], before, partial[0]);",
        "            scale_and_add(output[0], factor, partial[0]);",
        WRONG,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("rung", "file", "right", "mistaken", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, rung: str, file: str, right: str, mistaken: str, shows: str
) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    more, heads, sequence = dict[str, Any](), 2, 264
    ways = [
        ("late", "rising", range(32)),
        ("early", "wide", range(0)),
        ("shuffled", "rising", range(0)),
    ]
    if rung == FP8:
        one, sequence = kernel(FP8).variant({"causal": 1}, "fp8"), 520
        ways += [
            ("early", "rising", range(64, 128)),
            ("early", "rising", range(128, 384)),
        ]
    elif rung == "8":
        lean = {"softmax": "LeanSoftmax"} if file == LEAN else {}
        one, heads = in_two_blocks(variant("8", "bf16", 128, 1, 128, **lean)), 3
    else:
        one = variant(rung, "bf16", 128, 1, 64 if rung == "7" else 128)
    if file:
        more["include"] = shutil.copytree(INCLUDE, tmp_path / "include")
        edit(tmp_path / "include" / file, right, mistaken)
    else:
        text = one.kernel.source.read_text(encoding="utf-8")
        assert text.count(right) == 1, right
        more["text"] = text.replace(right, mistaken)
    found = ""
    try:
        for loads, kind, behind in ways:
            if (
                not worst(
                    one, heads, sequence, kind, loads=loads, behind=behind, **more
                )
                < 1
            ):
                found = WRONG
                break
    except Fault as fault:
        found = str(fault)
    assert any(word in found for word in shows.split("|")), found


def by_default(rung: str, depth: int, dtype: str) -> Variant:
    """With 256 elements in a row two tiles of 128 keys do not fit shared memory."""
    return kernel(rung).variant(
        {"depth": depth, **({"bn": 64} if depth == 256 else {})}, dtype
    )


Compiled = tuple[str, int, str]
"""A rung, the elements of a row, and a dtype."""
EACH = [
    (rung, depth)
    for rung in (*FILES, FP8)
    for depth in kernel(rung).parameters["depth"].values
]
COMPILED: list[Compiled] = [
    (*one, dtype) for one in EACH for dtype in kernel(one[0]).dtypes
]
IN_ONE_DTYPE: list[Compiled] = [
    (*one, [*kernel(one[0]).dtypes][at % len(kernel(one[0]).dtypes)])
    for at, one in enumerate(EACH)
]
in_some_dtypes = pytest.mark.parametrize(
    "rows",
    [
        pytest.param(IN_ONE_DTYPE, id="one dtype each"),
        pytest.param(
            [one for one in COMPILED if one not in IN_ONE_DTYPE],
            id="others",
            marks=pytest.mark.slow,
        ),
    ],
)


@in_some_dtypes
def test_each_compiles_for_hopper_without_spills(rows: list[Compiled]) -> None:
    """Wgmma that are serialised, or a setmaxnreg that is ignored, would be an error."""
    compiled_without_spills([by_default(*row) for row in rows])


@in_some_dtypes
def test_exponentials_stand_between_the_waits_for_scores_and_for_the_output(
    rows: list[Compiled],
) -> None:
    """The compiler may move a wait for wgmma ahead of arithmetic, and nothing would overlap."""
    overlapping = [one for one in rows if one[0] > "5"]
    variants = [by_default(*one) for one in overlapping]
    for row, one, cubin in zip(
        overlapping, variants, compiled_without_spills(variants), strict=True
    ):
        rung, listing = row[0], instructions(cubin, "sm_90a")
        waits = [at for at, line in enumerate(listing) if "WARPGROUP.DEPBAR" in line]
        of_scores = [at for at in waits if "0x1" in listing[at]]
        assert len(of_scores) == (2 if rung == "8" else 1), (
            row
        )  # of a tile's first step, and of the others
        for first in of_scores:
            then = waits[waits.index(first) + 1]
            scores = sum("MUFU.EX2" in line for line in listing[first:then])
            ways = (
                2 if rung == FP8 else 1
            )  # by one FFMA, or for large scores by two instructions
            factors = scores - ways * int(one.params.get("bn", 128)) // 2
            assert factors in ((2, -1) if rung == "8" else (2,)), (
                row
            )  # of 8's first step the last may follow
            assert not any("GMMA" in line for line in listing[first:then]), row

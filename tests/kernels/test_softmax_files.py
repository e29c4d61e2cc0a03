"""The softmax ladder and the kernel in Triton, without a GPU: outputs, planted mistakes, and what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import cases_of, catalog, facts_without_spills, in_triton, rungs_of
from compiling import compiled_without_spills, opcodes
from emulator.inputs import drawn, value
from emulator.launching import LOADS, assert_shows, launch, planted
from emulator.ptx import Array
from emulator.softmax_rule import error_over_bound
from ladder.build.triton_request import compiler
from ladder.model.kernel import Variant
from ladder.model.problem import ELEMENT_BYTES

FILES = rungs_of("memory_bound/softmax")
TRITON = {"triton held": "triton_softmax", "triton online": "triton_softmax"}
"""With a row in registers, and with a row longer than a block: as far as Triton's interpreter tells."""
KERNELS = FILES | TRITON
CASES = cases_of(KERNELS)
SIZES = ((1, 1), (2, 31), (3, 64), (2, 67), (5, 257), (2, 1024))
ALIGNED = ((1, 8), (3, 64), (5, 136), (2, 1024), (2, 1032), (1, 4104))
"""Of kernels that take whole 16 bytes."""


SMALL: dict[str, dict[str, Any]] = {
    "1": {"block": 64},
    "2": {"block": 64},
    "3": {"items": 8},
    "4": {"items": 8},
    "5": {"pieces": 2},
    "6": {"pieces": 2, "cluster": 2},
    "7": {"cluster": 2, "block": 64, "stages": 6, "piece": 1024},
    "8": {"cluster": 2, "block": 64},
    "triton held": {"block": 1024, "warps": 4, "aligned": 1},
    "triton online": {"block": 128, "warps": 4, "aligned": 1, "online": 1},
}
OF_ELEMENTS = ("1", "2", "3", *TRITON)
"""Those that take any size."""
KINDS = ("uniform", "wide", "integers", "spikes", "masked", "equal")


def variant(rung: str, dtype: str, **params: Any) -> Variant:
    return catalog()[KERNELS[rung]].variant(SMALL[rung] | params, dtype)


def matrix(dtype: str, rows: int, columns: int, kind: str = "uniform") -> Array:
    """What is drawn; nothing of it is -inf alone, but where "masked" the first 128 columns of the first row are."""
    elements = drawn(dtype, rows * columns, 3 + 11 * rows + columns, kind)
    elements = elements.reshape(rows, columns).copy()
    if kind == "masked":
        elements[0, :128] = -np.inf if dtype == "fp32" else 0xFF80
        elements[:, -1] = 0
    return elements


def outputs(one: Variant, elements: Array, loads: str = "late", **more: Any) -> Array:
    """The outputs, as fp64. Of each cluster the first warp goes first if it can, or the whole first block."""
    rows, columns = elements.shape
    size = {"m": rows, "n": columns}
    threads = one.geometry(size).block[0]
    behind = range(32 if loads == "late" else threads, 8 * threads)
    before = np.frombuffer(b"\xff" * elements.nbytes, elements.dtype)
    buffers = {"input": elements, "output": before.reshape(rows, columns)}
    made, _ = launch(one, buffers, size, loads=loads, behind=behind, **more)
    return value(made, one.dtype)


def worst(one: Variant, elements: Array, **more: Any) -> float:
    """The largest error over the bound, by the rule of the problem."""
    made = outputs(one, elements, **more)
    return error_over_bound(made, value(elements, one.dtype), one.dtype)


@pytest.mark.parametrize(("rung", "dtype"), CASES)
def test_outputs_are_right_at_every_size(rung: str, dtype: str) -> None:
    """Far within the bound: threads are few, and so are the roundings."""
    one = variant(rung, dtype)
    for at, (rows, columns) in enumerate(SIZES if rung in OF_ELEMENTS else ALIGNED):
        kinds = KINDS if columns == 64 else (KINDS[at % len(KINDS)],)
        for kind in kinds:
            elements = matrix(dtype, rows, columns, kind)
            assert worst(one, elements, loads=LOADS[at % 2]) < 1, (columns, kind)


@pytest.mark.parametrize("rung", KERNELS)
def test_a_row_without_a_number_harms_no_other_one(rung: str) -> None:
    elements = matrix("fp32", 5, 64)
    elements[2] = -np.inf
    others = [0, 1, 3, 4]
    made = outputs(variant(rung, "fp32"), elements)[others]
    assert error_over_bound(made, value(elements[others], "fp32"), "fp32") < 1


@pytest.mark.parametrize("rung", "5678")
def test_a_share_without_a_number_adds_nothing(rung: str) -> None:
    """Half of a row of -inf, behind and ahead; and the lowest numbers are numbers."""
    elements = matrix("fp32", 3, 520)
    elements[0, 260:] = elements[1, :260] = -np.inf
    elements[2] = np.finfo(np.float32).min
    assert worst(variant(rung, "fp32"), elements) < 1


@pytest.mark.parametrize(
    ("rung", "params"),
    [
        ("5", {"pieces": 8}),
        ("6", {"cluster": 8}),
        ("6", {"cluster": 4, "pieces": 1}),
        ("8", {"cluster": 16, "items": 32}),
    ],
)
def test_rows_may_be_in_other_numbers_of_pieces_and_of_blocks(
    rung: str, params: dict[str, int]
) -> None:
    assert worst(variant(rung, "bf16", **params), matrix("bf16", 2, 1048)) < 1


SEVERAL = {"cluster": 8, "stages": 3, "piece": 512}
"""Of rungs that stay: of 3080 columns a ring has no two rows."""


@pytest.mark.parametrize(("rung", "dtype"), [one for one in CASES if one[0] == "7"])
def test_clusters_that_stay_take_all_rows(rung: str, dtype: str) -> None:
    """Whether the next row comes early or late, and where a ring holds more than one."""
    for params, columns in ((SEVERAL, 3080), (SEVERAL, 264), ({"cluster": 1}, 264)):
        one = variant(rung, dtype, **params)
        for loads in LOADS:
            elements = matrix(dtype, 5, columns)
            assert worst(one, elements, loads=loads, clusters=2) < 1, (columns, loads)


@pytest.mark.parametrize(
    ("rung", "most", "threads"),
    [
        # Rows in registers are as long as a block holds, others as shared memory: 224 KiB a block, of up to eight.
        ("3", 512 * 16, 512),
        ("4", 1024 * 32, 1024),
        ("5", 57344, None),
        ("6", 8 * 57344, None),
    ],
)
def test_rows_are_as_long_as_a_block_holds(
    rung: str, most: int, threads: int | None
) -> None:
    one = catalog()[FILES[rung]].variant({}, "fp32")
    if threads is not None:
        most = threads * int(one.params["items"])
        assert one.geometry({"m": 1, "n": most}).block[0] == threads
    else:
        assert one.geometry({"m": 1, "n": most}).shared_bytes == 57344 * 4
    assert one.absent({"m": 1, "n": most}) is None
    assert one.absent({"m": 1, "n": most + 8}) is not None


BARRIER = "before the barrier"
OUTSIDE = "outside"
WRONG = "wrong"
WARPS = "    __syncthreads();  // the numbers of all warps are written\n"
MISTAKES: list[tuple[str, ...]] = [
    # Rung, what is changed, into what, how it shows, and with which inputs if not uniform ones.
    ("1", WARPS, "", BARRIER),
    ("1", "Lowest = -3.4028235e38f", "Lowest = 0.0f", WRONG, "negative"),
    (
        "1",
        "sum += __expf(to_float(from[c]) - maximum)",
        "sum += __expf(to_float(from[c]))",
        WRONG,
        "spikes",
    ),
    ("2", "    __syncthreads();  // those of all warps are written\n", "", BARRIER),
    (
        "2",
        "sum = sum * __expf(maximum - larger) + __expf(number",
        "sum = sum + __expf(number",
        WRONG,
    ),
    (
        "2",
        "constexpr float Lowest = -3.4028235e38f",
        "#define Lowest __int_as_float(0xff800000)\n",
        WRONG,
        "masked",
    ),
    ("3", WARPS, "", BARRIER),
    ("3", "if (c < columns) output", "output", ""),
    ("4", WARPS, "", BARRIER),
    (
        "4",
        "min(width * thread + i * threads, last)",
        "width * thread + i * threads",
        OUTSIDE,
    ),
    ("4", "if (row >= rows) return;", "", OUTSIDE),
    ("5", "mbarrier_wait(full[p], 0);", "", WRONG),
    ("5", "min(piece, vectors - first)", "piece", OUTSIDE),
    ("6", "mbarrier_wait(full[p], 0);", "", WRONG),
    ("6", "    cluster_barrier();  // those of all blocks are written\n", "", WRONG),
    (
        "6",
        "    cluster_barrier();  // they have been read: blocks may leave\n",
        "",
        "has ended",
    ),
    ("7", "mbarrier_wait(full[ahead.stage], ahead.parity);", "", "more arrivals"),
    ("7", "ahead.parity);", "0);", WRONG),
    (
        "7",
        "        cluster_barrier();  // those of all warps of all blocks are written\n",
        "",
        WRONG,
    ),
    (
        "7",
        "    cluster_barrier();  // what is in this block has been read",
        "//",
        "has ended",
    ),
    ("7", "16 * min(room, vectors - asked)", "16 * room", OUTSIDE),
    ("7", "if (piece + i >= vectors) continue;", "", ""),
    (
        "8",
        "    cluster_barrier();  // the barriers of all blocks are there",
        "    __syncthreads();",
        "no mbarrier",
    ),
    ("8", "    mbarrier_wait(sent, 0);\n", "", "has ended"),
    ("8", "if (thread + i * Block < vectors) words", "words", WRONG),
    ("8", "i < Cluster * warps; i += 32", "i < warps; i += 32", WRONG),
    ("8", "if (thread + i * Block < vectors) to", "to", ""),
    ("5", "    __syncthreads();  // those of all warps are written\n", "", WRONG),
    (
        "5",
        "{-3.4028235e38f, 0.0f}",
        "{__int_as_float(0xff800000), 0.0f}",
        WRONG,
        "masked",
    ),
    ("5", "        sum *= exp_to_zero(maximum - larger);\n", "", WRONG),
    ("triton online", "-3.4e38", '-float("inf")', WRONG, "masked"),
    ("triton online", "maximum = larger", "maximum = larger + 1", WRONG),
    (
        "triton online",
        "sums = sums * tl.exp(maximum - larger) + tl",
        "sums = sums + tl",
        WRONG,
    ),
    (
        "triton online",
        "columns < n - first, other=-float",
        "columns < n, other=-float",
        WRONG,
    ),
    (
        "triton held",
        'columns < n, other=-float("inf")',
        "columns < n, other=0.0",
        WRONG,
    ),
    (
        "triton held",
        "share = tl.exp(x - tl.max(x))",
        "share = tl.exp(x)",
        WRONG,
        "wide",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_show(tmp_path: Path, mistake: tuple[str, ...]) -> None:
    """As wrong outputs, or as what the emulator refuses."""
    rung, right, mistaken, shows, kind = (*mistake, "uniform")[:5]
    one = variant(rung, "fp32")
    sizes = [(2, 1060), (3, 140)] if rung in "56" else [(5, 264), (5, 136)]
    clusters = 0
    if rung == "7":
        one = variant(rung, "fp32", **SEVERAL)
        sizes = [(5, 3080)] * 2
        clusters = 2
    more = planted(tmp_path, one.kernel.source, right, mistaken)

    def is_wrong(size: tuple[int, int], loads: str) -> bool:
        elements = matrix("fp32", *size, "positive" if kind == "negative" else kind)
        if kind == "negative":
            elements -= 100
        return not worst(one, elements, loads=loads, clusters=clusters, **more) < 1

    wide, narrow = sizes
    ways = [{"size": wide, "loads": "late"}, {"size": narrow, "loads": "early"}]
    assert_shows(shows, is_wrong, ways)


def test_a_row_in_registers_is_asked_for_at_once() -> None:
    variants = [catalog()[FILES["4"]].variant({}, dtype) for dtype in ("fp32", "bf16")]
    for cubin in compiled_without_spills(variants):
        kinds = [one.split(".")[0] for one in opcodes(cubin, "sm_90a")]
        assert "LDG" not in kinds[kinds.index("FMNMX") :]


@pytest.mark.skipif(not compiler(), reason="Triton is not installed")
@pytest.mark.parametrize(
    "one", in_triton("softmax_libraries"), ids=lambda variant: variant.id
)
def test_each_in_triton_reads_and_writes_whole_vectors_and_spills_nothing(
    one: Variant,
) -> None:
    """A longer row is read twice."""
    found = facts_without_spills(one)
    block, warps, online = (
        int(one.params[name]) for name in ("block", "warps", "online")
    )
    vectors = block // (32 * warps) * ELEMENT_BYTES[one.dtype] // 16
    assert (found["ldg"], found["stg"]) == (vectors * (1 + online), vectors)

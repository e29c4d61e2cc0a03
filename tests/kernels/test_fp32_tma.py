"""gemm_tma, of whose warps some copy and the others multiply, without a GPU: results, mistakes, machine code."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from compiling import compile_variant, instructions
from conftest import ROOT
from covering import all_pairs
from emulator.hopper import ARCH, INCLUDE, wrong_in_fp32
from emulator.ptx import Fault
from ladder.catalogue.kernels import load_kernel
from ladder.model.kernel import Variant

pytestmark = pytest.mark.slow

KERNEL = load_kernel(ROOT / "kernels" / "gemm" / "simt" / "gemm_tma.yaml")
LOADS = ("early", "late")
SIZES: list[tuple[tuple[int, int, int], int]] = [
    ((130, 260, 44), 4),  # 2 x 2 tiles of 128 x 256, of which three are cut
    ((127, 252, 7), 1),  # less than a step of K
    ((3, 4, 32), 1),
    ((128, 512, 33), 2),
]
"""M x N x K, and tiles."""


def variant(bk: int = 8, stages: int = 3, walk: str = "searched") -> Variant:
    return KERNEL.variant({"bk": bk, "stages": stages, "walk": walk}, "fp32", "NN")


@pytest.mark.parametrize(("stages", "launch", "loads"), all_pairs([2, 3, 8], SIZES, LOADS))
def test_results_are_right(stages: int, launch: tuple[tuple[int, int, int], int], loads: str) -> None:
    """More stages than steps, as many, and fewer."""
    size, tiles = launch
    assert wrong_in_fp32(variant(stages=stages), size, tiles, loads=loads) == 0


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(
    ("bk", "stages", "walk"),
    [(8, 16, "rows"), (16, 4, "snake"), (16, 8, "searched"), (32, 4, "columns")],
)
def test_results_of_other_parameters_are_right(bk: int, stages: int, walk: str, loads: str) -> None:
    assert wrong_in_fp32(variant(bk, stages, walk), (130, 260, 76), 4, loads=loads) == 0


@pytest.mark.parametrize("k", [1, 8, 16, 23, 24, 25, 32, 160])
def test_depths_around_the_end_of_the_ring_are_right(k: int) -> None:
    for loads in LOADS:
        assert wrong_in_fp32(variant(), (20, 20, k), 1, loads=loads) == 0


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_k_of_0_and_without_c(beta: float, loads: str) -> None:
    """Where K is 0 the result is beta * C. Where beta is 0, C is not read: it holds NaN."""
    for k in (0, 20):
        assert wrong_in_fp32(variant(), (130, 260, k), 4, beta, loads=loads) == 0


RELEASE = "        mbarrier_arrive(held);\n"
FRAGMENTS = "            thread_tile.load_b(at.offset, (step + 1)"
Launch = tuple[tuple[int, int, int], int, int]
WIDE: Launch = ((130, 260, 44), 4, 2)
AS_LONG: Launch = ((20, 20, 24), 1, 3)
LONG: Launch = ((20, 20, 160), 1, 2)
"""M x N x K, tiles, stages: fewer stages than steps, as many, and many passes through the ring."""
EARLY, LATE = LOADS
MISTAKES: list[tuple[dict[str, str], Launch, str, str]] = [
    # What is changed, where it runs, when loads land, and how it shows: threads wait for ever, or a wrong result.
    # The release of a stage, by consumers and to the producer.
    (
        {
            RELEASE: "",
            FRAGMENTS: "if (step == Tile::bk - 2 && thread % 32 == 0)\n"
            "for (int lane = 0; lane < 32; ++lane) mbarrier_arrive(held);\n" + FRAGMENTS,
        },
        WIDE,
        EARLY,
        "wrong",
    ),
    ({RELEASE: ""}, WIDE, EARLY, "ever"),
    ({RELEASE: "if (thread % 32 == 0) mbarrier_arrive(held);\n"}, WIDE, EARLY, "ever"),
    ({"stage.empty, Tile::threads);": "stage.empty, Tile::threads / 2);"}, LONG, EARLY, "ever"),
    ({"stage.empty, Tile::threads);": "stage.empty, Tile::threads + 1);"}, WIDE, EARLY, "ever"),
    ({"mbarrier_wait(stage.empty, at.parity ^ 1);  //": "//"}, WIDE, LATE, "more arrivals"),
    ({"stage.empty, at.parity ^ 1);  //": "stage.empty, at.parity);  //"}, WIDE, LATE, "ever"),
    ({"mbarrier_wait(stage.empty, at.parity ^ 1);\n    if": "if"}, AS_LONG, LATE, "wrong"),
    # What fills a stage.
    ({"    mbarrier_wait(at.in(memory).full, at.parity);\n    thread": "    thread"}, WIDE, LATE, "wrong"),
    ({"mbarrier_wait(at.in(memory).full, at.parity);\n            }": "}"}, WIDE, LATE, "wrong"),
    ({"warpgroup_threads + 1);": "warpgroup_threads);"}, WIDE, LATE, "wrong"),
    ({"warpgroup_threads + 1);": "warpgroup_threads + 2);"}, WIDE, LATE, "ever"),
    ({"arrive_after_copies(stage.full);\n    }": "arrive(stage.full);\n    }"}, WIDE, LATE, "wrong"),
    ({"sizeof(stage.b));": "sizeof(stage.b) / 2);"}, WIDE, LATE, "ever"),
    ({"    if (thread == 0) mbarrier_arrive(stage.full);\n": ""}, WIDE, EARLY, "ever"),
    # What is copied.
    ({"map_b, first, first_column": "map_b, first_column, first"}, WIDE, EARLY, "wrong"),
    ({"copy_a.advance_right();": ""}, WIDE, EARLY, "wrong"),
    ({"copy_a(a, m, k, first_row": "copy_a(a, m, k + 1, first_row"}, WIDE, EARLY, "outside of its buffer"),
    ({"threadIdx.x - Tile::threads);": "threadIdx.x % 127);"}, WIDE, EARLY, "wrong"),
    ({"LayoutB = Plain<Tile::bk, Tile::bn>": "LayoutB = Padded<Tile::bk, Tile::bn, 4>"}, WIDE, EARLY, "wrong"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "launch", "loads", "shows"), MISTAKES)
def test_mistakes_show(changes: dict[str, str], launch: Launch, loads: str, shows: str) -> None:
    text = KERNEL.source.read_text(encoding="utf-8")
    for right, mistake in changes.items():
        assert text.count(right) == 1, right
        text = text.replace(right, mistake)
    size, tiles, stages = launch
    try:
        found = "wrong" if wrong_in_fp32(variant(stages=stages), size, tiles, loads=loads, text=text) else ""
    except Fault as fault:
        found = str(fault)
    assert shows in found


# What is compiled.


def loop_of(one: Variant) -> list[str]:
    """Opcodes of the consumers' loop over K, of a variant that does not spill."""
    cubin, facts = compile_variant(one, INCLUDE, ARCH)
    assert (facts["status"], facts["local_bytes"], facts["ldl"]) == ("ok", 0, 0)
    lines = instructions(cubin, ARCH)
    products = [place for place, line in enumerate(lines) if "FFMA" in line]
    jumps = ((place, re.search(r"BRA\b.*0x([0-9a-f]+)", line)) for place, line in enumerate(lines))
    begin, end = next(
        (at, place) for place, to in jumps if to and (at := int(to[1], 16) // 16) <= products[0] < place
    )
    return [re.sub(r"^@!?U?P\w+\s+", "", line).split()[0] for line in lines[begin : end + 1]]


def test_the_loop_only_loads_fragments_and_multiplies() -> None:
    loop = loop_of(variant(bk=16, stages=8))
    count = Counter(opcode.split(".")[0] for opcode in loop)
    assert (count["FFMA"], count["LDS"]) == (16 * 8 * 16, 16 * (8 + 16) // 4)
    assert count["LDGSTS"] == count["BAR"] == 0
    assert 0.05 < 1 - count["FFMA"] / len(loop) < 0.065


def test_one_warpgroup_copies_a_by_words_and_b_by_a_box() -> None:
    _, facts = compile_variant(variant(bk=16, stages=8), INCLUDE, ARCH)
    assert (facts["ldgsts"], facts["utmaldg"]) == (128 * 16 // 128, 1)
    assert facts["registers"] * 384 <= 65536

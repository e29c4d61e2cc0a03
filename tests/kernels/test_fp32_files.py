"""The FP32 ladder as files: results on the emulator, planted mistakes, and machine code.

Each is held against the kernel with parameters that makes the same rung (sweep fp32_ladder).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from checkout import catalog, facts_without_spills
from conftest import ROOT
from emulator.hopper import wrong_in_fp32
from emulator.ptx import Fault
from ladder.model.kernel import Variant

FILES = {
    path.stem[0]: path.stem
    for path in sorted((ROOT / "kernels" / "gemm" / "fp32").glob("*.cu"))
}

SMALL: dict[str, dict[str, Any]] = {
    "1": {},
    "2": {},
    "3": {"tile": 16},
    "4": {"bm": 64, "bn": 64, "tm": 4, "tn": 4},
    "5": {"bm": 64, "bn": 64, "tm": 4, "tn": 4, "bk": 16},
    "6": {"bm": 64, "bn": 64, "tm": 4, "tn": 4, "bk": 16},
    "7": {"bm": 64, "bn": 64, "tm": 4, "tn": 4, "bk": 16, "stages": 4},
    "8": {"bk": 8, "stages": 2},
}
"""Other parameters than the default ones."""

LOADS = ("early", "late")
SIZES = [(130, 132, 44), (3, 4, 8)]
ODD_SIZES = [(33, 37, 7), (1, 1, 1)]  # rows that no 16-byte access divides


def variant(rung: str, **params: Any) -> Variant:
    return catalog()[FILES[rung]].variant(params, "fp32", "NN")


def sizes(rung: str) -> list[tuple[int, int, int]]:
    return SIZES + ODD_SIZES if rung in "1234" else SIZES


def test_the_ladder_has_eight_files_each_about_a_page() -> None:
    assert "".join(FILES) == "12345678"
    for name in FILES.values():
        lines = (
            (ROOT / f"kernels/gemm/fp32/{name}.cu")
            .read_text(encoding="utf-8")
            .splitlines()
        )
        assert len(lines) < 140, name


@pytest.mark.parametrize("rung", FILES)
def test_results_are_right_at_whole_and_at_odd_tiles(rung: str) -> None:
    for params in ({}, SMALL[rung]):
        for size in sizes(rung):
            for loads in LOADS if rung in "78" else LOADS[:1]:
                assert (
                    wrong_in_fp32(variant(rung, **params), size, None, loads=loads) == 0
                ), (
                    params,
                    size,
                    loads,
                )


@pytest.mark.parametrize("rung", FILES)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_k_of_0_and_without_c(rung: str, beta: float) -> None:
    """Where K is 0 the result is beta * C. Where beta is 0, C is not read: it holds NaN."""
    for k in (0, 8):
        assert wrong_in_fp32(variant(rung), (130, 132, k), None, beta) == 0


@pytest.mark.parametrize("k", [8, 16, 24, 32, 36, 160])
def test_depths_around_the_end_of_the_ring_are_right(k: int) -> None:
    for loads in LOADS:
        assert wrong_in_fp32(variant("7"), (20, 20, k), None, loads=loads) == 0
        assert (
            wrong_in_fp32(variant("8", bk=8, stages=4), (20, 20, k), None, loads=loads)
            == 0
        )


WORDS = {"4": 1, "5": 4, "6": 4, "7": 4}
"""How many words the threads of a file copy at a time, each of both tiles alike."""


@pytest.mark.parametrize("rung", WORDS)
def test_no_variant_copies_beyond_its_tiles(rung: str) -> None:
    """All threads together copy whole rows of a tile, and some number of times so many rows are all of its rows."""
    kernel, words = catalog()[FILES[rung]], WORDS[rung]
    values = itertools.product(*(axis.values for axis in kernel.parameters.values()))
    every = [
        kernel.variant(
            dict(zip(kernel.parameters, one, strict=True)), "fp32", excluded=True
        )
        for one in values
    ]
    allowed = [one for one in every if one.broken() is None]
    assert len(allowed) > 10
    for one in allowed:
        bm, bn, bk, tm, tn = (
            int(one.params[name]) for name in ("bm", "bn", "bk", "tm", "tn")
        )
        at_a_time = words * (bm // tm) * (bn // tn)
        for rows, columns in ((bm, bk), (bk, bn)):
            assert at_a_time % columns == 0, one.id
            assert rows % (at_a_time // columns) == 0, one.id


EARLY, LATE = LOADS
WIDE, LONG, AS_LONG = (130, 132, 44), (20, 20, 160), (20, 20, 32)
COMPLETE, READ = (
    "        __syncthreads();  // the tiles are complete\n",
    "        __syncthreads();  // all threads have read",
)
MISTAKES: list[tuple[str, str, str, tuple[int, int, int], str, str]] = [
    # Rung, what is changed, into what, where it runs, when copies land, and how it shows.
    ("3", COMPLETE, "", WIDE, EARLY, ""),
    ("3", READ, "//", WIDE, EARLY, ""),
    ("4", COMPLETE, "", WIDE, EARLY, ""),
    ("4", READ, "//", WIDE, EARLY, ""),
    ("5", COMPLETE, "", WIDE, EARLY, ""),
    ("5", READ, "//", WIDE, EARLY, ""),
    ("6", "        if (first > 0) __syncthreads();", "//", WIDE, EARLY, ""),
    ("6", "        __syncthreads();    // the tiles are complete\n", "", WIDE, EARLY, ""),
    ("7", "wait_for_copies<Stages - 2>();", "wait_for_copies<Stages - 1>();", WIDE, LATE, ""),
    ("7", "        __syncthreads();  // the next tile", "//", WIDE, LATE, ""),
    ("8", "        mbarrier_arrive(read);\n", "", LONG, EARLY, "ever"),
    ("8", "stage.empty, consumers);", "stage.empty, consumers / 2);", LONG, EARLY, ""),
    ("8", "stage.empty, consumers);", "stage.empty, consumers + 1);", LONG, EARLY, "ever"),
    ("8", "mbarrier_wait(stage.empty, at.parity ^ 1);  //", "//", LONG, LATE, ""),
    ("8", "stage.empty, at.parity ^ 1);  //", "stage.empty, at.parity);  //", WIDE, LATE, "ever"),
    ("8", "    mbarrier_wait(at.in(memory).full, at.parity);\n    load", "    load", WIDE, LATE, ""),
    ("8", "mbarrier_wait(at.in(memory).full, at.parity);\n            }", "}", WIDE, LATE, ""),
    ("8", "warpgroup_threads + 1);", "warpgroup_threads);", WIDE, LATE, ""),
    ("8", "warpgroup_threads + 1);", "warpgroup_threads + 2);", WIDE, LATE, "ever"),
    ("8", "arrive_after_copies(stage.full);\n    }", "arrive(stage.full);\n    }", WIDE, LATE, ""),
    ("8", "sizeof(stage.b));", "sizeof(stage.b) / 2);", WIDE, LATE, "ever"),
    ("8", "    if (thread == 0) mbarrier_arrive(stage.full);\n", "", AS_LONG, EARLY, "ever"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rung", "right", "mistake", "size", "loads", "shows"), MISTAKES
)
def test_mistakes_show(
    rung: str,
    right: str,
    mistake: str,
    size: tuple[int, int, int],
    loads: str,
    shows: str,
) -> None:
    """As a wrong result, or as what the emulator refuses: a race, an access outside, threads that wait for ever."""
    given = variant(rung, **({"bk": 8, "stages": 4} if rung == "8" else {}))
    text = given.kernel.source.read_text(encoding="utf-8")
    assert text.count(right) == 1, right
    try:
        wrong = wrong_in_fp32(
            given, size, None, loads=loads, text=text.replace(right, mistake)
        )
        found = "wrong" if wrong else "nothing"
    except Fault as fault:
        found = str(fault)
    assert found != "nothing"
    assert shows in found


# What is compiled.


READS = ("lds_32", "lds_64", "lds_128")
"""Of shared memory."""


def test_the_register_tile_reads_shared_memory_by_vectors_of_four_steps() -> None:
    """Of A, which lies along K: what its comment says of registers."""
    own = facts_without_spills(variant("4"))
    assert (own["ffma"] // 8, sum(own[name] for name in READS)) == (
        8 * 8 + 8,
        8 * 2 + 8 * 2,
    )
    assert own["registers"] > 128


def test_vectors_read_as_much_of_shared_memory_but_need_fewer_registers() -> None:
    """Than the register tile: what the comments of the two files say."""
    before, after = (facts_without_spills(variant(rung)) for rung in "45")
    assert sum(before[name] for name in READS) == sum(after[name] for name in READS)
    assert (before["registers"], after["registers"]) == (164, 123)

"""The FP32 ladder as files: results on the emulator, planted mistakes, and machine code.

Each is held against the kernel with parameters that makes the same rung (sweep fp32_ladder).
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from checkout import catalog, every_sweep, facts_without_spills, rungs_of
from emulator.launching import LOADS, assert_shows, planted, wrong
from ladder.model.kernel import Variant

FILES = rungs_of("gemm/fp32")
TILE = {"bm": 64, "bn": 64, "tm": 4, "tn": 4}
SMALL: dict[str, dict[str, Any]] = {
    "1": {},
    "2": {},
    "3": {"tile": 16},
    "4": TILE,
    "4b": TILE,
    "5": TILE | {"bk": 16},
    "5b": TILE | {"bk": 16},
    "5c": TILE | {"bk": 16},
    "5d": TILE | {"bk": 16},
    "6": TILE | {"bk": 16, "blocks": 1},
    "6b": TILE | {"bk": 16, "min_blocks": 2},
    "6d": TILE | {"bk": 16, "min_blocks": 1},
    "7": TILE | {"bk": 16, "stages": 4},
    "7b": {"bn": 128, "tn": 8, "bk": 16, "stages": 2},
    "7c": {"bn": 128, "tn": 8, "bk": 16, "stages": 2},
    "7d": {"bn": 128, "tn": 8, "bk": 8, "stages": 2},
    "7e": {"bn": 128, "tn": 8, "bk": 8, "stages": 2},
    "8": {"bk": 8, "stages": 2},
}
"""Other parameters than the default ones."""
SIZES = [(130, 132, 44), (3, 4, 8)]
ODD_SIZES = [(33, 37, 7), (1, 1, 1)]  # rows that no 16-byte access divides
WORD_BY_WORD = ("1", "2", "3", "4", "4b")
BY_CP_ASYNC = ("7", "7b", "7c", "7d", "7e", "8")


def variant(rung: str, **params: Any) -> Variant:
    return catalog()[FILES[rung]].variant(params, "fp32", "NN")


@pytest.mark.parametrize("rung", FILES)
def test_results_are_right_at_whole_and_at_odd_tiles(rung: str) -> None:
    for params in ({}, SMALL[rung]):
        for size in SIZES + ODD_SIZES if rung in WORD_BY_WORD else SIZES:
            for loads in LOADS if rung in BY_CP_ASYNC else LOADS[:1]:
                case = params, size, loads
                assert wrong(variant(rung, **params), size, loads=loads) == 0, case


@pytest.mark.parametrize("rung", FILES)
def test_k_of_0_and_without_c(rung: str) -> None:
    """Where K is 0 the result is beta * C. Where beta is 0, C is not read: it holds NaN."""
    for k, beta in ((0, 0.0), (0, 0.5), (8, 0.0)):
        assert wrong(variant(rung), (130, 132, k), beta) == 0, (k, beta)


@pytest.mark.parametrize("k", [8, 16, 24, 32, 36, 160])
def test_depths_around_the_end_of_the_ring_are_right(k: int) -> None:
    for loads in LOADS:
        deep = [variant(rung, bk=8, stages=4) for rung in ("7d", "7e", "8")]
        for given in (variant("7"), *deep):
            assert wrong(given, (20, 20, k), loads=loads) == 0, loads


WORDS = {
    **dict.fromkeys(("4", "4b"), 1),
    **dict.fromkeys(("5", "5b", "5c", "5d", "6", "6b", "6d", "7", "7b", "7c"), 4),
}
"""How many words the threads of a file copy at a time, each of both tiles alike."""


@pytest.mark.parametrize("rung", WORDS)
def test_no_variant_copies_beyond_its_tiles(rung: str) -> None:
    """All threads together copy whole rows of a tile, and some number of times so many rows are all of its rows."""
    kernel = catalog()[FILES[rung]]
    allowed = 0
    for values in itertools.product(
        *(axis.values for axis in kernel.parameters.values())
    ):
        params = dict(zip(kernel.parameters, values, strict=True))
        one = kernel.variant(params, "fp32", excluded=True)
        if one.broken() is not None:
            continue
        allowed += 1
        bm, bn, bk, tm, tn = (
            int(params[name]) for name in ("bm", "bn", "bk", "tm", "tn")
        )
        at_a_time = WORDS[rung] * (bm // tm) * (bn // tn)
        for rows, columns in ((bm, bk), (bk, bn)):
            assert at_a_time % columns == 0, one.id
            assert rows % (at_a_time // columns) == 0, one.id
    assert allowed >= 10


TWO_BARRIERS = ("3", "4", "4b", "5", "5b", "5c", "5d")
NEXT_TILES = ("6b", "6d")
RINGS = ("7", "7b", "7c", "7d")
COMPLETE = "        __syncthreads();  // the tiles are complete\n"
READ = "        __syncthreads();  // all threads have read"
TILE_WAIT = "wait_for_copies<Stages - 2>();"
LATER = "wait_for_copies<Stages - 1>();"
NEXT_TILE = "        __syncthreads();  // the next tile"
FIRST = "    __syncthreads();  // the first tiles are complete\n"
NEXT = "__syncthreads();  // these tiles are complete"
DEEP = {"bk": 8, "stages": 4}
FULL_WAIT = "mbarrier_wait(at.in(memory).full, at.parity);\n            }"
MISTAKES = [
    # Rung, what is changed, into what, and how it shows.
    *((rung, COMPLETE, "", "") for rung in TWO_BARRIERS),
    *((rung, READ, "//", "") for rung in TWO_BARRIERS),
    ("6", "        if (first > 0) __syncthreads();", "//", ""),
    ("6", "        __syncthreads();    // the tiles are complete\n", "", ""),
    *((rung, FIRST, "", "") for rung in NEXT_TILES),
    *((rung, NEXT, "//", "") for rung in NEXT_TILES),
    *((rung, TILE_WAIT, LATER, "") for rung in RINGS),
    *((rung, NEXT_TILE, "//", "") for rung in RINGS),
    ("7e", "__syncthreads();  // all threads have read", "//", ""),
    ("7e", "threads + 1);", "threads);", ""),
    ("7e", "arrive_after_copies(stage.full);", "arrive(stage.full);", ""),
    ("7e", "            mbarrier_arrive(stage.full);", "", "ever"),
    ("8", "        mbarrier_arrive(read);\n", "", "ever"),
    ("8", "stage.empty, consumers);", "stage.empty, consumers / 2);", ""),
    ("8", "mbarrier_wait(stage.empty, at.parity ^ 1);  //", "//", ""),
    ("8", FULL_WAIT, "}", ""),
    ("8", "warpgroup_threads + 1);", "warpgroup_threads);", ""),
    ("8", "arrive_after_copies(stage.full);\n    }", "arrive(stage.full);\n    }", ""),
    ("8", "sizeof(stage.b));", "sizeof(stage.b) / 2);", "ever"),
    ("8", "    if (thread == 0) mbarrier_arrive(stage.full);\n", "", "ever"),
]
SEEN_AT = [(130, 132, 44), (20, 20, 160), (20, 20, 32)]


@pytest.mark.parametrize(("rung", "right", "mistake", "shows"), MISTAKES)
def test_mistakes_show(
    tmp_path: Path, rung: str, right: str, mistake: str, shows: str
) -> None:
    """As a wrong result, or as what the emulator refuses: a race, an access outside, threads that wait for ever.

    Also where the first warp comes last.
    """
    given = variant(rung, **(DEEP if rung in ("7e", "8") else {}))
    more = planted(tmp_path, given.kernel.source, right, mistake)
    ways = [
        {"size": size, "loads": loads, "behind": range(behind)}
        for size, behind, loads in itertools.product(SEEN_AT, (0, 32), LOADS)
    ]
    assert_shows(shows, partial(wrong, given, **more), ways)


def test_what_the_comments_say_of_registers() -> None:
    """Of rungs 4, 4b and 5, and that they read as much of shared memory; of rungs 6b and 7b."""
    plain, transposed, vectors = (
        facts_without_spills(variant(rung)) for rung in ("4", "4b", "5")
    )
    reads = ("lds_32", "lds_64", "lds_128")
    for later in (transposed, vectors):
        assert sum(plain[name] for name in reads) == sum(later[name] for name in reads)
    assert plain["registers"] == 164
    assert transposed["registers"] == 127
    assert vectors["registers"] == 123
    assert facts_without_spills(variant("6b"))["registers"] == 149
    assert facts_without_spills(variant("7b"))["registers"] == 211


@pytest.mark.parametrize(
    "rung", ["5", "5b", "5c", "5d", "6", "6b", "6d", "7", "7b", "7c", "7d"]
)
def test_a_file_multiplies_and_reads_as_the_kernel_with_parameters(rung: str) -> None:
    """As many FFMAs and loads of 16 bytes from shared memory as the variant beside it in fp32_files, and no spills."""
    pairs = [
        (entry.variant, entry.baseline.variant)
        for entry in every_sweep()["fp32_files"].entries
        if entry.baseline and entry.variant.kernel.name == FILES[rung]
    ]
    assert pairs
    for file, with_parameters in pairs:
        made, wanted = map(facts_without_spills, (file, with_parameters))
        for name in ("ffma", "lds_128"):
            assert made[name] == wanted[name], (file.id, name)

"""The table of what escapes the checks of a launch: as the page has it, and as planted errors show."""

from __future__ import annotations

import itertools
import math
import re

import escapes
import numpy as np
import pytest
from escapes import (
    PAGE,
    SIZES,
    Planted,
    by_rows,
    by_spots,
    caught,
)
from ladder.problems.gemm import PROBLEM
from ladder.problems.gemm.bounds import accumulation_bound
from problems.test_mutations import by_elements, by_signs, drawn, roundoff, stored


def test_the_page_has_the_tables_of_the_present_bounds() -> None:
    """`python tests/escapes.py --write` puts them there."""
    page = PAGE.read_text()
    assert escapes.written(page) == page


def test_an_error_stands_in_one_of_the_two_columns_of_gemms() -> None:
    """In that of chances where it escapes a run at some size."""
    columns = {
        name: (always, escapes)
        for _, name, always, escapes, _ in (
            re.split(r" *\| *", re.sub(r" \(.*?\)", "", line))
            for line in escapes.lines()
        )
    }
    for name, dtype in itertools.product(escapes.NAMES, PROBLEM.dtypes):
        always, some = columns[name]
        escapes_some = min(escapes.chances(name, dtype).values()) < 0.9995
        assert bool(re.search(rf"\b{dtype}: ", some)) is escapes_some
        seen = always == "all types" or bool(re.search(rf"\b{dtype}\b", always))
        assert seen is not escapes_some, (name, dtype)


def test_a_tile_that_is_wrong_in_one_launch_of_ten_is_found_in_19_usual_cells_of_20() -> (
    None
):
    for look in (escapes.attention_look(128), escapes.stencil_look(1024)):
        assert look.by_tile == 1
        fewest, usual, many = (
            escapes.found(look, launches, 0.1) for launches in escapes.CELLS
        )
        assert 0.8 < fewest < 0.95 < usual < many


ESCAPE = {
    ("a 128 x 128 tile of another answer", "fp8", 16384),
    # All elements show these before and after timing: fp32's with inputs over many binades.
    ("fewer bits", "fp32", 65536),
    ("fewer bits", "fp32", 262144),
    ("fewer bits", "fp32", 1048576),
    ("fewer bits", "tf32", 262144),
    ("fewer bits", "fp16_acc16", 65536),
}
CAUGHT = (
    "a 128 x 128 tile of another answer",
    "1 % of the tiles of another answer",
    "1/64 of the products left out",
    "fewer bits",
)


def test_wrong_tiles_and_left_out_products_escape_no_run_but_in_fp8_at_16384() -> None:
    for error in itertools.product(CAUGHT, PROBLEM.dtypes, SIZES):
        _, dtype, k = error
        if not PROBLEM.unsupported({"k": k}, dtype):
            assert (caught(*error) > 0.999) is (error not in ESCAPE), error


def test_larger_errors_are_seen_more_often() -> None:
    sizes = [
        by_rows(Planted(128, 128, 0.01 * 2**step), "bf16", 1024) for step in range(12)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] < 0.001 < 0.999 < sizes[-1]


K = 256
TRIALS = 60
"""Planted in true products of 256 x 256 x 256, with the inputs, signs and bounds of the checks."""


def assert_as_often(seen: int, expected: float) -> None:
    """As chance allows, to four standard deviations."""
    spread = math.sqrt(max(expected * (1 - expected), 0.02) / TRIALS)
    assert abs(seen / TRIALS - expected) < 4 * spread, (seen / TRIALS, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "rows", "columns"),
    [
        ("fp8", 1, 4),
        ("fp16_acc16", 2, 8),
        ("fp16", 1, 1),
    ],
)
def test_the_row_check_sees_planted_errors_as_often_as_the_table_says(
    dtype: str, rows: int, columns: int
) -> None:
    random = np.random.default_rng(7)
    seen = 0
    size = escapes.R * math.sqrt(2 * K)
    for _ in range(TRIALS):
        a = drawn(random, dtype, (1, K, K))
        b = drawn(random, dtype, (1, K, K))
        c = stored(a @ b.astype(np.float64), dtype)
        c[:, :rows, :columns] += random.normal(0, size, (rows, columns))
        c = stored(c, dtype)
        x = random.choice([-1.0, 1.0], (1, K))
        seen += bool(
            by_signs(c, a, b, x, roundoff(dtype), dtype)[0]
            > accumulation_bound(dtype, K)
        )
    expected = by_rows(Planted(rows, columns, size), dtype, K)
    assert_as_often(seen, expected)


@pytest.mark.parametrize(
    ("dtype", "size"), [("fp8", 5.0), ("bf16", 0.2), ("fp16_acc16", 2.0)]
)
def test_spots_see_planted_errors_as_often_as_the_table_says(
    dtype: str, size: float
) -> None:
    """A tile of 128 x 128, and 128 groups of eight neighbours drawn by chance as the check draws them."""
    random = np.random.default_rng(8)
    seen = 0
    a = drawn(random, dtype, (K, K))
    b = drawn(random, dtype, (K, K))
    right = stored(a @ b.astype(np.float64), dtype)
    for _ in range(TRIALS):
        c = right.copy()
        c[:32, :32] += random.normal(0, size, (32, 32))
        c = stored(c, dtype)
        rows = random.integers(0, K, 8)
        groups = random.integers(0, K // 8, 8)
        found = [
            by_elements(
                c[[row], at * 8 : at * 8 + 8],
                a[[row]],
                b[:, at * 8 : at * 8 + 8],
                roundoff(dtype),
            )
            for row, at in zip(rows, groups, strict=True)
        ]
        seen += max(found) > accumulation_bound(dtype, K)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(escapes, "ROWS", 8)
        expected = by_spots(Planted(32, 32, size), dtype, K)
    assert_as_often(seen, expected)

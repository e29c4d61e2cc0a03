"""How often the checks of a timed launch see what is wrong with it: planted errors, by size and type.

`python tests/escapes.py` prints the tables of docs/judge.md; with --write it puts them there.

GEMMs of inputs in [-1, 1): a product has a root mean square of R = 1/3, an element of C one of R sqrt(K), and
|A||B| is K / 4. A planted error is normal; what the row check sees of a row is then normal with the error's root mean
square times the root of how many elements of the row are wrong, and an element that a spot hits is normal as well. What
both allow is what bounds.py says. Honest errors are far smaller and left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "workflow")]

from ladder.measure.watch import BY_TILE  # noqa: E402
from ladder.problems.attention import instance as attention  # noqa: E402
from ladder.problems.gemm import PROBLEM, output_dtype  # noqa: E402
from ladder.problems.gemm.bounds import (  # noqa: E402
    ROUNDING,
    accumulation_bound,
    chance_factor,
    rms_bound,
    row_tolerance,
)
from ladder.problems.registry import PROBLEMS  # noqa: E402
from ladder.problems.stencil import instance as stencil  # noqa: E402

PAGE = Path(__file__).resolve().parent.parent / "docs/judge.md"
SIZES = (1024, 2048, 4096, 8192, 16384, 65536, 262144, 1048576)
LARGEST = 16384  # of which M and N are K; they are 1024 for a longer one
LAUNCHES = (
    13  # of a variant, the fewest that are timed: 12 pairs and the one that warms up
)
ROWS, COLUMNS = 128, 8  # of spots, and neighbours that a spot compares
TILE = 128
R = 1 / 3
FEWER_BITS = {
    "fp32": "3 bf16 products",
    "tf32": "bf16 inputs",
    "fp16": "bf16 inputs",
    "fp16_acc16": "fp8 inputs",
    "bf16": "fp8 inputs",
    "fp8": "3 bits",
}
_BITS = {"bf16 inputs": 8, "fp8 inputs": 4, "3 bits": 3}


@dataclass(frozen=True)
class Planted:
    """Wrong elements: how many rows, how many in each of these, and the root mean square of what is wrong."""

    rows: int
    columns: int
    size: float


def side(k: int) -> int:
    """M and N."""
    return k if k <= LARGEST else 1024


def _above(limit: float, spread: float) -> float:
    """The chance that a normal number with this spread is further from 0 than the limit."""
    return math.erfc(limit / spread / math.sqrt(2)) if spread > 0 else 0.0


def planted(name: str, dtype: str, k: int) -> Planted:
    """An error of that name in a GEMM of `side` x `side` x k."""
    n = side(k)
    # Of an element, and of the difference of two.
    spread, other = (
        R * math.sqrt(k),
        R * math.sqrt(2 * k),
    )
    tiles = max(1, round(0.01 * (n / TILE) ** 2))
    # Of 3 bf16 products, see tests/problems/test_gemm_bounds.py.
    narrow = 85 / math.sqrt(k) * 2**-24 * k / 4
    if (bits := _BITS.get(FEWER_BITS[dtype])) is not None:
        narrow = 0.53 * 2.0**-bits * spread
    return {
        "an element of another answer": Planted(1, 1, other),
        "a row of another answer": Planted(1, n, other),
        "a 128 x 128 tile of another answer": Planted(TILE, TILE, other),
        "a 128 x 128 tile of zeros": Planted(TILE, TILE, spread),
        # Spread over C: in 128 rows each, as good as never in the same ones.
        "1 % of the tiles of another answer": Planted(
            min(n, TILE * tiles), TILE * max(1, TILE * tiles // n), other
        ),
        "1/64 of the products left out": Planted(n, n, R * math.sqrt(k / 64)),
        "fewer bits": Planted(n, n, narrow),
    }[name]


NAMES = (
    "an element of another answer",
    "a row of another answer",
    "a 128 x 128 tile of another answer",
    "a 128 x 128 tile of zeros",
    "1 % of the tiles of another answer",
    "1/64 of the products left out",
    "fewer bits",
)


def row_limit(dtype: str, k: int) -> float:
    """What the sum of a row's errors with random signs may be."""
    rounding = ROUNDING[output_dtype(dtype)] / math.sqrt(3) * R * math.sqrt(k)
    n = side(k)
    return (
        chance_factor(n) * math.sqrt(n) * (row_tolerance(dtype, k) * k / 3 + rounding)
    )


def by_rows(error: Planted, dtype: str, k: int) -> float:
    """The chance that the row check of one launch sees it."""
    one = _above(row_limit(dtype, k), error.size * math.sqrt(error.columns))
    return float(-math.expm1(error.rows * math.log1p(-one))) if one < 1 else 1.0


def by_spots(error: Planted, dtype: str, k: int) -> float:
    """The chance that the spots of one launch see it, one by one or by the root mean square of all."""
    limit = accumulation_bound(dtype, k) * k / 4 + ROUNDING[
        output_dtype(dtype)
    ] * R * math.sqrt(k)
    n = side(k)
    hit = error.rows / n * min(1.0, math.ceil(error.columns / COLUMNS) / (n / COLUMNS))
    seen = 1 - (1 - _above(limit, error.size)) ** min(error.columns, COLUMNS)
    single = 1 - (1 - hit * seen) ** ROWS
    allowed = rms_bound(dtype, k, "uniform", ROWS * COLUMNS) * k / 4
    if hit < 1 or error.size <= 0 or math.isinf(allowed):
        return single
    spread = math.sqrt(2 / (ROWS * COLUMNS))
    together = 0.5 * math.erfc((allowed**2 / error.size**2 - 1) / spread / math.sqrt(2))
    return 1 - (1 - single) * (1 - together)


def caught(name: str, dtype: str, k: int) -> float:
    """The chance that one of LAUNCHES is seen to be wrong."""
    error = planted(name, dtype, k)
    launch = 1 - (1 - by_rows(error, dtype, k)) * (1 - by_spots(error, dtype, k))
    return -math.expm1(LAUNCHES * math.log1p(-launch)) if launch < 1 else 1.0


def share(value: float) -> str:
    if value < 0.005:
        return "0"
    return "100" if value > 0.9995 else f"{100 * value:.{1 if value > 0.99 else 0}f}"


def chances(name: str, dtype: str) -> dict[int, float]:
    """Size -> `caught`, of sizes that are judged."""
    judged = [k for k in SIZES if not PROBLEM.unsupported({"k": k}, dtype)]
    return {k: caught(name, dtype, k) for k in judged}


def lines() -> Iterator[str]:
    """The table of GEMMs, in Markdown: types in which an error is always seen, and how often in the others."""
    yield "| planted | always seen | percent where it is not, at K |"
    yield "|---|---|---|"
    for name in NAMES:
        always, escapes = [], []
        for dtype in PROBLEM.dtypes:
            what = f"{dtype} ({FEWER_BITS[dtype]})" if name == "fewer bits" else dtype
            sizes: dict[str, list[str]] = {}
            for k, seen in chances(name, dtype).items():
                sizes.setdefault(share(seen), []).append(str(k))
            sizes.pop("100", None)
            if sizes:
                listed = [f"{seen} at {' and '.join(at)}" for seen, at in sizes.items()]
                escapes.append(f"{what}: {', '.join(listed)}")
            else:
                always.append(what)
        types = ", ".join(always) if escapes else "all types"
        yield f"| {name} | {types} | {'; '.join(escapes)} |"


# Attention and stencils: rows and outputs are looked at tile by tile.

CELLS = (13, 25, 60)
"""Timed launches of a variant: the fewest, as many as cells of attention and of stencils usually have, and many."""
FULL = 2
"""Comparisons of all outputs, before and after timing."""
ATTENTION = {"sequence": 2048, "heads": 128}


@dataclass(frozen=True)
class Look:
    """The chance that a launch is seen to be wrong where it is: the first launches of a cell, and those that follow.

    Behind these come launches with `others`, so many other kinds of inputs, which are looked at as the first ones.
    """

    by_tile: float
    sampled: float
    others: int


def attention_look(rows: int) -> Look:
    """Of so many neighbouring rows of a tile: one row of each tile, or of each in some groups of four tiles."""
    of_tile = rows / attention.TILE
    groups = (
        ATTENTION["heads"] * ATTENTION["sequence"] / (attention.ROWS * attention.TILE)
    )
    sampled = of_tile * min(1.0, attention.SAMPLED / groups)
    return Look(of_tile, sampled, other_kinds("attention"))


def stencil_look(outputs: int) -> Look:
    """Of so many neighbouring outputs of a tile: a stretch of it, which may begin anywhere, in each launch."""
    touching = (outputs + stencil.STRETCH - 1) / stencil.TILE
    return Look(min(1.0, touching), min(1.0, touching), other_kinds("stencil"))


def other_kinds(problem: str) -> int:
    """Of inputs: those of timed launches are uniform, and integers are for edges."""
    return len({*PROBLEMS[problem].inputs} - {"uniform", "integers"})


def found(look: Look, launches: int, rate: float) -> float:
    """The chance that a cell of so many timed launches is refused, of which one in 1 / `rate` is wrong."""
    first = min(launches, BY_TILE)
    passes = (1 - rate) ** FULL
    passes *= (1 - rate * look.by_tile) ** (first + look.others)
    return 1 - passes * (1 - rate * look.sampled) ** (launches - first)


def tile_lines() -> Iterator[str]:
    """The table of attention and stencils, in Markdown."""
    looks = {
        "a tile of 128 rows of attention": attention_look(128),
        "a row of attention": attention_look(1),
        "a tile of 1,024 outputs of a stencil": stencil_look(1024),
        "an output of a stencil": stencil_look(1),
    }
    cells = " | ".join(f"after {n} launches" for n in CELLS)
    yield f"| wrong | seen in one launch | refused {cells} |"
    yield f"|---|---|{'---|' * len(CELLS)}"
    for name, look in looks.items():
        cells = " | ".join(share(found(look, launches, 0.1)) for launches in CELLS)
        yield f"| {name} | {share(look.by_tile)} | {cells} |"


TABLES = {
    "escapes": lines,
    "escapes of tiles": tile_lines,
}
"""Name of a table on the page -> its lines."""


def written(page: str) -> str:
    """The page with the tables that are right now. Raises ValueError where it has not one place for each."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = before + "\n".join([begin, *table(), "", end]) + after
    return page


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text()))
    else:
        print(*lines(), "", *tile_lines(), sep="\n")

"""Claims of register-cache are about its k, which is a radius, in its blocks of 1024 threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from checkout import every_sweep
from ladder.claims.ledger import CLAIMS, decided, rows_of
from ladder.claims.primitives import Part
from ladder.problems.registry import PROBLEMS
from ladder.problems.stencil import halo
from ladder.results import tables
from ladder.results.counters import DRAM_READ, SECTORS
from ladder.results.run_data import RunData

CACHE = "stencil_register_cache"
FACTS: dict[str, Any] = {
    "sweep": "stencil_reach",
    "regime": "cold",
    "elements": 2**26,
    "status": "ok",
    "registers": 32,
    "local_bytes": 0,
    "occupancy": 1.0,
    "instructions": 100,
}
"""What every variant has in common."""
Params = dict[str, Any]


def nothing(params: Params) -> dict[str, Any]:
    return {}


def made(
    speedup: Callable[[Params], float],
    code: Callable[[Params], dict[str, Any]] = nothing,
    counters: Callable[[str, Params], dict[str, float]] = lambda kernel, params: {},
) -> RunData:
    """Tables of the project's own stencil_reach: of each variant of the register cache its speed over shared memory."""
    sweep = every_sweep()["stencil_reach"]
    rows, counted = list[dict[str, Any]](), list[dict[str, Any]]()
    for entry in sweep.entries:
        variant = entry.variant
        params, cached = dict(variant.params), variant.kernel.name == CACHE
        against = sweep.reference.variant_for(variant)
        assert against is not None
        speed = speedup(params) if cached else 1.0
        row = FACTS | (code(params) if cached else {})
        row |= {"kernel": variant.kernel.name, "variant": variant.id}
        row |= {"dtype": variant.dtype, "params": json.dumps(params)}
        row |= {"reference": against.id, "speedup": speed}
        row |= {"speedup_low": speed * 0.999, "speedup_high": speed * 1.001}
        rows.append(row)
        for name, value in counters(variant.kernel.name, params).items():
            counted.append({**row, "metric": name, "value": value})
    frames = {"timings": rows, "resources": rows, "metrics": counted}
    return RunData(
        {sweep.name: sweep},
        {name: tables.frame(name, of_table) for name, of_table in frames.items()},
    )


BY_ID = {claim.id: claim for claim in CLAIMS}


def parts(claim_id: str, data: RunData) -> list[Part]:
    return decided(BY_ID[claim_id], data)[0]


def advice(claim_id: str, data: RunData) -> str:
    return decided(BY_ID[claim_id], data)[2]


def test_k_of_the_text_is_the_radius() -> None:
    """Its 1-stencil has 3 taps and takes 34 inputs for 32 outputs."""
    stencil, one = PROBLEMS["stencil"], {"radius": 1}
    assert stencil.taps(one) == 3
    assert 32 + halo(one) == 34
    assert stencil.work({"elements": 34}, "int32", one).operations == 32 * 3
    assert stencil.edges(one)[0] == [{"elements": 3}], "one output"


@pytest.mark.parametrize(("place", "words"), [(0, 34 * 32 / 1026), (1, 64 * 32 / 1056)])
def test_redundant_loads_are_words_and_sectors_stand_beside_them(
    place: int, words: float
) -> None:
    def counted(kernel: str, params: Params) -> dict[str, float]:
        return {SECTORS: 1.5 if kernel == CACHE else 1.0, DRAM_READ: 1.0}

    data = made(lambda params: 1.0, counters=counted)
    found = parts("redundant-loads", data)
    assert [one.verdict for one in found] == ["holds", "holds"]
    assert found[place].decisive.value == pytest.approx(words)
    beside = str(rows_of(BY_ID["redundant-loads"], data)[-1]["evidence"])
    assert "sectors at radius 16 over shared memory's, by the profiler: 1.5 x" in beside
    assert "bytes from DRAM at radius 16 over shared memory's: 1 x" in beside


@pytest.mark.parametrize(("spilled", "verdict"), [(64, "holds"), (0, "refuted")])
def test_a_fall_at_25_is_told_from_its_cause(spilled: int, verdict: str) -> None:
    def speedup(params: Params) -> float:
        several = 1.4 if params["coarsen"] > 1 else 1.0
        return several * (0.8 if params["radius"] >= 25 else 1.0)

    def code(params: Params) -> dict[str, Any]:
        large = params["radius"] == 25 and params["coarsen"] > 1
        return {"local_bytes": spilled, "occupancy": 0.5} if large else {}

    data = made(speedup, code)
    pays, falls, spills = parts("coarsening-pays-then-spills", data)
    assert (pays.verdict, falls.verdict, spills.verdict) == ("holds", "holds", verdict)
    assert (pays.span, falls.span) == ("1.40 x", "0.800 x")
    said = advice("coarsening-pays-then-spills", data)
    assert ("no register spills" in said) == (spilled == 0)
    assert "the occupancy is 50 % (100 % at radius 16)" in said
    level = parts(
        "coarsening-pays-then-spills",
        made(lambda params: 1.5 if params["coarsen"] > 1 else 1.0),
    )
    assert level[1].verdict == "equivalent", "no fall"


@pytest.mark.parametrize(
    ("full", "speed", "verdicts"),
    [
        (110, 1.0, ["refuted", "holds"]),
        (100, 0.95, ["holds", "refuted"]),
    ],
)
def test_a_full_mask_is_held_against_that_of_active_lanes(
    full: int, speed: float, verdicts: list[str]
) -> None:
    data = made(
        lambda params: speed if params["mask"] == "full" else 1.0,
        lambda params: {"instructions": full if params["mask"] == "full" else 100},
    )
    assert [one.verdict for one in parts("activemask", data)] == verdicts
    assert "a divergent branch" in advice("activemask", data)


def test_the_gain_is_decided_up_to_12_and_beyond() -> None:
    def speedup(params: Params) -> float:
        return 1.0 + 0.01 * min(params["radius"], 12)

    grows, levels_off = parts("register-cache-saturates", made(speedup))
    assert (grows.verdict, levels_off.verdict) == ("holds", "holds")
    assert levels_off.where == "holds at radius = 16, 25, 32"
    single, best = parts("register-cache-speedup", made(speedup))
    assert single.where == "holds at radius = 1, 2, 4, 8, 12, 16, 25, 32"
    assert {
        one.row["block"] for one in (*single.values.values, *best.values.values)
    } == {1024}
    assert {one.row["mask"] for one in single.values.values} == {"full"}, (
        "the text's own mask has a claim of its own"
    )

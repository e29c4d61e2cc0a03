"""Claims of `register-cache`: a one-dimensional stencil with its inputs in registers and shuffles.

The k of its k-stencil is the parameter `radius`. Blocks have 1024 threads, as in the text.
"""

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from ladder.claims.counters import metric
from ladder.claims.primitives import (
    SLIGHT,
    Parts,
    decide_part,
    is_faster,
    is_slower,
    note,
)
from ladder.problems.stencil import halo
from ladder.results.counters import DRAM_READ, SECTORS
from ladder.results.run_data import Row, Rows, RunData

_CACHE, _SHARED = "stencil_register_cache", "stencil_shared"


def _several(outputs: int) -> bool:
    return outputs > 1


def _as_in_the_text(select: Callable[..., Rows], kernel: str, **wanted: Any) -> Rows:
    """Rows of a kernel with int32, blocks of 1024 threads and shuffles with a full mask, unless others are wanted."""
    given = {"dtype": "int32", "block": 1024}
    if kernel == _CACHE:
        given["mask"] = "full"
    return select("stencil_reach", kernel, **given | wanted)


def register_cache_speedup(data: RunData) -> Parts:
    """The register cache beats shared memory, by up to 1.8x with several outputs per thread.

    Source: register-cache (results).
    """
    alone = data.speeds(_as_in_the_text(data.timed, _CACHE, coarsen=1))
    single = yield is_faster(
        "speed with one output per thread over shared memory", alone, "radius"
    )
    coarse = data.speeds(_as_in_the_text(data.timed, _CACHE, coarsen=_several))
    label = "speed with several outputs per thread over shared memory with one, at some radius and number"
    best = yield decide_part(label, coarse, least=1.8, some=True)
    cached, shared = (
        _as_in_the_text(data.timed, kernel, coarsen=8) for kernel in (_CACHE, _SHARED)
    )
    fair = data.speeds_over(cached, shared, "radius", "elements")
    yield note("speed over shared memory, eight outputs per thread in both", fair)
    return f"Give each thread several outputs ({best.span}); the register cache by itself brings {single.span}."


def register_cache_saturates(data: RunData) -> Parts:
    """The speed-up of the register cache over shared memory grows with k and levels off near k = 12.

    Source: register-cache (results).
    """
    # An output takes 2 k shuffles or 2 k + 1 shared loads, at 32 lanes a cycle each: these counts predict no
    # growing gain.
    gains = data.speeds(_as_in_the_text(data.timed, _CACHE, coarsen=1))
    short, middle, long = (
        gains.only(radius=one) for one in (1, 12, lambda radius: radius > 12)
    )
    growth = yield is_faster(
        "speed-up at radius 12 over that at radius 1", middle.over(short)
    )
    yield decide_part(
        "speed-up beyond radius 12 over that at radius 12",
        long.over(middle),
        near=1,
        margin=0.1,
        per="radius",
    )
    for name, pipe in (("ALU", "alu"), ("pipe of loads and shuffles", "lsu")):
        busy = metric(f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_active")
        for kernel in (_CACHE, _SHARED):
            counted = _as_in_the_text(data.timed, kernel, coarsen=1, radius=(1, 12, 32))
            yield note(f"{name} busy in {kernel}", data.numbers(counted, busy, "%"))
    return f"From radius 1 to 12 the speed-up of a register cache changes by {growth.span}."


def _words(row: Row) -> float:
    """Words that the warps of a block load, each with a halo of its own, over those that the block needs."""
    return float(row["block"] / 32 * (32 + halo(row)) / (row["block"] + halo(row)))


def redundant_loads(data: RunData) -> Parts:
    """A block of 1024 threads with a register cache loads about 6 % more than one with shared memory at k = 1,
    and at k = 16 nearly half of its loads are redundant.

    Source: register-cache (redundant loads).
    """
    # About 6 %: from 5 to 7 %. Nearly half are redundant: nearly twice as many, 1.8 times or more.
    stated: tuple[tuple[int, dict[str, Any]], ...] = (
        (1, {"near": 1.06, "margin": 0.01}),
        (16, {"least": 1.8}),
    )
    for radius, condition in stated:
        rows = _as_in_the_text(data.compiled, _CACHE, coarsen=1, radius=radius)
        label = f"words at radius {radius} over shared memory's, by the formula"
        words = yield decide_part(label, data.numbers(rows, _words, "x"), **condition)
        # The hardware moves sectors of eight words, so that two words of halo cost a whole sector.
        cached, shared = (
            _as_in_the_text(data.timed, kernel, coarsen=1, radius=radius)
            for kernel in (_CACHE, _SHARED)
        )
        sectors, dram = (
            data.ratios(cached, shared, metric(name), "elements")
            for name in (SECTORS, DRAM_READ)
        )
        yield note(
            f"sectors at radius {radius} over shared memory's, by the profiler",
            sectors,
        )
        yield note(f"bytes from DRAM at radius {radius} over shared memory's", dram)
    return (
        f"At radius 16 expect {words.span} the words and {sectors.span} the sectors, but {dram.span} the bytes "
        "from DRAM."
    )


def coarsening_pays_then_spills(data: RunData) -> Parts:
    """Several outputs per thread help the register cache, until at k = 25 its registers spill and it gets slower.

    Source: register-cache (results).
    """
    one, several = (
        _as_in_the_text(data.timed, _CACHE, coarsen=outputs)
        for outputs in (1, _several)
    )
    shorter = data.speeds_over(several, one, "radius", "elements").only(
        radius=lambda radius: radius < 25
    )
    speed = yield is_faster(
        "speed of several outputs per thread over one, below radius 25",
        shorter,
        "radius",
    )
    gains = data.speeds(several)
    before, at = (gains.only(radius=radius) for radius in (16, 25))
    change = at.over(before, "coarsen")
    label = "speed-up over shared memory at radius 25 over that at radius 16, several outputs per thread"
    fall = yield is_slower(label, change, "coarsen")
    code = _as_in_the_text(data.compiled, _CACHE, coarsen=_several, radius=(16, 25))
    bytes_spilled = data.numbers(code, itemgetter("local_bytes"), "bytes")
    registers = data.numbers(code, itemgetter("registers"))
    occupancy = data.numbers(code, lambda row: 100 * row["occupancy"], "%")
    spilled = yield decide_part(
        "bytes spilled at radius 25, at some number of outputs per thread",
        bytes_spilled.only(radius=25),
        least=1,
        some=True,
        per="coarsen",
    )
    shares = []
    for radius in (16, 25):
        held = registers.only(radius=radius)
        yield note(f"registers per thread at radius {radius}", held)
        shares.append(occupancy.only(radius=radius))
        yield note(f"occupancy at radius {radius}", shares[-1])
    advice = speed.either(
        "Give a thread several outputs", "Time several outputs per thread"
    )
    spills = spilled.either("registers spill", "no register spills")
    before_it, there = (share.span for share in shares)
    return (
        f"{advice}: {speed.span} the speed of one. At radius 25 the speed-up is {fall.span} that of radius 16: "
        f"{spills}, and the occupancy is {there} ({before_it} at radius 16)."
    )


def activemask(data: RunData) -> Parts:
    """A shuffle takes its mask from __activemask(); a full mask costs no more instructions and is as fast.

    Source: register-cache (one_stencil_with_rc).
    """
    wanted = {"coarsen": 1, "radius": 1}
    full, active = (
        _as_in_the_text(data.compiled, _CACHE, mask=mask, **wanted)
        for mask in ("full", "active")
    )
    instructions = data.ratios(full, active, itemgetter("instructions"))
    yield decide_part(
        "instructions with a full mask over those with __activemask()",
        instructions,
        most=1,
    )
    full, active = (
        _as_in_the_text(data.timed, _CACHE, mask=mask, **wanted)
        for mask in ("full", "active")
    )
    speeds = data.speeds_over(full, active, "elements")
    speed = yield decide_part(
        "speed with a full mask over that with __activemask()",
        speeds,
        near=1,
        margin=SLIGHT,
    )
    return (
        f"Name all lanes ({speed.span}): in a divergent branch __activemask() names only who happens to be there, and "
        "what is read from another lane is undefined."
    )

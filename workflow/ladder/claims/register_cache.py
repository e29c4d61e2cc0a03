"""Claims of `register-cache`: a one-dimensional stencil with its inputs in registers and shuffles."""

from typing import Any

from ladder.claims.counters import metric
from ladder.claims.primitives import SLIGHT, Parts, decide_part, note
from ladder.results.counters import DRAM_READ, SECTORS
from ladder.results.run_data import Row, Rows, RunData

_CACHE, _SHARED = "stencil_register_cache", "stencil_shared"


def _several(outputs: int) -> bool:
    return outputs > 1


def _reach(data: RunData, kernel: str = _CACHE, **wanted: Any) -> Rows:
    return data.timed("stencil_reach", kernel, dtype="int32", **wanted)


def register_cache_speedup(data: RunData) -> Parts:
    """The register cache beats shared memory, by up to 1.8x with several outputs per thread.

    Source: register-cache (results).
    """
    alone = data.speeds(_reach(data, coarsen=1))
    single = yield decide_part(
        "speed with one output per thread over shared memory", alone, least=1, margin=SLIGHT, per="k"
    )
    coarse = data.speeds(_reach(data, coarsen=_several))
    label = "speed with several outputs per thread over shared memory with one, at some k and number"
    best = yield decide_part(label, coarse, least=1.8, some=True)
    fair = data.speeds_over(_reach(data, coarsen=8), _reach(data, _SHARED, coarsen=8), "k", "elements")
    yield note("speed over shared memory, eight outputs per thread in both", fair, "x")
    return (
        f"Give each thread several outputs ({best.span}); the register cache by itself brings {single.span}."
    )


def register_cache_saturates(data: RunData) -> Parts:
    """The speed-up of the register cache over shared memory grows with k and levels off near k = 12.

    Source: register-cache (results).
    """
    # An output takes k shuffles or k + 1 shared loads, at 32 lanes a cycle each: these counts predict no growing gain.
    gains = data.speeds(_reach(data, coarsen=1))
    short, middle, long = (gains.only(k=k) for k in (2, 12, lambda k: k > 12))
    growth = yield decide_part(
        "speed-up at k = 12 over that at k = 2", middle.over(short), least=1, margin=SLIGHT
    )
    yield decide_part(
        "speed-up beyond k = 12 over that at k = 12", long.over(middle), near=1, margin=0.1, per="k"
    )
    counted = data.timed("stencil_reach", coarsen=1, dtype="int32", k=(2, 12, 32))
    for name, pipe in (("ALU", "alu"), ("pipe of loads and shuffles", "lsu")):
        busy = metric(f"sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_active")
        yield note(f"{name} busy", data.numbers(counted, busy), "%")
    return f"Use a register cache for a short reach: from k = 2 to 12 its speed-up changes by {growth.span}."


def redundant_loads(data: RunData) -> Parts:
    """A block of 1024 threads with a register cache loads about 6 % more than one with shared memory at k = 2,
    and nearly twice as much at k = 16.

    Source: register-cache (redundant loads).
    """

    def words(row: Row) -> float:
        return float(row["block"] / 32 * (32 + row["k"]) / (row["block"] + row["k"]))

    parts = []
    # About 6 %: from 5 to 7 %. Nearly twice: 1.8 or more.
    stated: tuple[tuple[int, dict[str, Any]], ...] = (
        (2, {"near": 1.06, "margin": 0.01}),
        (16, {"least": 1.8}),
    )
    for k, condition in stated:
        formula = data.numbers(data.compiled("stencil_loads", _CACHE, coarsen=1, k=k), words)
        yield decide_part(f"words at k = {k} over shared memory's, by the formula", formula, **condition)
        own, other = (data.timed("stencil_loads", kernel, coarsen=1, k=k) for kernel in (_CACHE, _SHARED))
        # The hardware moves sectors of eight words, so that two words of halo cost a whole sector.
        sectors = data.ratios(own, other, metric(SECTORS), "block", "elements")
        parts.append(
            decide_part(f"sectors at k = {k} over shared memory's, by the profiler", sectors, **condition)
        )
        yield parts[-1]
        yield note(f"bytes from DRAM at k = {k}", data.ratios(own, other, metric(DRAM_READ), "block"), "x")
    spans = f"{parts[0].span} at k = 2, {parts[1].span} at k = 16"
    return f"Expect more sectors ({spans}) but no more traffic to DRAM: the caches serve the rest."


def coarsening_pays_then_spills(data: RunData) -> Parts:
    """Several outputs per thread help the register cache, until at large k its registers spill.

    Source: register-cache (results).
    """
    values = data.speeds_over(_reach(data, coarsen=_several), _reach(data, coarsen=1), "k", "elements")
    speed = yield decide_part(
        "speed of several outputs per thread over one", values, least=1, margin=SLIGHT, per="k"
    )
    # The source keeps one register per output and one of halo, and saw spills at k from 24 with eight outputs.
    large = data.compiled("stencil_reach", _CACHE, dtype="int32", coarsen=8, k=lambda k: k >= 24)
    spilled = data.numbers(large, lambda row: row["local_bytes"])
    yield decide_part(
        "bytes spilled with eight outputs at k from 24", spilled, least=1, per="k", unit="bytes"
    )
    yield note("registers per thread", data.numbers(large, lambda row: row["registers"]))
    yield note("their occupancy", data.numbers(large, lambda row: 100 * row["occupancy"]), "%")
    advice = speed.either("Give a thread several outputs", "Time several outputs per thread")
    return f"{advice}: {speed.span} the speed of one; at large k look at the occupancy."

"""The ten findings of a run: a sentence each, with its effect, where another GPU's would lie, and its scope."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.claims.ledger import overall
from ladder.claims.primitives import REFUTED, Row, Unmeasured
from ladder.model.cell import size_label
from ladder.report.evidence import Evidence, Gain, best, gain, grouped, is_cube, mean, span, verdicts
from ladder.report.markdown import code, figure, share, text
from ladder.report.steps import path, steps
from ladder.results import statistics as stats


@dataclass(frozen=True)
class Finding:
    """What was found in a sweep, in words, and its effect; or why it is not known."""

    topic: str
    sweep: str
    found: str = ""
    effect: str = ""
    scope: str = ""
    absent: str = ""


BUFFERED = {"loader": "staged", "stages": 2, "buffers": 2, "order": "prefetch_first", "deposits": "behind"}
"""Parameters of the double-buffered FP32 kernel."""
STAGES = (("TF32", "tensor_stages_swizzle"), ("fp16", "tensor_ladder_fp16"))
STAGES_AT, REACH = 8192, 16
"""Where the best number of stages is looked for, and the reach at which the stencils are compared."""

Answer = tuple[str, Gain | str, str]
"""The sentence, its effect, and its scope."""


def fp32_gemm(data: Evidence) -> Answer:
    """The tuned FP32 kernel against the libraries, at every size."""
    part = data.part("fp32_ladder")
    top = path(part)[-1].variant.id
    here = stats.fastest(part.here[part.here["variant"] == top])
    every = data.rows("fp32_ladder", variant=top)
    peak = _peak(here, "the FP32 peak")
    others = f"; from {size_label(every[0].size)} to {size_label(every[-1].size)} {span(map(_gain, every))}"
    return (
        f"On CUDA cores the ladder ends at “{text(part.names[top])}”, {gain(here).than} the libraries",
        gain(here),
        f"against {text(part.reference_name)}, {part.size_text}, {part.regime}{peak}{others}",
    )


def fp32_technique(data: Evidence) -> Answer:
    """The largest steps of the path to the fastest FP32 kernel."""
    part = data.part("fp32_ladder")
    rungs = [entry.variant for entry in path(part)]
    found = [step for step in steps(part) if step.entry.variant in rungs and step.gain.known]
    if not found:
        raise Unmeasured("no rung of fp32_ladder has a result beside the rung that it changes")
    first, *rest = sorted(found, key=lambda step: step.gain.value, reverse=True)
    others = " and ".join(f"“{text(step.entry.rung)}” ({figure(step.gain.value, 3)} x)" for step in rest[:2])
    after = f"; then come {others}" if others else ""
    return (
        f"The step that brings most in FP32 is “{text(first.entry.rung)}” ({text(first.entry.technique)}){after}",
        Gain(first.gain, first.predicted),
        f"each against the rung that it changes, {part.size_text}, {part.regime}",
    )


def double_buffering(data: Evidence) -> Answer:
    """Two pairs of shared tiles and two fragments against one of each, at each size."""
    rows = data.rows("fp32_buffering", **BUFFERED)
    where = verdicts({size_label(row.size): gain(row.names) for row in rows})
    alone = alone_buffered(data)
    beside = f"; where one block has a multiprocessor to itself {span(map(_gain, alone))}" if alone else ""
    last = rows[-1]
    return (
        f"Double buffering of shared tiles and fragments in FP32: {where}{beside}; at {size_label(last.size)}",
        gain(last.names),
        f"against register staging with one of each, M = N = K, {last['regime']}",
    )


def alone_buffered(data: Evidence) -> list[Row]:
    """Double buffering where registers leave room for one block on a multiprocessor."""
    return [row for row in data.rows("fp32_buffering", stages=2, buffers=2) if row["min_blocks"] == 1]


def by_stages(data: Evidence, name: str, n: int) -> tuple[Row, Row, list[Row]]:
    """Of kernels that differ in their stages alone, those with the fastest: it, the next, and all."""
    rows = [row for row in data.rows(name) if is_cube(row) and "stages" in row.names and row["n"] == n]
    alike = grouped(rows, lambda row: str(sorted(_without(row, "stages").items())))
    several = [group for group in alike.values() if len(group) > 1]
    if not several:
        raise Unmeasured(f"no two variants of {name} at {n} differ in their stages alone")
    group = max(several, key=lambda each: max(row["speedup"] for row in each))
    first, second, *_ = sorted(group, key=lambda row: -row["speedup"])
    return first, second, sorted(group, key=lambda row: int(row["stages"]))


def _without(row: Row, name: str) -> dict[str, object]:
    return {"kernel": row["kernel"], **json.loads(row["params"])} | {name: None}


def stages(data: Evidence) -> Answer:
    """The best number of stages in TF32 and fp16."""
    said, effects = [], list[Gain]()
    for dtype, name in STAGES:
        first, second, group = by_stages(data, name, STAGES_AT)
        effects.append(gain(first.names).over(gain(second.names)))
        tried = ", ".join(str(row["stages"]) for row in group)
        most = f"in {dtype} {first['stages']} (of {tried}; {code(first['kernel'])})"
        said.append(f"{most}, over {second['stages']} stages")
    return (
        f"The best number of stages: {said[0]} {effects[0]}; {said[1]}",
        effects[1],
        f"M = N = K = {STAGES_AT}; kernels that differ in their stages alone, by their ratios to the libraries",
    )


def tensor_cores(data: Evidence) -> Answer:
    """How far mma.sync and wgmma come in bf16."""
    warp, hopper = data.part("tensor_ladder_bf16"), data.part("hopper_ladder")
    tops = [
        stats.fastest(part.here[part.here["variant"] == path(part)[-1].variant.id]) for part in (warp, hopper)
    ]
    return (
        f"In bf16 a kernel needs wgmma and TMA: mma.sync ends at {gain(tops[0])}, wgmma at",
        gain(tops[1]),
        f"against {text(hopper.reference_name)}, {hopper.size_text}, {hopper.regime}{_peak(tops[1], 'the bf16 peak')}",
    )


def by_rows(data: Evidence, name: str, regime: str) -> dict[int, list[Row]]:
    """The fastest at each shape of a sweep, by M."""
    shapes = grouped(data.rows(name, regime=regime), lambda row: (row["dtype"], *row.size.values()))
    return grouped(map(best, shapes.values()), lambda row: row["m"])


def few_rows(data: Evidence) -> Answer:
    """bf16 GEMMs of transformers by M."""
    part = data.part("hopper_shapes")
    groups = by_rows(data, "hopper_shapes", part.regime)
    means = {m: mean(rows) for m, rows in groups.items()}
    least, most = (choose(means, key=lambda m: means[m].value) for choose in (min, max))
    every = [row for rows in groups.values() for row in rows]
    counts = Counter(gain(row.names).verdict for row in every)
    known = {
        regime: data.tables.timed("hopper_shapes", regime=regime).found for regime in part.sweep.regimes[1:]
    }
    others = "".join(f", {regime} {figure(mean(rows).value, 3)} x" for regime, rows in known.items() if rows)
    return (
        f"bf16 GEMMs of transformers, by M: from {figure(means[least].value, 3)} x at M = {least} to"
        f" {figure(means[most].value, 3)} x at M = {most}; faster at {counts['faster']} of {len(every)} shapes,"
        f" slower at {counts['slower']}{others}; all together",
        mean(every),
        f"geometric mean against {text(part.reference_name)}, the configuration chosen for each shape, {part.regime}",
    )


def fp8(data: Evidence) -> Answer:
    """The fastest fp8 kernel at each size."""
    by_size = {
        key: best(rows) for key, rows in grouped(data.rows("hopper_fp8"), lambda row: row["m"]).items()
    }
    last = [*by_size.values()][-1]
    peak = _peak(last.names, "the fp8 peak")
    return (
        f"In fp8, without promotion, {span(map(_gain, by_size.values()))} the libraries' speed from"
        f" {min(by_size)} to {max(by_size)}; at {last['m']}",
        gain(last.names),
        f"“{data.label(last)}” against {text(last['reference'])}, {last['regime']}{peak}",
    )


def bank_conflicts(data: Evidence) -> Answer:
    """What a conflict costs by itself, and what padding brings in a GEMM."""
    cycles = {row["stride"]: row.metric("cycles_per_access") for row in data.rows("bank_stride")}
    worst = max(cycles, key=lambda stride: cycles[stride])
    rows = [row for row in data.rows("fp32_padding") if row["variant"] != row["reference"]]
    last = max(row["n"] for row in rows)
    here = sorted((row for row in rows if row["n"] == last), key=lambda row: row["speedup"])
    return (
        f"A read of shared memory takes {figure(min(cycles.values()), 3)} cycles without conflicts and"
        f" {figure(cycles[worst], 3)} at a stride of {worst} words; padding a GEMM's tiles brings from"
        f" {span(map(_gain, here))}, most with “{data.label(here[-1])}”",
        gain(here[-1].names),
        f"against no padding, M = N = K = {last}, {here[-1]['regime']}",
    )


def cache_against_shared(data: Evidence, k: int, dtype: str) -> tuple[Row, Row, Gain]:
    """The best of both at one reach, with the outputs per thread that make the faster of them fastest."""
    rows = {
        name: {row["coarsen"]: row for row in data.rows("stencil_reach", name, dtype=dtype, k=k)}
        for name in ("stencil_register_cache", "stencil_shared")
    }
    cached, shared = rows.values()
    common = [outputs for outputs in cached if outputs in shared]
    if not common:
        raise Unmeasured(f"stencil_reach has no two kernels with the same outputs per thread at k = {k}")
    outputs = max(common, key=lambda one: max(cached[one]["speedup"], shared[one]["speedup"]))
    own, other = cached[outputs], shared[outputs]
    return own, other, gain(own.names).over(gain(other.names))


def register_cache(data: Evidence) -> Answer:
    """Register cache against shared memory, the best of each; and the best stencil against a copy."""
    own, _, ratio = cache_against_shared(data, REACH, "int32")
    fastest = max(data.rows("stencil_best"), key=lambda row: row["gbytes_per_s"])
    copied = share(fastest.names.get("copy_fraction"), ".0f")
    return (
        f"At k = {REACH} a register cache is {ratio.than} shared memory, both with {own['coarsen']} outputs"
        f" per thread; the best stencil moves {figure(fastest['gbytes_per_s'], 3)} GB/s, {copied} of a copy's rate",
        ratio,
        f"int32, {size_label(own.size)} elements, {own['regime']}, by their ratios to one reference",
    )


def claims(data: Evidence) -> Answer:
    """What became of the claims of the literature."""
    decided = data.frames["claims"]
    whole = overall(decided)
    if not (whole != "not measured").any():
        raise Unmeasured("no claim was decided")
    counts = whole.value_counts()
    refuted = [code(name) for name, verdict in whole.items() if verdict == REFUTED]
    which = f": {', '.join(refuted)}" if refuted else ""
    return (
        f"Of {stats.count(len(whole), 'claim')} of the literature {counts.get('holds', 0)} hold in every part and"
        f" {len(refuted)} are refuted in one at least{which}",
        "",
        f"{stats.count(len(decided), 'part')}, each decided by its 95 % interval",
    )


_FINDINGS: Sequence[tuple[str, str, Callable[[Evidence], Answer]]] = (
    ("FP32 against the libraries", "fp32_ladder", fp32_gemm),
    ("The FP32 technique that brings most", "fp32_ladder", fp32_technique),
    ("Double buffering in FP32", "fp32_buffering", double_buffering),
    ("Stages in TF32 and fp16", "tensor_stages_swizzle", stages),
    ("Tensor cores by mma.sync and by wgmma", "hopper_ladder", tensor_cores),
    ("bf16 with few rows", "hopper_shapes", few_rows),
    ("fp8", "hopper_fp8", fp8),
    ("Bank conflicts and padding", "fp32_padding", bank_conflicts),
    ("Register cache against shared memory", "stencil_reach", register_cache),
    ("Claims", "", claims),
)
"""Topic, sweep with more about it, and the function that finds it."""


def findings(data: Evidence) -> list[Finding]:
    """What was found of each topic, or why it is not known."""
    found = []
    for topic, sweep, find in _FINDINGS:
        try:
            said, effect, scope = find(data)
            found.append(Finding(topic, sweep, said, str(effect), scope))
        except Unmeasured as error:
            found.append(Finding(topic, sweep, absent=text(error)))
    return found


def _gain(row: Row) -> Gain:
    return gain(row.names)


def _peak(row: Mapping[str, Any], of: str) -> str:
    """, 78 % of the FP32 peak; empty where it is unknown."""
    found = row.get("peak_fraction")
    return "" if found is None or pd.isna(found) else f", {share(found, '.0f')} of {of}"

"""The ten findings of a run: a sentence each, with its effect, and its scope."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ladder.claims.ledger import overall
from ladder.claims.primitives import REFUTED, Row, Unmeasured
from ladder.model.cell import size_label
from ladder.report.evidence import Evidence, Gain, best, gain, grouped, is_cube, mean, proper, span, verdicts
from ladder.report.markdown import code, figure, share, text
from ladder.report.steps import path, steps
from ladder.report.sweep_data import SweepData
from ladder.results import statistics as stats
from ladder.results.verdicts import FASTER


@dataclass(frozen=True)
class Finding:
    """What was found in a sweep, its effect in bold; or why it is not known."""

    topic: str
    sweep: str
    found: str = ""
    scope: str = ""
    absent: str = ""


BUFFERED = {"loader": "staged", "stages": 2, "buffers": 2, "order": "prefetch_first", "deposits": "behind"}
"""Parameters of the double-buffered FP32 kernel."""
STAGES = (("TF32", "tensor_stages_swizzle"), ("fp16", "tensor_ladder_fp16"))
STAGES_AT, REACH = 8192, 16
"""Where the best number of stages is looked for, and the reach at which the stencils are compared."""

STATES = {"dirty": "with a dirty L2"}
_MOST_CLAIMS = 3

Answer = tuple[str, str]
"""The sentence and its scope."""


def bold(of: Gain) -> str:
    """An effect, as a finding shows it."""
    return f"**{of}**"


def against(part: SweepData) -> str:
    """What a sweep's cells are timed against, by its own name."""
    return proper(text(part.reference_name))


def fp32_gemm(data: Evidence) -> Answer:
    """The tuned FP32 kernel against the libraries, at every size."""
    part = data.part("fp32_ladder")
    top = path(part)[-1].variant.id
    here = stats.fastest(part.here[part.here["variant"] == top])
    sizes, others = by_size(data, "fp32_ladder", top)
    elsewhere = f"; other sizes are for other rungs: {rungs_at(data, others)}" if others else ""
    sizes = {size: own for size, own in sizes.items() if size not in others}
    return (
        f"On CUDA cores the ladder ends at {bold(gain(here))} {against(part)} (“{text(part.names[top])}”)"
        f"{_peak(here, 'the FP32 peak')}; it is {verdicts(sizes)}{elsewhere}{_by_tensor_cores(data, part)}",
        f"{part.size_text}, {part.regime}",
    )


def by_size(data: Evidence, name: str, top: str) -> tuple[dict[str, Gain], dict[str, Row]]:
    """A rung's gain at each size, and where it is slower than the libraries a rung that is faster than it."""
    sizes = {size_label(row.size): gain(row.names) for row in data.rows(name, variant=top)}
    rungs = grouped(data.rows(name), lambda row: size_label(row.size))
    others = {size: best(rungs[size]) for size, own in sizes.items() if own.verdict == "slower"}
    return sizes, {
        size: row for size, row in others.items() if gain(row.names).over(sizes[size]).verdict == FASTER
    }


def rungs_at(data: Evidence, rows: Mapping[str, Row]) -> str:
    """“19c small tile” at 256, 512 (1.03 to 1.13 x), “15c split K” at 1024 (0.998 x)."""
    own: dict[str, dict[str, Gain]] = {}
    for size, row in rows.items():
        own.setdefault(data.label(row), {})[size] = gain(row.names)
    return ", ".join(
        f"“{label}” at {', '.join(sizes)} ({span(sizes.values())})" for label, sizes in own.items()
    )


def _by_tensor_cores(data: Evidence, part: SweepData) -> str:
    """The fastest kernel of fp32_tensor at the same size; empty where that was not measured."""
    try:
        top = best(data.rows("fp32_tensor", n=part.size["n"]))
    except Unmeasured:
        return ""
    return f"; at FP32 accuracy, by three products of TF32, tensor cores reach {bold(gain(top.names))}"


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
        f"In FP32 “{text(first.entry.rung)}” brings most, {bold(Gain(first.gain, first.predicted))}:"
        f" {text(first.entry.technique)}{after}",
        f"each against the rung that it changes, {part.size_text}, {part.regime}",
    )


def _held(data: Evidence, row: Mapping[str, Any]) -> str:
    return f", sustained {held}" if (held := data.held(row)) else ""


def double_buffering(data: Evidence) -> Answer:
    """Two pairs of shared tiles and two fragments against one of each, at each size."""
    rows = data.rows("fp32_buffering", **BUFFERED)
    where = verdicts({size_label(row.size): gain(row.names) for row in rows})
    last = gain(rows[-1].names)
    moved = {"faster": "brings", "slower": "costs", "tied": "moves"}[last.verdict]
    return (
        f"At {size_label(rows[-1].size)} double buffering of shared tiles and fragments in FP32 {moved}"
        f" {share(abs(last.value - 1), '.0f')}, {bold(last)}; it is {where}",
        f"against register staging with one of each, M = N = K, {rows[-1]['regime']}",
    )


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


def best_stages(data: Evidence, dtype: str, name: str) -> str:
    """in TF32 4 stages are best, 1.03 [1.02, 1.06] x the speed of 3 (tried 2 to 5; …)."""
    first, second, group = by_stages(data, name, STAGES_AT)
    tried = f"tried {group[0]['stages']} to {group[-1]['stages']}"
    return (
        f"in {dtype} {first['stages']} stages are best, {bold(data.over(first, second))} the speed of"
        f" {second['stages']} ({tried}; {swizzled(first)})"
    )


def swizzled(row: Row) -> str:
    """A kernel that has stages, with its threadblock swizzle."""
    strip = row.names.get("strip")
    return f"{code(row['kernel'])}, {f'threadblock swizzle {strip} tiles wide' if strip else 'row by row'}"


def stages(data: Evidence) -> Answer:
    """The best number of stages in TF32 and fp16."""
    said = "; ".join(best_stages(data, dtype, name) for dtype, name in STAGES)
    return said[0].upper() + said[1:], (
        f"M = N = K = {STAGES_AT}, kernels that differ in their stages alone; launched in pairs where there are such"
        " pairs, else by their ratios to the libraries"
    )


def tensor_cores(data: Evidence) -> Answer:
    """How far mma.sync and wgmma come in bf16."""
    warp, hopper = data.part("tensor_ladder_bf16"), data.part("hopper_ladder")
    tops = [
        stats.fastest(part.here[part.here["variant"] == path(part)[-1].variant.id]) for part in (warp, hopper)
    ]
    return (
        f"In bf16 wgmma and TMA reach {bold(gain(tops[1]))} {against(hopper)}"
        f"{_peak(tops[1], 'the bf16 peak')}{_held(data, tops[1])};"
        f" mma.sync reaches {gain(tops[0])}",
        f"{hopper.size_text}, {hopper.regime}",
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
    worst = min(every, key=lambda row: row["speedup"])
    counts = Counter(gain(row.names).verdict for row in every)
    known = {
        regime: data.tables.timed("hopper_shapes", regime=regime).found for regime in part.sweep.regimes[1:]
    }
    others = "".join(
        f"; {STATES.get(regime, regime)} {figure(mean(rows).value, 3)} x"
        for regime, rows in known.items()
        if rows
    )
    return (
        f"bf16 GEMMs of transformers reach {bold(mean(every))} {against(part)} in the geometric mean of"
        f" {len(every)} shapes: faster at {counts['faster']}, slower at {counts['slower']}; by M from"
        f" {figure(means[least].value, 3)} x at {least} to {figure(means[most].value, 3)} x at {most}; worst"
        f" {gain(worst.names)} at {shape(worst)}{others}",
        f"the configuration chosen for each shape, {part.regime}",
    )


def shape(row: Row) -> str:
    """M = 256, N = 4096, K = 1024."""
    return ", ".join(f"{name.upper()} = {value}" for name, value in row.size.items())


def fp8(data: Evidence) -> Answer:
    """The fastest fp8 kernel at each size."""
    sizes = {
        key: gain(best(rows).names)
        for key, rows in grouped(data.rows("hopper_fp8"), lambda row: row["m"]).items()
    }
    last = best(data.rows("hopper_fp8", m=max(sizes)))
    return (
        f"In fp8 at {last['m']} “{data.label(last)}” reaches {bold(gain(last.names))}"
        f" {proper(text(last['reference']))}{_peak(last.names, 'the fp8 peak')}{_held(data, last.names)};"
        f" the best at each size is {verdicts(sizes)}",
        f"M = N = K, partial sums not promoted, {last['regime']}",
    )


def padding(data: Evidence) -> Answer:
    """What the best and the worst padding of a GEMM's tiles bring."""
    rows = [row for row in data.rows("fp32_padding") if row["variant"] != row["reference"]]
    last = max(row["n"] for row in rows)
    worst, *_, top = sorted((row for row in rows if row["n"] == last), key=lambda row: row["speedup"])
    cost = 1 - worst["speedup"]
    others = f"; other widths cost up to {share(cost, '.0f')} (“{data.label(worst)}”)" if cost > 0 else ""
    return (
        f"Padding a GEMM's shared tiles brings at best {bold(gain(top.names))} (“{data.label(top)}”){others}",
        f"each against the same kernel without padding, FP32, M = N = K = {last}, {top['regime']}",
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
    """Register cache against shared memory, both with as many outputs per thread."""
    own, other, ratio = cache_against_shared(data, REACH, "int32")
    return (
        f"At k = {REACH} {code(own['kernel'])} reaches {bold(ratio)} {code(other['kernel'])}, both with"
        f" {own['coarsen']} outputs per thread",
        f"int32, {size_label(own.size)} elements, {own['regime']}, by their ratios to one reference",
    )


def claims(data: Evidence) -> Answer:
    """What became of the claims of the literature; in words those that are refuted in most of their parts."""
    decided = data.frames["claims"]
    whole = overall(decided)
    if not (whole != "not measured").any():
        raise Unmeasured("no claim was decided")
    counts = whole.value_counts()
    parts = (decided["verdict"] == REFUTED).groupby(decided["id"], sort=False).mean()
    worst = parts[parts > 0].sort_values(ascending=False, kind="stable").index[:_MOST_CLAIMS]
    statements = decided.drop_duplicates("id").set_index("id")["statement"]
    named = ", ".join(f"“{text(statements[name]).removesuffix('.')}”" for name in worst)
    return (
        f"Of {stats.count(len(whole), 'claim')} of the literature **{counts.get('holds', 0)}** hold in every part and"
        f" **{counts.get(REFUTED, 0)}** are refuted in one at least{f', as {named}' if named else ''}",
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
    ("Padding", "fp32_padding", padding),
    ("Register cache against shared memory", "stencil_reach", register_cache),
    ("Claims", "", claims),
)
"""Topic, sweep with more about it, and the function that finds it."""


def findings(data: Evidence) -> list[Finding]:
    """What was found of each topic, or why it is not known."""
    found = []
    for topic, sweep, find in _FINDINGS:
        try:
            found.append(Finding(topic, sweep, *find(data)))
        except Unmeasured as error:
            found.append(Finding(topic, sweep, absent=text(error)))
    return found


def _peak(row: Mapping[str, Any], of: str) -> str:
    """, 78 % of the FP32 peak; empty where it is unknown."""
    found = row.get("peak_fraction")
    return "" if found is None or pd.isna(found) else f", {share(found, '.0f')} of {of}"

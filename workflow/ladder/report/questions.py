"""The questions in teaching order: an answer, its cause by counters, where it does not hold, the rows that matter."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ladder.claims.counters import per_request
from ladder.claims.primitives import Row, Unmeasured
from ladder.model.cell import size_label
from ladder.model.problem import ELEMENT_BYTES
from ladder.model.sweep import Sweep
from ladder.report import extras
from ladder.report.evidence import (
    Evidence,
    Gain,
    best,
    ends,
    gain,
    grouped,
    is_cube,
    mean,
    place_of,
    proper,
    span,
    verdicts,
)
from ladder.report.findings import (
    BUFFERED,
    REACH,
    STAGES,
    STAGES_AT,
    STATES,
    against,
    best_stages,
    by_rows,
    by_size,
    by_stages,
    cache_against_shared,
    rungs_at,
    swizzled,
)
from ladder.report.markdown import code, figure, share, spread, text
from ladder.report.steps import NOT_COUNTED, Step, explanation, path, steps
from ladder.report.sweep_data import shown_value
from ladder.results.verdicts import FASTER

_MOST_CAUSES = 3
_COUNTER = "counter that moved with it"
_EXPLAINS = (
    "A counter explains a share of the time saved or lost: what its change takes at the hardware's rate, over the"
    " difference of both times. It explains all of it where its change takes longer, up to one and a half times:"
    " something else took the rest back. Of a wait only what is left counts after what other waits rose by, as a wait"
    " may go on under another name: at `__syncthreads` it is counted as barrier, at an mbarrier as long_scoreboard."
)
THREE_PRODUCTS = "fp32_tensor"  # the sweep of GEMMs with FP32 accuracy by three products of TF32
ERRORS = "How exact are the fastest FP32 kernels?"
_LEAST_PEAK = 0.01  # less is not worth a number
_NEAR = 0.9  # of the library's speed, where a kernel is worth a row of its own
_DTYPES = tuple(ELEMENT_BYTES)  # the widest first


Line = Sequence[tuple[str, str]]
"""A row of a table: heads, the same in all rows, with its cells."""


@dataclass
class Table:
    """Rows under heads, all as markdown; a column that is empty in all rows is left out."""

    lines: Sequence[Line]

    def __post_init__(self) -> None:
        columns = [column for column in zip(*self.lines, strict=True) if any(cell for _, cell in column)]
        self.heads = [head for (head, _), *_ in columns]
        self.rows = list(zip(*([cell for _, cell in column] for column in columns), strict=True))


@dataclass(frozen=True)
class Part:
    """What is said of a question, or why nothing is."""

    title: str
    sweeps: Sequence[Sweep]
    shown: tuple[str, int] | None  # the sweep whose figure stands here, and the place of the figure in it
    said: Sequence[str] = ()
    table: Table | None = None
    note: str = ""  # what a head of the table means, where it stands first
    absent: str = ""


Answer = tuple[Sequence[str], Table]


def _gains(head: str, of: Gain) -> Line:
    return [(f"{head} [95 %]", spread(of.measured, 3)), ("another GPU", of.elsewhere)]


def _uncounted(data: Evidence, name: str) -> str:
    """That a sweep has no counters, and why."""
    notes = data.frames["notes"]
    own = notes[(notes["sweep"] == name) & (notes["stage"] == "profile") & (notes["subject"] == "counters")]
    reasons = "; ".join(text(reason).rstrip(": ") for reason in own["reason"].dropna().unique())
    return f"counters were not collected{f': {reasons}' if reasons else ''}"


def _counted(found: Sequence[Step]) -> bool:
    """Whether the counters were read for any step that moved the time."""
    return any(step.gain.known and not step.tie and step.why != NOT_COUNTED for step in found)


def _causes(found: Sequence[Step]) -> str:
    """The explained ones among some steps, the largest first."""
    known = sorted(
        (step for step in found if step.gain.known), key=lambda step: -abs(math.log(step.gain.value))
    )
    explained = [step for step in known if step.explained]
    if all(step.why == NOT_COUNTED for step in known):
        return f"Why: {NOT_COUNTED}."
    named = "; ".join(f"“{text(step.entry.rung)}”: {step.why}" for step in explained[:_MOST_CAUSES])
    count = f"Why: a counter explains {len(explained)} of the {len(known)} steps that lead there"
    return f"{count}. The largest: {named}." if named else f"{count}."


def _ladder(data: Evidence, name: str) -> Answer:
    """A ladder by the path to its fastest rung."""
    part = data.part(name)
    rungs = {entry.variant.id: entry for entry in path(part)}
    every = steps(part)
    by_id = {step.row["variant"]: step for step in every}
    found = [by_id[variant] for variant in rungs if variant in by_id]
    aside = [step for step in every if step.row["variant"] not in rungs and step.gain.known]
    top = found[-1]
    sizes, others = by_size(data, name, top.row["variant"])
    fastest = f" Other rungs are faster: {rungs_at(data, others)}." if others else ""
    largest = max((step for step in found if step.gain.known), key=lambda step: step.gain.value, default=None)
    head = f"{len(found)} rungs lead from “{text(found[0].entry.rung)}” to “{text(top.entry.rung)}”"
    said = [
        f"{head}, at {part.size_text} {gain(top.row).times(against(part))}"
        + (
            f"; the largest step is “{text(largest.entry.rung)}”, {figure(largest.gain.value, 3)} x."
            if largest
            else "."
        ),
        _causes(found) if _counted(found) else f"Why: {_uncounted(data, name)}.",
    ]
    losing = [step for step in aside if step.as_gain.verdict != FASTER]
    beside = (
        f" At {part.size_text}, branches that bring nothing or cost speed: {len(losing)} of {len(aside)}."
        if aside
        else ""
    )
    said.append(f"Where: against the libraries the last rung is {verdicts(sizes)}.{fastest}{beside}")
    rows = [
        [
            ("rung", text(step.entry.rung)),
            ("technique", text(step.entry.technique)),
            *_gains("over the rung it changes", Gain(step.gain, step.predicted)),
            (f"speed over {against(part)} [95 %]", spread(gain(step.row).measured, 3)),
            (_COUNTER, step.why if _counted(found) else ""),
        ]
        for step in found
    ]
    return said, Table(rows)


def _explained(data: Evidence, below: Row, above: Row) -> str:
    """The counter that explains the difference of two rows, if one does."""
    return explanation(below.names, above.names, [below.metrics, above.metrics], data.gpu)[0]


def _lane_maps(data: Evidence, name: str) -> Answer:
    part = data.part(name)
    counted = {
        row["variant"]: per_request(row)
        for row in data.rows(name)
        if "smsp__inst_executed_op_shared_ld.sum" in row.metrics
    }
    here = [
        row for row in data.rows(name, **part.size) if row["bm"] == max(one["bm"] for one in data.rows(name))
    ]
    ranked = sorted(here, key=lambda row: -row["speedup"])
    first, last = ranked[0], ranked[-1]
    kinds = grouped(here, lambda row: (row["lane_map"], row["tiles"]))
    shown = sorted(map(best, kinds.values()), key=lambda row: -row["speedup"])
    least = min(counted.values(), default=math.nan)
    free = [row for row in ranked if counted.get(row["variant"], math.inf) <= 1.05 * least]
    slow = free[-1] if free else None
    worth = figure(first["speedup"] / last["speedup"], 3)
    said = [
        f"In tiles of {first['bm']} x {first['bn']} of {_kernel(data, here)} the lane map and the split of a warp's"
        f" tile are worth {worth} x at {part.size_text}: from “{data.label(last)}” to “{data.label(first)}”,"
        f" {gain(first.names).times('the baseline')}.",
        f"Why: {_between(data, name, last, first)}.",
        "Where not: "
        + (
            f"fewest wavefronts per load are no guarantee: “{data.label(slow)}” has them, and"
            f" {figure(slow['speedup'], 3)} x; narrow loads take fewer wavefronts each, but there are more of them."
            if slow
            else "the wavefronts were not counted."
        )
        + _otherwise(data, here),
    ]
    rows = [
        [
            ("lane map", code(row["lane_map"])),
            ("tiles", text(shown_value("tiles", row.names))),
            ("split", text(row["split"])),
            ("wavefronts per shared load", figure(counted.get(row["variant"], math.nan), 3)),
            *_gains(f"speed over {against(part)}", gain(row.names)),
        ]
        for row in shown
    ]
    return said, Table(rows)


def _kernel(data: Evidence, rows: Sequence[Row]) -> str:
    """The kernel of some rows with what all of them have and its default is not."""
    kernels = {
        entry.variant.kernel.name: entry.variant.kernel for entry in data.sweeps[rows[0]["sweep"]].entries
    }
    axes = kernels[rows[0]["kernel"]].parameters
    first = rows[0].names
    common = [name for name in axes if len({row.names.get(name) for row in rows}) == 1]
    given = [f"{name}={first[name]}" for name in common if first[name] != axes[name].default]
    return code(rows[0]["kernel"]) + (f" ({', '.join(map(text, given))})" if given else "")


_TUNED = "fp32_ablation"  # the sweep of the tuned kernel without one of its techniques


def _otherwise(data: Evidence, rows: Sequence[Row]) -> str:
    """The lane maps and splits that do something else in the tuned kernel than in these rows; empty without such."""
    part = data.parts.get(_TUNED)
    here = {(row["lane_map"], row["split"]): gain(row.names) for row in rows if row["tiles"] == "padded"}
    found = []
    for step in steps(part) if part else ():
        if not (step.gain.known and step.entry.baseline):
            continue
        own, below = step.entry.variant.params, step.entry.baseline.variant.params
        changed = {name for name in own if own[name] != below[name]}
        known = here.get((own.get("lane_map"), own.get("split")))
        if known and changed <= {"lane_map", "split"} and known.verdict != step.as_gain.verdict:
            name = f"{code(own['lane_map'])} with {own['split']}"
            found.append(f"{name} has {figure(step.gain.value, 3)} x there, {figure(known.value, 3)} x here")
    tuned = f"[tuned kernel](sweeps/{_TUNED}.md)"
    return f" This does not carry over to the {tuned}: {'; '.join(found)}." if found else ""


def _between(data: Evidence, name: str, slow: Row, fast: Row) -> str:
    """The cause of a difference, at a size where both were counted."""
    sizes = {size_label(row.size): row.size for row in data.rows(name) if row.metrics}
    for label, size in sizes.items():
        both = [data.rows(name, variant=row["variant"], **size)[0] for row in (slow, fast)]
        if all(row.metrics for row in both):
            return f"{_explained(data, *both)} (at {label})"
    return _uncounted(data, name)


def _pipelining(data: Evidence, name: str) -> Answer:
    def line(what: str, size: str, other: str, speed: Gain) -> Line:
        return [("what", what), ("M = N = K", size), ("against", other), *_gains("speed over it", speed)]

    rows = data.rows(name, **BUFFERED)
    gains = {size_label(row.size): gain(row.names) for row in rows}
    what = "two shared tiles and two fragments, FP32"
    table = [line(what, size, "one of each", speed) for size, speed in gains.items()]
    said = [f"Double buffering in FP32 is {verdicts(gains)}."]
    for dtype, sweep in STAGES:
        try:
            _, _, group = by_stages(data, sweep, STAGES_AT)
            found = best_stages(data, dtype, sweep).replace("**", "")
        except Unmeasured as error:
            said.append(f"Stages in {dtype}: not measured: {text(error)}.")
            continue
        said[0] += f" At {STAGES_AT} {found}."
        table += [
            line(
                f"{one['stages']} stages, {dtype}, {swizzled(one)}",
                str(STAGES_AT),
                str(other["stages"]),
                data.over(one, other),
            )
            for other, one in itertools.pairwise(group)
        ]
    plain = data.rows(name, **(BUFFERED | {"stages": 1, "buffers": 1}))
    said.append(f"Why: {_between(data, name, plain[-1], rows[-1])}.")
    return said, Table(table)


def _shapes(data: Evidence, name: str) -> Answer:
    part = data.part(name)
    regimes = part.sweep.regimes
    by_regime = {regime: by_rows(data, name, regime) for regime in regimes if _has(data, name, regime)}
    groups = by_regime[part.regime]
    means = {m: mean(rows) for m, rows in groups.items()}
    others = [*by_regime][1:]

    def line(m: str, rows: Sequence[Row], speed: Gain, in_others: Sequence[str], sustained: str) -> Line:
        return [
            ("M", m),
            ("shapes", str(len(rows))),
            ("faster, slower", _faster_slower(rows)),
            (f"speed over {against(part)} [95 %], {part.regime}", spread(speed.measured, 3)),
            ("another GPU", speed.elsewhere),
            *((STATES.get(one, one), cell) for one, cell in zip(others, in_others, strict=True)),
            ("sustained, it and the best [95 %]", sustained),
        ]

    table = []
    for m, rows in groups.items():
        known = [by_regime[one].get(m) for one in others]
        table.append(
            line(str(m), rows, means[m], [figure(mean(own).value, 3) if own else "" for own in known], "")
        )
    for m, top in _squares(data, part.regime).items():
        table.append(line(f"{m} = N = K", [top], gain(top.names), [""] * len(others), _sustained(data, top)))
    copy, copied = data.gpu.get("copy_gbytes_per_s"), _known(groups[min(groups)], "gbytes_per_s")
    bound = f"at M = {min(groups)} the kernels move {ends(*copied)} GB/s" if copied else "not known"
    bound += f", a copy {figure(copy, 4)}" if copied and copy else ""
    if peaks := _known(groups[max(groups)], "peak_fraction"):
        bound += f"; at M = {max(groups)} they reach {ends(*(100 * one for one in peaks))} % of the peak"
    by_state = "; ".join(
        f"{STATES.get(regime, regime)}: {figure(mean([row for rows in found.values() for row in rows]).value, 3)} x"
        for regime, found in by_regime.items()
    )
    every = [row for rows in groups.values() for row in rows]
    counts = Counter(gain(row.names).verdict for row in every)
    said = [
        f"Over {len(every)} shapes {mean(every).times(against(part))} in the geometric mean:"
        f" faster at {counts['faster']}, slower at {counts['slower']}, tied at {counts['tied']}.",
        f"Why: {bound}.",
        f"Where not: by M {verdicts(means)}, and the state of the L2 matters ({by_state}).",
    ]
    return said, Table(table)


def _known(rows: Sequence[Row], name: str) -> tuple[float, float] | None:
    """The least and the greatest of a column, if any row has it."""
    found = [float(row[name]) for row in rows if name in row.names]
    return (min(found), max(found)) if found else None


def _has(data: Evidence, name: str, regime: str) -> bool:
    return bool(data.tables.timed(name, regime=regime).found)


def _faster_slower(rows: Sequence[Row]) -> str:
    counts = Counter(gain(row.names).verdict for row in rows)
    return f"{counts['faster']}, {counts['slower']}"


def _of_the_peak(fraction: float | None) -> str:
    """Of the peak of the dtype, which is that of CUDA cores for fp32: tensor cores may reach more than all of it."""
    if fraction is None or math.isnan(fraction):
        return ""
    if fraction < _LEAST_PEAK:
        return f"< {share(_LEAST_PEAK, '.0f')}"
    return share(fraction, ".0f") + (" of CUDA cores' FP32 peak" if fraction > 1 else "")


def _squares(data: Evidence, regime: str) -> dict[int, Row]:
    """The fastest of square GEMMs in bf16, by M."""
    rows = data.tables.timed("hopper_dtypes", dtype="bf16", regime=regime).found
    return {m: best(own) for m, own in grouped(filter(is_cube, rows), lambda row: row["m"]).items()}


def _sustained(data: Evidence, row: Row) -> str:
    """What a row's variant reaches sustained, and what the best of its dtype, layout and size does, if it is another.

    Empty where unknown, and where only kernels were measured so that are far behind, since better ones were not.
    """
    top, own = data.sustained.get(place_of(row.names)), data.held(row.names)
    if top is None or (most := gain(top.names).measured).high < _NEAR:
        return ""
    if top["variant"] == row["variant"]:
        return spread(most, 3)
    other = f"{spread(most, 3)}, [{data.label(top)}](sweeps/{top['sweep']}.md)"
    return f"{spread(own.measured, 3)}; {other}" if own else other


def _stencil(data: Evidence, name: str) -> Answer:
    dtype, over = "int32", "register cache over shared memory"
    reaches = sorted({row["k"] for row in data.rows(name, dtype=dtype)})
    pairs: Mapping[int, tuple[Row, Row, Gain]] = {k: cache_against_shared(data, k, dtype) for k in reaches}
    ratios = {k: ratio for k, (_, _, ratio) in pairs.items()}
    tops = {k: [best(data.rows(name, one, dtype=dtype, k=k)) for one in _STENCILS] for k in reaches}
    rows = [
        [
            ("k", str(k)),
            ("outputs per thread of both", str(own["coarsen"])),
            *_gains(over, ratio),
            ("best of each: outputs per thread", " and ".join(str(one["coarsen"]) for one in tops[k])),
            _gains(over, gain(tops[k][0].names).over(gain(tops[k][1].names)))[0],
        ]
        for k, (own, _, ratio) in pairs.items()
    ]
    own, other, ratio = pairs.get(REACH) or next(iter(pairs.values()))
    size = size_label(own.size)
    outputs = gain(own.names).over(gain(_single(data, own).names))
    many = f"{own['coarsen']} outputs per thread instead of one bring {figure(outputs.value, 3)} x by themselves; "
    alone = many if own["coarsen"] > 1 else ""
    said = [
        f"With as many outputs per thread a register cache is {ratio.than} shared memory at k = {own['k']}:"
        f" {ratio}, {size} elements, {dtype}.",
        f"Why: {alone}between the two: {_explained(data, other, own)}.",
        f"Where not: by k it is {verdicts(ratios)}.",
    ]
    return said, Table(rows)


_STENCILS = ("stencil_register_cache", "stencil_shared")


def _single(data: Evidence, row: Row) -> Row:
    return data.rows(row["sweep"], row["kernel"], dtype=row["dtype"], k=row["k"], coarsen=1)[0]


def _accuracy(data: Evidence, _: str) -> Answer:
    said, table = extras.accuracy(data)
    return said, Table(table)


def _accumulation(data: Evidence, _: str) -> Answer:
    said, table = extras.accumulation(data)
    return said, Table(table)


_QUESTIONS: Sequence[tuple[str, tuple[str, str], str, Callable[[Evidence, str], Answer]]] = (
    (
        "What does each technique bring in FP32?",
        ("fp32_ladder", "ladder"),
        "fp32_ladder fp32_ablation fp32_tiles",
        _ladder,
    ),
    (
        "Which lanes read what, and do bank conflicts cost time?",
        ("fp32_lane_maps", "heatmap"),
        "fp32_lane_maps fp32_padding fp32_transpose bank_stride bank_broadcast bank_write bank_wide bank_wide_shared"
        " bank_column bank_ldmatrix",
        _lane_maps,
    ),
    (
        "What do double buffering and more stages bring?",
        ("fp32_buffering", "curves"),
        "fp32_buffering fp32_async_stages tensor_stages_swizzle",
        _pipelining,
    ),
    (
        "How far do tensor cores come by mma.sync?",
        ("tensor_ladder_bf16", "ladder"),
        "tensor_ladder_bf16 tensor_ladder_fp16 tensor_ladder_tf32 tensor_layouts tensor_tiles",
        _ladder,
    ),
    (
        "What do TMA, wgmma and persistent blocks bring on Hopper?",
        ("hopper_ladder", "ladder"),
        "hopper_ladder hopper_dtypes hopper_fp8 hopper_fp8_promoted hopper_layout_nn",
        _ladder,
    ),
    (
        "bf16 GEMMs of transformers, by M",
        ("hopper_shapes", "shapes"),
        "hopper_shapes hopper_tiles hopper_small fp32_shapes fp32_block_swizzle",
        _shapes,
    ),
    (
        "Register cache or shared memory for a stencil?",
        ("stencil_reach", "stencil"),
        "stencil_reach stencil_best stencil_coarsening stencil_loads stencil_sizes stencil_tiles",
        _stencil,
    ),
    (
        ERRORS,
        ("fp32_tensor", "curves"),
        "fp32_tensor",
        _accuracy,
    ),
    (
        "What does C = A B + C cost?",
        ("", ""),
        "",
        _accumulation,
    ),
)
"""Title, sweep that answers with the kind of its figure, sweeps with more about it, and the function that answers."""


def questions(data: Evidence) -> list[Part]:
    """What the run says of each question; then the sweeps that belong to none."""
    found, known = list[Part](), set[str]()
    for title, (sweep, kind), names, answer in _QUESTIONS:
        there = [data.sweeps[name] for name in names.split() if name in data.sweeps]
        known |= {one.name for one in there}
        kinds = [one.kind for one in data.sweeps[sweep].figures] if sweep in data.sweeps else []
        shown = (sweep, kinds.index(kind)) if kind in kinds else None
        try:
            said, table = answer(data, sweep)
            first = _COUNTER in table.heads and not any(part.note for part in found)
            found.append(Part(title, there, shown, said, table, _EXPLAINS if first else ""))
        except Unmeasured as error:
            found.append(Part(title, there, shown, absent=text(error)))
    others = [sweep for name, sweep in data.sweeps.items() if name not in known]
    return [*found, *([Part("Other sweeps", others, None)] if others else [])]


def what_to_use(data: Evidence) -> tuple[Table, list[str], str]:
    """The GEMM with the greatest speed-up of each dtype and layout at each square size; and where none comes near.

    Last in how many rows another GPU is predicted to differ from the library; empty where nothing is predicted.
    Of tuning sweeps what was measured again counts.
    """
    given = data.against_libraries
    counts = Counter(sweep.regimes[0] for sweep in given)
    regime = max(counts, key=lambda one: counts[one], default="")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for sweep in given:
        for row in data.tables.timed(sweep.name, regime=regime).found:
            if is_cube(row) and (row.names.get("fresh") is True or not sweep.tuning):
                place = _DTYPES.index(row["dtype"]), row.names.get("layout", ""), row["m"]
                groups.setdefault(place, []).append(row)
    rows, shown, far = list[Line](), list[Gain](), dict[str, list[Row]]()
    for (_, layout, size), found in sorted(groups.items()):
        top = max(data.over_most_libraries(found), key=lambda row: row["speedup"])
        kind = f"{top['dtype']} {layout}".strip() + (" by 3xTF32" if top["sweep"] == THREE_PRODUCTS else "")
        if gain(top.names).measured.high < _NEAR:
            far.setdefault(kind, []).append(top)
            continue
        shown.append(gain(top.names))
        link, library = f"[{data.label(top)}](sweeps/{top['sweep']}.md)", proper(text(top["reference"]))
        use = {"faster": link, "tied": f"a tie: {link}", "slower": f"{library}; next is {link}"}
        rows.append(
            [
                ("dtype, layout", kind),
                ("M = N = K", str(size)),
                ("use", use[gain(top.names).verdict]),
                (f"speed over the fastest library [95 %], {regime}", spread(gain(top.names).measured, 3)),
                ("another GPU", gain(top.names).elsewhere),
                ("sustained [95 %]", _sustained(data, top)),
                ("fastest library", library),
                ("of the peak", _of_the_peak(top.names.get("peak_fraction"))),
            ]
        )
    behind = [
        f"{kind} at {', '.join(str(row['m']) for row in found)} ({span(gain(row.names) for row in found)})"
        for kind, found in far.items()
    ]
    known = [one.predicted for one in shown if one.predicted.known]
    differ = sum(one.low > 1 or one.high < 1 for one in known)
    return Table(rows), behind, f"{differ} of {len(known)}" if known else ""

"""The questions that a run answers, and what it answers.

A question is a function over the tables: it returns the facts of its answer, numbers and rows, under @question. The
sentences stand in workflow/report/answers/NAME.j2 as macros: `headline`, at most 25 words, where there is more to say
`also`, `why` and `exceptions`, and where there is a figure its `title`, at most 12 words. Each is rendered by itself:
a number that is missing costs the sentence that needs it and no other. README, the report, the page and titles of
figures are views of the answers.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ladder.claims.counters import ENOUGH, per_request, stalled
from ladder.claims.ledger import overall
from ladder.claims.primitives import NOT_MEASURED, ONLY_WHERE, REFUTED
from ladder.model.cell import SUSTAINED, size_label
from ladder.model.schemas import TableRow
from ladder.report import markdown, words
from ladder.report.choices import PRODUCTS_SWEEP, THREE_PRODUCTS, Choice, Held, choices, slowed
from ladder.report.ladder_steps import Step, climb, explanation, path_of_baselines, steps
from ladder.report.limits import busy
from ladder.report.links import Links
from ladder.report.markdown import number, spread, text
from ladder.report.words import Line, Table, speed_table
from ladder.results import statistics as stats
from ladder.results.counters import SHARED_REQUESTS_OF
from ladder.results.environment import boost_clock_mhz
from ladder.results.input_errors import errors_by_inputs
from ladder.results.run_data import Row, Rows, RunData, Unmeasured, best, grouped, mean
from ladder.results.statistics import Estimate
from ladder.results.sweep_data import SweepData, plain, shown_value
from ladder.results.templates import TEMPLATES
from ladder.results.verdicts import FASTER, SLOWER, TIED, Gain, gain, in_one_session

TEMPLATES.filters |= {
    name: getattr(markdown, name) for name in ("code", "cut", "number", "share", "spread", "text")
}
TEMPLATES.filters |= {
    name: getattr(words, name) for name in ("amount", "change", "mark", "ranged", "speed", "times")
}
TEMPLATES.filters |= {"span": words.span_of, "library": words.proper}
TEMPLATES.globals |= {"mean": mean, "numbers": words.numbers, "plain": plain, "listing": words.listing}
TEMPLATES.globals |= {"ends": words.ends_in_percent, "percent": words.percent}

Facts = Mapping[str, Any]
"""What a template is filled with; `table` stands under the sentences, and is a Table."""

SIZE = 4096
"""M = N = K at which the first screen answers."""


@dataclass(frozen=True)
class Question:
    """A question; `sweep` has more about it, and the `figure` of that kind."""

    name: str
    asked: str
    chapter: str  # folder of its kernels; empty where it is about how was measured
    sweep: str
    figure: str
    front: bool
    find: Callable[[RunData], Facts]


@dataclass(frozen=True)
class Answer:
    """What the run says of a question, as markdown, with its numbers; or in `absent` why it says nothing."""

    name: str
    question: str
    chapter: str
    sweep: str
    front: bool  # whether it stands on the first screen
    headline: str = ""
    also: str = ""
    why: str = ""
    exceptions: str = ""
    table: Table = field(default_factory=lambda: Table(()))
    figure: str = ""  # the file of the figure that shows it
    title: str = ""  # of that figure
    facts: Facts = field(default_factory=dict)
    absent: str = ""


_QUESTIONS: list[Question] = []


def question(
    asked: str, chapter: str, sweep: str = "", figure: str = "", front: bool = True
) -> Callable[[Callable[[RunData], Facts]], Callable[[RunData], Facts]]:
    """Registers a function as the one that answers; its name is that of its template."""

    def register(find: Callable[[RunData], Facts]) -> Callable[[RunData], Facts]:
        _QUESTIONS.append(Question(find.__name__, asked, chapter, sweep, figure, front, find))
        return find

    return register


def answers(data: RunData, links: Links) -> list[Answer]:
    """Every question in reading order with its answer, or with why there is none."""
    return [_answer(one, data, links) for one in _QUESTIONS]


def titles(data: RunData, links: Links) -> dict[str, str]:
    """File of a figure -> what the answer that it shows says, where there is one."""
    found = [_answer(one, data, links) for one in _QUESTIONS if one.figure]
    return {one.figure: one.title for one in found if one.figure}


def _answer(of: Question, data: RunData, links: Links) -> Answer:
    known = Answer(of.name, of.asked, of.chapter, of.sweep if of.sweep in data.sweeps else "", of.front)
    try:
        facts = of.find(data)
        template = TEMPLATES.get_template(f"answers/{of.name}.j2")
        module = template.make_module({"data": data, "links": links, **facts})
        said = {"headline": _sentence(module, "headline")}
    except Unmeasured as error:
        return _with(known, absent=text(error))
    for part in ("also", "why", "exceptions", "title"):
        try:
            said[part] = _sentence(module, part)
        except Unmeasured:
            said[part] = ""
    own = data.sweeps.get(of.sweep)
    files = zip(own.figures, own.figure_names(), strict=True) if own else ()
    shown = next((file for figure, file in files if figure.kind == of.figure), "")
    return _with(known, **said, figure=shown, facts=facts, table=facts.get("table", known.table))


def _sentence(module: Any, name: str) -> str:
    """What a macro of a template says, on one line; empty where the template has none."""
    macro = getattr(module, name, None)
    return " ".join(macro().split()) if macro else ""


def _with(answer: Answer, **more: Any) -> Answer:
    return Answer(**{**answer.__dict__, **more})


def _choice(data: RunData, kind: str, size: int = SIZE) -> Choice:
    """The fastest configuration of a kind at a size, whatever its layout."""
    found = [one for one in choices(data) if one.kind == kind and one.size == size]
    if not found:
        raise Unmeasured(f"no {kind} GEMM at {size} has a result against a library")
    return max(found, key=lambda one: one.gain.value)


@question("Which bf16 GEMM is fastest?", "hopper", "hopper_dtypes")
def fastest_bf16(data: RunData) -> Facts:
    """The fastest bf16 kernel at 4096, cold and without pauses, and where that of its layout does not lead."""
    top = _choice(data, "bf16")
    alike = [one for one in choices(data) if one.kind == "bf16"]
    return {
        "top": top,
        "not_ahead": [one.size for one in alike if one.layout == top.layout and one.gain.verdict != FASTER],
    }


@question("Which FP32 GEMM is fastest?", "fp32", "fp32_tensor", "curves")
def fastest_fp32(data: RunData) -> Facts:
    """The fastest on CUDA cores, and the fastest by three products of TF32."""
    try:
        tensor: Choice | None = _choice(data, THREE_PRODUCTS)
    except Unmeasured:
        tensor = None
    peak, tf32 = data.gpu.get("fp32_peak_tflops"), (data.gpu.get("tensor_peak_tflops") or {}).get("tf32")
    return {
        "cores": _choice(data, "fp32"),
        "tensor": tensor,
        "why_no_tensor": text(data.timed(PRODUCTS_SWEEP, n=SIZE).why),
        "peaks": tf32 / peak if peak and tf32 else None,
    }


def _way(data: SweepData) -> list[Step]:
    """The rungs that lead to the fastest, also those that lose speed, each over the rung that it changes."""
    by_id = {step.row["variant"]: step for step in steps(data)}
    return [by_id[entry.variant.id] for entry in path_of_baselines(data) if entry.variant.id in by_id]


def _path_steps(data: RunData, name: str, along: Callable[[SweepData], list[Step]] = climb) -> list[Step]:
    """The rungs that lead to the fastest of a ladder, with their gains."""
    found = along(data.part(name))
    if sum(step.gain.known for step in found) < 2:
        raise Unmeasured(f"fewer than two rungs of {name} have a result beside the rung that they change")
    return found


@question("Which three steps matter most in FP32?", "fp32", "fp32_ladder", "ladder")
def three_steps(data: RunData) -> Facts:
    """The three largest steps on the way to the fastest FP32 kernel, and what all steps bring together."""
    found = _path_steps(data, "fp32_ladder", _way)
    known = sorted((step for step in found if step.gain.known), key=lambda step: -step.gain.value)
    whole = gain(found[-1].row).over(gain(found[0].row))
    return {
        "largest": known[:3],
        "product": math.prod(step.gain.value for step in known[:3]),
        "whole": whole,
        "first": found[0],
    }


def _changed(step: Step) -> set[str]:
    """The parameters in which a rung differs from the rung that it changes."""
    own, other = step.entry.variant.params, step.entry.baseline.variant.params if step.entry.baseline else {}
    return {name for name in {*own, *other} if own.get(name) != other.get(name)}


TENSOR_LADDERS = {"bf16": "tensor_ladder_bf16", "fp16": "tensor_ladder_fp16", "TF32": "tensor_ladder_tf32"}


@question("Does double buffering pay?", "fp32", "fp32_as_written", "curves")
def double_buffering(data: RunData) -> Facts:
    """The text's double buffer in FP32 over its kernel 6 and over prefetch alone; and stages on tensor cores.

    `one`: over prefetch alone where both have registers for one block a multiprocessor, not for two.
    """
    kernel_6, prefetch, double = (
        data.timed("fp32_as_written", rung=name) for name in ("kernel 6", "prefetch", "double buffer")
    )
    alone, whole = (_by_size(data, rows, kernel_6) for rows in (prefetch, double))
    if not whole:
        raise Unmeasured(double.why or kernel_6.why)
    one = _by_size(
        data,
        *(data.timed("fp32_as_written", rung=f"{name}, one block") for name in ("double buffer", "prefetch")),
    )
    both = _by_size(data, double, prefetch)
    stages = dict[int, list[float]]()
    table = speed_table("FP32, double buffer over kernel 6", whole.items(), "M = N = K")
    for what, gains in (
        ("FP32, prefetch alone over kernel 6", alone),
        ("FP32, double buffer over prefetch", both),
        ("the same with registers for one block", one),
    ):
        table = table.joined(speed_table(what, gains.items(), "M = N = K"))
    for dtype, name in TENSOR_LADDERS.items():
        for step in steps(data.parts[name]) if name in data.parts else ():
            if step.gain.known and _changed(step) == {"stages"}:
                count = int(step.entry.variant.params["stages"])
                stages.setdefault(count, []).append(0.0 if step.tie else step.gain.value - 1)
                what = f"{dtype}, {count} stages against {count - 1}"
                table = table.joined(speed_table(what, [(step.row["n"], step.gain)], "M = N = K"))
    return {
        "whole": whole,
        "alone": alone,
        "one": one,
        "both": both,
        "waits": _waits_for_memory(data, kernel_6, prefetch, double),
        "stages": dict(sorted(stages.items())),
        "pays": _pays(list(itertools.chain(*stages.values()))),
        "table": table,
    }


def _by_size(data: RunData, rows: Rows, others: Rows) -> dict[int, Gain]:
    """Size -> speed of a kernel over another one, at the sizes that both have."""
    return {value.row["n"]: value for value in data.speeds_over(rows, others, "n").found}


def _waits_for_memory(data: RunData, *kernels: Rows) -> list[float]:
    """Cycles an instruction that warps of each kernel wait for global memory, at the largest size where all were
    counted; empty without one."""
    found = [data.numbers(rows, stalled("long_scoreboard")).found for rows in kernels]
    counted = [{one.row["n"]: one.value for one in own} for own in found]
    sizes = set.intersection(*map(set, counted))
    return [waits[max(sizes)] for waits in counted] if sizes else []


def _pays(changes: Sequence[float]) -> str:
    """Whether what changes the speed by these shares pays, in words; empty where nothing does at all."""
    if not any(changes):
        return ""
    return "yes" if min(changes) >= 0 else "no" if max(changes) <= 0 else "not always"


@question("Padding or swizzling?", "warp_mma", "tensor_layouts", "ladder")
def padding_or_swizzling(data: RunData) -> Facts:
    """XOR over padded and padded over plain tiles on tensor cores, and padding in FP32."""
    rows = {(row["swizzle"], row["pad"]): row for row in data.rows("tensor_layouts", "mma_staged")}
    wanted = (("xor", 0), ("none", 8), ("none", 0))
    if lacking := [f"{swizzle}, pad {pad}" for swizzle, pad in wanted if (swizzle, pad) not in rows]:
        raise Unmeasured(f"tensor_layouts has no result for {'; '.join(lacking)}")
    xor, padded, plain = (rows[one] for one in wanted)
    table = speed_table("XOR against padding", [("fp16, same tile", data.over(xor, padded))], "kernel")
    swizzled: list[Gain] = [data.over(xor, padded)]
    for dtype in ("bf16", "tf32"):
        for step in _swizzle_steps(data, f"tensor_ladder_{dtype}"):
            swizzled.append(step)
            table = table.joined(speed_table("XOR against padding", [(f"{dtype} ladder", step)], "kernel"))
    neither = data.over(padded, plain)
    table = table.joined(speed_table("padding against neither", [("fp16, same tile", neither)], "kernel"))
    fp32 = sorted(_padded(data), key=lambda row: float(row["speedup"]))
    return {
        "xor_here": swizzled[0],
        "xor": sorted(swizzled, key=lambda one: one.value),
        "neither": neither,
        "bytes": padded["shared_bytes_dynamic"] / xor["shared_bytes_dynamic"] - 1,
        "fp32": fp32,
        "table": table,
    }


def _swizzle_steps(data: RunData, name: str) -> list[Gain]:
    """Gains of the rungs of a ladder whose tiles are swizzled where those of the rung that they change are padded."""
    found = []
    for step in steps(data.parts[name]) if name in data.parts else ():
        below = step.entry.baseline.variant.params if step.entry.baseline else {}
        changed = (below.get("swizzle"), step.entry.variant.params.get("swizzle"))
        if step.gain.known and changed == ("none", "xor") and below.get("pad"):
            found.append(step.gain)
    return found


def _padded(data: RunData) -> list[Row]:
    """The FP32 kernels with padded tiles at the largest size, each timed against itself without padding."""
    try:
        rows = [row for row in data.rows("fp32_padding") if row["variant"] != row["reference"]]
    except Unmeasured:
        return []
    return [row for row in rows if row["n"] == max(one["n"] for one in rows)]


@question("What does the power limit take?", "hopper", "hopper_dtypes", front=False)
def power_limit(data: RunData) -> Facts:
    """How much slower the recommended configurations are without pauses, at which clock and power."""
    every = slowed(data)
    here = [(one.kind, held) for one, held in every if one.size == SIZE]
    if not here:
        raise Unmeasured(f"no GEMM at {SIZE} was timed both once and for seconds")
    tensor = [held for kind, held in here if kind != "fp32"]
    elsewhere = [pair for pair in every if pair[0].kind != "fp32"]
    watts = data.gpu.get("power_limit_w") or math.inf
    at_limit = [held.row for held in tensor if _at_power_limit(held.row, watts)]
    clocks = sorted(row["sm_clock_mhz"] for row in at_limit if "sm_clock_mhz" in row)
    clocks = clocks if len(clocks) == len(tensor) else []
    boost = boost_clock_mhz(data.gpu)
    return {
        "cores": next((held for kind, held in here if kind == "fp32"), None),
        "losses": sorted(held.loss for held in tensor),
        "most": max(elsewhere, key=lambda pair: pair[1].loss, default=None),
        "clocks": clocks,
        "ghz": list(dict.fromkeys(f"{mhz / 1000:.2f}" for mhz in (*clocks[:1], *clocks[-1:]))),
        "watts": watts,
        # The clock that power lowers: none where a card runs above the one that CUDA gives.
        "boost": boost if boost and clocks and clocks[-1] < boost else None,
        "single": _limited_from(elsewhere),
        "size": SIZE,
        "table": Table([_held_line(data, one, held) for one, held in every]),
    }


_AT_LIMIT = 0.95  # of the power limit: what a GPU draws that is held down by it


def _at_power_limit(row: Row, watts: float) -> bool:
    """Whether power held the clock down: NVML named a reason, and the GPU drew what it may."""
    return bool(row.get("throttled")) and row.get("power_w", 0.0) > _AT_LIMIT * watts


def _limited_from(pairs: Sequence[tuple[Choice, Held]]) -> int | None:
    """The least size from which on the clock of single launches was held down too, in each dtype; None without any."""
    free = [one.size for one, held in pairs if not held.cold.get("throttled")]
    limited = [one.size for one, _ in pairs if one.size > max(free, default=0)]
    return min(limited, default=None)


def _held_line(data: RunData, one: Choice, held: Held) -> list[tuple[str, str]]:
    return [
        ("dtype, layout", f"{one.kind} {one.layout}".strip()),
        ("M = N = K", str(one.size)),
        ("configuration", f"{held.row['kernel']} {text(data.configuration(held.row))}"),
        ("one launch, TFLOP/s", number(held.cold["tflops"], 3)),
        ("for seconds, TFLOP/s", number(held.row["tflops"], 3)),
        ("slower by", f"{100 * max(held.loss, 0):.0f} %"),
        ("SM clock, MHz", number(held.row.get("sm_clock_mhz"), 4)),
        ("power, W", number(held.row.get("power_w"), 3)),
    ]


@question("What do random data cost?", "hopper", "hopper_dtypes", front=False)
def random_data(data: RunData) -> Facts:
    """How much faster GEMMs are with zeros in place of random numbers, in single launches and for seconds."""
    rows = stats.records(data.frames["zeros"])
    here = [row for row in rows if row["n"] == SIZE]
    if not any(row["regime"] == "cold" for row in here):
        raise Unmeasured(f"no kernel was timed with zeros at {SIZE}")
    return {
        "dtypes": sorted({row["dtype"] for row in here}),
        "size": SIZE,
        "gains": {(row["side"], row["regime"]): row["speedup"] - 1 for row in here},
        "single": next(row for row in here if row["regime"] == "cold"),
        "slower": min(
            (row for row in rows if row["speedup_high"] < 1), key=lambda row: row["speedup"], default=None
        ),
        "table": Table([_zeros_line(row) for row in rows]),
    }


def _zeros_line(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    known = Estimate(*(row[name] for name in ("speedup", "speedup_low", "speedup_high")))
    return [
        ("what", text(str(row["subject"]))),
        ("size", size_label(stats.size_of(row))),
        ("regime", row["regime"]),
        ("zeros, µs", number(row["zeros_us"], 4)),
        ("random numbers, µs", number(row["random_us"], 4)),
        ("zeros are faster, times [95 %]", spread(known, 3)),
        ("SM clock with zeros, MHz", number(row["zeros_mhz"], 4)),
        ("with random numbers", number(row["random_mhz"], 4)),
    ]


@question("What does Triton cost?", "triton", "triton_gemm", "curves")
def triton(data: RunData) -> Facts:
    """The fastest in Triton at each size, over the libraries and over the fastest in CUDA beside it, by problem."""
    gemm = _in_triton(data, "triton_gemm")
    here = [one for one in gemm if one.top["n"] == SIZE]
    if not here:
        raise Unmeasured(f"no kernel in Triton has a result at {SIZE}")
    measured = {
        what: [one for name in names if data.timed(name).found for one in _in_triton(data, name)]
        for what, names in _TRITON.items()
    }
    problems = {what: found for what, found in measured.items() if found}
    held = _in_triton(data, "triton_gemm", SUSTAINED)
    for_seconds = {"bf16 GEMM, for seconds": held} if held else {}
    lines = []
    for what, found in {"bf16 GEMM": gemm, **for_seconds, **problems}.items():
        over = [(one.place, one.over) for one in found]
        rows = speed_table(f"{what}, against {found[0].library}", over, "size").lines
        lines += [[*row, *_beside(data, None)] for row in rows]
        for one in found:
            cuda = [(one.place, one.cuda)] if one.cuda else []
            rows = speed_table(f"{what}, against CUDA", cuda, "size").lines
            lines += [[*row, *_beside(data, one)] for row in rows]
    return {
        "size": SIZE,
        "here": here[0],
        "others": grouped(
            [one for one in gemm if one is not here[0]], lambda one: words.mark(one.over), ordered=False
        ),
        "problems": problems,
        "limit": _limit(data, here[0]),
        "table": Table(lines),
    }


def _limit(data: RunData, one: "InTriton") -> tuple[str, float, float] | None:
    """The unit that the kernel in CUDA keeps busiest, with the shares of Triton's and of it; None if not counted."""
    theirs, ours = _busy(data, one.top), _busy(data, one.ours) if one.ours else {}
    return next(((unit, theirs[unit], part) for unit, part in ours.items() if unit in theirs), None)


def _beside(data: RunData, one: "InTriton | None") -> Line:
    """What counters and machine code say of a kernel in Triton and of one in CUDA, where both were counted."""
    heads = ("busy in Triton, in CUDA", "registers", "instructions")
    if one is None or one.ours is None or (limit := _limit(data, one)) is None:
        return [(head, "") for head in heads]
    unit, *shares = limit
    said = [f"{unit}: {', '.join(markdown.share(each, '.0f') for each in shares)}"]
    for name in heads[1:]:
        known = name in one.top and name in one.ours  # not where their compiler is missing
        said.append(f"{one.top[name]}, {one.ours[name]}" if known else "")
    return list(zip(heads, said, strict=True))


def _busy(data: RunData, row: Row) -> dict[str, float]:
    """Units and how busy each is in a single launch, which is what counters are of."""
    return busy(row, row.metrics, data.gpu) if row.metrics and row["regime"] != SUSTAINED else {}


_ATTENTION_LIBRARIES = ("attention_libraries", "attention_libraries_64", "attention_wide")
_TRITON = {"softmax": ("softmax_libraries",), "attention": _ATTENTION_LIBRARIES}
"""Problem -> the sweeps that have kernels in Triton beside those in CUDA, both against libraries."""
_IN_TRITON = "triton_"  # the names of its kernels begin so


@dataclass(frozen=True)
class InTriton:
    """The fastest kernel in Triton at a dtype and size, over the library and over the fastest in CUDA there."""

    place: str
    top: Row
    over: Gain
    library: str
    cuda: Gain | None
    ours: Row | None  # the fastest in CUDA


def _in_triton(data: RunData, sweep: str, regime: str = "") -> list[InTriton]:
    """At each dtype and size with a result in Triton, and each value of what the answer depends on.

    In the sweep's first regime, where it raises Unmeasured without any result, or in another one.
    """
    found, rows = [], data.timed(sweep, regime=regime).found if regime else data.rows(sweep)
    asked = data.sweeps[sweep].problem.parameters
    by_place = grouped(
        rows,
        lambda row: (row["dtype"], *row.size.values(), *(row[name] for name in asked)),
        ordered=False,
    )
    for rows in by_place.values():
        theirs = [row for row in rows if row["kernel"].startswith(_IN_TRITON)]
        ours = [row for row in rows if row not in theirs]
        if theirs:
            top = best(theirs)
            dtype = f" in {top['dtype']}" if len(data.sweeps[sweep].dtypes) > 1 else ""
            place = size_label(top.size) + dtype + "".join(f" with {name} = {top[name]}" for name in asked)
            library = "cuBLAS" if top["reference"].startswith("cublas") else str(top["reference"])
            fastest = best(ours) if ours else None
            cuda = data.over(top, fastest) if fastest else None
            found.append(InTriton(place, top, gain(top), library, cuda, fastest))
    return found


@question("How fast are memory-bound kernels?", "memory_bound", "reduction", "ladder")
def memory_speed(data: RunData) -> Facts:
    """The fastest rung of each ladder that the memory bounds, and a copy, as shares of the memory's peak rate."""
    top = dict[str, Row]()
    for what, name in _MEMORY_LADDERS.items():
        size = data.parts[name].size if name in data.parts else {}
        here = [row for row in data.timed(name, **size).found if "memory_fraction" in row]
        if here:
            top[what] = max(here, key=lambda row: float(row["memory_fraction"]))
    copies = [row["memory_fraction"] / row["copy_fraction"] for row in top.values() if "copy_fraction" in row]
    if not copies:
        raise Unmeasured("no ladder that the memory bounds has a result beside a copy")
    lines = [
        [
            ("kernel", f"{what}, {row['dtype']}"),
            ("size", data.parts[_MEMORY_LADDERS[what]].size_text),
            ("fastest rung", text(plain(row["rung"]))),
            ("of the peak rate", markdown.share(row["memory_fraction"], ".3g")),
            ("against", words.proper(row["reference"])),
            ("speed over it [95 %]", spread(gain(row).measured, 3)),
            ("busy", _busiest(data, row)),
        ]
        for what, row in top.items()
    ]
    return {"top": top, "copy": max(copies), "table": Table(lines)}


def _busiest(data: RunData, row: Row) -> str:
    """The three units that a launch keeps busiest; empty where it was not counted."""
    return ", ".join(
        f"{unit} {markdown.share(part, '.0f')}" for unit, part in [*_busy(data, row).items()][:3]
    )


_MEMORY_LADDERS = {
    "a sum": "reduction",
    "transposition": "transpose_fp32",
    "softmax": "softmax_fp32",
    "GEMV": "gemv_fp32",
}


@question("How fast is attention?", "attention", "attention", "ladder")
def attention_speed(data: RunData) -> Facts:
    """The fastest in CUDA at each length, without a mask and causal, over the libraries if they were timed beside it.

    `top` and `causal` are at the length of the ladder's figure. `over` has the gains of all lengths, by the mask.
    """
    rungs = data.timed("attention").found
    beside = [row for name in _ATTENTION_LIBRARIES for row in data.timed(name, dtype="bf16").found]
    beside = [row for row in beside if not row["kernel"].startswith(_IN_TRITON)]
    fastest = [
        best(rows)
        for rows in grouped(beside or rungs, lambda row: (-row["d"], row["causal"], row["sequence"])).values()
    ]
    size = data.parts["attention"].size if "attention" in data.parts else {}
    here = {row["causal"]: row for row in fastest if row.size == size}
    if 0 not in here:
        raise Unmeasured(data.timed("attention").why or "no attention without a mask has a result")
    counted = {_cell(row): said for row in (*beside, *rungs) if (said := _busiest(data, row))}
    errors = _errors_over_libraries(data)
    lines = [
        [
            ("mask", "causal" if row["causal"] else "none"),
            ("elements in a row", str(row["d"])),
            ("keys", str(row["sequence"])),
            ("fastest", text(plain(row["rung"]) if "rung" in row else row["kernel"])),
            ("TFLOP/s", number(row["tflops"], 3)),
            ("of the peak rate", markdown.share(row["peak_fraction"], ".3g")),
            ("library", str(row["reference"]) if beside else ""),
            ("speed over it [95 %]", spread(gain(row).measured, 3) if beside else ""),
            ("another GPU", words.ends(gain(row).predicted) if beside else ""),
            ("largest error over the library's", errors.get(_cell(row), "")),
            ("busy", counted.get(_cell(row), "")),
        ]
        for row in fastest
    ]
    return {
        "top": here[0],
        "causal": here.get(1),
        "over": {
            causal: [gain(row) for row in fastest if row["causal"] == causal and row["d"] == size["d"]]
            for causal in here
            if beside
        },
        "lengths": sorted({row["sequence"] for row in fastest if row["d"] == size["d"]}),
        "table": Table(lines),
    }


def _cell(row: Row) -> tuple[Any, ...]:
    """Of attention the variant and the size, in whichever sweep."""
    return row["variant"], *(row.size[name] for name in ("sequence", "heads", "d"))


def _errors_over_libraries(data: RunData) -> dict[tuple[Any, ...], str]:
    """Cell -> the least and the greatest of its largest errors by kind of inputs, over those of the library."""
    found = [
        (_cell(Row(one.row, stats.size_of(one.row))), one.ratio)
        for part in (data.parts[name] for name in _ATTENTION_LIBRARIES if name in data.parts)
        for one in errors_by_inputs(part.ok, part.metrics)
        if one.ratio
    ]
    by_cell = grouped(found, lambda one: one[0], ordered=False)
    ends = {cell: sorted(ratio for _, ratio in own) for cell, own in by_cell.items()}
    return {cell: " to ".join(number(own[end], 3) for end in (0, -1)) for cell, own in ends.items()}


@question("How do thin FP32 GEMMs fare?", "fp32", "fp32_shapes", "shapes", front=False)
def thin_fp32(data: RunData) -> Facts:
    """The fastest of our FP32 kernels at each thin shape against the libraries; how many of those that are faster cut K
    over several blocks."""
    found = _over_shapes(data, "fp32_shapes", THIN)
    faster = [row for row in found["rows"] if gain(row).verdict == FASTER]
    return found | {"thin": THIN, "cut": sum(_cuts_k(data, row) for row in faster)}


def _cuts_k(data: RunData, row: Row) -> bool:
    """Whether several blocks share a tile of a row's launch, each with a part of K: its tiles lie along x alone."""
    variants = {entry.variant.id: entry.variant for entry in data.sweeps[row["sweep"]].entries}
    variant = variants.get(row["variant"])
    return variant is not None and math.prod(variant.geometry(row.size).grid[1:]) > 1


THIN = 128
"""M, N or K of a thin shape, at most."""


def _over_shapes(data: RunData, name: str, thin: float = math.inf) -> dict[str, Any]:
    """The fastest at each shape with a dimension of at most `thin`, and the counts of verdicts."""
    shown = [row for row in data.rows(name) if min(row.size.values()) <= thin]
    if not shown:
        raise Unmeasured(f"no shape of {name} with a dimension of at most {thin} has a result")
    rows = [best(own) for own in grouped(shown, lambda row: (row["dtype"], *row.size.values())).values()]
    rows.sort(key=lambda row: row["speedup"])
    counts = dict.fromkeys((FASTER, TIED, SLOWER), 0)
    for row in rows:
        counts[gain(row).verdict] += 1
    return {
        "rows": rows,
        "mean": mean(rows),
        "least_at": ", ".join(f"{name.upper()} = {value}" for name, value in rows[0].size.items()),
        "least": rows[0],
        "most": rows[-1],
        "counts": counts,
    }


@question("Can I trust a number?", "")
def trust(data: RunData) -> Facts:
    """How many readings fell into the range that was predicted without them.

    `unseen`: on GPUs that were new, in the ranges published before; `whole`: on GPUs and hosts left out in turn.
    """
    rows = stats.records(data.frames["coverage"])
    whole = {row["left_out"]: row for row in rows if row["part"] == "all" and row["sessions"] == "all"}
    unseen = stats.records(data.frames["unseen"])
    if not whole and not unseen:
        raise Unmeasured("too few cells were measured on several GPUs to test the ranges")
    worst = min(
        (row for row in rows if row["readings"] >= 200 and "," in row["part"]),
        key=lambda row: row["covered"],
        default=None,
    )
    timed = data.frames["timings"]
    named = {*timed["sweep"]}
    sweeps = [row for row in unseen if row["part"] in named and row["readings"] >= stats.FEW]
    sessions = stats.against_references(timed[timed["status"] == "ok"])["sessions"].dropna()
    return {
        "whole": whole,
        "unseen": {row["part"]: row for row in unseen},
        "least": (least := min(sweeps, key=lambda row: row["covered"], default=None)),
        "without": _without(unseen, least) if least else None,
        "worst": worst,
        "once": float((sessions == 1).mean()) if len(sessions) else None,
        "itself": stats.against_itself(data.frames["sessions"]),
    }


def _without(parts: Sequence[Mapping[str, Any]], least: Mapping[str, Any]) -> float:
    """The share of all readings that are covered but for those of one part."""
    whole = next(row for row in parts if row["part"] == "all")
    left = whole["covered"] * whole["readings"] - least["covered"] * least["readings"]
    return float(left / (whole["readings"] - least["readings"]))


@question("Which claims of tutorials are wrong?", "")
def claims(data: RunData) -> Facts:
    """How many of the sources' statements fail, apart from those that were made about another GPU."""
    decided = data.frames["claims"]
    whole = overall(decided)
    if not (whole != NOT_MEASURED).any():
        raise Unmeasured("no claim was decided")
    elsewhere = set(decided[decided["source"].str.startswith(OTHER_GPU)]["id"])
    decisive = whole[whole != NOT_MEASURED]
    here = decisive[[one not in elsewhere for one in decisive.index]]
    there = decisive[[one in elsewhere for one in decisive.index]]
    return {
        "texts": decided[decided["id"].isin(here.index)]["source"].str.split(" ").str[0].nunique(),
        "claims": len(here),
        "refuted": int((here == REFUTED).sum()),
        "partly": int((here == ONLY_WHERE).sum()),
        "there": len(there),
        "fails_there": int((there == REFUTED).sum()),
    }


OTHER_GPU = ("hip-gemm", "harris-reduction")
"""The sources that measured another GPU than any that a kernel here runs on: an AMD MI100, a G80."""


@question("Is my kernel faster than cuBLAS?", "")
def judge(data: RunData) -> Facts:
    """The command that says so."""
    return {}


@question("How far does mma.sync come?", "warp_mma", "tensor_ladder_bf16", front=False)
def mma_sync(data: RunData) -> Facts:
    """The end of the warp-level ladder and of the Hopper ladder in bf16, both over the libraries."""
    try:
        hopper: Gain | None = gain(_path_steps(data, "hopper_ladder")[-1].row)
    except Unmeasured:
        hopper = None
    return {
        "warp": gain(_path_steps(data, "tensor_ladder_bf16")[-1].row),
        "hopper": hopper,
    }


@question("What do TMA, wgmma and persistent blocks bring?", "hopper", "hopper_ladder", front=False)
def hopper_steps(data: RunData) -> Facts:
    """The largest steps of the Hopper ladder."""
    found = _path_steps(data, "hopper_ladder")
    known = [step for step in found if step.gain.known]
    largest = sorted(known, key=lambda step: -step.gain.value)[:3]
    return {
        "first": gain(found[0].row),
        "top": gain(found[-1].row),
        "largest": largest,
        "explained": [text(plain(step.entry.rung)) for step in largest if step.explained],
        "counted": len(known),
    }


@question("Is fp8 faster than cuBLASLt?", "hopper", "hopper_fp8", front=False)
def fp8(data: RunData) -> Facts:
    """The fastest fp8 kernel at each size; partial sums are not promoted."""
    found = {one.size: one for one in choices(data) if one.kind == "fp8"}
    if not found:
        raise Unmeasured("no fp8 GEMM has a result against a library")
    by_verdict = {
        verdict: {size: one.gain for size, one in found.items() if one.gain.verdict == verdict}
        for verdict in (FASTER, TIED, SLOWER)
    }
    return {**by_verdict, "most": found[max(found)].row["reference"]}


@question("Do transformer shapes gain?", "hopper", "hopper_shapes", "shapes", front=False)
def transformers(data: RunData) -> Facts:
    """The configuration chosen for each shape of Llama 3 in bf16, over the libraries."""
    found = _over_shapes(data, "hopper_shapes")
    return found | {
        "means": {m: mean(own) for m, own in grouped(found["rows"], lambda row: row["m"]).items()}
    }


@question("Do lane maps matter?", "fp32", "fp32_lane_maps", front=False)
def lane_maps(data: RunData) -> Facts:
    """The fastest and the slowest lane map in the larger tile, and whether fewest wavefronts make it fast."""
    rows = data.rows("fp32_lane_maps", **data.part("fp32_lane_maps").size)
    here = sorted(
        (row for row in rows if row["bm"] == max(one["bm"] for one in rows)), key=lambda row: row["speedup"]
    )
    counted = {
        row["variant"]: per_request(row)
        for row in data.rows("fp32_lane_maps")
        if SHARED_REQUESTS_OF.format("ld") in row.metrics
    }
    least = min(counted.values(), default=math.nan)
    free = [row for row in here if counted.get(row["variant"], math.inf) <= ENOUGH * least]
    return {
        "name": lambda row: f"{row['lane_map']} {row['split']} {shown_value('tiles', row)}",
        "worth": gain(here[-1]).over(gain(here[0])),
        "first": here[-1],
        "last": here[0],
        "cause": _cause(data, _all_sizes(data, here[0]), _all_sizes(data, here[-1])),
        "free": free[0] if free else None,
    }


def _cause(data: RunData, slow: Sequence[Row], fast: Sequence[Row]) -> str:
    """What the counters say of the difference of two kernels, at the largest size where both were counted, if any."""
    by_size = {size_label(row.size): row for row in slow if row.metrics}
    for row in reversed(fast):
        if row.metrics and (other := by_size.get(size_label(row.size))):
            counters = [other.metrics, row.metrics]
            return f"{explanation(other, row, counters, data.gpu)[0]} (at {size_label(row.size)})"
    return ""


def _all_sizes(data: RunData, row: Row) -> Sequence[Row]:
    return data.rows(row["sweep"], variant=row["variant"])


@question("Do bank conflicts follow the model?", "shared_memory", "bank_stride", "banks", front=False)
def bank_model(data: RunData) -> Facts:
    """Cycles of accesses to shared memory against the wavefronts that the model of the banks predicts."""
    parts = [part for name, part in data.parts.items() if part.sweep.problem.name == "banks" and len(part.ok)]
    costs = [stats.access_costs(part.ok, part.metrics).dropna(subset=["cycles", "model"]) for part in parts]
    known = [(cost["cycles"] / cost["model"] - 1).abs() for cost in costs if len(cost)]
    if not known:
        raise Unmeasured("no access to shared memory was timed")
    stride = next((cost["cycles"].max() for cost in costs if set(cost["sweep"]) == {"bank_stride"}), math.nan)
    return {"cells": sum(map(len, known)), "off": max(float(one.max()) for one in known), "most": stride}


@question("Register cache or shared memory?", "stencil", "stencil_reach", "stencil", front=False)
def register_cache(data: RunData) -> Facts:
    """Both kernels with as many outputs per thread at each radius, in each type."""
    ratios, best_ratios, rows = dict[str, dict[int, Gain]](), dict[str, dict[int, Gain]](), list[Line]()
    for dtype in data.sweeps["stencil_reach"].dtypes if "stencil_reach" in data.sweeps else ():
        for radius in sorted({row["radius"] for row in data.rows("stencil_reach", dtype=dtype)}):
            cached, shared = (_stencil_rows(data, name, dtype=dtype, radius=radius) for name in _STENCILS)
            alike = [(own, other) for own in cached for other in shared if own["coarsen"] == other["coarsen"]]
            if alike:
                own, other = max(alike, key=lambda pair: max(one["speedup"] for one in pair))
                ratios.setdefault(dtype, {})[radius] = gain(own).over(gain(other))
            best_ratios.setdefault(dtype, {})[radius] = gain(best(cached)).over(gain(best(shared)))
    if not ratios:
        raise Unmeasured("stencil_reach has no two kernels with as many outputs per thread")
    for dtype, by_radius in ratios.items():
        rows += [
            [
                ("dtype", dtype),
                ("radius", str(radius)),
                ("as many outputs a thread [95 %]", spread(one.measured, 3)),
                ("another GPU", words.ends(one.predicted)),
                ("best of each [95 %]", spread(best_ratios[dtype][radius].measured, 3)),
            ]
            for radius, one in by_radius.items()
        ]
    verdicts = {
        dtype: {
            verdict: [radius for radius, one in by_radius.items() if one.verdict == verdict]
            for verdict in (FASTER, TIED, SLOWER)
        }
        for dtype, by_radius in ratios.items()
    }
    many = _stencil_rows(data, _STENCILS[0], dtype=next(iter(ratios)))
    single = {row["radius"]: gain(row) for row in many if row["coarsen"] == 1}
    tops = {radius: gain(best(rows)) for radius, rows in grouped(many, _radius).items()}
    outputs = [top.over(single[radius]) for radius, top in tops.items() if radius in single]
    return {"ratios": ratios, "verdicts": verdicts, "outputs": outputs, "table": Table(rows)}


def _stencil_rows(data: RunData, kernel: str, **wanted: Any) -> list[Row]:
    """Rows of a kernel; a shuffle with the mask of active lanes is there for a claim alone."""
    return [row for row in data.rows("stencil_reach", kernel, **wanted) if row.get("mask") != "active"]


def _radius(row: Row) -> int:
    return int(row["radius"])


_STENCILS = ("stencil_register_cache", "stencil_shared")


@question("How exact are the fastest FP32 kernels?", "fp32", front=False)
def accuracy(data: RunData) -> Facts:
    """The largest errors of kernels by kind of inputs over those of cuBLAS in FP32."""
    ratios: dict[str, dict[str, list[float]]] = {}
    timings = data.frames["timings"]
    over_cublas = timings[
        timings["reference"].str.startswith("cublas", na=False) & timings["baseline"].isna()
    ]
    for error in errors_by_inputs(over_cublas, data.frames["metrics"]):
        kind = THREE_PRODUCTS if error.row["sweep"] == PRODUCTS_SWEEP else error.row["dtype"]
        if error.ratio:
            ratios.setdefault(kind, {}).setdefault(error.inputs, []).append(error.ratio)
    if not ratios:
        why = "a sweep asks for them by `errors`"
        raise Unmeasured(f"errors by kind of inputs were not measured here; {why}, and they take a GPU")
    lines = [
        [
            ("kernels", kind),
            ("inputs", inputs),
            ("largest error over that of cuBLAS", f"{number(min(of), 3)} to {number(max(of), 3)}"),
        ]
        for kind, by_inputs in ratios.items()
        for inputs, of in by_inputs.items()
    ]
    return {"ratios": ratios, "products": ratios.get(THREE_PRODUCTS, {}), "table": Table(lines)}


def _pairs_of_betas(data: RunData) -> list[tuple[TableRow, TableRow]]:
    """Rows of cells with beta = 0 and with beta = 1."""
    timings = data.frames["timings"]
    good = timings[(timings["status"] == "ok") & timings["baseline"].isna()]
    plain_rows = {
        (*stats.cell_of(row), row["regime"]): row for row in stats.records(good[good["beta"].isna()])
    }
    added_rows = {
        (*stats.cell_of(row), row["regime"]): row for row in stats.records(good[good["beta"].notna()])
    }
    return [(plain_rows[cell], row) for cell, row in added_rows.items() if cell in plain_rows]


@question("What does C = A B + C cost?", "fp32", front=False)
def accumulation(data: RunData) -> Facts:
    """Each kernel against the faster library with beta = 1, and what reading C costs both."""
    pairs = _pairs_of_betas(data)
    if not pairs:
        why = "a sweep asks for it by `accumulated`"
        raise Unmeasured(f"no kernel was timed with beta = 1 here; {why}, and it takes a GPU")
    costs = [
        sorted(added[name] / plain_[name] - 1 for plain_, added in pairs)
        for name in ("median_us", "reference_median_us")
    ]
    gains = [
        gain(added) if stats.predicted(added).known else Gain(in_one_session(added)) for _, added in pairs
    ]
    return {
        "own": costs[0],
        "library": costs[1],
        "gains": gains,
        "faster": sum(one.verdict == FASTER for one in gains),
        "predicted": all(one.predicted.known for one in gains),
    }

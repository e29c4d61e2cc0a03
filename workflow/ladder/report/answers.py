"""The questions that a run answers, and what it answers.

A person writes the sentences of an answer in workflow/report/answers/NAME.j2; numbers come from `Lookups`. The macros
there are `headline`, at most 25 words, and where there is more to say `also`, `why`, `exceptions`, `table`, and the
`title` of the figure that shows it, at most 12 words. Each is rendered by itself: a number that is missing costs the
sentence that needs it and no other. README, the report, the page and titles of figures are views of the answers.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ladder.report import markdown, words
from ladder.report.causes import relieved
from ladder.report.choices import THREE_PRODUCTS
from ladder.report.links import Links
from ladder.report.lookups import Lookups, names
from ladder.results.run_data import RunData, Unmeasured, mean
from ladder.results.statistics import from_to
from ladder.results.sweep_data import plain
from ladder.results.templates import TEMPLATES

_OF_MARKDOWN = "code cut number share spread text"
_OF_WORDS = "amount change ends mark ranged sentence shares span speed times"
TEMPLATES.filters |= {name: getattr(markdown, name) for name in _OF_MARKDOWN.split()}
TEMPLATES.filters |= {name: getattr(words, name) for name in _OF_WORDS.split()}
TEMPLATES.filters |= {"library": words.proper, "relieved": relieved}
TEMPLATES.globals |= {
    "from_to": from_to,
    "listing": words.listing,
    "mean": mean,
    "numbers": words.numbers,
    "plain": plain,
    "THREE_PRODUCTS": THREE_PRODUCTS,
}
_PARTS = ("also", "why", "exceptions", "title", "table")


@dataclass(frozen=True)
class Question:
    """A question; its `sweep` has more about it, and the `figure` of that kind shows it.

    `sweep` is empty where the question is about how was measured. `front`: on the first screen.
    """

    name: str
    question: str
    sweep: str = ""
    figure: str = ""
    front: bool = True


QUESTIONS = (
    Question("fastest_bf16", "Which bf16 GEMM is fastest?", "hopper_dtypes"),
    Question("fastest_fp32", "Which FP32 GEMM is fastest?", "fp32_tensor", "curves"),
    Question(
        "three_steps", "Which three steps matter most in FP32?", "fp32_rungs", "ladder"
    ),
    Question(
        "double_buffering", "Does double buffering pay?", "fp32_as_written", "curves"
    ),
    Question(
        "padding_or_swizzling", "Padding or swizzling?", "tensor_layouts", "ladder"
    ),
    Question(
        "power_limit", "What does the power limit take?", "hopper_dtypes", front=False
    ),
    Question("triton", "What does Triton cost?", "triton_gemm", "curves"),
    Question(
        "memory_speed", "How fast are memory-bound kernels?", "reduction", "ladder"
    ),
    Question("attention_speed", "How fast is attention?", "attention", "ladder"),
    Question("block_scales", "What do block scales cost in fp8?", "scaled_squares"),
    Question(
        "thin_fp32",
        "How do thin FP32 GEMMs fare?",
        "fp32_shapes",
        "shapes",
        front=False,
    ),
    Question("trust", "Can I trust a number?"),
    Question("claims", "Which claims of tutorials are wrong?"),
    Question("judge", "Is my kernel faster than cuBLAS?"),
    Question(
        "mma_sync",
        "How far does mma.sync come?",
        "tensor_ladder_bf16",
        "ladder",
        front=False,
    ),
    Question(
        "hopper_steps",
        "What do TMA, wgmma and persistent blocks bring?",
        "hopper_ladder",
        "ladder",
        front=False,
    ),
    Question("fp8", "Is fp8 faster than cuBLASLt?", "hopper_fp8", front=False),
    Question(
        "transformers",
        "Do transformer shapes gain?",
        "hopper_shapes",
        "shapes",
        front=False,
    ),
    Question("lane_maps", "Do lane maps matter?", "fp32_lane_maps", front=False),
    Question(
        "bank_model",
        "Do bank conflicts follow the model?",
        "bank_stride",
        "banks",
        front=False,
    ),
    Question(
        "register_cache",
        "Register cache or shared memory?",
        "stencil_reach",
        front=False,
    ),
    Question(
        "accuracy",
        "How exact are the fastest FP32 kernels?",
        "fp32_tensor",
        front=False,
    ),
)
"""In reading order."""


@dataclass(frozen=True)
class Answer(Question):
    """What the run says of a question, as markdown; or in `absent` why it says nothing.

    `sweep` is empty where the run lacks it. `figure`: the file of the figure that shows the answer, and `title` that
    figure's. `unsaid`: sentences that a person wrote and the numbers of this run do not bear out; no page has them.
    """

    headline: str = ""
    also: str = ""
    why: str = ""
    exceptions: str = ""
    table: str = ""
    title: str = ""
    absent: str = ""
    unsaid: tuple[str, ...] = ()


def answers(data: RunData, links: Links) -> list[Answer]:
    """Every question in reading order with its answer, or with why there is none."""
    return [_answer(question, data, links) for question in QUESTIONS]


def titles(data: RunData, links: Links) -> dict[str, str]:
    """File of a figure -> what the answer that it shows says, where there is one."""
    return {
        answer.figure: answer.title for answer in answers(data, links) if answer.figure
    }


def _answer(question: Question, data: RunData, links: Links) -> Answer:
    sweep = data.sweeps.get(question.sweep)
    shown = {
        "sweep": sweep.name if sweep else "",
        "figure": sweep.figure_name(question.figure) if sweep else "",
    }
    answer = Answer(**{**vars(question), **shown})
    lookups = Lookups(data)
    template = TEMPLATES.get_template(f"answers/{question.name}.j2")
    try:
        macros = template.make_module({"links": links, **names(lookups)})
        headline = _sentence(macros, "headline")
    except Unmeasured as error:
        return replace(answer, figure="", absent=markdown.text(error))
    parts: dict[str, Any] = {"headline": headline}
    for part in _PARTS:
        with suppress(Unmeasured):
            parts[part] = _sentence(macros, part)
    return replace(answer, unsaid=tuple(lookups.unsaid), **parts)


def _sentence(macros: Any, name: str) -> str:
    """What a macro of a template says: on one line but for a table; empty where the template has none."""
    macro = getattr(macros, name, str)
    # Not split(), which breaks at the spaces that must not break.
    lines = [re.sub(r"[ \t]+", " ", line.strip(" \t")) for line in macro().splitlines()]
    return ("\n" if name == "table" else " ").join(filter(None, lines))

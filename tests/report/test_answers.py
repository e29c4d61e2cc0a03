"""Answers: one function and one template each; what they say is what the tables hold, in few words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkout import PUBLISHED, published_data, published_of
from conftest import ROOT
from factory import CUBLAS_TFLOPS, ONE_CELL, Fields, Lab, over
from jinja2 import ChoiceLoader, DictLoader
from ladder.catalogue.runs import load
from ladder.catalogue.settings import set_up
from ladder.model.cell import size_label
from ladder.page.document import render as render_page
from ladder.report import answers as module
from ladder.report.answers import Answer, Question, answers, titles
from ladder.report.choices import choices
from ladder.report.document import TEMPLATES, learnt, render
from ladder.report.links import Links
from ladder.report.lookups import Lookups
from ladder.report.statements import NOT_HERE, OTHER_GPU, claim_lines
from ladder.report.words import amount, numbers, span, speed
from ladder.results import tables
from ladder.results.run_data import Gain, RunData
from ladder.results.statistics import UNKNOWN, Estimate, records, size_of
from ladder.results.verdicts import NO_GAIN
from rendering import answer_of, made, report, section, with_frames

MOST_WORDS = 4000
"""Of the report."""


def gain(value: float, low: float, high: float) -> Gain:
    return Gain(Estimate(value, value, value), Estimate(value, low, high))


@pytest.fixture(scope="module")
def published() -> RunData:
    return published_data()


@pytest.fixture(scope="module")
def pages(published: RunData) -> dict[str, str]:
    front = itertools.islice(render(PUBLISHED, published, {}), 3)
    return {path.stem: text for path, text in front} | {
        "README": (ROOT / "README.md").read_text()
    }


@pytest.fixture(scope="module")
def found(published: RunData) -> dict[str, Answer]:
    return {
        one.name: one
        for one in answers(published, Links(PUBLISHED, PUBLISHED.root, published))
    }


SAID = """
{% macro headline() %}It has {{ climb("fp32_ladder") | length }} lives.{% endmacro %}
{% macro also() %}{{ expect(false, "It has none.") }}{% endmacro %}
{% macro title() %}All the lives{% endmacro %}
"""


def test_a_ninth_question_is_a_line_and_a_template_and_stands_everywhere(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In README, report and page, and above the figure that shows it."""
    ninth = Question("ninth", "What is the ninth?", "fp32_ladder", "ladder")
    monkeypatch.setattr(module, "QUESTIONS", (*module.QUESTIONS, ninth))
    written = DictLoader({"answers/ninth.j2": SAID})
    loaders = [written, TEMPLATES.loader]
    monkeypatch.setattr(TEMPLATES, "loader", ChoiceLoader(loaders))
    data = RunData.read(lab.folder, lab.sweeps(["fp32_ladder"]))
    readme = learnt(lab.folder, data, lab.root)
    _, report = next(render(lab.folder, data, {}))
    page = render_page(lab.folder, data, lab.root)
    titled = titles(data, Links(lab.folder, lab.folder.root, data))
    assert re.search(
        r"\|\[What is the ninth\?\]\(.*/report\.md#findings\)\|It has \d lives\. \[Page\]\(.*#chart=\w+\)\.\|",
        readme,
    )
    assert re.search(r"What is the ninth\? \*\*It has \d lives\.\*\*", report)
    assert re.search(r"It has \d lives\.", page)
    assert titled["fp32_ladder-1-ladder.png"] == "All the lives"
    assert "It has none." not in readme + report + page, "nothing bears it out"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return made(tmp_path_factory.mktemp("lab"), ["fp32_ladder", "fp32_transpose"])


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (gain(1.03, 1.009, 1.05), "3 % faster than cuBLAS (0.9 to 5 %)"),
        (gain(0.7, 0.69, 0.71), "30 % slower than cuBLAS (29 to 31 %)"),
        (gain(1.01, 0.98, 1.03), "as fast as cuBLAS (-2 to +3 %)"),
        (gain(1.02, 0.98, 1.06), "undecided against cuBLAS (-2 to +6 %)"),
        (gain(1.02, 0.95, 1.01), "undecided against cuBLAS (-5 to +1 %)"),
        (gain(2.6, 2.57, 2.62), "2.6 times as fast as cuBLAS (2.57 to 2.62)"),
        (Gain(Estimate(1.03, 1.02, 1.04), UNKNOWN), "3 % faster than cuBLAS"),
    ],
)
def test_a_speed_up_is_in_percent_below_two_and_where_the_range_holds_1_a_tie_or_undecided(
    of: Gain, said: str
) -> None:
    assert speed(of, "cuBLAS") == said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((1.1, 1.2), "10 to 20 %"),
        ((0.8, 0.9), "-20 to -10 %"),
        ((0.95, 1.08), "-5 to +8 %"),
        ((0.95, 2.6), "-5 % to 2.6 times"),
    ],
)
def test_a_span_of_losses_reads_like_no_gain(
    values: Sequence[float], said: str
) -> None:
    assert span(gain(value, value, value) for value in values) == said


def test_what_a_step_costs_has_a_sign() -> None:
    assert amount(gain(1.38, 1.3, 1.4)) == "38 %"
    assert amount(gain(0.97, 0.96, 0.98)) == "-3 %"


def test_three_steps_never_bring_more_than_the_whole_ladder() -> None:
    """A rung behind them may cost: then nothing is said of both."""
    lookups = Lookups(RunData({}, {}))
    path = []
    for speedup in (1.0, 2.0, 4.0, 8.0, 7.9):
        whole = gain(speedup, speedup, speedup)
        step = whole.over(path[-1].whole) if path else NO_GAIN
        entry, row = SimpleNamespace(rung="r"), SimpleNamespace(speedup=speedup)
        path.append(SimpleNamespace(entry=entry, row=row, gain=step, whole=whole))
    context = {"climb": lambda sweep: path, "expect": lookups.expect}
    template = TEMPLATES.get_template("answers/three_steps.j2")
    macros: Any = template.make_module(context)
    assert "8.0 of the" not in macros.title()
    assert not macros.also().strip()
    assert (
        "Together they bring 8.0 times, the whole ladder 7.9 times." in lookups.unsaid
    )


def test_sizes_that_double_are_a_range() -> None:
    assert numbers([2048, 4096, 8192]) == "2048 to 8192"
    assert numbers([256, 1024]) == "256 and 1024"


def test_a_sentence_that_the_numbers_do_not_bear_out_is_left_out_and_named() -> None:
    lookups = Lookups(RunData({}, {}))
    assert lookups.expect(True, "It pays.") == "It pays."
    assert lookups.expect(False, "It costs.") == ""
    assert lookups.unsaid == ["It costs."]


def test_what_to_use_has_a_column_a_size_names_ties_and_leaves_out_what_is_far_behind(
    tmp_path: Path,
) -> None:
    """The ladder's fastest rung ties with the library at 1024, wins at 2048, and is far behind elsewhere."""
    factors = {1024: 0.66, 2048: 0.5}

    def change(cell: Any, record: Fields) -> Fields:
        return over(record, factors.get(cell.size.get("m", 0), 1.0))

    lab = Lab(tmp_path)
    lab.record_and_collect(["fp32_ladder"], change)
    part = section(report(lab)["report"], "What to use")
    large, small = (line for line in part.splitlines() if line.startswith("|fp32 NN|"))
    assert "|dtype, layout|2048|" in part
    assert large.startswith("|fp32 NN|▲ +32 %")
    assert "(transposed A)" in large or "transposed A]" in large
    rate = 0.66 * CUBLAS_TFLOPS["fp32"]
    assert f", {rate:.1f} ({100 * rate / 66.9:.0f} %): [" in large
    assert small.startswith("|fp32 NN|= 0 %")
    assert "so use it:\n\n- fp32 NN: 512, 4096 and 8192\n" in part


def test_what_to_use_does_not_depend_on_the_order_of_sweeps(published: RunData) -> None:
    backwards = dict(reversed(published.sweeps.items()))
    other = RunData(backwards, published.frames, published.environment)

    def said(data: RunData) -> list[tuple[Any, ...]]:
        return [
            (one.kind, one.layout, one.size, {**row}, data.configuration(row))
            for one in choices(data)
            for row in (one.row, one.held or one.row)
        ]

    assert said(other) == said(published)


def test_a_speed_up_over_one_of_two_libraries_alone_does_not_count() -> None:
    def row(sweep: str, regime: str, variant: str, value: float) -> Fields:
        about = {"sweep": sweep, "regime": regime, "variant": variant, "speedup": value}
        return {**ONE_CELL, **about, "status": "ok", "params": "{}"}

    rows = [
        row("promoted", "cold", "a", 1.04),
        row("fast", "cold", "b", 1.01),
        row("promoted", "sustained", "a", 1.04),
        row("fast", "sustained", "b", 0.99),
    ]
    libraries = {"promoted": ("cublaslt",), "fast": ("cublaslt", "cublaslt_fast")}
    sweeps: Any = {
        name: SimpleNamespace(
            name=name,
            problem=SimpleNamespace(name="gemm"),
            reference=SimpleNamespace(kernel=None, libraries=own),
            regimes=("cold",),
            tuning=False,
            entries=(),
        )
        for name, own in libraries.items()
    }
    data = RunData(sweeps, {"timings": tables.frame("timings", rows)})
    (choice,) = choices(data)
    assert choice.row["variant"] == "b"
    assert choice.held is not None
    assert choice.held["speedup"] == 0.99


def test_what_is_fastest_for_seconds_is_chosen_apart(tmp_path: Path) -> None:
    """Whatever it does in single launches; what the power limit takes is said of what was launched both ways."""

    def change(cell: Any, record: Fields) -> Fields | None:
        record["regimes"]["sustained"] = dict(record["regimes"]["cold"])
        if cell.size.get("m") == 4096 and cell.entry.rung == "register tile":
            over({"regimes": {"one": record["regimes"]["sustained"]}}, 0.5)
            record["regimes"] = {"sustained": record["regimes"]["sustained"]}
        return over(record, 0.6)

    lab = Lab(tmp_path)
    held = {"sizes": [4096], "where": "kernel == 'gemm_register_tile'"}
    lab.update("fp32_ladder", sustained=held)
    lab.record_and_collect(["fp32_ladder"], change)
    data = RunData.read(lab.folder, lab.sweeps(["fp32_ladder"]))
    choice = Lookups(data).choice("fp32")
    assert choice.held is not None
    assert choice.slowed is not None
    rungs = [row["rung"] for row in (choice.row, choice.held, choice.slowed.row)]
    assert rungs == ["transposed A", "register tile", "transposed A"]
    pages = report(lab)
    once, held = (
        section(pages["report"], "What to use"),
        section(pages["evidence"], "For seconds"),
    )
    assert ["register tile" in part for part in (once, held)] == [False, True]
    assert (
        "Where another is the fastest for seconds: [numbers](evidence.md#for-seconds)."
        in once
    )
    assert ["|8192|" in part for part in (once, held)] == [True, False], (
        "none was held for seconds there"
    )
    needed = section(pages["methodology"], "Recommended configurations")
    assert all(rung in needed for rung in ("transposed A", "register tile"))


def test_what_fails_of_a_text_about_another_gpu_is_not_refuted() -> None:
    about = {"statement": "It pays.", "part": "gain: at least 1"}
    rows = [
        {"id": "one", "source": "hip-gemm (#1)", "verdict": "holds", "effect": 1.2},
        {"id": "one", "source": "hip-gemm (#1)", "verdict": "refuted", "effect": 0.9},
        {"id": "two", "source": "gemm-practice", "verdict": "refuted", "effect": 0.8},
        {"id": "three", "source": "hip-gemm", "verdict": "holds", "effect": 1.1},
    ]
    rows = [about | row for row in rows]
    found = {one["id"]: one for one in claim_lines(tables.frame("claims", rows))}
    verdicts = [(name, line["verdict"]) for name, line in found.items()]
    assert verdicts == [("two", "refuted"), ("one", NOT_HERE), ("three", "holds")], (
        "what fails stands first"
    )
    assert found["one"]["number"] == "0.900 gain", "of the part that decides"
    assert claim_lines(tables.frame("claims", [])) == []


def test_the_report_says_what_was_not_measured_and_the_evidence_has_every_part_of_all_claims(
    tmp_path: Path,
) -> None:
    sweeps = ["fp32_ladder", "fp32_transpose"]
    lab = made(tmp_path, sweeps)
    folder = lab.project.sweeps
    (folder / "fp32_rungs.yaml").write_text((folder / "fp32_ladder.yaml").read_text())
    lab.record_and_collect([*sweeps, "fp32_rungs"])
    pages = report(lab)
    findings = section(pages["report"], "Findings")
    why = "Not measured: the sweep fp32_as_written is not part of this run."
    assert f"**Does double buffering pay?** {why}" in findings
    asked = "Which three steps matter most in FP32?"
    chapter = section(pages["report"], "Kernels")
    assert f"{asked} **Coalesced (6.0 times), then" in chapter
    part = section(pages["report"], "Claims")
    assert "1 hold. All others, and every part" in part
    assert "Transposing pays." not in part
    evidence = pages["evidence"].partition("### transpose-pays")[2]
    assert (
        "- **holds** at n = 1024, 4096: gain: at least 1. All 8 are 1.25 x." in evidence
    )
    assert "What to do: Transpose: 1.25 x." in evidence


def test_the_report_is_short(pages: dict[str, str]) -> None:
    """Without its notices of cells that nobody has measured yet."""
    notice = r"\d+ cells? \w+ not measured yet;.*|, \d+ not measured"
    words = len(re.sub(notice, "", pages["report"]).split())
    assert words <= MOST_WORDS, (
        f"{words} words: shorten a sentence of workflow/report, or show less"
    )


@pytest.mark.published
def test_release_notes_say_of_this_version_what_the_report_says(
    pages: dict[str, str],
) -> None:
    notes = (ROOT / "docs/releases.md").read_text()
    table = notes.partition("**Answers**")[2].partition("|---|---|---|---|\n")[2]
    lines = table.partition("\n\n")[0].splitlines()
    for line in lines:
        for part in line.split("|")[3].split("; "):
            assert part in pages["report"], line
    assert len(lines) >= 8


@pytest.mark.published
def test_the_published_numbers_bear_out_every_sentence_of_an_answer(
    found: dict[str, Answer],
) -> None:
    assert [one.unsaid for one in found.values() if one.unsaid] == []


def test_every_answer_has_a_headline_or_says_why_not(found: dict[str, Answer]) -> None:
    for one in found.values():
        assert bool(one.headline) != bool(one.absent), one.name
        for said in (one.headline, one.also, one.why, one.exceptions, one.title):
            assert not re.search(r" [,.;]|  ", said), (one.name, said)


def test_a_title_of_a_figure_is_a_view_of_the_answer_that_it_shows(
    found: dict[str, Answer],
) -> None:
    """Each number in it stands in the answer, and what is drawn has it."""
    titled = {one.figure: one for one in found.values() if one.figure}
    assert len(titled) > 7
    for one in titled.values():
        assert len(one.title.split()) <= 12, one.title
        said = f"{one.headline} {one.also} {one.why} {one.exceptions}"
        assert {*NUMBER.findall(one.title)} <= {*NUMBER.findall(said)} | {
            "2048",
            "4096",
            "8192",
        }, one.name
    assert found["three_steps"].title == "Three steps bring 45 of the 107 times"


NUMBER = re.compile(r"(?<![\w./])\d+(?:\.\d+)?(?![\w/])")


def test_the_cells_measured_first_answer_the_first_screen(
    published: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of all cells; numbers differ a little where a configuration was measured twice, or in more dtypes.

    What is published of variants that no sweep has any more counts for neither.
    """
    quick = load(set_up(ROOT, [ROOT / "config/quick.yaml"]))
    asked = {
        (name, task.variant, size_label(task.cell.size), regime)
        for name in quick.sweeps
        for task in quick.plans[name].tasks
        for regime in quick.plans[name].regimes_of(task)
    }
    timings = published.frames["timings"]
    cells = [
        (row["sweep"], row["variant"], size_label(size_of(row)), row["regime"])
        for row in records(timings)
    ]
    frames = {**published.frames, "timings": timings[[cell in asked for cell in cells]]}
    data = RunData(quick.sweeps, frames, published.environment)
    variants = {
        (name, one.id)
        for name, sweep in published.sweeps.items()
        for one in sweep.variants
    }
    rows = timings[[cell[:2] in variants for cell in cells]]
    everything = with_frames(published, timings=rows)
    assert len(data.frames["timings"]) < len(timings) / 10
    links = Links(PUBLISHED, PUBLISHED.root, published)
    front = [one for one in module.QUESTIONS if one.front]
    monkeypatch.setattr(module, "QUESTIONS", front)
    for one, other in zip(
        answers(data, links), answers(everything, links), strict=True
    ):
        said, whole = one.headline, other.headline
        assert not one.absent
        assert NUMBER.sub("_", said) == NUMBER.sub("_", whole), one.name
        numbers = [float(each) for each in NUMBER.findall(whole)]
        assert [float(each) for each in NUMBER.findall(said)] == pytest.approx(
            numbers, rel=0.1
        ), one.name


def test_what_was_not_decided_is_no_statement_that_was_tried(
    published: RunData,
) -> None:
    claims = published.frames["claims"].copy()
    decided = claims[claims["verdict"] != "not measured"]
    here = decided[~decided["source"].str.startswith(OTHER_GPU)]
    gone = here["id"].iloc[0]
    claims.loc[claims["id"] == gone, "verdict"] = "not measured"
    data = with_frames(published, claims=claims)
    assert len(Lookups(data).decided()) == here["id"].nunique() - 1


def test_what_triton_costs_is_said_where_its_compiler_is_missing() -> None:
    """All numbers of the answer are times and counters."""
    data = published_of("triton_gemm")
    resources = data.frames["resources"]
    compiled = resources[~resources["variant"].str.startswith("triton_")]
    assert 0 < len(compiled) < len(resources)
    without = answer_of(with_frames(data, resources=compiled), "triton")
    assert without == answer_of(data, "triton")

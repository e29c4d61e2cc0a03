"""What the owner of another card reads: whole reports of made-up runs on an RTX 4090 and an A100, the H200's beside."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest
from ladder.model.architecture import lacking
from ladder.report.chapters import chapters
from ladder.results.run_data import RunData
from made_up_card import CARDS, CardLab, report_of
from rendering import LEFT_BEHIND, section

pytestmark = pytest.mark.slow
ELSEWHERE = ("Here and elsewhere", "Devices")
"""Sections of the report that compare devices by their names."""


@dataclass(frozen=True)
class Made:
    """A run on a card: its pages by their names without .md, index.html, and its tables."""

    lab: CardLab
    pages: dict[str, str]
    page: str
    data: RunData

    @property
    def own(self) -> str:
        """The report without the parts that compare devices by name."""
        text = self.pages["report"]
        for title in ELSEWHERE:
            text = text.replace(section(text, title), "")
        return text

    def finding(self, question: str) -> str:
        """The line that answers a question."""
        return next(
            line
            for line in self.own.splitlines()
            if line.startswith(f"- {question} **")
        )


@pytest.fixture(scope="module", params=[*CARDS])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    lab = CardLab(tmp_path_factory.mktemp("card"), card=CARDS[request.param])
    pages, page, data = report_of(lab)
    return Made(lab, {path.stem: text for path, text in pages.items()}, page, data)


def test_nothing_is_said_of_an_h200_but_where_devices_are_compared_by_name(
    made: Made,
) -> None:
    pages = {**made.pages, "report": made.own}
    said = [
        line
        for page in pages.values()
        for line in page.splitlines()
        if re.search(r"\bH200|h200\b", line)
    ]
    assert said == []
    for title in ELSEWHERE:
        assert "NVIDIA H200" in section(made.pages["report"], title)


def test_no_missing_number_shows(made: Made) -> None:
    for name, page in made.pages.items():
        found = LEFT_BEHIND.search(page)
        assert found is None, (name, found[0])


def test_what_cannot_run_is_said_in_a_line_and_has_no_ladder_and_no_figure(
    made: Made,
) -> None:
    reason = lacking("sm_90a", made.lab.arch)
    absent = {chapter.title for chapter in chapters(made.data, []) if chapter.absent}
    assert absent == {"Hopper", "Block scales", "Attention"}
    for title in absent:
        said, *answers, sweeps = [
            part.strip()
            for part in section(made.own, title).split("\n\n")
            if part.strip()
        ]
        assert said == f"No kernel of this chapter can run here: {reason}."
        assert sweeps.startswith("More sweeps: ")
        assert all(
            one.startswith("- What does the power limit take?") for one in answers
        )
    page = made.pages["hopper_ladder"]
    assert "No cell of this sweep has a result" in page
    assert "![" not in page
    assert "sweeps/hopper_dtypes" not in section(made.own, "Findings"), (
        "More leads to pages with results"
    )


def test_what_was_predicted_of_an_h200_is_not_scored_here(made: Made) -> None:
    for name in ("softmax_fp32", "reduction", "report"):
        assert "as predicted" not in made.pages[name]
        assert "Each prediction was written" not in made.pages[name]
    assert "The path to the fastest rung of [reduction]" in made.own


def test_the_power_limit_is_said_to_do_what_was_recorded(made: Made) -> None:
    said = made.finding("What does the power limit take?")
    assert "tensor-core GEMMs at 4096 are 3 % slower than one at a time" in said
    assert (
        "Power reaches its limit of 450 W; the clock is then 2.67 GHz." in said
    ) == (made.lab.arch == "sm_89")
    assert ("*Why:*" in said) == (made.lab.arch == "sm_89"), (
        "NVML named no power limit on the other card"
    )


def test_whether_double_buffering_pays_follows_the_data(made: Made) -> None:
    said = made.finding("Does double buffering pay?")
    second = said.partition("On tensor cores a second stage brings ")[2].partition(",")[
        0
    ]
    mixed = re.fullmatch(r"-\d+ to \+\d+ %", second)
    assert bool(mixed) == (made.lab.arch == "sm_89"), second
    assert mixed or re.fullmatch(r"[\d.]+ to [\d.]+ %", second)


def test_no_guess_is_about_what_the_card_does_not_have(made: Made) -> None:
    assert "cluster" not in section(made.own, "Findings")
    assert "TMA" not in re.sub(
        r"\([^)]*needs [^)]*\)|can run here: needs .*",
        "",
        section(made.own, "Findings"),
    )
    assert "The libraries use wgmma" not in made.pages["tensor_ladder_bf16"]
    assert "132 multiprocessors" not in "".join(made.pages.values()).replace(
        "With 132 multiprocessors", ""
    )


def test_without_counters_no_question_mark_stands_for_what_was_not_counted(
    made: Made,
) -> None:
    ladder = section(made.own, "The FP32 ladder")
    assert ("|?|" in ladder) == made.lab.card.counted
    assert ("“?”: no counter" in ladder) == made.lab.card.counted


def test_the_page_holds_the_card_first_and_its_cards_say_what_the_report_says(
    made: Made,
) -> None:
    found = re.search(
        r'<script[^>]*id="data"[^>]*>(.*?)</script>', made.page, re.DOTALL
    )
    assert found is not None
    own, other = json.loads(found[1])["runs"]
    assert (own["gpu"], other["gpu"]) == (made.lab.card.gpu["name"], "NVIDIA H200")
    text = json.dumps([own["cards"], own["sweeps"], own["origin"]], ensure_ascii=False)
    assert "H200" not in text
    assert LEFT_BEHIND.search(text) is None

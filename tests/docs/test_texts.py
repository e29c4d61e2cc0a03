"""The pages of the texts and of the ladders are made of what is published; texts are judged by their own kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import text_figures
import text_pages
from checkout import ROOT, catalog, published_data
from ladder.claims import (
    bank_conflicts,
    double_buffering,
    gemm_practice,
    hip_gemm,
    register_cache,
)
from ladder.claims.ledger import CLAIMS, decided
from ladder.claims.primitives import MORE, REFUTED
from ladder.model.errors import LadderError
from ladder.results.run_data import Unmeasured
from ladder.results.statistics import records

MODULES = {
    "double-buffering": double_buffering,
    "bank-conflicts": bank_conflicts,
    "hip-gemm": hip_gemm,
    "gemm-practice": gemm_practice,
    "register-cache": register_cache,
}
PAGES = ROOT / "docs/texts"


@pytest.fixture(scope="module")
def found() -> text_pages.Numbers:
    published_data()  # skips where nothing is published
    return text_pages.numbers()


@pytest.mark.published
@pytest.mark.parametrize("templates", text_pages.FOLDERS)
def test_pages_are_what_their_templates_make_of_the_published_numbers(
    templates: Path, found: text_pages.Numbers
) -> None:
    paths = [*templates.glob("*.md.j2")]
    assert len(paths) >= len(MODULES)
    for template in paths:
        page = text_pages.FOLDERS[templates] / template.name.removesuffix(".j2")
        made = text_pages.rendered(found, template)
        assert made == page.read_text(), (
            "run PYTHONPATH=workflow python tools/text_pages.py"
        )


@pytest.mark.parametrize("text", MODULES)
def test_a_page_has_every_statement_of_its_text_with_its_verdict(text: str) -> None:
    page = (PAGES / f"{text}.md").read_text()
    own = [claim.id for claim in CLAIMS if claim.source.split(" ")[0] == text]
    assert len(own) >= 4
    assert [name for name in own if f"evidence.md#{name})" not in page] == []


@pytest.mark.published
@pytest.mark.parametrize("text", MODULES)
def test_no_statement_is_decided_by_a_kernel_that_is_not_the_texts(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands beside a statement may be of any kernel; what decides it is of one that cites the text."""
    data = published_data()
    module = MODULES[text]
    deciding: list[tuple[str, str]] = []

    def noted(real: Callable[..., Any]) -> Callable[..., Any]:
        def decide(label: str, values: Any, **given: Any) -> Any:
            rows = [row for value in values.values for row in (value.row, *value.timed)]
            deciding.extend((label, row["kernel"]) for row in rows)
            return real(label, values, **given)

        return decide

    monkeypatch.setattr(module, "decide_part", noted(module.decide_part))
    for claim in CLAIMS:
        if claim.source.split(" ")[0] == text:
            decided(claim, data)
    assert deciding
    cited = {name: " ".join(kernel.origin) for name, kernel in catalog().items()}
    assert {
        (label, kernel) for label, kernel in deciding if text not in cited[kernel]
    } == set()


@pytest.mark.published
def test_nothing_better_than_said_is_refuted() -> None:
    """A refuted part lies on the wrong side of its bound; above a range it would hold and more."""
    refuted = [
        row
        for row in records(published_data().frames["claims"])
        if row["verdict"] == REFUTED
    ]
    assert refuted
    for row in refuted:
        bound = re.search(
            r": (at least|at most|from) ([-\d.]+)(?: to ([-\d.]+))?$", row["part"]
        )
        if bound and bound[1] == "at least":
            assert row["effect_low"] < float(bound[2]), row["part"]
        elif bound and bound[1] == "at most":
            assert row["effect_high"] > float(bound[2]), row["part"]
        elif bound and row["part"].startswith("speed"):
            assert row["effect_low"] < float(bound[2]), (row["part"], MORE)


def test_pictures_of_the_pages_exist() -> None:
    for page in PAGES.glob("*.md"):
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text()):
            assert (page.parent / picture).is_file(), (page.name, picture)
            assert Path(picture).suffix == ".png"


@pytest.mark.published
@pytest.mark.parametrize("name", ["rates", "stages", "tiles", "pipeline"])
def test_figures_are_drawn_of_what_is_published(
    name: str, found: text_pages.Numbers
) -> None:
    (draw,) = (
        draw for path, draw in text_figures.drawings(found).items() if path.stem == name
    )
    drawn = [axes for axes in draw().axes if axes.has_data() or axes.patches]
    assert drawn


def test_a_lookup_of_several_rows_and_a_sentence_that_no_longer_holds_are_refused(
    found: text_pages.Numbers, tmp_path: Path
) -> None:
    with pytest.raises(
        LadderError,
        match=r"fp32_as_written, any kernel, \{'n': 4096\}: \d+ rows; accepted: one",
    ):
        found.only("fp32_as_written", n=4096)
    with pytest.raises(Unmeasured, match=r"no row with .* rung = kernel 60"):
        found.row("fp32_as_written", "kernel 60")
    page = tmp_path / "page.md.j2"
    page.write_text("{{ expect(1 > 2, 'it is faster') }}")
    with pytest.raises(
        LadderError, match=r"page\.md\.j2: the numbers no longer say: it is faster"
    ):
        text_pages.rendered(text_pages.Numbers(found.data, found.project), page)

"""What `make` left in results/main reads as a report, whatever is missing on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import ROOT
from rendering import LEFT_BEHIND

REPORTS = sorted(ROOT.glob("results/main/*/report.md"))


@pytest.mark.skipif(not REPORTS, reason="`make` has not run here")
@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.parent.name)
def test_nothing_that_is_missing_shows_in_what_make_wrote(report: Path) -> None:
    folder = report.parent
    assert (folder / "index.html").stat().st_size > 100_000
    pages = [*folder.glob("*.md"), *folder.glob("sweeps/*.md")]
    assert len(pages) > 3
    for page in pages:
        found = LEFT_BEHIND.search(page.read_text())
        assert found is None, (page, found[0])


def test_what_a_missing_value_leaves_is_found_and_words_are_not() -> None:
    for said in (
        "speed nan x",
        "over None keys",
        "| <NA> |",
        "What does it cost?** No registers.",
    ):
        assert LEFT_BEHIND.search(said), said
    assert not LEFT_BEHIND.search(
        "Nonetheless, **no difference** at 4096: nanoseconds."
    )

"""CITATION.cff names the version that the package says, and the day of the last published measurement."""

from __future__ import annotations

import json

import pytest
import yaml
from conftest import ROOT
from ladder import __version__


@pytest.mark.published
def test_the_citation_is_of_this_version_and_of_what_is_published() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == __version__
    days = [
        json.loads(path.read_text())["finished"][:10]
        for path in (ROOT / "results/published").glob("*/environment.json")
    ]
    assert str(cited["date-released"]) == max(days)

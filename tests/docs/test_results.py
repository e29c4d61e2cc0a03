"""The page about tables says what every column means."""

from __future__ import annotations

import re

from conftest import ROOT
from ladder.model.schemas import SCHEMAS

COLUMNS = (ROOT / "docs/results.md").read_text().partition("## Columns\n")[2]


def test_every_column_of_every_table_stands_in_one_line() -> None:
    names = re.findall(r"^- (`.*?`): ", COLUMNS, re.MULTILINE)
    described = re.findall(r"`(\w+)`", " ".join(names))
    assert sorted(described) == sorted({*described})
    assert {*described} == {name for table in SCHEMAS.values() for name in table}

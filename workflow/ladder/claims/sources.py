"""Titles of the sources, from the tables of docs/sources.md."""

import re
from functools import cache
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "sources.md"


@cache
def titles() -> dict[str, str]:
    """Key -> title, without emphasis; empty where the page is missing."""
    if not _PAGE.is_file():
        return {}
    text = _PAGE.read_text(encoding="utf-8").replace("*", "")
    return dict(re.findall(r"^\| `(.+?)` *\| *(.+?) *\|", text, re.MULTILINE))

"""The words: sources are cited by their keys, links lead somewhere, and terms are those of the glossary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from conftest import ROOT
from ladder.claims.ledger import CLAIMS

SOURCES = ROOT / "docs/sources.md"
GLOSSARY = ROOT / "docs/glossary.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

OWN = "own"
"""In place of a key: an idea of this project."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def rows() -> dict[str, str]:
    """Key -> its line in the tables of docs/sources.md."""
    text = SOURCES.read_text()
    return {
        line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")
    }


def citations() -> list[tuple[str, str]]:
    """(where, what is cited) of every kernel's origin and every claim's source; tests/axpy is there to be copied."""
    kernels = [
        path
        for room in ("kernels", "tests/axpy/kernels")
        for path in sorted((ROOT / room).rglob("*.yaml"))
    ]
    origins = [(path.stem, entry) for path in kernels for entry in read(path)["origin"]]
    return origins + [(claim.id, claim.source) for claim in CLAIMS]


def key_of(citation: str) -> str:
    return re.split(r"[ ,:;(]", citation, maxsplit=1)[0]


def links(page: Path) -> list[str]:
    """Targets of a page's links into the repository, without their anchors."""
    text = re.sub(
        r"^```.*?^```",
        "",
        page.read_text(),
        flags=re.MULTILINE | re.DOTALL,
    )
    targets = [
        target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)
    ]
    return [target for target in targets if target and "://" not in target]


def test_kernels_and_claims_cite_keys_of_the_sources() -> None:
    known = {*rows(), OWN}
    cited = citations()
    assert len(cited) > 40
    unknown = [f"{where}: {what}" for where, what in cited if key_of(what) not in known]
    assert unknown == [], (
        f"an origin or a source begins with a key of docs/sources.md, or is `{OWN}`: an idea of this project"
    )


def test_every_source_is_cited() -> None:
    """By a kernel or a claim; otherwise its row links to a file that has all words of its key."""
    used = {key_of(what) for _, what in citations()}
    assert used >= {"double-buffering", "ptx-isa", OWN}
    for key, row in rows().items():
        if key in used:
            continue
        targets = [
            target
            for target in re.findall(r"\]\(([^)\s]+)\)", row)
            if "://" not in target
        ]
        assert len(targets) == 1, f"nothing cites {key}"
        text = (SOURCES.parent / targets[0]).read_text().lower()
        assert all(word in text for word in key.split("-")), (
            f"{targets[0]} does not cite {key}"
        )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    published = "results/published/"  # absent before the first publication
    targets = [
        target
        for target in links(page)
        if not (published in target and not (ROOT / published).is_dir())
    ]
    assert [
        target for target in targets if not (page.parent / unquote(target)).exists()
    ] == []


def test_the_glossary_is_alphabetical_and_has_one_line_a_term() -> None:
    lines = GLOSSARY.read_text().splitlines()
    entries = lines[lines.index("") + 1 :]
    entries = entries[entries.index("") + 1 :]
    assert all(re.match(r"- \*\*[^*]+\*\*: .+\.\)?$", line) for line in entries)
    terms = [line.split("**")[1].lower() for line in entries]
    assert len(terms) > 30
    assert terms == sorted(set(terms))

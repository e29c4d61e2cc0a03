"""How much there is to read in the package: code tokens of each folder, as CONTRIBUTING prints them, below a limit.

`python tests/docs/test_size.py` writes the table anew. Tokens and not lines, since fewer lines may be denser ones.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "workflow" / "ladder"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN = "<!-- written by `python tests/docs/test_size.py` -->\n"
END = "<!-- until here -->"
STEP = 500
"""Tokens are rounded up to this many, so that not every change of the code changes the table."""

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
FOLDERS = [
    f"{path.name}/" for path in sorted(PACKAGE.iterdir()) if any(path.glob("**/*.py"))
]


def tokens_of(text: str) -> int:
    """Tokens of a module without comments, docstrings and layout."""
    strings = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            strings |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    count = within = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # From Python 3.12 on an f-string is several tokens; here it is one, as before.
        name = tokenize.tok_name[token.type]
        if name == "FSTRING_END":
            within -= 1
            continue
        counted = within == 0 and token.type not in _NOT_CODE
        count += counted and token.start[0] not in strings
        within += name == "FSTRING_START"
    return count


@functools.cache
def folders() -> dict[str, int]:
    """Tokens of each folder of the package with all below it."""
    sizes = dict.fromkeys(FOLDERS, 0)
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        if len(parts) > 1:
            sizes[f"{parts[0]}/"] += tokens_of(path.read_text(encoding="utf-8"))
    return sizes


def limit(tokens: int) -> int:
    return -(-tokens // STEP) * STEP


def table() -> str:
    sizes = folders()
    rows = [f"| `{name}` | {limit(tokens):,} |" for name, tokens in sizes.items()]
    total = f"| all | {limit(sum(sizes.values())):,} |"
    return "\n".join(["| folder | tokens, at most |", "|---|--:|", *rows, total]) + "\n"


@pytest.mark.parametrize("name", [*FOLDERS, "all"])
def test_a_folder_is_no_larger_than_contributing_says(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    row = re.search(rf"^\| `?{re.escape(name)}`? \| ([\d,]+) \|$", page, re.MULTILINE)
    assert row, (
        f"CONTRIBUTING.md has no row {name!r}: run python tests/docs/test_size.py"
    )
    sizes = folders()
    tokens = sum(sizes.values()) if name == "all" else sizes[name]
    most = int(row[1].replace(",", ""))
    assert most - 3 * STEP <= tokens <= most, (
        f"{name}: {tokens} tokens: run python tests/docs/test_size.py"
    )


def test_comments_docstrings_and_layout_are_no_tokens() -> None:
    code = "def twice(x):\n    return 2 * x\n"
    said = 'def twice(x):\n    """Two\n    lines."""\n\n    # why\n    return (\n        2 * x\n    )\n'
    assert tokens_of(code) == 10
    assert tokens_of(said) == 12


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(
        before + BEGIN + "\n" + table() + "\n" + END + rest.split(END, 1)[1],
        encoding="utf-8",
    )

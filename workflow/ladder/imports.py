"""Which files of this package a step's result depends on, read from its import statements."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def _file(name: str) -> Path | None:
    """File of the module `ladder.a.b`, or None where there is no such module."""
    stem = PACKAGE.joinpath(*name.split(".")[1:])
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.is_file():
            return path
    return None


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from _statements(node)


@functools.cache
def _direct(path: Path) -> tuple[Path, ...]:
    found: dict[Path, None] = {}
    for node in _statements(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.split(".")[0] == PACKAGE.name and (file := _file(name)) is not None:
                found[file] = None
    # Instances of problems allocate and launch: only measuring makes any, and the protocol's version speaks for it.
    return tuple(file for file in found if not file.stem.endswith("_instance"))


def files_of_step(step: str) -> list[Path]:
    """Files of the package that `python -m ladder STEP` may run: its module and what that imports, recursively.

    Sorted, relative to the package's parent folder.
    """
    found: set[Path] = set()
    todo = [PACKAGE / "commands" / f"{step}.py"]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += _direct(path)
    return sorted(path.relative_to(PACKAGE.parent) for path in found)

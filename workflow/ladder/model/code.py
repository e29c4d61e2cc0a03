"""The package's own source: which files a module may run, and a digest of what they say.

The digest is of the parsed code, so that comments, docstrings and layout do not count, nor the version of Python that
parses it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


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


def _imported(tree: ast.AST) -> Iterator[str]:
    """Modules of the package that the code imports, with the packages they lie in."""
    for node in _statements(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] == PACKAGE.name:
                yield from (".".join(parts[:count]) for count in range(2, len(parts) + 1))


@functools.cache
def _direct(path: Path) -> tuple[Path, ...]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple(dict.fromkeys(file for name in _imported(tree) if (file := _file(name)) is not None))


def closure(modules: Iterable[str]) -> list[Path]:
    """Files of the package that importing `modules` may run, recursively, sorted.

    Raises KeyError for a module that does not exist. A module imported by a computed name is not seen.
    """
    todo = [(name, _file(name)) for name in modules]
    if missing := [name for name, path in todo if path is None]:
        raise KeyError(missing[0])
    paths = [path for _, path in todo if path is not None]
    found: set[Path] = set()
    while paths:
        path = paths.pop()
        if path not in found:
            found.add(path)
            paths += _direct(path)
    return sorted(found)


def _says_something(node: ast.AST) -> bool:
    """Whether a statement is more than a docstring."""
    return not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _canonical(node: object) -> object:
    """A node as nested lists: its type and the fields that hold something, without positions and docstrings."""
    if isinstance(node, ast.AST):
        fields = [(name, _canonical(value)) for name, value in ast.iter_fields(node)]
        # Newer versions of Python add fields that are empty in older code.
        return [type(node).__name__, *((name, value) for name, value in fields if value not in (None, []))]
    if isinstance(node, list):
        return [_canonical(one) for one in node if _says_something(one)]
    return repr(node) if node is not None else None


def digest(modules: Iterable[str]) -> str:
    """SHA-256 of what the code of `modules`, and of all that they import from the package, says."""
    total = hashlib.sha256()
    for path in closure(modules):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        total.update(f"{path.relative_to(PACKAGE).as_posix()}\0{_canonical(tree)!r}\n".encode())
    return total.hexdigest()

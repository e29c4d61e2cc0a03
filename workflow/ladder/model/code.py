"""The package's own source: which files a module may run, and a digest of their parsed code.

Comments, docstrings and layout do not count, nor texts of errors that are raised, nor the version of Python that
parses it.
"""

import ast
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grimp

PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def _imports() -> Any:
    return grimp.build_graph(PACKAGE.name, cache_dir=None, exclude_type_checking_imports=True)


def closure(modules: Iterable[str]) -> list[Path]:
    """Files of `modules` and all they import from the package, sorted; imports by a computed name are not seen."""
    graph = _imports()
    found = {name for module in modules for name in (module, *graph.find_upstream_modules(module))}
    stems = [PACKAGE.joinpath(*name.split(".")[1:]) for name in sorted(found)]
    return [stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py") for stem in stems]


def _canonical(node: object, raised: bool = False) -> object:
    """A node as nested lists: its type and the fields that hold something, without positions and docstrings.

    Of what is `raised`, text is left out: constants with a space, which words such as a status are not, and f-strings.
    """
    if isinstance(node, ast.AST):
        raised = raised or isinstance(node, ast.Raise)
        if raised and isinstance(node, ast.JoinedStr):
            return ["text"]
        if raised and isinstance(node, ast.Constant) and " " in str(node.value):
            return ["text"]
        # Newer versions of Python add fields that are empty in older code.
        fields = [(name, _canonical(value, raised)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *(field for field in fields if field[1] not in (None, []))]
    if isinstance(node, list):
        plain = (one for one in node if type(one) is not ast.Expr or type(one.value) is not ast.Constant)
        return [_canonical(one, raised) for one in plain]
    return repr(node) if node is not None else None


@functools.cache
def _says(path: Path) -> str:
    return repr(_canonical(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def digest(*modules: str) -> str:
    """SHA-256 of what the code of `modules`, and of all that they import from the package, says."""
    return digest_of(closure(modules))


def digest_of(paths: Iterable[Path]) -> str:
    """SHA-256 of what the code of some files of the package says."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.relative_to(PACKAGE).as_posix()}\0{_says(path)}\n".encode())
    return total.hexdigest()

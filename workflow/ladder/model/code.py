"""The package's own source: which files a module may run, and a digest of their parsed code.

Comments, docstrings and layout do not count, nor texts of errors that are raised, nor the version of Python that
parses it.
"""

import ast
import functools
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grimp

PACKAGE = Path(__file__).resolve().parents[1]
WRITING = ("model/errors.py", "model/files.py")
"""Code that words errors and handles files, on which nothing that is compiled or measured depends."""
_TEXT = "a text"


@functools.cache
def _imports() -> Any:
    return grimp.build_graph(PACKAGE.name, cache_dir=None, exclude_type_checking_imports=True)


def closure(modules: Iterable[str]) -> list[Path]:
    """Files of `modules` and all they import from the package, sorted; imports by a computed name are not seen."""
    graph = _imports()
    found = {name for module in modules for name in (module, *graph.find_upstream_modules(module))}
    stems = [PACKAGE.joinpath(*name.split(".")[1:]) for name in sorted(found)]
    return [stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py") for stem in stems]


class _WithoutTexts(ast.NodeTransformer):
    """Leaves out texts: f-strings, and constants with a space, which words such as a status are not."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        return ast.Constant(_TEXT)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Constant(_TEXT) if " " in str(node.value) else node


class _WithoutMessages(ast.NodeTransformer):
    """Leaves out the texts of errors that are raised, also of those that are put together ahead of it."""

    def __init__(self) -> None:
        self._messages: frozenset[str] | None = None  # in the function that is visited

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return _WithoutTexts().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self._messages = self._messages, self._messages or _messages(node)
        self.generic_visit(node)
        self._messages = outer
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if _assigned(node) in (self._messages or ()):
            node.value = _without_its_text(node.value)
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if _assigned(node) in (self._messages or ()):
            node.value = _without_its_text(node.value)
        return self.generic_visit(node)


def _without_its_text(value: ast.expr) -> ast.expr:
    """An expression without the texts that it joins; what it calls, and with what, stays."""
    if isinstance(value, ast.BinOp):
        value.left, value.right = _without_its_text(value.left), _without_its_text(value.right)
    elif isinstance(value, ast.IfExp):
        value.body, value.orelse = _without_its_text(value.body), _without_its_text(value.orelse)
    elif isinstance(value, ast.JoinedStr | ast.Constant):
        return _WithoutTexts().visit(value)  # type: ignore[no-any-return]
    return value


def _assigned(node: ast.AST) -> str:
    """The one name that a statement assigns to, else ""."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _messages(function: ast.FunctionDef) -> frozenset[str]:
    """Names that nothing reads but errors that a function raises, and other such names."""
    readers, shared = defaultdict[str, set[str]](set), set[str]()

    def look(node: ast.AST, reader: str | None) -> None:
        if isinstance(node, ast.Raise):
            reader = None
        elif isinstance(node, ast.Assign | ast.AugAssign) and reader == "":
            reader = _assigned(node)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            shared.update(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and reader is not None:
            readers[node.id].add(reader)
        elif isinstance(node, ast.ClassDef):  # what it assigns are attributes
            shared.update(map(_assigned, node.body))
        for child in ast.iter_child_nodes(node):
            look(child, reader)

    look(function, "")
    found = {_assigned(node) for node in ast.walk(function)} - shared - {""}
    while read := {name for name in found if readers[name] - found}:
        found -= read
    return frozenset(found)


def _canonical(node: object) -> object:
    """A node as nested lists: its type and the fields that hold something, without positions and docstrings."""
    if isinstance(node, ast.AST):
        # Newer versions of Python add fields that are empty in older code.
        fields = [(name, _canonical(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *(field for field in fields if field[1] not in (None, []))]
    if isinstance(node, list):
        plain = (one for one in node if type(one) is not ast.Expr or type(one.value) is not ast.Constant)
        return [_canonical(one) for one in plain]
    return repr(node) if node is not None else None


def source(path: Path) -> str:
    """The text of a file of the package."""
    return path.read_text(encoding="utf-8")


@functools.cache
def _says(path: Path) -> str:
    return repr(_canonical(_WithoutMessages().visit(ast.parse(source(path)))))


@functools.cache
def digest(*modules: str) -> str:
    """SHA-256 of what the code of `modules`, and of all that they import from the package, says."""
    return digest_of(digested(modules))


def digested(modules: Iterable[str]) -> list[Path]:
    """Files that the digest of `modules` covers: their closure without WRITING."""
    return [path for path in closure(modules) if path.relative_to(PACKAGE).as_posix() not in WRITING]


def digest_of(paths: Iterable[Path]) -> str:
    """SHA-256 of what the code of some files of the package says."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.relative_to(PACKAGE).as_posix()}\0{_says(path)}\n".encode())
    return total.hexdigest()

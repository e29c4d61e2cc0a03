"""A kernel in Triton as its files say, read and not run: its function, and every Python file that it is made of."""

import ast
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ladder.model.errors import LadderError, refuse_unknown
from ladder.model.files import digest_files, read_text

_TUNERS = ("autotune", "heuristics")


@functools.cache
def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise LadderError(f"{path}: not valid Python: {error}") from error


def _called(decorator: ast.expr) -> str:
    """The last name of a decorator: jit of @triton.jit and of @triton.jit(...)."""
    inner = decorator.func if isinstance(decorator, ast.Call) else decorator
    return inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")


def function(path: Path, name: str) -> ast.FunctionDef:
    """A function of a file under triton.jit. Raises LadderError where there is none, or where it tunes itself."""
    found = {
        one.name: one for one in _tree(path).body if isinstance(one, ast.FunctionDef)
    }
    kernels = [
        one for one, node in found.items() if "jit" in map(_called, node.decorator_list)
    ]
    refuse_unknown(path, "entry", name, kernels, "no such function under @triton.jit")
    for decorator in found[name].decorator_list:
        if (tuner := _called(decorator)) in _TUNERS:
            accepted = "parameters in the description, which a sweep tunes"
            raise LadderError(
                f"{path}: @{tuner} of {name} is not accepted; accepted: {accepted}"
            )
    return found[name]


def parameters(node: ast.FunctionDef) -> dict[str, bool]:
    """Parameters of a function in order: whether each says that it is a constant, by tl.constexpr."""
    return {
        one.arg: "constexpr" in ast.unparse(one.annotation or ast.Constant(""))
        for one in node.args.args
    }


def _imported(path: Path) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Each import of a file, wherever it stands: its line, the module, and names taken from it."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, one.name, ()) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(one.name for one in node.names)
            yield node.lineno, "." * node.level + (node.module or ""), names


def _module(name: str, folders: tuple[Path, ...]) -> Iterator[Path]:
    """Files that an import of a module runs, as far as they lie in some folders; packages above it first."""
    parts = name.split(".")
    for folder in folders:
        for length in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:length])
            yield from (
                one
                for one in (place / "__init__.py", place.with_suffix(".py"))
                if one.is_file()
            )


def import_closure(source: Path, *folders: Path) -> list[Path]:
    """`source` and all files of its folder and of `folders` that it imports, sorted.

    Raises LadderError for an import of anything else but triton and Python's own modules: no digest holds it.
    """
    found, todo, places = set[Path](), [source], (source.parent, *folders)
    while todo:
        if (path := todo.pop()) in found:
            continue
        found.add(path)
        for line, name, taken in _imported(path):
            own = [*_module(name, places)]
            if not own and name.partition(".")[0] not in {
                "triton",
                *sys.stdlib_module_names,
            }:
                accepted = f"triton, Python's own modules, and files in {' or '.join(map(str, places))} by their names"
                raise LadderError(
                    f"{path}: line {line}: the import of {name} is not accepted; accepted: {accepted}"
                )
            todo += own
            todo += [
                file
                for one in taken
                if own
                for file in _module(f"{name}.{one}", places)
            ]
    return sorted(Path(os.path.normpath(one)) for one in found)


def import_digest(source: Path, *folders: Path) -> str:
    """SHA-256 over the names and contents of `source` and of all it imports. Raises LadderError as import_closure."""
    root = Path(os.path.normpath(os.path.commonpath([*folders, source.parent])))
    return digest_files(import_closure(source, *folders), root)

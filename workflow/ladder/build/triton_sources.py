"""A kernel in Triton as its files say, read and not run: its function, and every Python file that it is made of."""

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from ladder.model.errors import LadderError, refuse_unknown
from ladder.model.files import read_text

_TUNERS = ("autotune", "heuristics")


def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise LadderError(f"{path}: not valid Python: {error}") from error


def _decorators(function: ast.FunctionDef) -> list[str]:
    """The last name of each decorator: jit of @triton.jit and of @triton.jit(...)."""
    names = []
    for decorator in function.decorator_list:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.append(ast.unparse(inner).rpartition(".")[2])
    return names


def function(path: Path, name: str) -> ast.FunctionDef:
    """A function of a file under triton.jit. Raises LadderError where there is none, or where it tunes itself."""
    kernels = dict[str, ast.FunctionDef]()
    for node in _tree(path).body:
        if isinstance(node, ast.FunctionDef) and "jit" in _decorators(node):
            kernels[node.name] = node
    refuse_unknown(path, "entry", name, kernels, "no such function under @triton.jit")
    for tuner in _decorators(kernels[name]):
        if tuner in _TUNERS:
            accepted = "parameters in the description, which a sweep tunes"
            raise LadderError(
                f"{path}: @{tuner} of {name} is not accepted; accepted: {accepted}"
            )
    return kernels[name]


def parameters(node: ast.FunctionDef) -> dict[str, bool]:
    """Parameters of a function in order: whether each says that it is a constant, by tl.constexpr."""
    return {
        argument.arg: "constexpr"
        in ast.unparse(argument.annotation or ast.Constant(""))
        for argument in node.args.args
    }


def _imported(path: Path) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Each import of a file, wherever it stands: its line, the module, and names taken from it."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            for module in node.names:
                yield node.lineno, module.name, ()
        elif isinstance(node, ast.ImportFrom):
            names = tuple(taken.name for taken in node.names)
            yield node.lineno, "." * node.level + (node.module or ""), names


def _module(name: str, folders: tuple[Path, ...]) -> Iterator[Path]:
    """Files that an import of a module runs, as far as they lie in some folders; packages above it first."""
    parts = name.split(".")
    for folder in folders:
        for length in range(1, len(parts) + 1):
            place = folder.joinpath(*parts[:length])
            files = (place / "__init__.py", place.with_suffix(".py"))
            yield from filter(Path.is_file, files)


def import_closure(source: Path, *folders: Path) -> list[Path]:
    """`source` and all files of its folder and of `folders` that it imports, sorted.

    Raises LadderError for an import of anything else but triton and Python's own modules: no digest holds it.
    """
    closure, todo, places = set[Path](), [source], (source.parent, *folders)
    free = {"triton", *sys.stdlib_module_names}
    while todo:
        if (path := todo.pop()) in closure:
            continue
        closure.add(path)
        for line, name, taken in _imported(path):
            files = [*_module(name, places)]
            if not files and name.partition(".")[0] not in free:
                accepted = f"triton, Python's own modules, and files in {' or '.join(map(str, places))} by their names"
                raise LadderError(
                    f"{path}: line {line}: the import of {name} is not accepted; accepted: {accepted}"
                )
            todo += files
            for member in taken if files else ():
                todo += _module(f"{name}.{member}", places)
    return sorted(Path(os.path.normpath(file)) for file in closure)

"""Files of the package that a module runs, and their digest: tests keep results as long as these are the same."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grimp
from ladder.model.folders import PACKAGE


@functools.cache
def _imports() -> Any:
    return grimp.build_graph(
        PACKAGE.name, cache_dir=None, exclude_type_checking_imports=True
    )


def closure(modules: Iterable[str]) -> list[Path]:
    """Files of `modules` and all they import from the package, sorted; imports by a computed name are not seen."""
    names = set(modules)
    for module in tuple(names):
        names |= _imports().find_upstream_modules(module)
    stems = [PACKAGE.joinpath(*name.split(".")[1:]) for name in sorted(names)]
    return [
        stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        for stem in stems
    ]


@functools.cache
def digest(*modules: str) -> str:
    """SHA-256 of the files of `modules` and of all that they import from the package."""
    total = hashlib.sha256()
    for path in closure(modules):
        total.update(
            f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + path.read_bytes()
        )
    return total.hexdigest()

"""A kernel's source files: the .cu and every project header it includes."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from ladder.model.errors import LadderError

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@functools.cache
def _direct_includes(path: Path) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(path.read_text(encoding="utf-8")))


def include_closure(source: Path, include_dir: Path) -> list[Path]:
    """`source` and every project header it includes with quotes, recursively, sorted, without repetition.

    Raises LadderError for a quoted header that is neither beside its includer nor in `include_dir`.
    """
    found: dict[Path, None] = {}
    todo = [source]
    while todo:
        path = todo.pop()
        if path in found:
            continue
        found[path] = None
        for name in _direct_includes(path):
            candidates = [path.parent / name, include_dir / name]
            header = next((candidate for candidate in candidates if candidate.is_file()), None)
            if header is None:
                raise LadderError(f'{path}: #include "{name}": not found in {path.parent} or {include_dir}')
            todo.append(header)
    return sorted(found)

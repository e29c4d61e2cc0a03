"""A kernel's source files: the .cu and every project header it includes."""

import functools
import os
import re
from pathlib import Path

from ladder.model.errors import LadderError
from ladder.model.files import digest_files

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@functools.cache
def _direct_includes(path: Path) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(path.read_text(encoding="utf-8")))


def include_closure(source: Path, include_dir: Path) -> list[Path]:
    """`source` and all project headers it includes with quotes, sorted. Raises LadderError for a missing one."""
    found, todo = set[Path](), [source]
    while todo:
        if (path := todo.pop()) in found:
            continue
        found.add(path)
        for name in _direct_includes(path):
            header = next((one for one in (path.parent / name, include_dir / name) if one.is_file()), None)
            if header is None:
                raise LadderError(f'{path}: #include "{name}": not found in {path.parent} or {include_dir}')
            todo.append(header)
    return sorted(found)


def source_digest(source: Path, include_dir: Path) -> str:
    """SHA-256 over the names and contents of `source` and of all it includes. Raises LadderError as include_closure."""
    root = Path(os.path.commonpath([include_dir, source.parent]))
    return digest_files(include_closure(source, include_dir), root)

"""A kernel's source files: the .cu and every project header it includes."""

import functools
import os
import re
from pathlib import Path

from ladder.build.nvrtc import header_folders
from ladder.model.errors import LadderError
from ladder.model.files import digest_files, read_text

_UNREAD = r'("[^"\n]*")|//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*if[ \t]+0\b.*?^[ \t]*#[ \t]*(?:else|elif|endif)\b'
"""Text in quotes; and what the compiler does not read: comments, and what stands between #if 0 and #endif."""
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


@functools.cache
def _direct_includes(path: Path) -> tuple[str, ...]:
    text = re.sub(_UNREAD, lambda found: found[1] or "", read_text(path), flags=re.DOTALL | re.MULTILINE)
    return tuple(_INCLUDE.findall(text))


def include_closure(source: Path, include_dir: Path) -> list[Path]:
    """`source` and all project headers it includes with quotes, sorted. Raises LadderError for a missing one."""
    found, todo = set[Path](), [source]
    root = os.path.normpath(os.path.commonpath([include_dir, source.parent]))
    while todo:
        if (path := todo.pop()) in found:
            continue
        found.add(path)
        for name in _direct_includes(path):
            places = (path.parent / name, include_dir / name)
            inside = [place for place in places if Path(os.path.normpath(place)).is_relative_to(root)]
            header = next((place for place in inside if place.is_file()), None)
            if header is None and inside and any(Path(one, name).is_file() for one in header_folders()):
                continue  # CUDA's own
            if header is None:
                raise LadderError(f'{path}: #include "{name}": not found in {path.parent} or {include_dir}')
            todo.append(header)
    return sorted(found)


def source_digest(source: Path, include_dir: Path) -> str:
    """SHA-256 over the names and contents of `source` and of all it includes. Raises LadderError as include_closure."""
    root = Path(os.path.commonpath([include_dir, source.parent]))
    return digest_files(include_closure(source, include_dir), root)

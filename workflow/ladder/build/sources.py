"""A kernel's source files: the .cu and every project header it includes."""

import functools
import os
import re
from pathlib import Path

from ladder.build.nvrtc import header_folders
from ladder.model.errors import LadderError
from ladder.model.files import digest_files, read_text

_UNREAD = re.compile(r'("[^"\n]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Text in quotes, and comments."""
_DIRECTIVE = re.compile(r'^[ \t]*#[ \t]*(include|if|el|endif)\w*[ \t]*(?:"(.+?)"|(0)[ \t]*$)?', re.MULTILINE)
"""What it is, the file that is included, and whether the condition is 0."""


@functools.cache
def _direct_includes(path: Path) -> tuple[str, ...]:
    """Files included with quotes, but for those in comments and behind `#if 0`, which the compiler does not read."""
    text = _UNREAD.sub(lambda found: found[1] or "", read_text(path))
    found, unread = list[str](), 0  # how many #if deep in what is not read
    for directive, file, never in _DIRECTIVE.findall(text):
        if directive == "include":
            found += [file] if file and not unread else []
        elif directive == "if":
            unread += bool(never or unread)
        elif unread == 1 or (unread and directive == "endif"):
            unread -= 1
    return tuple(found)


def _root(source: Path, include_dir: Path) -> Path:
    """The folder that a kernel, which may lie outside of the project, and its headers have in common."""
    return Path(os.path.normpath(os.path.commonpath([include_dir, source.parent])))


def include_closure(source: Path, include_dir: Path) -> list[Path]:
    """`source` and all project headers it includes with quotes, sorted. Raises LadderError for a missing one."""
    found, todo = set[Path](), [source]
    root = _root(source, include_dir)
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
    return digest_files(include_closure(source, include_dir), _root(source, include_dir))

"""A kernel's source files: the .cu with every project header it includes, or the .py; and where CUDA's headers are."""

import functools
import os
import re
import sys
from pathlib import Path

from cuda.pathfinder import find_nvidia_header_directory

from ladder.build.triton_sources import import_closure
from ladder.model.errors import LadderError
from ladder.model.files import digest_files, read_text

_READ_OR_NOT = re.compile(
    r"""((?:u8|[uUL])?R"([^()\\\s]*)\(.*?\)\2" | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' | \d(?:'?\w)* | \w+)
        | //[^\n]* | /\*.*?(?:\*/|\Z)""",
    re.DOTALL | re.VERBOSE,
)
"""What may hold signs of a comment and is none: texts, characters, numbers such as 1'000, words; else a comment."""
_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include\w*[ \t]*(?:"(.+?)"|<(.+?)>)', re.MULTILINE
)
"""The file that is included, by quotes or by brackets."""

_TEXTS = (".cu", ".py")
"""Sources; others are machine code."""


@functools.cache
def header_folders() -> tuple[str, ...]:
    """Folders of CUDA's headers (cuda_fp16.h, mma.h), wheels before a toolkit. Raises LadderError without any."""
    # Wheels may lie in more than one site folder, and each holds only some of the headers.
    candidates = [f"{entry}/nvidia/cu13/include" for entry in sys.path if entry]
    if wheel_or_toolkit := find_nvidia_header_directory("cudart"):
        candidates.append(wheel_or_toolkit)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(name):
            candidates.append(f"{home}/include")
    candidates.append("/usr/local/cuda/include")
    folders = [*filter(Path.is_dir, map(Path, dict.fromkeys(candidates)))]
    for needed in ("cuda_fp16.h", "crt/mma.h"):
        if not any((folder / needed).is_file() for folder in folders):
            wheels = "nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl"
            raise LadderError(
                f"CUDA's {needed} is missing: install {wheels}, or set CUDA_HOME to a toolkit"
            )
    return tuple(
        str(path)
        for folder in folders
        for path in (folder, folder / "cccl")
        if path.is_dir()
    )


def read_source(path: Path) -> str:
    """Text of a source or a header without a byte order mark, which NVRTC would take for a token of the source.

    Raises LadderError as read_text.
    """
    return read_text(path).removeprefix("\ufeff")


def without_comments(text: str) -> str:
    """Text of a source or a header without its comments."""
    return _READ_OR_NOT.sub(lambda match: match[1] or " ", text)


@functools.cache
def _direct_includes(text: str) -> tuple[tuple[str, bool], ...]:
    """Files included, and whether by quotes, but for those in comments.

    Includes written in other ways are left to the compiler's own list, which refuses what is not found here.
    """
    includes = _INCLUDE.findall(without_comments(text))
    return tuple((quoted or bracketed, bool(quoted)) for quoted, bracketed in includes)


def include_closure(source: Path, *includes: Path) -> list[Path]:
    """`source` and all headers of its folder and of `includes`, folders too, that it includes, sorted.

    Raises LadderError for one that lies elsewhere. Of one that is missing the compiler will say so.
    """
    closure, todo = set[Path](), [source]
    folders = [source.parent, *includes]
    inside = [Path(os.path.realpath(folder)) for folder in folders]
    while todo:
        if (path := todo.pop()) in closure:
            continue
        closure.add(path)
        for name, quoted in _direct_includes(read_source(path)):
            places = list[Path]()
            for folder in [path.parent, *folders] if quoted else folders:
                real = Path(os.path.realpath(folder / name))
                if any(map(real.is_relative_to, inside)):
                    places.append(folder / name)
            header = next(filter(Path.is_file, places), None)
            if header is not None:
                todo.append(Path(os.path.normpath(header)))
            elif quoted and not places:
                where = " or ".join(map(str, [path.parent, *includes]))
                raise LadderError(f'{path}: #include "{name}": not found in {where}')
    return sorted(closure)


def source_files(source: Path, *folders: Path) -> list[Path]:
    """`source` and all that it includes, or imports in Triton, sorted. Raises LadderError as both closures."""
    if source.suffix not in _TEXTS:
        return [source]
    closure = import_closure if source.suffix == ".py" else include_closure
    return closure(source, *folders)


def source_digest(source: Path, *folders: Path) -> str:
    """SHA-256 over the names and contents of all files of a source. Raises LadderError as source_files."""
    # A kernel may lie outside of the project.
    root = os.path.commonpath([*folders, source.parent])
    return digest_files(source_files(source, *folders), Path(os.path.normpath(root)))

"""Files: replaced whole, read as JSON, and digested, so that results can be tied to what made them."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ladder.model.errors import LadderError
from ladder.model.shapes import held

_ANY = TypeAdapter(dict[str, Any])
TREE_ROOMS = ("kernels", "workflow", "config")
_PASSING = ("__pycache__", ".pyc", ".egg-info")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_json(document: Any) -> str:
    """SHA-256 of a JSON document, whatever the order of its keys."""
    return sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def digest_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over the names (relative to root) and contents of files, independent of order."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(root).as_posix()}\0{sha256(path.read_bytes())}\n".encode())
    return total.hexdigest()


def tree_digest(root: Path) -> str:
    """Digest of kernels/, workflow/ and config/: what a run's numbers depend on, with or without git."""
    files = (path for room in TREE_ROOMS for path in (root / room).rglob("*") if path.is_file())
    kept = (path for path in files if not any(part.endswith(_PASSING) for part in path.parts))
    return digest_files(kept, root)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """Raises LadderError where writing `path` fails: the system's own error does not name it where a disk is full."""
    try:
        yield
    except OSError as error:
        raise LadderError(f"{path}: cannot be written: {error.strerror or error}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` so that a reader sees either the old file or the whole new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(data)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace `path` by a JSON object."""
    replace_file(path, (json.dumps(document, indent=1) + "\n").encode())


def read_json(path: Path, kind: TypeAdapter[Any] = _ANY) -> dict[str, Any] | None:
    """One JSON object, or None where the file is missing. Raises LadderError where it is something else."""
    return held(kind, path.read_bytes(), path) if path.exists() else None

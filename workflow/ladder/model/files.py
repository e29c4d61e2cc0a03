"""Files: replaced whole, read as JSON, and digested, so that results can be tied to what made them."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ladder.model.errors import LadderError

TREE_ROOMS = ("kernels", "workflow", "config")
_PASSING = ("__pycache__", ".pyc", ".egg-info")


def read_bytes(path: Path) -> bytes:
    """Bytes of a file. Raises LadderError for a pipe or a device, which may never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise LadderError(f"{path}: cannot be read: it is no regular file")
    return path.read_bytes()


def read_text(path: Path) -> str:
    """Text of a file in UTF-8, without NUL. Raises LadderError where it cannot be read or is none."""
    try:
        text = read_bytes(path).decode()
    except OSError as error:
        raise LadderError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        where = f"byte {error.object[error.start]:#04x} at {error.start}"
        raise LadderError(f"{path}: not UTF-8: {where}") from error
    if "\0" in text:  # no name of a file has one, and a compiler reads no further
        line = text[: text.index("\0")].count("\n") + 1
        raise LadderError(
            f"{path}: line {line}: a NUL character; accepted: text without one"
        )
    return text


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def file_sha256(path: Path) -> str:
    """Raises LadderError where it is no file that can be read."""
    try:
        return sha256(path.read_bytes())
    except OSError as error:
        raise LadderError(f"{path}: cannot be read: {error.strerror}") from error


def digest_json(document: Any) -> str:
    """SHA-256 of a JSON document, whatever the order of its keys."""
    return sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def digest_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over the names (relative to root) and contents of files, independent of order."""
    total = hashlib.sha256()
    for path in sorted(paths):
        name = os.fsencode(path.relative_to(root).as_posix())  # which may be no UTF-8
        total.update(name + f"\0{sha256(path.read_bytes())}\n".encode())
    return total.hexdigest()


def tree_digest(root: Path) -> str:
    """Digest of kernels/, workflow/ and config/: what a run's numbers depend on, with or without git."""
    kept = []
    for room in TREE_ROOMS:
        for folder, _, names in os.walk(root / room, followlinks=True):
            for path in (Path(folder, name) for name in names):
                passing = any(part.endswith(_PASSING) for part in path.parts)
                if path.is_file() and not passing:
                    kept.append(path)
    return digest_files(kept, root)


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` so that a reader sees either the old file or the whole new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        error.filename = path  # that of a full disk names none
        raise
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Replace `path` by a JSON object."""
    replace_file(path, (json.dumps(document, indent=1) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """One JSON object, or None where the file is missing. Raises LadderError where it is something else."""
    if not path.exists():
        return None
    try:
        document = json.loads(read_text(path), parse_constant=int)  # no NaN
    except (ValueError, RecursionError) as error:
        raise LadderError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise LadderError(
            f"{path}: a JSON object is expected, found {type(document).__name__}"
        )
    return document

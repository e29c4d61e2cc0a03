"""Digests that tie results to what made them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

TREE_ROOMS = ("kernels", "workflow", "config")
_PASSING = ("__pycache__", ".pyc", ".egg-info")


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def digest_files(paths: Iterable[Path], root: Path) -> str:
    """SHA-256 over the names (relative to root) and contents of files, independent of order."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(root).as_posix()}\0{sha256(path.read_bytes())}\n".encode())
    return total.hexdigest()


def tree_digest(root: Path) -> str:
    """Digest of kernels/, workflow/ and config/: what a run's numbers depend on, with or without git."""
    paths = [
        path
        for room in TREE_ROOMS
        for path in (root / room).rglob("*")
        if path.is_file() and not any(part.endswith(_PASSING) for part in path.parts)
    ]
    return digest_files(paths, root)

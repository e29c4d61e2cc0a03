"""A folder replaced as a whole, by one process at a time; a kill at any moment loses nothing of it."""

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of linux/fcntl.h and linux/fs.h
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def _take(path: Path) -> int:
    """Create and lock a file; waits, and says so, while another process holds it. Returns its descriptor."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # A POSIX lock: it ends with this process, even where a forked child lives on, and NFS knows it.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            logging.info("waiting until another process is done, which holds %s", path)
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # of a file that its holder has removed


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, which goes with the lock."""
    descriptor = _take(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the file system or the C library cannot."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    if (code := ctypes.get_errno()) in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(other))


def _clean_up(target: Path) -> None:
    """Put back what a killed process had moved aside, and remove what it was making."""
    left = re.compile(rf"\.{re.escape(target.name)}\.\d+\.(new|old)")
    found = [path for path in sorted(target.parent.iterdir()) if left.fullmatch(path.name)]
    aside = [path for path in found if path.suffix == ".old"]
    if aside and not target.exists():
        aside[-1].rename(target)
        logging.info("%s was moved aside by a process that was killed; it is back", target)
    for path in found:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """A fresh folder that takes the place of `target` once the block is done: nobody reads half of it.

    The block has `target` to itself. Folders are swapped in one step; where the file system cannot, by two renames,
    and what a kill between them leaves is put back the next time.
    """
    target = target.resolve()  # a link to it stays
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (target.with_name(f".{target.name}.{os.getpid()}.{word}") for word in ("new", "old"))
    with locked(target.with_name(f".{target.name}.lock")):
        _clean_up(target)
        fresh.mkdir()
        try:
            yield fresh
            if not target.exists() or not _exchange(fresh, target):
                if target.exists():
                    target.rename(old)
                fresh.rename(target)
        finally:
            _clean_up(target)

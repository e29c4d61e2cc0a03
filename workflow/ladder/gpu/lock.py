"""One GPU to itself: an advisory lock per GPU on this node, which also decides which GPU a job gets.

Snakemake assigns no GPU. The worker inherits the lock file, so that the GPU stays taken until the last process ends.
"""

import contextlib
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ladder.gpu.discovery import FoundGpu
from ladder.model.errors import LadderError

_POLL_S = 0.2


def lock_file(uuid: str) -> Path:
    """Lock of a GPU, in the node's own temporary folder: a lock on a shared file system would bind other nodes."""
    return Path(tempfile.gettempdir()) / f"kernel-ladder-{uuid}.lock"


def _open(path: Path) -> int:
    # O_EXCL: in a sticky folder Linux refuses O_CREAT alone for another user's file (protected_regular).
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return os.open(path, flags)
    # Other users of the node must be able to take it, whatever our umask.
    os.fchmod(descriptor, 0o666)
    return descriptor


def _take_one(files: Sequence[tuple[FoundGpu, int]]) -> tuple[FoundGpu, int] | None:
    for gpu, descriptor in files:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return gpu, descriptor
    return None


@contextlib.contextmanager
def one_gpu(gpus: Sequence[FoundGpu]) -> Iterator[tuple[FoundGpu, int]]:
    """Wait for a free GPU; yields it with its lock's descriptor, for the worker. Raises LadderError without any."""
    if not gpus:
        raise LadderError(
            "no GPU is visible: set CUDA_VISIBLE_DEVICES or the configuration's `device: none`"
        )
    files = [(gpu, _open(lock_file(gpu.uuid))) for gpu in gpus]
    try:
        taken = _take_one(files)
        if taken is None:
            names = ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in gpus)
            logging.info("waiting for a free GPU: %s", names)
        while taken is None:
            time.sleep(_POLL_S)
            taken = _take_one(files)
        yield taken
    finally:
        for _, descriptor in files:
            os.close(descriptor)

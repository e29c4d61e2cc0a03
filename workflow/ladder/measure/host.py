"""What a session is made on and with: the host, its software, the checkout, and the GPU."""

import glob
import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ladder.gpu.card import card_facts
from ladder.gpu.discovery import driver_version
from ladder.measure.conditions import package_version
from ladder.measure.store import new_name, now
from ladder.model.errors import LadderError, refuse
from ladder.model.files import TREE_ROOMS, tree_digest
from ladder.model.record import Session

BUILDS = "torch nvidia-cudnn-cu13 nvidia-cudnn-frontend flash-attn-4 quack-kernels"
"""Packages that references of one's own go by."""
_PACKAGES = f"""snakemake cuda-python cuda-core cuda-bindings nvmath-python nvidia-cublas nvidia-cuda-nvrtc
cupti-python ncu-report triton numpy scipy pandas seaborn matplotlib {BUILDS}"""
_SEARCHED = 200  # commits, for the tree that a host without git measured

Facts = dict[str, Any]


def _output(*command: str) -> str | None:
    """What a command prints; None where it fails or there is no such command."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _git(root: Path, *words: str) -> str | None:
    """What git says of the repository at `root`; None where it fails, or `root` is none."""
    if not (root / ".git").exists():
        return None
    return _output("git", "-C", str(root), *words)


def tree(root: Path) -> Facts:
    """Digest of kernels/, workflow/ and config/, and where git is there the commit and whether they are clean."""
    commit = _git(root, "rev-parse", "HEAD")
    clean = None
    if commit:
        clean = _git(root, "status", "--porcelain", "--", *TREE_ROOMS) == ""
    return {"digest": tree_digest(root), "commit": commit, "clean": clean}


def commit_of(root: Path, name: str) -> str:
    """The commit that a name, such as a tag, stands for. Raises LadderError where the repository has none."""
    options = ("--verify", "--quiet", "--end-of-options")
    commit = _git(root, "rev-parse", *options, f"{name}^{{commit}}")
    if commit is None:
        accepted = f"a commit or a tag of the git repository {root}"
        raise refuse("command line", "--only", name, accepted)
    return commit


def tree_of(root: Path, commit: str) -> Facts:
    """What `tree` says in a checkout of a commit without local changes. Raises LadderError without the commit."""
    rooms = _git(root, "ls-tree", "--name-only", commit, "--", *TREE_ROOMS) or ""
    command = ["git", "-C", str(root), "archive", commit, "--", *rooms.split()]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace")
        raise LadderError(f"{root}: the commit {commit} cannot be read: {why}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        return {"digest": tree_digest(Path(folder)), "commit": commit, "clean": True}


def tree_with(root: Path, digest: str) -> Facts | None:
    """What `tree_of` says of the last commit with such a digest, of those that changed the tree last; None without."""
    count = f"--max-count={_SEARCHED}"
    commits = _git(root, "log", count, "--format=%H", "--", *TREE_ROOMS) or ""
    for commit in commits.split():
        committed = tree_of(root, commit)
        if committed["digest"] == digest:
            return committed
    return None


def unknown_commits(root: Path, commits: Iterable[str]) -> list[str]:
    """The commits that the repository at `root` does not have; all of them where there is no repository."""
    return [
        commit
        for commit in dict.fromkeys(commits)
        if _git(root, "cat-file", "-e", f"{commit}^{{commit}}") is None
    ]


def host() -> Facts:
    """CPU, usable cores and memory of this host."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
    }


def find_tool(name: str) -> str | None:
    """`ncu` or `compute-sanitizer`: on the path, in the CUDA toolkit, or of the newest Nsight Compute; None without."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    newest_first = sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True)
    folders = [*os.get_exec_path(), f"{home}/bin", f"{home}/{name}", *newest_first]
    return shutil.which(name, path=os.pathsep.join(folders))


def ncu_version() -> str | None:
    """Version of Nsight Compute, or None without it."""
    text = _output(find_tool("ncu") or "ncu", "--version")
    return text.splitlines()[-1] if text else None


def versions() -> Facts:
    packages = {name: package_version(name) for name in _PACKAGES.split()}
    return {
        "driver": driver_version(),
        "cublas": packages["nvidia-cublas"],
        "python": platform.python_version(),
        "packages": packages,
    }


def session(uuid: str, root: Path, gpu: Mapping[str, Any]) -> Session:
    """The session that a worker begins on the GPU `uuid`; `gpu` is what the worker says of it."""
    card = card_facts(uuid)
    facts = dict(gpu)
    return Session(
        id=new_name("session"),
        started=now(),
        clock_floor_us=facts.pop("clock_floor_us", None),
        host={**host(), "gpus": card.pop("gpus_of_host", None)},
        gpu={**facts, **card},
        versions=versions(),
        tree=tree(root),
    )

"""What a session is made on and with: the host, its software, the checkout, and the GPU."""

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

_PACKAGES = """snakemake cuda-python cuda-core cuda-bindings nvmath-python nvidia-cublas nvidia-cuda-nvrtc
cupti-python ncu-report triton numpy scipy pandas seaborn matplotlib"""
_SEARCHED = 50  # commits, for the tree that a host without git measured


def _output(command: list[str], given: str | None = None) -> str | None:
    """What a command prints that reads `given`; None where it fails or there is no such command."""
    options: Any = {"capture_output": True, "text": True, "check": True, "timeout": 30}
    try:
        return str(subprocess.run(command, input=given, **options).stdout)
    except (OSError, subprocess.SubprocessError):
        return None


def tree(root: Path) -> dict[str, Any]:
    """Digest of kernels/, workflow/ and config/, and where git is there the commit and whether they are clean."""
    found: dict[str, Any] = {"digest": tree_digest(root), "commit": None, "clean": None}
    if (root / ".git").exists() and (
        commit := _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    ):
        state = _output(
            ["git", "-C", str(root), "status", "--porcelain", "--", *TREE_ROOMS]
        )
        found |= {
            "commit": commit.strip(),
            "clean": state is not None and not state.strip(),
        }
    return found


def commit_of(root: Path, name: str) -> str:
    """The commit that a name, such as a tag, stands for. Raises LadderError where the repository has none."""
    words = [
        "git",
        "-C",
        str(root),
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        f"{name}^{{commit}}",
    ]
    if (found := _output(words)) is None:
        raise refuse(
            "command line",
            "--only",
            name,
            f"a commit or a tag of the git repository {root}",
        )
    return found.strip()


def tree_of(root: Path, commit: str) -> dict[str, Any]:
    """What `tree` says in a checkout of a commit without local changes. Raises LadderError without the commit."""
    git = ["git", "-C", str(root)]
    rooms = (
        _output([*git, "ls-tree", "--name-only", commit, "--", *TREE_ROOMS]) or ""
    ).split()
    command = [*git, "archive", "--format=tar", commit, "--", *rooms]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace")
        raise LadderError(f"{root}: the commit {commit} cannot be read: {why}")
    with (
        tempfile.TemporaryDirectory() as folder,
        tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive,
    ):
        for member in archive:
            if (held := archive.extractfile(member)) is not None:  # None of a folder
                path = Path(folder, member.name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(held.read())
        return {"digest": tree_digest(Path(folder)), "commit": commit, "clean": True}


def tree_with(root: Path, digest: str) -> dict[str, Any] | None:
    """What `tree_of` says of the last commit with such a digest, of those that changed the tree last; None without."""
    command = [
        "git",
        "-C",
        str(root),
        "log",
        f"--max-count={_SEARCHED}",
        "--format=%H",
        "--",
        *TREE_ROOMS,
    ]
    commits = (_output(command) or "").split() if (root / ".git").exists() else []
    found = (tree_of(root, commit) for commit in commits)
    return next((one for one in found if one["digest"] == digest), None)


def unknown_commits(root: Path, commits: Iterable[str]) -> list[str]:
    """The commits that the repository at `root` does not have; all of them where there is no repository."""
    wanted = list(dict.fromkeys(commits))
    text = "".join(f"{commit}^{{commit}}\n" for commit in wanted)
    command = ["git", "-C", str(root), "cat-file", "--batch-check"]
    found = _output(command, text) if (root / ".git").exists() else None
    lines = found.splitlines() if found is not None else ["missing"] * len(wanted)
    return [
        commit
        for commit, line in zip(wanted, lines, strict=True)
        if line.endswith("missing")
    ]


def host() -> dict[str, Any]:
    """CPU, usable cores and memory of this host."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = {
        "cpu": named[1] if named else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }
    return found | {"memory_bytes": memory_bytes}


def find_ncu() -> str | None:
    """Nsight Compute's command line, on the path or where the toolkit puts it; None without it."""
    places = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ncu"]
    places += sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    return shutil.which("ncu") or next(
        (str(path) for path in places if path.is_file()), None
    )


def ncu_version() -> str | None:
    """Version of Nsight Compute, or None without it."""
    text = _output([find_ncu() or "ncu", "--version"])
    return text.strip().splitlines()[-1] if text else None


def versions() -> dict[str, Any]:
    packages = {name: package_version(name) for name in _PACKAGES.split()}
    found = {"driver": driver_version(), "cublas": packages["nvidia-cublas"]}
    return found | {"python": platform.python_version(), "packages": packages}


def session(uuid: str, root: Path, gpu: Mapping[str, Any]) -> Session:
    """The session that a worker begins on the GPU `uuid`; `gpu` is what the worker says of it."""
    card, facts = card_facts(uuid), dict(gpu)
    floor_us, count = facts.pop("clock_floor_us", None), card.pop("gpus_of_host", None)
    return Session(
        id=new_name("session"),
        started=now(),
        gpu={**facts, **card},
        host={**host(), "gpus": count},
        versions=versions(),
        tree=tree(root),
        clock_floor_us=floor_us,
    )

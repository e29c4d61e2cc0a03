"""Code that checks, times or compiles is locked: a change of it is a decision about the records made before.

`PYTHONPATH=tests:workflow python tests/measure/test_versions.py REASON` locks the files as they are, and writes the
reason into the lock file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from closures import closure
from ladder.build.cubin import FACTS_VERSION
from ladder.model.cell import TIMING_VERSION
from ladder.model.files import sha256
from ladder.model.folders import PACKAGE
from ladder.problems.registry import PROBLEMS

LOCK = Path(__file__).with_name("versions.lock.json")
MEASURING = ("ladder.measure.worker", "ladder.measure.traced")
COMPILING = (
    "ladder.build.nvrtc",
    "ladder.build.triton_request",
    "ladder.build.triton_compiler",
)
WORDS = {"model/errors.py", "model/files.py"}
"""They word errors and write files: no number depends on them."""


def versions() -> dict[str, Any]:
    """The versions as the code has them."""
    check = {name: problem.check_version for name, problem in sorted(PROBLEMS.items())}
    return {"check": check, "timing": dict(TIMING_VERSION), "facts": FACTS_VERSION}


def locked_files() -> dict[str, str]:
    """Each file that checks, times or compiles, with its digest: Python with all that it imports, and CUDA."""
    problems = [f"ladder.problems.{name}.instance" for name in (*PROBLEMS, "own")]
    paths = [
        *closure([*MEASURING, *COMPILING, *problems]),
        *PACKAGE.rglob("*.cu"),
        *PACKAGE.rglob("*.cuh"),
    ]
    named = {path.relative_to(PACKAGE).as_posix(): path for path in paths}
    return {
        name: sha256(named[name].read_bytes()) for name in sorted(named.keys() - WORDS)
    }


ADVICE = """
Decide whether records made before still stand:
- may a result that was checked before get another verdict now: raise check_version of the problem;
- may the same launch read another time or count: raise TIMING_VERSION of the regime (model/cell.py);
- may the same source give another cubin or other facts: raise FACTS_VERSION (build/cubin.py);
- none of these: leave the versions (docs/measuring.md, "What stands, and what is measured again").
Then run: PYTHONPATH=tests:workflow python tests/measure/test_versions.py 'what changed, and why the versions follow'
"""


def test_what_checks_times_and_compiles_is_as_it_was_locked() -> None:
    lock = json.loads(LOCK.read_text())
    now, then = locked_files(), lock["files"]
    changed = sorted(
        name for name in now.keys() | then.keys() if now.get(name) != then.get(name)
    )
    assert not changed, f"changed: {', '.join(changed)}{ADVICE}"
    assert versions() == lock["versions"], f"versions that are not locked{ADVICE}"


def test_a_change_of_a_check_or_of_the_timer_is_seen() -> None:
    files = locked_files()
    for name in (
        "gpu/timing.py",
        "gpu/harness.cuh",
        "measure/bench.py",
        "build/nvrtc.py",
    ):
        assert name in files
    for problem in PROBLEMS:
        assert {
            f"problems/{problem}/{one}" for one in ("instance.py", "check.cu")
        } <= files.keys()
    assert not {
        name
        for name in files
        if name.startswith(("report/", "results/", "claims/", "catalogue/"))
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    known = json.loads(LOCK.read_text()) if LOCK.is_file() else {"reasons": []}
    locked = {
        "reasons": [*known["reasons"], sys.argv[1]],
        "versions": versions(),
        "files": locked_files(),
    }
    LOCK.write_text(json.dumps(locked, indent=1) + "\n")

"""compute-sanitizer over the tasks of a plan: per tool one process, which launches kernel after kernel.

Its reports name a kernel by its symbol. A kernel that ends the process, or hangs, does not take the
later ones with it: they are launched in another process.
"""

import contextlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired
from typing import Any

from ladder.gpu.discovery import FoundGpu, find_gpus
from ladder.measure.gpu_job import GpuProgram, gpu_program
from ladder.model.errors import LadderError
from ladder.model.plan import Plan
from ladder.model.schemas import TableRow

TOOLS: dict[str, list[str]] = {
    # What the driver says the worker reports. Padding keeps buffers apart.
    "memcheck": ["--report-api-errors", "no", "--padding", "4096"],
    **{tool: [] for tool in ("racecheck", "synccheck", "initcheck")},
}
_OPTIONS = ["--demangle", "no", "--show-backtrace", "device", "--print-limit", "2000"]
_START_S = 120.0
_SUMMARY, _CUT, _TIMED_OUT = (
    re.compile(r"SUMMARY: \d+ "),
    "were not printed",
    "Timeout (",
)


def find_sanitizer() -> str | None:
    """compute-sanitizer, on the path or where the toolkit puts it; None without it."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    toolkit = f"{home / 'bin'}{os.pathsep}{home / 'compute-sanitizer'}"
    return shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=toolkit
    )


def needed() -> tuple[list[FoundGpu], str]:
    """The GPUs, and the path of compute-sanitizer. Raises LadderError without either."""
    gpus, program = find_gpus(), find_sanitizer()
    if not gpus:
        raise LadderError(
            "no GPU is visible: compute-sanitizer launches the kernels on one"
        )
    if program is None:
        raise LadderError(
            "compute-sanitizer was not found; it comes with the CUDA toolkit"
        )
    return gpus, program


def reports(log: str) -> list[list[str]]:
    """The lines of each report of a log; the first is not indented, the others are."""
    ours = rf"^=+ (?!COMPUTE-SANITIZER|.*SUMMARY|.*{_CUT})\S.*(?:\n=+  .*)*"
    return [
        [line.strip("= ") for line in report.splitlines()]
        for report in re.findall(ours, log, re.MULTILINE)
    ]


def outcomes(log: str, output: str, symbols: Mapping[int, str]) -> dict[int, TableRow]:
    """What became of the tasks with these symbols, as far as one process settled it; the rest is left."""
    by_symbol, known = dict[str, list[list[str]]](), set(symbols.values())
    for lines in (written := reports(log)):
        named = [word for word in re.findall(r"\w+", " ".join(lines)) if word in known]
        by_symbol.setdefault(named[0] if named else "", []).append(lines)
    for head, *_ in by_symbol.pop("", []):
        logging.warning("compute-sanitizer names no kernel: %s", head)
    last = [*output.splitlines()[-3:], *(head for head, *_ in written[-3:])]
    last_words = " ".join(last)[-500:] or "it printed nothing"
    settled, whole = dict[int, TableRow](), _SUMMARY.search(log) and _CUT not in log
    said = [
        json.loads(line) for line in output.splitlines() if line.startswith('{"index"')
    ]
    for index, status in {one.pop("index"): one for one in said}.items():
        if own := by_symbol.get(symbols[index]):
            head, where, *_ = (
                line.replace(symbols[index], "KERNEL") for line in [*own[0], ""]
            )
            settled[index] = {
                "status": "errors",
                "errors": len(own),
                "reason": head,
                "where": where,
            }
        elif status["status"] == "begun":
            ended = "timeout" if _TIMED_OUT in output else "launch_error"
            settled[index] = {"status": ended, "reason": last_words}
        elif status["status"] != "clean" or whole:
            settled[index] = {
                "errors": 0 if status["status"] == "clean" else None,
                **status,
            }
    why = {
        "status": "not run",
        "reason": f"compute-sanitizer gave no result: {last_words}",
    }
    return settled or dict.fromkeys(symbols, why)


def _checked(
    program: GpuProgram,
    symbols: Mapping[int, str],
    deadline_s: float,
    command: list[str],
) -> dict[int, TableRow]:
    """What one tool finds in the tasks with these symbols, launched in as many processes as it takes."""
    found = dict[int, TableRow]()
    while todo := {
        index: symbol for index, symbol in symbols.items() if index not in found
    }:
        with tempfile.TemporaryDirectory() as folder:
            log, said = Path(folder) / "log", Path(folder) / "said"
            tool, limit_s = (
                [*command, "--log-file", str(log)],
                _START_S + deadline_s * len(todo),
            )
            with said.open("wb") as out, contextlib.suppress(TimeoutExpired):
                program.run(
                    list(todo), under=tool, stdout=out, stderr=STDOUT, timeout=limit_s
                )
            log.touch()
            written, printed = (
                path.read_text(errors="replace") for path in (log, said)
            )
        found |= outcomes(written, printed, todo)
    return found


def sanitize(
    path: Path, plan: Plan, root: Path, gpus: Sequence[FoundGpu], program: str
) -> Iterator[TableRow]:
    """What each tool says of each task of the plan at `path`. A tool takes a GPU to itself.

    Keys: kernel, source_sha256, variant, size, tool, status (clean, errors, not run, or the launch's), reason, and
    where there are reports `errors`, their number, and `where`.
    """
    symbols = {}
    for index, task in enumerate(plan.tasks):
        if task.absent is None:
            facts = plan.variants.get(task.variant, {})
            symbols[index] = "".join(
                facts.get("symbols", {}).values()
            )  # none where it did not compile

    def checked(tool: str) -> dict[int, TableRow]:
        command = [program, "--tool", tool, *TOOLS[tool], *_OPTIONS]
        with gpu_program("sanitize", path, plan, root, gpus) as held:
            return _checked(held, symbols, plan.job["deadline_s"], command)

    with ThreadPoolExecutor(len(gpus)) as pool:
        outcomes_by_tool = dict(zip(TOOLS, pool.map(checked, TOOLS), strict=True))
    for index, task in enumerate(plan.tasks):
        source = plan.variants.get(task.variant, {}).get("source_sha256")
        about = {
            "kernel": task.cell.kernel,
            "source_sha256": source,
            "variant": task.variant,
        }
        about["size"] = dict(task.cell.size)
        for tool, found in outcomes_by_tool.items():
            absent = {"status": "unsupported", "reason": task.absent}
            yield {**about, "tool": tool, **found.get(index, absent)}


def by_kernel(rows: Iterable[TableRow]) -> dict[str, dict[str, Any]]:
    """What sanitizer.json says of each kernel: its source's digest, tools without a report, and the other rows."""
    seen = dict[str, dict[str, Any]]()
    for row in rows:
        about = dict(row)
        kernel, source = about.pop("kernel"), about.pop("source_sha256")
        entry = seen.setdefault(
            kernel, {"source_sha256": source, "clean": [*TOOLS], "others": []}
        )
        if about["status"] != "clean":
            entry["others"].append(about)
            if about["tool"] in entry["clean"]:
                entry["clean"].remove(about["tool"])
    return seen

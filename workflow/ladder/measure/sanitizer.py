"""compute-sanitizer over the tasks of a plan: per tool one process, which launches kernel after kernel.

Its reports name a kernel by its symbol. A kernel that ends the process, or hangs, does not take the
later ones with it: they are launched in another process.
"""

import contextlib
import json
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import STDOUT, TimeoutExpired
from typing import Any

from ladder.gpu.discovery import FoundGpu, find_gpus
from ladder.measure.gpu_job import GpuProgram, gpu_program
from ladder.measure.host import find_tool
from ladder.model.errors import LadderError
from ladder.model.plan import Plan
from ladder.model.schemas import TableRow

TOOLS: dict[str, list[str]] = {
    # What the driver says the worker reports. Padding keeps buffers apart.
    "memcheck": ["--report-api-errors", "no", "--padding", "4096"],
    "racecheck": [],
    "synccheck": [],
    "initcheck": [],
}
_OPTIONS = ["--demangle", "no", "--show-backtrace", "device", "--print-limit", "2000"]
_START_S = 120.0
_TIMED_OUT = "Timeout ("  # of faulthandler
_SUMMARY = re.compile(r"SUMMARY: \d+ ")
_CUT = "were not printed"  # of reports beyond the limit
_REPORT = re.compile(
    rf"^=+ (?!COMPUTE-SANITIZER|.*SUMMARY|.*{_CUT})\S.*(?:\n=+  .*)*", re.MULTILINE
)
"""Its first line is not indented, the others are."""

Report = list[str]  # lines


def needed() -> tuple[list[FoundGpu], str]:
    """The GPUs, and the path of compute-sanitizer. Raises LadderError without either."""
    gpus = find_gpus()
    program = find_tool("compute-sanitizer")
    if not gpus:
        raise LadderError(
            "no GPU is visible: compute-sanitizer launches the kernels on one"
        )
    if program is None:
        raise LadderError(
            "compute-sanitizer was not found; it comes with the CUDA toolkit"
        )
    return gpus, program


def outcomes(log: str, output: str, symbols: Mapping[int, str]) -> dict[int, TableRow]:
    """What became of the tasks with these symbols, as far as one process settled it; the rest is left."""
    reports: dict[str, list[Report]] = {symbol: [] for symbol in symbols.values()}
    heads = []
    for text in _REPORT.findall(log):
        report = [line.strip("= ") for line in text.splitlines()]
        heads.append(report[0])
        named = [word for word in re.findall(r"\w+", text) if word in reports]
        if named:
            reports[named[0]].append(report)
        else:
            logging.warning("compute-sanitizer names no kernel: %s", report[0])
    last_lines = output.splitlines()[-3:] + heads[-3:]
    last_words = " ".join(last_lines)[-500:] or "it printed nothing"
    whole = _SUMMARY.search(log) and _CUT not in log

    rows = dict[int, TableRow]()  # the last of each task
    for line in output.splitlines():
        if line.startswith('{"index"'):
            row = json.loads(line)
            rows[row.pop("index")] = row
    settled = dict[int, TableRow]()
    for index, row in rows.items():
        symbol = symbols[index]
        status = row["status"]
        if reports[symbol]:
            settled[index] = _errors(reports[symbol], symbol)
        elif status == "begun":
            ended = "timeout" if _TIMED_OUT in output else "launch_error"
            settled[index] = {"status": ended, "reason": last_words}
        elif status != "clean":
            settled[index] = row
        elif whole:
            settled[index] = row | {"errors": 0}
    if settled:
        return settled
    why = f"compute-sanitizer gave no result: {last_words}"
    return {index: {"status": "not run", "reason": why} for index in symbols}


def _errors(reports: list[Report], symbol: str) -> TableRow:
    """The row of a task with reports, which shows the first one."""
    head, where, *_ = (line.replace(symbol, "KERNEL") for line in [*reports[0], ""])
    return {"status": "errors", "errors": len(reports), "reason": head, "where": where}


def _checked(
    program: GpuProgram,
    symbols: Mapping[int, str],
    deadline_s: float,
    command: list[str],
) -> dict[int, TableRow]:
    """What one tool finds in the tasks with these symbols, launched in as many processes as it takes."""
    settled = dict[int, TableRow]()
    left = dict(symbols)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            output = Path(folder, "output")
            log.touch()
            tool = [*command, "--log-file", str(log)]
            limit_s = _START_S + deadline_s * len(left)
            with output.open("wb") as file, contextlib.suppress(TimeoutExpired):
                program.run(
                    list(left), under=tool, timeout=limit_s, stdout=file, stderr=STDOUT
                )
            texts = log.read_text(errors="replace"), output.read_text(errors="replace")
        settled |= outcomes(*texts, left)
        left = {index: left[index] for index in left if index not in settled}
    return settled


def sanitize(
    path: Path, plan: Plan, root: Path, gpus: Sequence[FoundGpu], program: str
) -> Iterator[TableRow]:
    """What each tool says of each task of the plan at `path`. A tool takes a GPU to itself.

    Keys: kernel, source_sha256, variant, size, tool, status (clean, errors, not run, or the launch's), reason, and
    where there are reports `errors`, their number, and `where`.
    """
    symbols = dict[int, str]()  # "" where a kernel did not compile
    for index, task in enumerate(plan.tasks):
        if task.absent is None:
            facts = plan.variants.get(task.variant, {})
            symbols[index] = "".join(facts.get("symbols", {}).values())

    def checked(tool: str) -> dict[int, TableRow]:
        command = [program, "--tool", tool, *TOOLS[tool], *_OPTIONS]
        with gpu_program("sanitize", path, plan, root, gpus) as launching:
            return _checked(launching, symbols, plan.job["deadline_s"], command)

    with ThreadPoolExecutor(len(gpus)) as pool:
        outcomes_by_tool = dict(zip(TOOLS, pool.map(checked, TOOLS), strict=True))
    for index, task in enumerate(plan.tasks):
        absent = {"status": "unsupported", "reason": task.absent}
        facts = plan.variants.get(task.variant, {})
        for tool, of_tasks in outcomes_by_tool.items():
            yield {
                "kernel": task.cell.kernel,
                "source_sha256": facts.get("source_sha256"),
                "variant": task.variant,
                "size": dict(task.cell.size),
                "tool": tool,
                **of_tasks.get(index, absent),
            }


def by_kernel(rows: Iterable[TableRow]) -> dict[str, dict[str, Any]]:
    """What sanitizer.json says of each kernel: its source's digest, tools without a report, and the other rows."""
    kernels = dict[str, dict[str, Any]]()
    for named_row in rows:
        row = dict(named_row)
        new = {"source_sha256": row.pop("source_sha256"), "clean": [*TOOLS]}
        kernel = kernels.setdefault(row.pop("kernel"), {**new, "others": []})
        if row["status"] != "clean":
            kernel["others"].append(row)
            kernel["clean"] = [tool for tool in kernel["clean"] if tool != row["tool"]]
    return kernels

"""The sanitizer: what its output says of which kernel, what is launched, and why a kernel was not checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import checkout
import pytest
from compiling import kept_cache
from conftest import ROOT, environment
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.sanitizer_sweeps import sanitizer_sweeps, small_size
from ladder.catalogue.settings import read_settings
from ladder.cli.app import main
from ladder.gpu.discovery import FoundGpu
from ladder.measure import sanitizer
from ladder.measure.sanitizer import TOOLS, outcomes
from ladder.model.files import write_json
from ladder.model.folders import Project
from ladder.results import tables
from rendering import made, report, section
from test_supervisor import alive, wait_until

NAIVE, STAGED, RING = (
    "_Z10gemm_naiveILi256EEvPKfS1_Pfiii",
    "_Z6stagedIfLi128EEvPKfPfi",
    "_Z4ringv",
)
SYMBOLS = {0: NAIVE, 1: STAGED, 2: RING}
MEMCHECK = f"""\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at {STAGED}+0x160
=========     by thread (3,0,0) in block (1,0,0)
=========     Address 0x7f6510c00c04 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7f6510c00000 of size 3,072 bytes
=========
========= Invalid __global__ read of size 4 bytes
=========     at {STAGED}+0x160
=========     by thread (4,0,0) in block (1,0,0)
=========     Address 0x7f6510c00c08 is out of bounds
=========     and is 9 bytes after the nearest allocation at 0x7f6510c00000 of size 3,072 bytes
=========
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 3 errors
"""
RACECHECK = f"""\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at {RING}+0x90
=========     and Read access at {RING}+0x100 [508 hazards]
=========
========= Warning: Race reported between Read access at {STAGED}+0x20
=========     and Write access at {STAGED}+0x80 [32 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
SYNCCHECK = f"""\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block
=========     at __cuda_sm70_barrier_sync+0x30
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: {NAIVE}+0xe40
=========
========= ERROR SUMMARY: 1 error
"""
INITCHECK = f"""\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at {RING}+0x70
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_RACE = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
REFUSED = """\
========= COMPUTE-SANITIZER
========= Error: Device not supported. Please refer to the "Supported Devices" section of the sanitizer documentation
========= Error: Target application terminated before first instrumented API call
"""


def said(*statuses: str) -> str:
    """What the worker prints of tasks from 0 on; "begun" is one that did not end."""
    lines = ["a line of another program"]
    for index, status in enumerate(statuses):
        lines.append(json.dumps({"index": index, "status": "begun"}))
        if status != "begun":
            lines.append(
                json.dumps({"index": index, "status": status, "reason": "why"})
            )
    return "\n".join(lines)


ALL = said("clean", "clean", "clean")


def statuses(log: str, output: str) -> dict[int, str]:
    return {
        index: row["status"] for index, row in outcomes(log, output, SYMBOLS).items()
    }


@pytest.mark.parametrize("log", [CLEAN, NO_RACE])
def test_a_summary_without_findings_makes_all_clean(log: str) -> None:
    found = outcomes(log, ALL, SYMBOLS)
    assert list(found) == list(SYMBOLS)
    assert {(row["status"], row["errors"]) for row in found.values()} == {("clean", 0)}


@pytest.mark.parametrize(
    ("log", "index", "reason", "where"),
    [
        (
            SYNCCHECK,
            0,
            "Barrier error detected. Divergent thread(s) in block",
            "at __cuda_sm70_barrier",
        ),
        (
            INITCHECK,
            2,
            "Uninitialized __global__ memory read of size 4 bytes",
            "at KERNEL+0x70",
        ),
        (
            RACECHECK,
            2,
            "Error: Race reported between Write access at KERNEL+0x90",
            "and Read access at",
        ),
        (
            RACECHECK,
            1,
            "Warning: Race reported between Read access at KERNEL+0x20",
            "and Write access at",
        ),
    ],
)
def test_a_finding_is_of_the_kernel_that_it_names(
    log: str, index: int, reason: str, where: str
) -> None:
    found = outcomes(log, ALL, SYMBOLS)
    row = found[index]
    assert (row["status"], row["errors"], row["reason"]) == ("errors", 1, reason)
    assert row["where"].startswith(where)
    for line, other in found.items():
        named = SYMBOLS[line] in log
        assert other["status"] == ("errors" if named else "clean")


def test_a_killed_context_settles_what_ran_and_leaves_the_rest_to_the_next_process() -> (
    None
):
    found = outcomes(MEMCHECK, said("clean", "launch_error"), SYMBOLS)
    assert found[0]["status"] == "clean"
    assert found[1] == {
        "status": "errors",
        "errors": 2,
        "reason": "Invalid __global__ read of size 4 bytes",
        "where": "at KERNEL+0x160",
    }
    assert 2 not in found


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ("", "launch_error"),
        ("\nTimeout (0:01:00)!\nThread 0x00 (most recent call first):", "timeout"),
    ],
)
def test_a_worker_that_dies_without_a_finding_gives_its_task_a_status(
    last: str, status: str
) -> None:
    assert statuses(CLEAN, said("clean", "begun") + last) == {0: "clean", 1: status}


def test_nothing_is_clean_without_a_summary_or_where_reports_were_left_out() -> None:
    cut = INITCHECK.replace(
        "1 error", "12 errors were not printed. Use --print-limit option to adjust"
    )
    assert statuses(cut, ALL) == {2: "errors"}
    row = outcomes(REFUSED, "Traceback\nCUDAError: CUDA_ERROR_UNKNOWN", SYMBOLS)[1]
    assert row["status"] == "not run"
    assert "CUDA_ERROR_UNKNOWN" in row["reason"]
    assert "Target application terminated" in row["reason"]
    assert statuses("", ALL) == dict.fromkeys(range(3), "not run")


# What is launched.


def seen(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "sanitizer.json").read_text())
    return found


KEPT = ["--config", f"compile={{cache: {kept_cache().folder}}}"]


def test_one_kernel_alone_leaves_what_is_known_of_others(
    project: Path, lent: None, caplog: pytest.LogCaptureFixture
) -> None:
    folder = project / "results/host"
    before = {"source_sha256": "a", "clean": [*TOOLS], "others": []}
    write_json(folder / "sanitizer.json", {"alone": {}, "other": before})
    words = ["--root", str(project), "sanitize", str(folder), "--arch", "sm_90a", *KEPT]
    assert main([*words, "--kernel", "alone"]) == 0
    found = seen(folder)
    assert found["other"] == before
    assert len(found["alone"]["source_sha256"]) == 64
    assert (
        found["alone"]["clean"],
        {row["status"] for row in found["alone"]["others"]},
    ) == (
        [],
        {"launch_error"},
    )
    assert main([*words, "--kernel", "alnoe"]) != 0
    assert "command line: kernel: 'alnoe' is not accepted" in caplog.text


def test_every_kernel_is_launched_in_every_dtype_at_a_size_that_it_admits() -> None:
    catalog, config = checkout.catalog(), read_settings(Project(ROOT), [], {})
    small = sanitizer_sweeps(catalog)
    plans = [plan_sweep(sweep, config, "sm_90a") for sweep in small]
    tasks = [task for plan in plans for task in plan.tasks]
    assert {(task.cell.kernel, task.cell.dtype) for task in tasks if task.launch} == {
        (kernel.name, dtype) for kernel in catalog.values() for dtype in kernel.dtypes
    }
    assert [task.variant for task in tasks if task.absent] == []
    assert all(max(task.cell.size.values()) < 8192 for task in tasks)
    layouts = {
        (task.cell.dtype, task.cell.layout)
        for task in tasks
        if task.cell.kernel == "hopper_gemm"
    }
    assert {("bf16", "NN"), ("bf16", "TN"), ("fp8", "TN")} <= layouts


def test_sizes_are_odd_where_a_kernel_takes_them_and_give_blocks_that_stay_more_than_a_tile() -> (
    None
):
    catalog = checkout.catalog()
    naive = catalog["gemm_naive"].variant({}, "fp32")
    assert small_size(naive) == {"m": 531, "n": 563, "k": 301}
    staying = catalog["hopper_gemm"].variant({"blocks": 132}, "bf16")
    size = small_size(staying)
    (blocks, *_) = staying.geometry(size).grid
    assert blocks == 132 < size["m"] // 128 * -(-size["n"] // 256)


# The step and the rule.


FAKE = """#!/bin/sh
''':'
exec "{python}" -S "$0" "$@"
'''
import json, sys
words = sys.argv[1:]
log, todo = words[words.index("--log-file") + 1], json.loads(words[-1])
print(json.dumps(words), file=open({calls!r}, "a"))
for index in todo:
    print(json.dumps({{"index": index, "status": "begun"}}))
    if index == 0:
        break
    print(json.dumps({{"index": index, "status": "clean", "reason": ""}}))
open(log, "w").write({log!r})
"""


@pytest.fixture
def lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU, and a compute-sanitizer under which the first kernel of a plan ends its process."""
    path = tmp_path / "compute-sanitizer"
    path.write_text(
        FAKE.format(python=sys.executable, calls=str(tmp_path / "calls"), log=CLEAN)
    )
    path.chmod(0o755)
    monkeypatch.setattr(sanitizer, "find_tool", lambda name: str(path))
    monkeypatch.setattr(
        sanitizer, "find_gpus", lambda: [FoundGpu(0, "NVIDIA H200", "GPU-fake", (9, 0))]
    )
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))  # of locks
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-fake")


@pytest.mark.slow
def test_a_kernel_that_ends_its_process_does_not_take_the_later_ones_with_it(
    compiled: Path, lent: None, tmp_path: Path
) -> None:
    folder = compiled / "results/test/nvidia-h200"
    assert main(["--root", str(compiled), "sanitize", str(folder)]) == 0
    first, second = seen(folder).values()
    assert {(row["tool"], row["status"]) for row in first["others"]} == {
        (tool, "launch_error") for tool in TOOLS
    }
    assert (first["clean"], second["clean"], second["others"]) == ([], [*TOOLS], [])
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call[call.index("--tool") + 1] for call in calls] == [
        tool for tool in TOOLS for _ in range(2)
    ]
    assert [json.loads(call[-1]) for call in calls] == [[0, 1], [1]] * len(TOOLS)
    program = ["-m", "ladder.measure.process", "sanitize"]
    assert all(call[call.index("-m") :][:3] == program for call in calls)


def test_a_killed_step_leaves_no_sanitizer_on_the_gpu(tmp_path: Path) -> None:
    program, started = tmp_path / "compute-sanitizer", tmp_path / "started"
    program.write_text(
        f"#!/bin/sh\necho $$ > {started}.new && mv {started}.new {started}\nexec sleep 60\n"
    )
    program.chmod(0o755)
    step = "from ladder.measure.gpu_job import GpuProgram; from ladder.gpu.discovery import FoundGpu; "
    step += "from ladder.measure.sanitizer import _checked; gpu = FoundGpu(0, 'Made-up', 'GPU-a', (9, 0)); "
    step += (
        f"_checked(GpuProgram(gpu, 2, []), {{0: 'kernel'}}, 60.0, [{str(program)!r}])"
    )
    path = environment() | {"PYTHONPATH": str(ROOT / "workflow")}
    with subprocess.Popen([sys.executable, "-c", step], env=path) as process:
        assert wait_until(started.is_file)
        process.kill()
    left = int(started.read_text())
    assert wait_until(lambda: not alive(left))


@pytest.mark.parametrize(
    ("gpu", "why"), [(False, "no GPU is visible"), (True, "compute-sanitizer was not")]
)
def test_without_a_gpu_or_the_tool_the_step_is_refused(
    gpu: bool,
    why: str,
    project: Path,
    lent: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sanitizer, "find_tool" if gpu else "find_gpus", lambda *_: None)
    folder = project / "results/test/no-gpu"
    assert main(["--root", str(project), "sanitize", str(folder), *KEPT]) == 2
    assert why in caplog.text
    assert not (folder / "sanitizer.json").exists()


def test_a_kernel_is_clean_under_a_tool_that_reports_nothing_of_any_variant() -> None:
    about = {"kernel": "a", "source_sha256": "1"}
    rows = [
        {**about, "variant": name, "tool": tool, "status": "clean"}
        for name in "xy"
        for tool in TOOLS
    ]
    rows[5] |= {"status": "errors", "errors": 2, "reason": "Error: Race reported"}
    entry = sanitizer.by_kernel(rows)["a"]
    assert entry["clean"] == [tool for tool in TOOLS if tool != "racecheck"]
    race = {
        "variant": "y",
        "tool": "racecheck",
        "status": "errors",
        "errors": 2,
        "reason": "Error: Race reported",
    }
    assert entry == {"source_sha256": "1", "clean": entry["clean"], "others": [race]}


def test_the_report_counts_clean_kernels_and_names_those_with_another_source(
    tmp_path: Path,
) -> None:
    lab = made(tmp_path)
    assert "Sanitizer" not in report(lab)["methodology"]
    resources = tables.read("resources", lab.folder.tables)
    sources = dict(zip(resources["kernel"], resources["source_sha256"], strict=True))
    found = {
        name: {"source_sha256": source, "clean": [*TOOLS], "others": []}
        for name, source in sources.items()
    }
    changed, absent, racing, *clean = found
    found[changed]["source_sha256"] = "0" * 64
    del found[absent]
    race = {
        "variant": f"{racing}-fp32",
        "tool": "racecheck",
        "status": "errors",
        "reason": "Error: Race reported",
    }
    found[racing]["others"] = [race]
    write_json(lab.folder.sanitizer, found)
    text = report(lab)["methodology"]
    part = section(text, "Sanitizer")
    assert f"found nothing in\n{len(clean)} kernels with the present source" in part
    unseen = ", ".join(f"`{name}`" for name in sorted((changed, absent)))
    assert f"Not run over 2 kernels with this source: {unseen}." in part
    assert f"| `{racing}-fp32` | racecheck | errors | Error: Race reported |" in part
    assert "[sanitizer.json](sanitizer.json)" in text

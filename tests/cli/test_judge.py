"""`judge`: one kernel from anywhere gets a verdict, and an exit code that says wrong, slow or broken."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, make_project
from factory import SESSION
from jsonschema import Draft202012Validator
from ladder.cli.app import _Printable, main
from ladder.gpu.discovery import FoundGpu
from ladder.measure.choice import decide
from ladder.measure.plan_records import PlanRecords
from ladder.measure.schedule import Schedule
from ladder.measure.store import Records, appending, new_name, read_store
from ladder.model.errors import LadderError
from ladder.model.folders import PublishedFolder, RunFolder
from ladder.model.plan import Plan
from ladder.model.plan_file import read_plan
from ladder.problems.registry import PROBLEMS
from ladder.results import tables
from ladder.results.judgement import EXIT_CODES
from measuring import on_hopper

EXPLOITS = ROOT / "tests/exploits"
Run = Callable[..., int]
Kernel = Callable[..., Path]
Verdict = Callable[..., Any]
Printed = pytest.CaptureFixture[str]
BROKEN = 'extern "C" __global__ void exploit() { no_such_thing(); }'
HONEST = "#include <honest.cuh>\n\nEXPLOIT { honest(ARGUMENTS); }\n"
GPU = FoundGpu(0, "NVIDIA H200", "GPU-of-the-tests", (9, 0))
ARCH = "sm_90a"
SCHEMA = json.loads((ROOT / "docs/judge.schema.json").read_text())
COLUMNS = SCHEMA["$defs"]["cell"]["required"]
VERDICTS = SCHEMA["properties"]["verdict"]["enum"]
DOCUMENT = SCHEMA["required"]
FAST, EVEN, SLOW = (1.03, 1.02, 1.04), (0.99, 0.97, 1.001), (0.5, 0.49, 0.51)


def ok(speedup: tuple[float, float, float] = FAST) -> dict[str, Any]:
    """What a record says of a cell that was timed."""
    value, low, high = speedup
    times = {
        "variant_us": [100.0] * 20,
        "reference_us": [100.0 * value] * 20,
        "reference": "cublaslt",
    }
    check = {"max_error": 1e-6, "error_bound": 1e-5, "launches": 212}
    device = {"sm_clock_mhz": 1755, "clock_events": ["SW_POWER_CAP"]}
    result = {
        "speedup": value,
        "speedup_low": low,
        "speedup_high": high,
        "check": check,
        "device": device,
        **times,
    }
    return {"status": "ok", "result": result}


def failed(status: str, reason: str = "that is why") -> dict[str, Any]:
    return {"status": status, "reason": reason}


TOO_SLOW = failed("unsupported", "warm is for kernels below 200 us")


def both(cold: Any = ok(), warm: Any = ok()) -> dict[tuple[int, str], Any]:  # noqa: B008
    """What becomes of the two cells of a kernel."""
    return {(2048, "cold"): cold, (2048, "warm"): warm}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose cache keeps what a test compiled; its includes have the exploits' header."""
    folder = make_project(tmp_path_factory.mktemp("judge") / "project")
    shutil.copy(EXPLOITS / "honest.cuh", folder / "kernels/include")
    return folder


@pytest.fixture
def kernel(checkout: Path) -> Iterator[Kernel]:
    """Copies an exploit, or text as its source, to a folder outside of the project: its description.

    The folder is the same for all tests: its name is part of what a cubin is kept by.
    """
    folder = checkout.parent / "elsewhere"
    folder.mkdir()

    def place(name: str = "honest", source: str | None = None) -> Path:
        shutil.copy(EXPLOITS / "exploit.yaml", folder / f"{name}.yaml")
        text = source or (EXPLOITS / f"{name}.cu").read_text()
        (folder / f"{name}.cu").write_text(text)
        return folder / f"{name}.yaml"

    yield place
    shutil.rmtree(folder)


@pytest.fixture
def judge(
    checkout: Path,
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Run:
    """Judges a kernel on a GPU that is none: a cell gets what it is given by M and regime."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("ladder.cli.judge.find_gpus", lambda: [GPU])

    def run(outcomes: Any, *words: str, path: Path | None = None) -> int:
        def measure(
            plan_path: Path, plan: Plan, folder: RunFolder, root: Path, on_records: Any
        ) -> None:
            assert (read_plan(plan_path), root) == (plan, checkout)
            view = PlanRecords(plan, Records())
            with appending(folder.records, plan.sweep) as append:
                for _, task in view.launched():
                    for regime in plan.regimes:
                        place = task.cell.size.get("m"), regime
                        of_kernel = outcomes.get(task.cell.kernel, outcomes)
                        given = of_kernel[place]
                        if isinstance(given, Exception):
                            raise given
                        record = view.new_record(task, regime, "session", **given)
                        append(record)
                        view.records.add([record])
                        on_records(view)

        monkeypatch.setattr("ladder.measure.job.measure", measure)
        given = [str(path or kernel()), "--arch", ARCH, *words]
        try:
            return main(["--root", str(checkout), "judge", *given])
        finally:
            assert not list((tmp_path / "temporary").iterdir())
            assert not (checkout / "results").exists()

    return run


def lines_of(text: str) -> list[Any]:
    """Lines of JSON, each held to the schema."""
    documents = [json.loads(line) for line in text.splitlines()]
    for document in documents:
        Draft202012Validator(SCHEMA).validate(document)
    return documents


@pytest.fixture
def verdict(judge: Run, capsys: Printed) -> Verdict:
    """Judges one kernel: its JSON, which has the exit code."""

    def run(*given: Any, **options: Any) -> Any:
        code = judge(*given, "--json", "-", **options)
        (document,) = lines_of(capsys.readouterr().out)
        assert document["exit_code"] == code
        return document

    return run


BY_STATUS = {
    "incorrect": ("wrong", 3),
    "out_of_bounds": ("refused", 3),
    "stateful": ("refused", 3),
    "compile_error": ("broken", 4),
    "launch_error": ("broken", 4),
    "timeout": ("broken", 4),
    "unsupported": ("incomplete", 4),
}


@pytest.mark.parametrize("status", BY_STATUS)
def test_a_status_has_its_verdict_its_exit_code_and_its_reason_in_full(
    status: str, judge: Run, capsys: Printed
) -> None:
    verdict, code = BY_STATUS[status]
    bad = failed(status, "the first line\nthe second line")
    assert judge(both(bad, bad)) == code
    text = capsys.readouterr().out
    assert text.splitlines()[-1].startswith(f"{verdict}: {status} at 2048, cold")
    assert f"  2048  cold   {status}: the first line\n    | the second line\n" in text
    assert f"  2048  warm   {status}: as above\n" in text


@pytest.mark.parametrize(
    ("speedup", "code", "verdict"),
    [
        (FAST, 0, "faster on this GPU: 1.030 [1.020, 1.040] x cublaslt at 2048, cold"),
        (EVEN, 1, "tie on this GPU: 0.9900 [0.9700, 1.001] x cublaslt at 2048, cold"),
        (
            SLOW,
            2,
            "slower on this GPU: 0.5000 [0.4900, 0.5100] x cublaslt at 2048, cold",
        ),
    ],
)
def test_the_interval_of_the_first_regime_says_faster_tie_or_slower(
    speedup: tuple[float, float, float],
    code: int,
    verdict: str,
    judge: Run,
    capsys: Printed,
) -> None:
    assert judge(both(ok(speedup), ok(SLOW))) == code
    head, cold, warm, last = capsys.readouterr().out.splitlines()
    assert head == "honest-fp32 on NVIDIA H200"
    assert cold.startswith("  2048  cold   ok  100.00 [100.00, 100.00] us  ")
    assert cold.endswith(
        " x cublaslt, 212 launches verified, largest error 0.1 of its bound"
    )
    assert warm.startswith("  2048  warm   ok")
    assert last == verdict


def test_a_step_of_the_clock_is_not_slower(judge: Run, capsys: Printed) -> None:
    """Most launches take 2.432 us, those of the library 2.400: one step of 32 ns."""
    short = ok((0.992, 0.99, 0.994))
    short["result"] |= {
        "variant_us": [2.432, 2.432, 2.4, 2.432] * 5,
        "reference_us": [2.4] * 20,
    }
    outcomes = both(short)
    assert judge(outcomes) == 2
    short["result"]["clock"] = "device"
    assert judge(outcomes) == 1
    assert "0.9920 [0.9769, 1.007] x cublaslt" in capsys.readouterr().out


def test_a_kernel_too_slow_for_warm_is_right_unless_warm_is_what_counts(
    judge: Run,
) -> None:
    outcomes = both(ok(), TOO_SLOW)
    assert judge(outcomes) == 0
    assert judge(outcomes, "--regime", "warm", "--regime", "cold") == 4


def test_what_the_host_did_is_not_judged(
    judge: Run, caplog: pytest.LogCaptureFixture
) -> None:
    slow = failed(
        "launch_error",
        "the host sees +350.0 us more; this host is too slow to time launches",
    )
    slow["result"] = {"transient": True}
    assert judge(both(slow, slow)) == 5
    assert "not judged: honest-fp32 at" in caplog.text
    assert "too slow to time launches" in caplog.text


UNFIT, STATEFUL = failed("unsupported"), failed("stateful")
LATE, SLOWER = failed("timeout"), ok(SLOW)


@pytest.mark.parametrize(
    ("by_m", "code", "last"),
    [
        ({}, 0, "faster"),
        ({128: ok(EVEN)}, 1, "tie"),
        ({128: SLOWER}, 2, "slower on this GPU: 0.5000 [0.4900, 0.5100] x cublaslt"),
        ({128: SLOWER, 64: LATE}, 4, "broken: timeout at 64, cold"),
        ({64: UNFIT, 128: LATE}, 4, "broken: timeout at 128x64x32, cold"),
        ({64: UNFIT, 128: LATE, 256: STATEFUL}, 3, "refused: stateful at 256, cold"),
        ({64: failed("incorrect"), 256: STATEFUL}, 3, "wrong: incorrect at 64, cold"),
    ],
)
def test_of_several_sizes_the_worst_verdict_counts(
    by_m: dict[int, Any], code: int, last: str, judge: Run, capsys: Printed
) -> None:
    words = ["--regime", "cold"]
    for size in ("64", "{m: 128, n: 64, k: 32}", "2**8"):
        words += ["--size", size]
    outcomes = {(m, "cold"): by_m.get(m, ok()) for m in (64, 128, 256)}
    assert judge(outcomes, *words) == code
    assert capsys.readouterr().out.splitlines()[-1].startswith(last)


def test_the_json_has_a_cell_a_size_and_regime(
    judge: Run, tmp_path: Path, capsys: Printed
) -> None:
    path, outcomes = (
        tmp_path / "verdict.json",
        both(ok(), TOO_SLOW),
    )
    assert judge(outcomes, "--json", str(path)) == 0
    capsys.readouterr()
    assert judge(outcomes, "--json", "-") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found == json.loads(path.read_text())
    assert err.splitlines()[-1].startswith("faster ")
    cold, warm = found.pop("cells")
    assert found == {
        "version": 1,
        "verdict": "faster",
        "exit_code": 0,
        "reason": "",
        "kernel": "honest",
        "dtype": "fp32",
        "arch": ARCH,
        "device": GPU.name,
        "trust": "compiled",
        "unseen": [],
        "tolerance": None,
    }
    logs = [cell.pop("compile_log") for cell in (cold, warm)]
    assert logs[0] == logs[1]
    assert "ptxas info" in logs[0]
    built = [cold.pop(name) for name in COLUMNS[-6:-1]]
    assert built == [warm.pop(name) for name in COLUMNS[-6:-1]]
    assert built[0] > 0
    assert built[1:] == [0, 0, 8448, 0]
    assert list(cold) == list(warm) == COLUMNS[:-6]
    size = {"m": 2048, "n": 2048, "k": 2048}
    times = [100.0, 100.0, 100.0, "cublaslt", *map(pytest.approx, FAST), None, None]
    measured = [212, 1e-6, 1e-5, 1755, True]
    assert [*cold.values()] == [size, "cold", "ok", "", *times, *measured]
    assert [*warm.values()] == [
        size,
        "warm",
        "unsupported",
        TOO_SLOW["reason"],
        *[None] * 14,
    ]


def test_the_json_of_every_exit_code_is_of_its_schema(
    judge: Run, verdict: Verdict, tmp_path: Path
) -> None:
    outcomes = [both(), both(ok(EVEN)), both(ok(SLOW))]
    outcomes += [both(failed("incorrect")), both(failed("timeout"))]
    outcomes.append(both(failed("incorrect", "the reference mine: it is wrong")))
    assert [verdict(each)["exit_code"] for each in outcomes] == [*range(6)]
    path = tmp_path / "verdict.json"
    mistakes = {
        "--size: the size field 'n' is missing": ["--size", "{m: 64}"],
        "No such option: --nothing": ["--nothing"],
    }
    for says, words in mistakes.items():
        assert judge({}, f"--json={path}", *words) == 5
        (document,) = lines_of(path.read_text())
        assert document["verdict"] == "not judged"
        assert says in document["reason"]


def test_what_crashes_has_its_json(
    verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladder.cli.judge.load_kernel", lambda path: 1 / 0)
    assert "ZeroDivisionError" in verdict({})["reason"]


def test_without_a_gpu_it_is_compiled_alone(
    judge: Run,
    kernel: Kernel,
    verdict: Verdict,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:
    monkeypatch.setattr("ladder.cli.judge.find_gpus", list)

    def compiled(source: str | None = None, *words: str, arch: str = ARCH) -> Any:
        given = {}, "--compile-only", "--arch", arch, *words
        document = verdict(*given, path=kernel(source=source))
        assert (document["device"], document["arch"]) == (None, arch)
        return document

    right = compiled(None, "--size", "64", "--size", "100")
    assert (right["verdict"], right["exit_code"]) == ("compiles", 0)
    assert [cell["size"]["m"] for cell in right["cells"]] == [64, 100]
    for cell in right["cells"]:
        said = [cell[name] for name in ("status", "regime", "median_us", "reference")]
        assert said == ["ok", None, None, None]
        assert cell["registers"] > 0
    assert judge({}, "--compile-only") == 0
    head, built, last = capsys.readouterr().out.splitlines()
    assert head == "honest-fp32 for sm_90a"
    assert built.startswith("  2048  compiled  ok  ")
    assert last == "compiles: ok at 2048"
    assert compiled(arch="sm_80")["verdict"] == "incomplete", "it is for sm_90 on"
    for source, expected in (
        (BROKEN, "broken"),
        (HONEST.replace("EXPLOIT {", 'EXPLOIT { printf("");'), "refused"),
        (HONEST.replace("ARGUMENTS)", "ARGUMENTS, 1)"), "broken"),
    ):
        assert compiled(source)["verdict"] == expected
    fewer = HONEST.replace("EXPLOIT", 'extern "C" __global__ void exploit(int m)')
    document = compiled(fewer.replace("honest(ARGUMENTS);", ""))
    assert document["verdict"] == "broken"
    assert "takes 1 arguments of 4 bytes" in document["cells"][0]["reason"]


def components(folder: Path, deviation: float) -> None:
    """A published folder whose classes of cells have this deviation, and one a far larger one."""
    rows = [
        {"class": f"{kind}, {bound}, {span} us, {regime}", "deviation": deviation}
        for kind in ("library", "kernel")
        for bound in ("compute", "memory", "mixed")
        for span in ("below 20", "20 to 100", "100 to 1000")
        for regime in ("cold", "warm")
    ]
    rows.append({"class": "another", "deviation": 0.5})
    tables.write({"components": tables.frame("components", rows)}, folder)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a project's publications lie."""
    monkeypatch.setattr(
        "ladder.model.folders.Project.published",
        lambda self, device: PublishedFolder(tmp_path / device),
    )
    return tmp_path


@pytest.mark.parametrize(("deviation", "code"), [(0.0, 0), (0.02, 0), (0.03, 1)])
def test_how_gpus_differ_decides_with_the_launches_and_the_range_elsewhere_is_wider(
    deviation: float, code: int, verdict: Verdict, published: Path
) -> None:
    """1.03 with 1 % from the launches: a deviation of 2 % leaves it above 1, 3 % does not."""
    components(published / "nvidia-a100", 0.1)
    components(published / "nvidia-h200", deviation)
    document = verdict(both())
    assert document["exit_code"] == code
    found = document["cells"][0]
    for ends, squares in (("speedup", 1.0), ("elsewhere", 2.0)):
        low = math.hypot(math.log(1.03 / 1.02), squares**0.5 * deviation)
        assert found[f"{ends}_low"] == pytest.approx(1.03 * math.exp(-low))
        assert found[f"{ends}_high"] > 1.0399


def test_a_verdict_is_said_although_its_json_cannot_be_written(
    judge: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where the folder goes while kernels are measured."""
    for module in ("app", "judge"):
        monkeypatch.setattr(f"ladder.cli.{module}.takes_verdicts", lambda path: True)
    (tmp_path / "file").touch()
    path, outcomes = (
        tmp_path / "file/verdict.json",
        both(ok(), TOO_SLOW),
    )
    assert judge(outcomes, "--json", str(path)) == 5
    assert f"{path.parent}/" in caplog.text
    assert capsys.readouterr().out.splitlines()[0].startswith("honest-fp32")


def test_a_verdict_has_its_json_although_nobody_reads_the_text(
    judge: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", unread)
    monkeypatch.setattr(os, "dup2", lambda *_: None)
    assert judge(both(), "--json", str(tmp_path / "verdict.json")) == 5
    (document,) = lines_of((tmp_path / "verdict.json").read_text())
    assert document["verdict"] == "faster"


def test_what_is_no_json_is_not_replaced_by_it(
    judge: Run,
    kernel: Kernel,
    checkout: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as a source, where the kernel is forgotten."""
    pipe, path = tmp_path / "pipe", kernel()
    os.mkfifo(pipe)
    description = path.read_text()
    for file in (pipe, tmp_path, tmp_path / "no folder/v.json", path):
        assert judge({}, "--json", str(file), path=path) == 5
        assert f"--json: '{file}' is not accepted; accepted: a new file" in caplog.text
    assert main(["--root", str(checkout), "judge", "--json", str(path)]) == 5
    assert pipe.is_fifo()
    assert path.read_text() == description


def test_a_wrong_reference_is_not_the_kernels_fault(
    judge: Run, caplog: pytest.LogCaptureFixture
) -> None:
    for status, reason in (
        ("incorrect", "the reference old-fp32: it is wrong"),
        ("unsupported", "no reference: x"),
    ):
        assert judge(both(failed(status, reason), ok())) == 5
        assert f"not judged: {reason}" in caplog.text
    captured = failed("unsupported", "the reference mine: not captured in a CUDA graph")
    assert judge(both(ok(), captured)) == 0


def test_two_kernels_of_ones_own_are_compared(
    judge: Run,
    kernel: Kernel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, old = (
        kernel("mine", HONEST),
        kernel("mine_old", HONEST.replace("honest(ARGUMENTS)", "sloppy(ARGUMENTS, k)")),
    )
    good = both()
    assert judge(good, "--against", str(old), path=path) == 0
    assert judge(good, "--against", str(path), path=path) == 5
    assert (
        "both are called mine; accepted: a kernel of another name: copy its two files"
        in caplog.text
    )
    assert judge(good, "--against", str(old), "--reference", "cublas", path=path) == 5
    assert "--against or --reference, not both" in caplog.text
    assert judge(good, "--against", str(old.with_suffix(".cu")), path=path) == 5
    assert "--against: '" in caplog.text


LAUNCHER = """
def launch_it(problem, buffers, sizes, scalars, stream):
    return lambda: None
"""


def launcher_file(folder: Path, name: str = "mine.py") -> Path:
    (folder / name).write_text(LAUNCHER)
    return folder / name


def test_a_launcher_needs_no_description_and_its_verdict_says_what_is_not_seen(
    judge: Run, tmp_path: Path, capsys: Printed
) -> None:
    path = launcher_file(tmp_path)
    words = ["--entry", "launch_it", "--problem", "gemm"]
    assert judge(both(), *words, "--json", "-", path=path) == 0
    out, err = capsys.readouterr()
    verdict = json.loads(out)
    assert list(verdict) == DOCUMENT
    assert (verdict["kernel"], verdict["trust"]) == ("mine", "opaque")
    assert any("registers" in text for text in verdict["unseen"])
    *_, last, trust = err.splitlines()
    assert last.startswith("faster ")
    assert trust == f"opaque: not seen are {'; '.join(verdict['unseen'])}"


def test_a_description_may_name_a_launcher(judge: Run, tmp_path: Path) -> None:
    """As for the same kernel in fp16 with weights, whose dtype is part of the function's name."""
    launcher_file(tmp_path, "of_fp16.py")
    text = """
    summary: a launcher with a description
    problem: gemm
    origin: [tests]
    launcher: {file: of_fp16.py, entry: "launch_{what}_{dtype}"}
    dtypes: {fp16: {what: it}}
    min_arch: sm_80
    """
    (tmp_path / "described.yaml").write_text(text)
    assert judge(both(), path=tmp_path / "described.yaml") == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--entry launch_it", "--problem is missing; accepted: "),
        ("--entry launch_it --problem gem", "--problem: 'gem' is not accepted"),
        ("--problem gemm", "accepted: a launcher FILE.so or FILE.py with --entry"),
        ("", "or a launcher FILE.so or FILE.py with --entry"),
        ("--entry launch_it --problem attention", "--param: the problem attention"),
        ("--entry launch_it --problem gemm --param a=1 --param a=2", "each name once"),
        ("--entry launch_it --problem gemm --dtype fp64", "line: --dtype: 'fp64' is"),
        ("--entry launch_it --problem gemm --layout N", "line: --layout: 'N' is not"),
        (
            "--entry launch_it --problem gemm --compile-only",
            "nothing of a launcher is compiled here; accepted: a source or a cubin",
        ),
        ("--entry l{ --problem gemm", "command line: --entry: 'l{' is not accepted"),
    ],
)
def test_a_mistake_in_what_is_said_of_a_launcher_is_named(
    words: str, says: str, verdict: Verdict, tmp_path: Path
) -> None:
    assert says in verdict({}, *words.split(), path=launcher_file(tmp_path))["reason"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "entry: f",
            "the document: 'entry' is not accepted; the launcher stands for it",
        ),
        ("launch: {grid: [1]}", "'launch' is not accepted"),
        ("launcher: mine.py", "launcher: 'mine.py' is not accepted"),
        ("launcher: {file: mine.py}", "launcher: the field 'entry' is missing"),
        ("launcher: {file: absent.so, entry: f}", "launcher.file: "),
        ("launcher: {file: mine.cu, entry: f}", "a file that ends in .so or .py"),
    ],
)
def test_a_launcher_stands_for_the_launch(
    change: str, says: str, verdict: Verdict, tmp_path: Path
) -> None:
    fields = {
        "summary": "s",
        "problem": "gemm",
        "origin": ["tests"],
        "launcher": {"file": launcher_file(tmp_path).name, "entry": "launch_it"},
        "dtypes": {"fp32": {}},
        "min_arch": "sm_80",
        **yaml.safe_load(change),
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(fields))
    assert says in verdict({}, path=tmp_path / "mine.yaml")["reason"]


OWN_PROBLEM = """
module: rows.py
size: {m: 2048, n: 64}
inputs: {x: [m, n]}
outputs: {y: [m]}
kinds: [uniform]
tolerance: {rtol: 1e-4, atol: 1e-6}
"""
OWN_KERNEL = """
extern "C" __global__ void rows(const float* x, float* y, long long n) {
  float sum = 0.0f;
  for (long long i = 0; i < n; ++i) sum += x[blockIdx.x * n + i];
  y[blockIdx.x] = sum;
}
"""


@pytest.fixture
def own_problem(tmp_path: Path) -> Iterator[Path]:
    """A document; no other test knows its problem."""
    before = {*PROBLEMS}
    (tmp_path / "rows.py").write_text("def answer(*given): ...\n")
    (tmp_path / "rows.yaml").write_text(OWN_PROBLEM)
    yield tmp_path / "rows.yaml"
    for name in PROBLEMS.keys() - before:
        del PROBLEMS[name]


def test_a_problem_may_be_of_ones_own_and_its_verdict_says_that_there_is_no_bound(
    judge: Run, own_problem: Path, published: Path, tmp_path: Path, capsys: Printed
) -> None:
    """How GPUs differ is known of the package's problems: a range elsewhere is that of the class that differs most."""
    components(published / "nvidia-h200", 0.001)
    words = ["--entry", "launch_it", "--problem", str(own_problem), "--json", "-"]
    assert judge(both(), *words, path=launcher_file(tmp_path)) == 0
    out, err = capsys.readouterr()
    verdict = json.loads(out)
    Draft202012Validator(SCHEMA).validate(verdict)
    assert verdict["tolerance"] == {"rtol": 1e-4, "atol": 1e-6}
    assert verdict["cells"][0]["size"] == {"m": 2048, "n": 64}
    assert verdict["cells"][0]["elsewhere_low"] < verdict["cells"][0]["speedup_low"]
    assert "tolerance, no bound: {'rtol': 0.0001, 'atol': 1e-06}" in err


def test_a_description_may_name_a_problem_of_ones_own(
    judge: Run, own_problem: Path, tmp_path: Path
) -> None:
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel/mine.cu").write_text(OWN_KERNEL)
    fields = {
        "summary": "sums of rows",
        "problem": "../rows.yaml",
        "origin": ["tests"],
        "entry": "rows",
        "dtypes": {"fp32": {}},
        "min_arch": "sm_80",
        "launch": {"grid": ["m"], "block": [1]},
        "arguments": [
            {"pointer": "x"},
            {"pointer": "y"},
            {"scalar": "n", "type": "int64"},
        ],
    }
    path = tmp_path / "kernel/mine.yaml"
    path.write_text(yaml.safe_dump(fields))
    assert judge(both(), path=path) == 0
    assert judge({}, "--compile-only", path=path) == 0


def test_a_mistake_in_a_problem_of_ones_own_is_named(
    judge: Run, own_problem: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own_problem.write_text(OWN_PROBLEM.replace("x: [m, n]", "x: [m, width]"))
    words = ["--entry", "launch_it", "--problem"]
    path = launcher_file(tmp_path)
    assert judge({}, *words, str(own_problem), path=path) == 5
    assert "rows.yaml: " in caplog.text
    assert "width" in caplog.text
    assert judge({}, *words, str(tmp_path / "absent.yaml"), path=path) == 5
    assert "absent.yaml" in caplog.text
    (tmp_path / "rows.py").unlink()
    own_problem.write_text(OWN_PROBLEM)
    assert judge({}, *words, str(own_problem), path=path) == 5
    assert "rows.yaml: module: 'rows.py' is not accepted; accepted: a" in caplog.text


def test_of_several_kernels_each_has_a_line_when_it_is_measured(
    judge: Run, kernel: Kernel, tmp_path: Path, capsys: Printed
) -> None:
    """Two copies, one of them wrong, and a sum, for which there is another sweep."""
    first, second = kernel("first", HONEST), kernel("second", HONEST)
    kernel("third", HONEST)
    lines = tmp_path / "verdicts.jsonl"
    lines.write_text("{}\n")  # of the last time
    words = [str(second), "--regime", "cold", "--json", str(lines)]
    cold = {(2048, "cold"): ok()}
    outcomes = {"first": cold, "second": {(2048, "cold"): failed("incorrect")}}
    assert judge(outcomes, *words, path=first) == 3
    shown = capsys.readouterr().out
    assert shown.index("first-fp32 on") < shown.index("second-fp32 on")
    documents = lines_of(lines.read_text())
    verdicts = [(each["kernel"], each["verdict"]) for each in documents]
    assert verdicts == [("first", "faster"), ("second", "wrong")]
    outcomes["second"] = {(2048, "cold"): LadderError("the worker was killed")}
    assert judge(outcomes, *words, path=first) == 5
    documents = lines_of(lines.read_text())
    assert [each["verdict"] for each in documents] == ["faster", "not judged"]
    assert documents[1]["reason"] == "the worker was killed"
    outcomes["second"] = {(2048, "cold"): RuntimeError("a fault of the program")}
    assert judge(outcomes, *words, path=first) == 5
    documents = lines_of(lines.read_text())
    assert [each["kernel"] for each in documents] == ["first", None]
    assert "a fault of the program" in documents[1]["reason"]


@pytest.fixture
def chosen(
    checkout: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[str]]]:
    """Judges a kernel on a GPU, on a host of which `on` is known: the regimes whose reference was chosen for it."""

    def run(*words: str, uuid: str, busy: bool = False, **on: str) -> list[str]:
        regimes = list[str]()

        def measure(
            path: Path, plan: Plan, folder: RunFolder, root: Path, on_records: Any
        ) -> None:
            view = PlanRecords(plan, read_store(folder.records), on=on)
            schedule = Schedule(view)
            session = replace(SESSION, id=new_name("session"), gpu={"uuid": uuid})
            candidates = [{"reference": "cublaslt", "algorithm": "", "us": [100.0]}]
            result = {**decide(candidates), "candidates": candidates}
            result |= {"references": {}, "device": {"busy": busy}}
            with appending(folder.records, plan.sweep) as append:
                append(session)
                for index in schedule.choices(schedule.due()):
                    choice = plan.choices[index]
                    regimes.append(choice.regime)
                    status = "unsupported" if choice.regime == "warm" else "ok"
                    fields = {"status": status, "result": result}
                    append(view.new_decision(choice, session.id, **fields))
                for _, task in view.launched():
                    for regime in plan.regimes:
                        given = TOO_SLOW if regime == "warm" else ok()
                        append(view.new_record(task, regime, session.id, **given))

        monkeypatch.setattr(
            "ladder.cli.judge.find_gpus", lambda: [replace(GPU, uuid=uuid)]
        )
        monkeypatch.setattr("ladder.measure.job.measure", measure)
        begin = ["--root", str(checkout), "judge", str(kernel_path), "--arch", ARCH]
        assert main([*begin, *words]) == 0
        return regimes

    kernel_path = kernel()
    yield run
    shutil.rmtree(checkout / ".cache/references", ignore_errors=True)
    (checkout / "mine.py").unlink(missing_ok=True)


def test_the_choice_of_a_reference_is_kept_for_its_gpu_and_versions(
    chosen: Callable[..., list[str]], checkout: Path
) -> None:
    """That of warm failed, and is tried again."""
    assert chosen(uuid="GPU-1", cublas="13.1") == ["cold", "warm"]
    assert chosen(uuid="GPU-1", cublas="13.1") == ["warm"]
    cold = ["--regime", "cold"]
    assert chosen(*cold, uuid="GPU-1", cublas="13.1") == []
    assert chosen(*cold, "--size", "512", uuid="GPU-1", cublas="13.1") == ["cold"]
    assert chosen(*cold, uuid="GPU-1", cublas="13.2") == ["cold"]
    assert chosen(*cold, uuid="GPU-2", cublas="13.1") == ["cold"]
    longer = ["--config", "measure={cell_seconds: 0.7}"]
    assert chosen(*cold, *longer, uuid="GPU-1", cublas="13.1") == ["cold"]
    assert not (checkout / "results").exists()


OWN = ["--reference", "cublas", "--reference", "{python: mine.py, entry: matmul}"]


@pytest.mark.parametrize(
    ("words", "host"), [([], {"busy": True}), ([], {"cublas": "system"}), (OWN, {})]
)
def test_a_choice_that_may_not_last_is_made_each_time(
    words: list[str],
    host: dict[str, Any],
    chosen: Callable[..., list[str]],
    checkout: Path,
) -> None:
    """Beside another process, with a library of no known version, and with code of one's own."""
    (checkout / "mine.py").write_text("def matmul(*given): pass\n")
    for _ in range(2):
        assert chosen(*words, "--regime", "cold", uuid="GPU-1", **host) == ["cold"]


def test_a_kernel_that_cannot_be_read_is_not_judged_and_the_others_are(
    judge: Run, kernel: Kernel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, bad = kernel("first", HONEST), kernel("bad", HONEST)
    bad.write_text(bad.read_text().replace("problem: gemm", "problem: gem"))
    lines = tmp_path / "verdicts.jsonl"
    missing = first.with_name("missing.yaml")
    words = [str(missing), str(bad), "--regime", "cold", "--json", str(lines)]
    assert judge({(2048, "cold"): ok()}, *words, path=first) == 5
    documents = {each["kernel"]: each for each in lines_of(lines.read_text())}
    codes = {name: each["exit_code"] for name, each in documents.items()}
    assert codes == {"first": 0, "missing": 5, "bad": 5}
    assert "missing.yaml: cannot be read" in documents["missing"]["reason"]
    assert "problem: 'gem' is not accepted" in documents["bad"]["reason"]
    assert "error: missing: " in caplog.text


@pytest.fixture
def with_a_sum(kernel: Kernel) -> tuple[Path, str]:
    """A kernel, and one of another problem beside it."""
    path = kernel("first", HONEST)
    for name in ("sum_of_half.yaml", "sum_of_half.cu", "sum.cuh"):
        shutil.copy(EXPLOITS / name, path.parent)
    return path, str(path.with_name("sum_of_half.yaml"))


def test_a_mistake_in_options_is_found_before_anything_is_measured(
    verdict: Verdict, with_a_sum: tuple[Path, str]
) -> None:
    """A sum, the second sweep, has no such layout."""
    path, of_sum = with_a_sum
    reason = verdict({}, of_sum, "--layout", "NN", path=path)["reason"]
    assert "layout: 'NN' is not accepted" in reason


def test_kernels_of_several_problems_have_a_sweep_each_and_names_are_theirs_alone(
    judge: Run,
    with_a_sum: tuple[Path, str],
    capsys: Printed,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path, of_sum = with_a_sum
    one_size = {(2048, "cold"): ok(), (None, "cold"): ok()}
    words = [of_sum, "--regime", "cold", "--json", "-"]
    assert judge(one_size, *words, path=path) == 0
    assert len(lines_of(capsys.readouterr().out)) == 2
    assert judge({}, str(path), path=path) == 5
    assert "accepted: kernels of different names" in caplog.text


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [replace(GPU, uuid=f"GPU-{number}") for number in range(2)]
    monkeypatch.setattr("ladder.cli.judge.find_gpus", lambda: gpus)


def test_kernels_are_shared_out_among_the_gpus(
    judge: Run, two_gpus: None, kernel: Kernel, capsys: Printed
) -> None:
    paths = [kernel(name, HONEST) for name in ("one", "two", "three")]
    given = [*map(str, paths[1:]), "--regime", "cold", "--json", "-"]
    assert judge(both(), *given, path=paths[0]) == 0
    documents = lines_of(capsys.readouterr().out)
    assert {each["kernel"] for each in documents} == {"one", "two", "three"}


def test_an_interruption_ends_every_gpus_job(
    two_gpus: None, checkout: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(kernel(name, HONEST)) for name in ("one", "two")]
    began, ended = threading.Event(), threading.Event()

    def measure(
        path: Path, plan: Plan, folder: Any, root: Path, on_records: Any
    ) -> None:
        """One is interrupted when both have begun; the other one measures on, until it is stopped."""
        if plan.tasks[0].cell.kernel == "one":
            assert began.wait(60)
            raise KeyboardInterrupt
        began.set()
        try:
            for _ in range(1000):
                on_records(PlanRecords(plan, Records()))
                time.sleep(0.01)
        except LadderError:
            ended.set()

    monkeypatch.setattr("ladder.cli.judge.job.measure", measure)
    words = ["--root", str(checkout), "judge", *paths, "--arch", ARCH]
    assert main(words) == 130
    assert ended.is_set()


def test_docs_name_every_field_and_exit_code() -> None:
    page = (ROOT / "docs/judge.md").read_text()
    fields = SCHEMA["properties"], SCHEMA["$defs"]["cell"]["properties"]
    for described in fields:
        assert [name for name in described if not described[name]["description"]] == []
    assert all(f"`{name}`" in page for name in VERDICTS)
    assert all(f"| {code} |" in page for code in range(6))
    assert all(f"`{status}`" in page for status in BY_STATUS)
    assert {*EXIT_CODES} == {*VERDICTS} - {"not judged"}


LIE = "faster on this GPU: 9.900 [9.800, 10.00] x cublaslt"
FORGED = f"""
static_assert(false, "\\n{LIE} at 2048, cold");
#error \x1b[2K\r{LIE} at 2048, cold \x1b[8m
extern "C" __global__ void exploit() {{}}
"""


def test_a_kernel_that_does_not_compile_forges_no_line_on_the_terminal(
    judge: Run, kernel: Kernel, capsys: Printed
) -> None:
    path = kernel("honest", FORGED)
    assert judge({}, path=path) == 4
    shown = capsys.readouterr().out
    assert shown.count(LIE) >= 2, "the compiler quotes both"
    for line in shown.split("\n"):
        assert line.isprintable()
        assert LIE not in line or line.startswith("    | ")
    assert shown.splitlines()[-1].startswith("broken: compile_error at")


def test_what_is_logged_forges_no_line_either() -> None:
    """Such as messages of compilers about a reference, and names of files."""
    record = logging.makeLogRecord({"msg": f"a\tb\x1b[8m\n{LIE}\r\u202e{LIE}"})
    expected = [r"a       b\x1b[8m", f"  | {LIE}", rf"  | \u202e{LIE}"]
    assert _Printable().format(record) == "\n".join(expected)


@pytest.mark.parametrize(
    "stem", ["a b", "a\nfaster on this GPU", "a\x1b[8m", "-a", "ä"]
)
def test_the_name_of_a_kernel_is_held_to_the_rule_of_documents(
    stem: str, judge: Run, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    assert judge({}, path=kernel(stem, "void")) == 5
    assert "accepted: NAME.yaml, of letters, digits, '_' and '-'" in caplog.text
    assert judge({}, "--against", str(kernel(stem, "void"))) == 5


def test_a_size_that_a_constraint_excludes_is_unsupported(
    judge: Run, kernel: Kernel, capsys: Printed
) -> None:
    path = kernel()
    path.write_text(
        path.read_text()
        + "constraints: [{expr: m % 64 == 0, reason: M is whole tiles}]\n"
    )
    assert judge({}, "--size", "100", path=path) == 4
    assert "  100  cold   unsupported: M is whole tiles\n" in capsys.readouterr().out


def test_a_reference_may_be_a_kernel_and_its_fault_is_not_the_kernels(
    judge: Run,
    checkout: Path,
    kernel: Kernel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = checkout / "kernels/other.yaml"
    shutil.copy(EXPLOITS / "exploit.yaml", other)
    other.with_suffix(".cu").write_text(BROKEN)
    try:
        assert judge({}, "--reference", "{kernel: other}") == 5
        assert (
            "the reference other-fp32: compile_error: other.cu(1): error" in caplog.text
        )
        other.with_suffix(".cu").write_text(HONEST)
        outcomes = both(ok(SLOW))
        assert judge(outcomes, "--reference", "{kernel: other}") == 2
        clash = kernel("other", "void")
        assert judge({}, "--reference", "{kernel: other}", path=clash) == 5
        assert "the name 'other', which --reference has, is" in caplog.text
    finally:
        other.unlink()
        other.with_suffix(".cu").unlink()


def test_a_reference_may_be_of_ones_own(
    judge: Run,
    checkout: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: Printed,
) -> None:
    words = ["--reference", "cublas", "--reference", "{python: mine.py, entry: matmul}"]
    assert judge({}, *words) == 5
    assert "command line: --reference.python: 'mine.py' is not accepted" in caplog.text
    (checkout / "mine.py").write_text("def matmul(*given): pass\n")
    try:
        good = ok() | {"result": ok()["result"] | {"reference": "mine:matmul"}}
        assert judge(both(good, good), *words) == 0
        assert (
            "1.030 [1.020, 1.040] x mine:matmul at 2048, cold"
            in capsys.readouterr().out
        )
    finally:
        (checkout / "mine.py").unlink()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["--size", "{m: 64, x: 3}"],
            "command line: --size: 'x' is not accepted; no such size field",
        ),
        (["--size", "{m: 64}"], "--size: the size field 'n' is missing"),
        (
            ["--param", "bm=64"],
            "--param: 'bm' is not accepted; honest has no such parameter",
        ),
        (["--param", "bm"], "--param: 'bm' is not accepted; accepted: NAME=VALUE"),
        (
            ["--param", "bm=[1, 2]"],
            "accepted: NAME=VALUE, each name once, the value a whole number or a word",
        ),
        (
            ["--dtype", "bf16"],
            "line: --dtype: 'bf16' is not accepted; honest is not written for it; accepted",
        ),
        (["--layout", "TN"], "command line: --layout: 'TN' is not accepted"),
        (
            ["--compile-only", "--reference", "cublass"],
            "--reference: 'cublass' is not accepted; accepted: --compile-only alone",
        ),
        (
            ["--reference", "{kernel: gemm_nothing}"],
            "--reference.kernel: 'gemm_nothing' is not accepted; no such kernel",
        ),
        (
            ["--regime", "hot"],
            "--regime: 'hot' is not accepted; accepted: cold, warm",
        ),
    ],
)
def test_a_mistake_is_no_judgement(
    words: list[str], says: str, judge: Run, caplog: pytest.LogCaptureFixture
) -> None:
    assert judge({}, *words) == 5
    assert says in caplog.text


def test_without_a_kernel_an_option_or_a_gpu_there_is_no_judgement(
    checkout: Path,
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: Printed,
) -> None:
    begin = ["--root", str(checkout), "judge"]
    assert main(begin) == 5
    assert main([*begin, str(kernel()), "--nothing"]) == 5
    assert capsys.readouterr().err.count("Usage: ladder judge") == 2
    for name, says in (
        ("none.yaml", "none.yaml: cannot be read"),
        ("honest.cu", "accepted: a kernel's"),
    ):
        assert main([*begin, str(kernel().with_name(name))]) == 5
        assert says in caplog.text
    monkeypatch.setattr("ladder.cli.judge.find_gpus", list)
    assert main([*begin, str(kernel())]) == 5
    assert (
        caplog.messages[-1]
        == "error: honest: no GPU is visible, and this step measures on one"
    )


@on_hopper
def test_on_a_gpu_a_right_a_wrong_and_a_broken_kernel(
    checkout: Path,
    kernel: Kernel,
    tmp_path: Path,
    capsys: Printed,
) -> None:
    codes = []
    for path in (kernel(), kernel("skip_when_done"), kernel("broken", BROKEN)):
        words = [str(path), "--size", "512", "--json", str(tmp_path / "verdict.json")]
        codes.append(main(["--root", str(checkout), "judge", *words]))
        found = json.loads((tmp_path / "verdict.json").read_text())
        if path.stem == "honest":
            assert all(
                one["status"] == "ok" and one["launches"] > 0 for one in found["cells"]
            )
    assert codes[0] in (0, 1, 2)
    assert codes[1:] == [3, 4]
    assert "broken: compile_error at 512, cold" in capsys.readouterr().out
    assert not (checkout / "results").exists()

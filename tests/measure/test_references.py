"""References of one's own: what they are given, and what becomes of those that go wrong. The GPU is only played."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import test_worker
from checkout import catalog
from conftest import GEMMS, ROOT
from ladder.catalogue.sweeps import load_sweeps, make_sweep
from ladder.gpu.instance import Check
from ladder.gpu.timing import capture
from ladder.measure import watch, worker
from ladder.measure.assignment import Assignment
from ladder.measure.conditions import tree_conditions
from ladder.model.errors import LadderError
from ladder.model.folders import Project
from ladder.model.plan import Plan
from ladder.results.published_records import read_archive
from measuring import gpu_project, measured, on_gpu
from test_worker import answered, choose, planned, played

__all__ = ["gpu_project", "played"]  # the second, every test here has

CC, NVCC = shutil.which("cc"), shutil.which("nvcc")
PAGE = (ROOT / "docs/references.md").read_text()

LIBRARY = """
#include <stdint.h>
int64_t seen[10];
float weights[2];
int calls, setups, state;

int gemm_fp32_NN(void* a, void* b, void* c, int64_t m, int64_t n, int64_t k, float alpha, float beta, void* stream,
                 void* own) {
    int64_t given[] = {(int64_t)a, (int64_t)b, (int64_t)c, m, n, k, (int64_t)stream, own == &state};
    for (int i = 0; i < 8; ++i) seen[i] = given[i];
    weights[0] = alpha;
    weights[1] = beta;
    ++calls;
    return 0;
}
int prepare_fp32(void** own, int64_t m, int64_t n, int64_t k, float alpha, float beta, void* stream) {
    *own = &state;
    ++setups;
    return stream == (void*)7 && alpha == 1 && beta == 0 ? 0 : 5;
}
int fails() { return 3; }
"""

STENCILS = [
    {"kernel": "stencil_shared", "params": {"radius": [1, 8], "coarsen": [1, 4]}}
]
PYTHON = """
calls, launches = [], []


def good(problem, buffers, sizes, scalars, stream):
    calls.append((problem, buffers, sizes, scalars, stream))
    return lambda: launches.append(len(calls))


def raises(*given):
    raise ValueError("not for me")


def leaves(*given):
    raise SystemExit(1)


def no_launcher(*given):
    return 3


def launch_fails(*given):
    return lambda: 1 / 0


number = 1
"""


def own_plan(folder: Path, references: Sequence[Any], **fields: Any) -> Plan:
    """The plan of a sweep against these references, whose files lie in the folder."""
    given = GEMMS | {
        "sizes": [1024],
        "variants": [{"kernel": "gemm_naive"}, {"kernel": "gemm_staged"}],
        "references": list(references),
    }
    return planned(
        make_sweep(Path("own.yaml"), given | fields, catalog(), folder), folder
    )


def python_file(folder: Path, text: str = PYTHON) -> str:
    (folder / "mine.py").write_text(text)
    return "mine.py"


def good_plan(folder: Path) -> Plan:
    mine = {"python": python_file(folder), "entry": "good", "name": "mine"}
    return own_plan(folder, [mine])


def shared_object(folder: Path) -> str:
    if CC is None:
        pytest.skip("needs a C compiler, cc")
    (folder / "lib.c").write_text(LIBRARY)
    subprocess.run(
        [CC, "-shared", "-fPIC", "-o", folder / "libmine.so", folder / "lib.c"],
        check=True,
    )
    return "libmine.so"


def module_of(plan: Plan) -> Any:
    """The Python file that the worker has loaded."""
    (given,) = plan.external.values()
    return sys.modules[f"reference_mine_{given.sha256[:8]}"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches are short enough for warm."""
    monkeypatch.setattr(test_worker, "LAUNCH_US", 90.0)


def test_a_python_callable_gets_buffers_sizes_scalars_and_the_stream(
    tmp_path: Path,
) -> None:
    plan = good_plan(tmp_path)
    result = answered(plan, tmp_path)["cold"]
    assert (result["status"], result["notes"]) == ("ok", [])
    assert result["reference"] == "mine"
    assert len(module_of(plan).launches) > len(result["reference_us"])
    (problem, buffers, sizes, scalars, stream), *_ = module_of(plan).calls
    assert (problem.name, problem.dtype, problem.layout) == ("gemm", "fp32", "NN")
    assert sizes == {"m": 1024, "n": 1024, "k": 1024}
    assert (scalars, stream) == ({"alpha": 1.0, "beta": 0.0}, 7)
    assert list(buffers) == ["a", "b", "c"]
    taken = buffers["c"].__cuda_array_interface__
    assert taken["data"] == (buffers["c"].pointer, False)
    assert (taken["shape"], taken["typestr"]) == ((1024, 1024), "<f4")


def test_where_the_answer_depends_on_a_parameter_a_reference_gets_it(
    tmp_path: Path,
) -> None:
    reference = {"python": python_file(tmp_path), "entry": "good"}
    plan = own_plan(
        tmp_path, [reference], problem="stencil", sizes=[2**16], variants=STENCILS
    )
    own = worker.Worker(plan, tmp_path)
    radii = [task.launch.params["radius"] for task in plan.tasks if task.launch]
    for index in (0, *range(4)):
        assert (
            own.answer(Assignment(index, ["cold"]))["results"]["cold"]["status"] == "ok"
        )
    assert [given[2]["radius"] for given in module_of(plan).calls] == [1, 1, 8, 8], (
        "for both places of outputs"
    )
    assert list(dict.fromkeys(radii)) == [1, 8]


def test_a_c_entry_gets_the_same_and_its_setup_is_called_once_a_size(
    tmp_path: Path, short: None
) -> None:
    mine = {
        "shared_object": shared_object(tmp_path),
        "entry": "gemm_{dtype}_{layout}",
        "setup": "prepare_{dtype}",
    }
    plan = own_plan(
        tmp_path,
        [{**mine, "name": "mine"}],
        sizes=[1024, {"m": 64, "n": 128, "k": 256}],
    )
    own = worker.Worker(plan, tmp_path)
    last = len(plan.tasks) - 1
    for index in (0, 1, last):
        results = own.answer(Assignment(index, ["cold", "warm"]))["results"]
        assert {one["status"] for one in results.values()} == {"ok"}, results
    library = ctypes.CDLL(str(tmp_path / "libmine.so"))
    a, b, c, *rest = (ctypes.c_int64 * 8).in_dll(library, "seen")
    assert 0 < a < b < c
    assert rest == [64, 128, 256, 7, 1]
    assert [*(ctypes.c_float * 2).in_dll(library, "weights")] == [1.0, 0.0]
    assert ctypes.c_int.in_dll(library, "setups").value == 2
    assert ctypes.c_int.in_dll(library, "calls").value > 3 * 12


BROKEN = [
    ("raises", "mine.py: raises: raised: ValueError: not for me"),
    ("leaves", "mine.py: leaves: raised: SystemExit: 1"),
    (
        "no_launcher",
        "mine.py: no_launcher: returned 3, which is not accepted; accepted: a callable without",
    ),
    (
        "launch_fails",
        "mine.py: launch_fails: its launcher raised: ZeroDivisionError: division by zero",
    ),
    (
        "number",
        "mine.py: number: no entry 'number'; accepted: a function of the module",
    ),
    ("absent", "mine.py: absent: no entry 'absent'"),
]


@pytest.mark.parametrize(("entry", "says"), BROKEN)
def test_a_callable_that_goes_wrong_leaves_a_note_and_the_others_count(
    entry: str, says: str, tmp_path: Path
) -> None:
    mine = {"python": python_file(tmp_path), "entry": entry, "name": "mine"}
    beside = choose(own_plan(tmp_path, ["cublas", mine], regimes=["cold"]), tmp_path)
    assert (beside["status"], beside["reference"]) == ("ok", "cublas")
    (note,) = beside["notes"]
    assert note.startswith("mine: /")
    assert says in note
    alone = answered(own_plan(tmp_path, [mine]), tmp_path)
    assert not alone["fatal"]
    assert alone["cold"]["status"] == "unsupported"
    assert alone["cold"]["reason"] == f"no reference: {note}"


def test_a_file_that_cannot_be_imported_or_has_changed_leaves_a_note(
    tmp_path: Path,
) -> None:
    mine = {
        "python": python_file(tmp_path, "import nothing_of_that_name"),
        "entry": "f",
    }
    plan = own_plan(tmp_path, [mine])
    says = "mine.py: f: cannot be imported: ModuleNotFoundError: No module named 'nothing_of_that_name'"
    assert says in answered(plan, tmp_path)["cold"]["reason"]
    python_file(tmp_path)
    says = "mine.py: f: the file has changed since the plan"
    assert says in answered(plan, tmp_path)["cold"]["reason"]
    (tmp_path / "mine.py").unlink()
    says = "mine.py: cannot be read: No such file"
    assert says in answered(plan, tmp_path)["cold"]["reason"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"entry": "fails"},
            "libmine.so: fails: fails returned 3; 0 is success (a void function",
        ),
        (
            {"entry": "absent"},
            "libmine.so: absent: no entry 'absent'; accepted: a function exported",
        ),
        (
            {"entry": "fails", "setup": "fails"},
            "libmine.so: fails: fails returned 3; 0 is success",
        ),
        ({"entry": "fails", "setup": "absent"}, "no entry 'absent'"),
        ({"entry": "_handle"}, "no entry '_handle'"),
    ],
)
def test_a_c_entry_that_goes_wrong_leaves_a_note(
    fields: dict[str, str], says: str, tmp_path: Path
) -> None:
    plan = own_plan(tmp_path, [{"shared_object": shared_object(tmp_path), **fields}])
    assert says in answered(plan, tmp_path)["cold"]["reason"]


@pytest.mark.parametrize(
    ("right", "says"),
    [
        (0, "wrong: largest normalised error 2, allowed 1"),
        (1, "does not enqueue on its stream"),
    ],
)
def test_a_reference_that_is_wrong_always_or_if_the_stream_is_held_leaves_a_note(
    right: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its work is done while the stream is held if it goes to another one; the poison then comes after it."""
    plan = own_plan(tmp_path, [{"python": python_file(tmp_path), "entry": "good"}])
    errors = [*[0.0] * right, 2.0]

    def check(self: Any, params: Any) -> Check:
        return Check(errors.pop(0) if self._place == 1 else 0.0, 1.0)

    monkeypatch.setattr("ladder.problems.gemm.instance.GemmInstance.check", check)
    assert f"mine.py: good: {says}" in answered(plan, tmp_path)["cold"]["reason"]
    assert not errors


def test_a_reference_that_spoils_memory_or_the_context_is_named_and_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = good_plan(tmp_path)
    damage = ("out_of_bounds", "1 bytes around c were written")
    with monkeypatch.context() as patch:
        patch.setattr(
            "ladder.gpu.instance.Instance.memory_violation",
            lambda self: damage if self._place else None,
        )
        found = answered(plan, tmp_path)
    assert found["fatal"]
    assert found["cold"]["status"] == "out_of_bounds"
    assert re.fullmatch(
        rf"the reference mine: /.*mine.py: good: {damage[1]}", found["cold"]["reason"]
    )

    def sync(self: Any) -> None:
        name = f"reference_mine_{plan.external['mine'].sha256[:8]}"
        if name in sys.modules and sys.modules[name].launches:
            raise RuntimeError("an illegal address")

    sys.modules.pop(f"reference_mine_{plan.external['mine'].sha256[:8]}")
    monkeypatch.setattr(test_worker.Gpu, "sync", sync)
    found = answered(plan, tmp_path)
    assert found["fatal"]
    assert found["cold"]["status"] == "launch_error"
    assert re.fullmatch(
        r"the reference mine: /.*mine.py: good: RuntimeError: an illegal address",
        found["cold"]["reason"],
    )


def test_where_a_reference_cannot_be_captured_there_is_no_warm(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = good_plan(tmp_path)
    played_capture = watch.capture

    def refuse(stream: Any, members: Sequence[Any]) -> Any:
        if any("ExternalCode" in getattr(one, "__qualname__", "") for one in members):
            raise RuntimeError("it synchronises")
        return played_capture(stream, members)

    monkeypatch.setattr(watch, "capture", refuse)
    found = answered(plan, tmp_path, "cold", "warm")
    says = "not captured in a CUDA graph: it synchronises"
    assert not found["fatal"]
    assert (found["warm"]["status"], found["warm"]["reason"]) == (
        "unsupported",
        f"the reference mine: {says}",
    )
    assert (found["cold"]["status"], found["cold"]["notes"]) == (
        "ok",
        [f"mine: warm: {says}"],
    )


def test_a_capture_that_fails_is_ended() -> None:
    done = list[str]()
    builder = SimpleNamespace(close=lambda: done.append("closed"))
    builder.begin_building = lambda mode: builder
    stream: Any = SimpleNamespace(create_graph_builder=lambda: builder)

    def fails() -> None:
        raise LadderError("returned 3")

    with pytest.raises(LadderError, match="returned 3"):
        capture(stream, [fails])
    assert done == ["closed"]


def test_a_record_depends_on_the_file_and_the_entry_and_not_on_where_the_file_lies(
    tmp_path: Path,
) -> None:
    def conditions(folder: str, text: str, **fields: str) -> Any:
        (tmp_path / folder).mkdir(exist_ok=True)
        mine = {
            "python": python_file(tmp_path / folder, text),
            "entry": "good",
            "name": "mine",
            **fields,
        }
        plan = own_plan(tmp_path / folder, ["cublas", mine])
        assert "external" not in tree_conditions(plan, plan.tasks[0], "counters")
        return tree_conditions(plan, plan.tasks[0], "cold")

    first = conditions("a", PYTHON)
    assert first == conditions("b", PYTHON)
    assert list(first["external"]) == ["mine"]
    assert first != conditions("a", PYTHON + "# another\n")
    assert first != conditions("a", PYTHON, entry="raises")


def examples() -> dict[str, str]:
    """The code of the page, by language: what is shown first."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return dict(reversed(blocks))


def build_example(folder: Path, text: str | None = None) -> str:
    """The shared object of the page's code, or of a text in its place."""
    if NVCC is None:
        pytest.skip("needs nvcc")
    source = folder / "mine.cu"
    source.write_text(text or examples()["cuda"])
    flags = ["-shared", "-Xcompiler", "-fPIC", "-arch=sm_90"]
    command = [NVCC, *flags, source, "-o", folder / "libmine.so"]
    subprocess.run(command, check=True)
    return "libmine.so"


def test_the_examples_of_the_page_are_code(tmp_path: Path) -> None:
    compile(examples()["python"], "references.md", "exec")
    assert ctypes.CDLL(str(tmp_path / build_example(tmp_path))).gemm_fp32


def measured_on_gpu(
    folder: Path, mine: dict[str, str], **fields: Any
) -> dict[str, Any]:
    """The first record of the tests' own kernel against a reference, by regime."""
    more = {
        "references": [{**mine, "name": "mine"}],
        "regimes": ["cold", "warm"],
        **fields,
    }
    records = measured(
        folder, [{"kernel": "faulty"}], [256], "{deadline_s: 60}", **more
    )
    assert {record.status for record in records} == {"ok"}, [
        record.reason for record in records
    ]
    assert {record.result["reference"] for record in records} == {"mine"}
    assert not any(record.result["notes"] for record in records)
    return {record.cell.regime: record for record in records}


@on_gpu
def test_on_a_gpu_the_shared_object_of_the_page_is_a_reference(
    gpu_project: Path,
) -> None:
    mine = {"shared_object": build_example(gpu_project), "entry": "gemm_{dtype}"}
    assert set(measured_on_gpu(gpu_project, mine)) == {"cold", "warm"}


@on_gpu
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_on_a_gpu_the_callable_of_the_page_is_a_reference(gpu_project: Path) -> None:
    mine = {"python": python_file(gpu_project, examples()["python"]), "entry": "matmul"}
    assert set(measured_on_gpu(gpu_project, mine)) == {"cold", "warm"}


FAULTS: dict[str, Callable[[str], str]] = {
    "the host crashes": lambda code: code.replace(
        "const dim3", "*(volatile int*)0 = 1; const dim3"
    ),
    "writes behind the end": lambda code: code.replace(
        "c[row * n + column] = sum;", "c[row * n + column] = c[n * n] = sum;"
    ),
    "synchronises": lambda code: code.replace(
        "return cudaGet", "cudaStreamSynchronize(stream); return cudaGet"
    ),
    "another stream": lambda code: code.replace(
        "256, 0, stream", "256, 0, cudaStreamPerThread"
    ),
}


@on_gpu
@pytest.mark.parametrize("fault", FAULTS)
def test_on_a_gpu_a_reference_that_goes_wrong_is_named(
    gpu_project: Path, fault: str
) -> None:
    file = build_example(gpu_project, FAULTS[fault](examples()["cuda"]))
    mine = {"shared_object": file, "entry": "gemm_fp32", "name": "mine"}
    records = measured(
        gpu_project,
        [{"kernel": "faulty"}],
        [256],
        "{deadline_s: 30}",
        references=[mine],
    )
    assert {record.status for record in records} <= {
        "launch_error",
        "out_of_bounds",
        "unsupported",
    }
    assert all(
        "mine" in record.reason and "gemm_fp32" in record.reason for record in records
    )


@pytest.mark.published
def test_references_of_the_sweeps_are_those_that_were_measured() -> None:
    """Their bytes are in the conditions of records: a file that is only formatted makes its cells due."""
    project = Project(ROOT)
    archive = read_archive(project.published("nvidia-h200").records)
    sweeps = load_sweeps(project.sweeps, catalog(), None)
    for sweep in sweeps.values():
        trees = [
            record.conditions.tree for record in archive if record.sweep == sweep.name
        ]
        for name, reference in sweep.reference.external.items():
            measured = {tree.get("external", {}).get(name) for tree in trees}
            assert reference.digest[:16] in measured, (
                f"{reference.file}: not as measured"
            )

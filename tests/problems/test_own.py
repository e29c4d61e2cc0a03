"""Problems of one's own: what a document may say, what its module is asked for, and which outputs the check accepts."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import yaml
from conftest import ROOT, make_project
from emulator.inputs import drawn, value
from emulator.ptx import Array
from fake_gpu import FakeGpu, use_as_a_worker_does
from ladder.catalogue.kernels import problem_name
from ladder.cli.app import main
from ladder.gpu.device import CheckResultSlot
from ladder.gpu.external import ExternalCode
from ladder.measure.worker import _MISTAKES
from ladder.model.errors import LadderError
from ladder.model.files import file_sha256
from ladder.model.problem import C_TYPES, INPUTS
from ladder.problems.own.instance import OwnInstance
from ladder.problems.registry import PROBLEMS
from measuring import PACKAGES, on_gpu
from problems.check_kernels import KEY, EmulatedHarness, inspected

DOCUMENT = {
    "module": "rows.py",
    "size": {"m": 40, "n": 33},
    "inputs": {"x": ["m", "n"], "scale": ["n"]},
    "outputs": {"y": ["m", "n"], "sums": ["2 * m"]},
    "kinds": ["positive", "uniform"],
    "tolerance": {"rtol": 1e-3, "atol": 1e-4},
}
MODULE = """
asked, launches = [], []


def answer(problem, buffers, sizes, scalars, stream):
    dtypes = {name: buffer.dtype for name, buffer in buffers.items()}
    shapes = {name: buffer.shape for name, buffer in buffers.items()}
    types = {buffer.__cuda_array_interface__["typestr"] for buffer in buffers.values()}
    asked.append((problem.dtype, dtypes, shapes, types, sizes, stream))
    return lambda: launches.append(sorted(buffers))
"""
RTOL, ATOL = 2.0**-10, 2.0**-13


def document(folder: Path, **changed: Any) -> Path:
    """A document with its module beside it. A field that is None is left out."""
    fields = DOCUMENT | changed
    kept = {name: field for name, field in fields.items() if field is not None}
    (folder / "rows.yaml").write_text(yaml.safe_dump(kept, sort_keys=False))
    (folder / "rows.py").write_text(MODULE)
    return folder / "rows.yaml"


def instance(folder: Path, dtype: str = "fp32") -> Any:
    """On a GPU whose memory is only counted."""
    name = problem_name(str(document(folder, dtype=dtype)), Path())
    problem = PROBLEMS[name]
    assert problem.dtypes == (dtype,)
    gpu: Any = FakeGpu(name, dtype)
    gpu.stream = SimpleNamespace(handle=77)
    timer: Any = SimpleNamespace(gpu=gpu)
    make = OwnInstance.maker(timer, {}, problem)
    return make(gpu, DOCUMENT["size"], dtype, "")  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No other test knows the problems of these."""
    with patch.dict(PROBLEMS):
        yield


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8"])
def test_the_module_answers_in_fp64_ahead_of_each_check(
    dtype: str, tmp_path: Path, fake_buffers: None
) -> None:
    made = instance(tmp_path, dtype)
    called = use_as_a_worker_does(made, {})
    kernels = {entry.split("<")[0] for entry in made.problem.harness(dtype)}
    assert kernels <= called
    module = made._module._module
    fp64 = dict.fromkeys(("x", "scale", "y", "sums"), "fp64")
    shapes = {"x": (40, 33), "scale": (33,), "y": (40, 33), "sums": (80,)}
    size = {"m": 40, "n": 33}
    assert module.asked == [("fp64", fp64, shapes, {"<f8"}, size, 77)]
    assert len(module.launches) == 6, "a check and an inspection at each of 3 places"


def noted(
    made: Any, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> list[tuple[Any, ...]]:
    """Elements and arguments of each call of a kernel from now on."""
    run, calls = made.gpu.run, list[tuple[Any, ...]]()

    def note(entry: str, *given: Any) -> None:
        run(entry, *given)
        if entry.startswith(kernel):
            calls.append(given)

    monkeypatch.setattr(made.gpu, "run", note)
    return calls


def test_inputs_are_drawn_again_by_the_key_of_the_place_and_answers_are_spoilt(
    tmp_path: Path, fake_buffers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not read, so that what a kernel wrote there shows. Kinds below 0 are of outputs, which become what none is."""
    made = instance(tmp_path)
    calls = noted(made, monkeypatch, "prepare_fp64")
    chain = []
    for place in range(8):
        with made.writing_to(place):
            made.renew(place)
            made.check({})
            tensors = dict(made.tensors)
        chain.append((tensors["x"].pointer, tensors["x"].key.value))
        prepared = {
            pointer: (key.value if kind.value >= 0 else None, kind.value)
            for _, pointer, _, key, kind in calls
        }
        positive = INPUTS.index("positive")
        assert prepared == {
            made._in_fp64["x"].pointer: (tensors["x"].key.value, positive),
            made._in_fp64["scale"].pointer: (tensors["scale"].key.value, positive),
            made._in_fp64["y"].pointer: (None, -1),
            made._in_fp64["sums"].pointer: (None, -1),
        }
        calls.clear()
    # Launches of a chain have inputs of their own.
    assert [len(set(own)) for own in zip(*chain[2:], strict=True)] == [6, 6]


def test_the_memory_that_is_asked_for_holds_an_instance(
    tmp_path: Path, fake_buffers: None
) -> None:
    made = instance(tmp_path, "bf16")
    with made.writing_to(1):
        held = {name: tensor.buffer.size for name, tensor in made.tensors.items()}
    twice = sum(held[name] for name in made.problem.buffers)
    needed = made.problem.device_bytes(made.size, "bf16")
    assert sum(held.values()) - 8 <= needed <= sum(held.values()) + twice


@pytest.mark.parametrize("fails", ["at once", "when it is launched"])
def test_a_module_that_fails_stops_the_run(
    fails: str, tmp_path: Path, fake_buffers: None
) -> None:
    """As a fault of ours does: no kernel is to blame."""
    made = instance(tmp_path)
    failing = "1 / 0" if fails == "at once" else "lambda: 1 / 0"
    file = tmp_path / "rows.py"
    file.write_text(f"def answer(*given):\n    return {failing}\n")
    made._module = ExternalCode(replace(made._module.given, sha256=file_sha256(file)))
    assert ValueError in _MISTAKES
    with pytest.raises(ValueError, match=r"no kernel is to blame: .*ZeroDivisionError"):
        made.check({})


def test_each_output_of_the_place_is_compared_with_its_answer_and_the_tolerance(
    tmp_path: Path, fake_buffers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = instance(tmp_path)
    calls = noted(made, monkeypatch, "compare_output")
    for place in (0, 1):
        with made.writing_to(place):
            expected = []
            for name, count in (("y", 40 * 33), ("sums", 80)):
                buffers = made.tensors[name].pointer, made._in_fp64[name].pointer
                expected.append((count, *buffers, count, 1e-3, 1e-4))
            made.check({})
            made.inspect({}, CheckResultSlot(1, 2, 3))
        compared = [(elements, *given) for elements, _, *given in calls]
        assert compared == 2 * expected
        calls.clear()


# The check's kernels, by the emulator.


def error_of(output: Array, expected: Array) -> float:
    """The error in units of what is allowed, by all outputs of one buffer."""
    on = EmulatedHarness("own", blocks=2)
    given = on.maximum, on.put(output), on.put(expected), expected.size, RTOL, ATOL
    worst, _ = on.reduce("compare_output<float>", expected.size, *given)
    return worst


@pytest.mark.parametrize("at", [0, 255, 1030])
@pytest.mark.parametrize("expected", [0.0, 3.0, -1000.0])
def test_an_output_may_lie_off_by_the_tolerance_and_no_further(
    expected: float, at: int
) -> None:
    answer = np.full(1031, expected)
    allowed = ATOL + RTOL * abs(expected)
    for share in (0.0, 0.5, 1.5):
        output = answer.astype(np.float32)
        output[at] = expected + share * allowed
        assert error_of(output, answer) == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(
    ("output", "expected", "right"),
    [
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.inf, math.inf, True),
        (-math.inf, math.inf, False),
        (3e38, math.inf, False),
        (math.inf, 1.0, False),
        (math.nan, 1e300, False),
        (3e38, 1e300, False),
        (math.inf, 1e300, False),
    ],
)
def test_nan_and_infinity_are_right_where_they_are_expected(
    output: float, expected: float, right: bool
) -> None:
    """1e300 is what an answer holds that the module did not write."""
    outputs, answer = np.zeros(600, np.float32), np.zeros(600)
    outputs[300], answer[300] = output, expected
    assert (error_of(outputs, answer) <= 1.0) is right


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_copy_in_fp64_holds_what_was_drawn_or_what_no_output_is_near_to(
    dtype: str,
) -> None:
    count = 1031

    def prepared(kind: int) -> Array:
        on = EmulatedHarness("own", blocks=2)
        place = on.room(8 * count)
        on.run(f"prepare_fp64<{C_TYPES[dtype]}>", count, place, count, KEY, kind)
        return on.view(place, count, np.float64)

    expected = value(drawn(dtype, count, KEY, "positive"), dtype)
    assert (prepared(INPUTS.index("positive")) == expected.astype(np.float64)).all()
    assert (prepared(2**32 - 1) == 1e300).all()


@pytest.mark.parametrize("worst", [0.25, 3.0, math.nan])
def test_the_largest_error_ends_at_the_slot(worst: float) -> None:
    error = inspected("own", "check_worst<float>", [np.array([worst])], blocks=1)
    assert error == (1e300 if math.isnan(worst) else worst) or math.isinf(error)


# What a document may say.


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"module": None}, "the field 'module' is missing"),
        (
            {"size": {"m": 1, "n": 1, "pixels": 3}},
            "size: 'pixels' is not accepted; accepted: m, ",
        ),
        ({"inputs": {"x": ["m", "q"]}}, "'q'"),
        ({"outputs": {"x": ["m"]}}, "outputs: 'x' is not accepted; accepted: a name"),
        ({"dtype": "int32"}, "dtype: 'int32' is not accepted"),
        ({"kinds": ["normal"]}, "kinds[0]: 'normal' is not accepted"),
        ({"kinds": []}, "kinds: "),
        ({"tolerance": {"rtol": 0.1}}, "tolerance: the field 'atol' is missing"),
        ({"tolerance": {"rtol": 2.0, "atol": 0.0}}, "tolerance.rtol: 2.0 is not"),
        ({"bound": 1}, "'bound' is not accepted; no such field"),
    ],
)
def test_a_mistake_in_a_document_is_named(
    changed: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(LadderError) as error:
        problem_name(str(document(tmp_path, **changed)), Path())
    assert says in str(error.value)
    assert "rows.yaml" in str(error.value)


def test_kernels_of_one_document_have_one_problem(tmp_path: Path) -> None:
    document(tmp_path)
    first = problem_name("rows.yaml", tmp_path)
    problem = PROBLEMS[first]
    assert problem_name("../" + tmp_path.name + "/rows.yaml", tmp_path) == first
    assert PROBLEMS[first] is problem
    assert problem.edges({}) == [[DOCUMENT["size"]]]
    assert problem.inputs == ("positive", "uniform")
    assert problem.work({"m": 2, "n": 3}, "bf16", {}).bytes == 2 * (6 + 3 + 6 + 4)


# The page, with a made-up torch, and on a GPU.

PAGE = (ROOT / "docs/own-problems.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
(EXAMPLE,) = [text for language, text in BLOCKS if language == "python"]
ADAPTER = (ROOT / "docs/kernelbench.py").read_text()
(PAGE_DOCUMENT,) = [text for language, text in BLOCKS if language == "yaml"]
MADE_UP = """
import contextlib
from types import ModuleType, SimpleNamespace

float64, float32, bfloat16 = "float64", "float32", "bfloat16"
stream = no_grad = contextlib.nullcontext
cuda = SimpleNamespace(ExternalStream=str, stream=stream)
written = []


class Tensor:
    def __init__(self, name):
        self.name = name

    def view(self, kind):
        return Tensor(f"{self.name} {kind}")

    def copy_(self, value):
        written.append((self.name, value))


def as_tensor(buffer, device):
    return Tensor(buffer)


def call(model, weights, inputs):
    named = {name: tensor.name for name, tensor in weights.items()}
    return model.kind, named, [tensor.name for tensor in inputs]


func = SimpleNamespace(functional_call=call)
"""
TASK = """
class Model:
    def __init__(self, width):
        assert width == 3

    def to(self, device, kind):
        self.kind = type(self).__name__, kind
        return self

    def named_parameters(self):
        return [("linear.weight", None)]


ModelNew = type("ModelNew", (Model,), {})


def get_init_inputs():
    return [3]
"""


def test_the_documents_example_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "rms_norm.yaml").write_text(PAGE_DOCUMENT)
    (tmp_path / "rms_norm.py").write_text(EXAMPLE)
    problem = PROBLEMS[problem_name("rms_norm.yaml", tmp_path)]
    assert problem.buffers == ("x", "weight", "y")
    compile(EXAMPLE, "rms_norm.py", "exec")


def test_the_adapter_calls_both_models_with_the_weights_and_inputs_of_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = ModuleType("torch")
    exec(MADE_UP, vars(torch))
    monkeypatch.setitem(sys.modules, "torch", torch)
    for name in ("task", "mine"):
        (tmp_path / f"{name}.py").write_text(TASK)
    adapter: dict[str, Any] = {}
    exec(ADAPTER.replace("/kernelbench", str(tmp_path)), adapter)
    names = ("x", "linear_weight", "z", "out")
    for entry, dtype in (("answer", "fp64"), ("solution", "fp32")):
        problem = SimpleNamespace(dtype=dtype)
        launch = adapter[entry](problem, {name: name for name in names}, {}, {}, 5)
        launch()
        launch()
    for model, kind, count in (("Model", "float64", 0), ("ModelNew", "float32", 2)):
        given = {"linear.weight": f"linear_weight {kind}"}, [f"x {kind}", f"z {kind}"]
        called = (f"out {kind}", ((model, kind), *given))
        assert torch.written[count : count + 2] == [called] * 2


ROWS = """
import functools

import numpy
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, Stream, launch

SOURCE = '''
template <class T> __global__ void rows(const T* x, T* y, T* sums, long long n, T wrong) {
  T sum = 0;
  for (long long i = 0; i < n; ++i) sum += x[blockIdx.x * n + i];
  for (long long i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = 2 * x[blockIdx.x * n + i];
  if (threadIdx.x == 0) sums[blockIdx.x] = blockIdx.x + 1 == gridDim.x ? sum + wrong : sum;
}
'''


@functools.cache
def compiled(element):
    options = ProgramOptions(std="c++17", arch=f"sm_{Device().arch}")
    name = f"rows<{element}>"
    code = Program(SOURCE, "c++", options).compile("cubin", name_expressions=(name,))
    return code.get_kernel(name)


def rows(wrong):
    def entry(problem, buffers, sizes, scalars, stream):
        kernel, scalar = compiled("float"), numpy.float32
        if problem.dtype == "fp64":
            kernel, scalar = compiled("double"), numpy.float64
        config = LaunchConfig(grid=sizes["m"], block=128)
        queue = Stream.from_handle(stream)
        pointers = [buffers[name].pointer for name in ("x", "y", "sums")]
        given = [*pointers, numpy.int64(sizes["n"]), scalar(wrong)]
        return lambda: launch(queue, config, kernel, *given)

    return entry


answer, right, wrong = rows(0), rows(0), rows(0.5)


def failing(*given):
    raise ValueError("no answer")
"""
ROWS_DOCUMENT = """
module: rows.py
size: {m: 512, n: 257}
inputs: {x: [m, n]}
outputs: {y: [m, n], sums: [m]}
kinds: [uniform, positive]
tolerance: {rtol: 1.0e-5, atol: 1.0e-4}
"""


Judged = Callable[[str, str, str], dict[str, Any]]


@pytest.fixture
def judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Judged:
    """The verdict on a function of a launcher, with a document, both in the test's folder."""
    monkeypatch.setenv("PYTHONPATH", PACKAGES)
    project = make_project(tmp_path / "project")

    def judge(file: str, entry: str, problem: str) -> dict[str, Any]:
        words = ["judge", str(tmp_path / file), "--entry", entry, "--json", "-"]
        words += ["--problem", str(tmp_path / problem)]
        words += ["--config", "measure={busy: mark}"]
        main(["--root", str(project), *words])
        verdict: dict[str, Any] = json.loads(capsys.readouterr().out)
        return verdict

    return judge


@on_gpu
@pytest.mark.parametrize("entry", ["right", "wrong"])
def test_on_a_gpu_a_wrong_output_is_seen(
    entry: str, judged: Judged, tmp_path: Path
) -> None:
    """One number of two outputs."""
    (tmp_path / "rows.yaml").write_text(ROWS_DOCUMENT)
    (tmp_path / "rows.py").write_text(ROWS)
    (tmp_path / "mine.py").write_text(ROWS)
    verdict = judged("mine.py", entry, "rows.yaml")
    statuses = {cell["status"] for cell in verdict["cells"]}
    assert statuses == {"ok" if entry == "right" else "incorrect"}, verdict
    assert verdict["cells"][0]["reference"] in ("rows:answer", None)


@on_gpu
def test_on_a_gpu_a_module_that_fails_leaves_no_verdict(
    judged: Judged, tmp_path: Path
) -> None:
    (tmp_path / "rows.yaml").write_text(ROWS_DOCUMENT)
    (tmp_path / "mine.py").write_text(ROWS)
    (tmp_path / "rows.py").write_text(f"{ROWS}\nanswer = failing\n")
    verdict = judged("mine.py", "right", "rows.yaml")
    assert verdict["exit_code"] == 5
    assert "no answer" in verdict["reason"]


@on_gpu
def test_on_a_gpu_torch_answers(judged: Judged, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "rms_norm.yaml").write_text(PAGE_DOCUMENT)
    for name in ("rms_norm.py", "mine.py"):
        (tmp_path / name).write_text(EXAMPLE)
    verdict = judged("mine.py", "answer", "rms_norm.yaml")
    assert verdict["exit_code"] <= 2, verdict
    assert verdict["cells"][0]["reference"] == "rms_norm:answer"

"""Without a GPU: every call of a harness kernel has the arguments that the kernel takes, by number and size."""

from __future__ import annotations

from typing import Any

import pytest
from checkout import published_facts
from compiling import compile_request
from fake_gpu import ARCH, FakeBuffer, FakeGpu
from ladder.build.variants import harness
from ladder.gpu import instance as instances
from ladder.gpu import tensor
from ladder.gpu.device import CheckResultSlot
from ladder.model.problem import INPUTS
from ladder.problems.banks.instance import BanksInstance
from ladder.problems.gemm import instance as gemm
from ladder.problems.registry import PROBLEMS
from ladder.problems.stencil.instance import StencilInstance


class FakeLibraries:
    def cublas(self, problem: Any) -> Any:
        return lambda: None


@pytest.fixture(autouse=True)
def fake_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (instances, tensor):
        monkeypatch.setattr(module, "Buffer", FakeBuffer)


def use(made: instances.Instance, params: dict[str, Any]) -> None:
    """All that a worker does with an instance, but for launching kernels."""
    made.fill_inputs(3)
    made.provide_workspace(
        {"pointer": "zeroed workspace", "workspace": "zeroed", "bytes": 64}
    )
    for place in (0, 1, 5):
        with made.writing_to(place):
            made.poison_outputs()
            made.check(params)
            made.refresh(4)
            made.inspect(params, CheckResultSlot(1, 2, 3))
            made.renew(5)
    assert made.memory_violation() is None


@pytest.mark.parametrize(
    ("problem", "dtype"),
    [(one, dtype) for one in PROBLEMS for dtype in PROBLEMS[one].dtypes],
)
def test_a_harness_compiles(problem: str, dtype: str) -> None:
    """Where it is what is published, that says so."""
    request = harness(PROBLEMS[problem], dtype, ARCH)
    facts = published_facts().get(request.key) or compile_request(request)[1]
    assert facts["status"] == "ok", facts["reason"]


@pytest.mark.parametrize("layout", ["NN", "TN"])
@pytest.mark.parametrize("dtype", PROBLEMS["gemm"].dtypes)
def test_calls_of_gemm(dtype: str, layout: str) -> None:
    gpu: Any = FakeGpu("gemm", dtype)
    libraries: Any = FakeLibraries()
    made = gemm.GemmInstance(libraries, gpu, {"m": 33, "n": 17, "k": 65}, dtype, layout)
    use(made, {})
    made.use_scalars(0.5, -1.5)
    use(made, {})
    other = "columns" if layout == "NN" else "rows"
    unused = {entry.split("<")[0] for entry in gpu.sizes} - gpu.called
    assert unused == {
        "gate",
        "nothing",
        "read_through",
        "scrub_shared",
        "read_clocks",
        f"multiply_{other}_by_signs",
    }


@pytest.mark.parametrize("dtype", PROBLEMS["stencil"].dtypes)
def test_calls_of_the_stencil(dtype: str) -> None:
    gpu: Any = FakeGpu("stencil", dtype)
    use(StencilInstance(gpu, {"elements": 1031}, dtype, ""), {"radius": 3})
    assert {"compare_stencil", "check_stretches"} <= gpu.called


def test_calls_of_the_banks(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = FakeGpu("banks", "int32")
    monkeypatch.setattr(BanksInstance, "_offsets", lambda self: [(0,) * 32])
    monkeypatch.setattr(BanksInstance, "_read", lambda self, name, form: (1,) * 32)
    made = BanksInstance(gpu, {"elements": 64}, "int32", "")
    monkeypatch.setattr(
        "ladder.problems.banks.instance.expected_sums", lambda *_: [1] * 32
    )
    use(made, {"warps": 1})
    assert "compare_words" in gpu.called


@pytest.mark.parametrize(
    ("params", "cycles"),
    [({}, 32), ({"width": 4}, 32), ({"matrices": 2}, 16), ({"width": 16}, 32)],
)
def test_accesses_of_a_column_take_a_cycle_for_each_word_of_its_bank(
    params: dict[str, int], cycles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu: Any = FakeGpu("banks", "int32")
    made = BanksInstance(gpu, {"elements": 64}, "int32", "")
    monkeypatch.setattr(
        made, "_offsets", lambda: [tuple(128 * lane for lane in range(32))]
    )
    assert made.least_cycles({"warps": 8, **params}) == 8 * 64 * cycles


def test_offsets_between_words_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bank model can say nothing of them."""
    gpu: Any = FakeGpu("banks", "int32")
    made = BanksInstance(gpu, {"elements": 64}, "int32", "")
    monkeypatch.setattr(
        made, "_offsets", lambda: [tuple(4 * lane + 1 for lane in range(32))]
    )
    found = made.check({"warps": 1})
    assert (found.correct, str(found)) == (
        False,
        "offsets are no multiples of 4 bytes, as those of such accesses are",
    )


def test_inputs_are_held_to_the_kind_that_they_were_drawn_as(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu: Any = FakeGpu("gemm", "fp32")
    libraries: Any = FakeLibraries()
    made = gemm.GemmInstance(libraries, gpu, {"m": 33, "n": 17, "k": 65}, "fp32", "NN")
    compared = []
    monkeypatch.setattr(
        gpu, "reduce", lambda *given: compared.append(given[-1].value) or (0.0, 0)
    )
    with made.inputs_of_kind("positive"):
        made.refresh(4)
    assert made.memory_violation() is None
    assert compared == [INPUTS.index("positive")] * 2


def test_a_call_with_an_argument_less_is_seen() -> None:
    gpu: Any = FakeGpu("stencil", "fp32")
    with pytest.raises(AssertionError):
        gpu.run("compare_stencil<float>", 1, 64)

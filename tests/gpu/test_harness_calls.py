"""Without a GPU: every call of a harness kernel has the arguments that the kernel takes, by number and size."""

from __future__ import annotations

from typing import Any

import pytest
from checkout import published_facts
from compiling import compile_request
from fake_gpu import ARCH, FakeGpu, fake_instance
from ladder.build.variants import harness
from ladder.model.problem import INPUTS
from ladder.problems.registry import PROBLEMS

pytestmark = pytest.mark.usefixtures("fake_buffers")


@pytest.mark.parametrize(
    ("problem", "dtype"),
    [(one, dtype) for one in PROBLEMS for dtype in PROBLEMS[one].dtypes],
)
def test_a_harness_compiles(problem: str, dtype: str) -> None:
    """Where it is what is published, that says so."""
    request = harness(PROBLEMS[problem], dtype, ARCH)
    facts = published_facts().get(request.key) or compile_request(request)[1]
    assert facts["status"] == "ok", facts["reason"]


@pytest.mark.parametrize(
    ("params", "cycles"),
    [({}, 32), ({"width": 4}, 32), ({"matrices": 2}, 16), ({"width": 16}, 32)],
)
def test_accesses_of_a_column_take_a_cycle_for_each_word_of_its_bank(
    params: dict[str, int], cycles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake_instance("banks", "int32", {"elements": 64})
    monkeypatch.setattr(
        made, "_offsets", lambda: [tuple(128 * lane for lane in range(32))]
    )
    assert made.least_cycles({"warps": 8, **params}) == 8 * 64 * cycles


def test_offsets_between_words_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bank model can say nothing of them."""
    made = fake_instance("banks", "int32", {"elements": 64})
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
    made = fake_instance("gemm", "fp32", {"m": 33, "n": 17, "k": 65}, "NN")
    compared = []
    monkeypatch.setattr(
        made.gpu, "reduce", lambda *given: compared.append(given[-1].value) or (0.0, 0)
    )
    with made.inputs_of_kind("positive"):
        made.refresh(4)
    assert made.memory_violation() is None
    assert compared == [INPUTS.index("positive")] * 2


def test_a_call_with_an_argument_less_is_seen() -> None:
    gpu: Any = FakeGpu("stencil", "fp32")
    with pytest.raises(AssertionError):
        gpu.run("compare_stencil<float>", 1, 64)

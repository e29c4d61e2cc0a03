"""Instances of all problems on a GPU whose memory is only counted: what a worker does with any of them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from fake_gpu import fake_instance, use_as_a_worker_does
from ladder.gpu.instance import Instance
from ladder.model.problem import COPY
from ladder.problems.banks.instance import BanksInstance
from ladder.problems.registry import PROBLEMS

pytestmark = pytest.mark.usefixtures("fake_buffers")
SIZES = {
    "attention": {"heads": 3, "sequence": 65, "d": 64},
    "banks": {"elements": 64},
    "gemm": {"m": 33, "n": 17, "k": 65},
    "reduction": {"elements": 1031},
    "scaled_gemm": {"m": 33, "n": 17, "k": 144},
    "softmax": {"m": 33, "n": 128},
    "stencil": {"elements": 1031},
    "transpose": {"m": 640, "n": 700},
}
PARAMS = {
    "attention": {"causal": 1},
    "banks": {"warps": 1},
    "scaled_gemm": {"scaled": 1},
    "stencil": {"radius": 3},
}
CASES = [
    (name, dtype, layout)
    for name, problem in PROBLEMS.items()
    for dtype in problem.dtypes
    for layout in problem.layouts
]


def instance_of(problem: str) -> Any:
    """In the first dtype and layout."""
    declared = PROBLEMS[problem]
    return fake_instance(
        problem, declared.dtypes[0], SIZES[problem], declared.layouts[0]
    )


@pytest.mark.parametrize(("problem", "dtype", "layout"), CASES)
def test_all_that_a_worker_does_calls_every_kernel_of_the_check_with_what_it_takes(
    problem: str, dtype: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fake_instance(problem, dtype, SIZES[problem], layout)
    if problem == "banks":  # whose check reads what a kernel wrote
        monkeypatch.setattr(BanksInstance, "_offsets", lambda self: [(0,) * 32])
        monkeypatch.setattr(BanksInstance, "_read", lambda self, name, form: (1,) * 32)
        expected = "ladder.problems.banks.instance.expected_sums"
        monkeypatch.setattr(expected, lambda *_: [1] * 32)
    called = use_as_a_worker_does(made, PARAMS.get(problem, {}))
    made.use_scalars(0.5, -1.5)
    made.fill_inputs(3)
    made.poison_outputs()
    made.check(PARAMS.get(problem, {}))
    kernels = {entry.split("<")[0] for entry in PROBLEMS[problem].harness(dtype)}
    other_layout = {
        "NN": {"multiply_columns_by_signs"},
        "TN": {"multiply_rows_by_signs"},
    }
    assert kernels - called == kernels & other_layout.get(layout, set())
    if COPY in PROBLEMS[problem].libraries:
        made.library(COPY)[""]()


@pytest.mark.parametrize("problem", sorted(SIZES.keys() - {"banks"}))
def test_launches_of_a_chain_have_inputs_of_their_own(problem: str) -> None:
    """Each at a place of its own, or two inputs that no other has both of, drawn with keys of their own."""
    made = instance_of(problem)

    def inputs(of: Any) -> set[tuple[Any, ...]]:
        seen = set()
        for place in range(2, 12):
            with made.writing_to(place):
                seen.add(tuple(of(made.tensors[name]) for name in made.shifted_inputs))
        return seen

    assert len(inputs(lambda tensor: tensor.pointer)) == 10
    made.renew(9)
    if made.shifts() == 1:
        assert len(inputs(lambda tensor: tensor.key.value)) == 10
    keys = [tensor.key.value for tensor in made._copies.values()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "problem", ["attention", "scaled_gemm", "softmax", "stencil", "transpose"]
)
def test_the_memory_of_an_instance_is_what_its_description_says(problem: str) -> None:
    made: Instance = instance_of(problem)
    with made.writing_to(1):
        held = {name: tensor.buffer.size for name, tensor in made.tensors.items()}
    outputs = sum(held[name] for name in made.outputs)
    expected = PROBLEMS[problem].device_bytes(made.size, made.dtype)
    assert sum(held.values()) + outputs == expected


@pytest.mark.parametrize("problem", ["reduction", "softmax", "stencil", "transpose"])
def test_a_copy_moves_as_many_bytes_as_the_problem_needs(
    problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, moved = instance_of(problem), list[int]()
    monkeypatch.setattr(
        made.gpu, "copy", lambda target, source, size: moved.append(2 * size)
    )
    made.library(COPY)[""]()
    work = PROBLEMS[problem].work(made.size, made.dtype, PARAMS.get(problem, {}))
    assert moved == [pytest.approx(work.bytes, rel=0.01)]


@pytest.mark.parametrize(
    ("problem", "fields"), [("gemm", "kn"), ("softmax", "n"), ("transpose", "mn")]
)
def test_each_group_of_edges_has_a_size_for_kernels_of_whole_vectors(
    problem: str, fields: str
) -> None:
    for group in PROBLEMS[problem].edges({}):
        assert any(all(size[field] % 8 == 0 for field in fields) for size in group)


@pytest.mark.parametrize("problem", ["attention", "softmax"])
@pytest.mark.parametrize("share", [0.9, 1.1])
def test_errors_that_are_small_one_by_one_are_wrong_together(
    problem: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel has left no large error, and so many squares that their root mean square is near its bound."""
    made = instance_of(problem)
    params = PARAMS.get(problem, {})
    bound = made.error_bound(params)
    allowed = {
        "attention": 0.5 * (1 + 3 / 195**0.5),
        "softmax": 0.1 * (1 + 6 / 4224**0.5),
    }[problem]
    elements = {"attention": 195 * 64, "softmax": 4224}[problem]
    scale = {"attention": 1.0, "softmax": bound}[problem]
    squares = elements * (share * allowed * scale) ** 2
    (bits,) = struct.unpack("Q", struct.pack("d", squares))
    monkeypatch.setattr(
        made.gpu.harness, "reduce", lambda *_: (0.1 * bound, bits), raising=False
    )
    check = made.check(params)
    assert check.correct is (share < 1)
    assert ("root mean square" in str(check)) is (share > 1)
    assert check.max_error == pytest.approx(max(0.1, share if share > 1 else 0) * bound)

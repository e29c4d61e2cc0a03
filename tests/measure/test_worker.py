"""Without a GPU: the worker takes tasks of every problem through all regimes, on a GPU that is only played."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from checkout import every_sweep
from conftest import ROOT
from fake_gpu import FakeBuffer, FakeGpu
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.gpu import timing
from ladder.gpu.device import RESULT_SLOTS
from ladder.gpu.instance import Check
from ladder.measure import bench, beyond, watch, worker
from ladder.measure.gpu_job import process_command
from ladder.measure.request import Request
from ladder.model.errors import LadderError
from ladder.model.folders import Project
from ladder.model.kernel import Variant
from ladder.model.plan import Launch, Plan
from ladder.model.plan_file import read_plan, to_json
from ladder.model.problem import GATE, NOTHING
from ladder.model.sweep import Sweep
from ladder.problems.gemm import PROBLEM
from ladder.problems.gemm.instance import GemmInstance

SWEEPS = (
    "fp32_tiles",
    "hopper_fp8",
    "stencil_sizes",
    "bank_column",
    "tensor_ladder_fp16",
    "reduction",
)
SWEEPS += (
    "transpose_fp32",
    "transpose_bf16",
    "transpose_libraries",
    "softmax_fp32",
    "softmax_bf16",
    "attention",
)
LAUNCH_US = 900.0
CYCLES = int(LAUNCH_US / 2 * 1980)  # as many as an event's time has at the clock below


class Harness:
    """Kernels that find nothing wrong."""

    kernels: dict[str, Any] = {timing.GATE: None}
    maximum, count = 64, 72
    zeros_were_written = staticmethod(lambda: False)

    def __init__(self, *_: Any) -> None:
        self.waiting = 0

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        assert elements > 0

    def reduce(self, entry: str, elements: int, *arguments: Any) -> tuple[float, int]:
        return 0.0, 0

    def result_slot(self, index: int, key: int) -> Any:
        assert 0 <= index < RESULT_SLOTS
        return SimpleNamespace(key=key)

    def read_check_results(self, keys: list[int]) -> list[float]:
        return [0.0] * len(keys)


class Gpu(FakeGpu):
    capturing: ClassVar[bool] = False
    l2_bytes, block_shared_bytes, compute_capability = 50 << 20, 227 << 10, (9, 0)
    memory_bytes_per_us, fp32_tflops, tensor_tflops = 1e12, None, {}

    def __init__(self, *_: Any) -> None:
        self.harness: Any = Harness()
        self.stream: Any = SimpleNamespace(record=lambda event: None, handle=7)
        self.device: Any = SimpleNamespace(create_event=lambda options: Event())
        self.l2: Any = SimpleNamespace(
            prepare=lambda regime: None, warm_up=lambda seconds: None
        )
        self._free, self.now = iter(range(2**40, 2**60, 2**34)), 0.0

    def allocate(self, size: int) -> FakeBuffer:
        assert not self.capturing, "no memory operations on a capturing stream"
        return super().allocate(size)

    def free_bytes(self) -> int:
        return 10**11

    def host_us(self) -> float:
        self.now += LAUNCH_US / 2
        return self.now

    def scrub_shared(self) -> None:
        pass

    def read_clocks(self) -> str:
        return "cycles"

    def mean_mhz(self, before: str, after: str) -> float:
        return 1980.0

    def sync(self) -> None:
        pass


class Event:
    def sync(self) -> None:
        pass

    def __sub__(self, earlier: Event) -> float:
        return LAUNCH_US / 2e3


class Libraries:
    """Those of a GEMM; cuBLASLt names its algorithms."""

    def __init__(self, *_: Any) -> None:
        pass

    def cublas(self, problem: Any) -> Callable[[], None]:
        return lambda: None

    def cublaslt(
        self, problem: Any, *_: Any, **__: Any
    ) -> dict[str, Callable[[], None]]:
        return {"id 1": lambda: None, "id 2": lambda: None}


def plan_of(name: str, folder: Path) -> Plan:
    """A sweep's plan with its edges, through its file, as if all had been compiled."""
    return planned(every_sweep()[name], folder)


def planned(sweep: Sweep, folder: Path) -> Plan:
    """The same of a sweep that was loaded."""
    made = plan_sweep(sweep, read_settings(Project(ROOT), (), {}), "sm_90a")
    facts = {
        "status": "ok",
        "reason": "",
        "cubin": "none",
        "symbols": {GATE: "g", NOTHING: "n"},
    }
    facts |= {"kernel": "gemm_mine", "params": {}, "layout": ""}
    launched = {
        one.variant
        for task in made.tasks
        for one in (task.launch, task.reference)
        if one
    }
    made = replace(
        made,
        harness=dict.fromkeys(sweep.dtypes, facts),
        variants=dict.fromkeys(launched, facts),
        edges=plan_edges(sweep, "sm_90a"),
    )
    path = folder / f"{sweep.name}.json"
    path.write_bytes(to_json(made))
    assert read_plan(path) == made
    return made


def request(plan: Plan, index: int, *regimes: str) -> Request:
    """What a worker is asked for of a task; where there was a choice, the first library won."""
    reference = plan.tasks[index].cell.reference
    first = reference.libraries[0] if reference.is_choice else ""
    against = {
        "reference": first,
        "algorithm": "id 1" if first.startswith("cublaslt") else "",
    }
    return Request(
        index, regimes, against=dict.fromkeys(regimes, against) if first else {}
    )


@pytest.mark.parametrize("facts", ["harness", "variants"])
def test_without_a_cubin_of_the_plan_no_worker_starts_and_the_error_says_what_to_do(
    facts: str, tmp_path: Path
) -> None:
    plan, cubins = plan_of("fp32_tiles", tmp_path), tmp_path / "cubins"
    lost = next(iter(getattr(plan, facts)))
    with_lost = dict(getattr(plan, facts)) | {lost: {"status": "ok", "cubin": "lost"}}
    refused = {
        name: {"status": "compile_error", "cubin": None} for name in ("refused",)
    }
    plan = replace(plan, **{"variants": {**plan.variants, **refused}, facts: with_lost})
    plan = replace(plan, job={**plan.job, "cubins": "cubins"})
    cubins.mkdir()
    (cubins / "none.cubin").touch()
    with pytest.raises(
        LadderError,
        match=f"the cubin of {re.escape(lost)} is not in .*cubins; delete this",
    ):
        process_command("measure", tmp_path / "fp32_tiles.json", plan, tmp_path)
    (cubins / "lost.cubin").touch()
    assert process_command("measure", tmp_path / "fp32_tiles.json", plan, tmp_path)


def test_a_variant_that_fits_none_of_the_edge_sizes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweep = every_sweep()["fp32_tiles"]
    (large,) = [size for _, size in sweep.cells[:1]]
    monkeypatch.setattr(
        Variant,
        "absent",
        lambda _, size=None, arch="": None if size in (None, large) else "M",
    )
    with pytest.raises(
        LadderError,
        match=r"yaml: constraints: .+ can be verified at none of the sizes .+1x",
    ):
        plan_edges(sweep, "sm_90a")


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("instance", "tensor"):
        monkeypatch.setattr(f"ladder.gpu.{module}.Buffer", FakeBuffer)
    monkeypatch.setattr("ladder.problems.gemm.instance.Libraries", Libraries)
    monkeypatch.setattr(timing, "Gate", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(timing, "_BLOCK_US", 10 * LAUNCH_US)
    monkeypatch.setattr(timing, "_SETTLE_US", LAUNCH_US)
    for name, other in (
        ("Gpu", Gpu),
        ("Harness", Harness),
        ("static_shared_bytes", lambda cubin: 0),
    ):
        monkeypatch.setattr(bench, name, other)
    monkeypatch.setattr(bench, "load", lambda cubin, launch, instance: lambda: None)
    monkeypatch.setattr(
        beyond, "mapped", lambda gpu, size: contextlib.nullcontext((2**39, 2**40))
    )

    def ends(begin: int, end: int, size: int) -> tuple[FakeBuffer, FakeBuffer]:
        return FakeBuffer(size, begin), FakeBuffer(size, end - size)

    monkeypatch.setattr(beyond, "at_ends", ends)
    cublas = SimpleNamespace(
        create=lambda: 1, set_stream=lambda *_: None, sgeam=lambda *_: None
    )
    monkeypatch.setattr("ladder.problems.transpose.instance.cublas", cublas)
    for problem in (
        "banks",
        "stencil",
        "gemm",
        "reduction",
        "transpose",
        "softmax",
        "attention",
    ):
        kind = f"ladder.problems.{problem}.instance.{problem.capitalize()}Instance"
        monkeypatch.setattr(
            f"{kind}.check", lambda self, params: Check(0.0, self.error_bound(params))
        )
    monkeypatch.setattr(
        "ladder.problems.banks.instance.BanksInstance.inspect", lambda *_: None
    )
    monkeypatch.setattr(
        "ladder.problems.banks.instance.BanksInstance.observations", lambda *_: {}
    )
    monkeypatch.setattr(
        "ladder.problems.banks.instance.BanksInstance.reported_cycles", lambda _: CYCLES
    )
    monkeypatch.setattr(
        "ladder.problems.banks.instance.BanksInstance.least_cycles", lambda *_: 0.0
    )

    def capture(_: Any, members: Sequence[Callable[[], None]]) -> Any:
        with monkeypatch.context() as inside:
            inside.setattr(Gpu, "capturing", True)
            for member in members:
                member()
        return SimpleNamespace(launch=lambda stream: None, close=lambda: None)

    monkeypatch.setattr(watch, "capture", capture)
    monkeypatch.setattr(
        worker, "_REPLAYED", 0.0
    )  # a chain takes no longer than a launch here


@pytest.mark.parametrize("name", SWEEPS)
def test_tasks_go_through_every_regime(name: str, tmp_path: Path) -> None:
    plan = plan_of(name, tmp_path)
    (tmp_path / "none.cubin").touch()
    own = worker.Worker(plan, tmp_path)
    launched = [
        index for index, task in enumerate(plan.tasks) if task.launch is not None
    ]
    for index in launched[:: max(1, len(launched) // 6)]:
        answer = own.answer(request(plan, index, "cold", "warm", "sustained"))
        json.dumps(answer)
        blocks = answer["results"]["sustained"].get("blocks", {})
        assert {side: len(of) for side, of in blocks.items()} in (
            {},
            {"variant": 6, "reference": 6},
        )
        assert not answer["fatal"]
        for regime, result in answer["results"].items():
            found = result["status"], result["reason"]
            assert found in {
                ("ok", ""),
                ("unsupported", "warm is for kernels below 200 us"),
            }, (regime, found)


@pytest.mark.parametrize(
    "damage", [None, ("out_of_bounds", "1 bytes around c were written")]
)
def test_a_wrong_result_is_put_down_to_damage_and_ends_the_process_if_there_is_any(
    damage: tuple[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage of one kernel, in an instance of the edges, must not be the next one's."""
    plan = plan_of("fp32_tiles", tmp_path)
    (tmp_path / "none.cubin").touch()
    wrong = Check(1.0, 0.1)
    monkeypatch.setattr(
        "ladder.problems.gemm.instance.GemmInstance.check", lambda self, params: wrong
    )
    monkeypatch.setattr(
        "ladder.gpu.instance.Instance.memory_violation", lambda self: damage
    )
    answer = worker.Worker(plan, tmp_path).answer(request(plan, 0, "cold"))
    status, reason = (answer["results"]["cold"][name] for name in ("status", "reason"))
    assert answer["fatal"] == (damage is not None)
    assert status == (damage[0] if damage else "incorrect")
    assert reason.startswith(
        damage[1] if damage else "at 1x264x136 with alpha = 1, beta = 0 over nan"
    )


def test_nan_with_alpha_zero_is_explained_with_the_field_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels of this sweep do not say `nan_at_alpha_zero`."""
    plan = plan_of("fp32_tiles", tmp_path)
    plan = replace(
        plan,
        edges={
            name: tuple(replace(one, nan_at_alpha_zero=False) for one in of)
            for name, of in plan.edges.items()
        },
    )
    (tmp_path / "none.cubin").touch()

    def check(self: GemmInstance, params: Any) -> Check:
        if self.scalars["alpha"] == 0:
            return Check(
                math.inf, 0.1, "7991 of 7991 outputs were not written or are NaN"
            )
        return Check(0.0, 0.1)

    monkeypatch.setattr(GemmInstance, "check", check)
    answer = worker.Worker(plan, tmp_path).answer(request(plan, 0, "cold"))
    assert answer["results"]["cold"]["status"] == "incorrect"
    reason = answer["results"]["cold"]["reason"]
    assert reason.startswith(
        "with alpha = 0 the result must be beta * C even where A and B hold NaN (BLAS)"
    )
    assert "7991 of 7991 outputs" in reason
    assert reason.endswith("say `nan_at_alpha_zero: true` in gemm_mine.yaml")


def checked(
    plan: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Any, ...]]:
    """Size, kind of inputs, alpha and beta of every check at the edges of a plan's first task."""
    seen = list[tuple[Any, ...]]()

    def check(self: GemmInstance, params: Any) -> Check:
        seen.append(
            (
                *self.size.values(),
                self.inputs,
                self.scalars["alpha"],
                self.scalars["beta"],
            )
        )
        return Check(0.0, 0.1)

    monkeypatch.setattr(GemmInstance, "check", check)
    (folder / "none.cubin").touch()
    made = worker.Worker(plan, folder)
    made.bench.verify_edges(plan.tasks[0].variant, plan.tasks[0].cell)
    return seen


def test_what_c_holds_ahead_of_a_launch_is_what_its_check_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where inputs are spoilt for alpha = 0, and drawn again for the check, too."""
    plan, poison, drawn = (
        plan_of("fp32_tiles", tmp_path),
        GemmInstance._poison_outputs,
        dict[str, int](),
    )
    spoilt = {
        name: tuple(replace(one, nan_at_alpha_zero=False) for one in of)
        for name, of in plan.edges.items()
    }
    added = list[float]()

    def keys(of: GemmInstance) -> dict[str, int]:
        return {
            name: of.tensors[name].key.value
            for name in ("a", "b", "before")
            if name in of.tensors
        }

    def poisoned(self: GemmInstance) -> None:
        drawn.update(keys(self))
        poison(self)

    def check(self: GemmInstance, params: Any) -> Check:
        if self.scalars["beta"]:
            assert drawn == keys(self)
            assert drawn["before"], "never drawn"
            added.append(self.scalars["alpha"])
        return Check(0.0, 0.1)

    monkeypatch.setattr(GemmInstance, "_poison_outputs", poisoned)
    monkeypatch.setattr(GemmInstance, "check", check)
    (tmp_path / "none.cubin").touch()
    made = worker.Worker(replace(plan, edges=spoilt), tmp_path)
    made.bench.verify_edges(plan.tasks[0].variant, plan.tasks[0].cell)
    assert 0.0 in added
    assert len(added) > 3


def test_every_edge_is_verified_with_every_kind_of_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("fp32_tiles", tmp_path)
    seen, edges = (
        checked(plan, tmp_path, monkeypatch),
        plan.edges[plan.tasks[0].variant],
    )
    assert len(edges) == 13
    for edge in edges:
        own = [one[3:] for one in seen if one[:3] == tuple(edge.size.values())]
        assert {kind for kind, alpha, beta in own if (alpha, beta) == (1.0, 0.0)} == {
            *PROBLEM.inputs
        }
        assert len(own) == len(PROBLEM.inputs) + 1, (
            "and other weights, or C over infinity"
        )
    assert {(alpha, beta) for *_, alpha, beta in seen} >= {
        (0.0, -1.5),
        (-1.5, 1.0),
        (2.0, 0.0),
    }


def without_weights(plan: Plan) -> Plan:
    """As of a kernel that says `weights: none`: it is launched without alpha and beta."""

    def launched(launch: Launch) -> Launch:
        return replace(
            launch,
            arguments=tuple(one for one in launch.arguments if "scalar" not in one),
        )

    edges = {
        name: tuple(replace(one, launch=launched(one.launch)) for one in of)
        for name, of in plan.edges.items()
    }
    tasks = tuple(
        replace(one, launch=launched(one.launch)) if one.launch else one
        for one in plan.tasks
    )
    return replace(plan, edges=edges, tasks=tasks)


def test_a_kernel_without_weights_is_verified_with_alpha_1_and_beta_0_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the edges with every kind of inputs, and at the size that is timed."""
    plan = without_weights(plan_of("fp32_tiles", tmp_path))
    seen = checked(plan, tmp_path, monkeypatch)
    assert {(alpha, beta) for *_, alpha, beta in seen} == {(1.0, 0.0)}
    assert len(seen) == len(plan.edges[plan.tasks[0].variant]) * len(PROBLEM.inputs)
    seen.clear()
    answer = worker.Worker(plan, tmp_path).answer(request(plan, 0, "cold"))
    assert answer["results"]["cold"]["status"] == "ok"
    assert {(alpha, beta) for *_, alpha, beta in seen} == {(1.0, 0.0)}


def test_a_kernel_for_long_k_alone_is_verified_at_several_k_with_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint that leaves out short sums leaves out no kind of inputs."""
    plan = plan_of("fp32_tiles", tmp_path)
    long = {
        name: tuple(one for one in of if one.size["k"] >= 2048)
        for name, of in plan.edges.items()
    }
    seen = checked(replace(plan, edges=long), tmp_path, monkeypatch)
    assert len({one[:3] for one in seen}) == 6
    assert {one[:3] + one[3:4] for one in seen} == {
        (*edge.size.values(), kind)
        for edge in long[plan.tasks[0].variant]
        for kind in PROBLEM.inputs
    }


Launched = list[tuple[Any, ...]]


@pytest.fixture
def at_ends(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Sizes and scalars of launches whose buffers all begin at 2^39, or end at 2^40, where nothing is mapped beyond."""
    seen = Launched()

    def load(cubin: bytes, launch: Any, instance: GemmInstance) -> Callable[[], None]:
        names = {
            one.get("pointer") or one.get("tensor_map") for one in launch.arguments
        } - {None}
        buffers = [instance.tensors[name].buffer for name in names]
        if {one.handle for one in buffers} != {2**39} and {
            one.handle + one.size for one in buffers
        } != {2**40}:
            return lambda: None
        return lambda: seen.append(
            (*instance.size.values(), *instance.scalars.values())
        )

    monkeypatch.setattr(bench, "load", load)
    return seen


@pytest.mark.parametrize(
    "name", ["fp32_tiles", "hopper_fp8", "stencil_sizes", "bank_column"]
)
def test_each_variant_is_launched_once_at_both_ends_of_memory_around_which_nothing_is_mapped(
    name: str, tmp_path: Path, at_ends: Launched
) -> None:
    """At every edge and at its own size; with beta as well, so that C is read."""
    plan = plan_of(name, tmp_path)
    (tmp_path / "none.cubin").touch()
    own = worker.Worker(plan, tmp_path)
    once_s = 0.0
    for _ in range(2):
        answer = own.answer(request(plan, 0, "cold"))
        once_s, before = answer["once_s"], once_s
        (result,) = answer["results"].values()
        assert (result["status"], result["notes"]) == ("ok", [])
    assert 0.0 < once_s < before
    sizes = [edge.size for edge in plan.edges[plan.tasks[0].variant]] + [
        plan.tasks[0].cell.size
    ]
    weights = [(1.0, 0.0), (1.0, 0.5)] if plan.problem == "gemm" else [()]
    expected = [
        (*size.values(), *one) for size in [*sizes, sizes[-1]] for one in 2 * weights
    ]
    assert at_ends == expected, (
        "at its own size again, where another cell has another size"
    )
    scalars = {(): {}}.get(weights[0], {"alpha": 1.0, "beta": 0.0})
    assert own.bench.instance(plan.tasks[0].cell).scalars == scalars


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("CUDA_ERROR_ILLEGAL_ADDRESS: the device encountered a load", "out_of_bounds"),
        ("CUDA_ERROR_LAUNCH_FAILED", "out_of_bounds"),
        ("CUDA_ERROR_INVALID_VALUE", "launch_error"),
    ],
)
def test_what_fails_there_is_out_of_bounds_and_ends_the_process(
    text: str,
    status: str,
    tmp_path: Path,
    at_ends: Launched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of("fp32_tiles", tmp_path)
    (tmp_path / "none.cubin").touch()

    def sync(self: Gpu) -> None:
        if at_ends and at_ends[-1][0] == 257:
            at_ends.append((0,))
            raise RuntimeError(text)

    monkeypatch.setattr(Gpu, "sync", sync)
    answer = worker.Worker(plan, tmp_path).answer(request(plan, 0, "cold"))
    assert answer["fatal"] == (status == "out_of_bounds")
    result = answer["results"]["cold"]
    assert result["status"] == status
    at = "at 257x8x72: accesses memory beyond its buffers: it fails where nothing is mapped there"
    assert result["reason"] == (
        at if status == "out_of_bounds" else f"RuntimeError: {text}"
    )


@pytest.mark.parametrize(
    ("free", "why"),
    [
        (10**11, "the driver says no"),
        (10**5, "that takes .+ bytes of device memory, of which 50000"),
    ],
)
def test_without_such_memory_a_note_says_that_nobody_looked(
    free: int,
    why: str,
    tmp_path: Path,
    at_ends: Launched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = plan_of("fp32_tiles", tmp_path)
    (tmp_path / "none.cubin").touch()

    @contextlib.contextmanager
    def mapped(gpu: Any, size: int) -> Iterator[int]:
        raise LadderError("the driver says no")
        yield 0

    monkeypatch.setattr(beyond, "mapped", mapped)
    own = worker.Worker(plan, tmp_path)
    own.bench.instance(plan.tasks[0].cell)
    monkeypatch.setattr(Gpu, "free_bytes", lambda self: free)
    (result,) = own.answer(request(plan, 0, "cold"))["results"].values()
    assert result["status"] == "ok"
    (note,) = result["notes"]
    assert re.fullmatch(
        f"unmapped memory: accesses beyond buffers were not looked for: {why}.*", note
    )
    assert not at_ends


@pytest.mark.parametrize(
    ("share", "right"),
    [
        (1.0, True),
        (0.9, True),
        (0.98, True),
        (0.5, False),
        (1 / 32, False),
        (1.3, False),
    ],
)
def test_cycles_that_a_kernel_reports_are_held_against_the_time_of_its_launch(
    share: float, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that makes no access and reports one cycle for each; one that stops its clock early."""
    plan = plan_of("bank_column", tmp_path)
    (tmp_path / "none.cubin").touch()
    kind = "ladder.problems.banks.instance.BanksInstance"
    monkeypatch.setattr(f"{kind}.reported_cycles", lambda self: int(share * CYCLES))
    (result,) = (
        worker.Worker(plan, tmp_path)
        .answer(request(plan, 0, "cold"))["results"]
        .values()
    )
    assert result["status"] == ("ok" if right else "incorrect")
    if not right:
        assert result["reason"].startswith(
            f"cold: the cycles that it reports take {share * 450:.2f} us at 1980 MHz"
        )


@pytest.mark.parametrize(
    ("least", "right"), [(CYCLES, True), (1.01 * CYCLES, True), (1.1 * CYCLES, False)]
)
def test_no_kernel_reports_fewer_cycles_than_its_accesses_take(
    least: float, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that makes no access, and waits for as long as it reports."""
    plan = plan_of("bank_column", tmp_path)
    (tmp_path / "none.cubin").touch()
    monkeypatch.setattr(
        "ladder.problems.banks.instance.BanksInstance.least_cycles",
        lambda self, params: least,
    )
    (result,) = (
        worker.Worker(plan, tmp_path)
        .answer(request(plan, 0, "cold"))["results"]
        .values()
    )
    assert result["status"] == ("ok" if right else "incorrect")
    if not right:
        assert result["reason"].startswith(
            f"it reports {CYCLES} cycles, where its accesses take {least:.0f} at"
        )


@pytest.mark.parametrize(
    ("elements", "bytes_of_memory"),
    [(2**20, 4 * 2**20), (2**28, 8 * 2**28 - Gpu.l2_bytes)],
)
def test_the_least_time_counts_inputs_and_what_of_the_outputs_the_l2_cannot_keep(
    elements: int, bytes_of_memory: int, tmp_path: Path
) -> None:
    """Inputs that are made up in registers take half of a stencil's time, which no memory allows."""
    plan = plan_of("stencil_sizes", tmp_path)
    (tmp_path / "none.cubin").touch()
    own = worker.Worker(plan, tmp_path).bench
    own.gpu.memory_bytes_per_us = 4.8e6
    cell = replace(plan.tasks[0].cell, size={"elements": elements})
    for regime, expected in (("cold", bytes_of_memory / 4.8e6), ("warm", 0.0)):
        found = own.least_us(cell.in_regime(regime), {"radius": 1}, own.instance(cell))
        assert found == pytest.approx(expected, rel=0.001)


def test_memory_of_an_unknown_rate_bounds_no_time(tmp_path: Path) -> None:
    plan = plan_of("stencil_sizes", tmp_path)
    (tmp_path / "none.cubin").touch()
    own = worker.Worker(plan, tmp_path).bench
    own.gpu.memory_bytes_per_us = math.inf
    cell = plan.tasks[0].cell
    assert own.least_us(cell, {"radius": 1}, own.instance(cell)) == 0.0


def test_a_worker_says_of_its_gpu_what_peaks_it_has_at_which_clock(
    tmp_path: Path,
) -> None:
    plan = plan_of("fp32_tiles", tmp_path)
    (tmp_path / "none.cubin").touch()
    own = worker.Worker(plan, tmp_path).bench
    own.gpu.device.name, own.gpu.boost_clock_mhz = "NVIDIA GeForce RTX 4090", 2520.0
    own.gpu.fp32_tflops, own.gpu.tensor_tflops = 82.6, {"bf16": 165.2}
    own.gpu.harness.nothing = lambda: None
    facts = own.facts()
    assert (facts["boost_clock_mhz"], facts["fp32_peak_tflops"]) == (2520.0, 82.6)
    assert facts["tensor_peak_tflops"] == {"bf16": 165.2}
    own.gpu.boost_clock_mhz = 0.0
    assert own.facts()["boost_clock_mhz"] is None


@pytest.mark.parametrize("slow_host", [True, False])
def test_a_disagreement_of_clocks_passes_where_the_host_sees_empty_launches_as_late(
    slow_host: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disagrees(*_: Any, **__: Any) -> Any:
        raise timing.TimesDisagree(
            "by its events a launch takes 10.0 us, the host sees +350.0 us more"
        )

    plan = plan_of("fp32_tiles", tmp_path)
    (tmp_path / "none.cubin").touch()
    own = worker.Worker(plan, tmp_path)
    own.bench.gpu.harness.nothing = lambda: None
    monkeypatch.setattr(own, "measure", disagrees)
    if slow_host:
        monkeypatch.setattr(own.bench.timer, "quick_medians", disagrees)
    result = own.answer(request(plan, 0, "cold"))["results"]["cold"]
    assert result["status"] == "launch_error"
    assert result.get("transient", False) == slow_host
    assert ("this host is too slow to time launches" in result["reason"]) == slow_host


def test_a_worker_that_cannot_start_since_the_host_is_slow_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disagrees(self: Any) -> Any:
        raise timing.TimesDisagree(
            "by its events a launch takes 3.0 us, the host sees +350.0 us more"
        )

    plan = plan_of("fp32_tiles", tmp_path)
    (tmp_path / "none.cubin").touch()
    monkeypatch.setattr(bench.Bench, "facts", disagrees)
    ours, theirs = Pipe()
    with pytest.raises(timing.TimesDisagree):
        worker.measure(plan, tmp_path, os.dup(theirs.fileno()))
    assert "this host is too slow to time launches" in ours.recv()["mistake"]


@pytest.mark.parametrize(("total", "transient"), [(10**18, True), (10**11, False)])
def test_a_lack_of_memory_passes_where_another_process_holds_it(
    total: int, transient: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("fp32_tiles", tmp_path)
    (tmp_path / "none.cubin").touch()
    monkeypatch.setattr(Gpu, "free_bytes", lambda self: 2**29)
    monkeypatch.setattr(Gpu, "total_bytes", lambda self: total, raising=False)
    own = worker.Worker(plan, tmp_path)
    monkeypatch.setattr(own.bench.problem.__class__, "device_bytes", lambda *_: 10**12)
    result = own.answer(request(plan, 0, "cold"))["results"]["cold"]
    assert result["status"] == "unsupported"
    assert result["reason"].startswith("needs 1000000000000 bytes of device memory, ")
    assert result.get("transient", False) == transient

"""Without a GPU: the worker takes tasks of every problem through all regimes, on a GPU that is only played."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from multiprocessing import Pipe
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from checkout import every_sweep
from conftest import ROOT
from cuda.bindings import driver
from fake_gpu import FakeBuffer, FakeGpu
from ladder.catalogue.plans import plan_edges, plan_sweep
from ladder.catalogue.settings import read_settings
from ladder.gpu import device, timing
from ladder.gpu.device import RESULT_SLOTS
from ladder.gpu.instance import Check
from ladder.measure import bench, beyond, watch, worker
from ladder.measure.assignment import Assignment
from ladder.measure.gpu_job import process_command
from ladder.model.cell import REGIMES
from ladder.model.errors import LadderError
from ladder.model.folders import Project
from ladder.model.kernel import Variant
from ladder.model.plan import Launch, Plan
from ladder.model.plan_file import read_plan, to_json
from ladder.model.problem import ERROR_INPUTS, GATE, NOTHING
from ladder.model.sweep import Sweep
from ladder.problems.banks.instance import BanksInstance
from ladder.problems.gemm import PROBLEM
from ladder.problems.gemm.instance import GemmInstance
from ladder.problems.registry import PROBLEMS

SWEEPS = (
    "fp32_tiles",
    "hopper_fp8",
    "stencil_sizes",
    "bank_column",
    "tensor_ladder_fp16",
    "reduction",
    "transpose_fp32",
    "transpose_bf16",
    "transpose_libraries",
    "softmax_fp32",
    "softmax_bf16",
    "attention",
    "scaled_squares",
    "scaled_price",
)
LAUNCH_US = 900.0
CYCLES = int(LAUNCH_US / 2 * 1980)  # as many as an event's time has at the clock below


class Harness:
    """Kernels that find nothing wrong."""

    kernels: dict[str, Any] = {timing.GATE: None}
    maximum, count = 64, 72
    zeros_were_written = staticmethod(lambda: False)
    nothing = staticmethod(lambda: None)
    reduce = staticmethod(lambda *_: (0.0, 0))

    def __init__(self, *_: Any) -> None:
        pass

    def run(self, entry: str, elements: int, *arguments: Any) -> None:
        assert elements > 0

    def result_slot(self, index: int, key: int) -> Any:
        assert 0 <= index < RESULT_SLOTS
        return SimpleNamespace(key=key)

    def read_check_results(self, keys: list[int]) -> list[float]:
        return [0.0] * len(keys)


class Gpu(FakeGpu):
    capturing: ClassVar[bool] = False
    l2_bytes, block_shared_bytes, compute_capability = 50 << 20, 227 << 10, (9, 0)
    memory_bytes_per_us, fp32_tflops, tensor_tflops = 1e12, None, {}
    sync = scrub_shared = refuse_other_context = lambda self: None
    met_unmapped_memory = device.Gpu.met_unmapped_memory
    read_clocks = staticmethod(lambda: "cycles")
    mean_mhz = staticmethod(lambda before, after: 1980.0)
    free_bytes = staticmethod(lambda: 10**11)

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

    def host_us(self) -> float:
        self.now += LAUNCH_US / 2
        return self.now


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

    def cublaslt(self, *_: Any, **__: Any) -> dict[str, Callable[[], None]]:
        return dict.fromkeys(("id 1", "id 2"), lambda: None)


def plan_of(name: str, folder: Path) -> Plan:
    """A sweep's plan with its edges, through its file, as if all had been compiled."""
    (folder / "none.cubin").touch()
    return _worked_out(name)


@functools.cache
def _worked_out(name: str) -> Plan:
    with TemporaryDirectory() as folder:
        return planned(every_sweep()[name], Path(folder))


def planned(sweep: Sweep, folder: Path) -> Plan:
    """The same of a sweep that was loaded."""
    made = plan_sweep(sweep, read_settings(Project(ROOT), (), {}), "sm_90a")
    facts = {
        "status": "ok",
        "reason": "",
        "cubin": "none",
        "symbols": {GATE: "g", NOTHING: "n"},
        "kernel": "gemm_mine",
        "params": {},
        "layout": "",
    }
    launches = [(task.launch, task.reference) for task in made.tasks]
    launched = {launch.variant for pair in launches for launch in pair if launch}
    made = replace(
        made,
        harness=dict.fromkeys(sweep.dtypes, facts),
        variants=dict.fromkeys(launched, facts),
        edges=plan_edges(sweep, "sm_90a"),
    )
    path = folder / f"{sweep.name}.json"
    path.write_bytes(to_json(made))
    (folder / "none.cubin").touch()
    assert read_plan(path) == made
    return made


def assignment(plan: Plan, index: int, *regimes: str) -> Assignment:
    """What a worker is asked for of a task; where there was a choice, the first library won."""
    reference = plan.tasks[index].cell.reference
    first = reference.libraries[0] if reference.is_choice else ""
    against = {
        "reference": first,
        "algorithm": "id 1" if first.startswith("cublaslt") else "",
    }
    return Assignment(
        index, regimes, against=dict.fromkeys(regimes, against) if first else {}
    )


def answered(plan: Plan, folder: Path, *regimes: str, index: int = 0) -> dict[str, Any]:
    """What becomes of a task, by regime, and whether the context is lost (fatal)."""
    asked = assignment(plan, index, *regimes or ("cold",))
    answer = worker.Worker(plan, folder).answer(asked)
    return {**answer["results"], "fatal": answer["fatal"]}


def choose(plan: Plan, folder: Path, regime: str = "cold") -> Any:
    """What becomes of the first choice, in a regime."""
    plan = replace(plan, choices=(replace(plan.choices[0], regime=regime),))
    answer = worker.Worker(plan, folder).answer(Assignment(0, [regime], choice=True))
    return answer["results"][regime]


def cold(own: worker.Worker) -> dict[str, Any]:
    """What becomes of the first task of a worker's plan in cold, and whether the context is lost."""
    answer = own.answer(assignment(own.plan, 0, "cold"))
    return answer["results"]["cold"] | {"fatal": answer["fatal"]}


@pytest.fixture
def tiles(tmp_path: Path) -> Plan:
    """A plan of GEMMs in fp32."""
    return plan_of("fp32_tiles", tmp_path)


@pytest.fixture
def own(tiles: Plan, tmp_path: Path) -> worker.Worker:
    return worker.Worker(tiles, tmp_path)


@pytest.mark.parametrize("facts", ["harness", "variants"])
def test_without_a_cubin_of_the_plan_no_worker_starts_and_the_error_says_what_to_do(
    facts: str, tiles: Plan, tmp_path: Path
) -> None:
    with_lost = dict(getattr(tiles, facts))
    name = next(iter(with_lost))
    with_lost[name] = {"status": "ok", "cubin": "lost"}
    plan = replace(tiles, **{facts: with_lost}, job={**tiles.job, "cubins": "."})
    path = tmp_path / "fp32_tiles.json"
    says = f"the cubin of {re.escape(name)} is not in .*; delete this"
    with pytest.raises(LadderError, match=says):
        process_command("measure", path, plan, tmp_path)
    (tmp_path / "lost.cubin").touch()
    assert process_command("measure", path, plan, tmp_path)


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


def provide_workspaces(launch: Launch, instance: Any) -> None:
    for argument in launch.arguments:
        if "workspace" in argument:
            instance.provide_workspace(argument)


def load_nothing(cubin: bytes, launch: Launch, instance: Any) -> Callable[[], None]:
    """A kernel that does nothing, with its workspaces."""
    provide_workspaces(launch, instance)
    return lambda: None


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("instance", "tensor"):
        monkeypatch.setattr(f"ladder.gpu.{module}.Buffer", FakeBuffer)
    for problem in ("gemm", "scaled_gemm"):
        libraries = f"ladder.problems.{problem}.instance.Libraries"
        monkeypatch.setattr(libraries, Libraries)
    monkeypatch.setattr(timing, "Gate", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(timing, "_BLOCK_US", 10 * LAUNCH_US)
    monkeypatch.setattr(timing, "_SETTLE_US", LAUNCH_US)
    for name, other in (
        ("Gpu", Gpu),
        ("Harness", Harness),
        ("static_shared_bytes", lambda cubin: 0),
    ):
        monkeypatch.setattr(bench, name, other)
    monkeypatch.setattr(bench, "load", load_nothing)

    def mapped(gpu: Any, buffers: Sequence[Any]) -> Any:
        at_begin = [FakeBuffer(buffer.size, 2**39) for buffer in buffers]
        at_end = [FakeBuffer(one.size, 2**40 - one.size) for one in buffers]
        return contextlib.nullcontext((at_begin, at_end))

    monkeypatch.setattr(beyond, "mapped", mapped)
    cublas = SimpleNamespace(
        create=lambda: 1, set_stream=lambda *_: None, sgeam=lambda *_: None
    )
    monkeypatch.setattr("ladder.problems.transpose.instance.cublas", cublas)
    for problem in PROBLEMS:
        kind = import_module(f"ladder.problems.{problem}.instance").INSTANCE
        right = lambda self, params: Check(0.0, self.error_bound(params))  # noqa: E731
        monkeypatch.setattr(kind, "check", right)
    for name, answer in {
        "inspect": None,
        "observations": {},
        "reported_cycles": CYCLES,
        "least_cycles": 0.0,
    }.items():
        monkeypatch.setattr(BanksInstance, name, lambda *_, answer=answer: answer)

    def capture(_: Any, members: Sequence[Callable[[], None]]) -> Any:
        with monkeypatch.context() as inside:
            inside.setattr(Gpu, "capturing", True)
            for member in members:
                member()
        return SimpleNamespace(launch=lambda stream: None, close=lambda: None)

    monkeypatch.setattr(watch, "capture", capture)
    # A chain takes no longer than a launch here.
    monkeypatch.setattr(worker, "_REPLAYED", 0.0)


@pytest.mark.parametrize("name", SWEEPS)
def test_tasks_go_through_every_regime(name: str, tmp_path: Path) -> None:
    plan = plan_of(name, tmp_path)
    own = worker.Worker(plan, tmp_path)
    launched = [index for index, task in enumerate(plan.tasks) if task.launch]
    for index in launched[:: max(1, len(launched) // 6)]:
        answer = own.answer(assignment(plan, index, *REGIMES))
        json.dumps(answer)
        assert not answer["fatal"]
        blocks = answer["results"]["sustained"].get("blocks", {})
        assert {len(of_side) for of_side in blocks.values()} <= {6}
        for regime, result in answer["results"].items():
            outcome = result["status"], result["reason"]
            unfit = "unsupported", "warm is for kernels below 200 us"
            assert outcome in {("ok", ""), unfit}, regime


@pytest.mark.parametrize("damage", [None, ("out_of_bounds", "1 bytes around c")])
def test_a_wrong_result_is_put_down_to_damage_and_ends_the_process_if_there_is_any(
    damage: tuple[str, str] | None, own: worker.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage of one kernel, in an instance of the edges, must not be the next one's."""
    monkeypatch.setattr(GemmInstance, "check", lambda *_: Check(1.0, 0.1))
    monkeypatch.setattr(GemmInstance, "memory_violation", lambda self: damage)
    result = cold(own)
    status, reason = damage or ("incorrect", "at 1x264x136 with alpha = 1, beta = 0")
    assert (result["status"], result["fatal"]) == (status, damage is not None)
    assert result["reason"].startswith(reason)


# What is verified where kernels break.


def refusing_nan(plan: Plan) -> Plan:
    """As if no kernel said `nan_at_alpha_zero`."""
    edges = {
        name: tuple(replace(edge, nan_at_alpha_zero=False) for edge in of_variant)
        for name, of_variant in plan.edges.items()
    }
    return replace(plan, edges=edges)


def verify_edges(plan: Plan, folder: Path) -> None:
    """Verify the first variant."""
    task = plan.tasks[0]
    worker.Worker(plan, folder).bench.verify_edges(task.variant, task.cell)


def test_nan_with_alpha_zero_is_explained_with_the_field_that_says_so(
    tiles: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(self: GemmInstance, params: Any) -> Check:
        wrong = self.scalars["alpha"] == 0
        return Check(math.inf if wrong else 0.0, 0.1, "7991 outputs are NaN")

    monkeypatch.setattr(GemmInstance, "check", check)
    result = cold(worker.Worker(refusing_nan(tiles), tmp_path))
    assert result["status"] == "incorrect"
    begin = "with alpha = 0 the result must be beta * C even where A and B hold NaN"
    assert result["reason"].startswith(begin)
    assert "7991 outputs" in result["reason"]
    assert result["reason"].endswith("say `nan_at_alpha_zero: true` in gemm_mine.yaml")


Checked = list[tuple[tuple[int, ...], str, tuple[float, float]]]


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Checked:
    """Size, kind of inputs, alpha and beta of every check."""
    seen = Checked()

    def check(self: GemmInstance, params: Any) -> Check:
        weights = self.scalars["alpha"], self.scalars["beta"]
        seen.append((tuple(self.size.values()), self.inputs, weights))
        return Check(0.0, 0.1)

    monkeypatch.setattr(GemmInstance, "check", check)
    return seen


def test_what_c_holds_ahead_of_a_launch_is_what_its_check_adds(
    tiles: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where inputs are spoilt for alpha = 0, and drawn again for the check, too."""
    poison, drawn, alphas = GemmInstance._poison_outputs, dict[str, int](), []

    def keys(instance: GemmInstance) -> dict[str, int]:
        names = {"a", "b", "before"} & instance.tensors.keys()
        return {name: instance.tensors[name].key.value for name in names}

    def poisoned(self: GemmInstance) -> None:
        drawn.update(keys(self))
        poison(self)

    def check(self: GemmInstance, params: Any) -> Check:
        if self.scalars["beta"]:
            assert drawn == keys(self)
            assert drawn["before"], "never drawn"
            alphas.append(self.scalars["alpha"])
        return Check(0.0, 0.1)

    monkeypatch.setattr(GemmInstance, "_poison_outputs", poisoned)
    monkeypatch.setattr(GemmInstance, "check", check)
    verify_edges(refusing_nan(tiles), tmp_path)
    assert 0.0 in alphas
    assert len(alphas) > 3


def test_every_edge_is_verified_with_every_kind_of_inputs(
    tiles: Plan, tmp_path: Path, checked: Checked
) -> None:
    verify_edges(tiles, tmp_path)
    edges = tiles.edges[tiles.tasks[0].variant]
    assert len(edges) == 16
    costly = [edge for edge in edges if PROBLEM.is_costly(edge.size)]
    assert len(costly) == 3
    for edge in edges:
        at_edge = [one[1:] for one in checked if one[0] == tuple(edge.size.values())]
        if edge in costly:
            assert at_edge == [("uniform", (1.0, 0.0))]
            continue
        usual = [kind for kind, weights in at_edge if weights == (1.0, 0.0)]
        assert {*usual} == {*PROBLEM.inputs}
        # And other weights, or C over infinity.
        assert len(at_edge) == len(PROBLEM.inputs) + 1
    assert {one[2] for one in checked} >= {(0.0, -1.5), (-1.5, 1.0), (2.0, 0.0)}


def test_alpha_and_beta_that_no_edge_had_are_tried_at_the_size_that_is_timed(
    tiles: Plan, tmp_path: Path, checked: Checked
) -> None:
    """All six where no size with edges is accepted, and one where the edges had all."""
    task = tiles.tasks[0]
    timed = tuple(task.cell.size.values())
    tried = list[int]()
    for edges in (tiles.edges, {task.variant: ()}):
        checked.clear()
        plan = replace(tiles, edges=edges, tasks=(task,))
        assert cold(worker.Worker(plan, tmp_path))["status"] == "ok"
        weights = {one[2] for one in checked if one[0] == timed}
        tried.append(len(weights - {(1.0, 0.0)}))
    assert tried == [1, 5]


def test_edges_that_are_costly_between_others_leave_their_alpha_and_beta_to_the_timed_size(
    tiles: Plan, tmp_path: Path, checked: Checked
) -> None:
    """What an edge tries follows from its number: counting the edges that try some would skip those of others."""
    task = tiles.tasks[0]
    all_edges = tiles.edges[task.variant]
    cheap = [edge for edge in all_edges if not PROBLEM.is_costly(edge.size)]
    costly = [edge for edge in all_edges if PROBLEM.is_costly(edge.size)]
    mixed = (cheap[0], *costly[:2], *cheap[1:3])
    plan = replace(tiles, edges={task.variant: mixed}, tasks=(task,))
    assert cold(worker.Worker(plan, tmp_path))["status"] == "ok"
    assert {weights for _, _, weights in checked} >= {
        (0.75, 0.5),
        (-1.5, 1.0),
        (0.0, -1.5),
        (0.5, -1.5),
        (2.0, 0.0),
    }


def test_a_kernel_without_weights_is_verified_with_alpha_1_and_beta_0_alone(
    tiles: Plan, tmp_path: Path, checked: Checked
) -> None:
    """One that says `weights: none` is launched without alpha and beta, at the edges and at its own size."""

    def launched(launch: Launch) -> Launch:
        arguments = [one for one in launch.arguments if "scalar" not in one]
        return replace(launch, arguments=tuple(arguments))

    task = tiles.tasks[0]
    assert task.launch is not None
    edges = tuple(
        replace(edge, launch=launched(edge.launch))
        for edge in tiles.edges[task.variant]
    )
    task = replace(task, launch=launched(task.launch))
    plan = replace(tiles, edges={task.variant: edges}, tasks=(task,))
    assert cold(worker.Worker(plan, tmp_path))["status"] == "ok"
    assert {weights for _, _, weights in checked} == {(1.0, 0.0)}
    costly = sum(PROBLEM.is_costly(edge.size) for edge in edges)
    assert len(checked) > (len(edges) - costly) * len(PROBLEM.inputs) + costly


# What is launched where nothing is mapped.

Launched = list[tuple[Any, ...]]


@pytest.fixture
def at_ends(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """Sizes and scalars of launches whose buffers all begin at 2^39, or end at 2^40, where nothing is mapped beyond."""
    seen = Launched()

    def load(cubin: bytes, launch: Launch, instance: Any) -> Callable[[], None]:
        provide_workspaces(launch, instance)
        buffers = [instance.tensors[name].buffer for name in beyond._buffers(launch)]
        begins = {buffer.handle for buffer in buffers}
        ends = {buffer.handle + buffer.size for buffer in buffers}
        if begins != {2**39} and ends != {2**40}:
            return lambda: None
        values = *instance.size.values(), *instance.scalars.values()
        return lambda: seen.append(values)

    monkeypatch.setattr(bench, "load", load)
    return seen


@pytest.mark.parametrize("name", ["fp32_tiles", "stencil_sizes", "bank_column"])
def test_each_variant_is_launched_once_at_both_ends_of_memory_around_which_nothing_is_mapped(
    name: str, tmp_path: Path, at_ends: Launched
) -> None:
    """At edges that cost little and at its own size, there again for another cell; with beta, so that C is read."""
    plan = plan_of(name, tmp_path)
    own = worker.Worker(plan, tmp_path)
    for _ in range(2):
        result = cold(own)
        assert (result["status"], result["notes"]) == ("ok", [])
    task = plan.tasks[0]
    edges = [edge.size for edge in plan.edges[task.variant]]
    sizes = [size for size in edges if not PROBLEMS[plan.problem].is_costly(size)]
    gemm = plan.problem == "gemm"
    weights = [(1.0, 0.0), (1.0, 0.5)] if gemm else [()]
    assert at_ends == [
        (*size.values(), *one)
        for size in [*sizes, task.cell.size, task.cell.size]
        for one in 2 * weights
    ]
    usual = {"alpha": 1.0, "beta": 0.0} if gemm else {}
    assert own.bench.instance(task.cell).scalars == usual


BEYOND = "accesses memory beyond its buffers: it fails where nothing is mapped there"


@pytest.mark.parametrize("code", ["ILLEGAL_ADDRESS", "LAUNCH_FAILED", "INVALID_VALUE"])
def test_what_fails_there_is_out_of_bounds_and_ends_the_process(
    code: str,
    own: worker.Worker,
    at_ends: Launched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sync(self: Gpu) -> None:
        if at_ends and at_ends[-1][0] == 257:
            at_ends.append((0,))
            raise RuntimeError("in whatever words")

    said = getattr(driver.CUresult, f"CUDA_ERROR_{code}")
    monkeypatch.setattr(driver, "cuCtxSynchronize", lambda: (said,))
    monkeypatch.setattr(Gpu, "sync", sync)
    result, lost = cold(own), code != "INVALID_VALUE"
    status = "out_of_bounds" if lost else "launch_error"
    assert (result["status"], result["fatal"]) == (status, lost)
    reason = f"at 257x8x72: {BEYOND}" if lost else "RuntimeError: in whatever words"
    assert result["reason"] == reason


@pytest.mark.parametrize(
    ("free", "why"),
    [
        (10**11, "the driver says no"),
        (10**5, "that takes .+ bytes of device memory, of which 50000 may be taken"),
    ],
)
def test_without_such_memory_a_note_says_that_nobody_looked(
    free: int,
    why: str,
    own: worker.Worker,
    at_ends: Launched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextlib.contextmanager
    def mapped(gpu: Any, buffers: Sequence[Any]) -> Iterator[int]:
        raise LadderError("the driver says no")
        yield 0

    monkeypatch.setattr(beyond, "mapped", mapped)
    own.bench.instance(own.plan.tasks[0].cell)
    monkeypatch.setattr(Gpu, "free_bytes", lambda self: free)
    result = cold(own)
    assert result["status"] == "ok"
    (note,) = result["notes"]
    says = "unmapped memory: accesses beyond buffers were not looked for"
    assert re.fullmatch(f"{says}: {why}", note)
    assert not at_ends


# What no honest launch does.


@pytest.mark.parametrize(
    ("share", "least", "wrong"),
    [
        (1.0, 0.0, None),
        (0.9, 0.0, None),
        (0.5, 0.0, "cold: the cycles that it reports take 225.00 us at 1980 MHz"),
        (1.3, 0.0, "cold: the cycles that it reports take 585.00 us at 1980 MHz"),
        (1.0, 1.01, None),
        (1.0, 1.1, f"it reports {CYCLES} cycles, where its accesses take 980100 at"),
    ],
)
def test_cycles_that_a_kernel_reports_are_held_against_its_time_and_its_accesses(
    share: float,
    least: float,
    wrong: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that makes no access and reports one cycle for each; one that stops its clock; one that waits."""
    monkeypatch.setattr(BanksInstance, "reported_cycles", lambda _: int(share * CYCLES))
    monkeypatch.setattr(BanksInstance, "least_cycles", lambda *_: least * CYCLES)
    result = cold(worker.Worker(plan_of("bank_column", tmp_path), tmp_path))
    assert result["status"] == ("incorrect" if wrong else "ok")
    assert result["reason"].startswith(wrong or "")


@pytest.mark.parametrize(
    ("elements", "bytes_of_memory", "rate"),
    [
        (2**20, 4 * 2**20, 4.8e6),
        (2**28, 8 * 2**28 - Gpu.l2_bytes, 4.8e6),
        (2**20, 0, math.inf),
    ],
)
def test_the_least_time_counts_inputs_and_what_of_the_outputs_the_l2_cannot_keep(
    elements: int, bytes_of_memory: int, rate: float, tmp_path: Path
) -> None:
    """Inputs that are made up in registers take half of a stencil's time, which no memory allows."""
    plan = plan_of("stencil_sizes", tmp_path)
    own = worker.Worker(plan, tmp_path).bench
    own.gpu.memory_bytes_per_us = rate
    cell = replace(plan.tasks[0].cell, size={"elements": elements})
    own.instance(cell)
    for regime, expected in (("cold", bytes_of_memory / rate), ("warm", 0.0)):
        least = own.least_us(cell.in_regime(regime), {"radius": 1})
        assert least == pytest.approx(expected, rel=0.001)


# What errors there are with each kind of inputs.


def test_errors_are_recorded_by_kind_of_inputs_where_the_sweep_asks_for_them(
    tmp_path: Path,
) -> None:
    plan = plan_of("fp32_tensor", tmp_path)
    names = [
        f"{side}max_error_{kind}"
        for kind in ERROR_INPUTS
        for side in ("", "reference_")
    ]
    for asked in (True, False):
        index = next(
            place
            for place, task in enumerate(plan.tasks)
            if task.launch and task.errors == asked
        )
        result = answered(plan, tmp_path, index=index)["cold"]
        assert [one["metric"] for one in result["observations"]] == (
            names if asked else []
        )


def test_a_kernel_whose_error_is_too_large_with_one_kind_is_incorrect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("fp32_tensor", tmp_path)
    index = next(place for place, task in enumerate(plan.tasks) if task.errors)
    check = GemmInstance.check

    def checked(self: GemmInstance, params: Any) -> Any:
        found = check(self, params)
        small = self.m < 1000  # where edges are verified
        wrong = self.inputs == "wide" and not small and self._place == 0
        return type(found)(1.0, found.error_bound) if wrong else found

    monkeypatch.setattr(GemmInstance, "check", checked)
    result = answered(plan, tmp_path, index=index)["cold"]
    assert (result["status"], result["reason"][:17]) == (
        "incorrect",
        "with wide inputs:",
    )


# What is the host's fault.


def disagrees(*_: Any, **__: Any) -> Any:
    raise timing.TimesDisagree("by its events 10.0 us, the host sees +350.0 us more")


SLOW_HOST = "this host is too slow to time launches"


@pytest.mark.parametrize("slow_host", [True, False])
def test_a_disagreement_of_clocks_passes_where_the_host_sees_empty_launches_as_late(
    slow_host: bool, own: worker.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.bench.gpu.harness.nothing = lambda: None
    monkeypatch.setattr(own, "measure", disagrees)
    if slow_host:
        monkeypatch.setattr(own.bench.timer, "quick_medians", disagrees)
    result = cold(own)
    assert result["status"] == "launch_error"
    assert result.get("transient", False) == slow_host
    assert (SLOW_HOST in result["reason"]) == slow_host


def test_a_worker_that_cannot_start_since_the_host_is_slow_says_so(
    tiles: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.Bench, "facts", disagrees)
    ours, theirs = Pipe()
    with pytest.raises(timing.TimesDisagree):
        worker.measure(tiles, tmp_path, os.dup(theirs.fileno()))
    assert SLOW_HOST in ours.recv()["mistake"]


@pytest.mark.parametrize(("total", "transient"), [(10**18, True), (10**11, False)])
def test_a_lack_of_memory_passes_where_another_process_holds_it(
    total: int, transient: bool, own: worker.Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gpu, "free_bytes", lambda self: 2**29)
    monkeypatch.setattr(Gpu, "total_bytes", lambda self: total, raising=False)
    monkeypatch.setattr(type(own.bench.problem), "device_bytes", lambda *_: 10**12)
    result = cold(own)
    assert result["status"] == "unsupported"
    assert result["reason"].startswith("needs 1000000000000 bytes of device memory, ")
    assert result.get("transient", False) == transient

"""After a change, exactly the cells whose numbers depend on it are measured again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import edit_yaml
from factory import FINISHED, NCU, SESSION, Fields, Lab, failed
from ladder.measure.plan_records import PlanRecords
from ladder.measure.profile_job import uncounted
from ladder.measure.schedule import Schedule
from ladder.measure.store import read_store
from ladder.model.cell import COUNTERS, TIMING_VERSION
from ladder.model.plan import Task
from ladder.problems.registry import PROBLEMS

TILE = "gemm_register_tile"


Due = tuple[str, Task, str]
"""Sweep, task and regime."""
AFTER = "2026-11-20T11:00:00Z"
"""Later than all records, whose time is FINISHED."""


@dataclass
class Measured(Lab):
    """A project whose every cell has been measured and counted, to change and to look at what is due."""

    packages: dict[str, str] = field(default_factory=lambda: {"nvidia-cublas": "13.1"})
    made: Callable[[Any, Fields], Fields] = lambda _, facts: facts
    """What the compiler says of a variant."""
    patch: pytest.MonkeyPatch = field(default_factory=pytest.MonkeyPatch)

    def views(self) -> Iterator[PlanRecords]:
        """Each sweep's records, with a plan as documents and compiler now say."""
        records = read_store(self.folder.records)
        for name, sweep in self.sweeps().items():
            self.compile(sweep, self.made)
            yield self.view(name, records)

    def due(self) -> Iterator[Due]:
        """All that would be timed."""
        for view in self.views():
            view = replace(view, on=self.on(view.plan.problem))
            for index, regimes in Schedule(view).due():
                task = view.plan.tasks[index]
                yield from ((view.plan.sweep, task, regime) for regime in regimes)

    def uncounted(self) -> Iterator[Due]:
        """All that would be counted."""
        for view in self.views():
            for index in uncounted(replace(view, on={**self.host, "ncu": NCU})):
                yield view.plan.sweep, view.plan.tasks[index], COUNTERS

    def planned(self) -> Iterator[Due]:
        """Every cell with its times and counters."""
        for view in self.views():
            for _, task in view.launched():
                regimes = [*view.plan.regimes, *[COUNTERS] * task.counted]
                yield from ((view.plan.sweep, task, regime) for regime in regimes)


def measured_in(root: Path, patch: pytest.MonkeyPatch) -> Measured:
    lab = Measured(root, patch=patch)
    patch.setattr("ladder.measure.conditions.package_version", lab.packages.get)
    return lab


def thinned(sweep: Fields) -> None:
    """A few cells of each kind: many alike depend on the same."""
    sweep["sizes"] = [size for size in sweep["sizes"] if size not in (512, 2048)]
    for variant in sweep["variants"]:
        for name in {"stride", "radius"} & variant.get("params", {}).keys():
            variant["params"][name] = variant["params"][name][:3]


@pytest.fixture(scope="session")
def measured_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measured project; shared, so look at it only."""
    with pytest.MonkeyPatch.context() as patch:
        lab = measured_in(tmp_path_factory.mktemp("measured") / "project", patch)
        for path in lab.project.sweeps.iterdir():
            edit_yaml(path, thinned)
        lab.record()
        assert shown(lab.due()) == shown(lab.uncounted()) == []
    return lab.root


@pytest.fixture
def measured(
    measured_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Measured:
    lab = measured_in(tmp_path / "project", monkeypatch)
    shutil.copytree(measured_once, lab.root, dirs_exist_ok=True)
    return lab


CompileRequests = Callable[[str, Task, str], bool]
"""Whether a cell of (sweep, task, regime) must be measured again."""


def nothing(*_: Any) -> bool:
    return False


def every_time(sweep: str, task: Task, regime: str) -> bool:
    return regime != COUNTERS


def everything(*_: Any) -> bool:
    return True


def times_of(*sweeps: str) -> CompileRequests:
    return lambda sweep, task, regime: sweep in sweeps and regime != COUNTERS


def uses(kernel: str) -> CompileRequests:
    """Cells of a kernel, and times that are held against it."""
    return lambda sweep, task, regime: (
        task.cell.kernel == kernel
        or (task.cell.reference.kernel == kernel and regime != COUNTERS)
    )


Change = Callable[[Measured], object]


def setting(**measure: Any) -> Change:
    return lambda it: it.settings.update(measure=measure)


def compiled(name: str) -> Change:
    """Another machine code for every variant of a kernel."""

    def change(it: Measured) -> None:
        new = {"machine_code": "new"}
        it.made = lambda one, facts: facts | (new if one.kernel.name == name else {})

    return change


def in_kernel(name: str, change: Callable[[Fields], object]) -> Change:
    return lambda it: edit_yaml(it.project.kernels / f"{name}.yaml", change)


def in_sweep(name: str, change: Callable[[Fields], object]) -> Change:
    return lambda it: edit_yaml(it.project.sweeps / f"{name}.yaml", change)


def updated(name: str, **fields: object) -> Change:
    """Other fields of a sweep."""
    return in_sweep(name, lambda sweep: sweep.update(fields))


def reworded(sweep: Fields) -> None:
    sweep.update(title="Another", question="Why?")
    sweep["figures"][0].update(caption="Look.")
    sweep["figures"].pop()
    sweep["variants"][0].update(rung="first", technique="none")


STAGES = {"values": [1, 2], "default": 1, "description": "stages"}
CHANGES: dict[str, tuple[Change, CompileRequests]] = {
    "nothing": (lambda it: None, nothing),
    # The configuration.
    "precision": (setting(precision=0.01), every_time),
    "least pairs": (setting(min_pairs=30), every_time),
    "most pairs": (setting(max_pairs=500), every_time),
    "budget of a cell": (setting(cell_seconds=9.5), every_time),
    "clocks": (setting(lock_clocks=1400), every_time),
    "seed": (setting(seed=12345), everything),
    "limit of warm": (
        setting(warm_below_us=1.5),
        lambda sweep, task, regime: regime == "warm",
    ),
    "algorithms of cuBLASLt, which no cell is timed against": (
        setting(lt_heuristics=3),
        nothing,
    ),
    # The host.
    "driver": (lambda it: it.host.update(driver="590.1"), everything),
    "cuBLAS": (
        lambda it: it.packages.update({"nvidia-cublas": "13.2"}),
        times_of("fp32_ladder", "fp32_transpose", "tensor_ladder"),
    ),
    "cuda-core": (lambda it: it.packages.update({"cuda-core": "9.9"}), every_time),
    # The code that measures.
    "the check of one problem": (
        lambda it: it.patch.setattr(type(PROBLEMS["stencil"]), "check_version", 2),
        times_of("stencil_reach"),
    ),
    "how cold launches are timed": (
        lambda it: it.patch.setitem(TIMING_VERSION, "cold", 0),
        lambda sweep, task, regime: regime == "cold",
    ),
    "how counters are read": (
        lambda it: it.patch.setitem(TIMING_VERSION, COUNTERS, 0),
        lambda sweep, task, regime: regime == COUNTERS,
    ),
    # What is compiled.
    "a kernel's machine code": (compiled("wmma_tile"), uses("wmma_tile")),
    "machine code of a reference": (compiled(TILE), uses(TILE)),
    # The documents.
    "a kernel's default": (
        # fp32_transpose names every value of bm, and what it measured stands.
        in_kernel(TILE, lambda kernel: kernel["parameters"]["bm"].update(default=64)),
        lambda sweep, task, regime: sweep == "fp32_ladder" and task.cell.kernel == TILE,
    ),
    "a new parameter": (
        in_kernel(
            "wmma_tile", lambda kernel: kernel["parameters"].update(stages=STAGES)
        ),
        uses("wmma_tile"),
    ),
    "a launch rule that gives another launch at large sizes": (
        in_kernel(
            "gemm_naive",
            lambda kernel: kernel["launch"].update(grid=["2 if m > 4096 else 1"]),
        ),
        lambda sweep, task, regime: (
            task.cell.kernel == "gemm_naive" and task.cell.size["m"] > 4096
        ),
    ),
    "an argument": (
        in_kernel(
            "wmma_tile",
            lambda kernel: kernel["arguments"].append({"scalar": "m", "type": "int32"}),
        ),
        uses("wmma_tile"),
    ),
    "groups of counters": (
        updated("bank_stride", counters={"groups": ["banks", "stalls"]}),
        lambda sweep, task, regime: regime == COUNTERS and sweep == "bank_stride",
    ),
    "errors by kind of inputs": (
        updated("fp32_ladder", errors={"sizes": [4096]}),
        lambda sweep, task, regime: (
            sweep == "fp32_ladder"
            and regime != COUNTERS
            and task.cell.size["m"] == 4096
        ),
    ),
    "a regime": (
        updated("tensor_ladder", regimes=["cold", "warm", "sustained"]),
        lambda sweep, task, regime: sweep == "tensor_ladder" and regime == "sustained",
    ),
    "a sweep's own precision": (
        updated("tensor_ladder", precision=0.01),
        times_of("tensor_ladder"),
    ),
    "what it is timed against": (
        updated("tensor_ladder", references=["cublas", "cublaslt"]),
        times_of("tensor_ladder"),
    ),
    "which variant it is timed against": (
        in_sweep(
            "bank_stride",
            lambda sweep: sweep["references"][0]["params"].update(stride=2),
        ),
        times_of("bank_stride"),
    ),
    "captions, titles and questions": (in_sweep("fp32_ladder", reworded), nothing),
    "a sweep's name": (
        lambda it: (it.project.sweeps / "fp32_ladder.yaml").rename(
            it.project.sweeps / "renamed.yaml"
        ),
        nothing,
    ),
}


def shown(cells: Iterable[Due]) -> list[str]:
    return sorted(
        f"{sweep}: {task.variant} at {dict(task.cell.size)} {regime}"
        for sweep, task, regime in cells
    )


@pytest.mark.parametrize("change", CHANGES)
def test_exactly_what_depends_on_a_change_is_measured_again(
    measured: Measured, change: str
) -> None:
    make, wanted = CHANGES[change]
    make(measured)
    found = shown(measured.due())
    expected = [one for one in measured.planned() if wanted(*one)]
    assert found == shown(one for one in expected if one[2] != COUNTERS)
    # Counters are of cells that have times.
    measured.record(facts=measured.made, metrics=False)
    assert shown(measured.due()) == []
    counted = shown(measured.uncounted())
    assert counted == shown(one for one in expected if one[2] == COUNTERS)
    assert bool(found or counted) == (wanted is not nothing)


@pytest.mark.parametrize("library", ["cublaslt", "cublaslt_fast"])
def test_cublaslts_algorithms_matter_where_it_is_a_reference(
    measured: Measured, library: str
) -> None:
    measured.update("tensor_ladder", references=["cublas", library])
    measured.record(["tensor_ladder"])
    assert shown(measured.due()) == []
    setting(lt_heuristics=3)(measured)
    assert {sweep for sweep, _, _ in measured.due()} == {"tensor_ladder"}


@pytest.mark.parametrize(
    ("status", "more", "tries", "began", "again"),
    [
        ("timeout", {"limit_s": 60.0}, 1, AFTER, False),
        ("timeout", {"limit_s": 59.0}, 1, AFTER, True),
        ("incorrect", {}, 1, AFTER, False),
        ("unsupported", {}, 1, AFTER, False),
        ("launch_error", {}, 1, AFTER, True),
        ("launch_error", {}, 1, FINISHED, False),
        ("launch_error", {}, 2, AFTER, False),
        ("unsupported", {"transient": True}, 3, AFTER, True),
        ("unsupported", {"transient": True}, 3, FINISHED, False),
    ],
)
def test_which_failures_are_tried_again(
    status: str,
    more: Fields,
    tries: int,
    began: str,
    again: bool,
    tmp_path: Path,
) -> None:
    """A timeout under a longer deadline, a launch once more, what others may be to blame for until it is measured."""
    lab = Lab(tmp_path)
    lab.settings = {"measure": {"deadline_s": 60}}
    for number in range(tries):
        lab.session = replace(SESSION, id=f"session-{number}")
        lab.record(
            ["tensor_ladder"],
            lambda _, record: failed(status, "because")(record) | more,
        )
    view = replace(lab.view("tensor_ladder"), on=lab.on("gemm"))
    schedule = Schedule(view, began)
    assert bool(schedule.due()) == again


def test_a_variant_that_did_not_compile_is_measured_once_it_does(
    tmp_path: Path,
) -> None:
    def broken(variant: Any, facts: Fields) -> Fields:
        lost = {"status": "compile_error", "reason": "expected a ;", "machine_code": ""}
        return facts | (lost if variant.kernel.name == "wmma_tile" else {})

    measured = Measured(tmp_path, made=broken)
    measured.record(["tensor_ladder"], facts=broken)
    assert [one for one in measured.due() if one[0] == "tensor_ladder"] == []
    measured.made = lambda _, facts: facts
    assert {
        task.cell.kernel
        for sweep, task, _ in measured.due()
        if sweep == "tensor_ladder"
    } == {"wmma_tile"}


def test_sustained_beside_the_regimes_of_a_sweep_is_measured_once(
    measured: Measured,
) -> None:
    lab, name, chosen = measured, "fp32_transpose", {"sizes": [4096]}
    setting(sessions=2)(lab)
    lab.update(name, repeated=chosen, sustained=chosen, regimes=["cold"])

    def due() -> set[str]:
        """Regimes of repeated cells."""
        lab.compile(lab.sweep_of(name))
        schedule = Schedule(replace(lab.view(name), on=lab.on("gemm")))
        tasks = schedule.plan.tasks
        regimes = set[str]()
        for index, of_task in schedule.due(SESSION.gpu["uuid"]):
            regimes |= {*of_task} if tasks[index].repeated else set()
        return regimes

    def with_sustained(_: Any, given: Fields) -> Fields:
        regimes = given["regimes"]
        return given | {"regimes": regimes | {"sustained": regimes["cold"]}}

    assert due() == {"cold", "sustained"}
    lab.record([name], with_sustained)
    assert due() == {"cold"}
    lab.update(name, regimes=["cold", "sustained"])
    assert due() == {"cold", "sustained"}, "a regime of the sweep itself is repeated"

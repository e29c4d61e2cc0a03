"""What no sweep measures, errors by kind of inputs and beta = 1: on a host in a GPU's place, and in the report."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT, run_snakemake
from ladder.catalogue.config import ExtrasConfig
from ladder.catalogue.extras import extra_sweep
from ladder.claims.primitives import Unmeasured
from ladder.cli.extras import choices, chosen_of, timings_of
from ladder.gpu import instance as instances
from ladder.gpu import libraries
from ladder.gpu.libraries import Gemm
from ladder.gpu.timing import Pairs
from ladder.measure.bench import CellOutcome
from ladder.measure.extras import tasks_of
from ladder.measure.extras_worker import accumulation, accuracy
from ladder.measure.store import Records, read_store
from ladder.model.cell import Cell, Reference
from ladder.model.folders import RunFolder
from ladder.model.plan import Launch, Task
from ladder.problems.gemm.instance import GemmInstance
from ladder.report import answers
from ladder.report.evidence import Evidence
from ladder.report.links import Links
from ladder.results import tables
from rendering import SWEEPS, made

SIZE = {"m": 24, "n": 16, "k": 40}


class Memory:
    """A buffer of the host."""

    def __init__(self, size: int) -> None:
        self.size, self._data = size, ctypes.create_string_buffer(size)
        self.handle = ctypes.addressof(self._data)

    @staticmethod
    def from_handle(pointer: int, size: int, owner: Any) -> Any:
        return SimpleNamespace(handle=pointer, size=size, fill=Memory.filling(pointer, size), close=print)

    @staticmethod
    def filling(pointer: int, size: int) -> Callable[..., None]:
        return lambda value, stream: ctypes.memmove(pointer, value * (size // len(value)), size) and None

    def fill(self, value: int, stream: Any) -> None:
        ctypes.memset(self.handle, value, self.size)

    def close(self, *_: Any) -> None:
        pass


def at(pointer: int, shape: tuple[int, ...], kind: Any = np.float32) -> Any:
    """Numbers of the host's memory as an array."""
    size = int(np.prod(shape)) * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(pointer), kind).reshape(shape)


class Host:
    """A GPU, its harness and the libraries, in the host's memory."""

    stream, full_rate_fp64, free, guards = None, True, staticmethod(lambda: None), ()
    zeros_were_written = staticmethod(lambda: False)

    def __init__(self) -> None:
        self.harness, self.drawn = self, 0

    def allocate(self, size: int) -> Memory:
        return Memory(max(size, 16))

    def copy(self, target: int, source: int, size: int) -> None:
        ctypes.memmove(target, source, size)

    def download(self, pointer: int, size: int) -> bytes:
        return ctypes.string_at(pointer, size)

    def run(self, entry: str, count: int, *given: Any) -> None:
        if entry == "fill<float>":
            self.drawn += 1
            values = np.random.default_rng(self.drawn).uniform(-1, 1, count)
            at(given[0], (count,))[:] = np.abs(values) if given[3].value == 1 else values
        elif entry == "widen<float>":
            out, pointer, rows, columns, by_row, by_column, absolute = given
            assert (by_row, by_column) == (columns, 1)
            numbers = at(pointer, (rows, columns)).astype(np.float64)
            at(out, (rows, columns), np.float64)[:] = np.abs(numbers) if absolute.value else numbers

    def cublas(self, gemm: Gemm) -> Callable[[], None]:
        (m, n, k), kind = gemm.size, np.float64 if gemm.dtype == "fp64" else np.float32
        scalars = libraries._scalars(gemm.dtype)[0]

        def launch() -> None:
            a, b = at(gemm.pointers[0], (m, k), kind), at(gemm.pointers[1], (k, n), kind)
            b = at(gemm.pointers[1], (n, k), kind).T if gemm.layout == "TN" else b
            rounded = (one.astype(np.float16) if gemm.dtype == "tf32" else one for one in (a, b))
            c, product = at(gemm.pointers[2], (m, n), kind), np.matmul(*rounded, dtype=kind)
            c[:] = product + (scalars[1] * c if scalars[1] else 0)

        return launch

    def cublaslt(self, gemm: Gemm, *_: Any) -> tuple[Callable[[], None], str]:
        return self.cublas(gemm), "id 1"


class Bench:
    """As much of a bench as extras need. Its kernels are right, or wrong with beta; its timer launches all once."""

    def __init__(self, ignores_beta: bool = False) -> None:
        self.gpu: Any = Host()
        self.timer, self.instances, self.ignores_beta = self, dict[Any, GemmInstance](), ignores_beta

    def instance(self, cell: Cell) -> GemmInstance:
        if cell.operands not in self.instances:
            made = GemmInstance(self.gpu, self.gpu, cell.size, cell.dtype, cell.layout)
            self.draw(made)
            self.instances[cell.operands] = made
        return self.instances[cell.operands]

    def release(self) -> None:
        self.instances.clear()

    def draw(self, instance: GemmInstance) -> None:
        instance.fill_inputs(1)

    def load(self, launch: Launch, instance: GemmInstance) -> Callable[[], None]:
        dtype, beta = launch.variant.split("-")[1], instance.scalars["beta"]
        pointers: Any = tuple(instance.pointer(name) for name in "abc")
        product = self.gpu.cublas(
            Gemm(pointers, (instance.m, instance.n, instance.k), dtype, instance.layout)
        )

        def launched() -> None:
            scalars, _, _ = libraries._scalars(dtype)
            before, scalars[1] = scalars[1], 0 if self.ignores_beta else beta
            product()
            scalars[1] = before

        return launched

    def check(self, launcher: Callable[[], None], params: Any, instance: GemmInstance) -> Any:
        instance.poison_outputs()
        launcher()
        a, b = (at(instance.pointer(name), instance.tensors[name].shape) for name in "ab")
        expected = a @ (b.T if instance.layout == "TN" else b)
        if instance.scalars["beta"]:
            expected = expected + at(instance.pointer("before"), expected.shape)
        correct = np.allclose(at(instance.pointer("c"), expected.shape), expected, atol=1e-2)
        return SimpleNamespace(correct=correct), 5.0

    def verified(self, launch: Launch, instance: GemmInstance) -> Any:
        loaded = self.load(launch, instance)
        check, us = self.check(loaded, {}, instance)
        if not check.correct:
            raise CellOutcome("incorrect", "wrong")
        return loaded, check, us

    def singly(self, sides: Any, swapped: Any, rule: Any, regime: str, shortest_us: float) -> Pairs:
        assert (regime, shortest_us) == ("cold", 5.0)
        (instance,) = self.instances.values()
        for own, place in ((sides[0], 0), (sides[1], 1), (swapped[0], 1), (swapped[1], 0)):
            for _ in range(2):  # C is what it was ahead of each launch
                own.refresh()
                own.launch()
            with instance.writing_to(place):
                c = at(instance.pointer("c"), (SIZE["m"], SIZE["n"])).copy()
                assert self.check(own.launch, {}, instance)[0].correct
                assert np.array_equal(c, at(instance.pointer("c"), c.shape))
        slower = 1 + instance.scalars["beta"]
        return Pairs([2.0 * slower] * 12, [3.0 * slower] * 12)


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "Buffer", Memory)


def task(dtype: str, layout: str = "TN") -> Task:
    cell = Cell("k", {}, dtype, layout, SIZE, "cold", Reference(libraries=("cublas", "cublaslt")))
    launch = Launch((1, 1, 1), (32, 1, 1), None, 0, variant=f"k-{dtype}", params={}, arguments=())
    return Task(launch.variant, cell, "a rung", None, launch, None, counted=False)


@pytest.mark.parametrize("layout", ["NN", "TN"])
def test_errors_are_against_fp64_and_of_every_dtype_with_the_same_inputs(layout: str) -> None:
    bench: Any = Bench()
    rows = list(accuracy(bench, [task("fp32", layout), task("tf32", layout)], ["uniform", "positive"]))
    assert [(row["who"], row["dtype"]) for row in rows if row["inputs"] == "positive"] == [
        ("kernel", "fp32"),
        ("kernel", "tf32"),
        ("cublas", "fp32"),
        ("cublaslt", "fp32"),
        ("cublas", "tf32"),
        ("cublaslt", "tf32"),
    ]
    for row in rows:
        assert row["layout"] == layout
        assert row["rms_error"] < row["max_error"]
        least, most = (2e-5, 2e-3) if row["dtype"] == "tf32" else (1e-9, 1e-6)
        assert least < row["max_error"] < most, row
    assert len({row["max_error"] for row in rows if row["who"] == "cublas"}) == 4, "inputs are drawn anew"


def test_launches_with_beta_start_from_the_same_c_on_both_sides() -> None:
    bench: Any = Bench()
    rows = list(accumulation(bench, None, [task("fp32")]))  # type: ignore[arg-type]
    assert [(row["beta"], row["reference"], row["median_us"]) for row in rows] == [
        (0.0, "cublas", 2.0),
        (0.0, "cublaslt", 2.0),
        (1.0, "cublas", 4.0),
        (1.0, "cublaslt", 4.0),
    ]
    assert {(row["speedup"], row["speedup_low"], row["samples"]) for row in rows} == {(1.5, 1.5, 12)}
    assert [row["algorithm"] for row in rows] == ["", "id 1"] * 2
    assert list(libraries._scalars("fp32")[0]) == [1, 0], "as other launches expect them"


def test_a_kernel_that_is_wrong_with_beta_has_no_row_there(caplog: pytest.LogCaptureFixture) -> None:
    bench: Any = Bench(ignores_beta=True)
    with caplog.at_level(logging.WARNING):
        rows = list(accumulation(bench, None, [task("fp32")]))  # type: ignore[arg-type]
    assert {row["beta"] for row in rows} == {0.0}
    assert "k-fp32@24x16x40:cold, beta = 1: wrong" in caplog.text
    assert list(libraries._scalars("fp32")[0]) == [1, 0]


ASKED = ExtrasConfig(
    enabled=True,
    sweeps=["fp32_ladder"],
    beta_sizes=[512, 1024],
    error_dtypes=["fp32"],
    error_rows=256,
    error_depths=[128],
    error_inputs=["uniform"],
)


def test_the_fastest_by_the_runs_records_are_taken_and_by_published_ones_without_any(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = made(tmp_path)
    sweep = lab.sweeps()["fp32_ladder"]
    nowhere = RunFolder(tmp_path / "nowhere")
    own = timings_of(lab.folder, read_store(lab.folder.records), nowhere, "fp32_ladder")
    sizes = sorted({size["m"] for size in sweep.sizes})[-2:]
    found = [*choices(own, "fp32_ladder", sweep.regimes[0], sizes)]
    for (_, variant, size), m in zip(found, sizes, strict=True):
        here = own[(own["m"] == m) & (own["regime"] == sweep.regimes[0]) & own["baseline"].isna()]
        assert (variant, size) == (here.loc[here["speedup"].idxmax(), "variant"], m)
    none = timings_of(nowhere, Records(), nowhere, "fp32_ladder")
    assert [*choices(none, "fp32_ladder", "cold", sizes)] == []
    two = ASKED.model_copy(update={"sweeps": ["fp32_ladder", "fp32_tensor"], "beta_sizes": sizes})
    sweeps = {**lab.sweeps(), "fp32_tensor": sweep}
    assert chosen_of(two, sweeps, lab.folder, nowhere) == found
    assert "fp32_tensor is left out: nothing of it was timed at" in caplog.text
    assert "fp32_ladder is left out" not in caplog.text
    asked = extra_sweep(ASKED, lab.sweeps(), [*found, ("fp32_ladder", "gone", sizes[0])])
    assert asked is not None
    plan = lab.plan(asked)
    assert [plan.tasks[one].variant for one in tasks_of(plan, [dict.fromkeys("mnk", sizes[1])])] == [
        found[1][1]
    ]
    errors = tasks_of(plan, [{"m": 256, "n": 256, "k": 128}], ["fp32"])
    assert {plan.tasks[one].variant for one in errors} == {variant for _, variant, _ in found}
    assert extra_sweep(ASKED, lab.sweeps(), [("fp32_ladder", "gone", 512)]) is None


def rows_of_accuracy() -> list[dict[str, Any]]:
    place = {"gpu_uuid": "GPU-a", "layout": "TN", "m": 1024, "n": 1024}
    kernel = {"sweep": "fp32_ladder", "variant": "v", "rung": "tile_1", "who": "kernel"}
    return [
        {**place, **who, "k": k, "inputs": kind, "max_error": units * k * 2.0**-24, "rms_error": 2.0**-24}
        for k in (512, 4096)
        for kind, times in (("uniform", 1.0), ("wide", 2.0))
        for who, units in (
            ({**kernel, "dtype": "fp32"}, 0.5 * times),
            ({"who": "cublas", "dtype": "fp32"}, 1.0),
            ({**kernel, "dtype": "tf32", "rung": "other"}, 1000.0),
        )
    ]


def rows_of_accumulation() -> list[dict[str, Any]]:
    about = {"gpu_uuid": "GPU-a", "sweep": "fp32_ladder", "variant": "v", "rung": "tile_1", "dtype": "fp32"}
    about |= {"layout": "NN", **dict.fromkeys("mnk", 4096), "samples": 12, "clock": "events"}
    return [
        {**about, "beta": beta, "reference": name, "median_us": own, "reference_median_us": other}
        | {"speedup": other / own, "speedup_low": other / own - 0.01, "speedup_high": other / own + 0.01}
        for beta, own, name, other in (
            (0.0, 100.0, "cublas", 105.0),
            (0.0, 101.0, "cublaslt", 120.0),
            (1.0, 110.0, "cublas", 130.0),
            (1.0, 112.0, "cublaslt", 126.0),
        )
    ]


def test_answers_have_errors_beside_cublas_and_beta_1_beside_the_faster_library(tmp_path: Path) -> None:
    lab = made(tmp_path)
    failed = [
        row | {"rung": "tile_2", "variant": "other"} for row in rows_of_accumulation() if row["beta"] == 0
    ]
    found = {"accuracy": rows_of_accuracy(), "accumulation": rows_of_accumulation() + failed}
    written = {name: tables.frame(name, rows) for name, rows in found.items()}
    tables.write(written, lab.folder.tables)
    for name, frame in written.items():
        pd.testing.assert_frame_equal(tables.read(name, lab.folder.tables), frame)
    data = Evidence.read(lab.folder, lab.sweeps(SWEEPS))
    ratios = answers.accuracy(data)["ratios"]
    assert ratios["fp32"] == {"uniform": [0.5, 0.5], "wide": [1.0, 1.0]}
    assert ratios["tf32"]["uniform"] == pytest.approx([1000.0, 1000.0])
    cost = answers.accumulation(data)
    assert len(cost["gains"]) == 1, "one that is not within the error bound with beta = 1 is left out"
    assert cost["gains"][0].value == pytest.approx(1.125)
    assert (cost["own"], cost["library"]) == (pytest.approx([0.12]), pytest.approx([0.2]))
    said = {one.name: one for one in answers.answers(data, Links(lab.folder, lab.folder.root, data))}
    assert said["accumulation"].headline == "Reading C costs our kernels 12 % and the libraries 20 %."
    assert "One TF32 product has 1000 to 1000 times its error." in said["accuracy"].also


@pytest.mark.parametrize("ask", [answers.accuracy, answers.accumulation])
def test_without_them_the_answer_says_how_to_measure(tmp_path: Path, ask: Any) -> None:
    lab = made(tmp_path)
    with pytest.raises(Unmeasured, match="python -m ladder extras does that, on a GPU"):
        ask(Evidence.read(lab.folder, lab.sweeps(SWEEPS)))


@pytest.mark.parametrize(
    ("sweeps", "count"), [("fp32_tensor, fp32_ladder, hopper_dtypes", 1), ("fp32_tensor", 0)]
)
def test_a_run_with_all_their_sweeps_measures_them(sweeps: str, count: int) -> None:
    given = ("run=test-plan", "device=nvidia-h200", "arch=sm_90a", f"sweeps=[{sweeps}]")
    outcome = run_snakemake(ROOT, "-n", "--config", *given)
    assert outcome.code == 0, outcome.text
    assert outcome.jobs.count("Measuring errors by kind of inputs, and C = A B + C") == count

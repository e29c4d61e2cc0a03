"""Times with zeros in place of random numbers: in turns, verified, of the fastest kernels, in a table of their own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from factory import Lab
from fake_gpu import FakeBuffer
from ladder.cli.app import main
from ladder.gpu.discovery import FoundGpu
from ladder.measure import bench
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import read_store
from ladder.measure.zeros import zeros
from ladder.measure.zeros_job import fastest
from ladder.model.errors import LadderError
from ladder.model.files import read_json, write_json
from ladder.model.plan_file import read_plan
from ladder.results import tables
from test_worker import Gpu, Harness, plan_of, played

GPU = FoundGpu(0, "NVIDIA H200", "GPU-of-the-tests", (9, 0))
ZEROS, RANDOM = -1, 0
SUBJECT = {"us": 900.0, "reference": "cublas", "algorithm": "", "reference_us": 800.0}

_ = played  # the fixture that plays a GPU


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Times the first bf16 kernel of a sweep; `seen` has the kind of A and B in each of its launches."""
    plan, seen = plan_of("hopper_dtypes", tmp_path), list[tuple[int, int]]()
    (tmp_path / "none.cubin").touch()
    filled = dict[int, bytes | int]()
    monkeypatch.setattr(FakeBuffer, "fill", lambda self, value, stream: filled.update({self.handle: value}))

    def load(cubin: bytes, launch: Any, instance: Any) -> Any:
        def launched() -> None:
            inputs = [instance.tensors[name] for name in "ab"]
            seen.append((inputs[0].kind.value, inputs[1].kind.value))
            for one in inputs:
                assert one.kind.value != ZEROS or filled.get(int(one.whole.handle)) == b"\0"

        return launched

    monkeypatch.setattr(bench, "load", load)
    index = next(at for at, task in enumerate(plan.tasks) if task.cell.size["m"] == 8192)

    def run(**over: Any) -> list[dict[str, Any]]:
        write_json(tmp_path / "answer.json", zeros(plan, tmp_path, [{"index": index, **SUBJECT, **over}]))
        answer = read_json(tmp_path / "answer.json")  # as the job reads it
        assert answer is not None
        return list(answer["zeros"])

    return run, seen


def test_each_regime_has_a_row_of_kernel_and_library_and_inputs_take_turns(timed: Any) -> None:
    run, seen = timed
    rows = run()
    assert [(row["side"], row["regime"]) for row in rows] == [
        ("kernel", "cold"),
        ("kernel", "sustained"),
        ("library", "cold"),
        ("library", "sustained"),
    ]
    assert {row["subject"] for row in rows[2:]} == {"cublas"}
    assert {*rows[0]} >= {*tables.SCHEMAS["zeros"]} - {
        "gpu_uuid",
        "sweep",
        "elements",
        "sequence",
        "heads",
        "d",
    }
    assert all(row["samples"] >= 6 for row in rows)
    first = seen.index((ZEROS, ZEROS))
    assert first > 1
    assert {*seen[:first]} == {(kind, kind) for kind in range(4)}, "it is verified with random numbers first"
    assert {*seen[first:]} == {(ZEROS, ZEROS), (RANDOM, RANDOM)}
    turns = seen[first + 18 :]  # behind the readings of the clock
    groups = [turns[at : at + 4] for at in range(1, 13, 4)]  # one more is in front
    for group in groups:
        assert group in ([group[0], group[1], group[1], group[0]],)
        assert {*group} == {(ZEROS, ZEROS), (RANDOM, RANDOM)}


def test_a_short_kernel_is_not_sustained(timed: Any) -> None:
    run, _ = timed
    assert [row["regime"] for row in run(us=20.0)] == ["cold", "cold", "sustained"]


def test_zeros_that_do_not_give_zeros_are_an_error(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = timed
    monkeypatch.setattr(Gpu, "download", lambda self, pointer, size: bytes(size - 1) + b"\1")
    with pytest.raises(
        LadderError, match=r"hopper_gemm-bf16-TN.*: with inputs of zeros 1 bytes of c are not"
    ):
        run()


def test_a_wrong_launch_with_random_numbers_is_an_error(timed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = timed
    monkeypatch.setattr(Harness, "read_check_results", lambda self, keys: [math.inf] * len(keys))
    with pytest.raises(LadderError, match=r"hopper_gemm-bf16-TN.*: with random inputs: \d+ of \d+ timed"):
        run()


def test_of_each_size_the_fastest_over_libraries_is_timed(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["fp32_ladder"])
    plan = read_plan(lab.folder.plan("fp32_ladder"))
    found = fastest(PlanRecords(plan, read_store(lab.folder.records)), "fp32")
    tasks = [plan.tasks[one["index"]] for one in found]
    assert [task.cell.size["m"] for task in tasks] == [512, 1024, 2048, 4096, 8192]
    assert {task.rung for task in tasks} == {"transposed A"}
    assert {(one["reference"], one["algorithm"]) for one in found} == {("cublas", "")}
    assert all(one["us"] > one["reference_us"] > 0 for one in found)
    assert fastest(PlanRecords(plan, read_store(lab.folder.records)), "bf16") == []


def test_the_step_writes_a_table_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    lab = Lab(tmp_path)
    lab.record(["fp32_ladder"])
    cell = {"subject": "one", "side": "kernel", "dtype": "fp32", "layout": "NN", "m": 8, "n": 8, "k": 8}
    cell |= {"regime": "cold", "zeros_us": 9.0, "random_us": 10.0, "speedup": 1.11, "samples": 12}
    row = cell | {"speedup_low": 1.1, "speedup_high": 1.12, "zeros_mhz": 1980.0, "random_mhz": 1700.0}

    def run_on_gpu(task: str, path: Path, plan: Any, root: Path, gpus: Any, request: Any) -> Any:
        assert (task, len(request)) == ("zeros", 5)
        return gpus[0], {"zeros": [row]}

    monkeypatch.setattr("ladder.measure.zeros_job.run_on_gpu", run_on_gpu)
    monkeypatch.setattr("ladder.measure.zeros_job.find_gpus", lambda: [GPU])
    monkeypatch.setattr("ladder.cli.measure.end_with_parent", lambda: None)
    plan = str(lab.folder.plan("fp32_ladder"))
    assert main(["--root", str(tmp_path), "zeros", plan]) == 2
    assert "--dtype: 'bf16' is not accepted; the run has no result of it over a library" in caplog.text
    assert main(["--root", str(tmp_path), "zeros", plan, "--dtype", "fp32"]) == 0
    (written,) = tables.read("zeros", lab.folder.tables).to_dict("records")
    assert {name: written[name] for name in row} == row
    assert (written["gpu_uuid"], written["sweep"]) == (GPU.uuid, "fp32_ladder")
    assert "one at 8, cold: 1.110 times as fast with zeros, at 1980 and 1700 MHz" in caplog.text

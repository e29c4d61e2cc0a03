"""`reproduce`: a published number, the same cell measured again, and whether it lies where it was predicted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import edit_yaml, make_project
from factory import HERE, SESSION
from ladder.catalogue.kernels import load_kernels
from ladder.catalogue.sweeps import load_sweeps
from ladder.cli.app import main
from ladder.gpu.discovery import FoundGpu
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records, appending
from ladder.model.files import write_json
from ladder.model.folders import Project, RunFolder
from ladder.model.plan import Plan
from ladder.results import tables
from ladder.results.reproduction import inside

GPU = FoundGpu(0, "Made-up GPU", "GPU-of-the-tests", (9, 0))
DEVICE = "made-up"
SIZE = {"elements": 2**16}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two rungs of which one changes the other, and what is published of them."""
    folder = make_project(tmp_path_factory.mktemp("reproduce") / "project")
    rungs = [
        {"kernel": "alone", "params": {"radius": 2}, "rung": "narrow"},
        {
            "kernel": "alone",
            "params": {"radius": 4},
            "rung": "wide",
            "baseline": "narrow",
        },
    ]
    edit_yaml(
        folder / "config/sweeps/alone.yaml", lambda sweep: sweep.update(variants=rungs)
    )
    sweep = load_sweeps(
        folder / "config/sweeps", load_kernels(folder / "kernels"), ["alone"]
    )["alone"]
    narrow, wide = (entry.variant.id for entry in sweep.entries)
    ends = {"speedup": 1.1, "speedup_low": 1.09, "speedup_high": 1.11, "median_us": 9.0}
    common = {
        "sweep": "alone",
        "dtype": "fp32",
        **SIZE,
        "status": "ok",
        "regime": "cold",
        **ends,
    }
    rows = [
        {
            **common,
            "variant": wide,
            "reference": "copy",
            "predicted_low": 1.05,
            "predicted_high": 1.15,
        },
        {
            **common,
            "variant": wide,
            "reference": narrow,
            "baseline": "narrow",
            "predicted_low": 1.0,
        },
        {
            **common,
            "variant": narrow,
            "reference": "copy",
            "status": "unsupported",
            "reason": "no room",
        },
    ]
    published = Project(folder).published(DEVICE)
    tables.write({"timings": tables.frame("timings", rows)}, published.tables)
    about = SESSION.gpu | {"name": "Made-up GPU"}
    whole = HERE | {"device": DEVICE, "gpu": about, "started": "2026-11-22T10:00:00Z"}
    whole |= {"host": {}, **SESSION.versions}
    write_json(published.environment, whole)
    return folder


@pytest.fixture
def again(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Reproduces a cell on a GPU that is none: the cell reads `speedup` there, or has a status."""
    monkeypatch.setattr("ladder.cli.judge.find_gpus", lambda: [GPU])

    def run(cell: str, speedup: float = 1.0, status: str = "ok") -> int:
        def measure(path: Path, plan: Plan, folder: RunFolder, *_: Any) -> None:
            view = PlanRecords(plan, Records())
            with appending(folder.records, plan.sweep) as append:
                for _, task in view.launched():
                    assert (dict(task.cell.size), plan.regimes) == (SIZE, ("cold",)), (
                        "nothing else is measured"
                    )
                    result = {
                        "variant_us": [10.0] * 20,
                        "reference_us": [10.0 * speedup] * 20,
                        "reference": task.reference.variant
                        if task.reference
                        else "copy",
                        "speedup": speedup if task.baseline or "~" not in cell else 9.9,
                        "speedup_low": speedup - 0.01,
                        "speedup_high": speedup + 0.01,
                    }
                    done: dict[str, Any] = (
                        {"result": result} if status == "ok" else {"reason": "no room"}
                    )
                    append(
                        view.new_record(task, "cold", "session", status=status, **done)
                    )

        monkeypatch.setattr("ladder.measure.job.measure", measure)
        words = ["reproduce", cell, "--device", DEVICE, "--config", "arch=sm_90a"]
        return main(["--root", str(checkout), *words])

    return run


WIDE, NARROW = "alone/alone-fp32-radius=4@2^16:cold", "alone/alone-fp32@2^16:cold"


@pytest.mark.parametrize(
    ("speedup", "code", "verdict"),
    [
        (1.14, 0, "inside the predicted interval"),
        (1.2, 1, "outside the predicted interval"),
    ],
)
def test_the_new_value_is_held_against_what_was_predicted(
    again: Callable[..., int],
    speedup: float,
    code: int,
    verdict: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert again(WIDE, speedup) == code
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        WIDE,
        "published, Made-up GPU, 2026-11-22: 1.1 [1.09, 1.11] x copy, 9.00 us",
        "predicted on another GPU: 1.05 to 1.15",
        f"measured now, Made-up GPU: {speedup:g} [{speedup - 0.01:g}, {speedup + 0.01:g}] x copy, 10.00 us",
        verdict,
    ]


@pytest.mark.parametrize(
    ("over_other", "value", "lies"),
    [(1.12, 1.12, True), (1.12, 1.0, False), (None, 1.0, True)],
)
def test_over_another_library_the_prediction_is_that_over_it(
    over_other: Any, value: float, lies: bool
) -> None:
    """Published: 1.00 over cublaslt, and 1.12 over cublas if that is known; now the session took cublas."""
    row = {
        "status": "ok",
        "reference": "cublaslt",
        "speedup": 1.0,
        "predicted_low": 0.97,
        "predicted_high": 1.03,
    }
    row |= {
        "speedup_low": 0.99,
        "speedup_high": 1.01,
        "over_cublaslt": 1.0,
        "over_cublas": over_other,
    }
    assert inside(row, ("ok", "", {"reference": "cublas", "speedup": value})) is lies
    assert inside(row, ("ok", "", {"reference": "cublaslt", "speedup": 1.02})) is True


def test_a_pair_with_a_baseline_is_a_cell_of_its_own(
    again: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert again(f"{WIDE}~narrow", 1.3) == 0
    out = capsys.readouterr().out
    assert "1.3 [1.29, 1.31] x alone-fp32, 10.00 us" in out
    assert out.splitlines()[-1] == "no prediction to hold it against"


def test_a_status_is_reproduced_too(
    again: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert again(NARROW, status="unsupported") == 0
    assert "unsupported: no room" in capsys.readouterr().out
    assert again(NARROW, 1.0) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "not as published"


def test_without_a_gpu_or_a_cell_it_says_so(
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("ladder.cli.judge.find_gpus", list)
    assert main(["--root", str(checkout), "reproduce", WIDE, "--device", DEVICE]) == 2
    assert "1.1 [1.09, 1.11] x copy" in capsys.readouterr().out, (
        "what was published is printed all the same"
    )
    assert (
        caplog.messages[-1] == "error: no GPU is visible, and this step measures on one"
    )
    assert (
        main(["--root", str(checkout), "reproduce", WIDE[:-1], "--device", DEVICE]) == 2
    )
    assert caplog.messages[-1].endswith(
        f"a cell of the published tables, such as {WIDE}"
    )

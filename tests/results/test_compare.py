"""Comparing runs: noise is no news, regressions end with exit code 1."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment
from factory import SESSION, Lab, failed
from ladder.cli.app import main
from ladder.results import tables
from ladder.results.compare import WITHIN_A_GPU, margin_of

SWEEP = ["tensor_ladder"]


def slower(share: float) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    """Make the tile kernel slower by a share, against the same reference."""

    def change(place: Any, record: dict[str, Any]) -> dict[str, Any]:
        if place.variant.kernel.name == "wmma_tile":
            for regime in record["regimes"].values():
                regime["variant_us"] = [
                    value * (1 + share) for value in regime["variant_us"]
                ]
                for name in ("speedup", "speedup_low", "speedup_high"):
                    regime[name] /= 1 + share
        return record

    return change


@pytest.fixture
def base(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path, run="base")
    lab.record(SWEEP)
    return lab


def other(base: Lab, change: Any, **more: Any) -> Lab:
    lab = Lab(base.root, run="other", **more)
    lab.record(SWEEP, change)
    return lab


def on(uuid: str) -> dict[str, Any]:
    """A session on another GPU of the model."""
    return {
        "session": replace(
            SESSION, id=f"session of {uuid}", gpu={**SESSION.gpu, "uuid": uuid}
        )
    }


def unchanged(_: Any, record: dict[str, Any]) -> dict[str, Any]:
    return record


def compare(base: Lab, lab: Lab, *options: str) -> int:
    for run in (base, lab):
        run.collect(SWEEP)
    return main(["compare", str(base.folder.root), str(lab.folder.root), *options])


def test_the_same_numbers_are_no_regression(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(base, other(base, unchanged)) == 0
    assert "4 cells matched, 4 of them alike within noise" in capsys.readouterr().out


def test_noise_is_no_regression(base: Lab) -> None:
    lab = other(base, unchanged, seed=99)
    assert compare(base, lab, "--threshold", "0") == 0


def test_a_step_of_the_clock_is_no_regression(tmp_path: Path) -> None:
    def short(
        own: float, clock: str
    ) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
        def change(_: Any, record: dict[str, Any]) -> dict[str, Any]:
            times = {
                "variant_us": [own] * 20,
                "reference_us": [2.4] * 20,
                "clock": clock,
            }
            for regime in record["regimes"].values():
                regime |= times | dict.fromkeys(
                    ("speedup", "speedup_low", "speedup_high"), 2.4 / own
                )
            return record

        return change

    found = []
    for clock in ("device", "events"):
        runs = [Lab(tmp_path, run=f"{clock}-{own}") for own in (2.4, 2.432)]
        for lab, own in zip(runs, (2.4, 2.432), strict=True):
            lab.record(SWEEP, short(own, clock))
        found.append(compare(*runs, "--threshold", "0"))
    assert found == [0, 1]


def test_a_regression_above_the_threshold_exits_with_1(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(base, other(base, slower(0.05))) == 1
    shown = capsys.readouterr().out
    assert "slower (2):" in shown
    assert "wmma_tile" in shown
    assert "wmma_naive" not in shown


def test_a_regression_below_the_threshold_is_shown_but_passes(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(base, other(base, slower(0.05)), "--threshold", "10") == 0
    assert "slower (2):" in capsys.readouterr().out


def over(
    library: str, share: float = 0.0
) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    """The tile kernel over that library, by a share slower."""

    def change(place: Any, record: dict[str, Any]) -> dict[str, Any]:
        if place.variant.kernel.name == "wmma_tile":
            for regime in record["regimes"].values():
                regime["reference"] = library
        return slower(share)(place, record)

    return change


def test_a_change_of_the_library_is_no_change_of_the_kernel(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(base, over("cublaslt", 0.05))
    base.record(SWEEP, over("cublas"))
    assert compare(base, lab) == 0
    shown = capsys.readouterr().out
    assert "over another library (2):" in shown
    assert "cublas -> cublaslt" in shown
    assert "2 cells matched" in shown


def test_of_several_gpus_those_over_the_same_library_are_compared(base: Lab) -> None:
    base.record(SWEEP, over("cublas"))
    lab = other(base, over("cublaslt", 0.2))
    lab.session = on("GPU-2")["session"]
    lab.record(SWEEP, over("cublas"))
    assert compare(base, lab) == 0, "the slower one is over the other library"


def test_runs_over_different_libraries_throughout_have_cells_in_common(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    def elsewhere(_: Any, record: dict[str, Any]) -> dict[str, Any]:
        for regime in record["regimes"].values():
            regime["reference"] = "another"
        return record

    assert compare(base, other(base, elsewhere)) == 0
    assert "over another library (4):" in capsys.readouterr().out


def test_two_gpus_of_a_model_differ_by_more_than_one_from_day_to_day(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(base, slower(0.015), **on("GPU-2"))
    assert compare(base, lab, "--threshold", "1") == 0
    assert "changes beyond 2.5 % count" in capsys.readouterr().out


def test_one_gpu_agrees_with_itself_more_closely(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(base, other(base, slower(0.015)), "--threshold", "1") == 1
    assert "changes beyond 0.5 % count" in capsys.readouterr().out


def test_records_of_unknown_gpus_are_held_to_the_wider_margin(base: Lab) -> None:
    lab = other(base, slower(0.015), session=replace(SESSION, gpu={}))
    assert compare(base, lab, "--threshold", "1") == 0


def test_a_terminal_that_knows_ascii_only_gets_question_marks(
    base: Lab, tmp_path: Path
) -> None:
    base.collect(SWEEP)
    place = shutil.copytree(base.folder.root, tmp_path / "é")
    command = [sys.executable, "-m", "ladder", "compare", str(place), str(place)]
    done = subprocess.run(
        command,
        capture_output=True,
        env=environment()
        | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT / "workflow")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"/?: 1 GPU" in done.stdout


def test_a_gain_passes(base: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(base, other(base, slower(-0.05))) == 0
    assert "faster (2):" in capsys.readouterr().out


def test_a_cell_no_longer_ok_is_a_regression(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(base, lambda _, record: failed("incorrect", "wrong")(record))
    assert compare(base, lab) == 1
    assert "ok -> incorrect" in capsys.readouterr().out
    assert compare(lab, base) == 0
    assert "incorrect -> ok" in capsys.readouterr().out


def test_missing_and_new_cells_are_listed(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(
        base,
        lambda place, record: (
            None if place.variant.kernel.name == "wmma_tile" else record
        ),
    )
    assert compare(base, lab) == 0
    assert (
        "missing in B (2):\n  tensor_ladder/wmma_tile-fp16@4096:cold"
        in capsys.readouterr().out
    )
    assert compare(lab, base) == 0
    assert (
        "new in B (2):\n  tensor_ladder/wmma_tile-fp16@4096:cold"
        in capsys.readouterr().out
    )


def test_runs_without_a_common_cell_are_a_mistake(
    base: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(base.root, run="other")
    lab.record(["bank_stride"])
    base.collect(SWEEP)
    lab.collect(["bank_stride"])
    assert main(["compare", str(base.folder.root), str(lab.folder.root)]) == 2
    assert "no cell in common that gave a result" in caplog.text


def test_a_published_folder_compares_as_well(base: Lab, tmp_path: Path) -> None:
    base.session = replace(SESSION, gpu={**SESSION.gpu, "uuid": "GPU-22222222-3333"})
    base.record(SWEEP)
    base.collect(SWEEP)
    published = shutil.copytree(base.folder.tables, tmp_path / "published")
    sessions = tables.read("sessions", published)
    tables.write(
        {"sessions": sessions.assign(gpu_uuid=sessions["gpu_uuid"].str[:12])}, published
    )
    margin = margin_of(
        tables.read("sessions", published), tables.read("sessions", base.folder.tables)
    )
    assert margin == WITHIN_A_GPU, "the same GPUs, whose names are published shortened"
    assert main(["compare", str(published), str(base.folder.root)]) == 0


def test_a_folder_without_tables_is_refused(
    base: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["compare", str(base.folder.root), str(base.folder.root)]) == 2
    assert "RUN_A" in caplog.text


@pytest.mark.parametrize("value", ["nan", "-1", "100", "inf"])
def test_a_share_that_is_none_is_refused(
    base: Lab, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert compare(base, base, "--threshold", value) == 2
    assert f"--threshold: {value}" in caplog.text.replace(f"{float(value)}", value)
    assert "a percentage from 0 to 100" in caplog.text


def test_what_was_wrong_in_an_earlier_session_is_hidden_by_no_later_one(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(base, lambda _, record: failed("incorrect", "because")(record))
    lab.session, lab.finished = replace(SESSION, id="session-2"), "2026-11-20T12:20:00Z"
    lab.record(SWEEP)
    assert compare(base, lab) == 1
    assert "ok -> incorrect" in capsys.readouterr().out


def test_a_cell_that_breaks_on_one_gpu_of_two_is_a_regression(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(base, unchanged)
    base.session = lab.session = on("GPU-2")["session"]
    base.record(SWEEP)
    lab.record(SWEEP, lambda _, record: failed("incorrect", "wrong")(record))
    assert compare(base, lab) == 1
    assert (
        "regression: 0 cells slower by more than 2 %, 2 broken"
        in capsys.readouterr().out
    )
    assert compare(lab, base) == 0

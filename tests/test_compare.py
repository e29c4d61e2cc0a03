"""Comparing runs: noise is no news, regressions end with exit code 1."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factory import Lab, failed
from ladder.cli.app import main
from ladder.results.compare import compare_folders

SWEEP = ["tensor_ladder"]


def slower(share: float) -> Callable[[Any, dict[str, Any]], dict[str, Any]]:
    """Make the tile kernel slower by a share, against the same reference."""

    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        if cell.variant.kernel.name == "wmma_tile":
            for regime in record["regimes"].values():
                regime["variant_us"] = [value * (1 + share) for value in regime["variant_us"]]
                for name in ("speedup", "speedup_low", "speedup_high"):
                    regime[name] /= 1 + share
        return record

    return change


@pytest.fixture
def base(tmp_path: Path) -> Lab:
    lab = Lab(tmp_path, run="base")
    lab.record(SWEEP)
    lab.collect(SWEEP)
    return lab


def other(base: Lab, change: Any, **more: Any) -> Lab:
    lab = Lab(base.root, run="other", **more)
    lab.record(SWEEP, change)
    lab.collect(SWEEP)
    return lab


def compare(base: Lab, lab: Lab, *options: str) -> int:
    return main(["compare", str(base.folder.root), str(lab.folder.root), *options])


def test_the_same_numbers_are_no_regression(base: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(base, other(base, lambda _, record: record)) == 0
    assert "4 cells matched, 4 of them alike within noise" in capsys.readouterr().out


def test_noise_is_no_regression(base: Lab) -> None:
    lab = other(base, lambda _, record: record, seed=99)
    assert compare(base, lab, "--by", "time", "--threshold", "0") == 0


def test_a_regression_above_the_threshold_exits_with_1(base: Lab, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_two_gpus_of_a_model_differ_by_more_than_one_from_day_to_day(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(base, slower(0.015))
    for one, uuid in ((base, "GPU-1"), (lab, "GPU-2")):
        environment = {"gpu": {"name": "NVIDIA H200", "uuid": uuid}}
        (one.folder.root / "environment.json").write_text(json.dumps(environment))
    assert compare(base, lab, "--threshold", "1") == 0
    assert "two GPUs of one model" in capsys.readouterr().out
    assert compare(base, lab, "--threshold", "1", "--noise", "0.5") == 1
    capsys.readouterr()
    (lab.folder.root / "environment.json").write_text(json.dumps(environment | {"gpu": {"uuid": "GPU-1"}}))
    assert compare(base, lab, "--threshold", "1") == 1
    assert "two GPUs" not in capsys.readouterr().out


def test_a_gain_passes(base: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(base, other(base, slower(-0.05))) == 0
    assert "faster (2):" in capsys.readouterr().out


def test_by_time_sees_what_the_ratio_hides(base: Lab) -> None:
    def slow_clock(_: Any, record: dict[str, Any]) -> dict[str, Any]:
        for regime in record["regimes"].values():
            for name in ("variant_us", "reference_us"):
                regime[name] = [1.1 * value for value in regime[name]]
        return record

    lab = other(base, slow_clock)
    assert compare(base, lab) == 0
    assert compare(base, lab, "--by", "time") == 1


def test_a_cell_no_longer_ok_is_a_regression(base: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab = other(base, lambda _, record: failed("incorrect", "wrong")(record))
    assert compare(base, lab) == 1
    assert "ok -> incorrect" in capsys.readouterr().out
    assert compare(lab, base) == 0
    assert "incorrect -> ok" in capsys.readouterr().out


def test_missing_and_new_cells_are_listed(base: Lab) -> None:
    lab = other(base, lambda cell, record: None if cell.variant.kernel.name == "wmma_tile" else record)
    result = compare_folders(base.folder.root, lab.folder.root, "speedup", 0.005)
    assert {cell[1] for cell in result.missing} == {"wmma_tile-fp16"}
    assert compare_folders(lab.folder.root, base.folder.root, "speedup", 0.005).new == result.missing


def test_a_published_folder_compares_as_well(base: Lab, tmp_path: Path) -> None:
    published = tmp_path / "published"
    shutil.copytree(base.folder.tables, published)
    assert main(["compare", str(published), str(base.folder.root)]) == 0


def test_a_folder_without_tables_is_refused(
    base: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["compare", str(tmp_path / "nowhere"), str(base.folder.root)]) == 2
    assert "no timings.csv" in caplog.text

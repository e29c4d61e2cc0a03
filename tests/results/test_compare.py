"""Comparing runs: noise is no news, regressions end with exit code 1."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factory import SESSION, Change, Fields, Lab, failed, slowed
from ladder.cli.app import main
from ladder.model.record import Session
from ladder.results import tables
from ladder.results.compare import WITHIN_A_GPU, margin_of

SWEEP = ["tensor_ladder"]


def slower(share: float) -> Change:
    """Make the tile kernel slower by a share, against the same reference."""

    def change(place: Any, record: Fields) -> Fields:
        own = place.variant.kernel.name == "wmma_tile"
        return slowed(record, 1 + share) if own else record

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


def unchanged(_: Any, record: Fields) -> Fields:
    return record


def compare(base: Lab, lab: Lab, *options: str) -> int:
    for run in (base, lab):
        run.collect(SWEEP)
    return main(["compare", str(base.folder.root), str(lab.folder.root), *options])


GPU_2 = replace(SESSION, id="session of GPU-2", gpu={**SESSION.gpu, "uuid": "GPU-2"})
UNKNOWN_GPU = replace(SESSION, gpu={})


@pytest.mark.parametrize(
    ("share", "session", "threshold", "code", "shown"),
    [
        (0.0, SESSION, "2", 0, "4 cells matched, 4 of them alike within noise"),
        (0.05, SESSION, "2", 1, "slower (2):"),
        (0.05, SESSION, "10", 0, "slower (2):"),
        (-0.05, SESSION, "2", 0, "faster (2):"),
        (0.015, SESSION, "1", 1, "changes beyond 0.5 % count"),
        (0.015, GPU_2, "1", 0, "changes beyond 2.5 % count"),
        (0.015, UNKNOWN_GPU, "1", 0, "changes beyond 2.5 % count"),
    ],
)
def test_a_regression_exits_with_1_where_gpus_do_not_differ_so_far_by_themselves(
    base: Lab,
    share: float,
    session: Session,
    threshold: str,
    code: int,
    shown: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = other(base, slower(share), session=session)
    assert compare(base, lab, "--threshold", threshold) == code
    output = capsys.readouterr().out
    assert shown in output
    assert "wmma_naive" not in output


def test_noise_is_no_regression(base: Lab) -> None:
    lab = other(base, unchanged, seed=99)
    assert compare(base, lab, "--threshold", "0") == 0


def over(library: str, share: float = 0.0) -> Change:
    """The tile kernel over that library, by a share slower."""

    def change(place: Any, record: Fields) -> Fields:
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
    lab.session = GPU_2
    lab.record(SWEEP, over("cublas"))
    assert compare(base, lab) == 0, "the slower one is over the other library"


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


def test_a_gpu_is_known_by_its_published_name() -> None:
    own, published = (
        tables.frame("sessions", [{"gpu_uuid": uuid}])
        for uuid in ("GPU-22222222-3333", "GPU-22222222")
    )
    assert margin_of(published, own) == WITHIN_A_GPU


@pytest.mark.parametrize("value", ["nan", "100"])
def test_a_share_that_is_none_is_refused(
    base: Lab, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(base, base, "--threshold", value) == 2
    assert "--threshold" in capsys.readouterr().err


def test_a_cell_that_breaks_on_one_gpu_of_two_is_a_regression(
    base: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab = other(base, unchanged)
    base.session = lab.session = GPU_2
    base.record(SWEEP)
    lab.record(SWEEP, lambda _, record: failed("incorrect", "wrong")(record))
    assert compare(base, lab) == 1
    assert (
        "regression: 0 cells slower by more than 2 %, 2 broken"
        in capsys.readouterr().out
    )
    assert compare(lab, base) == 0

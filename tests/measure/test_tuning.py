"""Tuning sweeps: a number that was chosen as the largest of many does not count; the fastest are measured again."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import MADE_UP_GPU, ROOT, output_of
from factory import SESSION, Change, Fields, Lab, Place, failed, slowed
from ladder.measure.schedule import Schedule
from ladder.measure.store import read_store
from ladder.model.files import read_json
from ladder.results import statistics as stats
from ladder.results import tables
from test_sessions import again

SWEEP = "fp32_ladder"
FIRST, SECOND, THIRD, FOURTH = (
    "transposed A",
    "register tile",
    "shared tile",
    "coalesced",
)
"""Its rungs, the fastest first."""


def tuned(root: Path, name: str = SWEEP, **more: Any) -> Lab:
    """A project in which a sweep is a tuning sweep; without its second regime."""
    lab = Lab(root)
    lab.update(name, **({"tuning": True, "regimes": ["cold"]} | more))
    return lab


def only(*rungs: str, times: float = 1.0, size: int | None = None) -> Change:
    """Some rungs, at one size or all, so many times as fast as they were."""

    def change(place: Place, record: Fields) -> Fields | None:
        if place.entry.rung not in rungs or size not in (None, place.size["m"]):
            return None
        return slowed(record, 1 / times)

    return change


def asked(lab: Lab) -> set[tuple[str, int]]:
    """What is due: rungs and sizes."""
    lab.compile(lab.sweep_of(SWEEP))
    view, found = replace(lab.view(SWEEP), on=lab.on("gemm")), set()
    for index, regimes in Schedule(view).due():
        assert regimes == ["cold"]
        task = view.plan.tasks[index]
        found.add((task.rung, task.cell.size["m"]))
    return found


SIZES = (512, 1024, 2048, 4096, 8192)
THREE = {(rung, size) for rung in (FIRST, SECOND, THIRD) for size in SIZES}


def test_the_three_fastest_are_due_until_a_later_session_has_measured_them(
    tmp_path: Path,
) -> None:
    lab = tuned(tmp_path)
    lab.record([SWEEP])
    assert asked(lab) == THREE
    again(lab, SWEEP, 2, only(FIRST, SECOND, THIRD, size=4096))
    assert asked(lab) == {one for one in THREE if one[1] != 4096}
    again(lab, SWEEP, 3, only(FIRST, SECOND, THIRD, times=0.01))
    assert asked(lab) == set(), "whatever it measured"


@pytest.mark.parametrize(
    ("status", "fourth"), [("launch_error", False), ("incorrect", True)]
)
def test_one_that_fails_when_measured_again_is_not_tried_for_ever(
    tmp_path: Path, status: str, fourth: bool
) -> None:
    lab = tuned(tmp_path, sizes=[4096])
    lab.record([SWEEP])

    def fails(place: Place, record: Fields) -> Fields | None:
        record = (
            failed(status, "because")(record) if place.entry.rung == SECOND else record
        )
        return only(FIRST, SECOND, THIRD)(place, record)

    again(lab, SWEEP, 2, fails)
    # What is wrong is no rival, so that the next one moves up.
    assert asked(lab) == ({(FOURTH, 4096)} if fourth else {(SECOND, 4096)})
    if not fourth:  # and an error of a launch may be another's fault, once
        again(lab, SWEEP, 3, fails)
        assert asked(lab) == set()


def test_stencils_compete_at_one_radius(tmp_path: Path) -> None:
    lab = tuned(tmp_path, "stencil_reach")
    lab.record(["stencil_reach"])
    view = lab.view("stencil_reach")
    radii = []
    for competitors in view.competitors():
        fastest = [view.plan.tasks[one.index] for one in view.fastest(competitors)]
        radii.append({task.cell.params["radius"] for task in fastest})
    assert sorted(map(list, radii)) == [[1], [2], [4], [6], [8], [12], [16]]


def test_against_two_libraries_time_decides(tmp_path: Path) -> None:
    lab = tuned(tmp_path, sizes=[4096], references=["cublas", "cublaslt"])
    # A tie: either may be the reference.
    lab.libraries_us = {
        "cublas": 100.0,
        "cublaslt": 100.0,
    }

    def slow_reference(place: Place, record: Fields) -> Fields:
        if place.entry.rung == FOURTH:
            record["regimes"]["cold"] |= {"reference": "cublaslt", "speedup": 5.0}
        return record

    lab.record([SWEEP], slow_reference)
    assert {rung for rung, _ in asked(lab)} == {FIRST, SECOND, THIRD}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A tuning sweep whose fastest at 4096 turns out to be the second when it is measured again."""
    lab = tuned(tmp_path_factory.mktemp("tuned"))
    lab.record([SWEEP])
    again(lab, SWEEP, 2, only(FIRST, times=0.7, size=4096))
    again(lab, SWEEP, 3, only(SECOND, THIRD, FOURTH, times=0.99, size=4096))
    lab.collect([SWEEP])
    return lab


def rows_of(lab: Lab) -> Any:
    rows = tables.read("timings", lab.folder.tables)
    return rows[(rows["m"] == 4096) & rows["rung"].notna()].set_index("rung")


def test_the_session_that_chose_does_not_count(measured: Lab) -> None:
    rows = rows_of(measured)
    assert rows.loc[FIRST, "speedup"] == pytest.approx(0.66 * 0.7)
    assert rows.loc[SECOND, "speedup"] == pytest.approx(0.528 * 0.99)
    assert rows.loc[FIRST, "tflops"] == pytest.approx(51.4 * 0.66 * 0.7, rel=0.01)
    assert list(rows.loc[[FIRST, SECOND, THIRD], "sessions"]) == [1, 1, 1]
    # The fourth was not chosen: both of its sessions count.
    assert rows.loc[FOURTH, "speedup"] == pytest.approx(0.09 * 0.99**0.5)
    assert rows.loc[FOURTH, "sessions"] == 2
    assert rows.loc["naive", "sessions"] == 1
    fresh = rows["fresh"].to_dict()
    assert fresh == {
        FIRST: True,
        SECOND: True,
        THIRD: True,
        FOURTH: False,
        "naive": False,
    }
    sessions = tables.read("sessions", measured.folder.tables)
    chose = sessions[sessions["chose"].fillna(False)]
    assert set(chose["session"]) == {SESSION.id}
    assert set(chose["variant"]) == {
        rows.loc[rung, "variant"] for rung in (FIRST, SECOND, THIRD)
    }
    assert set(chose["m"]) == {4096}


def test_one_that_was_not_measured_again_is_never_ahead_of_those_that_were() -> None:
    given = {"dtype": "fp32", "reference": "cublas", "m": 64}
    lucky = {"variant": "lucky", "speedup": 1.5, "fresh": False}
    rows = [
        given | lucky,
        given | {"variant": "confirmed", "speedup": 1.2, "fresh": True},
    ]
    rows += [{**one, "m": 128, "fresh": False} for one in rows]
    found = tables.frame("timings", rows)
    assert stats.fastest(found)["variant"] == "confirmed"
    assert set(stats.contenders(found, ["m"]).loc[:, "m"]) == {64, 128}
    by_size = stats.contenders(found, ["m"]).groupby("m")["speedup"].max()
    assert by_size.to_dict() == {64: 1.2, 128: 1.5}, (
        "where none was measured again all compete"
    )
    unmarked = tables.frame("timings", [one | {"fresh": None} for one in rows])
    assert stats.fastest(unmarked)["variant"] == "lucky", "as in every other sweep"


Passes = list[tuple[str, int]]
"""GPU and number of records of each process that measured."""


@pytest.fixture
def measure(tmp_path: Path) -> Callable[[int], Passes]:
    """Measures the cells at one size on a host with so many made-up GPUs: the passes so far."""
    lab = tuned(tmp_path / "project", sizes=[4096])
    lab.compile(lab.sweep_of(SWEEP))

    def run(gpus: int) -> Passes:
        output_of(
            [sys.executable, "-m", "ladder", "measure", str(lab.folder.plan(SWEEP))],
            lab.root,
            PYTHONPATH=f"{MADE_UP_GPU}{os.pathsep}{ROOT / 'workflow'}",
            MADE_UP_GPUS=f"here:{gpus}",
            TMPDIR=str(tmp_path),  # of locks
        )
        records = read_store(lab.folder.records)
        counts = Counter(record.session for record in records if record.cell.kernel)
        assert Counter(counts.values()) == {5: 1, 3: 1}
        account = read_json(lab.folder.account("measured", SWEEP))
        assert account
        assert (account["cells"], account["kept"], account["measured"]) == (5, 0, 8)
        return [
            (session.gpu["uuid"], counts[session.id])
            for session in sorted(
                records.sessions.values(), key=lambda session: session.id
            )
        ]

    return run


def test_a_job_measures_the_three_fastest_again_on_another_gpu_and_then_nothing(
    measure: Callable[[int], Passes],
) -> None:
    passes = measure(2)
    assert passes == [("GPU-here-0", 5), ("GPU-here-1", 3)]
    assert measure(2) == passes


def test_where_no_other_gpu_is_free_a_fresh_process_on_the_same_one_does(
    measure: Callable[[int], Passes],
) -> None:
    assert measure(1) == [("GPU-here-0", 5), ("GPU-here-0", 3)]

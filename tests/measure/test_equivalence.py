"""A timer that was only rewritten: held against the one before, and noted as equivalent where it reads alike."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from factory import Lab
from ladder.cli.app import main
from ladder.gpu.discovery import FoundGpu
from ladder.measure import conditions, equivalence, gpu_job
from ladder.measure.conditions import first_alike, measuring_code
from ladder.measure.equivalence import (
    PAIRS,
    codes_of,
    environment_of,
    note_equivalent,
    refuse_other_checks,
    sample,
    shifts,
)
from ladder.model.code import PACKAGE
from ladder.model.errors import LadderError
from ladder.model.files import read_json
from test_reruns import Measured, measured, measured_once, shown

__all__ = ["measured", "measured_once"]

CELLS = {"kernel, over 100 us, cold": [(0, "cold"), (1, "cold")]}


class Timer:
    """Measures with times that are `slower` by a factor, and of which each is off by chance."""

    def __init__(self, slower: float = 1.0, noise: float = 0.001, seed: int = 1) -> None:
        self.slower, self.noise, self.random = slower, noise, random.Random(seed)
        self.asked: list[tuple[int, str]] = []

    def __call__(self, index: int, regime: str) -> dict[str, Any]:
        self.asked.append((index, regime))
        us = 100.0 * (1 + index) * self.slower * self.random.gauss(1, self.noise)
        return {"variant_us": [us], "speedup": 100.0 / us}


@pytest.mark.parametrize(
    ("slower", "noise", "small"),
    [(1.0, 0.001, True), (1.005, 0.001, False), (0.995, 0.001, False), (1.0, 0.03, False)],
)
def test_a_shift_is_small_where_its_interval_lies_within_two_thousandths(
    slower: float, noise: float, small: bool
) -> None:
    found = list(shifts(CELLS, Timer(1.0, noise), Timer(slower, noise, seed=2)))
    assert [one.quantity for one in found] == ["time", "speedup"]
    assert all(one.small == small for one in found), found
    for one in found:
        assert one.pairs == PAIRS
        assert one.low < one.mean < one.high
    assert found[0].mean == pytest.approx(slower - 1, abs=3 * noise / PAIRS**0.5 * 2)


def test_old_and_new_take_turns_on_every_cell_of_the_sample() -> None:
    order: list[str] = []
    timers = {"old": Timer(), "new": Timer(seed=2)}

    def noted(name: str) -> Any:
        return lambda *place: (order.append(name), timers[name](*place))[1]

    list(shifts(CELLS, noted("old"), noted("new")))
    assert order[:8] == ["old", "new", "new", "old"] * 2
    assert len(order) == 2 * PAIRS
    assert timers["old"].asked == timers["new"].asked
    assert {*timers["old"].asked} == {*CELLS["kernel, over 100 us, cold"]}


def test_the_sample_has_cells_of_each_class_that_was_measured(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["fp32_ladder", "fp32_transpose"])
    found = sample(lab.view("fp32_ladder"))
    assert {"library, over 1000 us, cold", "library, over 20 us, warm"} & {*found}
    assert all(0 < len(places) <= 5 for places in found.values())
    assert all(name.endswith(regime) for name, places in found.items() for _, regime in places)
    assert all(name.startswith("kernel") for name in sample(lab.view("fp32_transpose")))


def test_checkouts_that_differ_in_what_checks_or_in_nothing_are_refused() -> None:
    own = {"check": "a", "timing": "b"}
    refuse_other_checks(own, own | {"timing": "c"})
    with pytest.raises(LadderError, match="never declared equivalent; measure again"):
        refuse_other_checks(own, {"check": "d", "timing": "c"})
    with pytest.raises(LadderError, match="are one already"):
        refuse_other_checks(own, dict(own))


def test_a_checkout_comes_ahead_of_where_packages_are_found(tmp_path: Path) -> None:
    given = environment_of(tmp_path, {"PYTHONPATH": f"{PACKAGE.parent}:/own/packages", "HOME": "/home"})
    assert given == {"PYTHONPATH": f"{tmp_path / 'workflow'}:/own/packages", "HOME": "/home"}
    assert environment_of(tmp_path, {})["PYTHONPATH"] == str(tmp_path / "workflow")


def test_another_checkout_says_its_digests(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "workflow" / "ladder", ignore=shutil.ignore_patterns("__pycache__"))
    timing = tmp_path / "workflow" / "ladder" / "gpu" / "timing.py"
    timing.write_text(timing.read_text().replace("int(1.4 * count)", "int(1.5 * count)"))
    own, other = measuring_code("gemm", ""), codes_of(tmp_path, "gemm")
    refuse_other_checks(other, own)
    with pytest.raises(LadderError, match="no checkout with two digests"):
        codes_of(tmp_path / "nowhere", "gemm")


def test_timers_that_were_noted_one_after_the_other_are_one(tmp_path: Path) -> None:
    file = tmp_path / "noted.json"
    assert first_alike("c", file) == "c"
    note_equivalent(file, "a", "b", "GPU", [])
    note_equivalent(file, "b", "c", "GPU", [])
    assert [first_alike(one, file) for one in "abcd"] == ["a", "a", "a", "d"]
    assert len((read_json(file) or {})["equivalent"]) == 2


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of equivalent timers, which is empty."""
    file = tmp_path / "equivalent.json"
    monkeypatch.setattr(conditions, "EQUIVALENT", file)
    return file


def test_records_of_an_equivalent_timer_stand(measured: Measured, noted: Path) -> None:
    was = measuring_code("gemm", "")
    measured.code("gpu/timing.py", "int(1.4 * count)", "int(1.5 * count)")
    now = measuring_code("gemm", "")
    assert shown(measured.due())
    note_equivalent(noted, was["timing"], now["timing"], "a GPU", [])
    measuring_code.cache_clear()
    assert shown(measured.due()) == shown(measured.uncounted()) == []
    measured.code("measure/worker.py", "_REPLAYED = 0.7", "_REPLAYED = 0.8")
    assert shown(measured.due()), "what checks is another code"


WORKER = """
import os, random, sys
from multiprocessing.connection import Connection

pipe = Connection(int(sys.argv[-1]))
pipe.send({"hello": {"pid": os.getpid(), "gpu": {}}})
slower = 1.0 if "before" in os.environ["PYTHONPATH"] else float(os.environ["SLOWER"])
numbers = random.Random(os.environ["PYTHONPATH"])
while True:
    try:
        request = pipe.recv()
    except EOFError:
        break
    us = 100 * slower * numbers.gauss(1, 0.0005)
    result = {"status": "ok", "variant_us": [us], "speedup": 100 / us}
    pipe.send({"results": dict.fromkeys(request["regimes"], result), "fatal": False})
"""


@pytest.mark.parametrize(("slower", "code"), [("1.0", 0), ("1.01", 1)])
def test_the_command_notes_timers_that_read_alike_and_no_others(
    slower: str, code: int, noted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path / "project")
    lab.record(["fp32_transpose"])
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "before").mkdir()
    own = measuring_code("gemm", "")
    monkeypatch.setenv("SLOWER", slower)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(equivalence, "find_gpus", lambda: [FoundGpu(0, "Made-up", "GPU-a", (9, 0))])
    monkeypatch.setattr(equivalence, "codes_of", lambda *_: own | {"timing": "before"})
    command = [sys.executable, str(tmp_path / "worker.py")]
    monkeypatch.setattr(gpu_job, "process_command", lambda *_: command)
    plan = lab.folder.plan("fp32_transpose")
    words = ["--root", str(lab.root), "equivalent", str(plan), "--old", str(tmp_path / "before")]
    assert main(words) == code
    if code:
        assert not noted.exists()
    else:
        (one,) = (read_json(noted) or {})["equivalent"]
        assert (one["old"], one["new"], one["gpu"]) == ("before", own["timing"], "Made-up")
        assert {shift["pairs"] for shift in one["shifts"]} == {PAIRS}
        measuring_code.cache_clear()
        assert measuring_code("gemm", "")["timing"] == "before"
    measuring_code.cache_clear()

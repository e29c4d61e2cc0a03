"""The second clock: times between marks, and a CUPTI that is played."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cuda.pathfinder import DynamicLibNotFoundError
from ladder.gpu import stamps
from ladder.gpu.stamps import DeviceClock, OtherStream, Stamp, spans
from ladder.model.errors import LadderError


def test_a_time_is_from_the_first_begin_to_the_last_end_between_two_marks() -> None:
    seen = [
        Stamp(900, 950, "flush"),
        Stamp(1000, 1900, "ahead"),
        Stamp(2000, 7000, "split"),
        Stamp(7100, 8500, "reduce"),
        Stamp(9000, 9100, "behind"),
        Stamp(9200, 9300, "check"),
        Stamp(10_000, 10_100, "ahead"),
        Stamp(10_200, 12_200, ""),  # a copy
        Stamp(12_300, 12_400, "behind"),
    ]
    assert spans(seen, "ahead", "behind") == [6.5, 2.0]
    assert spans(seen[::-1], "ahead", "behind") == [6.5, 2.0], "CUPTI keeps no order"


def test_what_overlaps_ends_with_the_last_and_what_is_not_between_marks_is_no_launch() -> (
    None
):
    seen = [
        Stamp(0, 5, "ahead"),
        Stamp(10, 900, "long"),
        Stamp(20, 40, "short"),
        Stamp(950, 960, "behind"),
    ]
    assert spans(seen, "ahead", "behind") == [0.89]
    assert spans(seen[:-1], "ahead", "behind") == []
    assert spans([seen[0], seen[-1]], "ahead", "behind") == [], "nothing was launched"


class Refusal(Exception):
    """What CUPTI raises."""


class Played(ModuleType):
    """The module `cupti.cupti`: what runs while a kind is enabled is handed on when it is flushed."""

    cuptiError = Refusal  # noqa: N815 - as the module has it
    ActivityKind = SimpleNamespace(CONCURRENT_KERNEL=10, MEMCPY=1, MEMSET=2)

    def __init__(self) -> None:
        super().__init__("cupti.cupti")
        self.enabled, self.waiting = set[int](), list[Any]()
        self.refuses = False
        self.take: Callable[[Any], None] = lambda records: None

    def activity_register_callbacks(self, request: Any, take: Any) -> None:
        assert request()[0] > 0
        self.take = take

    def activity_enable(self, kind: int) -> None:
        if self.refuses:
            raise self.cuptiError("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.discard(kind)

    def activity_flush_all(self, flag: int) -> None:
        assert flag == 1
        self.take(self.waiting)
        self.waiting = []

    def run(
        self, begin: int, end: int, name: str | None = None, stream: int = 13
    ) -> None:
        if (10 if name else 2) in self.enabled:
            self.waiting.append(
                SimpleNamespace(
                    start=begin,
                    end=end,
                    stream_id=stream,
                    **({"name": name} if name else {}),
                )
            )


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    package = ModuleType("cupti")
    package.cupti = played  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setattr(stamps, "load_nvidia_dynamic_lib", lambda name: None)
    return played


def launch(cupti: Played, at: int, length: int) -> None:
    cupti.run(at, at + 1, "ahead")
    cupti.run(at + 2, at + 2 + length, "own")
    cupti.run(at + 5000, at + 5001, "behind")


def test_only_what_is_launched_while_it_records_is_timed(cupti: Played) -> None:
    clock = DeviceClock("ahead", "behind")
    launch(cupti, 0, 100)
    with clock.recording():
        launch(cupti, 10_000, 2000)
        launch(cupti, 20_000, 3000)
    assert clock.times(2) == [2.0, 3.0]
    assert not cupti.enabled
    launch(cupti, 30_000, 1000)
    with clock.recording():
        launch(cupti, 40_000, 1000)
    assert clock.times(1) == [1.0]


def test_what_was_recorded_ahead_of_a_failure_is_forgotten(cupti: Played) -> None:
    clock = DeviceClock("ahead", "behind")
    with clock.recording():
        launch(cupti, 0, 1000)
    with contextlib.suppress(KeyError), clock.recording():
        launch(cupti, 10_000, 2000)
        raise KeyError
    assert not cupti.enabled
    with clock.recording():
        launch(cupti, 50_000, 4000)
    assert clock.times(1) == [4.0]


def test_a_launch_too_many_or_too_few_is_refused(cupti: Played) -> None:
    """As by a kernel that has the name of a mark."""
    clock = DeviceClock("ahead", "behind")
    with clock.recording():
        launch(cupti, 0, 100)
        with pytest.raises(LadderError, match="of 1 launches instead of 2"):
            clock.times(2)
        cupti.run(0, 1, "ahead")
        cupti.run(10, 20, "behind")
        cupti.run(30, 40, "behind")
        with pytest.raises(LadderError, match="of 0 launches instead of 1"):
            clock.times(1)


def test_what_runs_on_another_stream_is_refused_whenever_it_runs_if_asked_to(
    cupti: Played,
) -> None:
    clock = DeviceClock("ahead", "behind")
    for at, name, says in (
        (5000, "ahead_of_all", "is given: ahead_of_all"),
        (12_000, None, "is given: a copy or memset"),
        (30_000, "later", "is given: later"),
    ):
        for alone in (False, True):
            with clock.recording(alone):
                launch(cupti, 10_000, 1000)
                cupti.run(at, at + 10, name, stream=14)
            if alone:
                with pytest.raises(OtherStream, match=says):
                    clock.times(1)
            else:
                assert len(clock.times(1)) == 1
    with clock.recording(alone=True):
        launch(cupti, 10_000, 1000)
    assert clock.times(1) == [1.0]


def test_without_cupti_or_beside_a_profiler_it_says_why(
    cupti: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupti.refuses = True
    with pytest.raises(LadderError, match="no device timestamps: MULTIPLE_SUBSCRIBERS"):
        DeviceClock("ahead", "behind")

    def missing(name: str) -> None:
        raise DynamicLibNotFoundError(f"lib{name}.so")

    monkeypatch.setattr(stamps, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(LadderError, match=r"no device timestamps: libcupti\.so"):
        DeviceClock("ahead", "behind")

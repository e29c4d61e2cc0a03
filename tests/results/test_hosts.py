"""What kinds of host add: from sessions that ended before those in hand, which are in no row."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from conftest import ROOT
from hosts import deviations
from ladder.model.folders import Project
from ladder.results import tables
from ladder.results.hosts import SOURCES, host_deviation, source_of
from ladder.results.prediction import components, prepare_sessions
from results.test_prediction import ONE_HOST, SEEN, THREE_HOSTS, sessions_of

OLD, NEW = "2026-11-23T10:00:00Z", "2026-12-01T10:00:00Z"
SHORT, LONG = "kernel, memory, 100 to 1000 us, cold", "library, mixed, over 1000 us, cold"


def test_a_source_is_for_sessions_that_began_after_it() -> None:
    first, second = SOURCES
    assert [source_of(began) for began in ("", OLD, second.ended, NEW)] == [first, first, first, second]
    assert host_deviation(SHORT, OLD) == first.deviations["kernel, memory"]
    assert host_deviation(SHORT, NEW) == second.deviations["kernel, memory"]
    compute = "library, compute, 20 to 100 us, warm"
    assert host_deviation(compute, OLD) == first.deviations["library, compute"]
    assert host_deviation(compute, NEW) == second.deviations["library, compute, 20 to 100 us"]
    assert host_deviation(LONG, NEW) == first.deviations["library, mixed"], "what the second one did not read"


@pytest.mark.parametrize("began", [OLD, NEW])
def test_sessions_on_hosts_of_one_kind_have_what_the_source_says(began: str) -> None:
    frame = sessions_of(50, ONE_HOST).assign(started=began)
    (found,) = components(prepare_sessions(frame))["host"] ** 0.5
    assert math.isclose(found, host_deviation("kernel, compute, over 1000 us, cold", began))


def test_what_is_published_leans_on_no_session_of_its_own() -> None:
    for folder in Project(ROOT).publications():
        began = tables.read("sessions", folder.tables)["started"].min()
        assert source_of(began) is SOURCES[0] or source_of(began).ended < began


def test_the_next_source_is_what_hosts_add_in_sessions_on_several_kinds() -> None:
    found = {name: (deviation, cells) for name, deviation, cells in deviations(sessions_of(400, THREE_HOSTS))}
    assert set(found) == {"kernel, compute, over 1000 us", "kernel, compute"}
    for deviation, cells in found.values():
        assert cells == 400
        assert deviation == pytest.approx(SEEN["host"], rel=0.15)
    few = pd.concat([sessions_of(19, THREE_HOSTS)])
    assert not [*deviations(few)], "too few cells"

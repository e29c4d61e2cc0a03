"""Which sessions stand for one number: those under equal conditions; and none hides what another found wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from factory import SESSION, Fields, Lab, Place, failed, slowed
from ladder.measure.store import appending
from ladder.model.record import Conditions
from ladder.results.collect import merge

SWEEP, CHANGED = "tensor_ladder", "wmma_tile"


@pytest.fixture
def fresh(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def again(
    lab: Lab, sweep: str, number: int, change: Any = lambda _, record: record
) -> None:
    """A session later than the first, an hour each."""
    lab.session = replace(SESSION, id=f"session-{number}")
    lab.finished = f"2026-11-20T{10 + number}:20:00Z"
    lab.record([sweep], change)


def slower(place: Place, record: Fields) -> Fields:
    """Every kernel takes 1.25 times as long."""
    return slowed(record, 1.25)


def wrong(status: str) -> Any:
    """One of the kernels fails."""

    def change(place: Place, record: Fields) -> Fields:
        bad = place.variant.kernel.name == CHANGED
        return failed(status, "3 of 9 elements are wrong")(record) if bad else record

    return change


def collected(lab: Lab) -> dict[str, pd.DataFrame]:
    """The tables of the sweep, their rows those of one kernel where they name any."""
    found = merge({SWEEP: lab.frames(SWEEP)})
    return {
        name: table[table["variant"].str.startswith(CHANGED)]
        if "variant" in table
        else table
        for name, table in found.items()
    }


def rows(lab: Lab) -> pd.DataFrame:
    return collected(lab)["timings"]


def test_sessions_under_other_conditions_are_never_averaged(fresh: Lab) -> None:
    fresh.record([SWEEP])
    (before,) = set(rows(fresh)["speedup"])
    fresh.host["driver"] = "another"
    again(fresh, SWEEP, 2, slower)
    tables = collected(fresh)
    found = tables["timings"]
    assert found["speedup"].tolist() == pytest.approx([before / 1.25] * len(found))
    assert set(found["sessions"]) == {1}
    assert set(tables["sessions"]["session"]) == {"session-2"}
    again(fresh, SWEEP, 3, slower)
    assert set(rows(fresh)["sessions"]) == {2}, (
        "sessions under equal conditions are one number"
    )


def test_imported_records_whose_conditions_are_unknown_stay_alone(
    fresh: Lab,
) -> None:
    fresh.record([SWEEP])
    again(fresh, SWEEP, 2)
    view = fresh.view(SWEEP)
    record = next(iter(view.records))
    for conditions in (
        Conditions(),
        Conditions({}, record.conditions.host),
        Conditions({"seed": 1}, {}),
    ):
        for one in view.records.of(record.cell):
            object.__setattr__(one, "conditions", conditions)
        assert view.same_conditions(record) == [record]


@pytest.mark.parametrize(
    ("status", "bad"), [("incorrect", 1), ("out_of_bounds", 2), ("stateful", 3)]
)
def test_what_one_session_found_wrong_is_hidden_by_no_other(
    status: str, bad: int, fresh: Lab
) -> None:
    for number in (1, 2, 3):
        of_session = wrong(status) if number == bad else lambda _, record: record
        again(fresh, SWEEP, number, of_session)
    tables = collected(fresh)
    found, notes = tables["timings"], tables["notes"]
    reason = f"{status} in 1 of 3 sessions: 3 of 9 elements are wrong"
    assert set(found["status"]) == {status}
    assert set(found["reason"]) == {reason}
    assert found["speedup"].isna().all()
    assert tables["sessions"].empty
    noted = notes[notes["reason"] == reason]["subject"]
    assert len(noted) == len(found)
    assert noted.str.startswith(f"{CHANGED}-fp16 at ").all()


def test_what_is_wrong_in_another_regime_only_is_noted(fresh: Lab) -> None:
    fresh.record([SWEEP])
    view = replace(fresh.view(SWEEP), on=fresh.on("gemm"))
    _, task = next(view.launched())
    bad = view.new_record(
        task,
        "warm",
        SESSION.id,
        status="incorrect",
        reason="all zero",
    )
    with appending(fresh.folder.records, SWEEP) as append:
        append(bad)
    notes = collected(fresh)["notes"]
    (said,) = notes[notes["subject"].str.startswith(task.variant)]["reason"]
    assert said == "all zero"


@pytest.mark.parametrize("status", ["launch_error", "timeout", "unsupported"])
def test_a_failure_that_says_nothing_against_a_result_leaves_it_standing(
    status: str, fresh: Lab
) -> None:
    fresh.record([SWEEP])
    again(fresh, SWEEP, 2, wrong(status))
    found = rows(fresh)
    assert set(found["status"]) == {"ok"}
    assert set(found["sessions"]) == {1}

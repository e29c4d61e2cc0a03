"""What a job measures next, as a table: the job, what the store holds, and what each of its passes is after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import edit_yaml
from factory import FINISHED, SESSION, Lab, Place, failed
from ladder.measure.schedule import RACE, Mode, Schedule, share_of
from ladder.model.errors import LadderError

SWEEP, HERE, ELSEWHERE = "fp32_ladder", "GPU-1", "GPU-2"
EVERY = {"naive", "coalesced", "shared tile", "register tile", "transposed A"}
BEST = {"shared tile", "register tile", "transposed A"}
REPEATED: dict[str, Any] = {"repeated": {}}
HEATMAP = {"kind": "heatmap", "caption": "A map.", "x": "bm", "y": "bk", "at": 4096}
AFTER = "2026-11-20T11:00:00Z"
"""Later than all records, whose time is FINISHED."""


@dataclass(frozen=True)
class Case:
    """A job and a store: `held` are its sessions, as GPU and rungs; `passes` what each pass is after."""

    held: tuple[tuple[str, set[str]], ...]
    passes: tuple[tuple[Mode, set[str]], ...]
    sweep: dict[str, Any] | None = None
    measure: dict[str, Any] | None = None
    job: dict[str, Any] | None = None
    statuses: dict[str, str] | None = None


ALL, NOTHING = ((HERE, EVERY),), set[str]()
CASES = {
    "an empty store": Case((), ((Mode.DUE, EVERY), (Mode.WINNERS, EVERY))),
    "some are measured": Case(((HERE, BEST),), ((Mode.DUE, EVERY - BEST), (Mode.WINNERS, EVERY - BEST))),
    "all are measured": Case(ALL, ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING))),
    "a tuning sweep with all measured": Case(
        ALL, ((Mode.DUE, BEST), (Mode.WINNERS, BEST)), sweep={"tuning": True}
    ),
    "a tuning sweep before all are measured": Case(
        ((HERE, BEST),), ((Mode.DUE, EVERY - BEST), (Mode.WINNERS, EVERY - BEST)), sweep={"tuning": True}
    ),
    "winners in a later session": Case(
        (*ALL, (ELSEWHERE, BEST)), ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)), sweep={"tuning": True}
    ),
    "a second session on this GPU": Case(
        ALL,
        ((Mode.DUE, EVERY), (Mode.WINNERS, NOTHING)),
        sweep=REPEATED,
        measure={"sessions": 2},
    ),
    "a second session on another GPU": Case(
        (*ALL, (ELSEWHERE, EVERY)),
        ((Mode.DUE, EVERY), (Mode.WINNERS, NOTHING)),
        sweep=REPEATED,
        measure={"sessions": 2},
    ),
    "both sessions on this GPU": Case(
        (*ALL, *ALL), ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)), sweep=REPEATED, measure={"sessions": 2}
    ),
    "all anew": Case(
        ALL, ((Mode.REMEASURE, EVERY), (Mode.WINNERS, EVERY)), job={"began": AFTER, "since": AFTER}
    ),
    "all anew, of which the run has measured all": Case(
        ALL, ((Mode.REMEASURE, NOTHING), (Mode.WINNERS, NOTHING)), job={"began": FINISHED, "since": FINISHED}
    ),
    "the first share": Case(
        (), ((Mode.SHARE, EVERY - {"coalesced", "register tile"}),), measure={"split": 2}, job={"share": 1}
    ),
    "the second share": Case(
        (), ((Mode.SHARE, {"coalesced", "register tile"}),), measure={"split": 2}, job={"share": 2}
    ),
    "a share leaves winners to the sweep's job": Case(
        ALL, ((Mode.SHARE, NOTHING),), sweep={"tuning": True}, measure={"split": 2}, job={"share": 1}
    ),
    "after the shares": Case(
        ALL,
        ((Mode.WINNERS, BEST), (Mode.WINNERS, BEST)),
        sweep={"tuning": True},
        measure={"split": 2},
        job={"shared": True},
    ),
    "after the shares no session is missing on one GPU": Case(
        ALL,
        ((Mode.WINNERS, NOTHING), (Mode.WINNERS, NOTHING)),
        sweep=REPEATED,
        measure={"sessions": 2, "split": 2},
        job={"shared": True},
    ),
    "an error of a launch is tried again": Case(
        ALL,
        ((Mode.DUE, {"naive"}), (Mode.WINNERS, {"naive"})),
        statuses={"naive": "launch_error"},
        job={"began": AFTER},
    ),
    "an error of a launch that this run saw is not": Case(
        ALL,
        ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)),
        statuses={"naive": "launch_error"},
        job={"began": FINISHED},
    ),
    "what is wrong stands": Case(
        ALL, ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)), statuses={"naive": "incorrect"}
    ),
}


def scheduled(case: Case, folder: Path) -> Schedule:
    lab = Lab(folder)
    given = {"tuning": False, "regimes": ["cold"], "sizes": [4096]} | (case.sweep or {})
    edit_yaml(lab.project.sweeps / f"{SWEEP}.yaml", lambda sweep: sweep.update(given))
    lab.settings = {"measure": case.measure or {}}
    lab.compile(lab.sweeps([SWEEP])[SWEEP])
    for number, (gpu, rungs) in enumerate(case.held):

        def change(place: Place, record: dict[str, Any], rungs: set[str] = rungs) -> dict[str, Any] | None:
            bad = (case.statuses or {}).get(place.entry.rung)
            record = failed(bad, "because")(record) if bad else record
            return record if place.entry.rung in rungs else None

        lab.session = replace(SESSION, id=f"session-{number}", gpu={**SESSION.gpu, "uuid": gpu})
        lab.record([SWEEP], change)
    return Schedule(lab.view(SWEEP), lab.on("gemm"), **(case.job or {}))


@pytest.mark.parametrize("name", CASES)
def test_each_pass_of_a_job_is_after_what_the_table_says(name: str, tmp_path: Path) -> None:
    schedule = scheduled(CASES[name], tmp_path)
    tasks = schedule.plan.tasks
    found = [(mode, {tasks[index].rung for index, _ in schedule.due(mode, HERE)}) for mode in schedule.modes]
    assert tuple(found) == CASES[name].passes


@pytest.mark.parametrize("share", [-1, 3])
def test_a_share_that_the_plan_does_not_have_is_refused(share: int, tmp_path: Path) -> None:
    case = Case((), (), measure={"split": 2}, job={"share": share})
    with pytest.raises(LadderError, match=r"--share.*a number from 1 to measure\.split, which is 2"):
        scheduled(case, tmp_path)


def test_shares_are_all_of_a_plan(tmp_path: Path) -> None:
    plan = scheduled(Case((), (), measure={"split": 2}), tmp_path).plan
    assert sorted([*share_of(plan, 1), *share_of(plan, 2)]) == [*range(len(plan.tasks))]


def test_what_the_store_gained_meanwhile_is_not_due(tmp_path: Path) -> None:
    schedule = scheduled(Case((), ()), tmp_path / "a")
    assert schedule.due()
    schedule.look_at(scheduled(Case(ALL, ()), tmp_path / "b").view.records)
    assert not schedule.due()


# Races.


def racing(folder: Path, rungs: set[str], **sweep: Any) -> Schedule:
    """A tuning sweep of which some rungs are measured."""
    return scheduled(Case(((HERE, rungs),), (), sweep={"tuning": True, **sweep}), folder)


def test_competitors_race_against_the_best_so_far_and_winners_do_not(tmp_path: Path) -> None:
    schedule = racing(tmp_path / "a", BEST)
    assert schedule.plan.job["race"]
    best = max(one.result["speedup_low"] for one in schedule.view.records if "speedup_low" in one.result)
    raced = [*schedule.requests(schedule.due())]
    assert {schedule.plan.tasks[one.index].rung for one in raced} == EVERY - BEST
    assert [dict(one.race) for one in raced] == [{"cold": RACE * best}] * 2
    again = racing(tmp_path / "b", EVERY)
    assert [dict(one.race) for one in again.requests(again.due())] == [{}] * 3, "what was measured before"


def test_the_bound_rises_with_what_is_measured(tmp_path: Path) -> None:
    schedule = racing(tmp_path, set())
    bounds = []
    for number, request in enumerate(schedule.requests(schedule.due()), 1):
        bounds.append(request.race.get("cold", 0.0))
        task = schedule.plan.tasks[request.index]
        times = {"variant_us": [1.0], "reference_us": [1.0], "reference": "cublas"}
        result = times | {"speedup": number, "speedup_low": number, "speedup_high": number}
        schedule.take(
            [schedule.view.new_record(task, "cold", schedule.on or {}, "s", status="ok", result=result)]
        )
    assert bounds == [0.0, *(RACE * number for number in (1, 2, 3, 4))]


@pytest.mark.parametrize(
    "sweep", [{"figures": [HEATMAP]}, {"tuning": False}], ids=["a heat map", "no tuning"]
)
def test_who_draws_a_map_of_the_space_or_does_not_tune_does_not_race(
    sweep: dict[str, Any], tmp_path: Path
) -> None:
    schedule = racing(tmp_path, BEST, **sweep)
    assert not schedule.plan.job["race"]
    assert not any(request.race for request in schedule.requests(schedule.due()))


def test_what_lost_a_race_is_measured_in_full_where_there_is_none(tmp_path: Path) -> None:
    schedule = racing(tmp_path, EVERY)
    for record in schedule.view.records:
        record.result["stopped_by"] = "race"  # type: ignore[index]
    assert {schedule.plan.tasks[index].rung for index, _ in schedule.due()} == BEST, "the winners, once more"
    schedule.plan.job["race"] = False  # type: ignore[index]
    assert {schedule.plan.tasks[index].rung for index, _ in schedule.due()} == EVERY

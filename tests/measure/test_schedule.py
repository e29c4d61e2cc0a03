"""What a job measures next, as a table: the job, what the store holds, and what each of its passes is after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import edit_yaml
from factory import FINISHED, SESSION, Lab, Place, failed
from ladder.measure.schedule import Mode, Schedule

SWEEP, HERE, ELSEWHERE = "fp32_ladder", "GPU-1", "GPU-2"
EVERY = {"naive", "coalesced", "shared tile", "register tile", "transposed A"}
BEST = {"shared tile", "register tile", "transposed A"}
REPEATED: dict[str, Any] = {"repeated": {}}
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
    "some are measured": Case(
        ((HERE, BEST),), ((Mode.DUE, EVERY - BEST), (Mode.WINNERS, EVERY - BEST))
    ),
    "all are measured": Case(ALL, ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING))),
    "a tuning sweep with all measured": Case(
        ALL, ((Mode.DUE, BEST), (Mode.WINNERS, BEST)), sweep={"tuning": True}
    ),
    "a tuning sweep before all are measured": Case(
        ((HERE, BEST),),
        ((Mode.DUE, EVERY - BEST), (Mode.WINNERS, EVERY - BEST)),
        sweep={"tuning": True},
    ),
    "winners in a later session": Case(
        (*ALL, (ELSEWHERE, BEST)),
        ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)),
        sweep={"tuning": True},
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
        (*ALL, *ALL),
        ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)),
        sweep=REPEATED,
        measure={"sessions": 2},
    ),
    "all anew": Case(
        ALL,
        ((Mode.DUE, EVERY), (Mode.WINNERS, EVERY)),
        measure={"remeasure": True},
        job={"began": AFTER},
    ),
    "all anew, of which the run has measured all": Case(
        ALL,
        ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)),
        measure={"remeasure": True},
        job={"began": FINISHED},
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
        ALL,
        ((Mode.DUE, NOTHING), (Mode.WINNERS, NOTHING)),
        statuses={"naive": "incorrect"},
    ),
}


def scheduled(case: Case, folder: Path) -> Schedule:
    lab = Lab(folder)
    given = {"tuning": False, "regimes": ["cold"], "sizes": [4096]} | (case.sweep or {})
    edit_yaml(lab.project.sweeps / f"{SWEEP}.yaml", lambda sweep: sweep.update(given))
    lab.settings = {"measure": case.measure or {}}
    lab.compile(lab.sweeps([SWEEP])[SWEEP])
    for number, (gpu, rungs) in enumerate(case.held):

        def change(
            place: Place, record: dict[str, Any], rungs: set[str] = rungs
        ) -> dict[str, Any] | None:
            bad = (case.statuses or {}).get(place.entry.rung)
            record = failed(bad, "because")(record) if bad else record
            return record if place.entry.rung in rungs else None

        lab.session = replace(
            SESSION, id=f"session-{number}", gpu={**SESSION.gpu, "uuid": gpu}
        )
        lab.record([SWEEP], change)
    return Schedule(lab.view(SWEEP), lab.on("gemm"), **(case.job or {}))


@pytest.mark.parametrize("name", CASES)
def test_each_pass_of_a_job_is_after_what_the_table_says(
    name: str, tmp_path: Path
) -> None:
    schedule = scheduled(CASES[name], tmp_path)
    tasks = schedule.plan.tasks
    found = [
        (mode, {tasks[index].rung for index, _ in schedule.due(mode, HERE)})
        for mode in Mode
    ]
    assert tuple(found) == CASES[name].passes


def test_what_the_store_gained_meanwhile_is_not_due(tmp_path: Path) -> None:
    schedule = scheduled(Case((), ()), tmp_path / "a")
    assert schedule.due()
    schedule.look_at(scheduled(Case(ALL, ()), tmp_path / "b").view.records)
    assert not schedule.due()


def test_what_lost_a_race_of_an_earlier_version_stands(tmp_path: Path) -> None:
    """Its interval is wide, and says so."""
    schedule = scheduled(Case(ALL, ()), tmp_path)
    for record in schedule.view.records:
        record.result["stopped_by"] = "race"  # type: ignore[index]
    assert not schedule.due()

"""What a job measures next, as a table: the job, what the store holds, and what each of its passes is after."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from factory import FINISHED, SESSION, Fields, Lab, Place
from ladder.measure.schedule import Schedule

SWEEP, HERE, ELSEWHERE = "fp32_ladder", "GPU-1", "GPU-2"
EVERY = {"naive", "coalesced", "shared tile", "register tile", "transposed A"}
BEST = {"shared tile", "register tile", "transposed A"}
REPEATED: Fields = {"repeated": {}}
AFTER = "2026-11-20T11:00:00Z"
"""Later than all records, whose time is FINISHED."""


@dataclass(frozen=True)
class Case:
    """A job and a store: `held` are its sessions, as GPU and rungs; `due` on this GPU, and `winners` on any."""

    held: tuple[tuple[str, set[str]], ...]
    due: set[str]
    winners: set[str]
    sweep: Fields = field(default_factory=dict)
    measure: Fields = field(default_factory=dict)
    began: str = FINISHED


ALL, NOTHING = ((HERE, EVERY),), set[str]()
TUNING, TWICE = {"tuning": True}, {"sessions": 2}
CASES = {
    "an empty store": Case((), EVERY, EVERY),
    "some are measured": Case(((HERE, BEST),), EVERY - BEST, EVERY - BEST),
    "all are measured": Case(ALL, NOTHING, NOTHING),
    "a tuning sweep before all are measured": Case(
        ((HERE, BEST),), EVERY - BEST, EVERY - BEST, TUNING
    ),
    "a second session on this GPU": Case(ALL, EVERY, NOTHING, REPEATED, TWICE),
    "a second session on another GPU": Case(
        (*ALL, (ELSEWHERE, EVERY)), EVERY, NOTHING, REPEATED, TWICE
    ),
    "both sessions on this GPU": Case((*ALL, *ALL), NOTHING, NOTHING, REPEATED, TWICE),
    "all anew": Case(ALL, EVERY, EVERY, measure={"remeasure": True}, began=AFTER),
    "all anew, of which the run has measured all": Case(
        ALL, NOTHING, NOTHING, measure={"remeasure": True}
    ),
}


def scheduled(case: Case, folder: Path) -> Schedule:
    lab = Lab(folder)
    given = {"tuning": False, "regimes": ["cold"], "sizes": [4096]} | case.sweep
    lab.update(SWEEP, **given)
    lab.settings = {"measure": case.measure}
    lab.compile(lab.sweep_of(SWEEP))
    for number, (gpu, rungs) in enumerate(case.held):

        def change(
            place: Place, record: Fields, rungs: set[str] = rungs
        ) -> Fields | None:
            return record if place.entry.rung in rungs else None

        of_gpu = {**SESSION.gpu, "uuid": gpu}
        lab.session = replace(SESSION, id=f"session-{number}", gpu=of_gpu)
        lab.record([SWEEP], change)
    return Schedule(replace(lab.view(SWEEP), on=lab.on("gemm")), case.began)


@pytest.mark.parametrize("name", CASES)
def test_a_job_is_after_what_the_table_says(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    schedule = scheduled(case, tmp_path)

    def rungs(uuid: str | None) -> set[str]:
        tasks = schedule.plan.tasks
        return {tasks[index].rung for index, _ in schedule.due(uuid)}

    assert rungs(HERE) == case.due
    assert rungs(None) == case.winners


def test_what_the_store_gained_meanwhile_is_not_due(tmp_path: Path) -> None:
    schedule = scheduled(CASES["an empty store"], tmp_path / "a")
    assert schedule.due()
    other = scheduled(CASES["all are measured"], tmp_path / "b")
    schedule.look_at(other.view.records)
    assert not schedule.due()

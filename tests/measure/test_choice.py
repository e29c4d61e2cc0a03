"""The choice of a reference is measured: a record says who won, and every cell is held against the winner."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_worker
from conftest import edit_yaml
from factory import SESSION, Lab, Place
from ladder.gpu.timing import Pairs
from ladder.measure import worker
from ladder.measure.choice import SESSION as COMPONENT
from ladder.measure.choice import choice_in_words, decide, library_times, partners
from ladder.measure.choosing import against_quickest
from ladder.measure.request import Request
from ladder.measure.schedule import Schedule
from ladder.model.cell import Partner
from ladder.model.record import Conditions, Record, from_json
from ladder.results import tables
from ladder.results.publish import follows
from test_worker import plan_of, played

__all__ = ["played"]

SWEEP = "tensor_ladder"


def candidate(
    name: str, us: float, spread: float = 0.0, algorithm: str = "", count: int = 40
) -> dict[str, Any]:
    noise = random.Random(f"{name} {algorithm}")
    times = [us * (1 + spread * noise.gauss()) for _ in range(count)]
    return {"reference": name, "algorithm": algorithm, "us": times}


# What a record says of its candidates.


def test_the_fastest_wins_whichever_comes_first_and_the_runner_up_has_its_distance() -> (
    None
):
    given = [
        candidate("cublas", 103.0),
        candidate("cublaslt", 100.0, algorithm="id 1"),
        candidate("slow", 110.0),
    ]
    found = decide(given)
    assert (found["reference"], found["algorithm"]) == ("cublaslt", "id 1")
    assert found["runner_up"]["reference"] == "cublas"
    ends = [
        found["runner_up"][name] for name in ("longer", "longer_low", "longer_high")
    ]
    assert ends == pytest.approx([1.03] * 3)
    assert found["tied"] == []
    assert partners(found) == [Partner("cublaslt", "id 1")]


@pytest.mark.parametrize(
    ("share", "spread", "tied"),
    [
        (0.0, 0.0, True),
        (COMPONENT - 0.001, 0.0, True),
        (COMPONENT + 0.001, 0.0, False),
        (0.01, 0.05, True),
    ],
)
def test_what_is_no_slower_beyond_doubt_or_by_less_than_sessions_differ_ties(
    share: float, spread: float, tied: bool
) -> None:
    given = [
        candidate("cublas", 100.0, spread),
        candidate("cublaslt", 100.0 * (1 + share), spread),
    ]
    found = decide(given)
    assert bool(found["tied"]) == tied
    assert len(partners(found)) == 1 + tied
    assert ("1 tied" in choice_in_words(found)) == tied


def test_distances_are_from_pairs_with_the_winner_where_a_record_has_them() -> None:
    """The winner's clock may have fallen since its own times; the pairs say 1 %, the medians 4 %."""
    rival = candidate("cublas", 104.0) | {"fastest_us": [103.0] * 40}
    found = decide([candidate("cublaslt", 100.0), rival])
    assert found["reference"] == "cublaslt"
    assert found["runner_up"]["longer"] == pytest.approx(104 / 103)
    times = library_times(
        {"candidates": [candidate("cublaslt", 100.0), rival], "references": {}}
    )
    assert times == {"cublaslt": 100.0, "cublas": pytest.approx(100 * 104 / 103)}


@pytest.mark.parametrize("order", ["ABC", "CBA", "BAC"])
def test_each_candidate_meets_the_quickest_so_far_and_in_the_end_the_winner(
    order: str,
) -> None:
    us, met = {"A": 10.0, "B": 10.1, "C": 10.3}, list[str]()

    def compare(quickest: Partner, other: Partner) -> Pairs:
        met.append(quickest.reference + other.reference)
        return Pairs(*([us[one.reference]] * 12 for one in (quickest, other)))

    winner, rivals = against_quickest([Partner(name) for name in order], compare)
    assert winner == Partner("A")
    assert {one.reference: pairs.speedup()[0] for one, pairs in rivals.items()} == {
        "B": pytest.approx(1.01),
        "C": pytest.approx(1.03),
    }
    assert (
        met
        == {"ABC": ["AB", "AC"], "CBA": ["CB", "BA", "AC"], "BAC": ["BA", "AC"]}[order]
    )


def test_one_alone_has_no_runner_up() -> None:
    found = decide([candidate("cublaslt", 10.0, algorithm="id 3")])
    assert (found["runner_up"], found["tied"]) == (None, [])
    assert choice_in_words(found) == "cublaslt id 3, which is alone"


def test_each_library_has_the_time_of_its_fastest_algorithm_a_quick_one_if_it_was_far() -> (
    None
):
    given = [candidate("cublaslt", us, algorithm=f"id {us}") for us in (11.0, 10.0)]
    found = {"candidates": given, "references": {"cublaslt": 10.4, "cublas": 14.0}}
    assert library_times(found) == {"cublaslt": pytest.approx(10.0), "cublas": 14.0}


# The worker.


def plan_with_choices(tmp_path: Path) -> Any:
    plan = plan_of("hopper_fp8", tmp_path)
    (tmp_path / "none.cubin").touch()
    assert plan.choices
    assert {one.kernel for one in plan.choices} == {""}
    return plan


@pytest.mark.parametrize("regime", ["cold", "warm", "sustained"])
def test_a_worker_times_every_algorithm_in_the_regime_and_its_record_can_be_read(
    regime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_worker, "LAUNCH_US", 90.0)
    plan = plan_with_choices(tmp_path)
    plan = replace(plan, choices=(replace(plan.choices[0], regime=regime),))
    answer = worker.Worker(plan, tmp_path).answer(Request(0, [regime], choice=True))
    (result,) = answer["results"].values()
    assert result["status"] == "ok", result["reason"]
    names = [(one["reference"], one["algorithm"]) for one in result["candidates"]]
    assert sorted(names) == [
        (name, f"id {n}") for name in ("cublaslt", "cublaslt_fast") for n in (1, 2)
    ]
    least = 6 if regime == "sustained" else 12
    assert all(len(one["us"]) >= least for one in result["candidates"])
    assert follows(result)
    record = Record(
        plan.choices[0],
        Conditions(),
        "x",
        "s",
        "session",
        "2026-11-20T10:00:00Z",
        **split(result),
    )
    assert from_json(record.to_json(), "here") == record


def split(result: dict[str, Any]) -> dict[str, Any]:
    own = {name: result[name] for name in ("status", "reason")}
    return own | {
        "result": {name: value for name, value in result.items() if name not in own}
    }


def test_a_choice_comes_before_any_variant_in_its_process(tmp_path: Path) -> None:
    """So nothing that a kernel leaves behind reaches the times that it is held against."""
    plan = plan_with_choices(tmp_path)
    own = worker.Worker(plan, tmp_path)
    assert (
        own.answer(test_worker.request(plan, 0, "cold"))["results"]["cold"]["status"]
        == "ok"
    )
    with pytest.raises(AssertionError, match="before any variant"):
        own.answer(Request(0, [plan.choices[0].regime], choice=True))


@pytest.mark.parametrize("regime", ["warm", "sustained"])
def test_in_sustained_each_library_has_its_fastest_among_the_candidates(
    regime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short chains said 5 % of libraries that are as fast where the power limit holds."""
    monkeypatch.setattr(test_worker, "LAUNCH_US", 90.0)

    def quickly(self: Any, candidates: Any) -> dict[Partner, float]:
        us = {
            ("cublaslt", "id 1"): 186.0,
            ("cublaslt", "id 2"): 195.0,
            ("cublaslt_fast", "id 1"): 196.0,
        }
        return {
            one: us.get((one.reference, one.algorithm), 197.0) for one in candidates
        }

    monkeypatch.setattr("ladder.measure.choosing.Choosing._quick_times", quickly)
    plan = plan_with_choices(tmp_path)
    plan = replace(plan, choices=(replace(plan.choices[0], regime=regime),))
    (result,) = (
        worker.Worker(plan, tmp_path)
        .answer(Request(0, [regime], choice=True))["results"]
        .values()
    )
    names = [(one["reference"], one["algorithm"]) for one in result["candidates"]]
    other = [("cublaslt_fast", "id 1")] if regime == "sustained" else []
    assert names == [("cublaslt", "id 1"), *other]


def test_candidates_that_are_wrong_leave_a_note_and_none_that_is_right_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_with_choices(tmp_path)
    wrong = {"id 1"}

    def library(self: Any, partner: Partner, params: Any, instance: Any) -> Any:
        if partner.algorithm not in wrong:
            return lambda: None
        self.note(str(partner), "wrong: 2 of 9")
        return None

    monkeypatch.setattr("ladder.measure.bench.Bench.library", library)
    ask = Request(0, [plan.choices[0].regime], choice=True)
    (result,) = worker.Worker(plan, tmp_path).answer(ask)["results"].values()
    assert {one["algorithm"] for one in result["candidates"]} == {"id 2"}
    assert result["notes"] == ["cublaslt id 1 and 1 more: wrong: 2 of 9"], (
        "what is wrong of several is said once"
    )
    wrong.add("id 2")
    (result,) = worker.Worker(plan, tmp_path).answer(ask)["results"].values()
    assert result["status"] == "unsupported"
    assert result["reason"].endswith("more: wrong: 2 of 9")


def test_a_kernel_that_takes_too_long_for_warm_says_so_whatever_its_reference(
    tmp_path: Path,
) -> None:
    plan = plan_with_choices(tmp_path)
    against = {"warm": {"absent": "warm is for kernels below 200 us"}}
    (result,) = (
        worker.Worker(plan, tmp_path)
        .answer(Request(0, ["warm"], against=against))["results"]
        .values()
    )
    assert (result["status"], result["reason"]) == (
        "unsupported",
        "warm is for kernels below 200 us",
    )


def test_a_task_is_timed_against_what_was_chosen_regime_by_regime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_worker, "LAUNCH_US", 90.0)
    plan = plan_with_choices(tmp_path)
    own = worker.Worker(plan, tmp_path)
    against = {
        "cold": {"reference": "cublaslt_fast", "algorithm": "id 2"},
        "warm": {"reference": "cublaslt", "algorithm": "id 1"},
    }
    results = own.answer(Request(0, [*against], against=against))["results"]
    assert [(one["reference"], one["algorithm"]) for one in results.values()] == [
        ("cublaslt_fast", "id 2"),
        ("cublaslt", "id 1"),
    ]
    absent = {"warm": {"absent": "the reference cublas: it is wrong"}}
    results = own.answer(Request(0, ["warm"], against=absent))["results"]
    assert results["warm"]["status"] == "unsupported"
    assert (
        results["warm"]["reason"] == "no reference: the reference cublas: it is wrong"
    )


# The schedule.


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    edit_yaml(
        made.project.sweeps / f"{SWEEP}.yaml",
        lambda sweep: sweep.update(references=["cublas", "cublaslt"]),
    )
    return made


def schedule(lab: Lab, **more: Any) -> Schedule:
    lab.compile(lab.sweeps([SWEEP])[SWEEP])
    return Schedule(lab.view(SWEEP), lab.on("gemm"), **more)


def over(name: str) -> Callable[[Place, dict[str, Any]], dict[str, Any]]:
    """Every cell was timed against this library."""

    def change(_: Place, record: dict[str, Any]) -> dict[str, Any]:
        for timed in record["regimes"].values():
            timed["reference"] = name
        return record

    return change


def answered(one: Schedule, index: int, **fields: Any) -> None:
    """A choice of the plan gets its record."""
    given = {"status": "ok"} | fields
    one.take(
        [
            one.view.new_choice(
                one.plan.choices[index], one.on or {}, "session-9", **given
            )
        ]
    )


def won_by(*candidates: dict[str, Any]) -> dict[str, Any]:
    found = decide(candidates)
    return {
        "result": {"candidates": [*candidates], "references": {}, "notes": [], **found}
    }


def test_choices_come_first_and_cells_name_the_winner_of_their_regime(lab: Lab) -> None:
    one = schedule(lab)
    regimes = [choice.regime for choice in one.plan.choices]
    assert regimes == ["cold", "warm"], "one for all cells of the operands"
    asked = one.requests(one.due())
    winners = {
        "cold": [
            candidate("cublaslt", 10.0, algorithm="id 7"),
            candidate("cublas", 11.0),
        ],
        "warm": [
            candidate("cublas", 10.0),
            candidate("cublaslt", 11.0, algorithm="id 7"),
        ],
    }
    for regime in regimes:
        request = next(asked)
        assert (request.choice, request.regimes) == (True, [regime])
        answered(one, request.index, **won_by(*winners[regime]))
    rest = [*asked]
    assert [request.index for request in rest] == [0, 1]
    for request in rest:
        assert not request.choice
        assert request.against == {
            "cold": {"reference": "cublaslt", "algorithm": "id 7"},
            "warm": {"reference": "cublas", "algorithm": ""},
        }


def test_a_choice_that_is_recorded_is_not_measured_again(lab: Lab) -> None:
    lab.record([SWEEP])
    assert schedule(lab).due() == []
    edit_yaml(
        lab.project.sweeps / f"{SWEEP}.yaml",
        lambda sweep: sweep["variants"].append(
            {"kernel": "wmma_tile", "params": {"warps": 4}}
        ),
    )
    one = schedule(lab)
    assert one.due()
    assert one.choices(one.due()) == []
    lab.settings = {"measure": {"remeasure": True}}
    one = schedule(lab)
    assert one.choices(one.due()) == [0, 1], "all anew chooses anew"


def test_cells_over_another_library_than_the_winner_are_due_unless_it_ties(
    lab: Lab,
) -> None:
    lab.record([SWEEP], over("cublaslt"))
    assert {index for index, _ in schedule(lab).due()} == {0, 1}, "cublas won by 5 %"
    lab.libraries_us = {"cublas": 100.0, "cublaslt": 100.2}
    lab.session = replace(SESSION, id="session-2")
    lab.record([SWEEP], over("cublaslt"))
    assert schedule(lab).due() == [], "either may be the partner"


def test_without_a_reference_cells_say_why_and_are_tried_again_once_one_may_be_had(
    lab: Lab,
) -> None:
    one = schedule(lab, began="2026-01-01T00:00:00Z")
    lacking = {
        "status": "unsupported",
        "reason": "needs 9 bytes",
        "result": {"transient": True},
    }
    for index in (0, 1):
        answered(one, index, **lacking)
    requests = [*one.requests(one.due())]
    assert {request.choice for request in requests} == {False}, "this run has seen it"
    assert requests[0].against["cold"] == {"absent": "needs 9 bytes"}
    failed = {
        "status": "unsupported",
        "reason": "no reference: needs 9 bytes",
        "result": {"reference": ""},
    }
    for _, task in one.view.launched():
        one.take(
            [
                one.view.new_record(task, regime, one.on or {}, "session-9", **failed)
                for regime in ("cold", "warm")
            ]
        )
    assert one.due() == []
    later_run = Schedule(one.view, one.on, began="2100-01-01T00:00:00Z")
    assert later_run.choices(later_run.due()) == [0, 1]
    for index in (0, 1):
        answered(one, index, **won_by(candidate("cublas", 10.0)))
    assert {index for index, _ in one.due()} == {0, 1}, "there is one now"


# The tables.


def rows(lab: Lab) -> Any:
    lab.collect([SWEEP])
    found = tables.read("timings", lab.folder.tables)
    return found[found["regime"] == "cold"]


def test_a_row_says_whether_its_reference_is_the_faster_and_how_fast_it_is_over_either(
    lab: Lab,
) -> None:
    lab.libraries_us = {"cublas": 100.0, "cublaslt": 110.0}
    lab.record([SWEEP])
    found = rows(lab)
    assert set(found["reference_is"]) == {"faster"}
    assert found["over_cublas"].tolist() == pytest.approx(found["speedup"].tolist())
    assert found["over_cublaslt"].tolist() == pytest.approx(
        (found["speedup"] * 1.1).tolist()
    )
    notes = tables.read("notes", lab.folder.tables)
    assert not notes["reason"].str.contains("ties|converted").any()


def test_a_tie_is_said(lab: Lab) -> None:
    lab.libraries_us = {"cublas": 100.0, "cublaslt": 100.2}
    lab.record([SWEEP])
    assert set(rows(lab)["reference_is"]) == {"tied"}
    notes = tables.read("notes", lab.folder.tables)
    said = notes[notes["stage"] == "reference"]
    assert set(said["reason"]) == {
        "cublas ties with cublaslt: either may be the faster one"
    }


def test_sessions_over_another_library_than_the_winner_are_not_averaged_with_the_others(
    lab: Lab,
) -> None:
    lab.record([SWEEP], over("cublaslt"))
    lab.session, lab.finished = replace(SESSION, id="session-2"), "2026-11-20T12:20:00Z"
    lab.record([SWEEP])
    found = rows(lab)
    assert set(found["reference"]) == {"cublas"}
    assert set(found["sessions"]) == {1}
    assert (
        not tables.read("notes", lab.folder.tables)["reason"]
        .str.contains("converted")
        .any()
    )


def test_each_session_is_over_what_it_chose_itself(lab: Lab) -> None:
    lab.libraries_us = {"cublas": 105.0, "cublaslt": 100.0}
    lab.record([SWEEP], over("cublaslt"))
    lab.session, lab.finished = replace(SESSION, id="session-2"), "2026-11-20T12:20:00Z"
    lab.libraries_us = {"cublas": 100.0, "cublaslt": 105.0}
    lab.record([SWEEP])
    assert schedule(lab).due() == []
    found = rows(lab)
    assert set(found["reference"]) == {"cublas"}
    assert set(found["sessions"]) == {2}, (
        "a later choice leaves what was measured over an earlier one"
    )
    lab.session, lab.finished = replace(SESSION, id="session-3"), "2026-11-20T12:30:00Z"
    lab.libraries_us = None
    lab.record([SWEEP], over("cudnn"))
    assert set(rows(lab)["sessions"]) == {2}, "no session chose this one"


def test_sessions_over_libraries_that_tie_are_averaged_as_they_were_read(
    lab: Lab,
) -> None:
    """What earlier records would have been converted by does not touch them."""

    def apart(place: Place, record: dict[str, Any]) -> dict[str, Any]:
        for timed in record["regimes"].values():
            timed |= {
                name: timed[name] / 1.03
                for name in ("speedup", "speedup_low", "speedup_high")
            }
        return over("cublaslt")(place, record)

    lab.libraries_us = {"cublas": 100.0, "cublaslt": 100.2}
    lab.record([SWEEP], apart)
    lab.session, lab.finished = replace(SESSION, id="session-2"), "2026-11-20T12:20:00Z"
    lab.record([SWEEP])
    assert set(rows(lab)["sessions"]) == {2}
    assert (
        not tables.read("notes", lab.folder.tables)["reason"]
        .str.contains("converted")
        .any()
    )


def test_records_from_before_choices_had_records_count_as_they_did(lab: Lab) -> None:
    lab.libraries_us = None
    lab.record([SWEEP], over("cublaslt"))
    found = rows(lab)
    assert set(found["reference"]) == {"cublaslt"}
    assert found["reference_is"].isna().all()


def test_publishing_recomputes_a_choice_from_its_times() -> None:
    given = [candidate("cublas", 10.0, 0.01), candidate("cublaslt", 10.2, 0.01)]
    result = {"candidates": given, "stopped_by": "precision", **decide(given)}
    assert follows(result)
    assert not follows(result | {"reference": "cublaslt"})
    assert not follows(result | {"tied": [{"reference": "another", "algorithm": ""}]})

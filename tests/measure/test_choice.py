"""The choice of a reference is measured: a record says who won, and every cell is held against the winner."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_worker
from conftest import edit_yaml
from factory import Change, Fields, Lab, Place
from ladder.gpu.timing import Pairs, nothing
from ladder.measure import worker
from ladder.measure.assignment import Assignment
from ladder.measure.candidates import against_quickest
from ladder.measure.choice import SESSION as COMPONENT
from ladder.measure.choice import choice_in_words, decide, library_times, partners
from ladder.measure.references import VerifiedReference
from ladder.measure.schedule import Schedule
from ladder.model.cell import Partner
from ladder.model.errors import LadderError
from ladder.model.plan import Plan
from ladder.model.record import Conditions, Record, from_text
from ladder.results import tables
from ladder.results.publish import follows
from test_sessions import again
from test_worker import choose, plan_of, played

__all__ = ["played"]

SWEEP = "tensor_ladder"


def candidate(
    name: str, us: float, spread: float = 0.0, algorithm: str = "", count: int = 40
) -> Fields:
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


def test_each_library_has_the_time_of_its_fastest_algorithm_a_quick_one_if_it_was_far() -> (
    None
):
    given = [candidate("cublaslt", us, algorithm=f"id {us}") for us in (11.0, 10.0)]
    found = {"candidates": given, "references": {"cublaslt": 10.4, "cublas": 14.0}}
    assert library_times(found) == {"cublaslt": pytest.approx(10.0), "cublas": 14.0}


# The worker.


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Its tasks have algorithms to choose from; launches are short enough for warm."""
    monkeypatch.setattr(test_worker, "LAUNCH_US", 90.0)
    return plan_of("hopper_fp8", tmp_path)


def names(result: Fields) -> list[tuple[str, str]]:
    return [(one["reference"], one["algorithm"]) for one in result["candidates"]]


@pytest.mark.parametrize(
    ("regime", "least"), [("cold", 12), ("warm", 12), ("sustained", 6)]
)
def test_a_worker_times_every_algorithm_in_the_regime_and_its_record_can_be_read(
    regime: str, least: int, plan: Plan, tmp_path: Path
) -> None:
    result = choose(plan, tmp_path, regime)
    assert result["status"] == "ok", result["reason"]
    assert sorted(names(result)) == [
        (name, f"id {n}") for name in ("cublaslt", "cublaslt_fast") for n in (1, 2)
    ]
    assert all(len(one["us"]) >= least for one in result["candidates"])
    assert follows(result)
    given = {name: result.pop(name) for name in ("status", "reason")}
    record = Record(
        plan.choices[0],
        Conditions(),
        "x",
        "s",
        "session",
        "2026-11-20T10:00:00Z",
        result=result,
        **given,
    )
    assert from_text(json.dumps(record.to_json()), "here") == record


def test_a_choice_comes_before_any_variant_in_its_process(
    plan: Plan, tmp_path: Path
) -> None:
    """So nothing that a kernel leaves behind reaches the times that it is held against."""
    own = worker.Worker(plan, tmp_path)
    assert test_worker.cold(own)["status"] == "ok"
    with pytest.raises(AssertionError, match="before any variant"):
        own.answer(Assignment(0, [plan.choices[0].regime], choice=True))


@pytest.mark.parametrize("regime", ["warm", "sustained"])
def test_in_sustained_each_library_has_its_fastest_among_the_candidates(
    regime: str, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short chains said 5 % of libraries that are as fast where the power limit holds."""
    us = {"cublaslt id 1": 186.0, "cublaslt id 2": 195.0, "cublaslt_fast id 1": 196.0}
    monkeypatch.setattr(
        "ladder.measure.candidates.CandidateTiming._quick_times",
        lambda _, candidates: {one: us.get(str(one), 197.0) for one in candidates},
    )
    other = [("cublaslt_fast", "id 1")] if regime == "sustained" else []
    result = choose(plan, tmp_path, regime)
    assert names(result) == [("cublaslt", "id 1"), *other]


def test_candidates_that_are_wrong_leave_a_note_and_none_that_is_right_is_unsupported(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"id 1"}

    def library(self: Any, partner: Partner, params: Any) -> Any:
        if partner.algorithm not in wrong:
            return VerifiedReference(lambda: None)
        self.notes[str(partner)] = "wrong: 2 of 9"
        return None

    bench = "ladder.measure.references.BenchWithReferences"
    monkeypatch.setattr(f"{bench}.library", library)
    result = choose(plan, tmp_path)
    assert {algorithm for _, algorithm in names(result)} == {"id 2"}
    # What is wrong of several is said once.
    assert result["notes"] == ["cublaslt id 1 and 1 more: wrong: 2 of 9"]
    wrong.add("id 2")
    result = choose(plan, tmp_path)
    assert result["status"] == "unsupported"
    assert result["reason"].endswith("more: wrong: 2 of 9")


def test_a_library_that_has_nothing_for_these_operands_leaves_a_note(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"fast"}

    def cublaslt(_: Any, gemm: Any, fast: bool = False) -> Fields:
        if lost & {"fast" if fast else "other"}:
            raise LadderError("not for these")
        return {"id 1": nothing}

    monkeypatch.setattr(test_worker.Libraries, "cublaslt", cublaslt)
    result = choose(plan, tmp_path)
    assert (names(result), result["notes"]) == (
        [("cublaslt", "id 1")],
        ["cublaslt_fast: not for these"],
    )
    lost.add("other")
    result = choose(plan, tmp_path)
    assert result["status"] == "unsupported"
    assert result["reason"].endswith(" and 1 more: not for these")


def test_an_algorithm_that_the_list_no_longer_holds_is_no_reference(
    plan: Plan, tmp_path: Path
) -> None:
    against = {"cold": {"reference": "cublaslt", "algorithm": "id 9"}}
    own = worker.Worker(plan, tmp_path)
    result = own.answer(Assignment(0, ["cold"], against=against))["results"]["cold"]
    assert (result["status"], result["transient"]) == ("unsupported", True)
    says = "cublaslt id 9: its list of algorithms does not hold 'id 9'"
    assert result["reason"] == f"no reference: {says}"


def test_a_task_is_timed_against_what_was_chosen_regime_by_regime(
    plan: Plan, tmp_path: Path
) -> None:
    own = worker.Worker(plan, tmp_path)
    against = {
        "cold": {"reference": "cublaslt_fast", "algorithm": "id 2"},
        "warm": {"reference": "cublaslt", "algorithm": "id 1"},
        "sustained": {"absent": "it is wrong"},
    }
    results = own.answer(Assignment(0, [*against], against=against))["results"]
    for regime in ("cold", "warm"):
        assert results[regime].items() >= against[regime].items()
    # Whatever its reference.
    assert results["sustained"]["reason"] == "sustained is for kernels from 100 us on"
    absent = {"warm": {"absent": "the reference cublas: it is wrong"}}
    result = own.answer(Assignment(0, ["warm"], against=absent))["results"]["warm"]
    reason = "no reference: the reference cublas: it is wrong"
    assert (result["status"], result["reason"]) == ("unsupported", reason)


# The schedule.


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    made = Lab(tmp_path)
    made.update(SWEEP, references=["cublas", "cublaslt"])
    return made


def schedule(lab: Lab, **more: Any) -> Schedule:
    lab.compile(lab.sweep_of(SWEEP))
    return Schedule(replace(lab.view(SWEEP), on=lab.on("gemm")), **more)


def over(name: str) -> Change:
    """Every cell was timed against this library."""

    def change(_: Place, record: Fields) -> Fields:
        for timed in record["regimes"].values():
            timed["reference"] = name
        return record

    return change


def answered(one: Schedule, index: int, **fields: Any) -> None:
    """A choice of the plan gets its record."""
    given = {"status": "ok"} | fields
    decision = one.view.new_decision(one.plan.choices[index], "session-9", **given)
    one.view.records.add([decision])


def won_by(*candidates: Fields) -> Fields:
    found = decide(candidates)
    return {
        "result": {"candidates": [*candidates], "references": {}, "notes": [], **found}
    }


def test_choices_come_first_and_cells_name_the_winner_of_their_regime(lab: Lab) -> None:
    one = schedule(lab)
    regimes = [choice.regime for choice in one.plan.choices]
    assert regimes == ["cold", "warm"], "one for all cells of the operands"
    asked = one.assignments(one.due())
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
        assignment = next(asked)
        assert (assignment.choice, assignment.regimes) == (True, [regime])
        answered(one, assignment.index, **won_by(*winners[regime]))
    rest = [*asked]
    assert [assignment.index for assignment in rest] == [0, 1]
    for assignment in rest:
        assert not assignment.choice
        assert assignment.against == {
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
    again(lab, SWEEP, 2, over("cublaslt"))
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
    assignments = [*one.assignments(one.due())]
    assert {assignment.choice for assignment in assignments} == {False}, (
        "this run has seen it"
    )
    assert assignments[0].against["cold"] == {"absent": "needs 9 bytes"}
    failed = {
        "status": "unsupported",
        "reason": "no reference: needs 9 bytes",
        "result": {"reference": ""},
    }
    for _, task in one.view.launched():
        one.view.records.add(
            [
                one.view.new_record(task, regime, "session-9", **failed)
                for regime in ("cold", "warm")
            ]
        )
    assert one.due() == []
    later_run = Schedule(one.view, began="2100-01-01T00:00:00Z")
    assert later_run.choices(later_run.due()) == [0, 1]
    for index in (0, 1):
        answered(one, index, **won_by(candidate("cublas", 10.0)))
    assert {index for index, _ in one.due()} == {0, 1}, "there is one now"


# The tables.


@pytest.mark.parametrize(("cublaslt_us", "is_"), [(110.0, "faster"), (100.2, "tied")])
def test_a_row_says_whether_its_reference_is_the_faster_and_how_fast_it_is_over_either(
    cublaslt_us: float, is_: str, lab: Lab
) -> None:
    lab.libraries_us = {"cublas": 100.0, "cublaslt": cublaslt_us}
    lab.record([SWEEP])
    timings = rows(lab)
    assert set(timings["reference_is"]) == {is_}
    speedups = timings["speedup"]
    assert timings["over_cublas"].tolist() == pytest.approx(speedups.tolist())
    over_other = (speedups * cublaslt_us / 100).tolist()
    assert timings["over_cublaslt"].tolist() == pytest.approx(over_other)
    reasons = tables.read("notes", lab.folder.tables)["reason"]
    assert reasons.str.contains("cublas ties with cublaslt").any() == (is_ == "tied")


def test_each_session_is_over_what_it_chose_itself(lab: Lab) -> None:
    lab.libraries_us = {"cublas": 105.0, "cublaslt": 100.0}
    lab.record([SWEEP], over("cublaslt"))
    lab.libraries_us = {"cublas": 100.0, "cublaslt": 105.0}
    again(lab, SWEEP, 2)
    assert schedule(lab).due() == []
    timings = rows(lab)
    assert set(timings["reference"]) == {"cublas"}
    # A later choice leaves what was measured over an earlier one.
    assert set(timings["sessions"]) == {2}
    lab.libraries_us = None
    again(lab, SWEEP, 3, over("cudnn"))
    assert set(rows(lab)["sessions"]) == {2}, "no session chose this one"


def rows(lab: Lab) -> Any:
    lab.collect([SWEEP])
    found = tables.read("timings", lab.folder.tables)
    return found[found["regime"] == "cold"]


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

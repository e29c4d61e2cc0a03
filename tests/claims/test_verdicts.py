"""Verdicts come from the data alone: they flip when the data flip, and say so when the data are missing."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from checkout import every_sweep
from conftest import ROOT
from factory import Lab
from ladder.claims import ledger
from ladder.claims.ledger import (
    CLAIMS,
    Claim,
    check_claims,
    check_names,
    decided,
    rows_of,
)
from ladder.claims.primitives import (
    EQUIVALENT,
    HOLDS,
    REFUTED,
    Part,
    Parts,
    combine,
    combine_groups,
    corrected,
    decide_part,
    note,
    verdict_of_value,
)
from ladder.cli.app import main
from ladder.model.errors import LadderError
from ladder.model.schemas import VERDICTS
from ladder.results import tables
from ladder.results.run_data import Row, RunData, Value, Values, read_frames
from ladder.results.statistics import Estimate
from ladder.results.verdicts import NORMAL
from tiles import cell, made

PUBLISHED = ROOT / "results/published/nvidia-h200"
WAVES = "wavefronts"


def speed(data: RunData, **condition: Any) -> Part:
    """The part "at least as fast as `old`" of the rows of `tiles`, with what counts as equal."""
    return decide_part(
        "speed",
        data.speeds(data.timed("tiles")),
        **{"least": 1, "margin": 0.01, "per": "n", **condition},
    )


@pytest.mark.parametrize(
    ("least", "most", "value", "verdict"),
    [
        (1, math.inf, Estimate(0.90, 0.89, 0.91), "refuted"),
        (1, math.inf, Estimate(1.00, 0.98, 1.02), "undecided"),
        # Ahead, but by nothing that matters.
        (1, math.inf, Estimate(1.005, 1.003, 1.007), "equivalent"),
        (1, math.inf, Estimate(1.02, 1.005, 1.03), "holds"),
        (-math.inf, 1, Estimate(0.90, 0.89, 0.91), "holds"),
        (-math.inf, 1, Estimate(1.10, 1.09, 1.11), "refuted"),
        # The value itself is part of its interval.
        (-math.inf, 1.11, Estimate(1.10, 1.12, 1.13), "undecided"),
        # From 1.7 to 1.8 times, and the more the better.
        (1.7, 1.8, Estimate(1.75, 1.72, 1.78), "holds"),
        (1.7, 1.8, Estimate(1.95, 1.93, 1.97), "holds and more"),
        (1.7, 1.8, Estimate(1.5, 1.48, 1.52), "refuted"),
    ],
)
def test_one_value_against_an_edge(
    least: float, most: float, value: Estimate, verdict: str
) -> None:
    between = math.isfinite(least + most)
    assert verdict_of_value(value, least, most, 0.01, more=between) == verdict


@pytest.mark.parametrize(
    ("value", "spread", "verdict"),
    [(1.0, 0.005, "holds"), (1.03, 0.01, "refuted"), (1.01, 0.005, "undecided")],
)
def test_a_statement_of_no_difference_holds_within_its_margin(
    value: float, spread: float, verdict: str
) -> None:
    data = made(cell(1024, value, spread=spread))
    part = speed(data, least=-math.inf, near=1)
    assert part.verdict == verdict
    assert part.label == "speed: 1 within 0.01"


def test_a_part_that_holds_and_more_is_not_demoted_by_chance() -> None:
    part = speed(
        made(cell(1024, 1.95), cell(2048, 1.75)),
        least=1.7,
        most=1.8,
        more=True,
        margin=0.0,
    )
    assert part.verdict == "holds"
    assert part.where == "holds at n = 2048; holds and more at n = 1024"
    assert part.label == "speed: from 1.7 to 1.8"


@pytest.mark.parametrize(
    ("groups", "verdict"),
    [
        (["holds", "refuted"], "only where"),
        (["holds and more", "refuted", "undecided"], "only where"),
        (["refuted", "undecided"], "refuted"),
    ],
)
def test_what_holds_at_some_sizes_and_fails_at_others_holds_only_there(
    groups: list[str], verdict: str
) -> None:
    assert combine_groups(groups) == verdict
    assert combine_groups(["holds", "refuted"], some=True) == "holds"


@pytest.mark.parametrize(
    ("verdicts", "every", "some"),
    [
        (["holds", "refuted"], "refuted", "holds"),
        (["holds", "equivalent"], "equivalent", "holds"),
        (["equivalent", "undecided"], "undecided", "equivalent"),
        (["undecided", "not measured"], "not measured", "undecided"),
        (["refuted", "not measured"], "refuted", "not measured"),
    ],
)
def test_several_verdicts_combine(verdicts: list[str], every: str, some: str) -> None:
    assert combine(verdicts) == every
    assert combine(verdicts, some=True) == some


def drawn(
    random: np.random.Generator, truth: float, count: int, half_width: float = 0.01
) -> list[Estimate]:
    """Values read of the same `truth`, each with its 95 % interval."""
    read = truth + random.normal(0, half_width / NORMAL, count)
    return [Estimate(value, value - half_width, value + half_width) for value in read]


@pytest.mark.parametrize(
    ("count", "some", "alone"),
    [(14, False, REFUTED), (33, False, REFUTED), (14, True, HOLDS)],
)
def test_many_values_decide_no_oftener_by_chance_than_one(
    count: int, some: bool, alone: str
) -> None:
    """Each is equal to the edge: without a correction 14 refute a true statement in 30 % of cases, 33 in 56 %."""
    random, wrong, uncorrected, trials = np.random.default_rng(5), 0, 0, 400
    for _ in range(trials):
        values = drawn(random, 1.0, count)
        own = [verdict_of_value(value, 1.0, math.inf) for value in values]
        uncorrected += alone in own
        wrong += alone in corrected(values, own, 1.0, math.inf, some)
    assert uncorrected / trials > 0.2
    assert wrong / trials <= 0.05


def test_what_is_clearly_beyond_the_edge_stays_refuted_among_many() -> None:
    values = [*drawn(np.random.default_rng(5), 1.0, 13), Estimate(0.9, 0.89, 0.91)]
    own = [verdict_of_value(value, 1.0, math.inf) for value in values]
    assert corrected(values, own, 1.0, math.inf)[-1] == REFUTED


def test_a_value_alone_and_a_count_need_no_correction() -> None:
    one = [Estimate(0.985, 0.975, 0.999)]
    assert corrected(one, [REFUTED], 1.0, math.inf) == [REFUTED]
    counts = [Estimate(2.0, 2.0, 2.0)] * 20
    assert corrected(counts, [REFUTED] * 20, -math.inf, 1.0) == [REFUTED] * 20


def test_a_part_without_a_margin_of_its_own_takes_what_sessions_differ_by() -> None:
    def part(value: float, timed: bool) -> Part:
        row = Row({"n": 1, "kernel": "k", "params": "{}"})
        estimate = Estimate(value, value - 1e-4, value + 1e-4)
        found = Value(estimate, row=row, timed=(row,) if timed else ())
        return decide_part("speed", Values("sweep", [found]), least=1)

    assert part(0.998, timed=True).verdict == EQUIVALENT
    assert part(0.99, timed=True).verdict == REFUTED
    assert part(0.998, timed=False).verdict == REFUTED


def test_each_size_has_a_verdict_and_the_part_says_at_which_sizes() -> None:
    data = made(
        cell(512, 1.2),
        cell(1024, 0.9),
        cell(2048, 1.001),
        cell(4096, 1.3),
        cell(8192, 0.99, spread=0.02),
    )
    part = speed(data)
    assert part.verdict == "only where"
    assert (
        part.where
        == "holds at n = 512, 4096; refuted at n = 1024; equivalent at n = 2048; undecided at n = 8192"
    )
    assert part.decisive.measured == Estimate(0.9, 0.898, 0.902), (
        "the value that is worst for the statement"
    )
    assert part.span == "0.900 to 1.30 x"
    assert part.evidence == (
        "From 0.9 x [0.898, 0.902] at size 1024 to 1.3 x [1.298, 1.302] at size 4096; "
        "of 5: 2 holds, 1 refuted, 1 equivalent, 1 undecided."
    )


def test_at_one_size_all_rows_must_hold_or_one_where_the_statement_says_sometimes() -> (
    None
):
    data = made(cell(1024, 1.2), cell(1024, 0.9, pad=4), cell(2048, 0.8))
    assert speed(data).where == "refuted at n = 1024, 2048"
    sometimes = speed(data, some=True)
    assert (sometimes.verdict, sometimes.where) == (
        "holds",
        "holds at n = 1024; refuted at n = 2048",
    )
    assert sometimes.decisive.measured.value == 1.2
    between = speed(data, least=1.0, most=1.05, some=True)
    assert (between.verdict, between.decisive.measured.value) == ("refuted", 0.9), (
        "the nearest"
    )
    best = decide_part(
        "speed", data.speeds(data.timed("tiles")).best("n"), least=1, per="n"
    )
    assert best.where == "holds at n = 1024; refuted at n = 2048"


def test_where_another_gpu_is_predicted_that_decides_and_else_the_measured_interval() -> (
    None
):
    known = made(cell(1024, 1.2), predicted_low=0.95, predicted_high=1.45)
    part, without = speed(known), speed(made(cell(1024, 1.2)))
    assert (part.verdict, without.verdict) == ("undecided", "holds")
    assert (
        part.evidence
        == "1.2 x [1.198, 1.202] (predicted on another GPU: 0.95 to 1.45)."
    )
    assert without.evidence == "1.2 x [1.198, 1.202]."
    (row,) = rows_of(IT, known)
    assert (row["effect_low"], row["predicted_low"], row["predicted_high"]) == (
        1.198,
        0.95,
        1.45,
    )


def test_counters_decide_without_an_interval_and_say_what_is_missing() -> None:
    cells = [cell(1024, 1.0, pad=pad, metric=WAVES) for pad in (0, 4, 8)]
    data = made(*cells, metrics=[cells[0] | {"value": 32}, cells[1] | {"value": 8}])
    waves = data.numbers(data.timed("tiles"), lambda row: row.metric(WAVES))
    part = decide_part("wavefronts", waves, most=16)
    assert part.verdict == "refuted"
    assert part.evidence == (
        "32 at pad=0, 8 at pad=4; left out because of missing data: the metric wavefronts is not recorded (1)."
    )
    halves = data.ratios(
        data.timed("tiles", pad=4),
        data.timed("tiles", pad=0),
        lambda row: row.metric(WAVES),
        "n",
    )
    assert (
        decide_part("wavefronts over those without padding", halves, near=0.25).verdict
        == "holds"
    )
    assert note("wavefronts", waves) == "wavefronts: 32 at pad=0, 8 at pad=4"


def test_machine_code_decides_where_nothing_was_timed() -> None:
    broken = cell(1024, 1, pad=4, status="compile_error", bar=7)
    data = made(resources=[cell(1024, 1, bar=2), broken])
    bars = data.numbers(data.compiled("tiles", "new"), lambda row: row["bar"])
    assert decide_part("barriers", bars, near=2).verdict == "holds"
    assert decide_part("barriers", bars, near=1).verdict == "refuted"


@pytest.mark.parametrize(
    ("data", "sweep", "why"),
    [
        (made(), "banks", "the sweep banks is not part of this run"),
        (
            made(cell(64, 1)),
            "tiles",
            "no row with sweep = tiles, regime = cold, such n",
        ),
        (
            made(cell(1024, 1, status="timeout"), cell(2048, 1, status="incorrect")),
            "tiles",
            "no such cell of tiles gave a result (1 timeout, 1 incorrect)",
        ),
    ],
)
def test_without_rows_a_part_is_not_measured_and_says_why(
    data: RunData, sweep: str, why: str
) -> None:
    part = decide_part(
        "speed", data.speeds(data.timed(sweep, n=lambda n: n >= 1024)), least=1
    )
    assert (part.verdict, part.evidence) == ("not measured", f"Not measured: {why}.")
    assert not part.decisive.known


def test_without_counters_the_profilers_reason_is_given() -> None:
    note = {
        "sweep": "tiles",
        "stage": "profile",
        "subject": "ncu",
        "reason": "ncu was not found",
    }
    data = made(cell(1024, 1), notes=[note])
    part = decide_part(
        "wavefronts",
        data.numbers(data.timed("tiles"), lambda row: row.metric(WAVES)),
        most=1,
    )
    assert (
        part.evidence
        == "Not measured: the metric wavefronts is not recorded: ncu was not found."
    )


def claim_of(decide: Callable[[RunData], Part]) -> Claim:
    """A claim with one part."""

    def parts(data: RunData) -> Parts:
        part = yield decide(data)
        yield "clock: 1980 MHz"
        return f"Expect {part.span}."

    return Claim("it", "a text", "It is so.", parts)


IT = claim_of(speed)


def test_a_claim_ends_with_advice_even_where_nothing_was_measured() -> None:
    (row,) = rows_of(IT, made(cell(1024, 1.2)))
    assert row["advice"] == "Expect 1.20 x."
    assert row["evidence"] == "1.2 x [1.198, 1.202]. Beside it: clock: 1980 MHz."
    (row,) = rows_of(IT, made())
    assert (
        row["advice"]
        == "No advice without measurements: no row with sweep = tiles, regime = cold."
    )
    assert math.isnan(row["effect"])


@pytest.mark.parametrize("quotient", [False, True])
def test_a_margin_below_the_noise_is_refused_when_the_claim_is_loaded(
    quotient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(data: RunData) -> Part:
        rows = data.timed("tiles")
        values = data.speeds_over(rows, rows, "n") if quotient else data.speeds(rows)
        return decide_part("speed", values, least=1, margin=margin)

    noise, low = (0.01, 0.009) if quotient else (0.005, 0.004)
    sweeps = made().sweeps
    monkeypatch.setattr(ledger, "CLAIMS", (claim_of(decide),))
    margin = noise
    check_claims(sweeps, 0.0025)
    margin = low
    with pytest.raises(
        LadderError,
        match=rf"it: part 'speed.*: margin: {low} is not accepted.*>= {noise}, .* of tiles",
    ):
        check_claims(sweeps, 0.0025)


def test_the_projects_own_claims_are_decidable_to_the_precision_of_their_sweeps() -> (
    None
):
    check_claims(every_sweep(), 0.0025)
    with pytest.raises(LadderError, match=r"register-cache.*stencil_reach"):
        check_claims(every_sweep(), 0.05)


def about(sweep: str, **wanted: Any) -> Claim:
    """A claim about some rows of a sweep."""
    return claim_of(
        lambda data: decide_part(
            "speed", data.speeds(data.timed(sweep, **wanted)), least=1
        )
    )


@pytest.mark.parametrize(
    "asked", ["2 coalesced laods", ("1 uncoalesced", "2 coalesced laods")]
)
def test_a_rung_that_its_sweep_does_not_have_is_refused_with_the_nearest_name(
    asked: str | tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "CLAIMS", (about("fp32_ladder", rung=asked),))
    named = r"it: the sweep fp32_ladder: rung: '2 coalesced laods' .*mean '2 coalesced loads'\?.* 1 uncoalesced,"
    with pytest.raises(LadderError, match=named):
        check_names(every_sweep())
    check_claims(every_sweep(), 0.0025)  # a run may keep a part of the rungs
    others = {
        name: sweep for name, sweep in every_sweep().items() if name != "fp32_ladder"
    }
    check_names(others)  # a run without the sweep


@pytest.mark.parametrize(
    ("selected", "named"),
    [
        ({"kernel": ("gemm_staged", "gemm_stagd")}, "kernel: 'gemm_stagd'"),
        ({"stagess": 2}, "selected by: 'stagess' .*mean 'stages'"),
        ({"stages": 9}, "stages: 9 .*accepted: 1, 2"),
        ({"stages": "2"}, r"stages: '2' .*\(it is text\)"),
        ({"regime": "warm"}, "regime: 'warm' .*accepted: cold"),
    ],
)
def test_a_kernel_parameter_or_size_that_its_sweep_does_not_have_is_refused(
    selected: dict[str, Any],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = {"stages": lambda stages: stages > 8, "n": (1024, 4096)}
    known = about("fp32_buffering", kernel="gemm_staged", **more)
    monkeypatch.setattr(ledger, "CLAIMS", (known,))
    check_names(every_sweep())
    monkeypatch.setattr(ledger, "CLAIMS", (about("fp32_buffering", **selected),))
    with pytest.raises(LadderError, match=f"it: the sweep fp32_buffering: .*{named}"):
        check_names(every_sweep())


@pytest.mark.published
def test_every_claim_is_decided_on_the_published_tables() -> None:
    data = RunData(every_sweep(), read_frames(PUBLISHED))
    empty, timings = RunData(every_sweep(), {}), data.frames["timings"]
    timed = {*timings[timings["status"] == "ok"]["sweep"]}
    counted = {*data.frames["metrics"]["sweep"]}
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.statement.endswith("."), claim.id
        assert len(claim.source.split()) > 1, (
            f"{claim.id}: a key of docs/sources.md, and the place"
        )
        rows, without = rows_of(claim, data), rows_of(claim, empty)
        assert len(rows) == len(without) > 0, (
            f"{claim.id}: every part has a row, measured or not"
        )
        assert {row["verdict"] for row in without} == {"not measured"}
        parts = decided(claim, data)[0]
        own = {part.values.sweep for part in parts}
        if not own & timed:
            assert {row["verdict"] for row in rows} == {"not measured"}, claim.id
            continue
        for row in rows:
            if "per shared" in row["part"] and not own & counted:
                assert row["verdict"] == "not measured", "it rests on counters"
                continue
            assert row["verdict"] in set(VERDICTS) - {"not measured"}, row
            assert math.isfinite(float(str(row["effect"]))), row
            assert "not measured" not in str(row["evidence"]), row
            assert str(row["advice"]).endswith("."), row
            assert "without measurements" not in str(row["advice"]), row


def test_the_step_writes_a_row_for_each_part_and_follows_the_data(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path)
    lab.record_and_collect(["bank_stride"])

    def verdicts() -> list[str]:
        assert main(["--root", str(lab.root), "claims", *lab.collected()]) == 0
        found = tables.read("claims", lab.folder.tables)
        assert set(found["id"]) == {claim.id for claim in CLAIMS}
        return list(found[found["id"] == "stride-gcd"]["verdict"])

    assert verdicts() == ["holds"] * 3
    (path,) = lab.folder.records.glob("bank_stride-*.jsonl")
    path.write_text(path.read_text().replace('"value": 2000000', '"value": 3000000'))
    lab.collect(["bank_stride"])
    assert verdicts() == ["holds", "refuted", "holds"]


@pytest.mark.parametrize(
    "text",
    [
        "def helper(row): return 1.0",
        "def helper(data, rung): '''It is so. Source: own (a place).'''; yield",
    ],
)
def test_a_public_function_that_is_no_claim_is_named_with_its_file(text: str) -> None:
    module = ModuleType("made_up")
    exec(compile(text, "claims/made_up.py", "exec"), vars(module))
    words = r"^claims/made_up.py: helper: it is public, and no claim; accepted: .*, or a helper with _ ahead"
    with pytest.raises(LadderError, match=words):
        list(ledger._claims(module))
    vars(module)["_helper"] = vars(module).pop("helper")
    assert list(ledger._claims(module)) == []


def test_every_module_with_claims_is_asked_for_them() -> None:
    """A module that is missing in the list would be left out without a word."""
    written = {
        file.stem
        for file in Path(ledger.__file__).parent.glob("*.py")
        for one in ast.parse(file.read_text()).body
        if isinstance(one, ast.FunctionDef)
        and one.name[0] != "_"
        and "Source: " in (ast.get_docstring(one) or "")
    }
    assert written == {claim.decide.__module__.rpartition(".")[2] for claim in CLAIMS}

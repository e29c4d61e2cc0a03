"""Ranges for another GPU: how wide they are, whether they hold, and what the tables say of all sessions of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from factory import ENDS, ONE_CELL, SESSION, Lab, Place
from ladder.model.folders import Project
from ladder.model.schemas import SAMPLES, SWEEP_TABLES
from ladder.results import tables
from ladder.results.collect import summarised
from ladder.results.coverage import against, coverage, left_out
from ladder.results.prediction import class_quantiles, deviations, half_widths, ranges
from ladder.results.published_records import write_samples
from ladder.results.sessions import combine_sessions, prepare_sessions
from ladder.results.statistics import FEW, lag_1, records
from ladder.results.verdicts import NORMAL
from ladder.results.verdicts import SESSION as AMONG_SESSIONS

LAUNCHES, GPUS, HOSTS = 0.001, 0.004, 0.006
"""Standard deviations of the synthetic log speed-ups within a session, from GPU to GPU, and between kinds of host."""

Where = tuple[str, str, int]  # session, GPU, GPUs of the host
ONE_HOST: Sequence[Where] = [
    (f"s{number}", f"GPU-{number % 6}", 8) for number in range(12)
]
THREE_HOSTS: Sequence[Where] = [
    (f"s{number}", f"GPU-{number % 9}", 1 << number % 3) for number in range(18)
]


def sessions_of(
    cells: int,
    where: Sequence[Where],
    *,
    gpus: float = GPUS,
    hosts: float = HOSTS,
    share: float = 1.0,
    us: float = 50_000.0,
) -> pd.DataFrame:
    """sessions.csv of cells of `us` over a kernel; each is measured by a `share` of the sessions."""
    draw, rows = np.random.default_rng(1), []
    for cell in range(cells):
        _, names, kinds = map(dict.fromkeys, zip(*where, strict=True))
        of_gpu = {gpu: draw.normal(0, gpus) for gpu in names}
        of_host = {kind: draw.normal(0, hosts) for kind in kinds}
        true, first = draw.normal(0, 0.5), draw.integers(len(where))
        for number, (session, gpu, kind) in enumerate(where):
            if number != first and draw.random() > share:
                continue
            log = true + of_gpu[gpu] + of_host[kind] + draw.normal(0, LAUNCHES)
            row = reading(gpu, log, session=session, host_gpus=kind)
            row |= {"variant": f"kernel-{cell}", "reference": "kernel-0"}
            row |= {"median_us": us, "reference_median_us": us * np.exp(log)}
            row["speedup_low"] = np.exp(log - NORMAL * LAUNCHES)
            row["speedup_high"] = np.exp(log + NORMAL * LAUNCHES)
            rows.append(row)
    return tables.frame("sessions", rows)


def frames_of(sessions: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of a sweep whose cells have these sessions, as they are before sessions are combined."""
    latest = sessions.drop_duplicates("variant", keep="last").assign(status="ok")
    return {name: tables.frame(name, []) for name in SWEEP_TABLES} | {
        "timings": tables.frame("timings", records(latest)),
        "sessions": sessions,
    }


def reading(gpu: str, log: float, **columns: object) -> dict[str, object]:
    """A session on a GPU of a host with two, by default of one cell over a kernel."""
    row = ONE_CELL | {"session": f"on {gpu}", "gpu_uuid": gpu, "host_gpus": 2}
    row |= {"reference": "w", "median_us": 50.0, "reference_median_us": 50.0}
    return row | dict.fromkeys(ENDS, np.exp(log)) | columns


def prepared(*readings: dict[str, object]) -> pd.DataFrame:
    return prepare_sessions(tables.frame("sessions", readings))


def test_a_deviation_is_from_the_mean_of_the_other_gpus() -> None:
    rows = prepared(
        reading("GPU-1", 0.00),
        reading("GPU-2", 0.01),
        reading("GPU-3", 0.05),
        reading("GPU-3", 0.07, session="again"),
        reading("GPU-1", 0.5, variant="read by one GPU"),
    )
    found = deviations(rows).set_index("gpu")["deviation"]
    assert found.to_dict() == pytest.approx(
        {"GPU-1": 0.035, "GPU-2": 0.02, "GPU-3": 0.055}
    )


def test_the_rule_is_the_quantile_pooled_with_the_cells_own_and_once_more_for_another_host() -> (
    None
):
    rows = prepared(
        reading("GPU-1", 0.00),
        reading("GPU-2", 0.02),
        reading("GPU-1", 0.0, variant="u"),
        reading("GPU-1", 0.0, variant="x"),
        reading("GPU-2", 0.02, variant="x", host_gpus=1),
    )
    found = half_widths(rows).rename(index=rows.set_index("cell")["variant"].to_dict())
    pooled = np.sqrt((2 * 0.02**2 + NORMAL**2 * 2 * 0.02**2) / 4)
    assert found["alike"].to_dict() == pytest.approx(
        {"v": pooled, "u": 0.02, "x": pooled}
    )
    wider = {"v": np.hypot(pooled, 0.02), "u": np.hypot(0.02, 0.02), "x": pooled}
    assert found["anywhere"].to_dict() == pytest.approx(wider), (
        "x was read on two kinds of host"
    )
    measured = ranges(rows).rename(index=rows.set_index("entry")["variant"].to_dict())
    half = ((measured["speedup_high"] - measured["speedup_low"]) / 2).to_dict()
    assert half == pytest.approx(
        {"v": pooled / 2**0.5, "u": 0.02, "x": pooled / 2**0.5}
    )


def test_a_cell_that_one_gpu_read_takes_the_deviations_of_its_library() -> None:
    """cublas and cublaslt are one partner, since the faster of both is it. Over a kernel there is nothing to take."""
    same = [reading(gpu, 0.0, variant="same", m=2) for gpu in ("GPU-1", "GPU-2")]
    calls = [
        reading("GPU-1", 0.00, variant="read by one GPU"),
        reading(
            "GPU-2", 0.00, variant="another", reference_median_us=50.0 * np.exp(0.03)
        ),
    ]
    found = {}
    for references in (("cublas", "cublaslt"), ("w", "w")):
        named = [
            row | {"reference": name}
            for row, name in zip(calls, references, strict=True)
        ]
        rows = prepared(*[row | {"reference": references[0]} for row in same], *named)
        widths = half_widths(rows)["alike"].groupby(
            rows.drop_duplicates("cell").set_index("cell")["variant"]
        )
        found[references] = widths.first()["read by one GPU"]
    assert found["cublas", "cublaslt"] == pytest.approx(
        np.sqrt(NORMAL**2 * 2 * 0.03**2 / 4)
    )
    assert found["w", "w"] == 0.0


def test_a_class_of_few_deviations_takes_those_of_its_kind_of_reference() -> None:
    many, few = sessions_of(40, ONE_HOST), sessions_of(2, ONE_HOST, gpus=0.1, us=500.0)
    few["variant"] += "-short"
    quantiles = class_quantiles(
        prepare_sessions(pd.concat([many, few], ignore_index=True))
    )
    long, short = (
        quantiles[f"kernel, compute, {us} us, cold"]
        for us in ("over 1000", "100 to 1000")
    )
    assert long == pytest.approx(NORMAL * GPUS * (6 / 5) ** 0.5, rel=0.15)
    assert long < short < 2 * long
    assert len(deviations(prepare_sessions(few))) < FEW


@pytest.mark.parametrize("where", [ONE_HOST, THREE_HOSTS])
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_what_is_left_out_falls_into_its_range(
    where: Sequence[Where], share: float
) -> None:
    hosts = HOSTS if where == THREE_HOSTS else 0.0
    rows = prepare_sessions(sessions_of(100, where, share=share, hosts=hosts))
    found = pd.DataFrame(coverage(rows)).set_index(["left_out", "part"])["covered"]
    assert found["GPU", "all"] > 0.93
    assert ("kind of host" in found.index.levels[0]) == (where == THREE_HOSTS)


def test_on_one_gpu_nothing_is_predicted_and_a_note_says_so() -> None:
    made = combine_sessions(
        frames_of(sessions_of(50, [("s1", "GPU-1", 8), ("s2", "GPU-1", 8)]))
    )
    assert made["timings"]["predicted_low"].isna().all()
    assert set(made["timings"]["sessions"]) == {2}
    assert set(made["timings"]["gpus"]) == {1}
    assert len(made["components"]) == len(made["coverage"]) == 0
    assert list(made["notes"]["subject"]) == ["components and coverage"]


def test_a_session_alone_knows_from_others_how_far_sessions_differ() -> None:
    """Nothing in the run says so: the published sessions do."""
    made = combine_sessions(frames_of(sessions_of(5, [("s1", "GPU-1", 8)])))["timings"]
    half = np.log(made["speedup_high"] / made["speedup_low"]) / 2
    assert half.to_list() == pytest.approx(
        [NORMAL * np.hypot(LAUNCHES, AMONG_SESSIONS["kernel"])] * 5, rel=1e-3
    )


def test_no_range_is_narrower_than_the_interval_over_what_was_measured() -> None:
    """A cell that was read once has launches that spread far."""
    sessions = sessions_of(60, ONE_HOST, share=0.1)
    once = sessions["variant"][~sessions["variant"].duplicated(keep=False)].iloc[0]
    noisy = sessions["variant"] == once
    sessions.loc[noisy, "speedup_low"] *= 0.9
    sessions.loc[noisy, "speedup_high"] *= 1.1
    made = combine_sessions(frames_of(sessions))["timings"].set_index("variant")
    assert (made["predicted_low"] <= made["speedup_low"] * (1 + 1e-9)).all()
    assert (made["predicted_high"] >= made["speedup_high"] * (1 - 1e-9)).all()
    assert np.log(made["predicted_high"] / made["predicted_low"])[once] > 0.19


def test_a_cell_that_several_sweeps_name_counts_once() -> None:
    sessions = sessions_of(20, THREE_HOSTS)
    again = prepare_sessions(
        pd.concat([sessions, sessions.assign(sweep="another")], ignore_index=True)
    )
    assert (again["cell"].nunique(), again["entry"].nunique()) == (20, 40)
    assert coverage(again) == coverage(prepare_sessions(sessions))
    against_another = again.assign(
        reference=np.where(again["sweep"] == "another", "copy", "cublas")
    )
    assert prepare_sessions(against_another[sessions.columns])["cell"].nunique() == 40


def test_a_row_of_the_tables_is_of_all_its_sessions() -> None:
    """Its times agree with its speed-up and its rates with its times, though sessions read other clocks.

    A cell that failed has no speed-up.
    """
    sessions = sessions_of(20, ONE_HOST[:3], us=1000.0)
    slower = sessions["session"].map({"s0": 1.0, "s1": 1.1, "s2": 1.05})
    times = {
        name: sessions[name] * slower for name in ("median_us", "reference_median_us")
    }
    sessions = sessions.assign(
        **times, sm_clock_mhz=1980 / slower, power_w=600.0 / slower
    )
    frames = frames_of(sessions)
    own = frames["timings"]["median_us"]
    frames["timings"] = frames["timings"].assign(
        tflops=1000 / own, median_us_low=0.99 * own, energy_pj_per_flop=1.0
    )
    failing = frames["timings"].iloc[[9]].assign(status="incorrect", speedup=np.nan)
    frames["timings"] = pd.concat([frames["timings"], failing], ignore_index=True)
    *_, failed = combine_sessions(frames)["timings"]["speedup"]
    assert np.isnan(failed)
    frames["timings"] = frames["timings"].iloc[:-1]
    made = combine_sessions(frames)["timings"]
    assert set(made["sessions"]) == {3}
    np.testing.assert_allclose(
        made["reference_median_us"] / made["median_us"], made["speedup"]
    )
    np.testing.assert_allclose(made["tflops"] * made["median_us"], 1000)
    np.testing.assert_allclose(made["median_us_low"], 0.99 * made["median_us"])
    geometric = np.exp(
        np.log(sessions["median_us"]).groupby(sessions["variant"]).mean()
    )
    np.testing.assert_allclose(
        made.set_index("variant")["median_us"], geometric[made["variant"]]
    )
    np.testing.assert_allclose(
        made["sm_clock_mhz"], 1980 * np.mean([1, 1 / 1.1, 1 / 1.05])
    )
    joules = made["median_us"] * made["power_w"] / (own * frames["timings"]["power_w"])
    np.testing.assert_allclose(made["energy_pj_per_flop"], joules)


def test_combining_twice_changes_no_digit(tmp_path: Path) -> None:
    sessions = sessions_of(
        12, [("s0", "GPU-0", 1), ("s1", "GPU-1", 1), ("s2", "GPU-2", 8)], share=0.7
    )
    sessions["median_us"] = 20000 * sessions["speedup"]
    frames = frames_of(sessions)
    frames["timings"]["tflops"] = 9.5  # the last of seven digits is a small part of it
    found = []
    for _ in range(2):
        tables.write(frames, tmp_path)
        frames = combine_sessions(
            {name: tables.read(name, tmp_path) for name in SWEEP_TABLES}
        )
        assert all(len(frames[name]) for name in ("timings", "components", "coverage"))
        tables.write(frames, tmp_path)
        found.append({path.name: path.read_text() for path in tmp_path.glob("*.csv")})
    assert found[0] == found[1]


def test_positive_correlation_widens_an_interval_and_negative_does_not() -> None:
    slow = {"variant_us": [1.0] * 16, "reference_us": [2.0] * 8 + [2.1] * 8}
    fast = {"variant_us": [1.0] * 16, "reference_us": [2.0, 2.0, 2.1, 2.1] * 4}
    given = {"speedup": 2.05, "speedup_low": 2.0, "speedup_high": 2.1}
    assert lag_1([1.14] * 20) == 0, "their mean is not 1.14: it is rounded"
    wider = (13 / 3) ** 0.5
    assert summarised({**slow, **given})["speedup_low"] == pytest.approx(
        2.05 * (2 / 2.05) ** wider
    )
    assert summarised({**slow, **given})["speedup_high"] == pytest.approx(
        2.05 * (2.1 / 2.05) ** wider
    )
    found = summarised({**fast, **given})
    assert (found["speedup_low"], found["speedup_high"]) == pytest.approx((2.0, 2.1))


def test_an_interval_is_not_narrower_than_the_steps_of_the_clock() -> None:
    """2.400 and 2.432 us are one step of 32 ns apart, so that both kernels may take as long."""
    known = {"variant_us": [2.4] * 16, "reference_us": [2.432] * 16}
    given = known | dict.fromkeys(ENDS, 2.432 / 2.4)
    ends = summarised({**given, "clock": "device"})
    assert (ends["median_us_low"], ends["median_us_high"]) == pytest.approx(
        (2.384, 2.416)
    )
    assert ends["speedup_low"] < 1 < 1.026 < ends["speedup_high"] < 1.027
    assert summarised({**given, "clock": "events"})["speedup_low"] == pytest.approx(
        2.432 / 2.4
    )


def test_every_raw_time_is_published_in_the_order_it_was_taken(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    def numbered(_: Place, record: dict[str, Any]) -> dict[str, Any]:
        for result in record["regimes"].values():
            # A B B A, B A A B
            result |= {
                "variant_us": [1.0, 4.0, 6.0, 7.0],
                "reference_us": [2.0, 3.0, 5.0, 8.0],
            }
        return record

    lab.record(["tensor_ladder"], numbered)
    lab.session = replace(SESSION, id="session-2")
    lab.record(["tensor_ladder"], numbered)
    write_samples(tmp_path / SAMPLES, lab.view("tensor_ladder").records)
    rows = pd.read_parquet(tmp_path / SAMPLES)
    assert list(rows["order"] + 1) == list(rows["us"])
    assert set(rows["side"]) == {"variant", "reference"}
    assert set(rows["session"]) == {SESSION.id, "session-2"}
    taken = rows.groupby(["cell", "variant", "regime", "session", "m", "n", "k"])[
        "order"
    ]
    assert all(sorted(own) == [*range(8)] for _, own in taken)


def shortfalls(readings: pd.DataFrame, least: float) -> list[str]:
    """Coverage of all readings below `least`, and of each class of at least 50 cells below 90 %."""
    covered = readings["outside"] == 0
    cells = readings.groupby("class")["cell"].transform("nunique")
    shares = covered[cells >= FEW].groupby(readings["class"]).mean()
    found = [
        f"{name}: covered {share:.3f}" for name, share in shares.items() if share < 0.90
    ]
    return found + (
        [f"all: covered {covered.mean():.3f}"] if covered.mean() < least else []
    )


@pytest.fixture(scope="module")
def published() -> pd.DataFrame:
    folder = Project(ROOT).published("nvidia-h200").root
    return prepare_sessions(tables.read("sessions", folder))


@pytest.mark.published
def test_published_ranges_hold_for_gpus_left_out_and_are_no_wider_than_by_variances(
    published: pd.DataFrame,
) -> None:
    """Components of variance, the rule before, gave half-widths of 2.26 % and of 1.55 %, and covered 97.2 %."""
    held = left_out(published, "gpu")
    assert shortfalls(held, 0.95) == []
    assert held["half_width"].median() <= 0.0226
    ends = ranges(published)
    assert (ends["predicted_high"] - ends["predicted_low"]).median() / 2 <= 0.0155


@pytest.mark.published
def test_published_ranges_hold_on_a_kind_of_host_that_is_left_out(
    published: pd.DataFrame,
) -> None:
    held = left_out(published, "host")
    assert (held["outside"] == 0).mean() >= 0.93


@pytest.mark.published
def test_published_ranges_hold_on_gpus_as_they_come(published: pd.DataFrame) -> None:
    """Each GPU against the ranges of the GPUs that were measured before it."""
    began = published.groupby("gpu")["started"].min().sort_values()
    held = []
    for gpu, start in began.iloc[1:].items():
        before = published["gpu"].isin(began.index[began < start])
        held.append(against(published[published["gpu"] == gpu], published[before]))
    assert (pd.concat(held)["outside"] == 0).mean() >= 0.95


@pytest.mark.published
def test_what_events_add_on_a_kind_of_host_is_what_the_published_sessions_say() -> None:
    sessions = tables.read("sessions", Project(ROOT).published("nvidia-h200").root)
    empty_us = 0.7  # what an empty kernel takes itself, of the clock's floor
    floors = sessions.groupby("host_gpus")["clock_floor_us"].median() - empty_us
    said = " ".join((ROOT / "docs/trust.md").read_text().split())
    assert (
        f"add {floors[1]:.0f} µs on a GPU alone in its host, and {floors[2]:.0f} µs on one of two"
        in said
    )

"""Intervals that predict another GPU: components of variance, held-out coverage, and what the tables say of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from factory import SESSION, Lab, Place
from ladder.model.folders import Project
from ladder.model.schemas import SAMPLES, SWEEP_TABLES
from ladder.results import prediction, tables
from ladder.results.collect import summarised
from ladder.results.prediction import _spreads as spreads_of
from ladder.results.prediction import (
    combine_sessions,
    components,
    counted_once,
    coverage,
    predict,
    prepare_sessions,
)
from ladder.results.published_records import write_samples
from ladder.results.statistics import lag_1
from ladder.results.verdicts import SESSION as AMONG_SESSIONS
from scipy.special import ndtri

ROOT = Path(__file__).resolve().parents[2]
SEEN = {"residual": 0.001, "session": 0.002, "gpu": 0.004, "host": 0.006}
"""Standard deviations of the synthetic log speed-ups."""

Where = tuple[str, str, int]  # session, GPU, GPUs of the host
ONE_HOST: Sequence[Where] = [(f"s{number}", f"GPU-{number % 6}", 8) for number in range(12)]
THREE_HOSTS: Sequence[Where] = [(f"s{number}", f"GPU-{number % 9}", 1 << number % 3) for number in range(18)]


def sessions_of(
    cells: int,
    where: Sequence[Where],
    seen: Mapping[str, float] = SEEN,
    share: float = 1.0,
    floors: Mapping[int, float] | None = None,
    us: float = 50_000.0,
    seed: int = 1,
) -> pd.DataFrame:
    """sessions.csv of cells of `us` with known components; each is measured by a `share` of the sessions."""
    draw, rows = np.random.default_rng(seed), []
    for cell in range(cells):
        gpu, host = ({key: draw.normal(0, seen[of]) for key in keys} for of, keys in (
            ("gpu", [gpu for _, gpu, _ in where]),
            ("host", [host for _, _, host in where]),
        ))  # fmt: skip
        true, first = draw.normal(0, 0.5), draw.integers(len(where))
        for number, (name, card, kind) in enumerate(where):
            if number != first and draw.random() > share:
                continue
            speedup = np.exp(
                true + gpu[card] + host[kind] + draw.normal(0, np.hypot(seen["session"], seen["residual"]))
            )
            floor = floors[kind] if floors else None
            own, other = (time + (floor or 0) for time in (us, us * speedup))
            row = {
                "sweep": "a",
                "variant": f"kernel-{cell}",
                "dtype": "fp32",
                "layout": "NN",
                "regime": "cold",
            }
            row |= {"m": 64, "n": 64, "k": 64, "session": name, "gpu_uuid": card, "host_gpus": kind}
            row |= {
                "reference": "kernel-0",
                "median_us": own,
                "reference_median_us": other,
                "clock_floor_us": floor,
            }
            ends = np.exp(np.array([-1, 0, 1]) * 1.96 * seen["residual"]) * other / own
            rows.append(row | dict(zip(("speedup_low", "speedup", "speedup_high"), ends, strict=True)))
    return tables.frame("sessions", rows)


def frames_of(sessions: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of a sweep whose cells have these sessions, as they are before sessions are combined."""
    latest = sessions.drop_duplicates("variant", keep="last").assign(status="ok")
    rows = latest.astype(object).where(latest.notna(), None).to_dict("records")
    return {name: tables.frame(name, []) for name in SWEEP_TABLES} | {
        "timings": tables.frame("timings", rows).assign(clock_floor_us=np.nan),
        "sessions": sessions,
    }


def held_out(sessions: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(coverage(prepare_sessions(sessions))).set_index(["left_out", "sessions", "part"])


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_components_are_those_the_data_were_made_with(share: float) -> None:
    (found,) = (components(prepare_sessions(sessions_of(400, THREE_HOSTS, share=share))) ** 0.5).to_dict(
        "records"
    )
    assert found["residual"] == pytest.approx(SEEN["residual"], rel=0.01)
    assert found["session"] == pytest.approx(SEEN["session"], rel=0.15)
    assert found["gpu"] == pytest.approx(SEEN["gpu"], rel=0.15)
    assert found["host"] == pytest.approx(SEEN["host"], rel=0.25)  # one more kind is assumed


@pytest.mark.slow
@pytest.mark.parametrize("where", [ONE_HOST, THREE_HOSTS])
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_what_is_left_out_falls_into_its_interval(where: Sequence[Where], share: float) -> None:
    found = held_out(
        sessions_of(300, where, share=share, seen=SEEN | ({} if where == THREE_HOSTS else {"host": 0.0}))
    )
    # On one kind of host the intervals are wider, since another kind is assumed. Elsewhere a little, since sessions of
    # one GPU or host are alike: variances of cells differ more than independent sessions would make them.
    most = 0.985 if where == THREE_HOSTS else 1
    assert 0.93 < found.loc[("GPU", "all", "all"), "covered"] < most
    assert 0.93 < found.loc[("GPU", "one", "all"), "covered"] < most
    assert ("kind of host" in found.index.levels[0]) == (where == THREE_HOSTS)


@pytest.mark.parametrize("agree", [0.0, 0.003])
def test_a_cell_read_on_one_kind_of_host_may_differ_by_as_much_as_its_class(agree: float) -> None:
    """However well the sessions of a cell agree, they say nothing of another kind of host."""
    sessions = sessions_of(100, THREE_HOSTS)
    kept = (sessions["variant"] != "kernel-0") | (sessions["host_gpus"] == 1)
    one = sessions["variant"].eq("kernel-0") & kept
    spread = np.exp(np.random.default_rng(1).normal(0, agree, one.sum()))
    for name, end in (("speedup_low", 0.999), ("speedup", 1.0), ("speedup_high", 1.001)):
        sessions.loc[one, name] = 2.0 * end * spread
    found = prepare_sessions(sessions[kept])
    known = components(found)
    ends = predict(found, known)
    (cell,) = found["cell"][found["variant"] == "kernel-0"].unique()
    host = 1.645 * np.sqrt(2 * known["host"].iloc[0])
    assert (ends["predicted_high"] - ends["predicted_low"])[cell] / 2 > host


def test_pairs_bound_by_different_things_are_of_different_classes() -> None:
    """What the kind of host adds to cells that are bound by memory says nothing of those that are not."""
    calm, moved = (sessions_of(200, THREE_HOSTS, SEEN | {"host": host}, seed=7) for host in (0.0, 0.02))
    moved["variant"] += "-moved"
    both = pd.concat([calm.assign(bound="compute"), moved.assign(bound="memory")], ignore_index=True)
    found = components(prepare_sessions(both))["host"] ** 0.5
    assert found["kernel, compute, over 1000 us, cold"] < 0.003
    assert found["kernel, memory, over 1000 us, cold"] > 0.015


def test_a_cell_that_is_measured_once_has_an_interval_too() -> None:
    many, once = sessions_of(200, ONE_HOST), sessions_of(201, ONE_HOST[:1]).tail(1)
    found = prepare_sessions(pd.concat([many, once], ignore_index=True))
    ends = predict(found, components(found))
    widths = ends["predicted_high"] - ends["predicted_low"]
    single = widths.index.isin(found["cell"][found["variant"] == "kernel-200"])
    assert widths.notna().all()
    assert widths[single].item() > 1.1 * widths[~single].median()


def test_on_one_gpu_nothing_is_predicted_and_a_note_says_so() -> None:
    made = combine_sessions(frames_of(sessions_of(50, [("s1", "GPU-1", 8), ("s2", "GPU-1", 8)])))
    assert made["timings"]["predicted_low"].isna().all()
    assert set(made["timings"]["sessions"]) == {2}
    assert set(made["timings"]["gpus"]) == {1}
    (row,) = made["components"].to_dict("records")
    assert row["session"] > 0
    assert np.isnan(row["gpu"])
    assert len(made["coverage"]) == 0
    assert list(made["notes"]["subject"]) == ["coverage"]


def test_a_session_alone_knows_from_others_how_far_sessions_differ() -> None:
    """Nothing in the run says so: the published sessions do."""
    made = combine_sessions(frames_of(sessions_of(5, [("s1", "GPU-1", 8)])))["timings"]
    half = np.log(made["speedup_high"] / made["speedup_low"]) / 2
    assert half.to_list() == pytest.approx(
        [1.96 * np.hypot(SEEN["residual"], AMONG_SESSIONS["kernel"])] * 5, rel=1e-3
    )


def test_two_gpus_of_two_kinds_of_host_predict_others() -> None:
    found = prepare_sessions(sessions_of(50, [("s1", "GPU-1", 1), ("s2", "GPU-2", 8)]))
    known = components(found)
    assert known["gpu"].isna().all()
    assert predict(found, known)["predicted_low"].notna().all()


def test_no_prediction_is_narrower_than_the_interval_over_what_was_measured() -> None:
    """Of cells that were read once one has launches that spread far; others were read twice, and agree by chance."""
    sessions = sessions_of(300, ONE_HOST, share=0.1)
    few = sessions.groupby("variant")["session"].transform("size") == 2
    for name in ("speedup", "speedup_low", "speedup_high"):
        sessions.loc[few, name] = sessions[few].groupby("variant")[name].transform("first")
    noisy = sessions["variant"] == sessions["variant"][~sessions["variant"].duplicated(keep=False)].iloc[0]
    sessions.loc[noisy, "speedup_low"] *= 0.9
    sessions.loc[noisy, "speedup_high"] *= 1.1
    found = prepare_sessions(sessions)
    known = components(found)
    ends = predict(found, known)
    assert (ends["predicted_low"] <= ends["low"]).all()
    assert (ends["predicted_high"] >= ends["high"]).all()
    (cell,) = found["cell"][found["variant"] == sessions["variant"][noisy].iloc[0]]
    assert ends["predicted_high"][cell] - ends["predicted_low"][cell] > 0.19
    made = combine_sessions(frames_of(sessions))["timings"]
    assert (made["predicted_low"] <= made["speedup_low"] * (1 + 1e-9)).all()


def test_an_outlying_cell_widens_no_other_interval() -> None:
    plain = sessions_of(100, THREE_HOSTS)
    outlying = plain.copy()
    here = (plain["variant"] == "kernel-7") & (plain["session"] == "s3")
    outlying.loc[here, ["speedup", "speedup_low", "speedup_high"]] *= 3
    widths = []
    for sessions in (plain, outlying):
        found = prepare_sessions(sessions)
        ends = predict(found, components(found))
        widths.append(
            (ends["predicted_high"] - ends["predicted_low"])[~ends.index.isin(found["cell"][here])].median()
        )
    assert widths[1] == pytest.approx(widths[0], rel=0.1)


def test_a_class_with_few_cells_leans_on_the_others() -> None:
    many = sessions_of(200, ONE_HOST)
    few = sessions_of(2, ONE_HOST, {name: 20 * value for name, value in SEEN.items()}, us=500.0, seed=2)
    few["variant"] += "-short"
    alone, known = (
        components(prepare_sessions(frame)) ** 0.5
        for frame in (few, pd.concat([many, few], ignore_index=True))
    )
    short, long = "kernel, compute, 100 to 1000 us, cold", "kernel, compute, over 1000 us, cold"
    assert known.loc[long, "gpu"] < known.loc[short, "gpu"] < 0.5 * alone.loc[short, "gpu"]


@pytest.mark.parametrize("pairs_each", [3, 6, 7, 10, 49])
def test_a_quantile_between_two_values_does_not_depend_on_rounding(pairs_each: int) -> None:
    """19 of 20 cells are at 19 or below, whatever 19 times the weights of their pairs add up to."""
    apart = np.repeat(np.arange(1.0, 21.0), pairs_each)
    pairs = pd.DataFrame({"kind": "kernel", "cell": apart.astype(int), "apart": apart})
    for seed in range(20):
        mixed = pairs.sample(frac=1, random_state=seed)
        assert spreads_of(mixed, "kind")["kernel"] == pytest.approx((19 / ndtri(0.975)) ** 2 / 2, rel=1e-12)


def test_sessions_that_read_the_same_but_for_rounding_weigh_as_those_that_read_the_same() -> None:
    sessions = sessions_of(30, ONE_HOST)
    same = (sessions["variant"] == "kernel-3").to_numpy()
    found = []
    for ulps in (0.0, 2.0**-52):
        speedup = np.where(same, 2.0, sessions["speedup"]) * (1 + ulps * (sessions.index % 2))
        found.append(components(prepare_sessions(sessions.assign(speedup=speedup))))
    pd.testing.assert_frame_equal(*found, rtol=1e-6)


@pytest.mark.slow
def test_clock_floors_explain_what_kinds_of_host_differ_in() -> None:
    seen, floors = SEEN | {"host": 0.0}, {1: 3.2, 2: 4.9, 4: 4.9}
    sessions = sessions_of(300, THREE_HOSTS, seen, floors=floors, us=8.0)
    known, unknown = (
        components(prepare_sessions(frame)) for frame in (sessions, sessions.assign(clock_floor_us=np.nan))
    )
    assert (known["host"] ** 0.5).max() < 0.005 < 0.02 < (unknown["host"] ** 0.5).max()
    # Where one kind of host is known, its floor says nothing of the other's.
    found = held_out(sessions)
    assert found.loc[("kind of host", "all", "all"), "covered"] > 0.95
    warm = components(prepare_sessions(sessions.assign(regime="warm")))
    assert (warm["host"] ** 0.5).max() > 0.02, "in a chain of launches no floor is subtracted"


def test_a_cell_that_either_clock_may_time_has_a_range_for_both() -> None:
    """67 us are timed by events on hosts whose clock adds 3.8 us, and by the device clock where it adds 2.1 us."""
    seen = {"residual": 0.001, "session": 0.001, "gpu": 0.0, "host": 0.0}
    where = [("s1", "GPU-1", 2), ("s2", "GPU-2", 2), ("s3", "GPU-3", 2), ("s4", "GPU-4", 1)]
    sessions = sessions_of(200, where, seen, floors={1: 0.0, 2: 3.8}, us=67.0)
    sessions = sessions[sessions["speedup"] > 1.2]  # the shorter side is the kernel
    sessions["clock"] = np.where(sessions["host_gpus"] == 1, "device", "events")
    sessions["clock_floor_us"] = 0.7 + sessions["host_gpus"].map({1: 2.1, 2: 3.8})  # with an empty kernel
    found = held_out(sessions)
    assert found.loc[("GPU", "all", "all"), "covered"] > 0.93
    assert found.loc[("kind of host", "all", "all"), "covered"] > 0.93
    known = components(prepare_sessions(sessions))
    assert (known["host"] ** 0.5).max() < 0.005, "nothing but the clock differs between kinds of host"


def test_launches_of_a_chain_may_take_a_tenth_of_a_microsecond_longer_elsewhere() -> None:
    seen = {"residual": 0.001, "session": 0.001, "gpu": 0.0, "host": 0.0}
    where = [("s1", "GPU-1", 2), ("s2", "GPU-2", 2), ("s3", "GPU-3", 1)]
    chains = sessions_of(200, where, seen, floors={1: 0.0, 2: 0.1}, us=3.0)
    found = held_out(chains.assign(regime="warm", clock_floor_us=np.nan))
    assert found.loc[("kind of host", "all", "GPUs of the host: 1"), "covered"] > 0.99


def test_sessions_of_a_cell_are_its_sample() -> None:
    seen = dict.fromkeys(SEEN, 0.0) | {"residual": 0.002, "session": 0.003}
    covered = []
    for count in (2, 5):
        found = prepare_sessions(
            sessions_of(400, [(f"s{number}", f"GPU-{number}", 8) for number in range(count)], seen)
        )
        cells = predict(found, components(found))
        # Of the many cells the mean is what all of them would have, were they measured for ever.
        true = prepare_sessions(
            sessions_of(400, [("s0", "GPU-0", 8)], dict.fromkeys(SEEN, 0.0) | {"residual": 1e-9})
        )
        assert len(true) == len(cells)
        deviations = found["log"] - found.groupby("cell")["log"].transform("mean")
        usual = deviations.std() * np.sqrt(count / (count - 1))
        covered.append(((cells["high"] - cells["low"]) / 2 / (usual / np.sqrt(count))).median())
    assert covered == pytest.approx(
        [1.96, 1.96], rel=0.05
    )  # standard errors: the class says how far cells vary


@pytest.mark.slow
def test_sessions_on_one_gpu_count_as_one_gpu() -> None:
    """The mean over 40 GPUs is a cell's value. Six sessions on one GPU that count as independent hold 75 % of these."""
    seen = {"residual": 0.001, "session": 0.0045, "gpu": 0.004, "host": 0.0}
    every = prepare_sessions(
        sessions_of(200, [(f"s{number}", f"GPU-{number // 6}", 8) for number in range(240)], seen)
    )
    values, known = every.groupby("cell")["log"].mean(), components(every)
    for gpus in (1, 2):
        few = every[every["gpu"].isin([f"GPU-{number}" for number in range(gpus)])]
        found = predict(few, known)
        assert 0.93 < ((found["low"] <= values) & (values <= found["high"])).mean() < 0.98, f"{gpus} GPUs"


def test_tables_combine_sessions_and_know_what_a_single_one_cannot() -> None:
    sessions = sessions_of(40, ONE_HOST[:3])
    sessions = sessions[(sessions["variant"] != "kernel-0") | (sessions["session"] == "s2")]
    frames = frames_of(sessions.reset_index(drop=True))
    failed = frames["timings"]["variant"] == "kernel-9"
    frames["timings"].loc[failed, ["status", "speedup"]] = "incorrect", np.nan
    combined = combine_sessions(frames)
    made = combined["timings"].set_index("variant")
    names = ["speedup", "speedup_low", "speedup_high"]
    before = frames["timings"].set_index("variant")
    value, low, high = before.loc["kernel-0", names]
    found = made.loc["kernel-0", names]
    assert found["speedup"] == pytest.approx(value)
    among = combined["components"]["gpu"].iloc[0]  # no two sessions are on one GPU: what both add
    for end, own in (("low", low), ("high", high)):
        half = np.hypot(np.log(own / value), 1.96 * among)
        assert abs(np.log(found[f"speedup_{end}"] / value)) == pytest.approx(half, rel=1e-3)
    logs = np.log(sessions[sessions["variant"] == "kernel-1"]["speedup"])
    assert made.loc["kernel-1", "speedup"] == pytest.approx(np.exp(logs.mean()))
    assert list(made.loc[["kernel-0", "kernel-1"], "sessions"]) == [1, 3]
    assert np.isnan(made.loc["kernel-9", "speedup"])
    ok = made.drop(index="kernel-9")
    assert (ok["predicted_low"] < ok["speedup_low"]).all()
    assert (ok["predicted_high"] > ok["speedup_high"]).all()


def test_a_row_of_the_tables_is_of_all_its_sessions() -> None:
    """Its times agree with its speed-up and its rates with its times, though sessions read other clocks."""
    sessions = sessions_of(20, ONE_HOST[:3], us=1000.0)
    slower = sessions["session"].map({"s0": 1.0, "s1": 1.1, "s2": 1.05})
    times = {name: sessions[name] * slower for name in ("median_us", "reference_median_us")}
    sessions = sessions.assign(**times, sm_clock_mhz=1980 / slower, power_w=600.0 / slower)
    frames = frames_of(sessions)
    own = frames["timings"]["median_us"]
    frames["timings"] = frames["timings"].assign(
        tflops=1000 / own, median_us_low=0.99 * own, energy_pj_per_flop=1.0
    )
    made = combine_sessions(frames)["timings"]
    np.testing.assert_allclose(made["reference_median_us"] / made["median_us"], made["speedup"])
    np.testing.assert_allclose(made["tflops"] * made["median_us"], 1000)
    np.testing.assert_allclose(made["median_us_low"], 0.99 * made["median_us"])
    geometric = np.exp(np.log(sessions["median_us"]).groupby(sessions["variant"]).mean())
    np.testing.assert_allclose(made.set_index("variant")["median_us"], geometric[made["variant"]])
    np.testing.assert_allclose(made["sm_clock_mhz"], 1980 * np.mean([1, 1 / 1.1, 1 / 1.05]))
    joules = made["median_us"] * made["power_w"] / (own * frames["timings"]["power_w"])
    np.testing.assert_allclose(made["energy_pj_per_flop"], joules)


def test_combining_twice_changes_no_digit(tmp_path: Path) -> None:
    sessions = sessions_of(12, [("s0", "GPU-0", 1), ("s1", "GPU-1", 1), ("s2", "GPU-2", 8)], share=0.7)
    sessions["median_us"] = 20000 * sessions["speedup"]
    frames = frames_of(sessions)
    frames["timings"]["tflops"] = 9.5  # the last of seven digits is a small part of it
    found = []
    for _ in range(2):
        tables.write(frames, tmp_path)
        frames = combine_sessions({name: tables.read(name, tmp_path) for name in SWEEP_TABLES})
        assert all(len(frames[name]) for name in ("timings", "components", "coverage"))
        tables.write(frames, tmp_path)
        found.append({path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.csv")})
    assert found[0] == found[1]


def test_positive_correlation_widens_an_interval_and_negative_does_not() -> None:
    slow = {"variant_us": [1.0] * 16, "reference_us": [2.0] * 8 + [2.1] * 8}
    fast = {"variant_us": [1.0] * 16, "reference_us": [2.0, 2.0, 2.1, 2.1] * 4}
    given = {"speedup": 2.05, "speedup_low": 2.0, "speedup_high": 2.1}
    assert lag_1([2.0] * 4 + [2.1] * 4) == pytest.approx(5 / 8)
    assert lag_1([1.14] * 20) == 0, "their mean is not 1.14: it is rounded"
    wider = (13 / 3) ** 0.5
    assert summarised({**slow, **given})["speedup_low"] == pytest.approx(2.05 * (2 / 2.05) ** wider)
    assert summarised({**slow, **given})["speedup_high"] == pytest.approx(2.05 * (2.1 / 2.05) ** wider)
    found = summarised({**fast, **given})
    assert (found["speedup_low"], found["speedup_high"]) == pytest.approx((2.0, 2.1))


def test_an_interval_is_not_narrower_than_the_steps_of_the_clock() -> None:
    """2.400 and 2.432 us are one step of 32 ns apart, so that both kernels may take as long."""
    known = {"variant_us": [2.4] * 16, "reference_us": [2.432] * 16}
    given = known | dict.fromkeys(("speedup", "speedup_low", "speedup_high"), 2.432 / 2.4)
    ends = summarised({**given, "clock": "device"})
    assert (ends["median_us_low"], ends["median_us_high"]) == pytest.approx((2.384, 2.416))
    assert ends["speedup_low"] < 1 < 1.026 < ends["speedup_high"] < 1.027
    assert summarised({**given, "clock": "events"})["speedup_low"] == pytest.approx(2.432 / 2.4)


def test_every_raw_time_is_published_in_the_order_it_was_taken(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    def numbered(_: Place, record: dict[str, Any]) -> dict[str, Any]:
        for result in record["regimes"].values():
            # A B B A, B A A B
            result |= {"variant_us": [1.0, 4.0, 6.0, 7.0], "reference_us": [2.0, 3.0, 5.0, 8.0]}
        return record

    lab.record(["tensor_ladder"], numbered)
    lab.session = replace(SESSION, id="session-2")
    lab.record(["tensor_ladder"], numbered)
    write_samples(tmp_path / SAMPLES, lab.view("tensor_ladder").records)
    rows = pd.read_parquet(tmp_path / SAMPLES)
    assert list(rows["order"] + 1) == list(rows["us"])
    assert set(rows["side"]) == {"variant", "reference"}
    assert set(rows["session"]) == {SESSION.id, "session-2"}
    taken = rows.groupby(["cell", "variant", "regime", "session", "m", "n", "k"])["order"]
    assert all(sorted(own) == [*range(8)] for _, own in taken)


def shortfalls(rows: pd.DataFrame) -> list[str]:
    """Where coverage is below what is wanted: 93 %, in each class of 50 cells 90 %; or half-widths above 1.3 and 2.2 %.

    Cells have these that were read on two GPUs besides the one left out. Of four or more 1.0 and 1.75 % are wanted.
    """
    found = []
    for row in rows.to_dict("records"):
        a_class = row["part"].endswith(("cold", "warm"))
        least = 0.93 if row["part"] == "all" else 0.90 if a_class and row["cells"] >= 50 else 0.0
        most = {"kernel": 0.013, "library, over 50 us": 0.022}.get(row["part"], np.inf)
        about = f"{row['left_out']}, {row['sessions']}, {row['part']}"
        found += [f"{about}: covered {row['covered']:.3f}"] if row["covered"] < least else []
        found += (
            [f"{about}: half-width {row['half_width']:.4f}"] if round(row["half_width"], 3) > most else []
        )
    return found


def test_a_cell_that_several_sweeps_name_counts_once() -> None:
    sessions = sessions_of(60, THREE_HOSTS)
    again = pd.concat([sessions, sessions.assign(sweep="another")], ignore_index=True)
    once = counted_once(prepare_sessions(again))
    assert once["cell"].nunique() == 60 < prepare_sessions(again)["cell"].nunique() == 120
    pd.testing.assert_frame_equal(components(once), components(prepare_sessions(sessions)))
    against_another = again.assign(reference=np.where(again["sweep"] == "another", "copy", "cublas"))
    assert counted_once(prepare_sessions(against_another))["cell"].nunique() == 120


def test_coverage_is_the_same_by_any_number_of_processes() -> None:
    found = prepare_sessions(sessions_of(60, THREE_HOSTS))
    assert pd.DataFrame(coverage(found, jobs=2)).equals(pd.DataFrame(coverage(found)))


def published() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "results" / "published").glob("*/coverage.parquet"))


@pytest.mark.published
def test_the_published_coverage_follows_from_the_published_tables_and_is_what_is_wanted() -> None:
    known = {folder: tables.read("coverage", folder) for folder in published()}
    known = {folder: rows for folder, rows in known.items() if len(rows)}
    if not known:
        pytest.skip("no coverage is published: it takes sessions on three GPUs")
    for folder, rows in known.items():
        own = {name: pd.read_parquet(folder / f"{name}.parquet") for name in ("timings", "sessions")}
        given = {name: tables.frame(name, rows.to_dict("records")) for name, rows in own.items()}
        again = combine_sessions({name: tables.frame(name, []) for name in SWEEP_TABLES} | given)["coverage"]
        assert not [line for line in shortfalls(again) if "covered" in line]
        # Cells that were read on fewer GPUs, and hosts of a kind that nobody has seen, have wider intervals.
        found = counted_once(prepare_sessions(given["sessions"]))
        three = found[found.groupby("cell")["gpu"].transform("nunique") >= 3]
        wide = pd.DataFrame(coverage(three))
        assert shortfalls(wide[(wide["left_out"] == "GPU") & (wide["sessions"] == "all")]) == []
        pd.testing.assert_frame_equal(again, rows, rtol=1e-5)


@pytest.mark.published
def test_what_clocks_and_kinds_of_host_add_is_what_the_published_sessions_say() -> None:
    sessions = tables.read("sessions", Project(ROOT).published("nvidia-h200").root)
    found = prepare_sessions(sessions)
    alone = found[found["regime"].eq("cold")]
    by_device = alone["clock"].eq("device")
    pairs = alone[by_device].merge(alone[~by_device], on="cell", suffixes=("", "_by_events"))
    both = pairs.groupby("cell").median(numeric_only=True)
    assert len(both) == 70
    more = [both[f"{side}_by_events"] - both[side] for side in ("median_us", "reference_median_us")]
    empty = both["clock_floor_us_by_events"] - pd.concat(more, axis=1).mean(axis=1)
    assert round(float(empty.median()), 1) == prediction._EMPTY_US
    chains = found[found["regime"] == "warm"].groupby(["cell", "host"])["median_us"].median().unstack()
    chains = chains[chains[1.0].between(3, 30)].dropna()
    assert len(chains) == 61
    assert round(float((chains[2.0] - chains[1.0]).median()), 1) == prediction._CHAINS_APART_US
    floors = sessions.groupby("host_gpus")["clock_floor_us"].median() - prediction._EMPTY_US
    said = " ".join((ROOT / "docs/trust.md").read_text(encoding="utf-8").split())
    assert f"add {floors[1]:.0f} µs on a GPU alone in its host, and {floors[2]:.0f} µs on one of two" in said


def test_cells_that_repeat_well_have_narrower_intervals_than_others_of_their_class() -> None:
    """Every third cell varies ten times as far from session to session: few sessions tell which."""
    where = [(f"s{i}", f"GPU-{i // 2}", 8) for i in range(8)]
    sessions, rng = sessions_of(300, where), np.random.default_rng(3)
    noisy = sessions["variant"].str.removeprefix("kernel-").astype(int) % 3 == 0
    more = np.exp(rng.normal(0, np.where(noisy, 0.03, 0.0)))
    for name in ("speedup", "speedup_low", "speedup_high"):
        sessions[name] *= more
    found = prepare_sessions(sessions)
    known = components(found)
    assert known["freedom"].iloc[0] < 10
    ends = predict(found, known)
    widths = (ends["predicted_high"] - ends["predicted_low"]).groupby(
        found.groupby("cell")["variant"].first().isin(sessions["variant"][noisy])
    )
    assert widths.median()[True] > 2 * widths.median()[False]
    assert held_out(sessions).loc[("GPU", "all", "all"), "covered"] > 0.93


def test_a_pair_with_a_baseline_is_a_cell_of_its_own() -> None:
    own = sessions_of(30, [("s1", "GPU-1", 8), ("s2", "GPU-2", 8), ("s3", "GPU-3", 8)])
    pairs = own.assign(baseline="plain", speedup=2 * own["speedup"])
    pairs[["speedup_low", "speedup_high"]] *= 2
    both = frames_of(own)
    both["timings"] = tables.concat([both["timings"], frames_of(pairs)["timings"]], "timings")
    both["sessions"] = tables.concat([own, pairs], "sessions")
    made = combine_sessions(both)["timings"].set_index("variant")
    ratio = made[made["baseline"].notna()]["speedup"] / made[made["baseline"].isna()]["speedup"]
    assert ratio.tolist() == pytest.approx([2.0] * 30)
    assert (made["sessions"] == 3).all()

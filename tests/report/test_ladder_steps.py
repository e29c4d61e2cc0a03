"""A rung is held against its baseline, and a counter is its cause only where it accounts for the time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from checkout import every_sweep
from conftest import edit_yaml
from factory import Lab
from ladder.model.sweep import Sweep
from ladder.report.causes import NOT_COUNTED, cause, explanation, short
from ladder.report.ladder_steps import Step, path_to_fastest, steps
from ladder.results.statistics import at_size, estimate, ratio, records
from ladder.results.sweep_data import of_sweep

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = "long_scoreboard short_scoreboard mio_throttle lg_throttle barrier wait math_pipe_throttle dispatch_stall"
NONE = {STALL.format(reason): 0.0 for reason in [*STALLS.split(), "no_instruction"]}
GPU = {"sms": 100, "copy_gbytes_per_s": 4000.0}


def row(microseconds: float) -> dict[str, Any]:
    return {"median_us": microseconds, "sm_clock_mhz": 1000.0}


def found(
    times: tuple[float, float], below: Any, above: Any, gpu: Any = GPU
) -> tuple[str, float | None] | None:
    accounts = cause(row(times[0]), row(times[1]), [below, above], gpu)
    return (accounts.words, accounts.share) if accounts else None


def test_an_explanation_says_whether_time_was_saved_or_lost_and_what_was_not_counted() -> (
    None
):
    many, few = {WAVEFRONTS: 1e8}, {WAVEFRONTS: 4e7}
    fell = "wavefronts of shared memory fall from 100 M to 40.0 M, which explains all of the time saved"
    rose = "wavefronts of shared memory rise from 40.0 M to 100 M, which explains all of the time lost"
    assert explanation(row(1200), row(700), [many, few], GPU) == (fell, True)
    assert explanation(row(700), row(1200), [few, many], GPU) == (rose, True)
    assert explanation(row(1200), row(700), [many, {}], GPU) == (NOT_COUNTED, False)
    less = "wavefronts of shared memory fall from 100 M to 70.0 M, which explains 60 % of the time saved"
    assert explanation(row(1200), row(700), [many, {WAVEFRONTS: 7e7}], GPU) == (
        less,
        True,
    )


def test_where_no_counter_explains_the_time_another_occupancy_is_named() -> None:
    """It may be the cause where the faster one has the larger; two blocks instead of one, or one instead of two."""

    def said(
        *ends: tuple[float, int, float], counted: Any = ({"any": 1.0}, {"any": 1.0})
    ) -> str:
        below, above = (
            row(time) | {"blocks_per_sm": blocks, "occupancy": share}
            for time, blocks, share in ends
        )
        return explanation(below, above, counted, GPU)[0]

    few, many = (1200, 1, 0.125), (1000, 2, 0.25)
    more = "not explained by the counters; 2 blocks a multiprocessor instead of 1: occupancy 25 %, not 12.5 %"
    fewer = "not explained by the counters; 1 block a multiprocessor instead of 2: occupancy 12.5 %, not 25 %"
    assert (said(few, many), said(many, few)) == (more, fewer)
    plain = "not explained by the counters"
    assert said(few, (1000, 1, 0.125)) == plain, "the same"
    assert said((1200, 2, 0.25), (1000, 1, 0.125)) == plain, "the faster one has less"
    assert said((1200, 8, 1.0), (1000, 2, 1.0)) == plain, "blocks of more threads"
    assert said((1200, 8, 0.25), (1000, 2, 0.5)) == plain, (
        "fewer blocks of more threads"
    )
    counters = {WAVEFRONTS: 1e8}, {WAVEFRONTS: 8e7}
    assert said(few, many, counted=counters).startswith(
        "wavefronts of shared memory fall"
    ), "a counter goes first"
    assert explanation(row(1200), row(1000), [{"any": 1.0}] * 2, GPU) == (
        plain,
        False,
    ), "not compiled"


def test_a_count_is_the_cause_where_its_change_takes_the_time_that_was_saved() -> None:
    """1e8 wavefronts take 1000 us on 100 multiprocessors of 1 GHz, one a cycle."""
    faster = found((1200, 700), {WAVEFRONTS: 1e8}, {WAVEFRONTS: 4e7})
    assert faster is not None
    assert faster == (
        "wavefronts of shared memory fall from 100 M to 40.0 M",
        pytest.approx(1.2),
    )
    slower = found((700, 1200), {WAVEFRONTS: 4e7}, {WAVEFRONTS: 1e8})
    assert slower is not None
    assert slower[0] == "wavefronts of shared memory rise from 40.0 M to 100 M"


@pytest.mark.parametrize(
    ("times", "below", "above"),
    [
        ((1200, 100), 1e8, 5e7),  # accounts for 45 %, and for 28 % of the factor
        ((1200, 900), 1e8, 5e7),  # accounts for 167 %
        ((20000, 19500), 1e8, 5e7),  # the wavefronts take a twentieth of the time
        ((1200, 1300), 1e8, 5e7),  # it got slower with fewer
        ((1020, 1000), 1e8, 9.8e7),  # it did not move
    ],
)
def test_a_count_that_does_not_account_for_the_time_is_not_named(
    times: tuple[float, float], below: float, above: float
) -> None:
    assert found(times, {WAVEFRONTS: below}, {WAVEFRONTS: above}) is None


def test_a_wait_is_named_where_no_count_is_and_by_its_share_of_the_time() -> None:
    """Of 4 cycles an instruction 3 are waits; without 2 of them it takes half of the time."""
    below, above = (NONE | {STALL.format("barrier"): value} for value in (3.0, 1.0))
    said = found((1000, 500), below, above)
    assert said is not None
    assert (
        said[0]
        == "cycles per instruction that warps wait at barriers (barrier) fall from 3.00 to 1.00"
    )
    assert said[1] == pytest.approx((1000 * 3 / 4 - 500 * 1 / 2) / 500)
    counted = found((1000, 500), below | {WAVEFRONTS: 9e7}, above | {WAVEFRONTS: 4e7})
    assert counted is not None
    assert counted[0].startswith("wavefronts"), "which is no symptom"


def waits(**cycles: float) -> dict[str, float]:
    return NONE | {STALL.format(reason): value for reason, value in cycles.items()}


def test_a_wait_that_goes_on_under_another_name_is_no_cause() -> None:
    """Barriers become mbarriers: waits for these are long_scoreboard, and shared memory saves the time."""
    moved = (
        waits(barrier=3, short_scoreboard=6),
        waits(barrier=0.5, long_scoreboard=2.5, short_scoreboard=4),
    )
    assert found((1000, 800), *moved) is None, (
        "barrier falls by 250 us, and all of it goes on elsewhere"
    )
    assert found((800, 1000), *reversed(moved)) is None
    gone = (
        waits(barrier=3, short_scoreboard=6),
        waits(barrier=0.5, long_scoreboard=0.5, short_scoreboard=6),
    )
    said = found((1000, 800), *gone)
    assert said is not None
    assert (
        said[0]
        == "cycles per instruction that warps wait at barriers (barrier) fall from 3.00 to 0.500"
    )
    assert said[1] == pytest.approx((250 - 50) / 200), (
        "50 us of it went on at mbarriers"
    )
    lost = found((800, 1000), *reversed(gone))
    assert lost == (
        said[0].replace("fall from 3.00 to 0.500", "rise from 0.500 to 3.00"),
        pytest.approx(said[1]),
    )


def test_a_wait_that_no_words_name_takes_part_in_the_sum_and_is_no_cause() -> None:
    """Warps that wait at barriers no longer wait for instructions instead; nothing says that barriers cost the time."""
    below = waits(barrier=4, math_pipe_throttle=5)
    assert found((1000, 700), below, waits(barrier=4, math_pipe_throttle=2)) is None
    assert (
        found(
            (1000, 700),
            below,
            waits(barrier=0.5, no_instruction=3.5, math_pipe_throttle=2),
        )
        is None
    )
    assert (
        found(
            (1000, 700),
            below,
            waits(barrier=0.5, no_instruction=0.5, math_pipe_throttle=5),
        )
        is not None
    )


TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"


def test_work_that_is_left_out_is_named_where_it_accounts_for_the_factor() -> None:
    """Half of the wavefronts in half of the time; they took a fifth of it, and limit nothing."""
    half = found((5000, 2500), {WAVEFRONTS: 1e8}, {WAVEFRONTS: 5e7})
    assert half == (
        "wavefronts of shared memory fall from 100 M to 50.0 M",
        pytest.approx(1.0),
    )
    assert found((5000, 2500), {WAVEFRONTS: 4e7}, {WAVEFRONTS: 2e7}) is None, (
        "of a unit that is hardly used"
    )
    assert found((5000, 500), {WAVEFRONTS: 1e8}, {WAVEFRONTS: 5e7}) is None, (
        "30 % of the factor"
    )
    assert found((5000, 2500), {WAVEFRONTS: 5e7}, {WAVEFRONTS: 1e8}) is None, (
        "more work in less time"
    )


def test_a_busier_pipe_is_named_where_the_work_is_the_same_with_the_wait_beside_it() -> (
    None
):
    """Tensor cores work for 600 us in both; barriers took 29 % of the time saved."""
    below, above = (
        waits(barrier=barrier, wait=8) | {TENSOR: share}
        for barrier, share in ((1, 60), (0.5, 75))
    )
    said = found((1000, 800), below, above)
    busier = "tensor cores busy for 75 % of the time instead of 60 %"
    assert said == (
        f"{busier}; waits at barriers fall from 1.00 to 0.500 cycles an instruction",
        None,
    )
    assert explanation(row(1000), row(800), [below, above], GPU) == (said[0], True)
    assert short(said[0]) == "tensor cores busier"
    lost = found((800, 1000), above, below)
    assert lost is not None
    assert short(lost[0]) == "tensor cores less busy"
    assert found((1000, 800), {TENSOR: 16.0}, {TENSOR: 20.0}) is None, (
        "a pipe that does little"
    )
    removed = found((1000, 500), {TENSOR: 60.0}, {TENSOR: 60.0})
    assert removed == (
        "cycles of tensor cores fall from 60.0 M to 30.0 M",
        pytest.approx(0.6),
    )


def test_without_counters_or_facts_of_the_gpu_nothing_is_named() -> None:
    bytes_moved = [{READ: value, WRITTEN: 0.0} for value in (4e9, 2e9)]
    moved = found((1000, 500), *bytes_moved)
    assert moved is not None
    assert moved[0] == "bytes to and from DRAM fall from 4.00 GB to 2.00 GB"
    assert found((1000, 500), *bytes_moved, gpu={}) is None
    assert found((1000, 500), {}, {}) is None


SIZE = {"m": 4096, "n": 4096, "k": 4096}
LADDERS_OF_NUMBERS = (
    "fp32_ladder",
    "tensor_ladder_bf16",
    "tensor_ladder_fp16",
    "tensor_ladder_tf32",
)


def is_branch(rung: str) -> bool:
    """Whether its number has a letter, as `7b split loaders`."""
    return re.match(r"\d+[a-z]\b", rung) is not None


@pytest.mark.parametrize("name", LADDERS_OF_NUMBERS)
def test_rungs_are_numbered_as_they_are_read_and_each_changes_the_one_before(
    name: str,
) -> None:
    """A branch stands behind the rung whose number it has, and changes that one."""
    own = every_sweep()[name]
    entries = {
        entry.rung: entry.baseline.rung if entry.baseline else None
        for entry in own.entries
    }
    path = [rung for rung in entries if not is_branch(rung)]
    assert [rung.split()[0] for rung in path] == [
        str(number) for number in range(1, len(path) + 1)
    ]
    assert [entries[rung] for rung in path] == [None, *path[:-1]]
    last, letters = path[0], ""
    for rung in entries:
        if not is_branch(rung):
            last, letters = rung, ""
            continue
        letters += rung.split()[0][-1]
        assert (entries[rung], rung.split()[0][:-1]) == (last, last.split()[0])
        assert letters == "bcdefg"[: len(letters)]


def test_letters_of_the_hopper_ladder_that_lead_on_and_those_that_are_branches() -> (
    None
):
    """6b, 6c and 6d build on one another; 6e and 6f are branches of 6d, 7 and 8 change 6b, and 7b changes 7."""
    sweep = every_sweep()["hopper_ladder"]
    below = {entry.rung.split()[0]: entry.baseline for entry in sweep.entries}
    numbers = {rung: entry.rung.split()[0] for rung, entry in below.items() if entry}
    on_path = {
        "6b": "6",
        "6c": "6b",
        "6d": "6c",
        "6e": "6d",
        "6f": "6d",
        "7": "6b",
        "7b": "7",
        "8": "6b",
    }
    assert {rung: numbers[rung] for rung in on_path} == on_path
    lettered = [rung for rung in numbers if is_branch(rung) and rung not in on_path]
    # 3b differs from rung 3 in one thing, and stands beside it: both change rung 2. Likewise 1b stands beside 2.
    assert {rung: numbers[rung] for rung in lettered} == {
        "1b": "1",
        "3b": "2",
        "4b": "4",
        "4c": "4",
    }
    assert not {*lettered, "6e", "6f", "7b", "8"} & {*numbers.values()}


def recorded(
    tmp_path: Path, variants: list[dict[str, Any]]
) -> tuple[Sweep, dict[str, Any]]:
    """A sweep of these variants against cuBLAS, and the tables of its made-up records."""
    lab, name = Lab(tmp_path), "fp32_transpose"
    edit_yaml(
        lab.project.sweeps / f"{name}.yaml",
        lambda sweep: sweep.update(variants=variants, references=["cublas"]),
    )
    lab.record([name])
    return lab.sweeps([name])[name], lab.frames(name)


def test_a_gain_is_of_pairs_with_the_baseline_else_of_the_same_library_else_unknown(
    tmp_path: Path,
) -> None:
    variants = [
        {
            "kernel": "gemm_register_tile",
            "params": {"transpose_a": 0},
            "rung": "1 plain A",
        },
        {"kernel": "gemm_naive", "rung": "1b naive", "baseline": "1 plain A"},
        {
            "kernel": "gemm_register_tile",
            "rung": "2 transposed A",
            "baseline": "1 plain A",
        },
    ]
    sweep, frames = recorded(tmp_path, variants)
    timings = frames["timings"]

    def last_step(rows: pd.DataFrame) -> Step:
        data = of_sweep(sweep, {**frames, "timings": rows}, {})
        found = steps(data)[-1]
        assert (found.entry.rung, found.below) == ("2 transposed A", first)
        return found

    first = sweep.entries[0].variant.id
    paired = last_step(timings)
    (pair,) = records(
        at_size(
            timings[
                (timings["rung"] == "2 transposed A") & (timings["reference"] == first)
            ],
            SIZE,
        )
    )
    assert (paired.direct, paired.gain.measured) == (True, estimate(pair, "speedup"))
    against_library = timings[timings["baseline"].isna()]
    quotient = last_step(against_library)
    assert not quotient.direct
    rows = {row["variant"]: row for row in records(at_size(against_library, SIZE))}
    own, other = (
        estimate(rows[variant], "speedup")
        for variant in (quotient.row["variant"], first)
    )
    assert quotient.gain.measured == ratio(own, other)
    assert not last_step(
        against_library[against_library["variant"] != first]
    ).gain.known


def test_a_path_ends_at_no_rung_that_is_slower_than_what_it_changes(
    tmp_path: Path,
) -> None:
    """However wide its interval against the library is, with which it ties with the fastest; the fastest stays."""
    tile = {"kernel": "gemm_register_tile"}
    variants = [
        {"kernel": "gemm_naive", "rung": "1 naive"},
        {
            **tile,
            "params": {"transpose_a": 0},
            "rung": "2 plain A",
            "baseline": "1 naive",
        },
        {**tile, "rung": "2b transposed A", "baseline": "2 plain A"},
    ]
    sweep, frames = recorded(tmp_path, variants)

    def end(
        over_baseline: tuple[float, float],
        over_library: tuple[float, float] = (0.9, 1.06),
    ) -> str:
        timings = frames["timings"].copy()
        ends, columns = (
            timings["baseline"].isna(),
            ["speedup", "speedup_low", "speedup_high"],
        )
        for rung, speeds in {
            "1 naive": (0.1,) * 3,
            "2 plain A": (1, 0.99, 1.01),
        }.items():
            timings.loc[ends & (timings["rung"] == rung), columns] = speeds
        last = timings["rung"] == "2b transposed A"
        here = timings["m"] == SIZE["m"]
        timings.loc[ends & last, columns] = (sum(over_library) / 2, *over_library)
        timings.loc[~ends & last & here, columns] = (
            sum(over_baseline) / 2,
            *over_baseline,
        )
        timings.loc[~ends & last & ~here, columns] = (
            0.5,
            0.49,
            0.51,
        )  # says nothing of the size that counts
        return path_to_fastest(of_sweep(sweep, {**frames, "timings": timings}, {}))[
            -1
        ].rung

    assert end((0.97, 1.01)) == "2b transposed A"
    assert end((0.97, 0.99)) == "2 plain A"
    assert end((0.97, 0.99), over_library=(1.1, 1.2)) == "2b transposed A"


def test_of_two_paths_of_one_length_the_one_that_ends_faster_is_walked(
    tmp_path: Path,
) -> None:
    tile = {"kernel": "gemm_register_tile"}
    variants = [
        {"kernel": "gemm_naive", "rung": "1 naive"},
        {
            **tile,
            "params": {"transpose_a": 0},
            "rung": "2 plain A",
            "baseline": "1 naive",
        },
        {**tile, "params": {"bm": 64}, "rung": "2b small", "baseline": "2 plain A"},
        {**tile, "rung": "2c transposed A", "baseline": "2 plain A"},
    ]
    sweep, frames = recorded(tmp_path, variants)

    def end(**speeds: float) -> str:
        timings = frames["timings"].copy()
        for rung, speed in {"1 naive": 0.1, "2 plain A": 1.0, **speeds}.items():
            own = timings["baseline"].isna() & (timings["rung"] == rung)
            timings.loc[own, ["speedup", "speedup_low", "speedup_high"]] = (
                speed,
                0.9 * speed,
                1.1 * speed,
            )
        paired = timings["baseline"].notna()
        timings.loc[paired, ["speedup", "speedup_low", "speedup_high"]] = (
            1.0,
            0.9,
            1.1,
        )
        return path_to_fastest(of_sweep(sweep, {**frames, "timings": timings}, {}))[
            -1
        ].rung

    assert end(**{"2b small": 1.02, "2c transposed A": 1.01}) == "2b small"
    assert end(**{"2b small": 1.01, "2c transposed A": 1.02}) == "2c transposed A"


def test_a_rung_that_is_slower_than_one_before_it_is_no_step_of_the_path(
    tmp_path: Path,
) -> None:
    """By the product of the gains: a rung that gains over a loss is left out too until what was lost is regained."""
    tile = {"kernel": "gemm_register_tile"}
    variants = [
        {"kernel": "gemm_naive", "rung": "1 naive"},
        {
            **tile,
            "params": {"transpose_a": 0},
            "rung": "2 plain A",
            "baseline": "1 naive",
        },
        {**tile, "params": {"bm": 64}, "rung": "3 small", "baseline": "2 plain A"},
        {**tile, "rung": "4 transposed A", "baseline": "3 small"},
    ]
    sweep, frames = recorded(tmp_path, variants)

    def rungs(**gains: float) -> str:
        """Numbers of the rungs of the path, where the last rung is the fastest."""
        timings, columns = (
            frames["timings"].copy(),
            ["speedup", "speedup_low", "speedup_high"],
        )
        for entry in sweep.entries:
            own = timings["rung"] == entry.rung
            speed, gain = (
                1.0 if entry is sweep.entries[-1] else 0.5,
                gains.get(f"r{entry.rung[0]}", 2.0),
            )
            timings.loc[own & timings["baseline"].isna(), columns] = (
                speed,
                0.999 * speed,
                1.001 * speed,
            )
            timings.loc[own & timings["baseline"].notna(), columns] = (
                gain,
                0.999 * gain,
                1.001 * gain,
            )
        return "".join(
            entry.rung[0]
            for entry in path_to_fastest(
                of_sweep(sweep, {**frames, "timings": timings}, {})
            )
        )

    assert rungs() == "1234"
    assert rungs(r3=0.9) == "124"
    assert rungs(r2=0.9, r3=1.05) == "14"  # 0.945 of the first
    assert rungs(r2=0.9, r3=1.2) == "134"
    assert rungs(r3=0.9995) == "1234"  # a tie
    assert rungs(r4=0.9995) == "1234"

"""A rung is held against its baseline, and a counter is its cause only where it accounts for the time."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from checkout import every_sweep, published_data
from factory import ENDS, Fields, Lab
from ladder.model.sweep import Sweep
from ladder.report.causes import Cause, cause, resident
from ladder.report.ladder_steps import Step, path_to_fastest, steps
from ladder.results.statistics import at_size, estimate, ratio, records
from ladder.results.sweep_data import of_sweep
from ladder.results.verdicts import TIED

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = """long_scoreboard short_scoreboard mio_throttle lg_throttle barrier wait math_pipe_throttle gmma
    dispatch_stall no_instruction"""
NONE = {STALL.format(reason): 0.0 for reason in STALLS.split()}
ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
CYCLES = "sm__cycles_elapsed.sum"
BY_TMA = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
GPU = {"sms": 100, "copy_gbytes_per_s": 4000.0}


def row(microseconds: float) -> Fields:
    return {"median_us": microseconds}


def cycles(microseconds: float) -> dict[str, float]:
    """Of 100 multiprocessors of 1 GHz."""
    return {CYCLES: 1e5 * microseconds}


def found(times: tuple[float, float], below: Any, above: Any, gpu: Any = GPU) -> Cause:
    """The cause of a difference; with the share 0 where no counter accounts for it."""
    launches = [
        (row(time), cycles(time) | counted)
        for time, counted in zip(times, (below, above), strict=True)
    ]
    return cause(launches, gpu)


@pytest.mark.parametrize(
    ("times", "below", "above", "words"),
    [
        # 1e8 wavefronts take 1000 us on 100 multiprocessors of 1 GHz, one a cycle.
        ((1200, 700), 1e8, 4e7, "fall from 100 M to 40.0 M, which explains all"),
        ((700, 1200), 4e7, 1e8, "rise from 40.0 M to 100 M, which explains all"),
        ((1200, 700), 1e8, 7e7, "fall from 100 M to 70.0 M, which explains 60 %"),
        # What filled the time is the cause, whatever limits afterwards: 500 us less, of which 300 were saved.
        ((1200, 900), 1e8, 5e7, "fall from 100 M to 50.0 M, which explains all"),
        # Of 1267 us it takes 600 less, which is too little; by the factor of the time it accounts for 64 %.
        ((1667, 400), 1e8, 4e7, "fall from 100 M to 40.0 M, which explains 64 %"),
        # Half of the work in half of the time, of which it took a fifth.
        ((5000, 2500), 1e8, 5e7, ""),
        ((5000, 2500), 5e7, 1e8, ""),  # more work in less time
        ((1200, 100), 1e8, 5e7, ""),  # 45 % of the time, and 28 % of the factor
        ((1600, 1300), 1e8, 5e7, ""),  # 167 % of the time, and took 62 % of it
        ((20000, 19500), 1e8, 5e7, ""),  # the wavefronts take a twentieth of the time
        ((1200, 1300), 1e8, 5e7, ""),  # it got slower with fewer
        ((1020, 1000), 1e8, 9.8e7, ""),  # it did not move
    ],
)
def test_a_count_is_the_cause_where_its_change_accounts_for_the_time_that_was_saved_or_lost(
    times: tuple[float, float], below: float, above: float, words: str
) -> None:
    change = "saved" if times[0] > times[1] else "lost"
    accounts = found(times, {WAVEFRONTS: below}, {WAVEFRONTS: above})
    assert bool(accounts.share) == bool(words)
    if words:
        what = f"wavefronts of shared memory {words}"
        assert accounts.words == f"{what} of the time {change}"
        assert accounts.short == what.partition(" from")[0]


def test_the_faster_one_may_have_another_occupancy() -> None:
    """It may be the cause where the faster one has the larger; two blocks instead of one, or one instead of two."""

    def of(*launches: tuple[float, int, float]) -> str:
        below, above = (
            row(time) | {"blocks_per_sm": blocks, "occupancy": share}
            for time, blocks, share in launches
        )
        return resident(below, above)

    few, many = (1200, 1, 0.125), (1000, 2, 0.25)
    more = "2 blocks a multiprocessor instead of 1: occupancy 25 %, not 12.5 %"
    fewer = "1 block a multiprocessor instead of 2: occupancy 12.5 %, not 25 %"
    assert (of(few, many), of(many, few)) == (more, fewer)
    assert of(few, (1000, 1, 0.125)) == "", "the same"
    assert of((1200, 2, 0.25), (1000, 1, 0.125)) == "", "the faster one has less"
    assert of((1200, 8, 1.0), (1000, 2, 1.0)) == "", "blocks of more threads"
    assert of((1200, 8, 0.25), (1000, 2, 0.5)) == "", "fewer blocks of more threads"
    assert resident(row(1200), row(1000)) == "", "not compiled"


BARRIER = "waits at barriers"


def waits(issued: float = 20.0, **per_instruction: float) -> dict[str, float]:
    """Waits in cycles an instruction, of which one is issued in `issued` percent of the cycles."""
    stalls = {STALL.format(reason): value for reason, value in per_instruction.items()}
    total = {LATENCY: 1 + sum(stalls.values()), STALL.format("not_selected"): 0.0}
    return NONE | {ISSUED: issued} | total | stalls


def test_a_wait_has_its_part_of_the_time_in_which_nothing_is_issued() -> None:
    """Of 1000 us 800 are idle, three quarters of them at barriers; then half of 400."""
    below, above = (waits(barrier=value, wait=1) for value in (3, 1))
    accounts = found((1000, 500), below, above)
    change = f"{BARRIER} fall from 3.00 to 1.00 cycles an instruction"
    words = f"{change}, which explains 80 % of the time saved"
    assert accounts == Cause(words, f"{BARRIER} fall", pytest.approx(0.8), change)
    counted = found((1000, 500), below | {WAVEFRONTS: 9e7}, above | {WAVEFRONTS: 4e7})
    assert counted.words.startswith("wavefronts"), "which is no symptom"


def test_waits_without_a_name_and_another_warps_turn_take_their_part() -> None:
    """Of 9 cycles an instruction is issued in one, a warp is ready in two, and nobody knows what it does in two."""
    below = waits(barrier=3, wait=1) | {LATENCY: 9.0, STALL.format("not_selected"): 2.0}
    above = waits(barrier=1, wait=1)
    accounts = found((1000, 500), below, above)
    # Of 800 us half are at barriers, then half of 400.
    assert (accounts.short, accounts.share) == (
        f"in part {BARRIER} fall",
        pytest.approx(0.4),
    )


def test_what_is_issued_is_a_part_of_the_time_as_waits_are() -> None:
    """400 us of 1000 become 150 of 500."""
    accounts = found((1000, 500), waits(40, barrier=1), waits(30, barrier=1))
    assert accounts.words.startswith("instructions issued fall from 160 M to 60.0 M")
    assert accounts.share == pytest.approx(0.5)


def test_a_wait_that_goes_on_under_another_name_is_no_cause() -> None:
    """Barriers become mbarriers, where warps wait as long: long_scoreboard. Shared memory saves the time."""
    moved = (
        waits(barrier=3, short_scoreboard=6),
        waits(barrier=0.5, long_scoreboard=2.6, short_scoreboard=4.2),
    )
    assert not found((1000, 800), *moved).share
    assert not found((800, 1000), *reversed(moved)).share
    gone = (
        waits(barrier=3, short_scoreboard=6),
        waits(barrier=0.5, long_scoreboard=0.5, short_scoreboard=6),
    )
    accounts = found((1000, 800), *gone)
    assert accounts.words.startswith(f"{BARRIER} fall from 3.00 to 0.500")
    # Of 267 us 46 are left, as many go on at mbarriers, and 15 at shared memory.
    assert accounts.share == pytest.approx(0.8)
    lost = found((800, 1000), *reversed(gone))
    assert lost.words.startswith(f"{BARRIER} rise from 0.500 to 3.00")


def test_a_wait_of_which_another_takes_less_back_is_a_cause_in_part() -> None:
    """Barriers save 240 us of 100, waits for shared memory take 200 of them back; a busier pipe takes nothing back."""
    below = waits(barrier=2, short_scoreboard=1, math_pipe_throttle=1)
    above = waits(barrier=1, short_scoreboard=2.5, math_pipe_throttle=1)
    change = f"in part {BARRIER} fall from 2.00 to 1.00 cycles an instruction"
    wanted = Cause(change, f"in part {BARRIER} fall", pytest.approx(2.4), change)
    assert found((1000, 900), below, above) == wanted
    more = waits(barrier=1, short_scoreboard=5, math_pipe_throttle=1)
    assert not found((1000, 900), below, more).share, "it takes back more"
    pipe = waits(barrier=1.2, short_scoreboard=1.1, math_pipe_throttle=4.9)
    assert found((1000, 900), below, pipe).short == f"in part {BARRIER} fall"


def test_a_wait_that_no_words_name_takes_part_in_the_sum_and_is_no_cause() -> None:
    """Nothing says that barriers cost the time where warps no longer wait for instructions."""
    below = waits(barrier=4, math_pipe_throttle=5)
    for above, is_cause in (
        (waits(barrier=4, math_pipe_throttle=1), False),
        (waits(barrier=0.5, no_instruction=0.5, math_pipe_throttle=5), True),
    ):
        assert bool(found((1000, 700), below, above).share) == is_cause


def test_waits_for_a_memory_and_for_its_queue_count_as_one_where_neither_alone_does() -> (
    None
):
    """Each takes 80 us less, of 200 us that are saved."""
    below = waits(short_scoreboard=3, mio_throttle=2, math_pipe_throttle=5)
    above = waits(short_scoreboard=2.5, mio_throttle=1.25, math_pipe_throttle=6.25)
    accounts = found((1000, 800), below, above)
    assert accounts.short == "waits for shared memory and its queue fall"
    assert accounts.words.startswith(f"{accounts.short} from 5.00 to 3.75 cycles an")
    of_two_memories = (
        waits(long_scoreboard=3, mio_throttle=2, math_pipe_throttle=5),
        waits(long_scoreboard=2.5, mio_throttle=1.25, math_pipe_throttle=6.25),
    )
    assert "and its queue" not in found((1000, 800), *of_two_memories).short


TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"


def test_a_busier_pipe_is_no_cause_and_more_work_of_it_is() -> None:
    """Of the same work in less time each pipe is busier."""
    assert not found((1000, 800), {TENSOR: 60.0}, {TENSOR: 75.0}).share
    removed = found((1000, 500), {TENSOR: 60.0}, {TENSOR: 60.0}).words
    assert removed.startswith("cycles of tensor cores fall from 60.0 M to 30.0 M")


def test_with_copying_warps_a_wait_is_named_without_a_share() -> None:
    """Which warps wait nobody counted."""
    below, above = (
        waits(barrier=barrier, wait=1) | {BY_TMA: 1e9} for barrier in (3, 1)
    )
    accounts = found((1000, 500), below, above)
    change = f"perhaps {BARRIER} fall from 3.00 to 1.00 cycles an instruction"
    assert (accounts.change, accounts.short) == (change, f"perhaps {BARRIER} fall")
    assert (
        accounts.words == f"{change} (mean of all warps, also of those that only copy)"
    )


def test_wavefronts_are_not_compared_with_those_of_a_launch_that_copies_by_tma() -> (
    None
):
    below, above = {WAVEFRONTS: 1e8}, {WAVEFRONTS: 4e7}
    assert found((1200, 700), below, above).share
    assert not found((1200, 700), below, above | {BY_TMA: 1e9}).share
    assert found((1200, 700), below | {BY_TMA: 1e9}, above | {BY_TMA: 1e9}).share


def test_nothing_is_explained_by_launches_that_differ_less_in_cycles_than_in_time() -> (
    None
):
    below, above = waits(barrier=3, wait=1), waits(barrier=1, wait=1)
    for after, explained in ((500, True), (650, True), (800, False), (1100, False)):
        accounts = found((1000, 500), below, above | cycles(after))
        assert bool(accounts.share) == explained
    assert accounts.words == (
        "not explained by the counters: the launches that were counted took 100 M and 110 M cycles"
    )


def test_where_no_counter_is_the_cause_the_two_are_named_that_contradict_each_other() -> (
    None
):
    """Barriers saved more than all of the time, mbarriers took it back, and shared memory did not move."""
    launches = (
        waits(barrier=3, long_scoreboard=1, short_scoreboard=4),
        waits(barrier=0.5, long_scoreboard=5, short_scoreboard=4.1),
    )

    def contradiction(*counters: Any, time: float = 900) -> str:
        accounts = found((1000, time), *counters)
        assert (accounts.share, accounts.short) == (0, "?")
        return accounts.words.removeprefix("not explained by the counters: ")

    assert contradiction(*launches) == (
        "waits at barriers fall from 3.00 to 0.500 cycles an instruction, "
        "but waits for global memory or an mbarrier rise from 1.00 to 5.00 cycles an instruction"
    )
    alone = contradiction({WAVEFRONTS: 9e7}, {WAVEFRONTS: 8e7}, time=700)
    assert alone.endswith("fall from 90.0 M to 80.0 M"), "which is too little"
    assert contradiction({}, {}) == "none moved"
    assert contradiction(*launches, time=1000) == "as fast"


@pytest.mark.published
def test_most_steps_of_published_ladders_have_a_cause_and_the_others_say_what_was_counted() -> (
    None
):
    """Four of five in all; of a ladder two of three, where waits were counted.

    `tensor_files` is no ladder: it holds files against kernels of nearly the same machine code.
    """
    explained, others = 0, 0
    for name, part in published_data().parts.items():
        if name == "tensor_files":
            continue
        gained = [step for step in steps(part) if step.below and step.gain.known]
        real = [step for step in gained if step.gain.verdict != TIED]
        without = [step for step in real if step.why.short == "?"]
        if "stalls" in part.sweep.counter_groups:
            assert len(without) <= math.ceil(len(real) / 3), name
        for step in without:
            assert re.search(r"counters: .* (?:from|took) [\d.]+", step.why.words), (
                step.why
            )
        explained += len(real) - len(without)
        others += len(without)
    assert explained >= 4 * others > 0


def test_without_counters_or_facts_of_the_gpu_nothing_is_named() -> None:
    bytes_moved = [{READ: value, WRITTEN: 0.0} for value in (4e9, 2e9)]
    moved = found((1000, 500), *bytes_moved).words
    assert moved.startswith("bytes to and from DRAM fall from 4.00 GB to 2.00 GB")
    assert not found((1000, 500), *bytes_moved, gpu={}).share
    assert not found((1000, 500), {}, {}).share


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


def recorded(tmp_path: Path, variants: list[Fields]) -> tuple[Sweep, Fields]:
    """A sweep of these variants against cuBLAS, and the tables of its made-up records."""
    lab, name = Lab(tmp_path), "fp32_transpose"
    lab.update(name, variants=variants, references=["cublas"])
    lab.record([name])
    return lab.sweep_of(name), lab.frames(name)


TILE = "gemm_register_tile"


def ladder(*rungs: tuple[str, str, dict[str, int], str]) -> list[Fields]:
    """Variants of a sweep: rung, kernel, parameters, and the rung that each changes."""
    return [
        {"kernel": kernel, "params": params, "rung": rung}
        | ({"baseline": below} if below else {})
        for rung, kernel, params, below in rungs
    ]


def test_a_gain_is_of_pairs_with_the_baseline_else_of_the_same_library_else_unknown(
    tmp_path: Path,
) -> None:
    variants = ladder(
        ("1 plain A", TILE, {"transpose_a": 0}, ""),
        ("1b naive", "gemm_naive", {}, "1 plain A"),
        ("2 transposed A", TILE, {}, "1 plain A"),
    )
    sweep, frames = recorded(tmp_path, variants)
    timings = frames["timings"]

    def last_step(rows: pd.DataFrame) -> Step:
        data = of_sweep(sweep, {**frames, "timings": rows}, {})
        found = steps(data)[-1]
        assert (found.entry.rung, found.below) == ("2 transposed A", first)
        return found

    first = sweep.entries[0].variant.id
    paired = last_step(timings)
    pairs = timings[timings["baseline"].notna()]
    (pair,) = records(at_size(pairs[pairs["rung"] == "2 transposed A"], SIZE))
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


def path(
    sweep: Sweep,
    frames: Fields,
    over_library: dict[str, tuple[float, ...]],
    over_baseline: dict[str, tuple[float, ...]],
) -> list[str]:
    """Rungs of the path to the fastest with these speed-ups and their ends, at the size that counts."""
    timings = frames["timings"].copy()
    paired, here = timings["baseline"].notna(), timings["m"] == SIZE["m"]
    # What is read at other sizes says nothing of the size that counts.
    timings.loc[paired & ~here, [*ENDS]] = (0.5, 0.49, 0.51)
    for speeds, rows in ((over_library, ~paired), (over_baseline, paired & here)):
        for rung, speed in speeds.items():
            timings.loc[rows & (timings["rung"] == rung), [*ENDS]] = speed
    data = of_sweep(sweep, {**frames, "timings": timings}, {})
    return [entry.rung for entry in path_to_fastest(data).values()]


def close(speed: float, part: float = 0.001) -> tuple[float, float, float]:
    return speed, speed * (1 - part), speed * (1 + part)


BRANCH = ladder(
    ("1 naive", "gemm_naive", {}, ""),
    ("2 plain A", TILE, {"transpose_a": 0}, "1 naive"),
    ("2b small", TILE, {"bm": 64}, "2 plain A"),
    ("2c transposed A", TILE, {}, "2 plain A"),
)


def test_a_path_ends_at_no_rung_that_is_slower_than_what_it_changes(
    tmp_path: Path,
) -> None:
    """However wide its interval against the library is, with which it ties with the fastest; the fastest stays."""
    sweep, frames = recorded(tmp_path, [*BRANCH[:2], BRANCH[3]])

    def end(over_baseline: float, over_library: tuple[float, ...]) -> str:
        speeds = {"1 naive": close(0.1), "2 plain A": close(1.0, 0.01)}
        speeds["2c transposed A"] = over_library
        own = {"2c transposed A": close(over_baseline, 0.01)}
        return path(sweep, frames, speeds, own)[-1]

    assert end(0.995, (0.98, 0.9, 1.06)) == "2c transposed A"
    assert end(0.98, (0.98, 0.9, 1.06)) == "2 plain A"
    assert end(0.98, (1.15, 1.1, 1.2)) == "2c transposed A"


def test_of_two_paths_of_one_length_the_one_that_ends_faster_is_walked(
    tmp_path: Path,
) -> None:
    sweep, frames = recorded(tmp_path, BRANCH)

    def end(small: float, transposed: float) -> str:
        speeds = {"1 naive": 0.1, "2 plain A": 1.0}
        speeds |= {"2b small": small, "2c transposed A": transposed}
        ties = dict.fromkeys(speeds, close(1.0, 0.1))
        wide = {rung: close(speed, 0.1) for rung, speed in speeds.items()}
        return path(sweep, frames, wide, ties)[-1]

    assert end(1.02, 1.01) == "2b small"
    assert end(1.01, 1.02) == "2c transposed A"


def test_a_rung_that_is_slower_than_one_before_it_is_no_step_of_the_path(
    tmp_path: Path,
) -> None:
    """By the product of the gains: a rung that gains over a loss is left out too until what was lost is regained."""
    names = ("1 naive", "2 plain A", "3 small", "4 transposed A")
    chain = zip(BRANCH, names, ("", *names), strict=False)
    variants = [
        {**variant, "rung": rung} | ({"baseline": below} if below else {})
        for variant, rung, below in chain
    ]
    sweep, frames = recorded(tmp_path, variants)

    def rungs(second: float = 2.0, third: float = 2.0, fourth: float = 2.0) -> str:
        """Numbers of the rungs of the path, where the last rung is the fastest."""
        speeds = {rung: close(0.5) for rung in names} | {names[-1]: close(1.0)}
        gains = zip(names[1:], (second, third, fourth), strict=True)
        own = {rung: close(gain) for rung, gain in gains}
        return "".join(rung[0] for rung in path(sweep, frames, speeds, own))

    assert rungs() == "1234"
    assert rungs(third=0.9) == "124"
    assert rungs(0.9, 1.05) == "14"  # 0.945 of the first
    assert rungs(0.9, 1.2) == "134"
    assert rungs(third=0.9995) == "1234"  # a tie
    assert rungs(fourth=0.9995) == "1234"

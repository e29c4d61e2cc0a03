"""The timing loop on a simulated GPU whose clock the test winds: order, drift, stopping, and honest intervals."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from cuda.core import EventOptions
from ladder.gpu.device import FLUSHED, L2
from ladder.gpu.timing import (
    LEAST_PAIRS,
    CheckedLaunch,
    Sides,
    StoppingRule,
    Timer,
    TimesDisagree,
    chain_length,
)
from ladder.model.intervals import ratio_interval
from ladder.model.problem import GATE

FLUSH_US = 20.0
CLEAN_US = 50.0
MIB = 1024 * 1024


class SimulatedEvent:
    """A point of the simulated time; a difference is in ms, as CUDA's is."""

    at_us = 0.0

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu

    def sync(self) -> None:
        self.gpu.waited_until_us = max(self.gpu.waited_until_us, self.at_us)

    def __sub__(self, earlier: SimulatedEvent) -> float:
        return (self.at_us - earlier.at_us) / 1e3


@dataclass
class SimulatedBuffer:
    gpu: SimulatedGpu
    size: int

    def fill(self, value: int, *, stream: SimulatedGpu) -> None:
        """The buffer as long as the L2 flushes it; the longer one holds the zeros that clean it."""
        assert (value, stream) == (0, self.gpu)
        flushes = self.size == self.gpu.l2.bytes
        self.gpu.now_us += FLUSH_US if flushes else 4 * FLUSH_US
        self.gpu.log.append("flush" if flushes else "zeros")


class SimulatedGpu:
    """Time passes only while something runs; `log` holds what was enqueued, in order. The L2 is prepared by real code.

    It is its own device, its own stream, its own gate and its own harness. The gate takes no time. The host enqueues in
    no time and reads its clock when the GPU is at rest; `unseen_us` is what the events of a launch do not show of it.
    """

    def __init__(self, l2_bytes: int = 50 * MIB) -> None:
        self.events: list[SimulatedEvent] = []
        self.now_us = self.waited_until_us = 0.0
        self.unseen_us: Callable[[], float] = lambda: 0.0
        self.log: list[str] = []
        self.launches = 0
        self.stream = self.harness = self.device = self
        self.kernels = {GATE: self}
        self.buffers: list[SimulatedBuffer] = []
        ours: Any = self
        self.l2 = L2(ours, l2_bytes)

    def __enter__(self) -> None:
        self.log.append("close")

    def __exit__(self, *_: object) -> None:
        self.log.append("open")

    def allocate(self, size: int) -> SimulatedBuffer:
        self.buffers.append(SimulatedBuffer(self, size))
        return self.buffers[-1]

    def allocate_guarded(self, name: str, size: int) -> Any:
        return self.allocate(size)

    def create_event(self, options: EventOptions) -> SimulatedEvent:
        assert options.timing_enabled
        return SimulatedEvent(self)

    def record(self, event: SimulatedEvent) -> None:
        event.at_us = self.now_us

    def read_through(self, data: SimulatedBuffer) -> None:
        assert data is self.buffers[-1]
        self.now_us += CLEAN_US
        self.log.append("clean")

    def read_clocks(self) -> float:
        self.log.append("clocks")
        return self.now_us

    def mean_mhz(self, before: float, after: float) -> float:
        return 1980.0 if after > before else 0.0

    def sync(self) -> None:
        self.waited_until_us = self.now_us
        if self.log[-1:] == ["open"]:
            self.waited_until_us += self.unseen_us()
        self.log.append("sync")

    def host_us(self) -> float:
        return self.waited_until_us

    def launcher(self, name: str, time_us: Callable[[], float]) -> Callable[[], None]:
        def launch() -> None:
            self.now_us += time_us()
            self.launches += 1
            self.log.append(name)

        return launch

    def steady(self, name: str, time_us: float) -> Callable[[], None]:
        return self.launcher(name, lambda: time_us)

    @property
    def order(self) -> str:
        return "".join(word for word in self.log if len(word) == 1)


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate is the simulated GPU's own."""
    monkeypatch.setattr("ladder.gpu.timing.Gate", lambda stream, kernel: kernel)


@pytest.fixture
def gpu() -> Any:
    return SimulatedGpu()


@pytest.fixture
def timer(gpu: Any) -> Timer:
    return Timer(gpu)


def rule(
    precision: float = 0.01,
    min_pairs: int = 12,
    max_pairs: int = 400,
    seconds: float = 10.0,
) -> StoppingRule:
    return StoppingRule(precision, min_pairs, max_pairs, seconds)


def sides(variant: Callable[[], None], reference: Callable[[], None]) -> Sides:
    """Nothing watches them."""
    return CheckedLaunch(variant), CheckedLaunch(reference)


def both(gpu: SimulatedGpu, variant_us: float, reference_us: float) -> Sides:
    """Launches A and B that always take as long."""
    return sides(gpu.steady("A", variant_us), gpu.steady("B", reference_us))


def noisy(
    random: np.random.Generator, center: float, share: float
) -> Callable[[], float]:
    return lambda: float(center * (1 + share * random.standard_normal()))


# The order of launches, and what is timed.


def test_in_each_group_both_sides_write_to_both_places(gpu: Any, timer: Timer) -> None:
    here, swapped = (
        sides(gpu.steady(f"A{at}", 10.0), gpu.steady(f"B{1 - at}", 20.0))
        for at in (0, 1)
    )
    timer.time_single_launches(here, swapped, rule(), FLUSHED, 400.0)
    order = [word for word in gpu.log if word[0] in "AB" and len(word) == 2]
    assert order == ["A0", *["A0", "B1", "B0", "A1", "B0", "A1", "A0", "B1"] * 3]


def test_batches_have_up_to_six_groups_and_each_its_leading_launch(
    gpu: Any, timer: Timer
) -> None:
    timer.pairs(both(gpu, 10.0, 20.0), rule(min_pairs=18), FLUSHED)
    assert gpu.order == "A" + "ABBABAAB" * 3 + "A" + "ABBABAABABBA"


class PlayedClock:
    """A device clock which sees 2 us less of each launch than events do."""

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu, self.on, self.batches = gpu, False, list[int]()

    @contextlib.contextmanager
    def recording(self, alone: bool = False) -> Iterator[None]:
        self.on, self.alone = True, alone
        yield
        self.on = False

    def times(self, count: int) -> list[float]:
        assert self.on
        assert self.gpu.log.count("|") == sum(self.batches) + count, (
            "each launch is behind by a mark"
        )
        self.batches.append(count)
        launches = [word for word in self.gpu.log if word in ("A", "B", "|")]
        names = [name for name, behind in itertools.pairwise(launches) if behind == "|"]
        return [{"A": 10.0, "B": 20.0}[name] - 2.0 for name in names[-count:]]


def test_short_launches_are_timed_by_the_device_clock_where_there_is_one(
    gpu: Any,
) -> None:
    clock: Any = PlayedClock(gpu)
    gpu.nothing = lambda: gpu.log.append("|")
    timer = Timer(gpu, clock)
    timer.floor_us = 0.0
    launches = both(gpu, 10.0, 20.0)
    found = timer.time_single_launches(launches, launches, rule(), FLUSHED, 10.0)
    assert (found.clock, found.speedup()[0]) == ("device", pytest.approx(18 / 8))
    assert found.variant_us == pytest.approx([8.0] * 12)
    rested = gpu.log[gpu.log.index("open") :]
    assert rested[:3] == ["open", "sync", "|"], (
        "the mark comes when the launch has ended"
    )
    assert not clock.alone
    assert not clock.on
    assert (
        Timer(gpu).time_single_launches(launches, launches, rule(), FLUSHED, 10.0).clock
        == "events"
    ), "there is none"


@pytest.mark.parametrize("floor_us", [2.5, 4.5])
def test_what_events_add_on_a_host_does_not_decide_on_the_clock(
    gpu: Any, floor_us: float
) -> None:
    def nothing() -> None:
        gpu.now_us += floor_us
        gpu.log.append("|")

    clock: Any = PlayedClock(gpu)
    gpu.nothing = nothing
    timer = Timer(gpu, clock)
    assert timer.floor_us == pytest.approx(floor_us)
    gpu.log.clear()
    launches = both(gpu, 10.0, 20.0)
    clocks = [
        timer.time_single_launches(
            launches, launches, rule(), FLUSHED, kernel_us + floor_us
        ).clock
        for kernel_us in (64.9, 65.1)
    ]
    assert clocks == ["device", "events"]


def test_code_of_ones_own_is_timed_by_the_device_clock_alone_on_its_stream(
    gpu: Any,
) -> None:
    clock: Any = PlayedClock(gpu)
    gpu.nothing = lambda: gpu.log.append("|")
    launches = both(gpu, 10.0, 20.0)
    sides = launches, launches
    timed = Timer(gpu, clock).time_single_launches(
        *sides, rule(), FLUSHED, 5000.0, opaque=True
    )
    assert (timed.clock, clock.alone) == ("device", True)


def test_cleaning_is_spent_and_not_timed_and_zeros_are_written_once(
    gpu: Any, timer: Timer
) -> None:
    times, spent = timer.times(both(gpu, 5.0, 7.0), "cold", twice=True)
    rested = ["clean", "sync", "close"]
    first = ["A", "flush", "zeros", *rested, "A", "open", "sync"]
    assert gpu.log == [*first, "B", "flush", *rested, "B", "open", "sync", "sync"]
    assert times == pytest.approx([5.0, 7.0])
    assert spent == pytest.approx(
        2 * (5.0 + 7.0) + 2 * (FLUSH_US + CLEAN_US) + 4 * FLUSH_US
    )
    assert timer.busy_us == pytest.approx(spent)


@pytest.mark.parametrize(("l2_mib", "flushed_mib"), [(50, 50), (6, 32)])
def test_all_of_the_l2_is_overwritten_and_cleaned_by_four_times_as_much(
    l2_mib: int, flushed_mib: int
) -> None:
    gpu = SimulatedGpu(l2_mib * MIB)
    gpu.l2.prepare(FLUSHED)
    assert [buffer.size for buffer in gpu.buffers] == [flushed_mib * MIB]
    gpu.l2.prepare("cold")
    assert [buffer.size for buffer in gpu.buffers] == [
        flushed_mib * MIB,
        4 * flushed_mib * MIB,
    ]


def test_no_collection_falls_between_two_launches_and_collecting_goes_on_after(
    gpu: Any, timer: Timer
) -> None:
    seen = []
    timer.times([CheckedLaunch(lambda: seen.append(gc.isenabled()))], "warm")
    assert seen == [False]
    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="launch failed"):
        timer.times([CheckedLaunch(fail)], "warm")
    assert gc.isenabled()


def fail() -> None:
    raise RuntimeError("launch failed")


@pytest.mark.parametrize(("single_us", "primed"), [(299.0, True), (301.0, False)])
def test_short_kernels_run_once_before_the_flush(
    gpu: Any, timer: Timer, single_us: float, primed: bool
) -> None:
    launches = both(gpu, single_us, 1000.0)
    timer.time_single_launches(launches, launches, rule(), FLUSHED, single_us)
    # Of the last sample: [untimed launch,] flush, rest, gate closed, launch, gate opened, wait; wait for its check.
    assert gpu.log[-8:-7] == (["B"] if primed else ["sync"])


def test_a_quick_time_is_the_median_of_launches_with_a_cold_l2_after_some_to_warm_up(
    gpu: Any, timer: Timer
) -> None:
    # One to load it, two to see how long it takes, two after the pause, four that count.
    times = iter(
        [9000.0, 9000.0, 4000.0, 9000.0, 9000.0, 4000.0, 9000.0, 5000.0, 6000.0]
    )
    assert timer.quick_medians(
        [gpu.launcher("A", lambda: next(times))]
    ) == pytest.approx([5500.0])
    assert timer.busy_us == pytest.approx(
        55_000.0 + 8 * (FLUSH_US + CLEAN_US) + 4 * FLUSH_US
    )


@pytest.mark.parametrize(
    ("single_us", "launches"), [(10.0, 40), (200.0, 24), (20_000.0, 4)]
)
def test_the_shorter_a_kernel_the_more_launches_choose(
    gpu: Any, timer: Timer, single_us: float, launches: int
) -> None:
    timer.quick_medians([gpu.steady("A", single_us)])
    primed = 2 if single_us < 300 else 1
    assert gpu.log.count("A") == 3 + primed * (launches + 2)
    assert gpu.log[0] == "A", (
        "loading a kernel waits for the GPU, so it must not stand behind the gate"
    )


def test_times_to_choose_by_are_taken_in_turns(gpu: Any, timer: Timer) -> None:
    timer.quick_medians(
        [gpu.steady("A", 20_000.0), gpu.steady("B", 1000.0), gpu.steady("C", 20_000.0)]
    )
    # Each loaded, then each timed twice; the fastest gives two rounds, after one to warm up.
    assert gpu.order == "ABC" + "AABBCC" + "ABCCBA" * 3


# Watching: what is enqueued around a launch, and the host's clock.


def watched(
    gpu: Any, name: str, launch_us: float = 5.0, prime: bool = False
) -> CheckedLaunch:
    """A launch whose refresh takes 2 us and whose check takes 3 us; the log has their names."""
    lower = name.lower()
    around = [
        gpu.steady(f"{word} {lower}", us)
        for word, us in (("refresh", 2.0), ("inspect", 3.0))
    ]
    primed = [gpu.steady(f"prime {lower}", 9.0)] if prime else []
    return CheckedLaunch(gpu.steady(name, launch_us), *around, *primed)


def test_a_launch_is_inspected_before_anything_else_runs(
    gpu: Any, timer: Timer
) -> None:
    """Its inputs are drawn behind the untimed launch and ahead of the flush, which evicts them."""
    times, spent = timer.times(
        [watched(gpu, "A"), watched(gpu, "B")], FLUSHED, twice=True
    )
    timed = ["flush", "sync", "close"]
    assert gpu.log == [
        *["A", "refresh a", *timed, "A", "open", "sync"],
        *["inspect a", "B", "refresh b", *timed, "B", "open", "sync"],
        *["inspect b", "sync"],
    ]
    assert times == pytest.approx([5.0, 5.0]), (
        "what is around a launch is not in its time"
    )
    assert timer.checking_us == pytest.approx(2 * (2.0 + 3.0))
    assert timer.busy_us == pytest.approx(4 * 5.0 + 2 * FLUSH_US + timer.checking_us)
    assert spent == pytest.approx(timer.busy_us - 3.0), (
        "the last check is behind what the launches took"
    )


def test_a_prime_of_a_warm_chain_runs_ahead_of_its_inputs_and_is_not_timed(
    gpu: Any, timer: Timer
) -> None:
    """Or it could leave what it finds out about them."""
    times, _ = timer.times([watched(gpu, name, prime=True) for name in "AB"], "warm")
    assert gpu.log == [
        *["prime a", "refresh a", "sync", "close", "A", "open", "sync"],
        *["inspect a", "prime b", "refresh b", "sync", "close", "B", "open", "sync"],
        *["inspect b", "sync"],
    ]
    assert times == pytest.approx([5.0, 5.0])


@pytest.mark.parametrize("regime", [FLUSHED, "cold"])
@pytest.mark.parametrize(
    ("launch_us", "unseen_us", "agrees"),
    [
        (1000.0, 0.0, True),
        (1000.0, 240.0, True),  # 5 % and 200 us
        (1000.0, 260.0, False),  # it goes on behind its event
        (10.0, 190.0, True),
        (10.0, 210.0, False),
        (1000.0, -40.0, True),
        (1000.0, -60.0, False),  # its events tell more than there was
        (10.0, -1.4, True),
        (10.0, -1.6, False),
    ],
)
def test_events_and_the_hosts_clock_must_agree(
    gpu: Any,
    timer: Timer,
    regime: str,
    launch_us: float,
    unseen_us: float,
    agrees: bool,
) -> None:
    gpu.unseen_us = lambda: unseen_us
    kernel = CheckedLaunch(gpu.steady("A", launch_us))
    if agrees:
        timer.times([kernel] * 8, regime)
    else:
        with pytest.raises(
            TimesDisagree, match=r"by its events a launch takes .* the host sees [+-]"
        ):
            timer.times([kernel] * 8, regime)


def test_what_the_host_sees_late_is_no_disagreement_where_it_says_nothing(
    gpu: Any, timer: Timer
) -> None:
    """Of a warm chain, which is primed; of the one launch to plan by; now and then."""
    gpu.unseen_us = lambda: 9000.0
    timer.times([watched(gpu, "A", prime=True)] * 8, "warm")
    kernel = CheckedLaunch(gpu.steady("A", 10.0))
    assert timer.time_once(kernel) == pytest.approx(10.0)
    late = itertools.cycle([0.0, 0.0, 9000.0])
    gpu.unseen_us = lambda: next(late)
    timer.times([kernel] * 9, FLUSHED)


@pytest.mark.parametrize("hiding", [0, 1])
def test_one_side_that_hides_time_is_refused_whatever_the_other_does(
    gpu: Any, timer: Timer, hiding: int
) -> None:
    """The reference has fewer launches than the variant, and launches take turns."""
    gpu.unseen_us = lambda: 500.0 if gpu.order[-1] == "AB"[hiding] else 0.0
    with pytest.raises(TimesDisagree):
        timer.pairs(both(gpu, 10.0, 10.0), rule(), FLUSHED)


def test_a_disagreement_leaves_no_launch_without_its_check(
    gpu: Any, timer: Timer
) -> None:
    gpu.unseen_us = lambda: 5000.0
    with pytest.raises(TimesDisagree):
        timer.times([watched(gpu, "A")] * 8, FLUSHED)
    assert gpu.log.count("inspect a") == gpu.log.count("A") == 8
    assert gc.isenabled()


# Ratios.


def test_steady_drift_cancels_in_every_ratio(gpu: Any, timer: Timer) -> None:
    """Clocks that sag by 0.2 % of the start with each launch, three quarters in the end."""

    def drifting(center: float) -> Callable[[], float]:
        return lambda: center * (1 + 0.002 * gpu.launches)

    pairs = timer.pairs(
        sides(gpu.launcher("A", drifting(10.0)), gpu.launcher("B", drifting(20.0))),
        rule(min_pairs=200),
        FLUSHED,
    )
    assert max(pairs.variant_us) > 1.7 * min(pairs.variant_us)
    assert pairs.ratios() == pytest.approx([2.0] * 100, rel=1e-12)
    assert pairs.speedup() == pytest.approx((2.0, 2.0, 2.0), rel=1e-12)
    singles = [r / v for v, r in zip(pairs.variant_us, pairs.reference_us, strict=True)]
    assert max(singles) > 2.001, "pair by pair the drift would show"


def test_scale_divides_every_time(gpu: Any, timer: Timer) -> None:
    pairs = timer.pairs(both(gpu, 100.0, 50.0), rule(), "warm", scale=10)
    assert pairs.variant_us == pytest.approx([10.0] * 12)
    assert pairs.reference_us == pytest.approx([5.0] * 12)
    assert pairs.speedup() == pytest.approx((0.5, 0.5, 0.5)), "reference over variant"
    assert timer.busy_us == pytest.approx(pairs.gpu_us)
    assert pairs.gpu_us == pytest.approx(12 * 150.0 + 100.0), "GPU time is not scaled"


@pytest.mark.parametrize(
    ("once_us", "launches"), [(1.0, 100), (10.0, 50), (100.0, 5), (1000.0, 4), (1e6, 4)]
)
def test_a_chain_holds_half_a_millisecond_of_launches(
    once_us: float, launches: int
) -> None:
    assert chain_length(once_us) == launches


# Stopping.


def test_sustained_chains_follow_each_other_without_a_pause_side_by_side(
    gpu: Any, timer: Timer
) -> None:
    found = timer.time_sustained(both(gpu, 50_000.0, 55_000.0), (10, 11))
    assert [run[0] for run in re.findall(r"A+|B+", gpu.order)] == list("ABABABABA")
    assert "sync" not in gpu.log, "the GPU never rests"
    assert "flush" not in gpu.log
    assert found.variant_us == pytest.approx([5000.0] * 6)
    assert found.speedup() == pytest.approx((1.0, 1.0, 1.0)), "of a launch"
    assert found.stopped_by == "blocks"
    for block in (*found.variant, *found.reference):
        assert 1.0 <= block.end_s - block.begin_s < 1.3
        assert block.sm_clock_mhz == 1980.0


def test_a_block_counts_once_settled_and_checks_every_chain(
    gpu: Any, timer: Timer
) -> None:
    chains = itertools.count()
    # The first 0.4 s are faster.
    chain = gpu.launcher("A", lambda: 40_000.0 if next(chains) < 9 else 50_000.0)
    around = gpu.steady("r", 10.0), gpu.steady("i", 10.0)
    block = timer.sustained_block(CheckedLaunch(chain, *around), 1)
    assert re.fullmatch("(rAi)+", gpu.order)
    assert block.us == pytest.approx(50_000.0, rel=0.03)
    assert block.settling_us == pytest.approx(40_000.0, rel=0.1)
    assert gpu.log.count("clocks") == 2


def test_intervals_of_few_blocks_are_students() -> None:
    middle, low, high = ratio_interval([1.00, 1.01, 1.02])
    assert middle == pytest.approx(1.01, abs=1e-4)
    assert (high - low) / 2 == pytest.approx(4.303 * 0.01 / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize(
    ("asked", "us", "share", "stopped_by", "bounds"),
    [
        ({"min_pairs": 30}, 10.0, 0.0, "precision", (30, 30)),
        (
            {"precision": 0.005, "max_pairs": 10_000},
            10.0,
            0.03,
            "precision",
            (51, 9999),
        ),
        ({"precision": 1e-6, "max_pairs": 40}, 10.0, 0.1, "pairs", (40, 40)),
        # 10 ms at 60 us a pair, flushes counted, seen at the end of a batch of six groups.
        ({"precision": 1e-6, "seconds": 0.01}, 10.0, 0.1, "budget", (143, 212)),
        # No budget is small enough for fewer pairs than an interval needs.
        ({"precision": 1e-6, "seconds": 1e-6}, 1e5, 0.1, "budget", (12, 16)),
        (
            {"precision": 1e-6, "seconds": 1e-6, "min_pairs": 100},
            1e5,
            0.1,
            "budget",
            (LEAST_PAIRS, LEAST_PAIRS + 4),
        ),
    ],
)
def test_sampling_stops_where_the_rule_says(
    asked: dict[str, Any],
    us: float,
    share: float,
    stopped_by: str,
    bounds: tuple[int, int],
    gpu: Any,
    timer: Timer,
) -> None:
    random = np.random.default_rng(3)
    variant, reference = (gpu.launcher(name, noisy(random, us, share)) for name in "AB")
    pairs = timer.pairs(sides(variant, reference), rule(**asked), FLUSHED)
    least, most = bounds
    assert pairs.stopped_by == stopped_by
    assert least <= len(pairs.variant_us) <= most
    if stopped_by == "precision":
        middle, low, high = pairs.speedup()
        assert (high - low) / 2 <= rule(**asked).precision * middle
    if stopped_by == "budget":
        assert pairs.gpu_us >= asked["seconds"] * 1e6


# Honest intervals: the same kernel on both sides, over and over.


def skewed(random: np.random.Generator) -> Callable[[], float]:
    """With outliers."""
    return lambda: float(
        (10 + random.exponential(0.3)) * (1.5 if random.random() < 0.05 else 1)
    )


NOISES: dict[str, Callable[[np.random.Generator], Callable[[], float]]] = {
    "normal": lambda random: noisy(random, 10.0, 0.02),
    "skewed": skewed,
}


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("precision", [0.02, 0.005])
def test_intervals_of_a_kernel_against_itself_cover_one(
    name: str, precision: float
) -> None:
    trials, covered = 150, 0
    for trial in range(trials):
        gpu: Any = SimulatedGpu()
        kernel = gpu.launcher("A", NOISES[name](np.random.default_rng(trial)))
        pairs = Timer(gpu).pairs(
            sides(kernel, kernel), rule(precision, 12, 200), FLUSHED
        )
        _, low, high = pairs.speedup()
        covered += low <= 1 <= high
    assert covered / trials >= 0.93

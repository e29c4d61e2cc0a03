"""Watching timed launches, on an instance that only notes what is asked of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from ladder.gpu.device import RESULT_SLOTS
from ladder.gpu.instance import Instance
from ladder.gpu.timing import (
    Block,
    Blocks,
    CheckedLaunch,
    Pairs,
    chain_length,
    nothing,
)
from ladder.measure.bench import REFERENCE, CellOutcome
from ladder.measure.watch import Chain, CheckedSide, LaunchChecker
from ladder.measure.worker import Timing
from ladder.model.cell import Partner
from ladder.model.plan import Launch
from ladder.model.problem import COPY
from ladder.problems.registry import PROBLEMS

BOUND = 0.5


class FakeHarness:
    """Slots are numbered; `error` says what a check finds."""

    def __init__(self) -> None:
        self.slots: list[tuple[int, int]] = []  # index and key
        self.read: list[list[int]] = []  # keys of each reading
        self.error: Callable[[int], float] = lambda check: 0.0
        self.checks = 0

    def result_slot(self, index: int, key: int) -> tuple[int, int]:
        assert index < RESULT_SLOTS
        self.slots.append((index, key))
        return index, key

    def read_check_results(self, keys: Sequence[int]) -> list[float]:
        assert list(keys) == [
            key for _, key in self.slots[len(self.slots) - len(keys) :]
        ]
        self.read.append(list(keys))
        found = [self.error(self.checks + number) for number in range(len(keys))]
        self.checks += len(keys)
        return found


class FakeInstance:
    """`log` holds what is done, with the place that outputs are at."""

    def __init__(self) -> None:
        self.harness = FakeHarness()
        self.gpu = SimpleNamespace(
            harness=self.harness, stream="stream", sync=lambda: None
        )
        self.place, self.log = 0, list[tuple[Any, ...]]()
        self.workspaces = SimpleNamespace(
            renew=lambda: self.log.append(("workspaces", self.place))
        )
        self.has_workspaces = lambda: False
        self.sums_are_exact = lambda: True
        self.inputs = "uniform"
        self.by_tile = True
        self.looked_by_tile = list[bool]()

    @contextlib.contextmanager
    def writing_to(self, place: int) -> Iterator[None]:
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    inputs_of_kind: Any = Instance.inputs_of_kind

    def refresh(self, seed: int) -> None:
        self.log.append(("refresh", self.place, seed))

    renew = refresh

    def poison_outputs(self) -> None:
        self.log.append(("poison", self.place))

    def inspect(self, params: Any, slot: tuple[int, int]) -> None:
        self.looked_by_tile.append(self.by_tile)
        self.log.append(("inspect", self.place, params, *slot))

    def error_bound(self, params: Any) -> float:
        return BOUND if self.inputs == "uniform" else BOUND / 2

    def launcher(self, name: str) -> Callable[[], None]:
        """Writes to where outputs are now."""
        place = self.place
        return lambda: self.log.append((name, place))

    def places(self, name: str) -> list[int]:
        return [place for _, place in self.entries(name)]

    def entries(self, name: str) -> list[tuple[Any, ...]]:
        return [entry for entry in self.log if entry[0] == name]


@pytest.fixture
def instance() -> Any:
    return FakeInstance()


@pytest.fixture
def watch(instance: Any) -> LaunchChecker:
    return LaunchChecker(instance)


def places_of(length: int) -> list[int]:
    """Where outputs of a chain are."""
    return [*range(REFERENCE + 1, REFERENCE + 1 + length)]


def launched(one: CheckedLaunch) -> None:
    """As the timer does it."""
    one.refresh()
    one.launch()
    one.inspect()


def side(always: bool = True) -> CheckedSide:
    return CheckedSide({"k": 3}, BOUND, always)


# Single launches.


def test_every_launch_of_a_variant_gets_a_fresh_seed_and_a_check_with_a_fresh_key(
    instance: Any, watch: LaunchChecker
) -> None:
    launch = watch.single_launch(instance.launcher("variant"), side(), 0)
    for _ in range(500):
        launched(launch)
    assert [entry[0] for entry in instance.log] == [
        "refresh",
        "variant",
        "inspect",
    ] * 500
    seeds = {seed for _, _, seed in instance.entries("refresh")}
    _, _, params, indices, keys = zip(*instance.entries("inspect"), strict=True)
    assert len(seeds) == len(set(keys)) == 500
    assert not seeds & set(keys)
    # Twice a seed and one more is a word.
    assert all(0 <= number < 2**62 for number in (*seeds, *keys))
    # Until they are read, each has a slot of its own.
    assert list(indices) == list(range(500))
    assert all(one == {"k": 3} for one in params)


def test_of_a_reference_about_every_fourth_launch_is_checked_and_gets_fresh_inputs(
    instance: Any, watch: LaunchChecker
) -> None:
    sampled = watch.single_launch(nothing, side(always=False), REFERENCE)
    checked = []
    for _ in range(4000):
        instance.log.clear()
        launched(sampled)
        entries = [entry[:2] for entry in instance.log]
        checked.append(len(entries) == 2)
        expected = [("refresh", REFERENCE), ("inspect", REFERENCE)]
        assert entries == (expected if checked[-1] else [("poison", REFERENCE)])
    # A binomial number is within 8 of its standard deviations.
    assert abs(sum(checked) - 1000) < 8 * math.sqrt(4000 * 3 / 16)
    assert not any(all(checked[start::4]) for start in range(4)), "nobody knows which"


def test_the_first_launches_of_a_variant_are_looked_at_by_tile_wherever_they_write(
    instance: Any, watch: LaunchChecker
) -> None:
    """None of a reference is, and none of a chain, of which both sides leave the GPU the same rest."""
    of_variant = side()
    for place in (0, REFERENCE):
        launch = watch.single_launch(nothing, of_variant, place)
        for _ in range(20):
            launched(launch)
    assert instance.looked_by_tile == [True] * 23 + [False] * 17
    instance.looked_by_tile.clear()
    sampled = watch.single_launch(nothing, side(always=False), REFERENCE)
    for _ in range(20):
        launched(sampled)
    chain = Chain(lambda: nothing, nothing, side(), 8)
    launched(watch.chain(nothing, chain, nothing, 4))
    assert len(instance.looked_by_tile) >= 4
    assert not any(instance.looked_by_tile)


# What the checks found.


def test_checks_are_read_when_all_slots_are_taken(
    instance: Any, watch: LaunchChecker
) -> None:
    one = side()
    own = watch.single_launch(nothing, one, 0)
    for _ in range(RESULT_SLOTS):
        launched(own)
    assert one.checked == 0
    launched(own)
    assert one.checked == RESULT_SLOTS
    assert instance.harness.slots[-1][0] == 0
    watch.collect_results()
    assert one.checked == RESULT_SLOTS + 1
    assert [len(keys) for keys in instance.harness.read] == [RESULT_SLOTS, 1]


@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (0.0, 0),
        (BOUND, 0),
        (math.nextafter(BOUND, 1), 1),
        (1e300, 1),
        (math.inf, 1),
        (math.nan, 1),
    ],
)
def test_a_launch_beyond_the_bound_is_wrong_and_so_are_infinity_and_nan(
    error: float, wrong: int
) -> None:
    one = side()
    one.take(error)
    assert (one.checked, one.wrong) == (1, wrong)


# Chains.


def test_one_launch_of_a_chain_is_checked_at_a_place_that_nobody_knows(
    instance: Any, watch: LaunchChecker
) -> None:
    one = side()
    chain = watch.chain(nothing, Chain(nothing, nothing, one, 3), nothing, 1)
    places, seeds = [], set()
    for _ in range(300):
        instance.log.clear()
        launched(chain)
        (name, at, seed), (_, place, *_) = instance.log
        assert (name, at) == ("refresh", 2)
        seeds.add(seed)
        places.append(place)
    assert len(seeds) == 300
    # 100 times each, within 8 standard deviations of a binomial number.
    assert all(
        abs(places.count(place) - 100) < 8 * math.sqrt(300 * 2 / 9)
        for place in (2, 3, 4)
    )
    watch.collect_results()
    assert one.checked == 300
    assert instance.place == 0


class FakeGraph:
    def __init__(self, members: Sequence[Callable[[], None]]) -> None:
        self.members, self.closed = members, False

    def launch(self, stream: str) -> None:
        assert stream == "stream"
        for member in self.members:
            member()

    def close(self) -> None:
        self.closed = True


class FakeTimer:
    """Runs each side once, as `pairs` does a launch."""

    working = contextlib.nullcontext

    def __init__(self) -> None:
        self.called: list[tuple[str, float]] = []
        self.median_us, self.settling = 10.0, 0.97
        self.alone_us = 1000.0

    def times(self, launches: Any, regime: str) -> tuple[list[float], float]:
        assert regime == "warm"
        return [self.alone_us] * len(launches), 0.0

    def pairs(self, sides: Any, rule: Any, regime: str, scale: Any = 1.0) -> Any:
        self.called.append((regime, scale))
        for one in sides:
            one.prime()
            launched(one)
        return Pairs([self.median_us] * 3, [10.0] * 3)

    def time_sustained(self, sides: Any, scales: Any) -> Any:
        found = Blocks(**vars(self.pairs(sides, None, "sustained", scale=scales)))
        settling = (0.97, self.settling, 0.97)
        found.variant = [
            Block(us, us * of, 1500.0, 0.0, 1.0)
            for us, of in zip(found.variant_us, settling, strict=True)
        ]
        return found

    def time_single_launches(
        self, sides: Any, swapped: Any, rule: Any, regime: str, *_: Any
    ) -> Any:
        self.swapped = swapped
        return self.pairs(sides, rule, regime)


class Lab:
    """A `Timing` of a variant that takes 100 us, with a fake bench."""

    def __init__(self, instance: Any, name: str = "cublas") -> None:
        self.instance, self.timer, self.graphs = (
            instance,
            FakeTimer(),
            list[FakeGraph](),
        )
        self.bench: Any = SimpleNamespace(
            gpu=instance.gpu,
            timer=self.timer,
            instance=lambda cell: instance,
            loaded=lambda task: instance.launcher("variant"),
            least_us=lambda cell, params: 1.0,
            chain_length=chain_length,
            reference_params=lambda task: {},
            rule=None,
            warm_below_us=200.0,
            notes={},
            another=lambda task, partner: instance.launcher(partner.reference),
            swapped_reference=lambda task, partner: instance.launcher(
                partner.reference
            ),
            external={},
            launchers={},
        )
        launch = Launch((1, 1, 1), (1, 1, 1), None, 0, "variant", {"k": 3}, ())
        task: Any = SimpleNamespace(
            cell=SimpleNamespace(in_regime=lambda regime: regime),
            launch=launch,
            reference=None,
        )
        launchers = instance.launcher("alone"), instance.launcher("other alone")
        both_us = 100.0, 150.0
        self.timing = Timing(self.bench, task, Partner(name), launchers, both_us)

    def run(self, *regimes: str) -> Any:
        self.timing.run(regimes)
        return self.timing.timed

    def capture(self, stream: str, members: Sequence[Callable[[], None]]) -> FakeGraph:
        assert stream == "stream"
        self.graphs.append(FakeGraph(members))
        return self.graphs[-1]


@pytest.fixture
def lab(instance: Any, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(instance)
    monkeypatch.setattr("ladder.measure.watch.capture", made.capture)
    return made


def test_a_chain_is_refreshed_and_poisoned_behind_one_launch_alone(
    instance: Any, lab: Lab
) -> None:
    lab.run("warm")
    length = chain_length(100.0)
    assert lab.timer.called == [("warm", length)]
    own = places_of(length)
    assert instance.places("variant") == own
    assert instance.places("cublas") == own
    assert instance.places("poison") == own * 2
    first = instance.log[: instance.log.index(("other alone", 0))]
    around = ["refresh", *["poison"] * length]
    assert [entry[0] for entry in first] == [
        "alone",
        *around,
        *["variant"] * length,
        *["inspect"] * 4,
    ]
    assert instance.entries("inspect")[0][1] in own
    assert [graph.closed for graph in lab.graphs] == [True] * 3


def test_warm_chains_are_as_long_as_the_quicker_side_needs(lab: Lab) -> None:
    """Which the reference is here."""
    lab.timing.launch_us = (150.0, 10.0)
    lab.run("warm")
    assert lab.timer.called == [("warm", chain_length(10.0))]


def test_graphs_are_freed_when_a_launch_fails(lab: Lab) -> None:
    def fail() -> None:
        raise RuntimeError("launch failed")

    lab.bench.loaded = lambda task: fail
    with pytest.raises(RuntimeError, match="launch failed"):
        lab.run("warm")
    assert [graph.closed for graph in lab.graphs] == [True] * 3


@pytest.mark.parametrize(
    ("once_us", "regime", "range_"),
    [(201.0, "warm", "below 200 us"), (89.0, "sustained", "from 100 us on")],
)
def test_a_kernel_that_a_regime_is_not_for_keeps_its_other_regimes(
    once_us: float, regime: str, range_: str, lab: Lab
) -> None:
    lab.timing.launch_us = (once_us, 150.0)
    timed = lab.run(regime, "cold")
    assert list(timed) == ["cold", regime]
    reason = f"{regime} is for kernels {range_}"
    assert timed[regime].result == {"status": "unsupported", "reason": reason}
    assert [called for called, _ in lab.timer.called] == ["cold"]


# What a wrong launch makes of a cell.


def test_a_wrong_launch_of_the_variant_makes_it_stateful_and_ends_the_process(
    instance: Any, lab: Lab
) -> None:
    instance.harness.error = lambda check: 2.0 if check == 0 else 0.0
    with pytest.raises(CellOutcome) as outcome:
        lab.run("cold", "warm")
    assert outcome.value.result["status"] == "stateful"
    assert (
        "right alone, wrong in sequence: 1 of 1 timed launches"
        in outcome.value.result["reason"]
    )
    assert outcome.value.spoilt
    assert lab.timer.called == [("cold", 1.0)], "the next regime is not timed"


def test_a_wrong_launch_of_the_reference_is_not_the_variants(
    instance: Any, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.randrange", lambda stop: 0)  # checked
    instance.harness.error = lambda check: 2.0 * check
    with pytest.raises(CellOutcome) as outcome:
        lab.run("cold")
    assert outcome.value.result["status"] == "incorrect"
    assert outcome.value.result["reason"].startswith(
        "the reference cublas: 1 of 1 timed launches"
    )
    assert not outcome.value.spoilt


def test_a_time_that_the_hardware_cannot_reach_is_stateful(lab: Lab) -> None:
    lab.timer.median_us = 0.9
    with pytest.raises(
        CellOutcome, match=r"cold: takes 0\.90 us where the hardware needs 1\.00"
    ) as outcome:
        lab.run("cold")
    assert outcome.value.result["status"] == "stateful"
    assert outcome.value.spoilt


def test_sustained_chains_are_long_and_keep_the_answers_to_other_inputs(
    instance: Any, lab: Lab
) -> None:
    lab.timing.launch_us, lab.timer.median_us = (1000.0, 2000.0), 1000.0
    lab.run("sustained", "cold")
    assert [regime for regime, _ in lab.timer.called] == ["cold", "sustained"]
    length, other = (chain_length(us, sustained=True) for us in (1000.0, 2000.0))
    assert lab.timer.called[-1] == ("sustained", (length, other)), "each side's own"
    assert other < length
    own = places_of(length)
    assert instance.places("cublas") == own[:other]
    assert instance.places("variant") == own
    assert instance.entries("poison") == [("poison", REFERENCE)] * len(
        instance.entries("poison")
    )
    assert [entry[1] for entry in instance.entries("refresh")][-2:] == [
        REFERENCE + 1
    ] * 2, "of each chain"


@pytest.mark.parametrize(
    ("share", "settling", "why"),
    [
        (1.0, 1.1, None),
        (
            0.69,
            1.0,
            r"sustained: takes 690\.00 us, of single launches one took 1000\.00",
        ),
        (
            1.0,
            1.2,
            r"sustained: takes 1000\.00 us, and 1200\.00 ahead of the launches that count",
        ),
    ],
)
def test_a_sustained_launch_that_replays_an_answer_or_rests_before_it_counts_is_stateful(
    share: float, settling: float, why: str | None, lab: Lab
) -> None:
    """The one finds the answer of another launch of its chain; the other finds a cooler GPU."""
    lab.timing.launch_us = (1000.0, 1000.0)
    lab.timer.median_us, lab.timer.settling = share * 1000.0, settling
    if why is None:
        assert isinstance(lab.run("sustained")["sustained"], Blocks)
        return
    with pytest.raises(CellOutcome, match=why) as outcome:
        lab.run("sustained")
    assert outcome.value.result["status"] == "stateful"
    assert outcome.value.spoilt


def test_workspaces_of_a_sustained_chain_are_renewed_at_every_place(
    instance: Any, lab: Lab
) -> None:
    instance.has_workspaces = lambda: True
    lab.timing.launch_us, lab.timer.median_us = (1000.0, 1000.0), 1000.0
    lab.run("sustained")
    length = chain_length(1000.0, sustained=True)
    own = places_of(length)
    assert instance.places("workspaces") == own * 2, "ahead of each side's chain"
    first = instance.log.index(("variant", own[0]))
    assert all(instance.log.index(("workspaces", place)) < first for place in own)


@pytest.mark.parametrize(
    ("error", "wrong"), [(0.4 * BOUND, False), (0.6 * BOUND, True)]
)
def test_one_launch_takes_inputs_of_each_other_kind_and_their_bound(
    error: float, wrong: bool, instance: Any, lab: Lab
) -> None:
    lab.run("cold")
    lab.timing.bench.problem = PROBLEMS["gemm"]
    instance.log.clear()
    instance.harness.error = lambda check: error
    if wrong:
        with pytest.raises(
            CellOutcome, match="with positive inputs: 1 of 1 timed launches"
        ) as outcome:
            lab.timing.refuse_other_inputs()
        assert outcome.value.result["status"] == "incorrect"
    else:
        lab.timing.refuse_other_inputs()
    once = [("refresh", 0), ("alone", 0), ("inspect", 0)]
    kinds = 1 if wrong else 3  # positive, integers and wide
    assert [entry[:2] for entry in instance.log] == once * kinds
    assert instance.inputs == "uniform"


def test_integers_are_left_out_where_sums_of_them_are_not_exact(
    instance: Any, lab: Lab
) -> None:
    lab.run("cold")
    lab.timing.bench.problem = PROBLEMS["gemm"]
    instance.sums_are_exact = lambda: False
    instance.log.clear()
    lab.timing.refuse_other_inputs()
    assert len(instance.entries("refresh")) == 2, "positive and wide"


def test_a_sustained_launch_that_finds_its_inputs_in_the_l2_replays_nothing(
    lab: Lab,
) -> None:
    lab.timing.launch_us = (1000.0, 1000.0)
    lab.timer.median_us, lab.timer.alone_us = 300.0, 310.0
    assert isinstance(lab.run("sustained")["sustained"], Blocks)


def test_single_launches_write_to_each_others_place_as_well(
    instance: Any, lab: Lab
) -> None:
    lab.run("cold", "warm")
    instance.log.clear()
    for one in lab.timer.swapped:
        launched(one)
    variant, reference = instance.log[:3], instance.log[3:5]
    assert [entry[:2] for entry in variant] == [
        ("refresh", REFERENCE),
        ("variant", REFERENCE),
        ("inspect", REFERENCE),
    ]
    assert [entry[1] for entry in reference] == [0, 0], (
        "refreshed or poisoned, and launched"
    )


def test_a_copy_as_the_reference_is_not_checked(
    instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.randrange", lambda stop: 0)
    lab = Lab(instance, COPY)
    lab.run("cold")
    assert [entry[:2] for entry in instance.log if entry[0] != COPY] == [
        ("refresh", 0),
        ("alone", 0),
        ("inspect", 0),
        ("poison", REFERENCE),
        ("other alone", 0),
    ]

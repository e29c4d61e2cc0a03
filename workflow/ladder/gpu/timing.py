"""Timing: variant and reference interleaved, by single launches or in CUDA graphs, until the interval is small.

Regimes. Before each launch the L2 is prepared and the GPU comes to rest. Cold: a memset overwrites the whole L2, and a
read of other data follows, so that nothing is left to be written to memory. Warm: a CUDA graph of back-to-back launches
takes the place of each launch, and nothing comes before it.

Launch. A gate holds the stream until event, launch and event are enqueued behind it. So the events time the launch
alone, and the host is silent while the kernel runs. Short kernels run once, untimed, before the L2 is prepared: then
their instructions are cached, as in any loop that calls one kernel, and their data are not.

Clocks. Events decide, but for launches below 65 us: of those the GPU's own timestamps do, where CUPTI is there, since
a few us of what events say are not the kernel. These few us, another number on each host, are subtracted first: so a
cell has one clock on every host.

Sustained. Chains of launches follow each other without a pause for a second, of one side and then of the other, so that
each is alone on the GPU and runs at the clock that its own power leaves it. A block begins with a time that does not
count, until clock and power have settled.

Watching. What is enqueued ahead of a launch gives it fresh inputs and poisons its output, and what follows checks it: a
launch that is timed is a launch that is verified. Both are outside of the events, and the first is ahead of the L2's
preparation.

Sampling. Launches go A B B A, B A A B, …. Each group of four gives one ratio, the reference's time over the variant's;
drift and order cancel in it. The same kernel takes another time where its output lies elsewhere, up to 0.4 % more if
memory bounds it. So outputs lie at two places, and single launches write to both in turn: A0 B1 B0 A1, B0 A1 A0 B1, ….
The speed-up is the median ratio with its distribution-free 95 % interval. Sampling stops when the interval's half-width
is below the precision and the spread of the ratios says that this many pairs should reach it, which rules out an
interval that is narrow by chance; or when the pairs or the GPU time of the cell are used up. The result says which.
The stopping rule is evaluated after `min_pairs`, and then each time the number of pairs has grown by a factor of 1.4.
"""

import contextlib
import ctypes
import gc
import math
import secrets
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from statistics import fmean, quantiles
from typing import Any

from cuda.bindings import driver
from cuda.core import EventOptions, Kernel, LaunchConfig, Stream, launch

from ladder.gpu.device import FLUSHED, Gpu, Launcher, checked
from ladder.gpu.stamps import DeviceClock
from ladder.model.errors import LadderError
from ladder.model.intervals import abba_ratios, median, ratio_interval
from ladder.model.problem import GATE

EVENTS, DEVICE = "events", "device"  # clocks
LEAST_PAIRS = 12  # six groups: the fewest whose extremes bracket the median with 95 %
_DISAGREES = 0.05  # share that the host may see more or less
_LATEST_US = 200.0  # until it notices the end
_FEWEST_TO_COMPARE = 6  # launches of a kernel to a place
_GATE_NS = 2_000_000_000  # the longest that it holds a stream
_TICKETS = 2**31
_ABBA = (True, False, False, True)  # whether a launch is the variant's
_BAAB = (False, True, True, False)
_GROUPS_AT_ONCE = LEAST_PAIRS // 2
_PRIMED_BELOW_US = 300.0
_STAMPED_BELOW_US = 65.0  # without what events add to each launch
_QUICK_US = 5000.0
_QUICK_ROUNDS = (2, 20)
_GRAPH_US = 500.0
_GRAPH_LAUNCHES = 100
_SUSTAINED_US = 50_000.0  # of a chain
_BLOCK_US = 1e6
_SETTLE_US = 0.4e6
_BLOCKS = "ABBABAABABBA"  # three groups, A the variant's
_IN_FLIGHT = 3  # chains


class TimesDisagree(Exception):
    """Events and the host's clock tell different times."""


def nothing() -> None:
    pass


@dataclass(frozen=True)
class CheckedLaunch:
    """What is timed, with what is enqueued ahead of the L2's preparation and behind the launch.

    `prime` is enqueued ahead of `refresh`, so that it knows nothing of what is timed: where the L2 is not prepared.
    """

    launch: Launcher
    refresh: Launcher = nothing
    inspect: Launcher = nothing
    prime: Launcher = nothing


Sides = tuple[CheckedLaunch, CheckedLaunch]  # of a variant and of its reference


@dataclass(frozen=True)
class StoppingRule:
    """Half-width of the interval to reach (share), pairs at least and at most, GPU seconds to spend."""

    precision: float
    min_pairs: int
    max_pairs: int
    seconds: float


@dataclass
class Pairs:
    """Times in µs of variant and reference, pair by pair, by which clock, and why sampling stopped."""

    variant_us: list[float] = field(default_factory=list)
    reference_us: list[float] = field(default_factory=list)
    stopped_by: str = ""
    gpu_us: float = 0.0
    clock: str = EVENTS

    def ratios(self) -> list[float]:
        """Reference over variant, group by group."""
        return abba_ratios(self.variant_us, self.reference_us)

    def speedup(self) -> tuple[float, float, float]:
        """The ratio with its 95 % interval: (value, low, high)."""
        return ratio_interval(self.ratios())

    def wanted(self, precision: float) -> int:
        """Pairs that a half-width of `precision` (share) should take, going by the spread so far.

        The median of n normal values has a standard error of 1.253 s / sqrt(n); s comes from the quartiles.
        """
        low, middle, high = quantiles(self.ratios(), n=4)
        spread = (high - low) / 1.349 / middle
        return 2 * math.ceil(1.1 * (1.96 * 1.253 * spread / precision) ** 2)

    def reached(self, rule: StoppingRule) -> bool:
        """Whether the interval is as narrow as `rule` demands, and not by chance."""
        middle, low, high = self.speedup()
        narrow = (high - low) / 2 <= rule.precision * middle
        return narrow and self.wanted(rule.precision) <= len(self.variant_us)


@dataclass(frozen=True)
class Block:
    """Chains of one side without a pause: mean time in µs of a launch, mean SM clock, and when by the host's clock.

    `settling_us` is the mean time of the launches ahead of those that count.
    """

    us: float
    settling_us: float
    sm_clock_mhz: float
    begin_s: float
    end_s: float


@dataclass
class Blocks(Pairs):
    """Pairs of blocks: a time is the mean of a block."""

    variant: list[Block] = field(default_factory=list)
    reference: list[Block] = field(default_factory=list)


def refuse_other_clock(launches: Sequence[tuple[float, float]]) -> None:
    """Raises TimesDisagree where the host saw launches take longer or shorter than their events say.

    Of each launch the time by its events and by the host, in µs. A few launches say nothing: the host may be busy with
    something else.
    """
    if len(launches) < _FEWEST_TO_COMPARE:
        return
    event_us = median([event for event, _ in launches])
    later_us = median([host - event for event, host in launches])
    share_us = _DISAGREES * event_us
    if not -share_us - 1.0 <= later_us <= share_us + _LATEST_US:
        raise TimesDisagree(
            f"by its events a launch takes {event_us:.1f} us, the host sees {later_us:+.1f} us more"
        )


class Gate:
    """Holds the stream while its `with` block enqueues work: a kernel reads a word of host memory until it opens."""

    def __init__(self, stream: Stream, kernel: Kernel) -> None:
        host = int(checked(driver.cuMemHostAlloc(8, driver.CU_MEMHOSTALLOC_DEVICEMAP)))
        # Kept to the end of the process: a kernel may wait for it.
        self._ticket, self._gave_up = (
            ctypes.c_int.from_address(host + offset) for offset in (0, 4)
        )
        self._ticket.value = self._gave_up.value = self._next = 0
        self._words = int(checked(driver.cuMemHostGetDevicePointer(host, 0)))
        self._close = partial(
            launch, stream, LaunchConfig(grid=1, block=1), kernel, self._words
        )

    def __enter__(self) -> None:
        # A number that no kernel can know, so that none opens the gate.
        self._next = (self._next + 1 + secrets.randbelow(_TICKETS - 2)) % _TICKETS or 1
        self._close(ctypes.c_int32(self._next), _GATE_NS)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises LadderError where the stream went on by itself, since the host was away too long."""
        self._ticket.value = self._next
        if self._gave_up.value and kind is None:
            self._gave_up.value = 0
            raise LadderError(
                f"enqueueing one launch took over {_GATE_NS / 1e9:g} s: it cannot be timed"
            )


def capture(stream: Stream, launchers: Sequence[Launcher]) -> Any:
    """A CUDA graph of back-to-back calls of `launchers`, which enqueue on `stream`. Raises what one of them raises."""
    builder = stream.create_graph_builder().begin_building("relaxed")
    try:
        for launcher in launchers:
            launcher()
        graph = builder.end_building().complete()
    except Exception:
        with contextlib.suppress(Exception):  # It says again what went wrong.
            builder.close()  # else the stream would go on capturing
        raise
    graph.upload(stream)
    stream.sync()
    return graph


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """It would only make the GPU wait at the gate."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class Timer:
    """Times launches on one GPU, and counts the GPU time in us: all of it, and that of checking timed launches.

    Short launches are timed with CUPTI timestamps where `device` is given: from the first begin to the last end of
    what runs between the gate kernel and the empty kernel. Others are timed with CUDA events.
    """

    def __init__(self, gpu: Gpu, device: DeviceClock | None = None) -> None:
        self.gpu, self.device = gpu, device
        self.busy_us = self.checking_us = 0.0
        self._gate = Gate(gpu.stream, gpu.harness.kernels[GATE])
        timed = EventOptions(timing_enabled=True)

        def events(number: int) -> list[Any]:
            return [gpu.device.create_event(timed) for _ in range(number)]

        self._events = events(7)
        self._chains = [events(2) for _ in range(_IN_FLIGHT)]

    @cached_property
    def floor_us(self) -> float:
        """What events say of an empty launch, in us."""
        (us,) = self.quick_medians([self.gpu.harness.nothing])
        return us

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Count the time between the first and the last work enqueued inside as GPU time."""
        before, after = self._events[:2]
        self.gpu.stream.record(before)
        yield
        self.gpu.stream.record(after)
        self.gpu.sync()
        self.busy_us += (after - before) * 1e3

    def times(
        self,
        launches: Sequence[CheckedLaunch],
        regime: str,
        twice: bool = False,
        device: DeviceClock | None = None,
    ) -> tuple[list[float], float]:
        """Time of each launch in µs, in order, by events or by a device clock; the GPU time in µs with all around them.

        A device clock must be recording. `twice` runs each launch once more, untimed, ahead of its refresh.
        """
        event_us, host_us, spent_us = list[float](), list[float](), 0.0
        check_previous = nothing
        with _no_garbage_collection():
            for launch in launches:
                # A launch is checked in the turn of the next one. Right behind its own launch the check would delay
                # the end that the host sees, and would lie ahead of the mark by which a device clock ends.
                self._prepare(launch, check_previous, regime, twice)
                host_us.append(self._launch_behind_gate(launch))
                if device is not None:
                    self.gpu.harness.nothing()
                launch_us, around_us = self._account()
                event_us.append(launch_us)
                spent_us += launch_us + around_us
                check_previous = launch.inspect
        self.busy_us += spent_us
        self._check_last(check_previous)
        times = event_us if device is None else device.times(len(launches))
        if regime != "warm":
            both_clocks = defaultdict[CheckedLaunch, list[tuple[float, float]]](list)
            for launch, event, host in zip(launches, event_us, host_us, strict=True):
                both_clocks[launch].append((event, host))
            for of_launch in both_clocks.values():
                refuse_other_clock(of_launch)
        return times, spent_us

    def _prepare(
        self, launch: CheckedLaunch, check_previous: Launcher, regime: str, twice: bool
    ) -> None:
        """Enqueue what comes ahead of a timed launch, and wait until the GPU rests.

        Right behind the flush a launch took up to 0.5 % longer, hence the wait.
        """
        record = self.gpu.stream.record
        begin, checked, primed, refreshed, prepared, *_ = self._events
        record(begin)
        check_previous()
        record(checked)
        if twice:
            launch.launch()
        launch.prime()
        record(primed)
        launch.refresh()
        record(refreshed)
        self.gpu.l2.prepare(regime)
        record(prepared)
        self.gpu.sync()

    def _launch_behind_gate(self, launch: CheckedLaunch) -> float:
        """How long the host sees a launch take, in µs.

        Commands that arrive while a kernel runs made it up to 1 us longer on an H200, hence the gate.
        """
        *_, start, stop = self._events
        with self._gate:
            self.gpu.stream.record(start)
            launch.launch()
            self.gpu.stream.record(stop)
        opened_us = self.gpu.host_us()
        self.gpu.sync()
        return self.gpu.host_us() - opened_us

    def _account(self) -> tuple[float, float]:
        """By the events of a turn the time in µs of its launch, and of all ahead of that; counts what checks took."""
        begin, checked, primed, refreshed, prepared, start, stop = self._events
        self.checking_us += ((checked - begin) + (refreshed - primed)) * 1e3
        return (stop - start) * 1e3, (prepared - begin) * 1e3

    def _check_last(self, check: Launcher) -> None:
        """Run the check of the last launch, which has no next turn."""
        before_us = self.busy_us
        with self.working():
            check()
        self.checking_us += self.busy_us - before_us

    def time_once(self, launch: CheckedLaunch) -> float:
        """Time in µs of one launch with a flushed L2, to plan by."""
        (us,), _ = self.times([launch], FLUSHED)
        return us

    def quick_medians(
        self, launchers: Sequence[Launcher], regime: str = "cold"
    ) -> list[float]:
        """Median times in µs, for choosing: the shorter the fastest is, the more rounds.

        A round launches each in order and in reverse, so that falling clocks favour none. The first does not count.
        """
        unchecked = [CheckedLaunch(launcher) for launcher in launchers]
        for launcher in launchers:  # which loads it
            launcher()
        expected_us = min(
            self.times([launch] * 2, regime)[0][1] for launch in unchecked
        )
        fewest, most = _QUICK_ROUNDS
        rounds = min(max(int(_QUICK_US / expected_us / 2), fewest), most)
        a_round = [*range(len(launchers)), *reversed(range(len(launchers)))]
        order = a_round * (rounds + 1)
        twice = expected_us < _PRIMED_BELOW_US
        times, _ = self.times([unchecked[index] for index in order], regime, twice)
        samples: list[list[float]] = [[] for _ in launchers]
        counted = slice(len(a_round), None)
        for index, us in zip(order[counted], times[counted], strict=True):
            samples[index].append(us)
        return [median(sample) for sample in samples]

    def pairs(
        self,
        sides: Sides,
        rule: StoppingRule,
        regime: str,
        twice: bool = False,
        scale: float = 1.0,
        device: DeviceClock | None = None,
        swapped: Sides | None = None,
    ) -> Pairs:
        """Sample A B B A groups until the rule says stop. `scale` divides every time (launches in a graph).

        `swapped` are the same kernels, each with the other's place for its output: every second launch is of these.
        """
        pairs = Pairs(clock=EVENTS if device is None else DEVICE)
        swapped = swapped or sides
        count, target = 0, rule.min_pairs
        while not pairs.stopped_by:
            number = max(1, min(-(-(target - count) // 2), _GROUPS_AT_ONCE))
            groups = range(count // 2, count // 2 + number)
            is_variant = list[bool]()
            for group in groups:
                is_variant += _ABBA if group % 2 == 0 else _BAAB
            launches = []
            for index, of_variant in enumerate(is_variant):
                # The variant's own place comes first, then the reference's, and so on.
                at_own = of_variant == (index % 2 == 0)
                variant, reference = sides if at_own else swapped
                launches.append(variant if of_variant else reference)
            # One launch more in front: the first after a pause takes longer.
            times, spent = self.times([launches[0], *launches], regime, twice, device)
            pairs.gpu_us += spent
            for of_variant, us in zip(is_variant, times[1:], strict=True):
                side_us = pairs.variant_us if of_variant else pairs.reference_us
                side_us.append(us / scale)
            count = len(pairs.variant_us)
            if count >= target and pairs.reached(rule):
                pairs.stopped_by = "precision"
            elif count >= rule.max_pairs:
                pairs.stopped_by = "pairs"
            elif count >= LEAST_PAIRS and pairs.gpu_us >= rule.seconds * 1e6:
                pairs.stopped_by = "budget"
            elif count >= target:
                target = min(max(int(1.4 * count), count + 4), rule.max_pairs)
        return pairs

    def sustained_block(self, launch: CheckedLaunch, scale: float) -> Block:
        """Chains of `scale` launches for a second, after some that do not count."""
        gpu, record = self.gpu, self.gpu.stream.record
        free_events, in_flight = list(self._chains), deque[tuple[Any, Any, bool]]()
        times, settling_times = list[float](), list[float]()
        began_us = settled_us = gpu.host_us()
        clocks_before = None

        def wait_for_oldest() -> None:
            start, stop, counts = in_flight.popleft()
            stop.sync()
            (times if counts else settling_times).append((stop - start) * 1e3)
            free_events.append([start, stop])

        while clocks_before is None or gpu.host_us() - settled_us < _BLOCK_US:
            if clocks_before is None and gpu.host_us() - began_us >= _SETTLE_US:
                clocks_before, settled_us = gpu.read_clocks(), gpu.host_us()
            start, stop = free_events.pop()
            launch.refresh()
            record(start)
            launch.launch()
            record(stop)
            launch.inspect()
            in_flight.append((start, stop, clocks_before is not None))
            # Some chains are always enqueued, so that the GPU never rests.
            if not free_events:
                wait_for_oldest()
        clocks_after = gpu.read_clocks()
        while in_flight:
            wait_for_oldest()
        ended_us = gpu.host_us()
        self.busy_us += ended_us - began_us
        mhz = gpu.mean_mhz(clocks_before, clocks_after)
        us, settling_us = fmean(times) / scale, fmean(settling_times) / scale
        return Block(us, settling_us, mhz, settled_us / 1e6, ended_us / 1e6)

    def time_sustained(self, sides: Sides, scales: tuple[float, float]) -> Blocks:
        """Blocks A B B A, B A A B, A B B A, of chains of so many launches of each side."""
        blocks = Blocks(stopped_by="blocks")
        both = blocks.variant, blocks.reference
        for letter in _BLOCKS:
            side = "AB".index(letter)
            both[side].append(self.sustained_block(sides[side], scales[side]))
        blocks.variant_us = [block.us for block in blocks.variant]
        blocks.reference_us = [block.us for block in blocks.reference]
        return blocks

    def time_single_launches(
        self,
        sides: Sides,
        swapped: Sides,
        rule: StoppingRule,
        regime: str,
        shortest_us: float,
    ) -> Pairs:
        """Groups of single launches, the L2 prepared before each; the shorter takes about `shortest_us`.

        `swapped` are the same kernels, each with the other's place for its output.
        """
        device = self.device
        if device and shortest_us - self.floor_us >= _STAMPED_BELOW_US:
            device = None
        with contextlib.nullcontext() if device is None else device.recording():
            primed = shortest_us < _PRIMED_BELOW_US
            return self.pairs(
                sides, rule, regime, primed, device=device, swapped=swapped
            )


def chain_length(once_us: float, sustained: bool = False) -> int:
    """Back-to-back launches of about `once_us` in a CUDA graph, so many that the graph's own start does not count.

    If sustained, so many that what lies between two chains does not count.
    """
    least, wanted_us = (1, _SUSTAINED_US) if sustained else (4, _GRAPH_US)
    return max(least, min(_GRAPH_LAUNCHES, round(wanted_us / once_us)))

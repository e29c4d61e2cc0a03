"""Timing: variant and reference interleaved, cold (L2 flushed) or warm (CUDA graph), until the interval is small.

The rule in words. Cold: before each launch the L2 is overwritten (as many bytes as it holds, like NVBench) and the
GPU comes to rest. What overwrote it has yet to be written to memory: a kernel that fetches its data pays for that, or
not, by what it evicts. Clean: a read of other data follows, so that the L2 holds nothing to be written. Then a gate
holds the stream until event, launch and event are enqueued behind it, so that the events time the launch alone, the
host's latency is outside, and the host is silent while the kernel runs. Short kernels run once, untimed, before the
flush: the data are cold then, the instructions not, as in any loop that calls one kernel. Launches go A B B A, B A A
B, …; each such group gives one ratio, the reference's time over the variant's, in which drift and order cancel. The
speed-up is the median ratio with its distribution-free 95 % interval. Stop when the interval's half-width is below
the precision asked for and the ratios' spread says that so many pairs should reach it (so that sampling does not end
just where an interval happens to be narrow), or when the pairs or the GPU time of the cell are used up; the result
says which. Each look has 1.4 times the pairs of the one before. Warm: the same with a CUDA graph of back-to-back
launches in place of each launch.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import TYPE_CHECKING

from ladder.intervals import median, median_interval

if TYPE_CHECKING:
    from ladder.device import Gpu

Launcher = Callable[[], None]

LEAST_PAIRS = 12
"""Six groups: the fewest whose extremes bracket the median with 95 %."""

_GROUPS_BETWEEN_BUDGET_CHECKS = 4
_PRIMED_BELOW_US = 300.0
_QUICK_US = 5000.0
_QUICK_ROUNDS = (2, 20)
_GRAPH_US = 500.0
_GRAPH_LAUNCHES = 100


@dataclass(frozen=True)
class StoppingRule:
    """Half-width of the interval to reach (share), pairs at least and at most, GPU seconds to spend."""

    precision: float
    min_pairs: int
    max_pairs: int
    seconds: float


@dataclass
class Pairs:
    """Times in µs of variant and reference, pair by pair, and why sampling stopped."""

    variant_us: list[float] = field(default_factory=list)
    reference_us: list[float] = field(default_factory=list)
    stopped_by: str = ""
    gpu_us: float = 0.0

    def add_group(self, variant: tuple[float, float], reference: tuple[float, float]) -> None:
        """Add one group of two launches each."""
        self.variant_us += variant
        self.reference_us += reference

    def ratios(self) -> list[float]:
        """Reference over variant, group by group."""
        v, r = self.variant_us, self.reference_us
        return [(r[i] + r[i + 1]) / (v[i] + v[i + 1]) for i in range(0, len(v), 2)]

    def speedup(self) -> tuple[float, float, float]:
        """Median ratio with its 95 % interval: (median, low, high)."""
        ratios = self.ratios()
        return (median(ratios), *median_interval(ratios))

    def wanted(self, precision: float) -> int:
        """Pairs that a half-width of `precision` (share) should take, going by the spread so far.

        The median of n normal values has a standard error of 1.253 s / sqrt(n); s comes from the quartiles.
        """
        low, middle, high = quantiles(self.ratios(), n=4)
        spread = (high - low) / 1.349 / middle
        return 2 * math.ceil(1.1 * (1.96 * 1.253 * spread / precision) ** 2)


def time_launches(
    gpu: Gpu, launches: Sequence[Launcher], flush: bool, prime: bool = False, clean: bool = False
) -> tuple[list[float], float]:
    """Time each launch in µs, in order, and the GPU time in µs they took with their flushes.

    `prime` runs each once, untimed, before its flush. Commands that arrive while a kernel runs made it read up to 1 us
    longer on an H200, and unevenly so: hence the gate. A launch right behind the flush read up to 0.5 % longer than
    one on a GPU at rest, the fewer blocks the more: hence the wait before it.
    """
    while len(gpu.events) < 4:
        gpu.events.append(gpu.event())
    begin, flushed, start, stop = gpu.events[:4]
    record = gpu.stream.record
    times, spent = [], 0.0
    collecting = gc.isenabled()
    gc.disable()  # It would only make the GPU wait at the gate.
    try:
        for launch in launches:
            record(begin)
            if prime:
                launch()
            if flush:
                gpu.flush_l2()
            if clean:
                gpu.clean_l2()
            record(flushed)
            gpu.sync()
            with gpu.gate:
                record(start)
                launch()
                record(stop)
            gpu.sync()
            times.append((stop - start) * 1e3)
            spent += (flushed - begin) * 1e3 + times[-1]
    finally:
        if collecting:
            gc.enable()
    return times, spent


def first_time(gpu: Gpu, launch: Launcher) -> float:
    """Cold time in µs of one launch, after one that loads and warms up: for planning what follows.

    Loading a kernel waits for the GPU, so its first launch must not stand behind the gate.
    """
    launch()
    times, spent = time_launches(gpu, [launch, launch], flush=True)
    gpu.busy_us += spent
    return times[1]


def quick_times(gpu: Gpu, launches: Sequence[Launcher]) -> list[float]:
    """Median cold times in µs, for choosing between references: more rounds the shorter the fastest is.

    A round launches each once, there and back, so that clocks that sag under load favour nobody: one after the other,
    the first to run on a rested GPU seemed up to 5 % faster. The first round does not count.
    """
    expected = min(first_time(gpu, launch) for launch in launches)
    rounds = min(max(int(_QUICK_US / expected / 2), _QUICK_ROUNDS[0]), _QUICK_ROUNDS[1])
    there = [*range(len(launches))]
    order = (there + there[::-1]) * (rounds + 1)
    found, spent = time_launches(gpu, [launches[index] for index in order], True, expected < _PRIMED_BELOW_US)
    gpu.busy_us += spent
    counted = [*zip(order, found, strict=True)][2 * len(there) :]
    return [median([time for index, time in counted if index == own]) for own in there]


def quick_time(gpu: Gpu, launch: Launcher) -> float:
    """Median cold time of one launcher in µs."""
    return quick_times(gpu, [launch])[0]


def measure_pairs(
    gpu: Gpu,
    variant: Launcher,
    reference: Launcher,
    rule: StoppingRule,
    flush: bool,
    prime: bool = False,
    scale: float = 1.0,
    clean: bool = False,
) -> Pairs:
    """Sample A B B A groups until the rule says stop. `scale` divides every time (launches in a graph)."""
    pairs = Pairs()
    variant()
    target, groups = rule.min_pairs, 0
    while not pairs.stopped_by:
        remaining = -(-(target - len(pairs.variant_us)) // 2)
        batch = max(1, min(remaining, _GROUPS_BETWEEN_BUDGET_CHECKS))
        variant_outside = [(groups + index) % 2 == 0 for index in range(batch)]
        groups += batch
        order: list[Launcher] = []
        for outside in variant_outside:
            outer, inner = (variant, reference) if outside else (reference, variant)
            order += [outer, inner, inner, outer]
        # One launch more in front: the first after a pause reads longer.
        times, spent = time_launches(gpu, [order[0], *order], flush, prime, clean)
        pairs.gpu_us += spent
        scaled = [time / scale for time in times[1:]]
        for index, outside in enumerate(variant_outside):
            first, second, third, fourth = scaled[4 * index : 4 * index + 4]
            if outside:
                pairs.add_group((first, fourth), (second, third))
            else:
                pairs.add_group((second, third), (first, fourth))
        count = len(pairs.variant_us)
        if count >= target:
            middle, low, high = pairs.speedup()
            narrow = (high - low) / 2 <= rule.precision * middle
            if narrow and pairs.wanted(rule.precision) <= count:
                pairs.stopped_by = "precision"
            target = min(max(int(1.4 * count), count + 4), rule.max_pairs)
        if not pairs.stopped_by and count >= rule.max_pairs:
            pairs.stopped_by = "pairs"
        if not pairs.stopped_by and count >= LEAST_PAIRS and pairs.gpu_us >= rule.seconds * 1e6:
            pairs.stopped_by = "budget"
    gpu.busy_us += pairs.gpu_us
    return pairs


def measure_cold(
    gpu: Gpu, variant: Launcher, reference: Launcher, rule: StoppingRule, *, clean: bool = False
) -> Pairs:
    """Groups with the L2 flushed before each launch, and cleaned where `clean`."""
    prime = min(first_time(gpu, variant), first_time(gpu, reference)) < _PRIMED_BELOW_US
    return measure_pairs(gpu, variant, reference, rule, flush=True, prime=prime, clean=clean)


def measure_warm(
    gpu: Gpu, variant: Launcher, reference: Launcher, rule: StoppingRule, cold_us: float
) -> Pairs:
    """Pairs of CUDA graphs with back-to-back launches, enough of them that the graph's own start does not count."""
    launches = max(4, min(_GRAPH_LAUNCHES, round(_GRAPH_US / cold_us)))
    graphs = [gpu.capture(launcher, launches) for launcher in (variant, reference)]
    try:
        return measure_pairs(gpu, graphs[0], graphs[1], rule, flush=False, scale=launches)
    finally:
        for graph in graphs:
            graph.close()

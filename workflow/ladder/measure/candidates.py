"""The candidates for a reference: each is verified, and timed in pairs against the quickest so far, as cells are."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from ladder.gpu.device import Launcher
from ladder.gpu.timing import CheckedLaunch, Pairs
from ladder.measure.bench import REFERENCE, CellOutcome
from ladder.measure.choice import CLOSE, decide
from ladder.measure.references import BenchWithReferences
from ladder.measure.watch import Chain, CheckedSide, LaunchChecker, at_places, graph
from ladder.model.cell import BACK_TO_BACK, SUSTAINED, Cell, Partner
from ladder.model.problem import COPY

_SLOWER_THAN_WARM = 1.5
"""A kernel that warm is for may be faster than its reference by so much."""

Compare = Callable[[Partner, Partner], Pairs]
"""Times two candidates in pairs, the first as the variant."""


class CandidateTiming:
    """Times the candidates of one choice. Each launches to both places, since a place changes the time of some."""

    def __init__(self, bench: BenchWithReferences, choice: Cell) -> None:
        self.bench = bench
        self.choice = choice
        self.instance = bench.instance(choice)
        self.watch = LaunchChecker(self.instance)
        self.bound = self.instance.error_bound(choice.params)
        self.sides = dict[Partner, CheckedSide]()
        self.sustained = choice.regime == SUSTAINED

    def run(self) -> dict[str, Any]:
        """The result of the choice. Raises CellOutcome where there is no candidate, and for wrong launches."""
        bench = self.bench
        quick_us = self._quick_times(bench.candidates(self.choice))
        close = self._close_and_right(quick_us)
        if not close:
            raise CellOutcome("unsupported", "; ".join(bench.noted()))
        with contextlib.ExitStack() as graphs:
            if self.choice.regime in BACK_TO_BACK:
                compare = self._by_chains(close, quick_us[close[0]], graphs)
            else:
                compare = self._by_single_launches(close, quick_us[close[0]])
            winner, rivals = against_quickest(close, compare)
        self._refuse_wrong()
        # A winner without a rival was timed quickly alone.
        alone = Pairs([quick_us[winner]])
        nearest = min(
            rivals.values(), key=lambda pairs: pairs.speedup()[0], default=alone
        )
        candidates = [asdict(winner) | {"us": _rounded(nearest.variant_us)}]
        for partner, pairs in rivals.items():
            times = {
                "us": _rounded(pairs.reference_us),
                "fastest_us": _rounded(pairs.variant_us),
            }
            candidates.append(asdict(partner) | times)
        references = dict[str, float]()  # the fastest time of each library
        for partner, us in quick_us.items():
            name = partner.reference
            references[name] = min(us, references.get(name, us))
        return {
            "status": "ok",
            "reason": "",
            "candidates": candidates,
            **decide(candidates),
            "stopped_by": nearest.stopped_by,
            "clock": nearest.clock,
            "notes": bench.noted(),
            "references": references,
            "check": {
                "max_error": max(
                    (side.worst for side in self.sides.values()), default=0.0
                ),
                "error_bound": self.bound,
                "launches": sum(side.checked for side in self.sides.values()),
            },
        }

    def _refuse_wrong(self) -> None:
        """Raises CellOutcome where a timed launch was wrong, or one wrote what it must not."""
        self.watch.collect_results()
        self.bench.draw(self.instance)  # what the next one is verified with
        for partner, side in self.sides.items():
            if side.wrong:
                raise CellOutcome("incorrect", f"the reference {partner}: {side}")
        self.bench.refuse_memory_violation(self.instance)

    def _load(self, partner: Partner) -> Launcher:
        """A candidate for the outputs that are there."""
        return self.bench.loaded_library(partner, self.choice.params)

    def _side(self, partner: Partner) -> CheckedSide | None:
        """None for a copy, which is no answer."""
        if partner.reference == COPY:
            return None
        side = CheckedSide(self.choice.params, self.bound, always=False)
        return self.sides.setdefault(partner, side)

    def _quick_times(self, candidates: Sequence[Partner]) -> dict[Partner, float]:
        """About how long a launch of each candidate takes in the regime, in us: few launches, none checked."""
        bench = self.bench
        timer = bench.timer
        regime = self.choice.regime
        launchers = {partner: self._load(partner) for partner in candidates}
        with timer.working():
            for launch in launchers.values():
                launch()  # which loads its kernel: that must not happen behind a gate or in a capture
        (alone_us,) = timer.quick_medians([launchers[candidates[0]]])
        warm_below_us = bench.warm_below_us
        if regime == "warm" and alone_us > _SLOWER_THAN_WARM * warm_below_us:
            why = f"warm is for kernels below {warm_below_us:g} us"
            raise CellOutcome("unsupported", why)
        if regime not in BACK_TO_BACK:
            times = timer.quick_medians([*launchers.values()])
            return dict(zip(launchers, times, strict=True))
        length = bench.chain_length(alone_us, self.sustained)
        with contextlib.ExitStack() as graphs:
            chains = dict[Partner, Launcher]()
            for partner, launch in launchers.items():
                try:
                    chain = graph(bench.gpu.stream, [launch] * length)
                    chains[partner] = graphs.enter_context(chain)
                except Exception as error:
                    name = partner.reference
                    if name not in bench.external:
                        raise
                    why = f"{regime}: not captured in a CUDA graph: {error}"
                    bench.notes[name] = why
            times = timer.quick_medians([*chains.values()], "warm") if chains else []
        return {partner: us / length for partner, us in zip(chains, times, strict=True)}

    def _close_and_right(self, quick_us: dict[Partner, float]) -> list[Partner]:
        """What is right and takes no more than CLOSE longer than the fastest that is; what is wrong leaves a note.

        In sustained also the fastest of each library: short chains tell little of what the power limit leaves.
        """
        close = list[Partner]()
        for partner in sorted(quick_us, key=lambda candidate: quick_us[candidate]):
            near = not close or quick_us[partner] <= quick_us[close[0]] * (1 + CLOSE)
            libraries = {other.reference for other in close}
            first = self.sustained and partner.reference not in libraries
            if not near and not first:
                continue
            if self.bench.library(partner, self.choice.params):
                close.append(partner)
        return close

    def _by_single_launches(self, close: Sequence[Partner], us: float) -> Compare:
        """Compares candidates by single launches; the fastest takes about `us`."""
        bench = self.bench
        launches = {partner: self._at_both_places(partner) for partner in close}

        def compare(quickest: Partner, other: Partner) -> Pairs:
            quickest_here, quickest_there = launches[quickest]
            other_here, other_there = launches[other]
            return bench.timer.time_single_launches(
                (quickest_here, other_there),
                (quickest_there, other_here),
                bench.rule,
                self.choice.regime,
                us,
            )

        return compare

    def _at_both_places(self, partner: Partner) -> tuple[CheckedLaunch, CheckedLaunch]:
        places = [0, REFERENCE]
        here, there = at_places(self.instance, places, partial(self._load, partner))
        with self.bench.timer.working():
            here()  # A library may load another kernel for another place.
            there()
        side = self._side(partner)
        watch = self.watch
        return (
            watch.single_launch(here, side, 0),
            watch.single_launch(there, side, REFERENCE),
        )

    def _by_chains(
        self, close: Sequence[Partner], us: float, graphs: contextlib.ExitStack
    ) -> Compare:
        """Compares candidates by chains, whose launches each have a place, as those of variants."""
        timer = self.bench.timer
        length = self.bench.chain_length(us, self.sustained)
        chains = []
        for partner in close:
            load = partial(self._load, partner)
            side = self._side(partner)
            chains.append(Chain(load, load(), side, length))
        captured = graphs.enter_context(self.watch.chains(chains, self.sustained))
        launches = dict(zip(close, captured, strict=True))

        def compare(quickest: Partner, other: Partner) -> Pairs:
            sides = launches[quickest], launches[other]
            if self.sustained:
                return timer.time_sustained(sides, (length, length))
            return timer.pairs(sides, self.bench.rule, "warm", scale=length)

        return compare


def against_quickest(
    candidates: Sequence[Partner], compare: Compare
) -> tuple[Partner, dict[Partner, Pairs]]:
    """The winner, and its pairs with each other candidate, whose times are the reference's.

    Each candidate meets the quickest so far. One that met an earlier quickest meets the winner as well, so that every
    distance is measured and none is multiplied together.
    """
    winner, *others = candidates
    rivals = dict[Partner, Pairs]()
    for other in others:
        pairs = compare(winner, other)
        if pairs.speedup()[0] >= 1:
            rivals[other] = pairs
            continue
        pairs.variant_us, pairs.reference_us = pairs.reference_us, pairs.variant_us
        winner, rivals = other, {winner: pairs}
    for other in candidates:
        if other != winner and other not in rivals:
            rivals[other] = compare(winner, other)
    return winner, rivals


def _rounded(times: Sequence[float]) -> list[float]:
    return [round(us, 4) for us in times]

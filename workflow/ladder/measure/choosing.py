"""How a reference is chosen: all that may be it are verified and held against each other, in the regime itself."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from ladder.gpu.device import Launcher
from ladder.gpu.timing import CheckedLaunch, Contest, Places, StoppingRule, chain_length, nothing
from ladder.measure.bench import REFERENCE, Bench, CellOutcome
from ladder.measure.choice import CLOSE, decide
from ladder.measure.watch import CHECKED_OF_A_CHAIN, CheckedSide, LaunchChecker, at_places, graph
from ladder.model.cell import BACK_TO_BACK, SUSTAINED, Cell, Partner
from ladder.model.problem import COPY

_SLOWER_THAN_WARM = 1.5
"""A kernel that warm is for may be faster than its reference by so much."""


class Choosing:
    """Times the candidates of one choice. Each launches to both places, since a place changes the time of some."""

    def __init__(self, bench: Bench, rule: StoppingRule, choice: Cell, warm_below_us: float) -> None:
        self.bench, self.rule, self.choice, self.warm_below_us = bench, rule, choice, warm_below_us
        self.instance = bench.instance(choice)
        self.watch = LaunchChecker(self.instance)
        self.bound = self.instance.error_bound(choice.params)
        self.sides = dict[Partner, CheckedSide]()
        self.chained = choice.regime in BACK_TO_BACK

    def run(self) -> dict[str, Any]:
        """The result of the choice. Raises CellOutcome where there is no candidate, and for wrong launches."""
        bench = self.bench
        candidates = bench.candidates(self.choice, self.instance)
        quick_us = self._quickly(candidates)
        close = self._close_and_right(quick_us)
        if not close:
            raise CellOutcome("unsupported", "; ".join(bench.notes()))
        contest = self._contest(close, min(quick_us[one] for one in close))
        self.watch.collect_results()
        bench.draw(self.instance)  # what the next one is verified with
        for partner, side in self.sides.items():
            if side.wrong:
                raise CellOutcome("incorrect", f"the reference {partner}: {side}")
        bench.refuse_memory_violation(self.instance)
        timed = [
            {"reference": one.reference, "algorithm": one.algorithm, "us": [round(us, 4) for us in times]}
            for one, times in zip(close, contest.us, strict=True)
        ]
        found: dict[str, Any] = {"status": "ok", "reason": "", "candidates": timed}
        found |= decide(timed)
        found |= {"stopped_by": contest.stopped_by, "clock": contest.clock, "notes": bench.notes()}
        found["references"] = _by_name(quick_us)
        found["check"] = {
            "max_error": max((side.worst for side in self.sides.values()), default=0.0),
            "error_bound": self.bound,
            "launches": sum(side.checked for side in self.sides.values()),
        }
        return found

    def _load(self, partner: Partner) -> Launcher:
        """A candidate for the outputs that are there."""
        return self.bench.loaded_library(partner, self.choice.params, self.instance)

    def _side(self, partner: Partner) -> CheckedSide | None:
        """None for a copy, which is no answer."""
        if partner.reference == COPY:
            return None
        return self.sides.setdefault(partner, CheckedSide(self.choice.params, self.bound, always=False))

    def _quickly(self, candidates: Sequence[Partner]) -> dict[Partner, float]:
        """About how long each candidate takes in the regime, in us, to choose those that are close by."""
        timer, loaded = self.bench.timer, [self._load(one) for one in candidates]
        with timer.working():
            for launch in loaded:
                launch()  # which loads its kernel: that must not happen behind a gate or in a capture
        alone_us = timer.quick_medians(loaded[:1])[0]
        if self.choice.regime == "warm" and alone_us > _SLOWER_THAN_WARM * self.warm_below_us:
            raise CellOutcome("unsupported", f"warm is for kernels below {self.warm_below_us:g} us")
        if not self.chained:
            places = [(CheckedLaunch(one), CheckedLaunch(one)) for one in loaded]
            times = timer.quick_contest(places, self.choice.regime, alone_us)
            return dict(zip(candidates, times, strict=True))
        length = self._chain_length(alone_us)
        with contextlib.ExitStack() as graphs:
            chains = dict[Partner, Launcher]()
            for partner, one in zip(candidates, loaded, strict=True):
                try:
                    chains[partner] = graphs.enter_context(graph(self.bench.gpu.stream, [one] * length))
                except Exception as error:
                    if partner.reference not in self.bench.external:
                        raise
                    why = f"{self.choice.regime}: not captured in a CUDA graph: {error}"
                    self.bench.note(partner.reference, why)
            places = [(CheckedLaunch(one), CheckedLaunch(one)) for one in chains.values()]
            times = timer.quick_contest(places, "warm", alone_us * length, length) if places else []
        return dict(zip(chains, times, strict=True))

    def _chain_length(self, us: float) -> int:
        return min(
            chain_length(us, self.choice.regime == SUSTAINED), max(1, self.bench.places(self.instance))
        )

    def _close_and_right(self, quick_us: dict[Partner, float]) -> list[Partner]:
        """What is right and takes no more than CLOSE longer than the fastest that is; what is wrong leaves a note.

        In sustained also the fastest of each library: short chains tell little of what the power limit leaves.
        """
        found, sustained = list[Partner](), self.choice.regime == SUSTAINED
        for partner in sorted(quick_us, key=lambda one: quick_us[one]):
            close = not found or quick_us[partner] <= quick_us[found[0]] * (1 + CLOSE)
            first = sustained and partner.reference not in {one.reference for one in found}
            if not close and not first:
                continue
            if self.bench.library(partner, self.choice.params, self.instance) is not None:
                found.append(partner)
        return found

    def _contest(self, candidates: Sequence[Partner], us: float) -> Contest:
        if self.chained:
            return self._chained(candidates, us)
        places = [self._places(one) for one in candidates]
        return self.bench.timer.contest_single_launches(places, self.rule, self.choice.regime, CLOSE, us)

    def _places(self, partner: Partner) -> Places:
        here, there = at_places(self.instance, [0, REFERENCE], partial(self._load, partner))
        with self.bench.timer.working():
            here(), there()  # A library may load another kernel for another place.
        side = self._side(partner)
        return self.watch.single_launch(here, side, 0), self.watch.single_launch(there, side, REFERENCE)

    def _chained(self, candidates: Sequence[Partner], us: float) -> Contest:
        """Chains of launches that each have a place of their own, as those of variants."""
        sustained, timer = self.choice.regime == SUSTAINED, self.bench.timer
        length = self._chain_length(us)
        places = [REFERENCE + 1 + number for number in range(length)]
        stream = self.bench.gpu.stream
        # Before anything is captured: in a capture no place can be allocated.
        loaded = [at_places(self.instance, places, partial(self._load, one)) for one in candidates]
        with contextlib.ExitStack() as graphs:
            clear: Launcher = nothing
            if not sustained:
                clears = [partial(self.watch.poison, place) for place in places]
                clear = graphs.enter_context(graph(stream, clears))
            watched = []
            for one, launchers in zip(candidates, loaded, strict=True):
                alone = self._load(one)
                chain = graphs.enter_context(graph(stream, launchers))
                checks = 1 if sustained else CHECKED_OF_A_CHAIN
                watched.append(self.watch.chain(chain, self._side(one), places, clear, alone, checks))
            if sustained:
                return timer.contest_sustained(watched, [length] * len(watched), CLOSE)
            both = [(one, one) for one in watched]
            return timer.contest(both, self.rule, "warm", CLOSE, scale=length)


def _by_name(us: dict[Partner, float]) -> dict[str, float]:
    """The fastest time of each library."""
    found = dict[str, float]()
    for partner, one in us.items():
        found[partner.reference] = min(one, found.get(partner.reference, one))
    return found

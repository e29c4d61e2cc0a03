"""How a reference is chosen: candidates are verified, and timed in pairs against the quickest so far, as cells are."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ladder.gpu.device import Launcher
from ladder.gpu.timing import CheckedLaunch, Pairs, StoppingRule, chain_length, nothing
from ladder.measure.bench import REFERENCE, Bench, CellOutcome
from ladder.measure.choice import CLOSE, decide
from ladder.measure.watch import (
    CHECKED_OF_A_CHAIN,
    CheckedSide,
    LaunchChecker,
    at_places,
    graph,
)
from ladder.model.cell import BACK_TO_BACK, SUSTAINED, Cell, Partner
from ladder.model.problem import COPY

_SLOWER_THAN_WARM = 1.5
"""A kernel that warm is for may be faster than its reference by so much."""

Compare = Callable[[Partner, Partner], Pairs]
"""Times two candidates in pairs, the first as the variant."""


class Choosing:
    """Times the candidates of one choice. Each launches to both places, since a place changes the time of some."""

    def __init__(
        self, bench: Bench, rule: StoppingRule, choice: Cell, warm_below_us: float
    ) -> None:
        self.bench, self.rule, self.choice, self.warm_below_us = (
            bench,
            rule,
            choice,
            warm_below_us,
        )
        self.instance = bench.instance(choice)
        self.watch = LaunchChecker(self.instance)
        self.bound = self.instance.error_bound(choice.params)
        self.sides = dict[Partner, CheckedSide]()
        self.sustained = choice.regime == SUSTAINED

    def run(self) -> dict[str, Any]:
        """The result of the choice. Raises CellOutcome where there is no candidate, and for wrong launches."""
        bench = self.bench
        quick_us = self._quick_times(bench.candidates(self.choice, self.instance))
        close = self._close_and_right(quick_us)
        if not close:
            raise CellOutcome("unsupported", "; ".join(bench.notes()))
        with self._comparing(
            close, min(quick_us[partner] for partner in close)
        ) as compare:
            winner, rivals = against_quickest(close, compare)
        self._refuse_wrong()
        result: dict[str, Any] = {"status": "ok", "reason": ""}
        result["candidates"] = _candidates(winner, rivals, quick_us[winner])
        result |= decide(result["candidates"])
        nearest = min(
            rivals.values(), key=lambda pairs: pairs.speedup()[0], default=Pairs()
        )
        result |= {
            "stopped_by": nearest.stopped_by,
            "clock": nearest.clock,
            "notes": bench.notes(),
        }
        result["references"] = _by_name(quick_us)
        result["check"] = {
            "max_error": max((side.worst for side in self.sides.values()), default=0.0),
            "error_bound": self.bound,
            "launches": sum(side.checked for side in self.sides.values()),
        }
        return result

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
        return self.bench.loaded_library(partner, self.choice.params, self.instance)

    def _side(self, partner: Partner) -> CheckedSide | None:
        """None for a copy, which is no answer."""
        if partner.reference == COPY:
            return None
        return self.sides.setdefault(
            partner, CheckedSide(self.choice.params, self.bound, always=False)
        )

    def _quick_times(self, candidates: Sequence[Partner]) -> dict[Partner, float]:
        """About how long a launch of each candidate takes in the regime, in us: few launches, none checked."""
        timer = self.bench.timer
        launchers = {partner: self._load(partner) for partner in candidates}
        with timer.working():
            for launch in launchers.values():
                launch()  # which loads its kernel: that must not happen behind a gate or in a capture
        alone_us = timer.quick_medians([next(iter(launchers.values()))])[0]
        if (
            self.choice.regime == "warm"
            and alone_us > _SLOWER_THAN_WARM * self.warm_below_us
        ):
            raise CellOutcome(
                "unsupported", f"warm is for kernels below {self.warm_below_us:g} us"
            )
        if self.choice.regime not in BACK_TO_BACK:
            times = timer.quick_medians([*launchers.values()])
            return dict(zip(launchers, times, strict=True))
        length = self._chain_length(alone_us)
        with contextlib.ExitStack() as graphs:
            chains = dict[Partner, Launcher]()
            for partner, launch in launchers.items():
                try:
                    chain = graph(self.bench.gpu.stream, [launch] * length)
                    chains[partner] = graphs.enter_context(chain)
                except Exception as error:
                    if partner.reference not in self.bench.external:
                        raise
                    why = f"{self.choice.regime}: not captured in a CUDA graph: {error}"
                    self.bench.note(partner.reference, why)
            times = timer.quick_medians([*chains.values()], "warm") if chains else []
        return {partner: us / length for partner, us in zip(chains, times, strict=True)}

    def _chain_length(self, us: float) -> int:
        most = max(1, self.bench.places(self.instance))
        return min(chain_length(us, self.sustained), most)

    def _close_and_right(self, quick_us: dict[Partner, float]) -> list[Partner]:
        """What is right and takes no more than CLOSE longer than the fastest that is; what is wrong leaves a note.

        In sustained also the fastest of each library: short chains tell little of what the power limit leaves.
        """
        close = list[Partner]()
        for partner in sorted(quick_us, key=lambda candidate: quick_us[candidate]):
            near = not close or quick_us[partner] <= quick_us[close[0]] * (1 + CLOSE)
            first = self.sustained and partner.reference not in {
                other.reference for other in close
            }
            if not near and not first:
                continue
            if (
                self.bench.library(partner, self.choice.params, self.instance)
                is not None
            ):
                close.append(partner)
        return close

    @contextlib.contextmanager
    def _comparing(self, close: Sequence[Partner], us: float) -> Iterator[Compare]:
        """Inside, candidates can be compared; the fastest takes about `us` a launch."""
        if self.choice.regime in BACK_TO_BACK:
            with self._chains(close, us) as compare:
                yield compare
            return
        launches = {partner: self._at_both_places(partner) for partner in close}

        def compare_singly(quickest: Partner, other: Partner) -> Pairs:
            (own_here, own_there), (other_here, other_there) = (
                launches[quickest],
                launches[other],
            )
            sides, swapped = (own_here, other_there), (own_there, other_here)
            return self.bench.timer.time_single_launches(
                sides, swapped, self.rule, self.choice.regime, us
            )

        yield compare_singly

    def _at_both_places(self, partner: Partner) -> tuple[CheckedLaunch, CheckedLaunch]:
        here, there = at_places(
            self.instance, [0, REFERENCE], partial(self._load, partner)
        )
        with self.bench.timer.working():
            here()  # A library may load another kernel for another place.
            there()
        side = self._side(partner)
        return self.watch.single_launch(here, side, 0), self.watch.single_launch(
            there, side, REFERENCE
        )

    @contextlib.contextmanager
    def _chains(self, close: Sequence[Partner], us: float) -> Iterator[Compare]:
        """Chains of launches that each have a place of their own, as those of variants."""
        timer, stream = self.bench.timer, self.bench.gpu.stream
        length = self._chain_length(us)
        places = [REFERENCE + 1 + number for number in range(length)]
        # Before anything is captured: in a capture no place can be allocated.
        launchers = {
            partner: at_places(self.instance, places, partial(self._load, partner))
            for partner in close
        }
        with contextlib.ExitStack() as graphs:
            clear: Launcher = nothing
            if not self.sustained:
                poisons = [partial(self.watch.poison, place) for place in places]
                clear = graphs.enter_context(graph(stream, poisons))
            checks = 1 if self.sustained else CHECKED_OF_A_CHAIN
            chains = dict[Partner, CheckedLaunch]()
            for partner in close:
                alone = self._load(partner)
                chain = graphs.enter_context(graph(stream, launchers[partner]))
                side = self._side(partner)
                chains[partner] = self.watch.chain(
                    chain, side, places, clear, alone, checks
                )

            def compare_chains(quickest: Partner, other: Partner) -> Pairs:
                sides = chains[quickest], chains[other]
                if self.sustained:
                    return timer.time_sustained(sides, (length, length))
                return timer.pairs(sides, self.rule, "warm", scale=length)

            yield compare_chains


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
        turned = Pairs(
            pairs.reference_us,
            pairs.variant_us,
            pairs.stopped_by,
            pairs.gpu_us,
            pairs.clock,
        )
        winner, rivals = other, {winner: turned}
    for other in candidates:
        if other != winner and other not in rivals:
            rivals[other] = compare(winner, other)
    return winner, rivals


def _candidates(
    winner: Partner, rivals: dict[Partner, Pairs], quick_us: float
) -> list[dict[str, Any]]:
    """The candidates of a record, the winner first; one without a rival was timed quickly alone."""
    nearest = min(
        rivals.values(), key=lambda pairs: pairs.speedup()[0], default=Pairs([quick_us])
    )
    rows = [
        {
            "reference": winner.reference,
            "algorithm": winner.algorithm,
            "us": _rounded(nearest.variant_us),
        }
    ]
    for partner, pairs in rivals.items():
        row = {"reference": partner.reference, "algorithm": partner.algorithm}
        rows.append(
            {
                **row,
                "us": _rounded(pairs.reference_us),
                "fastest_us": _rounded(pairs.variant_us),
            }
        )
    return rows


def _rounded(times: Sequence[float]) -> list[float]:
    return [round(us, 4) for us in times]


def _by_name(us: dict[Partner, float]) -> dict[str, float]:
    """The fastest time of each library."""
    fastest = dict[str, float]()
    for partner, time_us in us.items():
        fastest[partner.reference] = min(
            time_us, fastest.get(partner.reference, time_us)
        )
    return fastest

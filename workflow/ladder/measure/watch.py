"""A launch that is timed is a launch that is verified: fresh inputs ahead of it, a check behind it."""

import contextlib
import math
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from cuda.core import Stream

from ladder.gpu.device import RESULT_SLOTS, Launcher
from ladder.gpu.instance import Instance
from ladder.gpu.timing import CheckedLaunch, capture, nothing
from ladder.model.problem import Params

_SEED_BITS = 62
CHECKED_OF_A_CHAIN = 4
"""Launches of each warm chain that are checked, by chance."""
_FIRST_OF_A_CHAIN = 2  # place: 0 and 1 are those of single launches
_SAMPLED = 4  # launches of a reference for each one that is checked
BY_TILE = 23
"""Single launches of a variant whose check looks at each tile of outputs. A tile that is wrong in one launch of ten
passes these once in twenty times, with two full checks, and with launches of other inputs. Attention usually has 25."""


@dataclass
class CheckedSide:
    """The timed launches of a variant or of a reference: how many were checked, how many were wrong, by how much."""

    params: Params
    bound: float
    always: bool = True  # or by chance
    checked: int = 0
    wrong: int = 0
    worst: float = 0.0
    first_wrong: int = 0
    by_tile: int = 0

    def due(self) -> bool:
        """Whether a launch is to be checked."""
        return self.always or not random.randrange(_SAMPLED)

    def take(self, error: float) -> None:
        """Count a launch. NaN compares false, so it is wrong."""
        self.checked += 1
        self.worst = max(self.worst, error if error == error else math.inf)
        if not error <= self.bound:
            self.wrong += 1
            self.first_wrong = self.first_wrong or self.checked

    def __str__(self) -> str:
        """What is wrong."""
        which = f"{self.wrong} of {self.checked} timed launches, launch {self.first_wrong} the first"
        return f"{which}: largest normalised error {self.worst:.3g}, allowed {self.bound:.3g}"


@dataclass(frozen=True)
class Chain:
    """Launches of one kernel back to back, each to a place of its own.

    `load` gives a launcher for the outputs that are there; `alone` is launched once ahead of the chain's inputs.
    `external`: whose it is, where it is code of one's own.
    """

    load: Callable[[], Launcher]
    alone: Launcher
    side: CheckedSide | None
    length: int
    external: str = ""

    @property
    def places(self) -> range:
        """Those behind the places of single launches."""
        return range(_FIRST_OF_A_CHAIN, _FIRST_OF_A_CHAIN + self.length)


class NotCaptured(Exception):
    """Code of one's own cannot be captured in a CUDA graph; `whose` it is."""

    def __init__(self, whose: str, error: Exception) -> None:
        super().__init__(f"not captured in a CUDA graph: {error}")
        self.whose = whose


def at_places(
    instance: Instance, places: Iterable[int], load: Callable[[], Launcher]
) -> list[Launcher]:
    """What `load` gives for the outputs of each place."""
    launchers = []
    for place in places:
        with instance.writing_to(place):
            launchers.append(load())
    return launchers


@contextlib.contextmanager
def graph(stream: Stream, members: Sequence[Launcher]) -> Iterator[Launcher]:
    """A launcher of a CUDA graph of back-to-back launches. Raises what one of them raises while it is captured."""
    with contextlib.closing(capture(stream, members)) as captured:
        yield partial(captured.launch, stream)


class LaunchChecker:
    """Watches the launches of one instance. What their checks found is known after `collect_results`."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self._waiting: list[tuple[CheckedSide, int]] = []

    def single_launch(
        self, launcher: Launcher, side: CheckedSide | None, place: int
    ) -> CheckedLaunch:
        """Every launch of a launcher that writes to the outputs at `place`; not checked without a side.

        A launch of a reference that is not checked takes the inputs that are there, which saves the drawing.
        """
        checked: CheckedSide | None = None

        def refresh() -> None:
            nonlocal checked
            checked = side if side is not None and side.due() else None
            if checked is not None:
                self._refresh(place)
            else:
                self.poison(place)

        def inspect() -> None:
            if checked is not None:
                by_tile = checked.always and checked.by_tile < BY_TILE
                checked.by_tile += by_tile
                self._inspect(checked, place, by_tile)

        return CheckedLaunch(launcher, refresh, inspect)

    @contextlib.contextmanager
    def chains(
        self, chains: Sequence[Chain], sustained: bool
    ) -> Iterator[list[CheckedLaunch]]:
        """Chains as CUDA graphs, in each of which some launches are checked, chosen by chance.

        Raises NotCaptured where code of one's own cannot be captured.
        """
        with contextlib.ExitStack() as graphs:

            def enter(members: Sequence[Launcher]) -> Launcher:
                return graphs.enter_context(graph(self.instance.gpu.stream, members))

            captured = list[Launcher]()
            for chain in chains:
                try:
                    members = at_places(self.instance, chain.places, chain.load)
                    captured.append(enter(members))
                except Exception as error:
                    if not chain.external:
                        raise
                    raise NotCaptured(chain.external, error) from error
            # Else what such code began on another stream would run beside the chains.
            self.instance.gpu.sync()
            # Sustained chains are not poisoned, which would be a rest for the GPU: what places hold are answers to
            # other inputs, those of the chain before. All that it tells a kernel is the time: see _RESTED.
            renew = self.renew_workspaces if sustained else self.poison
            clear: Launcher = nothing
            # All places exist by now: in a capture none can be allocated.
            if not sustained or self.instance.has_workspaces():
                longest = max(chains, key=lambda chain: chain.length)
                clear = enter([partial(renew, place) for place in longest.places])
            checks = 1 if sustained else CHECKED_OF_A_CHAIN
            yield [
                self.chain(launcher, chain, clear, checks)
                for launcher, chain in zip(captured, chains, strict=True)
            ]

    def chain(
        self, launcher: Launcher, chain: Chain, clear: Launcher, checks: int
    ) -> CheckedLaunch:
        """A captured chain, of which `checks` launches by chance are checked.

        What `clear` leaves at a place is the answer to other inputs at best.
        """

        def refresh() -> None:
            with self.instance.writing_to(chain.places[0]):
                self.instance.renew(secrets.randbits(_SEED_BITS))
            clear()

        def inspect() -> None:
            # Both sides alike, so that both leave the GPU the same rest.
            if chain.side is not None:
                count = min(chain.length, checks)
                for place in random.sample(chain.places, count):
                    self._inspect(chain.side, place)

        return CheckedLaunch(launcher, refresh, inspect, chain.alone)

    def _refresh(self, place: int) -> None:
        with self.instance.writing_to(place):
            self.instance.refresh(secrets.randbits(_SEED_BITS))

    def poison(self, place: int) -> None:
        """Enqueue poison for the outputs at `place`."""
        with self.instance.writing_to(place):
            self.instance.poison_outputs()

    def renew_workspaces(self, place: int) -> None:
        """Enqueue what workspaces need ahead of a launch at `place`, where outputs are not poisoned."""
        with self.instance.writing_to(place):
            self.instance.workspaces.renew()

    def _inspect(self, side: CheckedSide, place: int, by_tile: bool = False) -> None:
        if len(self._waiting) == RESULT_SLOTS:
            self.collect_results()
        key = secrets.randbits(_SEED_BITS)
        slot = self.instance.gpu.harness.result_slot(len(self._waiting), key)
        self.instance.by_tile = by_tile
        with self.instance.writing_to(place):
            self.instance.inspect(side.params, slot)
        self._waiting.append((side, key))

    def collect_results(self) -> None:
        """Read what the checks found since the last time."""
        keys = [key for _, key in self._waiting]
        errors = self.instance.gpu.harness.read_check_results(keys)
        for (side, _), error in zip(self._waiting, errors, strict=True):
            side.take(error)
        self._waiting = []

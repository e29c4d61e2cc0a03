"""A launch that is timed is a launch that is verified: fresh inputs ahead of it, a check behind it."""

import contextlib
import math
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from cuda.core import Stream

from ladder.gpu.device import RESULT_SLOTS, Launcher
from ladder.gpu.instance import Instance
from ladder.gpu.timing import CheckedLaunch, capture
from ladder.model.problem import Params

_SEED_BITS = 62
CHECKED_OF_A_CHAIN = 4
"""Launches of each warm chain that are checked, by chance."""
_SAMPLED = 4  # launches of a reference for each one that is checked


@dataclass
class CheckedSide:
    """The timed launches of a variant or of a reference: how many were checked, how many were wrong, by how much."""

    params: Params
    bound: float
    always: bool = True  # or by chance
    checked: int = 0
    wrong: int = 0
    worst: float = 0.0
    first_wrong: int = field(default=0)

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


def at_places(
    instance: Instance, places: Sequence[int], load: Callable[[], Launcher]
) -> list[Launcher]:
    """What `load` gives for the outputs of each place."""
    found = []
    for place in places:
        with instance.writing_to(place):
            found.append(load())
    return found


@contextlib.contextmanager
def graph(stream: Stream, members: Sequence[Launcher]) -> Iterator[Launcher]:
    """A launcher of a CUDA graph of back-to-back launches. Raises what one of them raises while it is captured."""
    with contextlib.closing(capture(stream, members)) as made:
        yield partial(made.launch, stream)


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
                self._inspect(checked, place)

        return CheckedLaunch(launcher, refresh, inspect)

    def chain(
        self,
        launcher: Launcher,
        side: CheckedSide | None,
        places: Sequence[int],
        poison: Launcher,
        prime: Launcher,
        checks: int = 1,
    ) -> CheckedLaunch:
        """A launcher of back-to-back launches, each to a place of its own, of which `checks` by chance are checked.

        What `poison` leaves at a place is the answer to other inputs at best.
        """

        def refresh() -> None:
            with self.instance.writing_to(places[0]):
                self.instance.renew(secrets.randbits(_SEED_BITS))
            poison()

        def inspect() -> None:
            # Both sides alike, so that both leave the GPU the same rest.
            if side is not None:
                for place in random.sample(places, min(len(places), checks)):
                    self._inspect(side, place)

        return CheckedLaunch(launcher, refresh, inspect, prime)

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

    def _inspect(self, side: CheckedSide, place: int) -> None:
        if len(self._waiting) == RESULT_SLOTS:
            self.collect_results()
        key = secrets.randbits(_SEED_BITS)
        with self.instance.writing_to(place):
            self.instance.inspect(
                side.params,
                self.instance.gpu.harness.result_slot(len(self._waiting), key),
            )
        self._waiting.append((side, key))

    def collect_results(self) -> None:
        """Read what the checks found since the last time."""
        errors = self.instance.gpu.harness.read_check_results(
            [key for _, key in self._waiting]
        )
        for (side, _), error in zip(self._waiting, errors, strict=True):
            side.take(error)
        self._waiting = []

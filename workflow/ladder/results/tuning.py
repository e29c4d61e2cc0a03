"""The search for the fastest variant of a kernel: listed variants, then random ones, then neighbours of the fastest."""

import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ladder.catalogue.documents import parse_yaml
from ladder.catalogue.space import Space
from ladder.measure.plan_records import FASTEST, PlanRecords
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant
from ladder.model.sweep import Sweep
from ladder.results.judgement import JudgedCell, cells_of, outcome

_RANDOM = 2
"""Batches that are drawn from the whole space before neighbours of the fastest are."""
_STILL_RANDOM = 0.25  # of what is drawn later: the fastest so far may be far from the fastest there is
_FOR_LISTED = 0.5  # of the time at most


@dataclass(frozen=True)
class Try:
    """A variant, what became of it, and whether it lost the race: it stopped once it could not be the fastest."""

    variant: Variant
    cell: JudgedCell
    raced: bool = False

    @property
    def ok(self) -> bool:
        return bool(self.cell["status"] == "ok")

    @property
    def rank(self) -> tuple[bool, float]:
        """The fastest has the least."""
        return not self.ok, -(self.cell["speedup"] or 0.0)


def listed_variants(sweeps: Iterable[Sweep], space: Space, regime: str) -> list[Variant]:
    """What sweeps time of a space's kernel at its size in a regime, in their order, fixed parameters or not."""
    found = dict[Variant, None]()
    for sweep in sweeps:
        for entry, size in sweep.cells:
            variant, asked = (
                entry.variant,
                regime in sweep.regimes or (entry.variant, size) in sweep.sustained,
            )
            if asked and size == space.size and space.answers_alike(variant):
                found[variant] = None
    return list(found)


@dataclass
class Search:
    """A search in a space by batches of so many variants; `measure` verifies and times some, and gives their view.

    What it draws follows from the seed and from what was measured, not from the clock.
    """

    space: Space
    listed: Sequence[Variant]
    measure: Callable[[Sequence[Variant]], PlanRecords]
    seed: int
    batch: int
    tried: dict[Variant, Try] = field(default_factory=dict)

    @property
    def fastest(self) -> list[Try]:
        """All that gave a result, the fastest first."""
        return sorted((one for one in self.tried.values() if one.ok), key=lambda one: one.rank)

    def run(self, seconds: float) -> None:
        """Measure batches for so long; the last one is as large as there is time, at the pace of the one before it.

        Raises LadderError where the space is empty or the reference fails.
        """
        begun, rng = time.monotonic(), random.Random(self.seed)
        waiting, drawn, pace = list(self.listed), 0, 0.0
        while (spent := time.monotonic() - begun) < seconds:
            count = int(min(self.batch, (seconds - spent) / pace)) if pace else self.batch
            if spent >= seconds * _FOR_LISTED:
                waiting.clear()
            batch, waiting = waiting[:count], waiting[count:]
            if not batch:
                batch = self._draw(count, rng, everywhere=drawn < _RANDOM)
                drawn += 1
            if not batch:
                break
            self._take(batch)
            pace = (time.monotonic() - begun - spent) / len(batch)
        if not self.tried:
            raise self.space.refused(rng)

    def _draw(self, count: int, rng: random.Random, everywhere: bool) -> list[Variant]:
        found = dict[Variant, None]()
        while len(found) < count:
            taken, best = {*self.tried, *found}, self.fastest[:FASTEST]
            one = None
            if best and not everywhere and rng.random() >= _STILL_RANDOM:
                one = self.space.near(rng.choice(best).variant, rng, taken)
            if (one := one or self.space.any(rng, taken)) is None:
                break
            found[one] = None
        return list(found)

    def _take(self, batch: Sequence[Variant]) -> None:
        """Measure a batch; beside it the fastest so far, whose record says when the others have lost the race."""
        asked = [*(one.variant for one in self.fastest[:1]), *batch]
        view = self.measure(asked)
        by_id = {variant.id: variant for variant in asked}
        for task, cell in zip(view.plan.tasks, cells_of(view), strict=True):
            variant, raced = by_id[task.variant], outcome(view, task)[2].get("stopped_by") == "race"
            self.tried[variant] = Try(variant, cell, raced)


def measured_again(view: PlanRecords) -> PlanRecords:
    """A view of the fastest that gave a result in a later session as well, of which the latest record stands.

    The one that they were chosen by does not count: a maximum of many is too high by chance. Raises LadderError where
    there are none.
    """
    winners = [one for among in view.competitors() for one in view.fastest(among) if one.fresh]
    if not winners:
        raise LadderError("of the fastest none gave a result when measured again; the log above says why")
    return replace(view, plan=replace(view.plan, tasks=tuple(view.plan.tasks[one.index] for one in winners)))


def entry(variant: Variant, space: Space) -> str:
    """A variant as an item of a sweep's `variants`, for the size of its space."""
    usual = variant.kernel.parameters
    own = [
        f"{name}: {_word(value)}" for name, value in variant.params.items() if value != usual[name].default
    ]
    where = " and ".join(f"{name} == {value}" for name, value in space.size.items())
    lines = [f"- kernel: {variant.kernel.name}", f"params: {{{', '.join(own)}}}", f"where: {where}"]
    return "\n".join(["  " + lines[0], *("    " + line for line in lines[1:])])


def _word(value: int | str) -> str:
    """A value as YAML has it, in quotes where it would be read as something else."""
    return str(value) if parse_yaml(str(value), "a parameter") == value else json.dumps(value)

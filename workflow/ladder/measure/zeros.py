"""What do random numbers cost? The same kernel launched with zeros and with random numbers, in turns.

Of zeros every product is right, so that they verify nothing. A kernel is therefore verified with random numbers first,
as a cell is; launches with random numbers are checked; and what a launch with zeros leaves must be zeros everywhere.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ladder.gpu.device import Launcher
from ladder.gpu.instance import Instance
from ladder.gpu.timing import Blocks, CheckedLaunch, Pairs, StoppingRule, chain_length
from ladder.measure.bench import REFERENCE, Bench
from ladder.measure.subjects import TableRow
from ladder.measure.watch import CheckedSide, LaunchChecker, at_places, graph
from ladder.measure.worker import stopping_rule, why_unfit
from ladder.model.cell import SUSTAINED, Partner
from ladder.model.errors import LadderError
from ladder.model.intervals import median
from ladder.model.plan import Plan
from ladder.model.problem import Params

REGIME = "cold"
_STAMPED = 9  # launches with a reading of the clocks around each


class ZerosAndRandom:
    """A kernel or library with either kind of inputs; `load` gives it for the outputs that are there.

    us: of a launch, about.
    """

    def __init__(
        self,
        name: str,
        bench: Bench,
        instance: Instance,
        params: Params,
        load: Callable[[], Launcher],
        us: float,
    ) -> None:
        self.name, self.bench, self.instance, self.us = name, bench, instance, us
        self.checker = LaunchChecker(instance)
        self.side = CheckedSide(params, instance.error_bound(params))
        self.unseen = CheckedSide(params, math.inf)  # of zeros: an error relative to 0 says nothing
        bench.draw(instance)
        self.launchers = dict(zip((0, REFERENCE), at_places(instance, (0, REFERENCE), load), strict=True))

    def zeros(self, launcher: Launcher, place: int) -> CheckedLaunch:
        """With zeros in all inputs. All else around it is that of one with random numbers: both leave the same rest."""
        alike = self.checker.single_launch(launcher, self.unseen, place)

        def refresh() -> None:
            alike.refresh()
            self._clear(place)

        return CheckedLaunch(launcher, refresh, alike.inspect)

    def random(self, launcher: Launcher, place: int) -> CheckedLaunch:
        """With random numbers, checked."""
        return self.checker.single_launch(launcher, self.side, place)

    def _clear(self, place: int) -> None:
        with self.instance.writing_to(place):
            for name in self.instance.drawn:
                if (tensor := self.instance.tensors.get(name)) is not None:
                    tensor.whole.fill(b"\0", stream=self.bench.gpu.stream)
                    tensor.kind.value = -1  # they were not drawn

    def cold(self, rule: StoppingRule) -> Pairs:
        """Single launches with a cold L2; the variant's times are those with zeros."""
        kinds = (self.zeros, self.random)
        here, there = (self.launchers[place] for place in (0, REFERENCE))
        sides = kinds[0](here, 0), kinds[1](there, REFERENCE)
        swapped = kinds[0](there, REFERENCE), kinds[1](here, 0)
        return self.bench.timer.time_single_launches(sides, swapped, rule, REGIME, self.us)

    def sustained(self) -> Blocks:
        """Chains for seconds, each of the same launch over and over."""
        length = chain_length(self.us, sustained=True)
        with graph(self.bench.gpu.stream, [self.launchers[0]] * length) as chain:
            sides = self.zeros(chain, 0), self.random(chain, 0)
            return self.bench.timer.time_sustained(sides, (length, length))

    def mhz(self, one: CheckedLaunch) -> float:
        """The SM clock in single launches, from stamps on every multiprocessor right ahead of one and right behind.

        The host enqueues them while the L2 is prepared, so that nothing but the launch lies between them.
        """
        gpu, found = self.bench.gpu, list[float]()
        for _ in range(_STAMPED):
            one.refresh()
            gpu.l2.prepare(REGIME)
            before = gpu.read_clocks()
            one.launch()
            after = gpu.read_clocks()
            one.inspect()
            gpu.sync()
            found.append(gpu.mean_mhz(before, after))
        return median(found)

    def refuse_wrong(self) -> None:
        """Raises LadderError where a launch with random numbers was wrong, or one with zeros leaves anything else."""
        self.checker.collect_results()
        if self.side.wrong:
            raise LadderError(f"{self.name}: with random inputs: {self.side}")
        one = self.zeros(self.launchers[0], 0)
        one.refresh()
        one.launch()
        for output in self.instance.outputs:
            buffer = self.instance.tensors[output].buffer
            data = self.bench.gpu.download(int(buffer.handle), buffer.size)
            if other := len(data) - data.count(0):
                raise LadderError(f"{self.name}: with inputs of zeros {other} bytes of {output} are not zero")

    def rows(self, rule: StoppingRule) -> Iterator[TableRow]:
        """A row a regime. Raises LadderError for a wrong launch."""
        clocks = [self.mhz(kind(self.launchers[0], 0)) for kind in (self.zeros, self.random)]
        yield {"regime": REGIME, **_times(self.cold(rule)), **_clocks(*clocks)}
        self.refuse_wrong()
        if why_unfit(SUSTAINED, self.us, 0.0) is None:
            blocks = self.sustained()
            clocks = [median([one.sm_clock_mhz for one in of]) for of in (blocks.variant, blocks.reference)]
            yield {"regime": SUSTAINED, **_times(blocks), **_clocks(*clocks)}
            self.refuse_wrong()


def _times(pairs: Pairs) -> TableRow:
    value, low, high = pairs.speedup()
    found: TableRow = {"zeros_us": median(pairs.variant_us), "random_us": median(pairs.reference_us)}
    return found | {
        "speedup": value,
        "speedup_low": low,
        "speedup_high": high,
        "samples": len(pairs.variant_us),
    }


def _clocks(zeros_mhz: float, random_mhz: float) -> TableRow:
    return {"zeros_mhz": round(zeros_mhz, 1), "random_mhz": round(random_mhz, 1)}


def zeros(plan: Plan, cubins: Path, request: Sequence[Mapping[str, Any]]) -> dict[str, list[TableRow]]:
    """Task of `ladder.measure.process`: rows of the table zeros, for kernels of a plan and their references.

    The request has the kernels: of each its task's `index`, its median `us`, the `reference` with its `algorithm`, and
    that one's median `reference_us`.
    """
    bench, rule, found = Bench(plan, cubins), stopping_rule(plan), list[TableRow]()
    for given in request:
        task, partner = plan.tasks[given["index"]], Partner(given["reference"], given["algorithm"])
        assert task.launch is not None
        instance = bench.instance(task.cell)
        bench.verify_edges(task.variant, task.cell)
        bench.verified(task.launch, instance)
        bench.reference(task, partner, instance)
        about = {"dtype": task.cell.dtype, "layout": task.cell.layout, **task.cell.size}
        own = ZerosAndRandom(
            task.variant, bench, instance, task.launch.params, partial(bench.loaded, task), given["us"]
        )
        rows = [{"subject": task.variant, "side": "kernel", **row} for row in own.rows(rule)]
        again = partial(bench.another, task, partner, instance)
        name = str(partner)
        other = ZerosAndRandom(
            name, bench, instance, bench.reference_params(task), again, given["reference_us"]
        )
        rows += [{"subject": name, "side": "library", **row} for row in other.rows(rule)]
        found += [{**about, **row} for row in rows]
    return {"zeros": found}

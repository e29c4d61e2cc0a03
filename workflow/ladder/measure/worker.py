"""The measuring worker: one process, one context, task after task as the supervisor sends them.

Through the pipe come the fields of a Request; back go {"hello": …} once, and per task
{"results": …} by regime. With "fatal" the context is lost, and it leaves. {"doing": …} says ahead of a result what may
end the process, or "" after it.
"""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ladder.gpu.device import Launcher, OutOfDeviceMemory
from ladder.gpu.instance import Instance
from ladder.gpu.timing import Blocks, Pairs, Sides, StoppingRule, TimesDisagree, chain_length, nothing
from ladder.measure.bench import REFERENCE, Bench, CellOutcome
from ladder.measure.beyond import refuse_accesses_beyond
from ladder.measure.choosing import Choosing
from ladder.measure.request import Request
from ladder.measure.watch import CHECKED_OF_A_CHAIN, CheckedSide, LaunchChecker, at_places, graph
from ladder.model.cell import BACK_TO_BACK, SUSTAINED, Partner
from ladder.model.intervals import median
from ladder.model.plan import Launch, Plan, Task
from ladder.model.problem import COPY, ERROR_INPUTS

_OBSERVED_LAUNCHES = 9
_REPLAYED = 0.7  # of a single launch's time: launches of a chain that take less have replayed an answer
_RESTED = 1.15  # of a launch's time: settling launches are as long, or shorter while the GPU is cool
_BESIDE_CYCLES = (1.15, 10.0)
"""By how much a launch may take longer than the cycles that it reports: a factor, and us (up to 7 were seen)."""
_OF_LEAST_CYCLES = 0.98
_SUSTAINED_FROM_US = 90.0  # of one launch; 100 us are promised, and one launch may read less

_SLOW_HOST = "; so late does it see an empty launch: this host is too slow to time launches"
_MISTAKES = (TypeError, AttributeError, LookupError, NameError, AssertionError, ValueError, OSError)
"""What a fault of this program or a missing cubin raises, not a kernel: it must stop the run, not become a status."""

Result = dict[str, Any]
Timed = dict[str, Pairs | CellOutcome]


def stopping_rule(plan: Plan) -> StoppingRule:
    given = plan.settings
    least, most = int(given["min_pairs"] or 0), int(given["max_pairs"] or 0)
    return StoppingRule(float(given["precision"] or 0), least, most, float(given["cell_seconds"] or 0))


class Timing:
    """Times a task against its reference `partner`; every launch is verified.

    launch_us: of a single launch, variant first.
    """

    def __init__(
        self,
        bench: Bench,
        plan: Plan,
        task: Task,
        partner: Partner,
        launch_us: tuple[float, float],
    ) -> None:
        self.bench, self.task, self.partner, self.launch_us = bench, task, partner, launch_us
        self.rule = stopping_rule(plan)
        self.instance, self.limit_us = bench.instance(task.cell), float(plan.settings["warm_below_us"] or 0)
        assert task.launch is not None
        self.params = params = bench.reference_params(task)
        self.variant = CheckedSide(task.launch.params, self.instance.error_bound(task.launch.params))
        self.reference: CheckedSide | None = None
        if partner.reference != COPY:  # which is no answer
            self.reference = CheckedSide(params, self.instance.error_bound(params), always=False)
        self.watch = LaunchChecker(self.instance)
        self.elsewhere: tuple[()] | tuple[Launcher, Launcher] = ()  # variant and reference, places swapped

    def run(self, variant: Launcher, reference: Launcher, regimes: Sequence[str]) -> Timed:
        """Pairs by regime, or why there are none: warm is for short kernels only, sustained for long ones.

        Raises CellOutcome for launches that were wrong.
        """
        found = Timed()
        for regime in sorted(regimes, key=BACK_TO_BACK.__contains__):
            if regime not in BACK_TO_BACK:
                found[regime] = self._singly(regime, variant, reference)
            elif (unfit := why_unfit(regime, self.launch_us[0], self.limit_us)) is not None:
                found[regime] = CellOutcome("unsupported", unfit)
            else:
                found[regime] = self._chained(regime, variant, reference)
            self._settle()
            self._refuse_impossible(regime, found[regime])
            if isinstance(blocks := found[regime], Blocks):
                self._refuse_other_pace(blocks)
        return found

    def _singly(self, regime: str, variant: Launcher, reference: Launcher) -> Pairs:
        bench, watch = self.bench, self.watch
        if not self.elsewhere:
            with self.instance.writing_to(REFERENCE):
                own = bench.loaded(self.task)
            self.elsewhere = own, bench.swapped_reference(self.task, self.partner, self.instance)

        def sides(own: Launcher, other: Launcher, places: tuple[int, int]) -> Sides:
            return watch.single_launch(own, self.variant, places[0]), watch.single_launch(
                other, self.reference, places[1]
            )

        here = sides(variant, reference, (0, REFERENCE))
        swapped = sides(*self.elsewhere, (REFERENCE, 0))
        return bench.timer.time_single_launches(here, swapped, self.rule, regime, min(self.launch_us))

    def _chained(self, regime: str, variant: Launcher, reference: Launcher) -> Pairs | CellOutcome:
        """Chains of launches that each have a place of their own. In warm one alone comes before their inputs.

        There are none where an external reference cannot be captured.
        """
        bench, stream, watch = self.bench, self.bench.gpu.stream, self.watch
        own_us, other_us = self.launch_us if regime == SUSTAINED else (self.launch_us[0], self.launch_us[0])
        lengths = [chain_length(us, regime == SUSTAINED) for us in (own_us, other_us)]
        most = min(max(lengths), bench.places(self.instance))
        places = [REFERENCE + 1 + number for number in range(most)]
        own_places, other_places = (places[:length] for length in lengths)

        with contextlib.ExitStack() as graphs:

            def enter(members: Sequence[Launcher]) -> Launcher:
                return graphs.enter_context(graph(stream, members))

            own = enter(at_places(self.instance, own_places, partial(bench.loaded, self.task)))
            again = partial(bench.another, self.task, self.partner, self.instance)
            try:
                other = enter(at_places(self.instance, other_places, again))
            except Exception as error:
                name = self.partner.reference
                if name not in bench.external:
                    raise
                why = f"not captured in a CUDA graph: {error}"
                bench.note(name, f"{regime}: {why}")
                return CellOutcome("unsupported", f"the reference {name}: {why}")
            # Sustained chains are not poisoned, which would be a rest for the GPU: what places hold are answers to
            # other inputs, those of the chain before. All that it tells a kernel is the time: see _RESTED.
            ahead = watch.renew_workspaces if regime == SUSTAINED else watch.poison
            clear: Launcher = nothing
            if regime != SUSTAINED or self.instance.has_workspaces():
                clear = enter([partial(ahead, place) for place in places])

            def sides(poison: Launcher, checks: int) -> Sides:
                own_side, other_side = (self.variant, own_places), (self.reference, other_places)
                return (
                    watch.chain(own, *own_side, poison, variant, checks),
                    watch.chain(other, *other_side, poison, reference, checks),
                )

            if regime == SUSTAINED:
                return bench.timer.time_sustained(sides(clear, 1), (len(own_places), len(other_places)))
            return bench.timer.pairs(
                sides(clear, CHECKED_OF_A_CHAIN),
                self.rule,
                regime,
                scale=len(places),
            )

    def _refuse_impossible(self, regime: str, pairs: Pairs | CellOutcome) -> None:
        least_us = self.bench.least_us(self.task.cell.in_regime(regime), self.variant.params, self.instance)
        if isinstance(pairs, Pairs) and (us := median(pairs.variant_us)) < least_us:
            why = f"{regime}: takes {us:.2f} us where the hardware needs {least_us:.2f} at its peak rates"
            raise CellOutcome("stateful", why, spoilt=True)

    def _refuse_other_pace(self, blocks: Blocks) -> None:
        """Launches of a chain share their inputs: one that finds another's answer takes far less than alone.

        Those that rest where nothing counts find a cooler GPU afterwards.
        """
        alone_us = self.launch_us[0]
        if (us := median(blocks.variant_us)) < _REPLAYED * alone_us:
            why = f"sustained: takes {us:.2f} us, of single launches one took {alone_us:.2f}"
            raise CellOutcome("stateful", why, spoilt=True)
        for block in blocks.variant:
            if block.settling_us > _RESTED * block.us:
                why = f"takes {block.us:.2f} us, and {block.settling_us:.2f} ahead of the launches that count"
                raise CellOutcome("stateful", f"sustained: {why}", spoilt=True)

    def refuse_other_cycles(self, variant: Launcher, timed: Timed) -> None:
        """Raises CellOutcome where the cycles that a launch reports are not those of its time, as one that makes no
        access, or stops its clock, would report."""
        if self.instance.reported_cycles() is None:
            return
        gpu = self.bench.gpu
        before = gpu.read_clocks()
        for _ in range(_OBSERVED_LAUNCHES):
            variant()
        mhz = gpu.mean_mhz(before, gpu.read_clocks())
        cycles, least = self.instance.reported_cycles() or 0, self.instance.least_cycles(self.variant.params)
        if cycles < _OF_LEAST_CYCLES * least:
            why = f"it reports {cycles} cycles, where its accesses take {least:.0f} at least"
            raise CellOutcome("incorrect", f"{why}: a bank of shared memory has one word a cycle")
        own_us = cycles / mhz
        for regime, pairs in timed.items():
            if regime in BACK_TO_BACK or not isinstance(pairs, Pairs):
                continue
            us, (more, fixed_us) = median(pairs.variant_us), _BESIDE_CYCLES
            if not own_us / more - 1.0 <= us <= own_us * more + fixed_us:
                why = f"the cycles that it reports take {own_us:.2f} us at {mhz:.0f} MHz, a launch {us:.2f}"
                raise CellOutcome("incorrect", f"{regime}: {why}")

    def refuse_other_inputs(self, variant: Launcher) -> None:
        """Raises CellOutcome where it is wrong for inputs of one sign, whose errors add up, or over many binades."""
        for kind in ("positive", "wide"):
            params = self.variant.params
            with self.instance.inputs_of_kind(kind):
                side = CheckedSide(params, self.instance.error_bound(params))
                watched = self.watch.single_launch(variant, side, 0)
                with self.bench.timer.working():
                    for enqueue in (watched.refresh, watched.launch, watched.inspect):
                        enqueue()
                self.watch.collect_results()
            if side.wrong:
                raise CellOutcome("incorrect", f"with {kind} inputs: {side}")

    def _settle(self) -> None:
        self.watch.collect_results()
        if self.reference and self.reference.wrong:
            raise CellOutcome("incorrect", f"the reference {self.partner}: {self.reference}")
        if self.variant.wrong:
            raise CellOutcome("stateful", f"right alone, wrong in sequence: {self.variant}", spoilt=True)


def why_unfit(regime: str, us: float, limit_us: float) -> str | None:
    """Why launches that take so long are not chained in a regime, if they are not."""
    if regime == SUSTAINED:
        return "sustained is for kernels from 100 us on" if us < _SUSTAINED_FROM_US else None
    return f"warm is for kernels below {limit_us:g} us" if regime == "warm" and us >= limit_us else None


def no_reference(reason: str) -> Result:
    """The result of a task that there is nothing to time against; a later run that finds a reference measures it."""
    return {**CellOutcome("unsupported", f"no reference: {reason}").result, "reference": ""}


def partner_of(task: Task, chosen: Mapping[str, str]) -> Partner:
    """What a task is timed against: what was chosen, or the one that there is."""
    if task.reference is not None:
        return Partner(task.reference.variant)
    return Partner(**chosen) if chosen else Partner(task.cell.reference.libraries[0])


class Worker:
    """Answers for the tasks of one plan."""

    def __init__(self, plan: Plan, cubins: Path) -> None:
        self.plan = plan
        self.bench = Bench(plan, cubins)
        self._variants_ran = False
        self._ends_checked = set[str]()  # variants, at their edges
        self._once_s = 0.0  # of wall, in what a variant is verified by once, or once a size

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._once_s += time.perf_counter() - begin

    def choose(self, request: Request) -> dict[str, Result]:
        """Hold all against each other that may be the reference of some operands in a regime."""
        if self._variants_ran:
            raise AssertionError("a choice comes before any variant runs in its process")
        choice = self.plan.choices[request.index]
        warm_below_us = float(self.plan.settings["warm_below_us"] or 0)
        rule = stopping_rule(self.plan)
        return {choice.regime: Choosing(self.bench, rule, choice, warm_below_us).run()}

    def measure(self, request: Request) -> dict[str, Result]:
        """Verify a task, time it in some regimes, verify it again: a result a regime. Raises what CUDA ran into."""
        bench, task = self.bench, self.plan.tasks[request.index]
        self._variants_ran = True
        assert task.launch is not None
        instance = bench.instance(task.cell)
        with self._once():
            bench.verify_edges(task.variant, task.cell)
        loaded, before, launch_us = bench.verified(task.launch, instance)
        with self._once():
            edges = [] if task.variant in self._ends_checked else bench.edges(task.variant, task.cell)
            self._ends_checked.add(task.variant)
            refuse_accesses_beyond(bench, [*edges, (task.launch, instance)])
        results, partners = dict[str, Result](), dict[Partner, list[str]]()
        for regime in request.regimes:
            given = request.against.get(regime, {})
            if "absent" in given:
                limit_us = float(self.plan.settings["warm_below_us"] or 0)
                unfit = why_unfit(regime, launch_us, limit_us)
                why = CellOutcome("unsupported", unfit).result if unfit else no_reference(given["absent"])
                results[regime] = why
            else:
                partners.setdefault(partner_of(task, given), []).append(regime)
        timings = list[tuple[Timing, Timed]]()
        for partner, regimes in partners.items():
            reference = bench.reference(task, partner, instance)
            both_us = launch_us, bench.reference_us(partner, reference)
            timing = Timing(bench, self.plan, task, partner, both_us)
            timings.append((timing, timing.run(loaded, reference, regimes)))
        if not timings:
            return results
        for timing, timed in timings:
            timing.refuse_other_cycles(loaded, timed)
        observations = self._observations(loaded, task.launch, instance)
        errors = self._errors(task, loaded, instance, partners)
        bench.refuse_memory_violation(instance)  # of any launch so far
        timing.refuse_other_inputs(loaded)
        bench.refuse_other_weights(task.launch, instance)
        bench.draw(instance)
        after, _ = bench.check(loaded, task.launch.params, instance)
        if not after.correct:
            raise CellOutcome("incorrect", f"after timing, though right before: {after}")
        common = {"notes": bench.notes(), "copy_us": bench.copy_us(instance)}
        check = {"max_error": max(before.max_error, after.max_error), "error_bound": before.error_bound}
        for timing, timed in timings:
            own: Result = {"reference": timing.partner.reference, "algorithm": timing.partner.algorithm}
            own |= {"check": check | {"launches": timing.variant.checked}}
            own |= {"observations": observations + errors[timing.partner]}
            results |= {regime: _result(pairs, own | common) for regime, pairs in timed.items()}
        return results

    def _observations(self, loaded: Launcher, launch: Launch, instance: Instance) -> list[Result]:
        samples: dict[tuple[str, str], list[float]] = {}
        for _ in range(_OBSERVED_LAUNCHES):
            loaded()
            if not (found := instance.observations(launch.params)):
                break
            for metric, value in found.items():
                samples.setdefault(metric, []).append(value)
        return [{"metric": name, "unit": unit, "value": median(of)} for (name, unit), of in samples.items()]

    def _errors(
        self, task: Task, variant: Launcher, instance: Instance, partners: Iterable[Partner]
    ) -> dict[Partner, list[Result]]:
        """By reference the largest errors of the variant and of it with the same inputs, by their kind; none unasked.

        Raises CellOutcome where the variant's is too large.
        """
        found: dict[Partner, list[Result]] = {partner: [] for partner in partners}
        if not task.errors:
            return found
        bench, params = self.bench, self.bench.reference_params(task)
        assert task.launch is not None
        for kind in ERROR_INPUTS:
            with instance.inputs_of_kind(kind):
                bench.draw(instance)
                own, _ = bench.check(variant, task.launch.params, instance)
                if not own.correct:
                    raise CellOutcome("incorrect", f"with {kind} inputs: {own}")
                for partner, errors in found.items():
                    reference = bench.reference(task, partner, instance)
                    with instance.writing_to(REFERENCE):
                        other, _ = bench.check(reference, params, instance)
                    for name, check in ((f"max_error_{kind}", own), (f"reference_max_error_{kind}", other)):
                        errors.append({"metric": name, "unit": None, "value": check.max_error})
        return found

    def answer(self, request: Request) -> dict[str, Any]:
        bench, regimes = self.bench, request.regimes
        start, fatal, self._once_s = time.perf_counter(), False, 0.0
        before = bench.timer.busy_us, bench.timer.checking_us
        try:
            results = self.choose(request) if request.choice else self.measure(request)
        except CellOutcome as outcome:
            if outcome.result["status"] == "incorrect":
                # By what else it wrote the next kernel would be judged.
                outcome = bench.memory_violation() or outcome
            results, fatal = dict.fromkeys(regimes, outcome.result), outcome.spoilt
        except OutOfDeviceMemory as error:
            bench.release()
            results = dict.fromkeys(regimes, CellOutcome("unsupported", str(error), transient=True).result)
        except _MISTAKES:
            raise
        except Exception as error:
            fatal, reason = not bench.recovers(release=True), f"{type(error).__name__}: {error}"
            slow_host = isinstance(error, TimesDisagree) and not fatal and bench.host_is_slow()
            reason += _SLOW_HOST if slow_host else ""
            failure = CellOutcome("launch_error", reason, transient=slow_host)
            results = dict.fromkeys(regimes, failure.result)
        after = bench.timer.busy_us, bench.timer.checking_us
        spent = {name: (b - a) / 1e6 for name, a, b in zip(("gpu_s", "check_s"), before, after, strict=True)}
        spent |= {"once_s": self._once_s, "wall_s": time.perf_counter() - start}
        return {"results": results, "fatal": fatal} | {name: round(value, 6) for name, value in spent.items()}


def _result(pairs: Pairs | CellOutcome, common: Result) -> Result:
    if isinstance(pairs, CellOutcome):
        return pairs.result
    speedup, low, high = pairs.speedup()
    found: Result = {"status": "ok", "reason": "", "stopped_by": pairs.stopped_by, "clock": pairs.clock}
    found |= {"speedup": speedup, "speedup_low": low, "speedup_high": high}
    for name in ("variant_us", "reference_us"):
        found[name] = [round(time, 4) for time in getattr(pairs, name)]
    if isinstance(pairs, Blocks):
        found["blocks"] = {
            "variant": list(map(asdict, pairs.variant)),
            "reference": list(map(asdict, pairs.reference)),
        }
    return found | common


def measure(plan: Plan, cubins: Path, descriptor: int) -> None:
    """Task of `ladder.measure.process`: serve until the supervisor closes its pipe, of which this is our end.

    Raises SystemExit after a fatal answer.
    """
    pipe, worker = Connection(descriptor), Worker(plan, cubins)
    worker.bench.doing = lambda what: pipe.send({"doing": what})
    try:
        gpu = worker.bench.facts()
    except TimesDisagree as error:
        pipe.send({"mistake": f"{error}{_SLOW_HOST}"})
        raise
    pipe.send({"hello": {"pid": os.getpid(), "gpu": gpu}})
    while True:
        try:
            request = Request(**pipe.recv())
        except EOFError:
            return
        try:
            answer = worker.answer(request)
        except _MISTAKES:
            pipe.send({"mistake": traceback.format_exc()})
            raise
        pipe.send(answer)
        if answer["fatal"]:
            sys.exit(70)

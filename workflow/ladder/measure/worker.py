"""The measuring worker: one process, one context, task after task as the supervisor sends them.

Through the pipe come the fields of a Assignment; back go {"hello": …} once, and per task
{"results": …} by regime. With "fatal" the context is lost, and it leaves. {"doing": …} says ahead of a result what may
end the process, or "" after it.
"""

import os
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ladder.gpu.device import Launcher, OutOfDeviceMemory
from ladder.gpu.instance import Check, Instance
from ladder.gpu.stamps import OtherStream
from ladder.gpu.timing import Blocks, Pairs, TimesDisagree
from ladder.measure.assignment import Assignment
from ladder.measure.bench import REFERENCE, CellOutcome
from ladder.measure.beyond import refuse_accesses_beyond
from ladder.measure.candidates import CandidateTiming
from ladder.measure.references import BenchWithReferences
from ladder.measure.watch import Chain, CheckedSide, LaunchChecker, NotCaptured
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
# Of one launch, in us; 100 are promised, and one launch may read less.
_SUSTAINED_FROM_US = 90.0
_SLOW_HOST = (
    "; so late does it see an empty launch: this host is too slow to time launches"
)
_MISTAKES = (
    TypeError,
    AttributeError,
    LookupError,
    NameError,
    AssertionError,
    ValueError,
    OSError,
)
"""What a fault of this program or a missing cubin raises, not a kernel: it must stop the run, not become a status."""

Result = dict[str, Any]
Timed = dict[str, Pairs | CellOutcome]


class Timing:
    """Times a task's variant against its reference `partner`; every launch is verified.

    launchers: variant first, each at its own place. launch_us: of their single launches.
    """

    def __init__(
        self,
        bench: BenchWithReferences,
        task: Task,
        partner: Partner,
        launchers: tuple[Launcher, Launcher],
        launch_us: tuple[float, float],
    ) -> None:
        assert task.launch is not None
        self.bench = bench
        self.task = task
        self.partner = partner
        self.variant, self.reference = launchers
        self.launch_us = launch_us
        self.opaque = task.launch.variant in bench.launchers
        self.timed = Timed()
        self.instance = bench.instance(task.cell)
        self.watch = LaunchChecker(self.instance)
        params = task.launch.params
        self.variant_side = CheckedSide(params, self.instance.error_bound(params))
        self.reference_side: CheckedSide | None = None
        if partner.reference != COPY:  # which is no answer
            params = bench.reference_params(task)
            bound = self.instance.error_bound(params)
            self.reference_side = CheckedSide(params, bound, always=False)

    def run(self, regimes: Sequence[str]) -> None:
        """Fill `timed`: pairs, or why there are none, since warm is for short kernels only, sustained for long ones.

        Raises CellOutcome for launches that were wrong.
        """
        for regime in sorted(regimes, key=BACK_TO_BACK.__contains__):
            unfit = why_unfit(regime, self.launch_us[0], self.bench.warm_below_us)
            if unfit:
                self.timed[regime] = CellOutcome("unsupported", unfit)
                continue
            back_to_back = regime in BACK_TO_BACK
            time_pairs = self._chains if back_to_back else self._single_launches
            pairs = self.timed[regime] = time_pairs(regime)
            self._refuse_wrong()
            if isinstance(pairs, Pairs):
                self._refuse_impossible(regime, pairs)
            if isinstance(pairs, Blocks):
                self._refuse_other_pace(pairs)

    def _single_launches(self, regime: str) -> Pairs:
        bench = self.bench
        single_launch = self.watch.single_launch
        with self.instance.writing_to(REFERENCE):
            variant = bench.loaded(self.task)
        reference = bench.swapped_reference(self.task, self.partner)
        sides = (
            single_launch(self.variant, self.variant_side, 0),
            single_launch(self.reference, self.reference_side, REFERENCE),
        )
        swapped = (
            single_launch(variant, self.variant_side, REFERENCE),
            single_launch(reference, self.reference_side, 0),
        )
        shortest_us = min(self.launch_us)
        try:
            return bench.timer.time_single_launches(
                sides, swapped, bench.rule, regime, shortest_us, self.opaque
            )
        except OtherStream as error:
            raise CellOutcome("stateful", str(error), spoilt=True) from error

    def _launch_alone(self) -> None:
        """Launch the variant, and wait where it is opaque: what it began elsewhere must not see the inputs to come."""
        self.variant()
        if self.opaque:
            self.bench.gpu.sync()

    def _chains(self, regime: str) -> Pairs | CellOutcome:
        """Chains. There are none where code of one's own cannot be captured.

        In warm both are as long as the quicker side needs, so that the start of a graph counts on neither.
        """
        bench = self.bench
        timer = bench.timer
        name = self.partner.reference
        sustained = regime == SUSTAINED
        lengths = [bench.chain_length(us, sustained) for us in self.launch_us]
        length, reference_length = lengths if sustained else [max(lengths)] * 2
        load = partial(bench.loaded, self.task)
        another = partial(bench.another, self.task, self.partner)
        side = self.reference_side
        external = f"the reference {name}" if name in bench.external else ""
        opaque = "the launcher" if self.opaque else ""
        chains = (
            Chain(load, self._launch_alone, self.variant_side, length, opaque),
            Chain(another, self.reference, side, reference_length, external),
        )
        try:
            with self.watch.chains(chains, sustained) as (first, second):
                sides = first, second
                if sustained:
                    return timer.time_sustained(sides, (length, reference_length))
                return timer.pairs(sides, bench.rule, regime, scale=length)
        except NotCaptured as error:
            if error.whose == external:
                bench.notes[name] = f"{regime}: {error}"
            return CellOutcome("unsupported", f"{error.whose}: {error}")

    def _refuse_impossible(self, regime: str, pairs: Pairs) -> None:
        cell = self.task.cell.in_regime(regime)
        least_us = self.bench.least_us(cell, self.variant_side.params)
        us = median(pairs.variant_us)
        if us < least_us:
            why = f"{regime}: takes {us:.2f} us where the hardware needs {least_us:.2f} at its peak rates"
            raise CellOutcome("stateful", why, spoilt=True)

    def _refuse_other_pace(self, blocks: Blocks) -> None:
        """Launches of a chain share their inputs: one that finds another's answer takes far less than alone.

        Those that rest where nothing counts find a cooler GPU afterwards.
        """
        alone_us = self.launch_us[0]
        us = median(blocks.variant_us)
        if us < _REPLAYED * alone_us:
            alone_us = min(alone_us, self._alone_after_refresh_us())
        if us < _REPLAYED * alone_us:
            why = f"sustained: takes {us:.2f} us, of single launches one took {alone_us:.2f}"
            raise CellOutcome("stateful", why, spoilt=True)
        for block in blocks.variant:
            if block.settling_us > _RESTED * block.us:
                why = f"takes {block.us:.2f} us, and {block.settling_us:.2f} ahead of the launches that count"
                raise CellOutcome("stateful", f"sustained: {why}", spoilt=True)

    def _alone_after_refresh_us(self) -> float:
        """Time of a launch alone, in us, that finds its inputs where drawing them left them, as those of a chain do."""
        launch = self.watch.single_launch(self.variant, self.variant_side, 0)
        times, _ = self.bench.timer.times([launch] * _OBSERVED_LAUNCHES, "warm")
        return median(times)

    def refuse_other_cycles(self) -> None:
        """Raises CellOutcome where the cycles that a launch reports are not those of its time.

        A launch that makes no access, or stops its clock, would report such cycles.
        """
        instance = self.instance
        gpu = self.bench.gpu
        if instance.reported_cycles() is None:
            return
        before = gpu.read_clocks()
        for _ in range(_OBSERVED_LAUNCHES):
            self.variant()
        mhz = gpu.mean_mhz(before, gpu.read_clocks())
        cycles = instance.reported_cycles() or 0
        least = instance.least_cycles(self.variant_side.params)
        if cycles < _OF_LEAST_CYCLES * least:
            why = f"it reports {cycles} cycles, where its accesses take {least:.0f} at least"
            one_word = "a bank of shared memory has one word a cycle"
            raise CellOutcome("incorrect", f"{why}: {one_word}")
        reported_us = cycles / mhz
        factor, fixed_us = _BESIDE_CYCLES
        for regime, pairs in self.timed.items():
            if regime in BACK_TO_BACK or not isinstance(pairs, Pairs):
                continue
            us = median(pairs.variant_us)
            if not reported_us / factor - 1.0 <= us <= reported_us * factor + fixed_us:
                why = f"the cycles that it reports take {reported_us:.2f} us at {mhz:.0f} MHz, a launch {us:.2f}"
                raise CellOutcome("incorrect", f"{regime}: {why}")

    def refuse_other_inputs(self) -> None:
        """Raises CellOutcome where it is wrong for inputs of one sign, whose errors add up, or of another kind.

        Integers show what a long sum leaves out, where sums of them are exact.
        """
        params = self.variant_side.params
        for kind in self.bench.problem.inputs:
            if kind == "uniform":
                continue
            if kind == "integers" and not self.instance.sums_are_exact():
                continue
            with self.instance.inputs_of_kind(kind):
                side = CheckedSide(params, self.instance.error_bound(params))
                launch = self.watch.single_launch(self.variant, side, 0)
                with self.bench.timer.working():
                    launch.refresh()
                    launch.launch()
                    launch.inspect()
                self.watch.collect_results()
            if side.wrong:
                raise CellOutcome("incorrect", f"with {kind} inputs: {side}")

    def _refuse_wrong(self) -> None:
        """Raises CellOutcome where a launch since the last call gave a wrong result."""
        self.watch.collect_results()
        variant = self.variant_side
        reference = self.reference_side
        if reference and reference.wrong:
            reason = f"the reference {self.partner}: {reference}"
            raise CellOutcome("incorrect", reason)
        if variant.wrong:
            reason = f"right alone, wrong in sequence: {variant}"
            raise CellOutcome("stateful", reason, spoilt=True)


def why_unfit(regime: str, us: float, warm_below_us: float) -> str | None:
    """Why launches that take so long are not chained in a regime, if they are not."""
    if regime == SUSTAINED and us < _SUSTAINED_FROM_US:
        return "sustained is for kernels from 100 us on"
    if regime == "warm" and us >= warm_below_us:
        return f"warm is for kernels below {warm_below_us:g} us"
    return None


def partner_of(task: Task, chosen: Mapping[str, str]) -> Partner:
    """What a task is timed against: what was chosen, or the one that there is."""
    if task.reference is not None:
        return Partner(task.reference.variant)
    return Partner(**chosen) if chosen else Partner(task.cell.reference.libraries[0])


class Worker:
    """Answers for the tasks of one plan."""

    def __init__(self, plan: Plan, cubins: Path) -> None:
        self.plan = plan
        self.bench = BenchWithReferences(plan, cubins)
        self._variants_ran = self._ran_opaque = False
        self._ends_checked = set[str]()  # variants, at their edges

    def choose(self, assignment: Assignment) -> dict[str, Result]:
        """Hold all against each other that may be the reference of some operands in a regime."""
        if self._variants_ran:
            raise AssertionError(
                "a choice comes before any variant runs in its process"
            )
        choice = self.plan.choices[assignment.index]
        return {choice.regime: CandidateTiming(self.bench, choice).run()}

    def measure(self, assignment: Assignment) -> dict[str, Result]:
        """Verify a task, time it in some regimes, verify it again: a result a regime. Raises what CUDA ran into."""
        bench = self.bench
        task = self.plan.tasks[assignment.index]
        self._variants_ran = True
        self._ran_opaque = task.variant in bench.launchers
        launch = task.launch
        assert launch is not None
        instance = bench.instance(task.cell)
        loaded, before, launch_us = self._verified(task, launch)
        results = dict[str, Result]()
        regimes_by_partner = dict[Partner, list[str]]()
        for regime in assignment.regimes:
            chosen = assignment.against.get(regime, {})
            if "absent" in chosen:
                results[regime] = self._without_reference(
                    regime, launch_us, chosen["absent"]
                )
                continue
            partner = partner_of(task, chosen)
            regimes_by_partner.setdefault(partner, []).append(regime)
        if not regimes_by_partner:
            return results
        timings = list[Timing]()
        for partner, regimes in regimes_by_partner.items():
            reference = bench.reference(task, partner)
            launchers = loaded, reference.launcher
            both_us = launch_us, bench.reference_us(reference)
            timing = Timing(bench, task, partner, launchers, both_us)
            timing.run(regimes)
            timings.append(timing)
        for timing in timings:
            timing.refuse_other_cycles()
        observations = _observations(loaded, launch, instance)
        errors = self._errors(task, launch, loaded, regimes_by_partner)
        bench.refuse_memory_violation(instance)  # of any launch so far
        timing.refuse_other_inputs()
        bench.refuse_other_weights(launch)
        bench.draw(instance)
        after, _ = bench.check(loaded, launch.params)
        if not after.correct:
            reason = f"after timing, though right before: {after}"
            raise CellOutcome("incorrect", reason)

        max_error = max(before.max_error, after.max_error)
        check = {"max_error": max_error, "error_bound": before.error_bound}
        common = {"notes": bench.noted(), "copy_us": bench.copy_us()}
        for timing in timings:
            fields: Result = {
                **asdict(timing.partner),
                "check": check | {"launches": timing.variant_side.checked},
                "observations": observations + errors[timing.partner],
                **common,
            }
            for regime, pairs in timing.timed.items():
                results[regime] = _result(pairs, fields)
        return results

    def _verified(self, task: Task, launch: Launch) -> tuple[Launcher, Check, float]:
        """Verify a variant at its edges and at this size, where it must not leave its buffers: as Bench.verified."""
        bench = self.bench
        bench.verify_edges(task.variant, task.cell)
        verified = bench.verified(launch)
        launches = [(launch, bench.current)]
        if task.variant not in self._ends_checked:
            edges = [
                (edge.launch, instance)
                for edge, instance in bench.edges(task.variant, task.cell)
                if not bench.problem.is_costly(edge.size)
            ]
            launches = edges + launches
        self._ends_checked.add(task.variant)
        refuse_accesses_beyond(bench, launches)
        return verified

    def _without_reference(self, regime: str, launch_us: float, reason: str) -> Result:
        """The result of a task without a reference; a later run that finds one measures it."""
        unfit = why_unfit(regime, launch_us, self.bench.warm_below_us)
        if unfit:
            return CellOutcome("unsupported", unfit).result
        outcome = CellOutcome("unsupported", f"no reference: {reason}")
        return outcome.result | {"reference": ""}

    def _errors(
        self,
        task: Task,
        launch: Launch,
        variant: Launcher,
        partners: Iterable[Partner],
    ) -> dict[Partner, list[Result]]:
        """The largest errors of the variant and of each reference, by kind of inputs; none where a task asks for none.

        Raises CellOutcome where the variant's is too large.
        """
        errors = {partner: list[Result]() for partner in partners}
        bench = self.bench
        instance = bench.current
        for kind in ERROR_INPUTS if task.errors else ():
            with instance.inputs_of_kind(kind):
                bench.draw(instance)
                check, _ = bench.check(variant, launch.params)
                if not check.correct:
                    raise CellOutcome("incorrect", f"with {kind} inputs: {check}")
                for partner, observations in errors.items():
                    reference = bench.reference(task, partner).launcher
                    params = bench.reference_params(task)
                    with instance.writing_to(REFERENCE):
                        of_reference, _ = bench.check(reference, params)
                    observations += [
                        _observation(f"max_error_{kind}", None, check.max_error),
                        _observation(
                            f"reference_max_error_{kind}", None, of_reference.max_error
                        ),
                    ]
        return errors

    def answer(self, assignment: Assignment) -> dict[str, Any]:
        """Results by regime, whether the process must end, and the seconds spent. Raises what a fault of ours raises.

        It must where the context is lost, and behind a launcher, whose host code may have changed the process.
        """
        timer = self.bench.timer
        begin = time.perf_counter()
        busy_us = timer.busy_us
        checking_us = timer.checking_us
        try:
            results = (
                self.choose(assignment)
                if assignment.choice
                else self.measure(assignment)
            )
            fatal = self._ran_opaque
        except _MISTAKES:
            raise
        except Exception as error:
            outcome = self._outcome(error)
            results = dict.fromkeys(assignment.regimes, outcome.result)
            fatal = outcome.spoilt or self._ran_opaque
        return {
            "results": results,
            "fatal": fatal,
            "gpu_s": round((timer.busy_us - busy_us) / 1e6, 6),
            "check_s": round((timer.checking_us - checking_us) / 1e6, 6),
            "wall_s": round(time.perf_counter() - begin, 6),
        }

    def _outcome(self, error: Exception) -> CellOutcome:
        """What becomes of a cell that ended in an error; `spoilt` where the context is lost."""
        bench = self.bench
        if isinstance(error, CellOutcome):
            if error.result["status"] == "incorrect":
                # By what else it wrote the next kernel would be judged.
                return bench.memory_violation() or error
            return error
        if isinstance(error, OutOfDeviceMemory):
            bench.release()
            return CellOutcome("unsupported", str(error), transient=True)
        reason = f"{type(error).__name__}: {error}"
        if not bench.recovers(release=True):
            return CellOutcome("launch_error", reason, spoilt=True)
        slow_host = isinstance(error, TimesDisagree) and bench.host_is_slow()
        reason += _SLOW_HOST if slow_host else ""
        return CellOutcome("launch_error", reason, transient=slow_host)


def _observations(loaded: Launcher, launch: Launch, instance: Instance) -> list[Result]:
    """What launches report of themselves, such as their cycles: medians by metric."""
    samples = dict[tuple[str, str], list[float]]()
    for _ in range(_OBSERVED_LAUNCHES):
        loaded()
        observed = instance.observations(launch.params)
        if not observed:
            break
        for metric, value in observed.items():
            samples.setdefault(metric, []).append(value)
    return [
        _observation(name, unit, median(values))
        for (name, unit), values in samples.items()
    ]


def _observation(metric: str, unit: str | None, value: float) -> Result:
    return {"metric": metric, "unit": unit, "value": value}


def _result(pairs: Pairs | CellOutcome, common: Result) -> Result:
    if isinstance(pairs, CellOutcome):
        return pairs.result
    speedup, low, high = pairs.speedup()
    result: Result = {
        "status": "ok",
        "reason": "",
        "stopped_by": pairs.stopped_by,
        "clock": pairs.clock,
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
        "variant_us": [round(us, 4) for us in pairs.variant_us],
        "reference_us": [round(us, 4) for us in pairs.reference_us],
    }
    if isinstance(pairs, Blocks):
        blocks = {"variant": pairs.variant, "reference": pairs.reference}
        result["blocks"] = {side: [*map(asdict, of)] for side, of in blocks.items()}
    return result | common


def measure(plan: Plan, cubins: Path, descriptor: int) -> None:
    """Program of `ladder.measure.process`: serve until the supervisor closes its pipe, of which this is our end.

    Raises SystemExit after a fatal answer.
    """
    pipe = Connection(descriptor)
    worker = Worker(plan, cubins)
    worker.bench.doing = lambda subject: pipe.send({"doing": subject})
    try:
        gpu = worker.bench.facts()
    except TimesDisagree as error:
        pipe.send({"mistake": f"{error}{_SLOW_HOST}"})
        raise
    pipe.send({"hello": {"pid": os.getpid(), "gpu": gpu}})
    while True:
        try:
            assignment = Assignment(**pipe.recv())
        except EOFError:
            return
        try:
            answer = worker.answer(assignment)
        except _MISTAKES:
            pipe.send({"mistake": traceback.format_exc()})
            raise
        pipe.send(answer)
        if answer["fatal"]:
            sys.exit(70)

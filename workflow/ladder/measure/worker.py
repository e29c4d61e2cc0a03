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
from ladder.gpu.timing import (
    Blocks,
    Pairs,
    Sides,
    StoppingRule,
    TimesDisagree,
    chain_length,
    nothing,
)
from ladder.measure.bench import REFERENCE, Bench, CellOutcome
from ladder.measure.beyond import refuse_accesses_beyond
from ladder.measure.choosing import Choosing
from ladder.measure.request import Request
from ladder.measure.watch import (
    CHECKED_OF_A_CHAIN,
    CheckedSide,
    LaunchChecker,
    at_places,
    graph,
)
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
_SUSTAINED_FROM_US = (
    90.0  # of one launch; 100 us are promised, and one launch may read less
)

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


def stopping_rule(plan: Plan) -> StoppingRule:
    settings = plan.settings
    return StoppingRule(
        precision=float(settings["precision"] or 0),
        min_pairs=int(settings["min_pairs"] or 0),
        max_pairs=int(settings["max_pairs"] or 0),
        seconds=float(settings["cell_seconds"] or 0),
    )


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
        self.bench, self.task, self.partner, self.launch_us = (
            bench,
            task,
            partner,
            launch_us,
        )
        self.rule = stopping_rule(plan)
        self.instance = bench.instance(task.cell)
        self.limit_us = float(plan.settings["warm_below_us"] or 0)
        assert task.launch is not None
        self.variant = CheckedSide(
            task.launch.params, self.instance.error_bound(task.launch.params)
        )
        self.reference: CheckedSide | None = None
        if partner.reference != COPY:  # which is no answer
            params = bench.reference_params(task)
            self.reference = CheckedSide(
                params, self.instance.error_bound(params), always=False
            )
        self.watch = LaunchChecker(self.instance)
        self.swapped: tuple[Launcher, Launcher] | None = (
            None  # variant and reference, each at the other's place
        )

    def run(
        self, variant: Launcher, reference: Launcher, regimes: Sequence[str]
    ) -> Timed:
        """Pairs by regime, or why there are none: warm is for short kernels only, sustained for long ones.

        Raises CellOutcome for launches that were wrong.
        """
        timed = Timed()
        for regime in sorted(regimes, key=BACK_TO_BACK.__contains__):
            pairs = timed[regime] = self._pairs(regime, variant, reference)
            self._refuse_wrong()
            if isinstance(pairs, Pairs):
                self._refuse_impossible(regime, pairs)
            if isinstance(pairs, Blocks):
                self._refuse_other_pace(pairs)
        return timed

    def _pairs(
        self, regime: str, variant: Launcher, reference: Launcher
    ) -> Pairs | CellOutcome:
        if regime not in BACK_TO_BACK:
            return self._single_launches(regime, variant, reference)
        unfit = why_unfit(regime, self.launch_us[0], self.limit_us)
        if unfit is not None:
            return CellOutcome("unsupported", unfit)
        return self._chains(regime, variant, reference)

    def _single_launches(
        self, regime: str, variant: Launcher, reference: Launcher
    ) -> Pairs:
        if self.swapped is None:
            with self.instance.writing_to(REFERENCE):
                loaded = self.bench.loaded(self.task)
            self.swapped = (
                loaded,
                self.bench.swapped_reference(self.task, self.partner, self.instance),
            )

        def sides(
            variant: Launcher, place: int, reference: Launcher, reference_place: int
        ) -> Sides:
            return (
                self.watch.single_launch(variant, self.variant, place),
                self.watch.single_launch(reference, self.reference, reference_place),
            )

        swapped_variant, swapped_reference = self.swapped
        return self.bench.timer.time_single_launches(
            sides(variant, 0, reference, REFERENCE),
            sides(swapped_variant, REFERENCE, swapped_reference, 0),
            self.rule,
            regime,
            min(self.launch_us),
        )

    def _chains(
        self, regime: str, variant: Launcher, reference: Launcher
    ) -> Pairs | CellOutcome:
        """Chains of launches that each have a place of their own. In warm one alone comes before their inputs.

        There are none where an external reference cannot be captured.
        """
        bench, watch = self.bench, self.watch
        sustained = regime == SUSTAINED
        variant_us, reference_us = self.launch_us
        variant_length = chain_length(variant_us, sustained)
        # In warm both chains have as many launches.
        reference_length = chain_length(
            reference_us if sustained else variant_us, sustained
        )
        most = min(max(variant_length, reference_length), bench.places(self.instance))
        places = [REFERENCE + 1 + number for number in range(most)]
        variant_places, reference_places = (
            places[:variant_length],
            places[:reference_length],
        )

        with contextlib.ExitStack() as graphs:

            def enter(members: Sequence[Launcher]) -> Launcher:
                return graphs.enter_context(graph(bench.gpu.stream, members))

            load_variant = partial(bench.loaded, self.task)
            variant_chain = enter(
                at_places(self.instance, variant_places, load_variant)
            )
            load_reference = partial(
                bench.another, self.task, self.partner, self.instance
            )
            try:
                reference_chain = enter(
                    at_places(self.instance, reference_places, load_reference)
                )
            except Exception as error:
                name = self.partner.reference
                if name not in bench.external:
                    raise
                why = f"not captured in a CUDA graph: {error}"
                bench.note(name, f"{regime}: {why}")
                return CellOutcome("unsupported", f"the reference {name}: {why}")
            # Sustained chains are not poisoned, which would be a rest for the GPU: what places hold are answers to
            # other inputs, those of the chain before. All that it tells a kernel is the time: see _RESTED.
            renew = watch.renew_workspaces if sustained else watch.poison
            clear: Launcher = nothing
            if not sustained or self.instance.has_workspaces():
                clear = enter([partial(renew, place) for place in places])
            checks = 1 if sustained else CHECKED_OF_A_CHAIN
            sides = (
                watch.chain(
                    variant_chain, self.variant, variant_places, clear, variant, checks
                ),
                watch.chain(
                    reference_chain,
                    self.reference,
                    reference_places,
                    clear,
                    reference,
                    checks,
                ),
            )
            if sustained:
                return bench.timer.time_sustained(
                    sides, (len(variant_places), len(reference_places))
                )
            return bench.timer.pairs(sides, self.rule, regime, scale=len(places))

    def _refuse_impossible(self, regime: str, pairs: Pairs) -> None:
        least_us = self.bench.least_us(
            self.task.cell.in_regime(regime), self.variant.params, self.instance
        )
        us = median(pairs.variant_us)
        if us < least_us:
            why = f"{regime}: takes {us:.2f} us where the hardware needs {least_us:.2f} at its peak rates"
            raise CellOutcome("stateful", why, spoilt=True)

    def _refuse_other_pace(self, blocks: Blocks) -> None:
        """Launches of a chain share their inputs: one that finds another's answer takes far less than alone.

        Those that rest where nothing counts find a cooler GPU afterwards.
        """
        alone_us, us = self.launch_us[0], median(blocks.variant_us)
        if us < _REPLAYED * alone_us:
            why = f"sustained: takes {us:.2f} us, of single launches one took {alone_us:.2f}"
            raise CellOutcome("stateful", why, spoilt=True)
        for block in blocks.variant:
            if block.settling_us > _RESTED * block.us:
                why = f"takes {block.us:.2f} us, and {block.settling_us:.2f} ahead of the launches that count"
                raise CellOutcome("stateful", f"sustained: {why}", spoilt=True)

    def refuse_other_cycles(self, variant: Launcher, timed: Timed) -> None:
        """Raises CellOutcome where the cycles that a launch reports are not those of its time.

        A launch that makes no access, or stops its clock, would report such cycles.
        """
        if self.instance.reported_cycles() is None:
            return
        gpu = self.bench.gpu
        before = gpu.read_clocks()
        for _ in range(_OBSERVED_LAUNCHES):
            variant()
        mhz = gpu.mean_mhz(before, gpu.read_clocks())
        cycles, least = (
            self.instance.reported_cycles() or 0,
            self.instance.least_cycles(self.variant.params),
        )
        if cycles < _OF_LEAST_CYCLES * least:
            why = f"it reports {cycles} cycles, where its accesses take {least:.0f} at least"
            raise CellOutcome(
                "incorrect", f"{why}: a bank of shared memory has one word a cycle"
            )
        reported_us = cycles / mhz
        more, fixed_us = _BESIDE_CYCLES
        for regime, pairs in timed.items():
            if regime in BACK_TO_BACK or not isinstance(pairs, Pairs):
                continue
            us = median(pairs.variant_us)
            if not reported_us / more - 1.0 <= us <= reported_us * more + fixed_us:
                why = f"the cycles that it reports take {reported_us:.2f} us at {mhz:.0f} MHz, a launch {us:.2f}"
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

    def _refuse_wrong(self) -> None:
        """Raises CellOutcome where a launch since the last call gave a wrong result."""
        self.watch.collect_results()
        if self.reference and self.reference.wrong:
            raise CellOutcome(
                "incorrect", f"the reference {self.partner}: {self.reference}"
            )
        if self.variant.wrong:
            raise CellOutcome(
                "stateful",
                f"right alone, wrong in sequence: {self.variant}",
                spoilt=True,
            )


def why_unfit(regime: str, us: float, limit_us: float) -> str | None:
    """Why launches that take so long are not chained in a regime, if they are not."""
    if regime == SUSTAINED and us < _SUSTAINED_FROM_US:
        return "sustained is for kernels from 100 us on"
    if regime == "warm" and us >= limit_us:
        return f"warm is for kernels below {limit_us:g} us"
    return None


def no_reference(reason: str) -> Result:
    """The result of a task that there is nothing to time against; a later run that finds a reference measures it."""
    return {
        **CellOutcome("unsupported", f"no reference: {reason}").result,
        "reference": "",
    }


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
        self.limit_us = float(plan.settings["warm_below_us"] or 0)
        self._variants_ran = False
        self._ends_checked = set[str]()  # variants, at their edges
        self._once_s = (
            0.0  # of wall, in what a variant is verified by once, or once a size
        )

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        """Count the seconds of the block as spent once."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._once_s += time.perf_counter() - begin

    def choose(self, request: Request) -> dict[str, Result]:
        """Hold all against each other that may be the reference of some operands in a regime."""
        if self._variants_ran:
            raise AssertionError(
                "a choice comes before any variant runs in its process"
            )
        choice = self.plan.choices[request.index]
        choosing = Choosing(self.bench, stopping_rule(self.plan), choice, self.limit_us)
        return {choice.regime: choosing.run()}

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
            edges = (
                []
                if task.variant in self._ends_checked
                else bench.edges(task.variant, task.cell)
            )
            self._ends_checked.add(task.variant)
            refuse_accesses_beyond(bench, [*edges, (task.launch, instance)])
        results = dict[str, Result]()
        regimes_by_partner = dict[Partner, list[str]]()
        for regime in request.regimes:
            chosen = request.against.get(regime, {})
            if "absent" in chosen:
                results[regime] = self._without_reference(
                    regime, launch_us, chosen["absent"]
                )
            else:
                regimes_by_partner.setdefault(partner_of(task, chosen), []).append(
                    regime
                )
        timings = list[tuple[Timing, Timed]]()
        for partner, regimes in regimes_by_partner.items():
            reference = bench.reference(task, partner, instance)
            both_us = launch_us, bench.reference_us(partner, reference)
            timing = Timing(bench, self.plan, task, partner, both_us)
            timings.append((timing, timing.run(loaded, reference, regimes)))
        if not timings:
            return results
        for timing, timed in timings:
            timing.refuse_other_cycles(loaded, timed)
        observations = self._observations(loaded, task.launch, instance)
        errors = self._errors(task, loaded, instance, regimes_by_partner)
        bench.refuse_memory_violation(instance)  # of any launch so far
        timing.refuse_other_inputs(loaded)
        bench.refuse_other_weights(task.launch, instance)
        bench.draw(instance)
        after, _ = bench.check(loaded, task.launch.params, instance)
        if not after.correct:
            raise CellOutcome(
                "incorrect", f"after timing, though right before: {after}"
            )
        common = {"notes": bench.notes(), "copy_us": bench.copy_us(instance)}
        check = {
            "max_error": max(before.max_error, after.max_error),
            "error_bound": before.error_bound,
        }
        for timing, timed in timings:
            partner = timing.partner
            fields: Result = {
                "reference": partner.reference,
                "algorithm": partner.algorithm,
            }
            fields["check"] = check | {"launches": timing.variant.checked}
            fields["observations"] = observations + errors[partner]
            for regime, pairs in timed.items():
                results[regime] = _result(pairs, fields | common)
        return results

    def _without_reference(self, regime: str, launch_us: float, reason: str) -> Result:
        unfit = why_unfit(regime, launch_us, self.limit_us)
        return (
            CellOutcome("unsupported", unfit).result if unfit else no_reference(reason)
        )

    def _observations(
        self, loaded: Launcher, launch: Launch, instance: Instance
    ) -> list[Result]:
        """What launches report of themselves, such as their cycles: medians by metric."""
        samples = dict[tuple[str, str], list[float]]()
        for _ in range(_OBSERVED_LAUNCHES):
            loaded()
            observed = instance.observations(launch.params)
            if not observed:
                break
            for metric, value in observed.items():
                samples.setdefault(metric, []).append(value)
        medians = []
        for (name, unit), values in samples.items():
            medians.append({"metric": name, "unit": unit, "value": median(values)})
        return medians

    def _errors(
        self,
        task: Task,
        variant: Launcher,
        instance: Instance,
        partners: Iterable[Partner],
    ) -> dict[Partner, list[Result]]:
        """The largest errors of the variant and of each reference, by kind of inputs; none where a task asks for none.

        Raises CellOutcome where the variant's is too large.
        """
        errors_by_partner: dict[Partner, list[Result]] = {
            partner: [] for partner in partners
        }
        if not task.errors:
            return errors_by_partner
        bench, params = self.bench, self.bench.reference_params(task)
        assert task.launch is not None
        for kind in ERROR_INPUTS:
            with instance.inputs_of_kind(kind):
                bench.draw(instance)
                check, _ = bench.check(variant, task.launch.params, instance)
                if not check.correct:
                    raise CellOutcome("incorrect", f"with {kind} inputs: {check}")
                for partner, errors in errors_by_partner.items():
                    reference = bench.reference(task, partner, instance)
                    with instance.writing_to(REFERENCE):
                        reference_check, _ = bench.check(reference, params, instance)
                    errors += [
                        {
                            "metric": f"max_error_{kind}",
                            "unit": None,
                            "value": check.max_error,
                        },
                        {
                            "metric": f"reference_max_error_{kind}",
                            "unit": None,
                            "value": reference_check.max_error,
                        },
                    ]
        return errors_by_partner

    def answer(self, request: Request) -> dict[str, Any]:
        """Results by regime, whether the context is lost, and the seconds spent. Raises what a fault of ours raises."""
        bench, regimes = self.bench, request.regimes
        fatal, self._once_s = False, 0.0
        begin, busy_us, checking_us = (
            time.perf_counter(),
            bench.timer.busy_us,
            bench.timer.checking_us,
        )
        try:
            results = self.choose(request) if request.choice else self.measure(request)
        except CellOutcome as outcome:
            if outcome.result["status"] == "incorrect":
                # By what else it wrote the next kernel would be judged.
                outcome = bench.memory_violation() or outcome
            results, fatal = dict.fromkeys(regimes, outcome.result), outcome.spoilt
        except OutOfDeviceMemory as error:
            bench.release()
            results = dict.fromkeys(
                regimes, CellOutcome("unsupported", str(error), transient=True).result
            )
        except _MISTAKES:
            raise
        except Exception as error:
            fatal, reason = (
                not bench.recovers(release=True),
                f"{type(error).__name__}: {error}",
            )
            slow_host = (
                isinstance(error, TimesDisagree) and not fatal and bench.host_is_slow()
            )
            reason += _SLOW_HOST if slow_host else ""
            failure = CellOutcome("launch_error", reason, transient=slow_host)
            results = dict.fromkeys(regimes, failure.result)
        return {
            "results": results,
            "fatal": fatal,
            "gpu_s": round((bench.timer.busy_us - busy_us) / 1e6, 6),
            "check_s": round((bench.timer.checking_us - checking_us) / 1e6, 6),
            "once_s": round(self._once_s, 6),
            "wall_s": round(time.perf_counter() - begin, 6),
        }


def _result(pairs: Pairs | CellOutcome, common: Result) -> Result:
    if isinstance(pairs, CellOutcome):
        return pairs.result
    speedup, low, high = pairs.speedup()
    result: Result = {
        "status": "ok",
        "reason": "",
        "stopped_by": pairs.stopped_by,
        "clock": pairs.clock,
    }
    result |= {"speedup": speedup, "speedup_low": low, "speedup_high": high}
    result["variant_us"] = [round(us, 4) for us in pairs.variant_us]
    result["reference_us"] = [round(us, 4) for us in pairs.reference_us]
    if isinstance(pairs, Blocks):
        result["blocks"] = {
            "variant": list(map(asdict, pairs.variant)),
            "reference": list(map(asdict, pairs.reference)),
        }
    return result | common


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

"""The bench: a GPU, the instance of the current size, kernels verified on it, and what they are timed against."""

import importlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ladder.gpu.device import Gpu, Harness, Launcher, OutOfDeviceMemory
from ladder.gpu.external import ExternalReference
from ladder.gpu.instance import Check, Instance
from ladder.gpu.launching import Loaded, load, static_shared_bytes
from ladder.gpu.stamps import DeviceClock
from ladder.gpu.tensor import Tensor
from ladder.gpu.timing import CheckedLaunch, StoppingRule, Timer, TimesDisagree
from ladder.model.cell import BACK_TO_BACK, Cell, Partner, size_label
from ladder.model.errors import LadderError
from ladder.model.plan import Edge, Launch, Plan, Task
from ladder.model.problem import COPY, GATE, NOTHING, Params

REFERENCE = 1  # where its outputs are: see Instance.writing_to

_WEIGHTS = (
    (0.75, 0.5, "nan"),
    (1.0, 0.0, "inf"),
    (-1.5, 1.0, "nan"),
    (0.0, -1.5, "nan"),
    (0.5, -1.5, "nan"),
    (2.0, 0.0, "inf"),
)
"""alpha, beta, and what C holds ahead of a launch with beta = 0."""
_BOOST = 1.15  # of a clock over the one that a GPU reports
_WARM_UP_S = 0.15  # the clocks of an idle GPU take about 0.1 s to rise
_HELD_S = 0.05  # longer than most launches take
_SPARE_BYTES = 256 * 1024 * 1024
_COPY_BYTES = 2**31


class CellOutcome(Exception):
    """Ends a cell with a status other than ok; with it the process where memory was `spoilt`.

    `transient`: because of what else the GPU was in use for.
    """

    def __init__(
        self, status: str, reason: str, spoilt: bool = False, transient: bool = False
    ) -> None:
        super().__init__(reason)
        self.result: dict[str, Any] = {"status": status, "reason": reason}
        if transient:
            self.result["transient"] = True
        self.spoilt = spoilt

    def of(self, subject: str) -> "CellOutcome":
        """The same outcome with a reason that names whose it is."""
        return CellOutcome(self.result["status"], f"{subject}: {self}", self.spoilt)


def _takes_beta(launch: Launch) -> bool:
    return any(argument.get("scalar") == "beta" for argument in launch.arguments)


@dataclass
class VerifiedReference:
    """A reference with outputs of its own; `swapped` writes to the variant's. `us`: about how long a launch takes."""

    launcher: Launcher
    swapped: Launcher | None = None
    us: float | None = None


@dataclass
class References:
    """What was verified for the current instance, None where it is missing or wrong, and notes by name."""

    verified: dict[Any, VerifiedReference | None] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    copy_us: float | None = None


class Bench:
    """Holds the GPU and the instance of the current size, dtype and layout.

    `traced` by a profiler or a sanitizer, which CUPTI does not go with: then there is no device clock.
    """

    def __init__(self, plan: Plan, cubins: Path, traced: bool = False) -> None:
        self.plan, self.cubins = plan, cubins
        problem = f"ladder.problems.{plan.problem}"
        self.problem = importlib.import_module(problem).PROBLEM
        settings: Any = plan.settings
        self.rule = StoppingRule(
            settings["precision"],
            settings["min_pairs"],
            settings["max_pairs"],
            settings["cell_seconds"],
        )
        self.warm_below_us = settings["warm_below_us"]
        self._seed = settings["seed"]
        first_dtype = next(iter(plan.harness))
        cubin, symbols = self._compiled_harness(first_dtype)
        self.gpu = Gpu(cubin, symbols)
        self._harness_by_dtype: dict[str, Harness] = {first_dtype: self.gpu.harness}
        self.timer = Timer(self.gpu, None if traced else self._device_clock(symbols))
        kind = importlib.import_module(f"{problem}.instance").INSTANCE
        self._create = kind.maker(self.timer, settings)
        self._instance: Instance | None = None
        self._operands: tuple[Any, ...] | None = None
        self._edge_outcomes = dict[str, CellOutcome | None]()
        self._edge_instances = dict[tuple[Any, ...], Instance]()
        self.external = {
            name: ExternalReference(given) for name, given in plan.external.items()
        }
        # Says ahead of a result what may end the process.
        self.doing: Callable[[str], None] = lambda subject: None
        self.references = References()
        self.gpu.l2.warm_up(_WARM_UP_S)

    def _compiled_harness(self, dtype: str) -> tuple[bytes, dict[str, str]]:
        """Cubin and symbols."""
        facts = self.plan.harness[dtype]
        return self._cubin(facts), facts["symbols"]

    def _cubin(self, facts: Mapping[str, Any]) -> bytes:
        return (self.cubins / f"{facts['cubin']}.cubin").read_bytes()

    def _device_clock(self, symbols: Mapping[str, str]) -> DeviceClock | None:
        self.device_clock = "CUPTI"
        try:
            return DeviceClock(symbols[GATE], symbols[NOTHING])
        except LadderError as error:
            self.device_clock = str(error)
            return None

    def _use_harness(self, dtype: str) -> None:
        if dtype not in self._harness_by_dtype:
            cubin, symbols = self._compiled_harness(dtype)
            self._harness_by_dtype[dtype] = Harness(self.gpu, cubin, symbols)
        self.gpu.harness = self._harness_by_dtype[dtype]

    def facts(self) -> dict[str, Any]:
        """The GPU as CUDA sees it: peaks at the boost clock, copy rate (GB/s, both ways), floor of its clock (us)."""
        gpu = self.gpu
        size = min(_COPY_BYTES, gpu.free_bytes() // 4)
        source, target = gpu.allocate(size), gpu.allocate(size)
        source.fill(0x5BD1E995.to_bytes(4, "little"), stream=gpu.stream)
        copy = partial(gpu.copy, int(target.handle), int(source.handle), size)
        (copy_us,) = self.timer.quick_medians([copy])
        (floor_us,) = self.timer.quick_medians([gpu.harness.nothing])
        source.close(gpu.stream)
        target.close(gpu.stream)
        return {
            "name": gpu.device.name,
            "compute_capability": ".".join(map(str, gpu.compute_capability)),
            "sms": gpu.sms,
            "l2_bytes": gpu.l2_bytes,
            "boost_clock_mhz": gpu.boost_clock_mhz or None,
            "fp32_peak_tflops": gpu.fp32_tflops,
            "tensor_peak_tflops": gpu.tensor_tflops,
            "copy_gbytes_per_s": round(2 * size / copy_us / 1e3, 2),
            "clock_floor_us": round(floor_us, 4),
            "device_clock": self.device_clock,
        }

    def instance(self, cell: Cell) -> Instance:
        """The instance of a cell. Raises CellOutcome where it does not fit into memory."""
        if self._instance is not None and cell.operands == self._operands:
            return self._instance
        self.release()
        needed = self.problem.device_bytes(cell.size, cell.dtype)
        free = self.gpu.free_bytes() - _SPARE_BYTES
        if needed > free:
            reason = f"needs {needed} bytes of device memory, {free} are free"
            held = needed <= self.gpu.total_bytes() - _SPARE_BYTES  # by another process
            raise CellOutcome("unsupported", reason, transient=held)
        self._use_harness(cell.dtype)
        instance: Instance = self._create(self.gpu, cell.size, cell.dtype, cell.layout)
        self.draw(instance)
        self._instance, self._operands = instance, cell.operands
        return instance

    def draw(self, instance: Instance) -> None:
        """Draw the inputs that `check` has an answer for."""
        instance.fill_inputs(self._seed)

    def places(self, instance: Instance) -> int:
        """How many sets of outputs fit into memory, with those that are allocated."""
        more = int(self.gpu.free_bytes() // 2 // instance.place_bytes())
        return max(1, instance.places() + more)

    def release(self) -> None:
        """Give up the current instance, and all that was loaded for it."""
        if self._instance is not None:
            self._instance.close()
        self._instance = self._operands = None
        self.references = References()

    def load(self, launch: Launch, instance: Instance) -> Loaded:
        """A kernel, ready to launch, with its workspaces.

        Raises CellOutcome for one that did not compile or cannot be launched here, OutOfDeviceMemory.
        """
        facts = self.plan.variants[launch.variant]
        if facts["status"] != "ok":
            raise CellOutcome(facts["status"], str(facts["reason"]))
        cubin = self._cubin(facts)
        shared = launch.shared_bytes + static_shared_bytes(cubin)
        most = self.gpu.block_shared_bytes
        if shared > most:
            reason = f"needs {shared} bytes of shared memory per block, the device has {most}"
            raise CellOutcome("unsupported", reason)
        self.gpu.scrub_shared()  # of what another kernel left
        return load(cubin, launch, instance)

    def loaded(self, task: Task) -> Loaded:
        """A task's kernel, ready to launch. It is not verified here."""
        assert task.launch is not None
        return self.load(task.launch, self.instance(task.cell))

    def check(
        self, launcher: Launcher, params: Params, instance: Instance
    ) -> tuple[Check, float]:
        """Launch once on poisoned outputs, as in timing, and check every output: the check, and the time in us.

        Raises CellOutcome where launches wrote other memory.
        """
        launch = CheckedLaunch(launcher, instance.poison_outputs)
        launch_us = self.timer.time_once(launch)
        self.refuse_memory_violation(instance)
        with self.timer.working():
            return instance.check(params), launch_us

    def memory_violation(self, *instances: Instance) -> CellOutcome | None:
        """What launches wrote that they must not, in these instances or in all."""
        looked_at = list(instances)
        if not looked_at:
            looked_at += self._edge_instances.values()
            looked_at += [self._instance] if self._instance else []
        with self.timer.working():
            for instance in looked_at:
                violation = instance.memory_violation()
                if violation:
                    return CellOutcome(*violation, spoilt=True)
        return None

    def refuse_memory_violation(self, instance: Instance) -> None:
        """Raises CellOutcome where launches wrote what they must not."""
        violation = self.memory_violation(instance)
        if violation is not None:
            raise violation

    def verified(
        self, launch: Launch, instance: Instance
    ) -> tuple[Loaded, Check, float]:
        """Load, run and check: the kernel, its check, its time in us. Raises CellOutcome for a wrong result."""
        loaded = self.load(launch, instance)
        check, launch_us = self.check(loaded, launch.params, instance)
        if not check.correct:
            raise CellOutcome("incorrect", str(check))
        return loaded, check, launch_us

    def verify_edges(self, variant: str, cell: Cell) -> None:
        """Check a variant of the cell's dtype and layout once where kernels break, whatever sizes are asked for.

        Raises CellOutcome for a wrong result, whenever it is asked about that variant again.
        """
        if variant not in self._edge_outcomes:
            self._edge_outcomes[variant] = None
            try:
                for number, edge in enumerate(self.plan.edges.get(variant, ())):
                    self._verify_edge(edge, cell, number)
            except CellOutcome as outcome:
                self._edge_outcomes[variant] = outcome
        failure = self._edge_outcomes[variant]
        if failure is not None:
            raise failure

    def edges(self, variant: str, cell: Cell) -> list[tuple[Launch, Instance]]:
        """How a variant is launched at each of its edges that cost little, and the instance there."""
        return [
            (edge.launch, self._edge_instance(edge, cell))
            for edge in self.plan.edges.get(variant, ())
            if not self.problem.is_costly(edge.size)
        ]

    def _edge_instance(self, edge: Edge, cell: Cell) -> Instance:
        key = (cell.dtype, cell.layout, *edge.size.items())
        if key not in self._edge_instances:
            instance = self._create(self.gpu, edge.size, cell.dtype, cell.layout)
            self._edge_instances[key] = instance
        return self._edge_instances[key]

    def _verify_edge(self, edge: Edge, cell: Cell, number: int) -> None:
        """Check one size with inputs of every kind, or of the first where it is costly, alpha = 1 and beta = 0.

        A kernel that takes beta is checked with other alpha and beta too, for one kind: another one at each edge.
        """
        instance = self._edge_instance(edge, cell)
        kinds = self.problem.inputs
        weighted_kind = kinds[number % len(kinds)]
        if self.problem.is_costly(edge.size) or not self._inputs(instance):
            kinds = kinds[:1]
        for kind in kinds:
            with instance.inputs_of_kind(kind):
                self._verify_weights(edge, instance, 1.0, 0.0, "nan")
                if kind == weighted_kind and _takes_beta(edge.launch):
                    weights = _WEIGHTS[number % len(_WEIGHTS)]
                    self._verify_weights(edge, instance, *weights)
        self.refuse_memory_violation(instance)

    def _verify_weights(
        self, edge: Edge, instance: Instance, alpha: float, beta: float, before: str
    ) -> None:
        """Check a launch at an edge; C holds `before` ahead of it. Where alpha is 0, NaN inputs must not show."""
        instance.use_scalars(alpha, beta, before)
        self.draw(instance)
        loaded = self.load(edge.launch, instance)
        nan_inputs = alpha == 0.0 and not edge.nan_at_alpha_zero
        with self.timer.working():
            instance.poison_outputs()
            if nan_inputs:
                for tensor in self._inputs(instance):
                    # NaN in every type that has alpha
                    tensor.buffer.fill(b"\xff", stream=self.gpu.stream)
            loaded()
            if nan_inputs:
                self.draw(instance)
            check = instance.check(edge.launch.params)
        if check.correct:
            return
        if nan_inputs and math.isinf(check.max_error):
            raise CellOutcome("incorrect", self._nan_at_alpha_zero(edge, check))
        where = f"at {size_label(edge.size)}"
        if "beta" in self.problem.scalars:
            over_nan = " over nan" if nan_inputs else ""
            over_before = f" over {before}" if beta == 0 else ""
            where += f" with alpha = {alpha:g}{over_nan}, beta = {beta:g}{over_before}"
        raise CellOutcome("incorrect", f"{where}, {instance.inputs} inputs: {check}")

    def _nan_at_alpha_zero(self, edge: Edge, check: Check) -> str:
        kernel = self.plan.variants[edge.launch.variant]["kernel"]
        return (
            "with alpha = 0 the result must be beta * C even where A and B hold NaN (BLAS); "
            f"at {size_label(edge.size)} {check}. If your kernel does not promise that, "
            f"say `nan_at_alpha_zero: true` in {kernel}.yaml"
        )

    def _inputs(self, instance: Instance) -> list[Tensor]:
        names = [name for name in self.problem.buffers if name not in instance.outputs]
        return [instance.tensors[name] for name in names]

    def refuse_other_weights(self, launch: Launch, instance: Instance) -> None:
        """Raises CellOutcome where a kernel is wrong at this size with other alpha and beta, if it takes any."""
        if not _takes_beta(launch):
            return
        usual = instance.scalars
        alpha, beta, before = _WEIGHTS[0]
        instance.use_scalars(alpha, beta, before)
        self.draw(instance)
        try:
            check, _ = self.check(self.load(launch, instance), launch.params, instance)
        finally:
            instance.use_scalars(usual["alpha"], usual["beta"])
        if not check.correct:
            weights = f"alpha = {alpha:g}, beta = {beta:g}"
            raise CellOutcome("incorrect", f"with {weights}: {check}")

    def reference(
        self, task: Task, partner: Partner, instance: Instance
    ) -> VerifiedReference:
        """A task's reference. Raises CellOutcome for none or a wrong one."""
        if task.reference is None:
            reference = self.library(partner, self.reference_params(task), instance)
            if reference is None:
                reason = "no reference: " + "; ".join(self.notes())
                # An algorithm that was chosen was there, on some GPU of the model.
                gone = bool(partner.algorithm)
                raise CellOutcome("unsupported", reason, transient=gone)
            return reference
        verified = self.references.verified
        if partner not in verified:
            with instance.writing_to(REFERENCE):
                try:
                    self.verify_edges(partner.reference, task.cell)
                    kernel, _, _ = self.verified(task.reference, instance)
                except CellOutcome as outcome:
                    raise outcome.of(f"the reference {partner}") from outcome
            verified[partner] = VerifiedReference(kernel)
        kernel_reference = verified[partner]
        assert kernel_reference is not None
        return kernel_reference

    def reference_params(self, task: Task) -> Params:
        """What the answer of a task's reference depends on: a kernel's parameters, of others those of the problem."""
        if task.reference is not None:
            return task.reference.params
        assert task.launch is not None
        return {name: task.launch.params[name] for name in self.problem.parameters}

    def another(self, task: Task, partner: Partner, instance: Instance) -> Launcher:
        """A task's `reference` anew, for the outputs that are there. Raises LadderError."""
        if task.reference is not None:
            return self.load(task.reference, instance)
        return self.loaded_library(partner, self.reference_params(task), instance)

    def swapped_reference(
        self, task: Task, partner: Partner, instance: Instance
    ) -> Launcher:
        """A task's `reference`, writing to the variant's outputs. One launch has loaded its kernel."""
        reference = self.reference(task, partner, instance)
        if reference.swapped is None:
            reference.swapped = self.another(task, partner, instance)
            with self.timer.working():
                # A library may load another kernel for another place.
                reference.swapped()
        return reference.swapped

    def reference_us(self, reference: VerifiedReference) -> float:
        """About how long a launch of a reference takes, in us, once for the current instance."""
        if reference.us is None:
            (reference.us,) = self.timer.quick_medians([reference.launcher])
        return reference.us

    def candidates(self, choice: Cell, instance: Instance) -> list[Partner]:
        """All that may be the reference of a choice; what is missing leaves a note. Raises CellOutcome for none."""
        candidates = list[Partner]()
        for name in choice.reference.libraries:
            if name in self.external:
                if self.library(Partner(name), choice.params, instance) is not None:
                    candidates.append(Partner(name))
                continue
            try:
                algorithms = instance.library(name)
                candidates += [Partner(name, algorithm) for algorithm in algorithms]
            except LadderError as error:
                self.references.notes[name] = str(error)
        if not candidates:
            raise CellOutcome("unsupported", "; ".join(self.notes()))
        return candidates

    def loaded_library(
        self, partner: Partner, params: Params, instance: Instance
    ) -> Launcher:
        """A library or an external reference, for the outputs that are there. Raises LadderError without one."""
        if partner.reference in self.external:
            external = self.external[partner.reference]
            return external.launcher(self.problem, instance, params)
        algorithms = instance.library(partner.reference)
        if partner.algorithm not in algorithms:
            asked = partner.algorithm or "one without a name"
            raise LadderError(f"its list of algorithms does not hold {asked!r}")
        return algorithms[partner.algorithm]

    def library(
        self, partner: Partner, params: Params, instance: Instance
    ) -> VerifiedReference | None:
        """A library or an external reference, verified, with outputs of its own; None, and a note, for none."""
        key = partner, *params.items()
        verified = self.references.verified
        if key not in verified:
            external = partner.reference in self.external
            verify = self._verify_external if external else self._verify_library
            with instance.writing_to(REFERENCE):
                launcher = verify(partner, params, instance)
            verified[key] = VerifiedReference(launcher) if launcher else None
        return verified[key]

    def _verify_library(
        self, partner: Partner, params: Params, instance: Instance
    ) -> Launcher | None:
        """A library reference; None, and a note, where there is none or its result is wrong."""
        try:
            launcher = self.loaded_library(partner, params, instance)
        except LadderError as error:
            self.references.notes[str(partner)] = str(error)
            return None
        launcher()  # which loads its kernel
        if partner.reference == COPY:
            return launcher
        check, _ = self.check(launcher, {}, instance)  # libraries have no parameters
        if check.correct:
            return launcher
        self.references.notes[str(partner)] = f"wrong: {check}"
        return None

    def _verify_external(
        self, partner: Partner, params: Params, instance: Instance
    ) -> Launcher | None:
        """An external reference; None, and a note, where it fails or is wrong.

        Raises CellOutcome, which names it, where memory or the context is spoilt.
        """
        name, notes = partner.reference, self.references.notes
        file = str(self.external[name])
        subject = f"the reference {name}: {file}"
        self.doing(subject)
        try:
            launcher = self.loaded_library(partner, params, instance)
            launcher()  # which loads its kernels
            self.gpu.sync()
            check, _ = self.check(launcher, params, instance)
            if not check.correct:
                notes[name] = f"{file}: wrong: {check}"
            elif self._enqueues_elsewhere(launcher, params, instance):
                notes[name] = f"{file}: does not enqueue on its stream"
            else:
                return launcher
        except OutOfDeviceMemory:
            raise
        except CellOutcome as outcome:
            raise outcome.of(subject) from outcome
        except Exception as error:
            if not self.recovers():
                reason = f"{subject}: {type(error).__name__}: {error}"
                raise CellOutcome("launch_error", reason, spoilt=True) from error
            if not isinstance(error, LadderError):
                raise
            text = str(error)
            notes[name] = text if file in text else f"{file}: {text}"
        finally:
            self.doing("")
        return None

    def _enqueues_elsewhere(
        self, launcher: Launcher, params: Params, instance: Instance
    ) -> bool:
        """True if the reference launches on another stream.

        It then finishes while our stream is blocked, the poison is written afterwards, and the check fails.
        """

        def launch() -> None:
            instance.poison_outputs()
            launcher()
            time.sleep(_HELD_S)

        self.timer.time_once(CheckedLaunch(launch))
        with self.timer.working():
            return not instance.check(params).correct

    def host_is_slow(self) -> bool:
        """Whether even an empty launch ends later by the host's clock than events allow: no kernel is to blame then."""
        try:
            self.timer.quick_medians([self.gpu.harness.nothing])
        except TimesDisagree:
            return True
        return False

    def recovers(self, release: bool = False) -> bool:
        """Whether the context still works after an error; `release` gives the current instance up, as part of it."""
        try:
            self.gpu.sync()
            if release:
                self.release()
        except Exception:
            return False
        return True

    def notes(self) -> list[str]:
        """Which references are missing at these operands or are wrong, and why: what is true of many, once."""
        names_by_text = dict[str, list[str]]()
        for name, text in self.references.notes.items():
            names_by_text.setdefault(text, []).append(name)
        lines = []
        for text, (name, *others) in names_by_text.items():
            more = f" and {len(others)} more" if others else ""
            lines.append(f"{name}{more}: {text}")
        return lines

    def least_us(self, cell: Cell, params: Params, instance: Instance) -> float:
        """The least time (us) of an honest launch: operations at the peak rate, bytes at the memory's.

        Bytes count after a flush: the inputs, and what of the outputs the L2 cannot keep.
        """
        gpu = self.gpu
        tflops = gpu.tensor_tflops.get(cell.dtype) or 0.0
        if cell.dtype == "fp32":
            # Tensor cores may reach the accuracy of fp32.
            tflops = max(gpu.tensor_tflops.get("tf32") or 0.0, gpu.fp32_tflops or 0.0)
        if not gpu.full_rate_fp64:
            tflops *= _BOOST  # GPUs that are not made for data centres may run above the clock that they report
        operations = self.problem.work(cell.size, cell.dtype, params).operations
        arithmetic_us: float = operations / tflops / 1e6 if tflops else 0.0
        if cell.regime in BACK_TO_BACK:
            return arithmetic_us
        read = sum(tensor.buffer.size for tensor in self._inputs(instance))
        written = sum(instance.tensors[name].buffer.size for name in instance.outputs)
        moved = read + max(0, written - gpu.l2_bytes)
        return max(arithmetic_us, float(moved / gpu.memory_bytes_per_us))

    def copy_us(self, instance: Instance) -> float | None:
        """Time (us) of a copy of the instance's data, for problems that have one as a library."""
        if self.references.copy_us is None and COPY in self.problem.libraries:
            copy = list(instance.library(COPY).values())
            self.references.copy_us = self.timer.quick_medians(copy)[0]
        return self.references.copy_us

"""The bench: a GPU, the instance of the current size, kernels verified on it, and what they are timed against."""

import importlib
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ladder.gpu.device import Gpu, Harness, Launcher, OutOfDeviceMemory
from ladder.gpu.external import ExternalReference
from ladder.gpu.instance import Check, Instance
from ladder.gpu.launching import Loaded, load, static_shared_bytes
from ladder.gpu.stamps import DeviceClock
from ladder.gpu.tensor import Tensor
from ladder.gpu.timing import CheckedLaunch, Timer, TimesDisagree
from ladder.model.cell import BACK_TO_BACK, Cell, Partner, size_label
from ladder.model.errors import LadderError
from ladder.model.plan import Edge, Launch, Plan, Task
from ladder.model.problem import COPY, GATE, NOTHING, Params, Problem

REFERENCE = 1  # where its outputs are: see Instance.writing_to

_Key = tuple[Any, ...]
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


def _takes_beta(launch: Launch) -> bool:
    return any(argument.get("scalar") == "beta" for argument in launch.arguments)


def _say_nothing(_: str) -> None:
    """In place of a pipe to the supervisor."""


class References:
    """What is loaded for the current instance and verified on it, times in us, and notes by name.

    A library is None where it is missing or wrong. `swapped` ones write to the variant's outputs.
    """

    def __init__(self) -> None:
        self.libraries = dict[_Key, Launcher | None]()
        self.kernels = dict[Partner, Launcher]()
        self.swapped = dict[_Key, Launcher]()
        self.times_us = dict[_Key, float]()
        self.notes = dict[str, str]()
        self.copy_us: float | None = None


class Bench:
    """Holds the GPU and the instance of the current size, dtype and layout.

    `traced` by a profiler or a sanitizer, which CUPTI does not go with: then there is no device clock.
    """

    def __init__(self, plan: Plan, cubins: Path, traced: bool = False) -> None:
        self.problem: Problem = importlib.import_module(
            f"ladder.problems.{plan.problem}"
        ).PROBLEM
        self.variants, self.cubins = plan.variants, cubins
        self._harness_facts = plan.harness
        first_dtype = next(iter(plan.harness))
        cubin, symbols = self._compiled_harness(first_dtype)
        self.gpu = Gpu(cubin, symbols)
        self._harness_by_dtype: dict[str, Harness] = {first_dtype: self.gpu.harness}
        self.timer = Timer(self.gpu, None if traced else self._device_clock(symbols))
        kind: type[Instance] = importlib.import_module(
            f"ladder.problems.{plan.problem}.instance"
        ).INSTANCE
        self._create = kind.maker(self.timer, plan.settings)
        self._seed = int(plan.settings["seed"] or 0)
        self._instance: Instance | None = None
        self._operands: _Key | None = None
        self._edges = plan.edges
        self._edge_outcomes = dict[str, CellOutcome | None]()
        self._edge_instances = dict[_Key, Instance]()
        self.external = {
            name: ExternalReference(given) for name, given in plan.external.items()
        }
        # Says ahead of a result what may end the process.
        self.doing: Callable[[str], None] = _say_nothing
        self.references = References()
        self.gpu.l2.warm_up(_WARM_UP_S)

    def _compiled_harness(self, dtype: str) -> tuple[bytes, dict[str, str]]:
        """Cubin and symbols."""
        facts = self._harness_facts[dtype]
        return (self.cubins / f"{facts['cubin']}.cubin").read_bytes(), facts["symbols"]

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
        for buffer in (source, target):
            buffer.close(gpu.stream)
        return {
            "name": gpu.device.name,
            "compute_capability": ".".join(
                str(part) for part in gpu.compute_capability
            ),
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
        instance = self._create(self.gpu, cell.size, cell.dtype, cell.layout)
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
        facts = self.variants[launch.variant]
        if facts["status"] != "ok":
            raise CellOutcome(facts["status"], str(facts["reason"]))
        cubin = (self.cubins / f"{facts['cubin']}.cubin").read_bytes()
        shared = launch.shared_bytes + static_shared_bytes(cubin)
        most = self.gpu.block_shared_bytes
        if shared > most:
            reason = f"needs {shared} bytes of shared memory per block, the device has {most}"
            raise CellOutcome("unsupported", reason)
        for argument in launch.arguments:
            if "workspace" in argument:
                instance.provide_workspace(argument)
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
        launch_us = self.timer.time_once(
            CheckedLaunch(launcher, instance.poison_outputs)
        )
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
                    status, reason = violation
                    return CellOutcome(status, reason, spoilt=True)
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
                for number, edge in enumerate(self._edges.get(variant, ())):
                    self._verify_edge(edge, cell, number)
            except CellOutcome as outcome:
                self._edge_outcomes[variant] = outcome
        failure = self._edge_outcomes[variant]
        if failure is not None:
            raise failure

    def edges(self, variant: str, cell: Cell) -> list[tuple[Launch, Instance]]:
        """How a variant is launched at each of its edges, and the instance there."""
        return [
            (edge.launch, self._edge_instance(edge, cell))
            for edge in self._edges.get(variant, ())
        ]

    def _edge_instance(self, edge: Edge, cell: Cell) -> Instance:
        key = (cell.dtype, cell.layout, *edge.size.items())
        if key not in self._edge_instances:
            self._edge_instances[key] = self._create(
                self.gpu, edge.size, cell.dtype, cell.layout
            )
        return self._edge_instances[key]

    def _verify_edge(self, edge: Edge, cell: Cell, number: int) -> None:
        """Check one size with inputs of every kind, alpha = 1 and beta = 0.

        A kernel that takes beta is checked with other alpha and beta too, for one kind: another one at each edge.
        """
        instance = self._edge_instance(edge, cell)
        kinds = self.problem.inputs
        weighted_kind = kinds[number % len(kinds)]
        for kind in kinds if self._inputs(instance) else kinds[:1]:
            with instance.inputs_of_kind(kind):
                self._verify_weights(edge, instance, 1.0, 0.0, "nan")
                if kind == weighted_kind and _takes_beta(edge.launch):
                    self._verify_weights(
                        edge, instance, *_WEIGHTS[number % len(_WEIGHTS)]
                    )
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
                self._fill_inputs_with_nan(instance)
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
        file = f"{self.variants[edge.launch.variant]['kernel']}.yaml"
        return (
            "with alpha = 0 the result must be beta * C even where A and B hold NaN (BLAS); "
            f"at {size_label(edge.size)} {check}. If your kernel does not promise that, "
            f"say `nan_at_alpha_zero: true` in {file}"
        )

    def _fill_inputs_with_nan(self, instance: Instance) -> None:
        for tensor in self._inputs(instance):
            tensor.buffer.fill(b"\xff", stream=self.gpu.stream)  # NaN in every type

    def _inputs(self, instance: Instance) -> list[Tensor]:
        return [
            instance.tensors[name]
            for name in self.problem.buffers
            if name not in instance.outputs
        ]

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
            raise CellOutcome(
                "incorrect", f"with alpha = {alpha:g}, beta = {beta:g}: {check}"
            )

    def reference(self, task: Task, partner: Partner, instance: Instance) -> Launcher:
        """A task's reference, verified, with outputs of its own. Raises CellOutcome for none or a wrong one."""
        if task.reference is None:
            library = self.library(partner, self.reference_params(task), instance)
            if library is None:
                # An algorithm that was chosen was there, on some GPU of the model.
                gone = bool(partner.algorithm)
                raise CellOutcome(
                    "unsupported",
                    "no reference: " + "; ".join(self.notes()),
                    transient=gone,
                )
            return library
        kernels = self.references.kernels
        if partner not in kernels:
            with instance.writing_to(REFERENCE):
                try:
                    self.verify_edges(partner.reference, task.cell)
                    kernels[partner], _, _ = self.verified(task.reference, instance)
                except CellOutcome as outcome:
                    reason = f"the reference {partner}: {outcome}"
                    raise CellOutcome(
                        outcome.result["status"], reason, outcome.spoilt
                    ) from outcome
        return kernels[partner]

    def candidates(self, choice: Cell, instance: Instance) -> list[Partner]:
        """All that may be the reference of a choice; what is missing leaves a note. Raises CellOutcome for none."""
        candidates = list[Partner]()
        for name in choice.reference.libraries:
            if name in self.external:
                if self.library(Partner(name), choice.params, instance) is not None:
                    candidates.append(Partner(name))
                continue
            try:
                candidates += [
                    Partner(name, algorithm) for algorithm in instance.library(name)
                ]
            except LadderError as error:
                self.note(name, str(error))
        if not candidates:
            raise CellOutcome("unsupported", "; ".join(self.notes()))
        return candidates

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
        key = partner, *self.reference_params(task).items()
        swapped = self.references.swapped
        if key not in swapped:
            swapped[key] = self.another(task, partner, instance)
            with self.timer.working():
                swapped[key]()  # A library may load another kernel for another place.
        return swapped[key]

    def loaded_library(
        self, partner: Partner, params: Params, instance: Instance
    ) -> Launcher:
        """A library or an external reference, for the outputs that are there. Raises LadderError without one."""
        if partner.reference in self.external:
            return self.external[partner.reference].launcher(
                self.problem, instance, params
            )
        algorithms = instance.library(partner.reference)
        if partner.algorithm not in algorithms:
            asked = partner.algorithm or "one without a name"
            raise LadderError(f"its list of algorithms does not hold {asked!r}")
        return algorithms[partner.algorithm]

    def library(
        self, partner: Partner, params: Params, instance: Instance
    ) -> Launcher | None:
        """A library or an external reference, verified, with outputs of its own; None, and a note, for none."""
        key = partner, *params.items()
        libraries = self.references.libraries
        if key not in libraries:
            verified = (
                self._external if partner.reference in self.external else self._library
            )
            with instance.writing_to(REFERENCE):
                libraries[key] = verified(partner, params, instance)
        return libraries[key]

    def _external(
        self, partner: Partner, params: Params, instance: Instance
    ) -> Launcher | None:
        """An external reference, verified; None, and a note, where it fails or is wrong.

        Raises CellOutcome, which names it, where memory or the context is spoilt.
        """
        name = partner.reference
        file = str(self.external[name])
        reference = f"the reference {name}: {file}"
        self.doing(reference)
        try:
            launcher = self.loaded_library(partner, params, instance)
            launcher()  # which loads its kernels
            self.gpu.sync()
            check, _ = self.check(launcher, params, instance)
            elsewhere = check.correct and self._enqueues_elsewhere(
                launcher, params, instance
            )
        except OutOfDeviceMemory:
            raise
        except CellOutcome as outcome:
            reason = f"{reference}: {outcome}"
            raise CellOutcome(
                outcome.result["status"], reason, outcome.spoilt
            ) from outcome
        except Exception as error:
            if not self.recovers():
                reason = f"{reference}: {type(error).__name__}: {error}"
                raise CellOutcome("launch_error", reason, spoilt=True) from error
            if not isinstance(error, LadderError):
                raise
            text = str(error)
            self.note(name, text if file in text else f"{file}: {text}")
            return None
        finally:
            self.doing("")
        if not check.correct:
            self.note(name, f"{file}: wrong: {check}")
            return None
        if elsewhere:
            self.note(name, f"{file}: does not enqueue on its stream")
            return None
        return launcher

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

    def _library(
        self, partner: Partner, params: Params, instance: Instance
    ) -> Launcher | None:
        """A library reference, verified; None, and a note, where there is none or its result is wrong."""
        try:
            launcher = self.loaded_library(partner, params, instance)
        except LadderError as error:
            self.note(str(partner), str(error))
            return None
        launcher()  # which loads its kernel
        if partner.reference == COPY:
            return launcher
        check, _ = self.check(launcher, {}, instance)  # libraries have no parameters
        if check.correct:
            return launcher
        self.note(str(partner), f"wrong: {check}")
        return None

    def note(self, name: str, text: str) -> None:
        """Note something of a library or an external reference, for the current instance."""
        self.references.notes[name] = text

    def notes(self) -> list[str]:
        """Which libraries are missing at these operands or are wrong, and why: what is true of many, once."""
        names_by_text = dict[str, list[str]]()
        for name, text in self.references.notes.items():
            names_by_text.setdefault(text, []).append(name)
        lines = []
        for text, names in names_by_text.items():
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            lines.append(f"{names[0]}{others}: {text}")
        return lines

    def reference_us(self, partner: Partner, launcher: Launcher) -> float:
        """About how long a launch of a reference takes, in us, once for the current instance."""
        key = partner, launcher
        times_us = self.references.times_us
        if key not in times_us:
            (times_us[key],) = self.timer.quick_medians([launcher])
        return times_us[key]

    def least_us(self, cell: Cell, params: Params, instance: Instance) -> float:
        """The least time (us) of an honest launch: operations at the peak rate, bytes at the memory's.

        Bytes count after a flush: the inputs, and what of the outputs the L2 cannot keep.
        """
        gpu = self.gpu
        if cell.dtype == "fp32":
            # Tensor cores may reach the accuracy of fp32.
            tflops = max(gpu.tensor_tflops.get("tf32") or 0.0, gpu.fp32_tflops or 0.0)
        else:
            tflops = gpu.tensor_tflops.get(cell.dtype) or 0.0
        if not gpu.full_rate_fp64:
            tflops *= _BOOST  # GPUs that are not made for data centres may run above the clock that they report
        operations = self.problem.work(cell.size, cell.dtype, params).operations
        arithmetic_us = operations / tflops / 1e6 if tflops else 0.0
        if cell.regime in BACK_TO_BACK:
            return float(arithmetic_us)
        read = sum(tensor.buffer.size for tensor in self._inputs(instance))
        written = sum(instance.tensors[name].buffer.size for name in instance.outputs)
        moved = read + max(0, written - gpu.l2_bytes)
        return float(max(arithmetic_us, moved / gpu.memory_bytes_per_us))

    def copy_us(self, instance: Instance) -> float | None:
        """Time (us) of a copy of the instance's data, for problems that have one as a library."""
        if self.references.copy_us is None and COPY in self.problem.libraries:
            copy = [*instance.library(COPY).values()]
            self.references.copy_us = self.timer.quick_medians(copy)[0]
        return self.references.copy_us

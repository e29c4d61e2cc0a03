"""The bench: a GPU, the instance of the current size, and kernels verified on it."""

import importlib
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ladder.gpu.device import Gpu, Harness, Launcher
from ladder.gpu.external import ExternalCode
from ladder.gpu.instance import Check, Instance
from ladder.gpu.launching import load, static_shared_bytes
from ladder.gpu.stamps import DeviceClock
from ladder.gpu.tensor import Tensor
from ladder.gpu.timing import (
    CheckedLaunch,
    StoppingRule,
    Timer,
    TimesDisagree,
    chain_length,
)
from ladder.model.cell import BACK_TO_BACK, Cell, External, size_label
from ladder.model.errors import LadderError
from ladder.model.plan import Edge, Launch, Plan, Task
from ladder.model.problem import GATE, NOTHING, Params
from ladder.problems.registry import problem_of

REFERENCE = 1  # where its outputs are: see Instance.writing_to

Weights = tuple[float, float, str]
_WEIGHTS: tuple[Weights, ...] = (
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


class Bench:
    """Holds the GPU and the instance of the current size, dtype and layout.

    `traced` by a profiler or a sanitizer, which CUPTI does not go with: then there is no device clock.
    """

    current: Instance

    def __init__(self, plan: Plan, cubins: Path, traced: bool = False) -> None:
        self.plan = plan
        self.cubins = cubins
        self.launchers = {
            name: ExternalCode(External(**facts["launcher"]))
            for name, facts in plan.variants.items()
            if "launcher" in facts
        }
        self.problem = problem_of(plan.problem, plan.definition)
        settings: Any = plan.settings
        self.rule = StoppingRule(
            settings["precision"],
            settings["min_pairs"],
            settings["max_pairs"],
            settings["cell_seconds"],
        )
        self.warm_below_us = settings["warm_below_us"]
        self._seed = settings["seed"]
        dtype, harness = next(iter(plan.harness.items()))
        symbols = harness["symbols"]
        self.gpu = Gpu(self._cubin(harness), symbols)
        self._harness_by_dtype: dict[str, Harness] = {dtype: self.gpu.harness}
        self.timer = Timer(self.gpu, None if traced else self._device_clock(symbols))
        module = f"ladder.problems.{self.problem.folder}.instance"
        kind = importlib.import_module(module).INSTANCE
        self._create = kind.maker(self.timer, settings, self.problem)
        self._operands: tuple[Any, ...] | None = None  # of the current instance
        self._edge_outcomes = dict[str, CellOutcome | None]()
        self._edge_weights = defaultdict[str, set[Weights]](set)  # by variant
        self._edge_instances = dict[tuple[Any, ...], Instance]()
        self.gpu.l2.warm_up(_WARM_UP_S)

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
            facts = self.plan.harness[dtype]
            harness = Harness(self.gpu, self._cubin(facts), facts["symbols"])
            self._harness_by_dtype[dtype] = harness
        self.gpu.harness = self._harness_by_dtype[dtype]

    def facts(self) -> dict[str, Any]:
        """The GPU as CUDA sees it: peaks at the boost clock, copy rate (GB/s, both ways), floor of its clock (us)."""
        gpu = self.gpu
        size = min(_COPY_BYTES, gpu.free_bytes() // 4)
        source = gpu.allocate(size)
        target = gpu.allocate(size)
        source.fill(0x5BD1E995.to_bytes(4, "little"), stream=gpu.stream)
        copy = partial(gpu.copy, int(target.handle), int(source.handle), size)
        (copy_us,) = self.timer.quick_medians([copy])
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
            "clock_floor_us": round(self.timer.floor_us, 4),
            "device_clock": self.device_clock,
        }

    def instance(self, cell: Cell) -> Instance:
        """The instance of a cell, current from now on. Raises CellOutcome where it does not fit into memory."""
        if cell.operands == self._operands:
            return self.current
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
        self.current = instance
        self._operands = cell.operands
        return instance

    def draw(self, instance: Instance) -> None:
        """Draw the inputs that `check` has an answer for."""
        instance.fill_inputs(self._seed)

    def chain_length(self, us: float, sustained: bool) -> int:
        """Launches of about `us` in a chain, each of which has a set of outputs in memory."""
        more = int(self.gpu.free_bytes() // 2 // self.current.place_bytes())
        places = max(1, self.current.places() + more)
        return min(chain_length(us, sustained), places)

    def release(self) -> None:
        """Give up the current instance, and all that was loaded for it."""
        if self._operands is not None:
            self.current.close()
            del self.current
            self._operands = None

    def load(self, launch: Launch, instance: Instance) -> Launcher:
        """A kernel, ready to launch, with its workspaces.

        Raises CellOutcome for one that did not compile or cannot be launched here, OutOfDeviceMemory.
        """
        facts = self.plan.variants[launch.variant]
        if facts["status"] != "ok":
            raise CellOutcome(facts["status"], str(facts["reason"]))
        if launch.variant in self.launchers:
            return self._load_opaque(launch, instance)
        cubin = self._cubin(facts)
        shared = launch.shared_bytes + static_shared_bytes(cubin)
        most = self.gpu.block_shared_bytes
        if shared > most:
            reason = f"needs {shared} bytes of shared memory per block, the device has {most}"
            raise CellOutcome("unsupported", reason)
        self.gpu.scrub_shared()  # of what another kernel left
        return load(cubin, launch, instance)

    def _load_opaque(self, launch: Launch, instance: Instance) -> Launcher:
        """A launcher of one's own, which has launched once: what it loads and allocates is there.

        Raises CellOutcome where nothing shows on which streams it works, LadderError as it does.
        """
        if self.timer.device is None:
            why = "a launcher is judged by device timestamps alone"
            raise CellOutcome("unsupported", f"{why}: {self.device_clock}")
        code = self.launchers[launch.variant]
        enqueue = code.launcher(self.problem, instance, launch.params)

        def launcher() -> None:
            enqueue()
            self.gpu.refuse_other_context()

        launcher()
        self.gpu.sync()
        return launcher

    def loaded(self, task: Task) -> Launcher:
        """A task's kernel, ready to launch. It is not verified here."""
        assert task.launch is not None
        return self.load(task.launch, self.instance(task.cell))

    def check(self, launcher: Launcher, params: Params) -> tuple[Check, float]:
        """Launch once on poisoned outputs, as in timing, and check every output: the check, and the time in us.

        Raises CellOutcome where launches wrote other memory.
        """
        launch = CheckedLaunch(launcher, self.current.poison_outputs)
        launch_us = self.timer.time_once(launch)
        self.refuse_memory_violation(self.current)
        with self.timer.working():
            return self.current.check(params), launch_us

    def memory_violation(self, *instances: Instance) -> CellOutcome | None:
        """What launches wrote that they must not, in these instances or in all."""
        current = [self.current] if self._operands else []
        with self.timer.working():
            for instance in instances or [*self._edge_instances.values(), *current]:
                violation = instance.memory_violation()
                if violation:
                    return CellOutcome(*violation, spoilt=True)
        return None

    def refuse_memory_violation(self, instance: Instance) -> None:
        """Raises CellOutcome where launches wrote what they must not."""
        violation = self.memory_violation(instance)
        if violation is not None:
            raise violation

    def verified(self, launch: Launch) -> tuple[Launcher, Check, float]:
        """Load, run and check: the kernel, its check, its time in us. Raises CellOutcome for a wrong result."""
        loaded = self.load(launch, self.current)
        check, launch_us = self.check(loaded, launch.params)
        if not check.correct:
            raise CellOutcome("incorrect", str(check))
        return loaded, check, launch_us

    def verify_edges(self, variant: str, cell: Cell) -> None:
        """Check a variant of the cell's dtype and layout once where kernels break, whatever sizes are asked for.

        Raises CellOutcome for a wrong result, whenever it is asked about that variant again.
        """
        if variant not in self._edge_outcomes:
            wrong = None
            try:
                for number, (edge, instance) in enumerate(self.edges(variant, cell)):
                    self._verify_edge(edge, instance, number)
            except CellOutcome as outcome:
                wrong = outcome
            # Not reached where memory ran out: the edges are then checked again.
            self._edge_outcomes[variant] = wrong
        failure = self._edge_outcomes[variant]
        if failure is not None:
            raise failure

    def edges(self, variant: str, cell: Cell) -> Iterator[tuple[Edge, Instance]]:
        """Each edge of a variant with its instance, made when it is first asked for."""
        instances = self._edge_instances
        for edge in self.plan.edges.get(variant, ()):
            key = (cell.dtype, cell.layout, *edge.size.items())
            if key not in instances:
                operands = edge.size, cell.dtype, cell.layout
                instances[key] = self._create(self.gpu, *operands)
            yield edge, instances[key]

    def _verify_edge(self, edge: Edge, instance: Instance, number: int) -> None:
        """Check one size with inputs of every kind, or of the first where it is costly, alpha = 1 and beta = 0.

        A kernel that takes beta is checked with other alpha and beta too, for one kind: another one at each edge.
        """
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
                    self._edge_weights[edge.launch.variant].add(weights)
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

    def refuse_other_weights(self, launch: Launch) -> None:
        """Raises CellOutcome where a kernel is wrong at this size with other alpha and beta, if it takes any.

        Tries those that no edge was checked with, one at least.
        """
        if not _takes_beta(launch):
            return
        tried = self._edge_weights[launch.variant]
        untried = [weights for weights in _WEIGHTS if weights not in tried]
        instance = self.current
        usual = instance.scalars
        for alpha, beta, before in untried or _WEIGHTS[:1]:
            instance.use_scalars(alpha, beta, before)
            self.draw(instance)
            try:
                check, _ = self.check(self.load(launch, instance), launch.params)
            finally:
                instance.use_scalars(usual["alpha"], usual["beta"])
            if not check.correct:
                weights = f"alpha = {alpha:g}, beta = {beta:g}"
                raise CellOutcome("incorrect", f"with {weights}: {check}")

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

    def least_us(self, cell: Cell, params: Params) -> float:
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
        instance = self.current
        read = sum(tensor.buffer.size for tensor in self._inputs(instance))
        written = sum(instance.tensors[name].buffer.size for name in instance.outputs)
        moved = read + max(0, written - gpu.l2_bytes)
        return max(arithmetic_us, float(moved / gpu.memory_bytes_per_us))

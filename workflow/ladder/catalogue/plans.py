"""Plans: what a sweep and the configuration say, worked out for an architecture."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ladder.catalogue.config import Config
from ladder.model.cell import Cell, Reference, size_label
from ladder.model.errors import LadderError, refuse, within
from ladder.model.expressions import whole
from ladder.model.kernel import Argument, Variant
from ladder.model.plan import Edge, Launch, Plan, Task
from ladder.model.problem import Size
from ladder.model.sweep import Entry, Selection, Sweep

_MOST_BYTES = 2**40  # of a workspace, more than any GPU has
_JOB = ("deadline_s", "busy", "remeasure", "sessions")


def _argument(
    argument: Argument, variant: Variant, names: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """An argument of a launch as a plan has it. `where` names it in the description."""
    name = argument.name
    if argument.kind == "pointer":
        return {"pointer": name}
    if argument.kind == "workspace":
        with within(f"{where}.bytes"):
            size = whole(argument.bytes or 0, names)
        if not 0 <= size <= _MOST_BYTES:
            accepted = f"a whole number from 0 to {_MOST_BYTES}"
            raise refuse(where, "bytes", size, accepted)
        # A buffer for each size: one that grew would move, and kernels that are loaded hold its address.
        buffer = f"{name} workspace of {size} bytes"
        return {"pointer": buffer, "workspace": name, "bytes": size}
    if name in variant.kernel.problem.scalars:
        return {"scalar": name, "type": argument.type}
    if argument.kind == "scalar":
        with within(f"{where}.scalar"):
            return {"value": argument.value(names), "type": argument.type}
    with within(f"{where}.box"):
        box = [whole(extent, names) for extent in argument.box or ()]
    if not all(1 <= extent <= 256 for extent in box):
        accepted = "accepted: extents from 1 to 256"
        raise LadderError(f"{where}.box: {box} is not accepted; {accepted}")
    tensor_map = {"tensor_map": name, "box": box}
    if argument.shape is not None:  # Triton's compiler chooses swizzle and promotion
        with within(f"{where}.shape"):
            shape = [whole(extent, names) for extent in argument.shape]
        return {**tensor_map, "shape": shape}
    promotion = names.get(argument.l2_promotion, argument.l2_promotion)
    return {**tensor_map, "swizzle": argument.swizzle, "l2_promotion": promotion}


def launch_of(variant: Variant, size: Size) -> Launch:
    """How a variant is launched at a size. Raises LadderError where an expression gives what no launch takes."""
    names, arguments = variant.names(size), []
    for index, argument in enumerate(variant.kernel.arguments):
        where = f"{variant.kernel.path}: arguments[{index}]"
        arguments.append(_argument(argument, variant, names, where))
    return Launch(
        **vars(variant.geometry(size)),
        variant=variant.id,
        params=variant.params,
        arguments=tuple(arguments),
    )


def _kernel_reference(variant: Variant) -> Reference:
    return Reference(kernel=variant.kernel.name, params=variant.record_params)


def _task(sweep: Sweep, entry: Entry, size: Size, arch: str) -> Task:
    """The task of one cell; where the cell is absent, with the reason in place of launches."""
    variant, absent = entry.variant, sweep.absent(entry, size, arch)
    against, reference = None, Reference()
    if variant.absent() is None:
        against = sweep.reference.variant_for(variant)
        reference = Reference(sweep.reference.libraries)
    if against is not None:
        reference = _kernel_reference(against)

    def among(selection: Selection) -> bool:
        return absent is None and (variant, size) in selection

    return Task(
        variant.id,
        Cell(
            variant.kernel.name,
            variant.record_params,
            variant.dtype,
            variant.layout,
            size,
            sweep.regimes[0],
            reference,
        ),
        entry.rung,
        absent,
        launch=None if absent else launch_of(variant, size),
        reference=None if absent or not against else launch_of(against, size),
        counted=among(sweep.counted),
        sustained=among(sweep.sustained),
        repeated=among(sweep.repeated),
        errors=among(sweep.errors),
    )


def _tasks(sweep: Sweep, arch: str) -> Iterator[Task]:
    """The task of each cell, and that of a rung against the rung that it changes, where both are launched."""
    for entry, size in sweep.cells:
        task, baseline = _task(sweep, entry, size, arch), entry.baseline
        yield task
        if task.absent is not None or baseline is None or size not in baseline.sizes:
            continue
        reference = _kernel_reference(baseline.variant)
        if baseline.absent(size, arch) is None and reference != task.cell.reference:
            yield replace(
                task,
                cell=replace(task.cell, reference=reference),
                reference=launch_of(baseline.variant, size),
                counted=False,
                sustained=False,
                errors=False,
                baseline=baseline.rung,
            )


def _choices(plan: Plan, parameters: Iterable[str]) -> Iterator[Cell]:
    """The choices of references that tasks to launch depend on, in the order of these."""
    for task in plan.tasks:
        for regime in plan.regimes_of(task) if task.launch is not None else ():
            if (choice := task.cell.in_regime(regime).choice(parameters)) is not None:
                yield choice


def plan_edges(sweep: Sweep, arch: str) -> dict[str, tuple[Edge, ...]]:
    """Where else each variant of a sweep, and each kernel that one is timed against, is verified.

    Of each group of sizes at which kernels break that is the first that the variant takes on `arch`.
    Raises LadderError for one that is right at none of those sizes.
    """
    edges = {}
    unlaunched = sweep.never_launched(arch)
    launched = [variant for variant in sweep.variants if variant not in unlaunched]
    for variant in sorted(launched, key=lambda variant: variant.id):
        kernel, sizes = variant.kernel, list[Size]()
        groups = kernel.problem.edges(variant.params, variant.dtype)
        for group in groups:
            supported = [size for size in group if variant.absent(size, arch) is None]
            sizes += supported[:1]
        if not sizes:
            asked = ", ".join(size_label(size) for group in groups for size in group)
            raise LadderError(
                f"{kernel.path}: constraints: {variant.id} can be verified at none of the sizes {asked}: "
                f"{variant.absent(groups[-1][-1], arch)}; accepted is at least one of them"
            )
        departs = kernel.nan_at_alpha_zero
        at = [Edge(size, launch_of(variant, size), departs) for size in sizes]
        edges[variant.id] = tuple(at)
    return edges


def plan_sweep(sweep: Sweep, config: Config, arch: str) -> Plan:
    settings = config.measure.model_dump()
    job = {name: settings.pop(name) for name in _JOB}
    job["tuning"] = sweep.tuning
    job["profile"] = config.profile.model_dump()
    job["cubins"] = config.compile.cache
    if sweep.precision:
        settings["precision"] = sweep.precision
    plan = Plan(
        sweep=sweep.name,
        problem=sweep.problem.name,
        arch=arch,
        regimes=sweep.regimes,
        settings=settings,
        job=job,
        counter_groups=sweep.counter_groups,
        tasks=tuple(_tasks(sweep, arch)),
        external=sweep.reference.external,
        definition=sweep.problem.definition,
    )
    choices = {cell.id: cell for cell in _choices(plan, sweep.problem.parameters)}
    return replace(plan, choices=tuple(choices.values()))

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
from ladder.model.sweep import Entry, Sweep

_MOST_BYTES = 2**40  # of a workspace, more than any GPU has
_JOB = ("deadline_s", "busy", "remeasure", "sessions")


def _argument(argument: Argument, variant: Variant, names: Mapping[str, Any], where: str) -> dict[str, Any]:
    if argument.kind == "pointer":
        return {"pointer": argument.name}
    if argument.kind == "workspace":
        with within(f"{where}.bytes"):
            size = whole(argument.bytes or 0, names)
        if not 0 <= size <= _MOST_BYTES:
            raise refuse(where, "bytes", size, f"a whole number from 0 to {_MOST_BYTES}")
        # A buffer for each size: one that grew would move, and kernels that are loaded hold its address.
        return {
            "pointer": f"{argument.name} workspace of {size} bytes",
            "workspace": argument.name,
            "bytes": size,
        }
    if argument.name in variant.kernel.problem.scalars:
        return {"scalar": argument.name, "type": argument.type}
    if argument.kind == "scalar":
        with within(f"{where}.scalar"):
            return {"value": argument.value(names), "type": argument.type}
    with within(f"{where}.box"):
        box = [whole(extent, names) for extent in argument.box or ()]
    if not all(1 <= extent <= 256 for extent in box):
        raise LadderError(f"{where}.box: {box} is not accepted; accepted: extents from 1 to 256")
    if argument.shape is not None:
        with within(f"{where}.shape"):
            shape = [whole(extent, names) for extent in argument.shape]
        return {"tensor_map": argument.name, "box": box, "shape": shape}  # Triton's compiler says the rest
    return {
        "tensor_map": argument.name,
        "box": box,
        "swizzle": argument.swizzle,
        "l2_promotion": names.get(argument.l2_promotion, argument.l2_promotion),
    }


def _launch(variant: Variant, size: Size) -> Launch:
    names, geometry = variant.names(size), vars(variant.geometry(size))
    where, listed = f"{variant.kernel.path}: arguments", enumerate(variant.kernel.arguments)
    arguments = tuple([_argument(one, variant, names, f"{where}[{index}]") for index, one in listed])
    return Launch(**geometry, variant=variant.id, params=variant.params, arguments=arguments)


def _task(sweep: Sweep, entry: Entry, size: Size, arch: str) -> Task:
    variant, absent = entry.variant, sweep.absent(entry, size, arch)
    against = None if variant.absent() else sweep.reference.variant_for(variant)
    reference = Reference(libraries=() if variant.absent() else sweep.reference.libraries)
    if against is not None:
        reference = Reference(kernel=against.kernel.name, params=against.record_params)
    place = (variant.dtype, variant.layout, size, sweep.regimes[0])
    return Task(
        variant=variant.id,
        cell=Cell(variant.kernel.name, variant.record_params, *place, reference),
        rung=entry.rung,
        absent=absent,
        launch=_launch(variant, size) if absent is None else None,
        reference=_launch(against, size) if absent is None and against is not None else None,
        counted=absent is None and (variant, size) in sweep.counted,
        sustained=absent is None and (variant, size) in sweep.sustained,
        repeated=absent is None and (variant, size) in sweep.repeated,
        errors=absent is None and (variant, size) in sweep.errors,
    )


def _tasks(sweep: Sweep, arch: str) -> Iterator[Task]:
    """The task of each cell, and of a rung also that with the rung that it changes, where both are launched."""
    for entry, size in sweep.cells:
        task, baseline = _task(sweep, entry, size, arch), entry.baseline
        yield task
        if task.absent is not None or baseline is None or size not in baseline.sizes:
            continue
        if baseline.absent(size, arch) is not None:
            continue
        against = Reference(kernel=baseline.variant.kernel.name, params=baseline.variant.record_params)
        if against != task.cell.reference:
            cell, other = replace(task.cell, reference=against), _launch(baseline.variant, size)
            yield replace(
                task,
                cell=cell,
                reference=other,
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


def sizes_to_verify(variant: Variant, arch: str) -> list[Size]:
    """Of each group of sizes at which kernels break the first that a variant takes on `arch`."""
    groups = variant.kernel.problem.edges(variant.params)
    taken = [next((size for size in group if variant.absent(size, arch) is None), None) for group in groups]
    return [size for size in taken if size is not None]


def plan_edges(sweep: Sweep, arch: str) -> dict[str, tuple[Edge, ...]]:
    """Where else each variant of a sweep, and each kernel that one is timed against, is verified.

    Raises LadderError for one that is right at none of those sizes.
    """
    found, unlaunched = {}, sweep.never_launched(arch)
    launched = [one for one in sweep.variants if one not in unlaunched]
    for variant in sorted(launched, key=lambda one: one.id):
        departs = variant.kernel.nan_at_alpha_zero
        edges = [Edge(size, _launch(variant, size), departs) for size in sizes_to_verify(variant, arch)]
        if not edges:
            groups = variant.kernel.problem.edges(variant.params)
            asked = ", ".join(size_label(size) for group in groups for size in group)
            raise LadderError(
                f"{variant.kernel.path}: constraints: {variant.id} can be verified at none of the sizes {asked}: "
                f"{variant.absent(groups[-1][-1], arch)}; accepted is at least one of them"
            )
        found[variant.id] = tuple(edges)
    return found


def plan_sweep(sweep: Sweep, config: Config, arch: str) -> Plan:
    settings = config.measure.model_dump()
    job = {name: settings.pop(name) for name in _JOB}
    job |= {"tuning": sweep.tuning, "profile": config.profile.model_dump(), "cubins": config.compile.cache}
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
    )
    choices = {cell.id: cell for cell in _choices(plan, sweep.problem.parameters)}
    return replace(plan, choices=tuple(choices.values()))

"""Plans: what a sweep and the configuration ask for, worked out for an architecture."""

from collections.abc import Mapping
from typing import Any

from ladder.catalogue.config import Config
from ladder.model.kernel import Argument, Variant
from ladder.model.plan import Launch, Plan, Task
from ladder.model.problem import Size
from ladder.model.sweep import Entry, Sweep


def _argument(argument: Argument, variant: Variant, size: Size, names: Mapping[str, Any]) -> dict[str, Any]:
    if argument.kind == "pointer":
        return {"pointer": argument.name}
    if argument.kind == "scalar":
        given = {"value": names[argument.name]} if argument.name in names else {"scalar": argument.name}
        return {**given, "type": argument.type}
    return {
        "tensor_map": argument.name,
        "box": [variant.count(extent, size) for extent in argument.box or ()],
        "swizzle": argument.swizzle,
        "l2_promotion": variant.params.get(argument.l2_promotion, argument.l2_promotion),
    }


def _launch(variant: Variant, size: Size) -> Launch:
    names = variant.names(size)
    arguments = tuple(_argument(argument, variant, size, names) for argument in variant.kernel.arguments)
    return Launch(
        **vars(variant.geometry(size)), variant=variant.id, params=variant.params, arguments=arguments
    )


def _task(sweep: Sweep, entry: Entry, size: Size, arch: str) -> Task:
    variant, absent = entry.variant, entry.absent(size, arch)
    against = sweep.reference.variant_for(variant) if absent is None else None
    return Task(
        variant=variant.id,
        cell=sweep.cell(entry, size),
        rung=entry.rung,
        absent=absent,
        launch=_launch(variant, size) if absent is None else None,
        reference=_launch(against, size) if against is not None else None,
        counted=absent is None and size in sweep.counters.sizes and variant in sweep.counters.variants,
    )


_JOB = ("deadline_s", "busy", "remeasure", "throttle_share")


def plan_sweep(sweep: Sweep, config: Config, arch: str) -> Plan:
    measure = config.measure.model_dump()
    settings = {name: value for name, value in measure.items() if name not in _JOB}
    return Plan(
        sweep=sweep.name,
        problem=sweep.problem.name,
        arch=arch,
        regimes=sweep.regimes,
        settings=settings | ({"precision": sweep.precision} if sweep.precision else {}),
        job={name: measure[name] for name in _JOB}
        | {
            "profile": config.profile.model_dump(),
            "cubins": config.compile.cache,
        },
        counter_groups=sweep.counters.groups,
        tasks=tuple(_task(sweep, entry, size, arch) for entry, size in sweep.asked),
    )

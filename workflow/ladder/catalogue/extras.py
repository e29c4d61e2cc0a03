"""What the extra measurements launch: the fastest variants of some sweeps, as a sweep of their own."""

from collections.abc import Mapping, Sequence

from ladder.catalogue.config import ExtrasConfig
from ladder.model.problem import Size
from ladder.model.sweep import Entry, Reference, Sweep

NAME = "extras"

Choice = tuple[str, str, int]
"""A sweep, one of its variants, and M = N = K where it is the fastest."""


def cube(size: int) -> Size:
    return dict.fromkeys("mnk", size)


def error_sizes(config: ExtrasConfig) -> list[Size]:
    """Where errors are looked at."""
    rows = config.error_rows
    return [{"m": rows, "n": rows, "k": depth} for depth in config.error_depths]


def extra_sweep(config: ExtrasConfig, sweeps: Mapping[str, Sweep], chosen: Sequence[Choice]) -> Sweep | None:
    """Each chosen variant where it is the fastest, and those of the dtypes whose errors count at their sizes too.

    None where no variant is left: one that its sweep no longer has is left out.
    """
    known = {name: {one.variant.id: one for one in sweeps[name].entries} for name in config.sweeps}
    sizes, entries = dict[str, list[Size]](), dict[str, Entry]()
    for name, variant, size in chosen:
        if variant in known.get(name, {}):
            entries.setdefault(variant, known[name][variant])
            sizes.setdefault(variant, []).append(cube(size))
    if not entries:
        return None
    for variant, entry in entries.items():
        further = error_sizes(config) if entry.variant.dtype in config.error_dtypes else []
        sizes[variant] += [size for size in further if size not in sizes[variant]]
    asked = tuple(Entry(one.variant, one.rung, sizes=tuple(sizes[name])) for name, one in entries.items())
    own = [sweeps[name] for name in config.sweeps]
    return Sweep(
        name=NAME,
        problem=own[0].problem,
        dtypes=tuple(dict.fromkeys(one.variant.dtype for one in asked)),
        sizes=tuple({tuple(size.values()): size for of in sizes.values() for size in of}.values()),
        entries=asked,
        reference=Reference(tuple(dict.fromkeys(name for one in own for name in one.reference.libraries))),
        precision=max((one.precision for one in own if one.precision), default=None),
        regimes=("cold",),
    )

"""Sweeps for the sanitizer: every kernel in every dtype at a small size, one sweep per problem."""

import math
from collections.abc import Iterator, Mapping

from ladder.model.errors import LadderError
from ladder.model.kernel import Kernel, Variant
from ladder.model.problem import Problem, Size
from ladder.model.sweep import Entry, Reference, Sweep

_EXTENTS = {
    "m": 531,
    "n": 563,
    "k": 301,
    "elements": 5003,
    "sequence": 531,
    "heads": 5,
    "d": 128,
}
"""Several tiles and a part of one in each dimension; no two extents of a problem are equal."""


def small_size(variant: Variant) -> Size:
    """The least regular small size that the variant's constraints admit; where they admit none, any.

    Sizes are doubled until the grid stops growing (persistent kernels), so that each block processes several tiles.
    Where a field admits only the value that a kernel is compiled for, it is the largest of the sizes at the edges.
    Raises LadderError for a field of the size that `_EXTENTS` lacks.
    """
    problem = variant.kernel.problem
    if unknown := [name for name in problem.size_fields if name not in _EXTENTS]:
        raise LadderError(
            f"the problem {problem.name}: size_fields: {', '.join(unknown)}: the sanitizer has no small size for it; "
            "add one to _EXTENTS of workflow/ladder/catalogue/sanitizer_sweeps.py"
        )
    least = {name: _EXTENTS[name] for name in problem.size_fields}
    for step in (2**power for power in range(10)):
        sizes = [
            {name: -(-extent * times // step) * step for name, extent in least.items()}
            for times in (1, 2, 4, 8)
        ]
        if all(variant.absent(size) is None for size in sizes):
            *blocks, most = [math.prod(variant.geometry(size).grid) for size in sizes]
            return sizes[blocks.index(most)] if most in blocks else sizes[0]
    edges = problem.edges(variant.params)
    taken = [size for group in edges for size in group if variant.absent(size) is None]
    return max(taken, key=lambda size: math.prod(size.values()), default=least)


def sanitizer_sweeps(
    catalog: Mapping[str, Kernel], sweeps: Mapping[str, Sweep]
) -> Iterator[Sweep]:
    """One sweep per problem, with a variant of each kernel in each of its dtypes.

    That is the kernel's defaults in each layout that admits them, else a variant that one of `sweeps` has.
    """
    used = [variant for sweep in sweeps.values() for variant in sweep.variants]
    entries = dict[Problem, list[Entry]]()
    for kernel in catalog.values():
        for dtype in kernel.dtypes:
            layouts = kernel.layouts or kernel.problem.layouts[:1]
            default = [
                kernel.variant({}, dtype, layout, excluded=True) for layout in layouts
            ]
            others = [
                one for one in used if one.kernel is kernel and one.dtype == dtype
            ]
            known = [
                Entry(one, sizes=(small_size(one),))
                for one in dict.fromkeys([*default, *others])
            ]
            good = [one for one in known if one.absent(one.sizes[0]) is None]
            own = [one for one in good if one.variant in default]
            entries.setdefault(kernel.problem, []).extend(own or good[:1] or known[:1])
    for problem, asked in entries.items():
        sizes = tuple(
            {tuple(one.sizes[0].values()): one.sizes[0] for one in asked}.values()
        )
        name = f"sanitize-{problem.name}"
        yield Sweep(
            name, problem, problem.dtypes, sizes, tuple(asked), Reference(), ("cold",)
        )

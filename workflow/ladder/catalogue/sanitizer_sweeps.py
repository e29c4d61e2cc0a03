"""Sweeps for the sanitizer: every kernel in every dtype at a small size, one sweep per problem."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from ladder.model.errors import LadderError
from ladder.model.expressions import align_up
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
        where = f"the problem {problem.name}: size_fields: {', '.join(unknown)}"
        raise LadderError(
            f"{where}: the sanitizer has no small size for it; add one to _EXTENTS of "
            "workflow/ladder/catalogue/sanitizer_sweeps.py"
        )
    least = {name: _EXTENTS[name] for name in problem.size_fields}
    for power in range(10):
        step, sizes = 2**power, list[Size]()
        for times in (1, 2, 4, 8):
            sizes.append(
                {name: align_up(times * extent, step) for name, extent in least.items()}
            )
        if all(variant.absent(size) is None for size in sizes):
            *blocks, most = [math.prod(variant.geometry(size).grid) for size in sizes]
            return sizes[blocks.index(most)] if most in blocks else sizes[0]
    edges = itertools.chain.from_iterable(problem.edges(variant.params, variant.dtype))
    taken = [size for size in edges if variant.absent(size) is None]
    return max(taken, key=lambda size: math.prod(size.values()), default=least)


def sanitizer_sweeps(catalog: Mapping[str, Kernel]) -> Iterator[Sweep]:
    """One sweep per problem, with each kernel's defaults in each of its dtypes and in each layout that admits them."""
    entries = defaultdict[Problem, list[Entry]](list)
    for kernel in catalog.values():
        for dtype in kernel.dtypes:
            entries[kernel.problem] += _entries(kernel, dtype)
    for problem, asked in entries.items():
        sizes = {tuple(size.values()): size for entry in asked for size in entry.sizes}
        yield Sweep(
            f"sanitize-{problem.name}",
            problem,
            problem.dtypes,
            tuple(sizes.values()),
            tuple(asked),
            Reference(),
            ("cold",),
        )


def _entries(kernel: Kernel, dtype: str) -> list[Entry]:
    """A kernel's defaults in a dtype, each at one size; where no layout admits them the first, to be reported."""
    entries = []
    for layout in kernel.usual_layouts:
        variant = kernel.variant({}, dtype, layout, excluded=True)
        entries.append(Entry(variant, sizes=(small_size(variant),)))
    fit = [entry for entry in entries if entry.absent(entry.sizes[0]) is None]
    return fit or entries[:1]

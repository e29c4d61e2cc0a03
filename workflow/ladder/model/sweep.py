"""Sweeps: the variants and sizes that answer one question."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from ladder.model.cell import External
from ladder.model.document import Document, Text, saying
from ladder.model.expressions import holds
from ladder.model.kernel import Kernel, Variant
from ladder.model.problem import ParamValue, Problem, Size

SizeText = Annotated[
    int | Text | dict[str, int | Text],
    *saying("a whole number, an expression such as 2**20, or a mapping of size fields"),
]
"""A size as documents write it."""


@dataclass(frozen=True)
class Reference:
    """The fastest of some libraries, or a kernel, with the variant's own parameters where `params` has none.

    Those of `libraries` that come from files are in `external`.
    """

    libraries: tuple[str, ...] = ()
    external: Mapping[str, External] = field(default_factory=dict)
    kernel: Kernel | None = None
    params: Mapping[str, ParamValue] = field(default_factory=dict)

    def variant_for(self, variant: Variant) -> Variant | None:
        """The reference kernel's variant that `variant` is timed against; None where libraries are the reference."""
        if self.kernel is None:
            return None
        shared = {
            name: value
            for name, value in variant.params.items()
            if name in self.kernel.parameters
        }
        return self.kernel.variant(
            {**shared, **self.params}, variant.dtype, variant.layout
        )


@dataclass(frozen=True)
class Entry:
    """A variant as a sweep names it, with its place on the ladder."""

    variant: Variant
    rung: str = ""
    technique: str = ""
    where: str = ""  # an expression over parameters and the size: where it is false there is no cell
    reason: str = ""  # why not; without one there is not even a row
    sizes: tuple[Size, ...] = field(default=(), kw_only=True)  # at which there is a row
    # The rung that it changes, if it is one.
    baseline: "Entry | None" = field(default=None, kw_only=True)
    # Share of the peak rate that bounds the problem, from and to, as written down before it was measured.
    predicted: Sequence[float] | None = field(default=None, kw_only=True)

    def excluded_by_where(self, size: Size) -> str | None:
        """Why `where` leaves it out at `size`, "" if without a row; None where it does not."""
        if not self.where or holds(self.where, self.variant.names(size)):
            return None
        return self.reason

    def absent(self, size: Size, arch: str = "") -> str | None:
        """Why there is no cell at `size` (on `arch`) although the sweep names it; None where there is one."""
        return self.variant.absent(size, arch) or self.excluded_by_where(size) or None


class Figure(Document):
    """A figure drawn from a sweep."""

    kind: Literal["ladder", "curves", "heatmap", "roofline", "banks", "shapes"]
    """what is drawn"""
    caption: Text
    """what the reader should see in it"""
    at: SizeText | None = None
    """the size shown where a figure shows one"""
    x: str | None = None
    """parameter on the x axis"""
    y: str | None = None
    """parameter on the y axis"""
    hue: str | None = None
    """parameter with a panel for each of its values"""

    @property
    def size(self) -> Size | None:
        """`at` with its numbers worked out, as a loaded sweep has it."""
        return self.at if isinstance(self.at, Mapping) else None  # type: ignore[return-value]


Selection = tuple[tuple[Variant, Size], ...]
"""Some variants, each at some sizes."""


@dataclass(frozen=True)
class Sweep:
    """Variants x sizes that answer one question; of the sizes given, those at which it has a variant."""

    name: str
    problem: Problem
    dtypes: tuple[str, ...]
    # At which there is a cell; the others are `sizes_without_cells`.
    sizes: tuple[Size, ...]
    entries: tuple[Entry, ...]
    reference: Reference
    regimes: tuple[str, ...]  # the first is the one that figures and findings speak of
    title: str = ""
    question: str = ""
    sizes_without_cells: tuple[Size, ...] = ()
    excluded: int = 0  # combinations that the kernels' constraints or `where` drop
    precision: float | None = None
    counted: Selection = ()
    counter_groups: tuple[str, ...] = ()  # of metrics, that the profiler counts there
    figures: tuple[Figure, ...] = ()
    sustained: Selection = ()
    repeated: Selection = ()  # measured in several sessions
    errors: Selection = ()  # whose errors are recorded by kind of inputs
    tuning: bool = False  # whether the fastest of its variants are measured again
    predicted_for: str = ""  # slug of the GPU that predictions of its entries speak of

    @functools.cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Every variant to compile, those of reference kernels included, without repetition."""
        variants = [entry.variant for entry in self.entries]
        variants = [variant for variant in variants if variant.absent() is None]
        references = map(self.reference.variant_for, variants)
        return tuple(dict.fromkeys([*variants, *filter(None, references)]))

    @functools.cached_property
    def kernels(self) -> dict[str, Kernel]:
        """By name the kernels of its entries."""
        variants = [entry.variant for entry in self.entries]
        return {variant.kernel.name: variant.kernel for variant in variants}

    @functools.cached_property
    def cells(self) -> tuple[tuple[Entry, Size], ...]:
        """The sweep's cells in measuring order: by dtype and size, so that inputs and reference are made once."""
        return tuple(
            (entry, size)
            for dtype in self.dtypes
            for size in self.sizes
            for entry in self.entries
            if entry.variant.dtype == dtype and size in entry.sizes
        )

    def absent(self, entry: Entry, size: Size, arch: str) -> str | None:
        """Why an entry, or the kernel that it is timed against, cannot run at `size` on `arch`; None where both can."""
        if why := entry.absent(size, arch):
            return why
        against = self.reference.variant_for(entry.variant)
        if against and (why := against.absent(size, arch)):
            return f"its reference {against.id}: {why}"
        return None

    def never_launched(self, arch: str) -> dict[Variant, str]:
        """Variants that are launched at no size on `arch`, each with a reason: there is nothing to compile."""
        launched = set[Variant | None]()
        why = dict[Variant, str]()
        for entry, size in self.cells:
            if (reason := self.absent(entry, size, arch)) is None:
                launched |= {entry.variant, self.reference.variant_for(entry.variant)}
            else:
                why.setdefault(entry.variant, reason)
        return {
            variant: why.get(variant, "nothing is timed against it")
            for variant in self.variants
            if variant not in launched
        }

    def shapes(self) -> list[tuple[str, Size]]:
        """Every dtype with every size at which the sweep has a variant in it."""
        shapes: list[tuple[str, Size]] = []
        for entry, size in self.cells:
            shape = (entry.variant.dtype, size)
            if shape not in shapes:
                shapes.append(shape)
        return shapes

    def figure_names(self) -> list[str]:
        """Files of the figures: SWEEP-INDEX-KIND.png."""
        return [
            f"{self.name}-{index}-{figure.kind}.png"
            for index, figure in enumerate(self.figures, 1)
        ]

    def figure_name(self, kind: str) -> str:
        """File of the first figure of a kind; empty without one."""
        for figure, name in zip(self.figures, self.figure_names(), strict=True):
            if figure.kind == kind:
                return name
        return ""

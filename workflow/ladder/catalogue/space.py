"""The space of a kernel's variants, as its description declares it: values of parameters, and constraints on them."""

import math
import random
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from ladder.catalogue.plans import sizes_to_verify
from ladder.model.errors import LadderError, refuse_unknown
from ladder.model.kernel import Kernel, Variant
from ladder.model.problem import ParamValue, Size

_TRIES = 100_000
"""Combinations to try for a variant that keeps all constraints; of some kernels one in a thousand does."""
_MORE = 0.4  # chance that a neighbour differs in one more parameter: constraints tie a tile to the stages it leaves
Choice = Mapping[str, ParamValue]


@dataclass(frozen=True)
class Space:
    """The variants of a kernel that run in a dtype and layout at a size on an architecture.

    fixed: parameters that have one value. Those that the answer depends on, such as the radius of a stencil, have their
    default where they are not among them: variants of a space compute the same.

    Raises LadderError for a dtype, a layout, a parameter or a value that the kernel does not have.
    """

    kernel: Kernel
    dtype: str
    layout: str | None
    size: Size
    arch: str
    fixed: Choice
    axes: Mapping[str, list[ParamValue]] = field(init=False)

    def __post_init__(self) -> None:
        known = self.kernel.parameters
        for name, value in self.fixed.items():
            refuse_unknown(
                "command line", "--param", name, known, f"{self.kernel.name} has no such parameter"
            )
            refuse_unknown("command line", f"--param: {name}", value, known[name].values)
        one = {name: self._usual.params[name] for name in self.kernel.problem.parameters} | {**self.fixed}
        axes = {name: [one[name]] if name in one else list(axis.values) for name, axis in known.items()}
        object.__setattr__(self, "axes", axes)

    @property
    def _usual(self) -> Variant:
        """All parameters at their defaults."""
        return self.kernel.variant(
            {}, self.dtype, self.layout, where="--", file="command line", excluded=True
        )

    @property
    def combinations(self) -> int:
        """Of values, those that constraints exclude included."""
        return math.prod(map(len, self.axes.values()))

    def answers_alike(self, variant: Variant) -> bool:
        """Whether a variant of the kernel computes the same as those of the space, and can be launched and verified."""
        same = (variant.kernel, variant.dtype, variant.layout) == (
            self.kernel,
            self.dtype,
            self._usual.layout,
        )
        same = same and all(
            variant.params[name] in self.axes[name] for name in self.kernel.problem.parameters
        )
        return (
            same
            and variant.absent(self.size, self.arch) is None
            and bool(sizes_to_verify(variant, self.arch))
        )

    def holds(self, variant: Variant) -> bool:
        """Whether a variant of the kernel is one of the space."""
        own = all(variant.params[name] in values for name, values in self.axes.items())
        return own and self.answers_alike(variant)

    def any(self, rng: random.Random, taken: Container[Variant]) -> Variant | None:
        """A variant drawn from all that are not `taken`; None where so many draws found none."""
        return self._first(taken, lambda: {name: rng.choice(values) for name, values in self.axes.items()})

    def near(self, variant: Variant, rng: random.Random, taken: Container[Variant]) -> Variant | None:
        """A variant that is not `taken` and differs in a parameter or a few; None where so many draws found none."""
        free = [name for name, values in self.axes.items() if len(values) > 1]
        only = {name: values[0] for name, values in self.axes.items() if len(values) == 1}

        def moved() -> Choice:
            count = 1
            while count < len(free) and rng.random() < _MORE:
                count += 1
            drawn = {name: rng.choice(self.axes[name]) for name in rng.sample(free, count)}
            return {**variant.params, **only, **drawn}

        return self._first(taken, moved) if free else None

    def _first(self, taken: Container[Variant], draw: Callable[[], Choice]) -> Variant | None:
        """The first variant of many draws that the space holds and that is not `taken`."""
        seen = set[tuple[ParamValue, ...]]()
        for _ in range(_TRIES):
            if len(seen) == self.combinations:
                break
            params = draw()
            if (values := tuple(params.values())) in seen:
                continue
            seen.add(values)
            if self.holds(Variant(self.kernel, params, self.dtype, self._usual.layout)):
                variant = self.kernel.variant(params, self.dtype, self.layout)
                if variant not in taken:
                    return variant
        return None

    def refused(self, rng: random.Random) -> LadderError:
        """The error for a space without a variant, with the reason of one that it does not hold."""
        params = {name: rng.choice(values) for name, values in self.axes.items()}
        variant = Variant(self.kernel, params, self.dtype, self._usual.layout)
        why = variant.absent(self.size, self.arch) or "it can be verified at none of the problem's sizes"
        return LadderError(
            f"{self.kernel.path}: constraints: no combination of parameters is accepted at {dict(self.size)} on "
            f"{self.arch}; accepted is at least one of {self.combinations}: {params!r} is not: {why}"
        )

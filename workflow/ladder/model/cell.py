"""A cell: one thing to measure, as the documents say it. The same type from the plan to the published tables."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from ladder.model.files import digest_json
from ladder.model.problem import ParamValue

SUSTAINED = "sustained"
BACK_TO_BACK = ("warm", SUSTAINED)  # back to back, the L2 as it is
REGIMES = ("cold", *BACK_TO_BACK)
"""cold: the L2 holds none of a kernel's data, and nothing to be written to memory. warm: back to back
in a CUDA graph. sustained: the same for seconds, at the clock that the power limit allows."""
COUNTERS = "counters"  # stands for a regime where a cell is profiled instead of timed
TIMING_VERSION = {"cold": 1, "warm": 2, SUSTAINED: 1, COUNTERS: 2}
"""How launches of a regime are timed or counted (gpu/timing.py, gpu/stamps.py, measure/traced.py).

Raise one when the same kernel may read another time or count under it: its records are then measured again.
"""


@dataclass(frozen=True)
class External:
    """A reference of one's own: a C entry of a shared object, or a Python callable; docs/references.md has both.

    `sha256` is that of the file when the plan was made. `setup` is an entry called once a size, or "".
    """

    kind: Literal["shared_object", "python"]
    file: str
    entry: str
    setup: str
    sha256: str

    @property
    def digest(self) -> str:
        """Digest of everything that its time depends on, wherever the file lies."""
        return digest_json([self.kind, self.entry, self.setup, self.sha256])


@dataclass(frozen=True)
class Reference:
    """What a cell is timed against: a kernel in the cell's dtype and layout, or the fastest of some others.

    `libraries` are those of the problem, and external references by their names.
    """

    libraries: tuple[str, ...] = ()
    kernel: str = ""
    params: Mapping[str, ParamValue] = field(default_factory=dict)

    @property
    def is_choice(self) -> bool:
        """Whether it is one of several: of libraries, or of the algorithms of cuBLASLt."""
        has_algorithms = any(name.startswith("cublaslt") for name in self.libraries)
        return has_algorithms or len(self.libraries) > 1


@dataclass(frozen=True)
class Partner:
    """A library or external reference, with its algorithm if it has several."""

    reference: str
    algorithm: str = ""

    def __str__(self) -> str:
        return f"{self.reference} {self.algorithm}".strip()


@dataclass(frozen=True)
class Cell:
    """A kernel with all its parameters, defaults included, at a size, in a regime, against a reference.

    Without a kernel it is the choice of that reference: all that may be it, held against each other. `beta` is that of
    earlier records, which also timed C = A B + C; no plan has such a cell.
    """

    kernel: str
    params: Mapping[str, ParamValue]
    dtype: str
    layout: str
    size: Mapping[str, Annotated[int, Field(ge=0, le=2**53)]]
    regime: str
    reference: Reference
    beta: float = 0.0

    @functools.cached_property
    def id(self) -> str:
        """Digest of everything in which cells differ, whatever the order of parameters."""
        parts: list[Any] = [
            self.kernel,
            dict(self.params),
            self.dtype,
            self.layout,
            dict(self.size),
            self.regime,
            self.reference.libraries,
            self.reference.kernel,
            dict(self.reference.params),
        ]
        if self.beta:
            parts.append(self.beta)
        return digest_json(parts)[:20]

    @property
    def operands(self) -> tuple[Any, ...]:
        """Key of the input data: dtype, layout, size. Cells with equal keys share buffers and references."""
        return (self.dtype, self.layout, *sorted(self.size.items()))

    def choice(self, parameters: Iterable[str]) -> "Cell | None":
        """The cell that chooses this one's reference, if there is a choice.

        `parameters` are those of the problem, on which the answer depends.
        """
        if not self.reference.is_choice or self.regime == COUNTERS:
            return None
        params = {name: self.params[name] for name in parameters}
        return replace(self, kernel="", params=params)

    def in_regime(self, regime: str) -> "Cell":
        """The same cell in another regime; counters are read of a kernel by itself, whatever it is timed against."""
        reference = Reference() if regime == COUNTERS else self.reference
        return replace(self, regime=regime, reference=reference)


def size_label(size: Mapping[str, int]) -> str:
    """A size as people write it: 4096 for a cube, else 512x4096x64, powers of two from 2^16 as such; "" for none."""
    extents = {*size.values()}
    if len(extents) == 1:
        return count_label(*extents)
    return "x".join(map(str, size.values()))


def count_label(value: int) -> str:
    """2^28 rather than 268435456."""
    if value >= 2**16 and value.bit_count() == 1:
        return f"2^{value.bit_length() - 1}"
    return str(value)


def cell_name(variant: str, cell: Cell) -> str:
    """A cell as people write it: VARIANT@SIZE:REGIME."""
    return f"{variant}@{size_label(cell.size)}:{cell.regime}"

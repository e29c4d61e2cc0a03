"""What the folder of a problem declares: sizes, dtypes, buffers and references, and the work of one cell."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ladder.model.definition import Definition

ParamValue = int | str
Params = Mapping[str, ParamValue]
Size = Mapping[str, int]

ELEMENT_BYTES = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "fp16_acc16": 2,
    "bf16": 2,
    "fp8": 1,
    "fp8_fp32": 1,
    "int32": 4,
}

_NARROW = {"fp16": "__half", "bf16": "__nv_bfloat16", "fp8": "__nv_fp8_e4m3"}
C_TYPES = {"fp32": "float", "tf32": "Tf32", "int32": "int", **_NARROW}
"""Element types of the harness's kernels, by dtype."""

WEIGHTS = ("alpha", "beta")
"""Scalars that a kernel need not take: it is then verified with alpha = 1 and beta = 0 alone."""
COPY = "copy"  # the one library that does not solve the problem: a copy of its data, which no kernel can beat
INPUTS = ("uniform", "positive", "integers", "wide", "equal", "spikes", "masked")
"""Kinds of inputs, by their number in harness.cuh, which says what they are; a problem has some of them."""
ERROR_INPUTS = ("uniform", "positive", "wide")
"""Kinds for which the largest errors of a cell may be recorded; of integers results are exact."""
GATE, READ, NOTHING, GUARD = "gate", "read_through", "nothing", "count_guards_changed"
SCRUB, CLOCKS = "scrub_shared", "read_clocks"
_DRAWN = [
    f"{kernel}<{of}>"
    for kernel in ("fill", "count_changed", "check_input")
    for of in C_TYPES.values()
]
HARNESS = (GATE, READ, NOTHING, GUARD, SCRUB, CLOCKS, *_DRAWN)
"""Name expressions of the harness's kernels that every problem has."""


SIZE_COLUMNS = ("m", "n", "k", "elements", "sequence", "heads", "d")
"""Fields of sizes that tables have a column for."""


@dataclass(frozen=True)
class Work:
    """Work of one cell: floating-point (or integer) operations, and the fewest bytes through device memory."""

    operations: float
    bytes: float


class Problem(ABC):
    """A kind of task; stateless."""

    name: str  # also the name of its folder
    check_version: ClassVar[int]
    """Raise it when a result that passed may now be refused, or the reverse: all its cells are measured again."""
    place: ClassVar[int] = 100  # where its sweeps stand in the report, the lowest first
    size_fields: tuple[str, ...]
    dtypes: tuple[str, ...]
    layouts: ClassVar[tuple[str, ...]] = ("",)
    buffers: tuple[str, ...]
    scalars: ClassVar[tuple[str, ...]] = ()
    libraries: tuple[str, ...] = ()
    inputs: tuple[str, ...] = INPUTS[:4]
    """Kinds that every kernel is verified with, ERROR_INPUTS among them. What is timed is uniform."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Python packages whose version a measurement depends on, such as nvidia-cublas."""
    parameters: ClassVar[Mapping[str, str]] = {}
    """Parameters that every kernel must have, since the problem's check depends on them, with their meaning."""

    edge_sizes: Sequence[Sequence[tuple[int, ...]]] = ()
    """`edges` that are the same for all parameters, each size in the order of `size_fields`."""
    check_kernels: ClassVar[tuple[str, ...]] = ()
    """`harness`, where it is kernels that are templates of the element type."""

    definition: Definition | None = None
    """Of a problem of one's own: the document that says what it is."""

    @property
    def folder(self) -> str:
        """Of `problems`, with instance and check."""
        return "own" if self.definition else self.name

    def taps(self, params: Params) -> int | None:
        """Taps of a stencil; None elsewhere."""
        return None

    def unsupported(self, size: Size, dtype: str) -> str | None:
        """Why no check could tell a right result of a size from a wrong one, if so."""
        return None

    def is_costly(self, edge: Size) -> bool:
        """Whether an edge is verified with uniform inputs alone, and not for accesses beyond buffers."""
        return False

    def edges(self, params: Params, dtype: str = "") -> Sequence[Sequence[Size]]:
        """Groups of sizes at which kernels break: of each, a variant is verified at the first that it takes."""
        groups = []
        for group in self.edge_sizes:
            sizes = [dict(zip(self.size_fields, size, strict=True)) for size in group]
            groups.append(sizes)
        return groups

    def harness(self, dtype: str) -> tuple[str, ...]:
        """Name expressions of the device kernels in the folder's check.cu, for cells of a dtype."""
        return tuple(f"{kernel}<{C_TYPES[dtype]}>" for kernel in self.check_kernels)

    @abstractmethod
    def work(self, size: Size, dtype: str, params: Params) -> Work:
        """Operations and least bytes of one cell."""

    @abstractmethod
    def device_bytes(self, size: Size, dtype: str) -> int:
        """Device memory an instance needs, buffers of the check included."""

"""What every problem offers: its sizes, work model and references, and instances with inputs and a check."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ladder.errors import LadderError, refuse
from ladder.expressions import evaluate

if TYPE_CHECKING:
    from ladder.device import Gpu
    from ladder.tensor_maps import Tensor

Params = Mapping[str, int | str]
Launcher = Callable[[], None]
"""Enqueues one run on the GPU's stream."""

ELEMENT_BYTES = {
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "fp16_acc16": 2,
    "bf16": 2,
    "fp8": 1,
    "int32": 4,
}


@dataclass(frozen=True)
class Work:
    """Work of one cell: floating-point (or integer) operations, and the fewest bytes through device memory."""

    operations: float
    bytes: float


@dataclass(frozen=True)
class Check:
    """Outcome of verifying one output: correct where max_error <= error_bound and nothing was left unwritten."""

    max_error: float
    error_bound: float
    detail: str = ""

    @property
    def correct(self) -> bool:
        """NaN compares false, so an unwritten (poisoned) output never passes."""
        return self.max_error <= self.error_bound


@dataclass(frozen=True)
class Observation:
    """A number a kernel reports about itself, such as cycles per access; becomes a row of metrics.csv."""

    metric: str
    unit: str
    value: float


@dataclass
class Instance(ABC):
    """One problem at one size and dtype on a device: buffers, inputs, references, check."""

    gpu: Gpu
    size: Mapping[str, int]
    dtype: str
    layout: str
    pointers: dict[str, int] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)

    @abstractmethod
    def fill_inputs(self, seed: int) -> None:
        """Draw fresh inputs."""

    @abstractmethod
    def poison_outputs(self) -> None:
        """Overwrite every output, so that an element nobody writes fails the check."""

    @abstractmethod
    def check(self, params: Params) -> Check:
        """Compare the outputs with the problem's own higher-precision answer."""

    @abstractmethod
    def tensor(self, name: str) -> Tensor:
        """A buffer with its shape and dtype, for tensor maps."""

    @abstractmethod
    def library(self, name: str, params: Params) -> Launcher:
        """A library reference by name. Raises LadderError where the problem has none of that name."""

    def use_beta(self, beta: float) -> None:
        """Make launches and the check from here on use `beta`, where the problem has one."""

    def observations(self, params: Params) -> list[Observation]:
        """Numbers the last launch wrote about itself."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Free the buffers."""


class Problem(ABC):
    """A kind of task; stateless."""

    name: ClassVar[str]
    size_fields: ClassVar[tuple[str, ...]]
    dtypes: ClassVar[tuple[str, ...]]
    layouts: ClassVar[tuple[str, ...]] = ("",)
    buffers: ClassVar[tuple[str, ...]]
    scalars: ClassVar[tuple[str, ...]] = ()
    libraries: ClassVar[tuple[str, ...]] = ()
    has_beta: ClassVar[bool] = False

    def element_bytes(self, dtype: str) -> int:
        """Bytes of one input element."""
        return ELEMENT_BYTES[dtype]

    def parse_size(self, given: Any, file: str, where: str) -> dict[str, int]:
        """A size from a number (all fields alike), an expression such as 2**28, or a mapping of fields."""
        if not isinstance(given, Mapping):
            given = dict.fromkeys(self.size_fields, given)
        unknown = [key for key in given if key not in self.size_fields]
        if unknown:
            raise refuse(file, where, unknown[0], self.size_fields, why="no such size field")
        missing = [key for key in self.size_fields if key not in given]
        if missing:
            raise LadderError(f"{file}: {where}: the size field {missing[0]!r} is missing")
        size = {}
        for key in self.size_fields:
            value = evaluate(given[key], {})
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise refuse(file, f"{where}.{key}", given[key], "a whole number >= 1")
            size[key] = value
        return size

    def taps(self, params: Params) -> int | None:
        """Taps of a stencil; None elsewhere."""
        return None

    def check_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Refuse a kernel that lacks a parameter the problem's check depends on. Raises LadderError."""

    @abstractmethod
    def work(self, size: Mapping[str, int], dtype: str, params: Params) -> Work:
        """Operations and least bytes of one cell."""

    @abstractmethod
    def device_bytes(self, size: Mapping[str, int], dtype: str) -> int:
        """Device memory an instance needs, buffers of the check included."""

    @abstractmethod
    def instance(self, gpu: Gpu, size: Mapping[str, int], dtype: str, layout: str, seed: int) -> Instance:
        """Allocate and fill one instance on `gpu`."""

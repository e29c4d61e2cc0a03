"""A problem on a device: buffers, inputs, references and the check. Each problem's `instance` module makes its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ladder.gpu.device import Gpu, Launcher
from ladder.gpu.tensor_maps import Tensor
from ladder.gpu.timing import Timer
from ladder.model.problem import Params


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

    def __str__(self) -> str:
        """What is wrong."""
        error, bound = self.max_error, self.error_bound
        return self.detail or f"largest normalised error {error:.3g}, allowed {bound:.3g}"


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
    def library(self, name: str) -> Launcher:
        """A library reference by name. Raises LadderError where the problem has none of that name."""

    def use_beta(self, beta: float) -> None:
        """Make launches and the check from here on use `beta`, where the problem has one."""
        return

    def observations(self, params: Params) -> list[Observation]:
        """Numbers the last launch wrote about itself."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Free the buffers."""


class Instances(Protocol):
    """What a problem's `instance` module calls Instances: made once a process, it makes the instances.

    `settings` are the plan's.
    """

    def __init__(self, timer: Timer, settings: Mapping[str, Any]) -> None: ...

    def create(self, size: Mapping[str, int], dtype: str, layout: str) -> Instance:
        """Allocate and fill one instance. Raises OutOfDeviceMemory."""

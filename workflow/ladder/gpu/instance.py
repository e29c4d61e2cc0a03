"""A problem on a device: buffers, inputs, references and check. Each problem's `instance` module has its INSTANCE."""

import contextlib
import ctypes
import math
import random
import secrets
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cuda.core import Buffer

from ladder.gpu.device import Gpu, Launcher, Seal
from ladder.gpu.timing import Timer
from ladder.gpu.workspace import WORD, Workspaces
from ladder.model.errors import LadderError
from ladder.model.problem import C_TYPES, ELEMENT_BYTES, GUARD, INPUTS, Params

_KINDS = {kind: ctypes.c_int32(number) for number, kind in enumerate(INPUTS)}
_GUARD_BYTES = 2**21  # on each side of a buffer: a page, so that buffers begin where pages do
_STEP = 256  # bytes: as aligned as libraries expect
_STEPS = 256
_GUARD = 0x81 + secrets.randbelow(60)  # what they hold: no byte of a small number or of 1.0


class Seed(ctypes.Structure):
    """The same struct of harness.cuh."""

    _fields_ = (("seed", ctypes.c_uint64), ("secret", ctypes.c_uint64))


@dataclass(frozen=True)
class Tensor:
    """A dense row-major buffer with its shape, outermost extent first, and element dtype.

    `whole` is what is between the guards: the buffer, and for an input whose place moves some room more.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    dtype: str
    whole: Buffer
    guarded: Buffer

    @property
    def pointer(self) -> int:
        return int(self.buffer.handle)

    @property
    def elements(self) -> int:
        """Of `whole`."""
        return int(self.whole.size) // ELEMENT_BYTES[self.dtype]

    def moved(self, offset: int) -> "Tensor":
        """The same, from an offset in bytes into `whole` on."""
        begin, size = int(self.whole.handle) + offset, math.prod(self.shape) * ELEMENT_BYTES[self.dtype]
        return replace(self, buffer=Buffer.from_handle(begin, size, owner=self.guarded))

    def guards(self) -> Iterator[tuple[int, int, bool]]:
        """Of each guard its address, its bytes, and whether it lies behind the buffer."""
        begin, size = int(self.whole.handle), self.whole.size
        yield begin - _GUARD_BYTES, _GUARD_BYTES, False
        yield begin + size, self.guarded.size - _GUARD_BYTES - size, True


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
        return self.detail or f"largest normalised error {self.max_error:.3g}, allowed {self.error_bound:.3g}"


class Instance(ABC):
    """One problem at one size and dtype on a device: buffers, inputs, references, check. Raises OutOfDeviceMemory.

    What kernels write to, `outputs`, is there several times: see `writing_to`.
    """

    outputs: ClassVar[tuple[str, ...]]
    moving: ClassVar[tuple[str, ...]] = ()
    """Inputs that begin somewhere else at each place from 2 on, so that no two launches of a chain have one answer."""

    def __init__(self, gpu: Gpu, size: Mapping[str, int], dtype: str, layout: str) -> None:
        self.gpu, self.size, self.dtype, self.layout = gpu, size, dtype, layout
        self.tensors: dict[str, Tensor] = {}
        self.workspaces = Workspaces(gpu)
        self.scalars: dict[str, float] = {}
        self.drawn: dict[str, Seed] = {}
        self.kinds: dict[str, ctypes.c_int32] = {}  # that were drawn
        self.inputs = INPUTS[0]  # the kind to draw
        self.algorithms: dict[str, str] = {}  # of libraries, by name: to be taken, or taken
        self._secret = secrets.randbits(64)
        self._place = 0
        self._steps = {name: random.sample(range(1, _STEPS), _STEPS - 1) for name in self.moving}
        self._elsewhere: dict[tuple[str, int], Tensor] = {}
        self._table: tuple[list[str], list[tuple[int, int, bool]], Buffer] | None = None
        for name, (shape, element) in self.shapes().items():
            self.add_buffer(name, shape, element)

    @classmethod
    def maker(cls, timer: Timer, settings: Mapping[str, Any]) -> "Maker":
        """What makes instances on the timer's GPU, asked for once a process; `settings` are the plan's."""
        return cls

    @abstractmethod
    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and element dtype of each buffer."""

    @abstractmethod
    def fill_inputs(self, seed: int) -> None:
        """Draw fresh inputs."""

    @abstractmethod
    def _poison_outputs(self) -> None:
        """Overwrite every output, so that an element nobody writes fails the check."""

    @abstractmethod
    def error_bound(self, params: Params) -> float:
        """The largest error of a correct result, for both checks."""

    @abstractmethod
    def check(self, params: Params) -> Check:
        """Compare all outputs with the problem's own higher-precision answer."""

    @abstractmethod
    def _inspect(self, params: Params, seal: Seal) -> None:
        """Enqueue a check that is far cheaper than `check`, of the last launch; its largest error ends at the seal."""

    def _refresh(self, seed: int) -> None:
        """Enqueue fresh inputs and poisoned outputs; a problem may do both at once."""
        self.fill_inputs(seed)
        self._poison_outputs()

    def poison_outputs(self) -> None:
        """Overwrite every output and all scratch ahead of a launch."""
        self._poison_outputs()
        self.workspaces.spoil()

    def refresh(self, seed: int) -> None:
        """Enqueue what comes ahead of a timed launch: fresh inputs, poisoned outputs and scratch."""
        self._refresh(seed)
        self.workspaces.spoil()

    def inspect(self, params: Params, seal: Seal) -> None:
        """Enqueue what comes behind a timed launch: the cheap check, whose largest error ends at the seal, and a look
        at workspaces that must hold zeros."""
        self._inspect(params, seal)
        self.workspaces.look()

    def library(self, name: str) -> Launcher:
        """A library reference by name. Raises LadderError where the problem has none of that name."""
        raise LadderError(f"the problem has no library reference {name!r}")

    def use_scalars(self, alpha: float, beta: float, before: str = "nan") -> None:
        """Make kernels that are loaded from here on, and checks, use these, where the problem has them.

        With beta = 0 outputs hold `before`, nan or inf, ahead of a launch.
        """

    def observations(self, params: Params) -> dict[tuple[str, str], float]:
        """Numbers the last launch wrote about itself, by metric and unit: rows of metrics.csv."""
        return {}

    @contextlib.contextmanager
    def writing_to(self, place: int) -> Iterator[None]:
        """Inside, outputs are those of a place, allocated at its first use: for kernels loaded, poison and checks.

        Place 0 is the variant's, 1 the reference's. Raises OutOfDeviceMemory.
        """
        before = self._place
        self._move(place)
        try:
            yield
        finally:
            self._move(before)

    def places(self) -> int:
        """How many sets of outputs there are besides the one in use."""
        return len({place for _, place in self._elsewhere})

    def _move(self, place: int) -> None:
        for name in self.outputs if place != self._place else ():
            here = self.tensors[name]
            there = self._elsewhere.pop((name, place), None) or self._allocated(here.shape, here.dtype)
            self._elsewhere[name, self._place], self.tensors[name] = here, there
        for name in self.moving if place != self._place else ():
            offset = self._steps[name][place % len(self._steps[name])] * _STEP if place > 1 else 0
            self.tensors[name] = self.tensors[name].moved(offset)
        self._place = place

    def pointer(self, name: str) -> int:
        """Address of a buffer."""
        return self.tensors[name].pointer

    def add_buffer(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Allocate one buffer more. Raises OutOfDeviceMemory."""
        self.tensors[name] = self._allocated(shape, dtype, _STEPS * _STEP if name in self.moving else 0)

    def provide_workspace(self, argument: Mapping[str, Any]) -> None:
        """Allocate the workspace of a kernel's argument, unless it is there. Raises OutOfDeviceMemory."""
        name, size = argument["pointer"], int(argument["bytes"])
        if name not in self.tensors:
            self.add_buffer(name, (max(1, size // ELEMENT_BYTES[WORD]),), WORD)
            self.workspaces.add(name, argument["workspace"], self.tensors[name])

    def _allocated(self, shape: tuple[int, ...], dtype: str, room: int = 0) -> Tensor:
        size = math.prod(shape) * ELEMENT_BYTES[dtype] + room
        guarded = self.gpu.allocate(size + 2 * _GUARD_BYTES)
        guarded.fill(_GUARD, stream=self.gpu.stream)
        self._table = None
        whole = Buffer.from_handle(int(guarded.handle) + _GUARD_BYTES, size, owner=guarded)
        return Tensor(whole, shape, dtype, whole, guarded).moved(0)

    def note_drawn(self, name: str, seed: int) -> None:
        """Remember what the numbers in a buffer were drawn with."""
        drawn = self.drawn.setdefault(name, Seed())
        drawn.seed, drawn.secret = seed, self._secret
        self.kinds[name] = _KINDS[self.inputs]

    def draw(self, name: str, seed: int) -> None:
        """Enqueue random numbers for all of a buffer, of the kind `inputs`; as int32 a thousand times as large."""
        self.note_drawn(name, seed)
        tensor = self.tensors[name]
        entry, count = f"fill<{C_TYPES[tensor.dtype]}>", tensor.elements
        begin = int(tensor.whole.handle)
        self.gpu.harness.run(entry, count, begin, count, self.drawn[name], self.kinds[name])

    @contextlib.contextmanager
    def given(self, inputs: str) -> Iterator[None]:
        """Inside, inputs are drawn of another kind."""
        before, self.inputs = self.inputs, inputs
        try:
            yield
        finally:
            self.inputs = before

    def damage(self) -> tuple[str, str] | None:
        """(status, reason) where launches wrote what they must not.

        Bytes around a buffer, an input, or a workspace that must hold zeros.
        """
        harness = self.gpu.harness
        names, guards, table = self._guards()
        count, size = len(guards), 16 * len(guards)
        pointer, found = int(table.handle), int(table.handle) + 24 * count
        self.gpu.zero(found, size)
        harness.run(GUARD, 4096 * count, found, found + 8 * count, pointer, count, ctypes.c_int32(_GUARD))
        words = struct.unpack(f"{count}Q{count}d", self.gpu.download(found, size))
        for name, (_, length, behind), changed, nearest in zip(
            names, guards, words, words[count:], strict=False
        ):
            if changed:
                at = length - int(nearest)
                place = f"{at} bytes behind the end" if behind else f"{at + 1} bytes before the start"
                return "out_of_bounds", f"{changed} bytes around {name} were written, the nearest {place}"
        for name, seed in self.drawn.items():
            tensor = self.tensors[name]
            begin, count = int(tensor.whole.handle), tensor.elements
            entry = f"count_changed<{C_TYPES[tensor.dtype]}>"
            _, changed = harness.reduce(entry, count, harness.count, begin, count, seed, self.kinds[name])
            if changed:
                return "incorrect", f"{changed} elements of the input {name} were written"
        return self.workspaces.damage()

    def _guards(self) -> tuple[list[str], list[tuple[int, int, bool]], Buffer]:
        """Of each guard its buffer's name and its place, and a table of them on the device with room for results."""
        if self._table is None:
            every = [
                *self.tensors.items(),
                *((name, tensor) for (name, _), tensor in self._elsewhere.items()),
            ]
            listed = [(name, guard) for name, tensor in every for guard in tensor.guards()]
            names, guards = [name for name, _ in listed], [guard for _, guard in listed]
            packed = b"".join(struct.pack("3q", *guard) for guard in guards)
            self._table = names, guards, self.gpu.upload(packed + bytes(16 * len(guards)))
        return self._table

    def close(self) -> None:
        """Free the buffers."""
        for tensor in [*self.tensors.values(), *self._elsewhere.values()]:
            tensor.buffer.close()
            tensor.whole.close()
            tensor.guarded.close(self.gpu.stream)
        self.tensors, self._elsewhere, self._table = {}, {}, None
        self.workspaces = Workspaces(self.gpu)


Maker = Callable[[Gpu, Mapping[str, int], str, str], Instance]

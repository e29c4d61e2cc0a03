"""A problem on a device: buffers, inputs, references and check. Each problem's `instance` module has its INSTANCE."""

import contextlib
import ctypes
import hashlib
import math
import secrets
import struct
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

from cuda.core import Buffer

from ladder.gpu.device import (
    GUARD_BYTE,
    GUARD_BYTES,
    CheckResultSlot,
    Gpu,
    Guard,
    Launcher,
    as_double,
    guards_of,
)
from ladder.gpu.tensor import Tensor
from ladder.gpu.timing import Timer
from ladder.gpu.workspace import WORD, Workspaces
from ladder.model.errors import LadderError
from ladder.model.problem import (
    C_TYPES,
    COPY,
    ELEMENT_BYTES,
    GUARD,
    INPUTS,
    Params,
    Problem,
)

Shapes = dict[str, tuple[tuple[int, ...], str]]
"""Shape and element dtype of buffers, by name."""
STEP = 256  # bytes: as aligned as libraries expect
_STEPS = 256
_ROOM = _STEPS * STEP  # bytes behind an input that is shifted
_INPUTS_LOOKED_AT = 16384  # elements of each input, behind a timed launch


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
        measured = f"{self.max_error:.3g}, allowed {self.error_bound:.3g}"
        return self.detail or f"largest normalised error {measured}"


class HarnessCall(NamedTuple):
    """A kernel of a problem's check.cu: its name expression, and over how many elements it goes.

    `arguments` are what it takes after the place for its result.
    """

    entry: str
    elements: int
    arguments: tuple[Any, ...]


class Instance(ABC):
    """One problem at one size and dtype on a device: buffers, inputs, references, check. Raises OutOfDeviceMemory.

    What kernels write to, `outputs`, is there several times: see `writing_to`.
    """

    drawn: tuple[str, ...] = ("input",)
    """Buffers that hold fresh random numbers ahead of each launch."""
    outputs: tuple[str, ...] = ("output",)
    copied: ClassVar[tuple[str, str]] = ("input", "copied")
    """Source and target of the reference `copy`."""
    shifted_inputs: tuple[str, ...] = ()
    """Inputs that differ from place to place from 2 on, so that no launch of a chain holds the answer of another."""

    def __init__(
        self, gpu: Gpu, size: Mapping[str, int], dtype: str, layout: str
    ) -> None:
        self.gpu, self.size, self.dtype, self.layout = gpu, size, dtype, layout
        self.tensors: dict[str, Tensor] = {}
        self.scalars: dict[str, float] = {}
        self.inputs = INPUTS[0]  # the kind to draw
        self.by_tile = True  # whether inspections look at each tile of outputs
        self._secret = secrets.token_bytes(32)
        self._place = 0
        self._workspaces = defaultdict[int, Workspaces](partial(Workspaces, gpu))
        self._other_outputs: dict[int, dict[str, Tensor]] = {}  # by place
        self._copies: dict[tuple[str, int], Tensor] = {}  # of shifted inputs
        for name, (shape, element) in self.shapes().items():
            self.add_buffer(name, shape, element)

    @classmethod
    def maker(
        cls, timer: Timer, settings: Mapping[str, Any], problem: Problem
    ) -> "Maker":
        """What makes instances on the timer's GPU, asked for once a process; `settings` are the plan's."""
        return cls

    # What a problem says of itself

    @abstractmethod
    def shapes(self) -> Shapes:
        """Shape and element dtype of each buffer."""

    @abstractmethod
    def error_bound(self, params: Params) -> float:
        """The largest error of a correct result, for both checks."""

    def comparison(self, params: Params) -> HarnessCall:
        """The kernel that compares all outputs with the problem's own higher-precision answer.

        What it depends on is enqueued here. A problem with another `check` has none.
        """
        raise NotImplementedError

    @abstractmethod
    def inspection(self, params: Params, slot: CheckResultSlot) -> HarnessCall:
        """The kernel that checks the last launch, far cheaper than `check`; what it depends on is enqueued here.

        Its largest error ends at the slot.
        """

    def sums_are_exact(self) -> bool:
        """Whether kernels that are right give the same for integers, in whatever order they add up."""
        return True

    def shifts(self) -> int:
        """How many shifts of the first input, by multiples of 256 bytes, give answers with nothing in common.

        One, which is none but 0, where the answer of a moved input follows from that of the input as it was.
        """
        return 1

    def fill_inputs(self, seed: int) -> None:
        """Draw fresh inputs."""
        for name in self.drawn:
            if name in self.tensors:
                self.draw(name, seed)

    def use_scalars(self, alpha: float, beta: float, before: str = "nan") -> None:
        """Make kernels that are loaded from here on, and checks, use these where the problem has them. Draw afterwards.

        With beta = 0 outputs hold `before`, nan or inf, ahead of a launch.
        """

    def library(self, name: str) -> dict[str, Launcher]:
        """A library reference for the outputs that are there, by the names of its algorithms; "" if it chooses itself.

        Raises LadderError where the problem has none of that name.
        """
        if name != COPY:
            raise LadderError(f"the problem has no library reference {name!r}")
        source, target = (self.tensors[buffer] for buffer in self.copied)
        size = target.buffer.size
        return {"": partial(self.gpu.copy, target.pointer, source.pointer, size)}

    def observations(self, params: Params) -> dict[tuple[str, str], float]:
        """Numbers the last launch wrote about itself, by metric and unit: rows of metrics.csv."""
        return {}

    def reported_cycles(self) -> int | None:
        """Cycles of the SM that the last launch says its work took; None where kernels report none."""
        return None

    def least_cycles(self, params: Params) -> float:
        """Fewer cycles than these no work like that of the last launch takes."""
        return 0.0

    # Around a launch

    def _poison_outputs(self) -> None:
        """Overwrite every output, so that an element nobody writes fails the check: 0xff in each byte is NaN."""
        for name in self.outputs:
            self.tensors[name].buffer.fill(b"\xff", stream=self.gpu.stream)

    def poison_outputs(self) -> None:
        """Overwrite every output and all scratch ahead of a launch."""
        self._poison_outputs()
        self.workspaces.renew()

    def _refresh(self, seed: int) -> None:
        """Enqueue fresh inputs and poisoned outputs; a problem may do both at once."""
        self.fill_inputs(seed)
        self._poison_outputs()

    def refresh(self, seed: int) -> None:
        """Enqueue what comes ahead of a timed launch: fresh inputs, poisoned outputs and scratch."""
        self._refresh(seed)
        self.workspaces.renew()

    def renew(self, seed: int) -> None:
        """The same ahead of a chain: fresh inputs for all places, and poison at the one that is in use."""
        self.refresh(seed)
        # A copy that is in use shares its key with the tensor that is moved within it.
        in_use = {id(self.tensors[name].key) for name in self.shifted_inputs}
        for (name, number), tensor in self._copies.items():
            if id(tensor.key) not in in_use:
                self._draw(tensor, f"{seed} {name} {number}")

    def check(self, params: Params) -> Check:
        """Compare all outputs with the problem's own higher-precision answer."""
        error, _ = self._reduce(self.comparison(params), self.gpu.harness.maximum)
        return Check(error, self.error_bound(params))

    def check_squares(self, params: Params, scale: float) -> Check:
        """`check` with a kernel that also adds up the squares of errors: `scale` times their root is an error too."""
        entry, elements, arguments = self.comparison(params)
        harness = self.gpu.harness
        places = harness.maximum, harness.count
        largest, bits = harness.reduce(entry, elements, *places, *arguments)
        bound = self.error_bound(params)
        together = scale * math.sqrt(as_double(bits))
        if together > bound:
            largest = max(largest, together)
            share = f"{together / bound:.3g} times what is allowed"
            return Check(
                largest, bound, f"the root mean square of all errors is {share}"
            )
        return Check(largest, bound)

    def _reduce(self, call: HarnessCall, place: int) -> tuple[float, int]:
        """The maximum and the count that a comparing kernel leaves; `place` is of that which it takes."""
        entry, elements, arguments = call
        return self.gpu.harness.reduce(entry, elements, place, *arguments)

    def inspect(self, params: Params, slot: CheckResultSlot) -> None:
        """Enqueue what comes behind a timed launch: looks at inputs, which must be as they were drawn, the cheap check,
        and a look at workspaces, which must hold zeros. The largest error ends at the slot."""
        for name in self.drawn:
            tensor = self.tensors.get(name)
            if tensor is None or tensor.kind.value < 0:
                continue
            entry = f"check_input<{C_TYPES[tensor.dtype]}>"
            self.gpu.harness.run(entry, _INPUTS_LOOKED_AT, slot, *tensor.drawn())
        entry, elements, arguments = self.inspection(params, slot)
        self.gpu.harness.run(entry, elements, slot, *arguments)
        self.workspaces.look()

    # Places of outputs and inputs

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

    @contextlib.contextmanager
    def kept_in(self, buffers: Mapping[str, Buffer]) -> Iterator[None]:
        """Inside, kernels that are loaded take these buffers, by name, with what the instance's own hold."""
        before = dict(self.tensors)
        for name, buffer in buffers.items():
            tensor = before[name]
            self.gpu.copy(int(buffer.handle), tensor.pointer, buffer.size)
            self.tensors[name] = replace(tensor, buffer=buffer)
        try:
            yield
        finally:
            self.tensors |= before

    @property
    def workspaces(self) -> Workspaces:
        """Those of the place in use."""
        return self._workspaces[self._place]

    def has_workspaces(self) -> bool:
        """Whether some kernel has had one, at whatever place."""
        return any(workspaces.tensors for workspaces in self._workspaces.values())

    def place_bytes(self) -> int:
        """Device memory of one place: its outputs, the workspaces that kernels have had so far, and its own input."""
        names = [*self.outputs, *self.workspaces.tensors]
        # One input without another shift has a copy of its own at each place.
        if len(self.shifted_inputs) * self.shifts() == 1:
            names += self.shifted_inputs
        return sum(self.tensors[name].guarded.size for name in names)

    def places(self) -> int:
        """How many sets of outputs there are besides the one in use."""
        return len(self._other_outputs)

    def _move(self, place: int) -> None:
        if place != self._place:
            self._move_outputs(place)
        self._move_inputs(place)
        for name in self.workspaces.tensors:
            del self.tensors[name]
        self._place = place
        self.tensors |= self.workspaces.tensors

    def _move_outputs(self, place: int) -> None:
        here = {name: self.tensors[name] for name in self.outputs}
        if place not in self._other_outputs:
            self._other_outputs[place] = {
                name: self._allocated(tensor.shape, tensor.dtype)
                for name, tensor in here.items()
            }
        self.tensors |= self._other_outputs.pop(place)
        self._other_outputs[self._place] = here

    def _move_inputs(self, place: int) -> None:
        numbers, shift = self._variation(place)
        for name, number in zip(self.shifted_inputs, numbers, strict=False):
            if (name, number) not in self._copies:
                here = self.tensors[name]
                copy = self._allocated(here.shape, here.dtype, _ROOM)
                self._copies[name, number] = copy
            offset = shift if name == self.shifted_inputs[0] else 0
            self.tensors[name] = self._copies[name, number].moved(offset)

    def _variation(self, place: int) -> tuple[tuple[int, ...], int]:
        """Which copy of each shifted input a place takes, and the shift of the first input in bytes.

        Places 0 and 1 take the first copies as they are. Later ones shift the first input, and where shifts are used up
        take another pair of copies: (0, 0), (1, 0), (1, 1), (0, 1), (2, 0), …, so that few are needed.
        """
        pair, step = divmod(max(place - 1, 0), min(self.shifts(), _STEPS))
        shift = step * STEP
        if len(self.shifted_inputs) == 1:
            return (pair,), shift
        edge = math.isqrt(pair)
        along = pair - edge * edge
        if along <= edge:
            return (edge, along), shift
        return (along - edge - 1, edge), shift

    # Memory

    def pointer(self, name: str) -> int:
        """Address of a buffer."""
        return self.tensors[name].pointer

    def add_buffer(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Allocate one buffer more. Raises OutOfDeviceMemory."""
        if name not in self.shifted_inputs:
            self.tensors[name] = self._allocated(shape, dtype)
            return
        self.tensors[name] = self._allocated(shape, dtype, _ROOM)
        self._copies[name, 0] = self.tensors[name]

    def provide_workspace(self, argument: Mapping[str, Any]) -> None:
        """Allocate the workspace of a kernel's argument at this place, unless it is there. Raises OutOfDeviceMemory."""
        name, size = argument["pointer"], int(argument["bytes"])
        if name not in self.tensors:
            self.add_buffer(name, (max(1, size // ELEMENT_BYTES[WORD]),), WORD)
            self.workspaces.add(name, argument["workspace"], self.tensors[name])

    def _allocated(self, shape: tuple[int, ...], dtype: str, room: int = 0) -> Tensor:
        size = math.prod(shape) * ELEMENT_BYTES[dtype] + room
        guarded = self.gpu.allocate(size + 2 * GUARD_BYTES)
        guarded.fill(GUARD_BYTE, stream=self.gpu.stream)
        begin = int(guarded.handle) + GUARD_BYTES
        whole = Buffer.from_handle(begin, size, owner=guarded)
        return Tensor(whole, shape, dtype, whole, guarded).moved(0)

    def note_drawn(self, tensor: Tensor, words: str) -> None:
        """Give a tensor the key that follows from words: from now on it holds the numbers of that key."""
        # Nothing that a kernel reads tells this key, nor does one key tell another.
        digest = hashlib.blake2b(words.encode(), key=self._secret, digest_size=8)
        tensor.key.value = int.from_bytes(digest.digest(), "little")
        tensor.kind.value = INPUTS.index(self.inputs)

    def draw(self, name: str, seed: int) -> None:
        """Enqueue random numbers for all of a buffer, of the kind `inputs`; as int32 a thousand times as large."""
        self._draw(self.tensors[name], f"{seed} {name}")

    def _draw(self, tensor: Tensor, words: str) -> None:
        self.note_drawn(tensor, words)
        fill = f"fill<{C_TYPES[tensor.dtype]}>"
        self.gpu.harness.run(fill, tensor.elements, *tensor.drawn())

    @contextlib.contextmanager
    def inputs_of_kind(self, inputs: str) -> Iterator[None]:
        """Inside, inputs are drawn of another kind."""
        before, self.inputs = self.inputs, inputs
        try:
            yield
        finally:
            self.inputs = before

    # What launches must not write

    def memory_violation(self) -> tuple[str, str] | None:
        """(status, reason) where launches wrote what they must not.

        Bytes around a buffer, an input, or a workspace that must hold zeros.
        """
        if (written := self._written_guard()) is not None:
            return "out_of_bounds", written
        if self.gpu.harness.zeros_were_written():
            return "out_of_bounds", "the buffer that cleans the L2 was written"
        if (written := self._written_input()) is not None:
            return "incorrect", written
        for workspaces in self._workspaces.values():
            if (violation := workspaces.memory_violation()) is not None:
                return violation
        return None

    def _written_guard(self) -> str | None:
        """Which buffer's guard was written, and where."""
        named = self._guards()
        count = len(named)
        packed = b"".join(struct.pack("3q", *guard) for _, guard in named)
        # Behind the table: for each guard how many bytes changed, and how near to the buffer.
        table = self.gpu.upload(packed + bytes(16 * count))
        begin = int(table.handle)
        changes = begin + len(packed)
        places = (changes, changes + 8 * count, begin, count)
        byte = ctypes.c_int32(GUARD_BYTE)
        self.gpu.harness.run(GUARD, 4096 * count, *places, byte)
        results = self.gpu.download(changes, 16 * count)
        words = struct.unpack(f"{count}Q{count}d", results)
        for (name, guard), changed, nearest in zip(
            named, words[:count], words[count:], strict=True
        ):
            if changed:
                _, length, behind = guard
                distance = length - int(nearest)
                place = f"{distance + 1} bytes before the start"
                if behind:
                    place = f"{distance} bytes behind the end"
                written = f"{changed} bytes around {name} were written"
                return f"{written}, the nearest {place}"
        return None

    def _written_input(self) -> str | None:
        """Which input does not hold the numbers that were drawn for it."""
        harness = self.gpu.harness
        for name, tensor in self._buffers():
            if tensor.kind.value < 0:
                continue
            entry, count = f"count_changed<{C_TYPES[tensor.dtype]}>", tensor.elements
            _, changed = harness.reduce(entry, count, harness.count, *tensor.drawn())
            if changed:
                return f"{changed} elements of the input {name} were written"
        return None

    def _buffers(self) -> list[tuple[str, Tensor]]:
        """Name and tensor of every buffer, of each place and copy, once."""
        named = [*self.tensors.items()]
        for workspaces in self._workspaces.values():
            named += workspaces.tensors.items()
        for outputs in self._other_outputs.values():
            named += outputs.items()
        named += [(name, tensor) for (name, _), tensor in self._copies.items()]
        by_address = {
            int(tensor.whole.handle): (name, tensor) for name, tensor in named
        }
        return [*by_address.values()]

    def _guards(self) -> list[tuple[str, Guard]]:
        """Each guard with the name of its buffer."""
        named = []
        for name, tensor in self._buffers():
            begin, size = int(tensor.whole.handle), tensor.whole.size
            guards = guards_of(tensor.guarded, begin, size)
            named += [(name, guard) for guard in guards]
        return named + self.gpu.guards

    def close(self) -> None:
        """Free the buffers."""
        for _, tensor in self._buffers():
            tensor.buffer.close()
            tensor.whole.close()
            tensor.guarded.close(self.gpu.stream)
        for buffers in (self.tensors, self._other_outputs, self._copies):
            buffers.clear()
        self._workspaces.clear()


Maker = Callable[[Gpu, Mapping[str, int], str, str], Instance]

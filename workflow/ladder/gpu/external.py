"""Code of one's own: a C entry of a shared object, or a Python callable. docs/references.md has what they are given.

It is a reference, or launches the kernel that is judged.

Whatever they do wrong on the host is a LadderError, so that it becomes a note and does not end the run.
"""

import contextlib
import ctypes
import importlib.util
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from cuda.core import Buffer
from cuda.core.utils import StridedMemoryView

from ladder.gpu.device import Launcher
from ladder.gpu.instance import Instance
from ladder.model.cell import External
from ladder.model.errors import LadderError, within
from ladder.model.files import file_sha256
from ladder.model.problem import Params, Problem

_TYPES = {
    "fp64": "<f8",
    "fp32": "<f4",
    "tf32": "<f4",
    "fp16": "<f2",
    "bf16": "<i2",
    "fp8": "|u1",
}
"""Of elements, as NumPy names them (others: <i4). It has no bf16 and no fp8: their bits come as whole numbers."""


@dataclass(frozen=True)
class Array:
    """A buffer on the device, as torch.as_tensor(array, device="cuda"), cupy.asarray(array) and all that speak DLPack
    take it: not copied."""

    pointer: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Not read-only, which torch refuses: writes into inputs are found otherwise.
        return {
            "shape": self.shape,
            "typestr": self._type,
            "data": (self.pointer, False),
            "version": 3,
        }

    @property
    def _type(self) -> str:
        return _TYPES.get(self.dtype, "<i4")

    @cached_property
    def _view(self) -> StridedMemoryView:
        kind = np.dtype(self._type)
        size = math.prod(self.shape) * kind.itemsize
        buffer = Buffer.from_handle(self.pointer, size)
        return StridedMemoryView.from_buffer(buffer, self.shape, dtype=kind)

    def __dlpack__(self, **options: Any) -> Any:
        return self._view.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self._view.__dlpack_device__()
        return device


@dataclass(frozen=True)
class Asked:
    """What a Python callable is asked for: problem, dtype and layout."""

    name: str
    dtype: str
    layout: str


class ExternalCode:
    """One such function, whose file is loaded at its first use in the process."""

    def __init__(self, given: External) -> None:
        self.given = given
        # What the setup entry left, by dtype, layout and size.
        self._states: dict[tuple[Any, ...], ctypes.c_void_p] = {}

    def __str__(self) -> str:
        return f"{self.given.file}: {self.given.entry}"

    def launcher(
        self, problem: Problem, instance: Instance, params: Params
    ) -> Launcher:
        """What enqueues one run on the instance's buffers. Raises LadderError naming file and entry, as it does."""
        with within(str(self)):
            launch = self._launcher(problem, instance, params)

        def launcher() -> None:
            with within(str(self)):
                launch()

        return launcher

    def _launcher(
        self, problem: Problem, instance: Instance, params: Params
    ) -> Launcher:
        sizes: dict[str, Any] = {**instance.size, **params}
        scalars = {name: instance.scalars[name] for name in problem.scalars}
        stream = int(instance.gpu.stream.handle)
        tensors = {name: instance.tensors[name] for name in problem.buffers}
        if self.given.kind == "python":
            asked = Asked(problem.name, instance.dtype, instance.layout)
            arrays = {
                name: Array(tensor.pointer, tensor.shape, tensor.dtype)
                for name, tensor in tensors.items()
            }
            return self._python(asked, arrays, sizes, scalars, stream)
        numbers = (*problem.size_fields, *problem.parameters)
        common = [
            *(ctypes.c_int64(int(sizes[name])) for name in numbers),
            *(ctypes.c_float(value) for value in scalars.values()),
            ctypes.c_void_p(stream),
        ]
        pointers = [ctypes.c_void_p(tensor.pointer) for tensor in tensors.values()]
        words = {"dtype": instance.dtype, "layout": instance.layout}
        entry = self._function(self.given.entry, words)
        states = [self._state(words, sizes, common)] if self.given.setup else []
        return partial(_call, entry, *pointers, *common, *states)

    def _state(
        self, words: dict[str, str], sizes: dict[str, Any], common: list[Any]
    ) -> ctypes.c_void_p:
        """What the setup entry leaves for a size, in each dtype and layout; it is called once for each."""
        key = (*words.values(), *sizes.items())
        if key not in self._states:
            state = ctypes.c_void_p()
            setup = self._function(self.given.setup, words)
            _call(setup, ctypes.byref(state), *common)
            self._states[key] = state
        return self._states[key]

    def _function(self, name: str, words: dict[str, str]) -> Any:
        """A C function; in its name {dtype} and {layout} stand for the cell's."""
        for word, value in words.items():
            name = name.replace(f"{{{word}}}", value)
        try:
            return self._library[name]
        except AttributeError as error:
            raise LadderError(
                f'no entry {name!r}; accepted: a function exported as extern "C"'
            ) from error

    @cached_property
    def _library(self) -> ctypes.CDLL:
        self._refuse_changed()
        try:
            return ctypes.CDLL(self.given.file)
        except OSError as error:
            raise LadderError(f"cannot be loaded: {error}") from error

    def _python(self, *given: Any) -> Launcher:
        entry = getattr(self._module, self.given.entry, None)
        if not callable(entry):
            raise LadderError(
                f"no entry {self.given.entry!r}; accepted: a function of the module"
            )
        with _naming("raised"):
            launcher: Callable[[], object] = entry(*given)
        if not callable(launcher):
            raise LadderError(
                f"returned {launcher!r}, which is not accepted; accepted: a callable without arguments"
            )

        def launch() -> None:
            with _naming("its launcher raised"):
                launcher()

        return launch

    @cached_property
    def _module(self) -> ModuleType:
        self._refuse_changed()
        path = Path(self.given.file)
        name = f"reference_{path.stem}_{self.given.sha256[:8]}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # where dataclasses and compilers look for it
        with _naming("cannot be imported"):
            spec.loader.exec_module(module)
        return module

    def _refuse_changed(self) -> None:
        """What is loaded must be what records are said to be of."""
        if file_sha256(Path(self.given.file)) != self.given.sha256:
            raise LadderError(
                "the file has changed since the plan was made; make the plan again"
            )


def _call(function: Any, *arguments: Any) -> None:
    """Call a C function. Raises LadderError where it says that it failed."""
    if code := function(*arguments):
        raise LadderError(
            f"{function.__name__} returned {code}; 0 is success (a void function returns anything: let it return int)"
        )


@contextlib.contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise LadderError(f"{what}: {type(error).__name__}: {error}") from error

"""A launch of a kernel in Triton by Triton's interpreter, in NumPy."""

from __future__ import annotations

import functools
import importlib.util
import math
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.formats import Array, to_bits
from emulator.outcomes import Fault
from ladder.build.triton_request import compiler
from ladder.model.expressions import whole
from ladder.model.kernel import Variant

_TYPES = {"float32": "float32", "float16": "float16", "uint16": "bfloat16"}
"""What Triton calls an array's type; NumPy has no bf16, whose bits are kept."""
_BROKEN = "only 0-dimensional arrays can be converted"
"""What the interpreter of older versions of Triton says with NumPy from 2.4 on."""
_ALIGNMENT = 64  # bytes


def output(
    one: Variant,
    buffers: Mapping[str, Array],
    size: Mapping[str, int],
    scalars: Mapping[str, float],
    blocks: int = 0,
    text: str | None = None,
) -> Array:
    """The last of `buffers` behind a launch, of so many `blocks` where it is not 0; `text` stands in for the source.

    Skips the test without Triton. Raises Fault.
    """
    if not compiler():
        pytest.skip("Triton is not installed")
    assert (why := one.absent(size)) is None, why
    names = {**one.names(size), **scalars}
    arrays = {name: _as_triton_has_it(held, one) for name, held in buffers.items()}
    arguments = list[Any]()
    boxes = dict[int, list[int]]()
    for place, argument in enumerate(one.kernel.arguments):
        if argument.workspace:
            held = 0.0 if argument.workspace == "zeroed" else math.nan
            words = whole(argument.bytes, names) // 4
            arguments.append(np.full(words, held, np.float32))
        elif argument.kind == "scalar":
            arguments.append(argument.value(names))
        else:
            array = arrays[argument.name]
            arguments.append(array)
            if argument.box and argument.shape:
                boxes[place] = [whole(extent, names) for extent in argument.box]
                shape = [whole(extent, names) for extent in argument.shape]
                assert shape == [*array.shape], "a descriptor is of a whole buffer"
    grid = (blocks,) if blocks else one.geometry(size).grid
    source = one.kernel.source
    given = source, text, one.entry, grid, arguments, boxes, dict(one.constants)
    try:
        made = _interpreter().submit(_launched, *given).result()
    except Exception as error:
        if _BROKEN in str(error):
            pytest.skip("this Triton cannot interpret with this version of NumPy")
        raise
    for argument, left in zip(one.kernel.arguments, made, strict=True):
        if argument.workspace == "zeroed" and left.any():
            raise Fault("a counter or a flag is not zero in the end")
    *_, name = buffers
    place = [argument.name for argument in one.kernel.arguments].index(name)
    return np.asarray(made[place]).view(buffers[name].dtype)


def _as_triton_has_it(held: Array, one: Variant) -> Array:
    """Bits of a buffer as numbers."""
    half = np.float16 if one.dtype == "fp16" else np.uint16
    return np.ascontiguousarray(held).view(np.float32 if held.itemsize == 4 else half)


@functools.cache
def _interpreter() -> ProcessPoolExecutor:
    """A process in which Triton interprets, which it decides when it is imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        pool = ProcessPoolExecutor(1, get_context("spawn"), _prepare)
        pool.submit(int).result()
    return pool


# In that process.


class _Dtype(str):
    """What Triton asks a torch.dtype."""

    itemsize = 0


class _Tensor:
    """An array as Triton's interpreter takes tensors, between bytes that nobody may write and that are NaN to read."""

    def __init__(self, values: Array) -> None:
        self.room = np.full(2 * values.nbytes + _ALIGNMENT, 0xFF, np.uint8)
        begin = -self.room.ctypes.data % _ALIGNMENT
        self.end = begin + values.nbytes
        self.array = self.room[begin : self.end].view(values.dtype)
        self.array = self.array.reshape(values.shape)
        self.array[...] = values
        self.shape = values.shape
        self.ndim = values.ndim
        self.dtype = _Dtype(f"torch.{_TYPES[values.dtype.name]}")
        self.dtype.itemsize = values.itemsize

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def stride(self) -> list[int]:
        return [one // self.array.itemsize for one in self.array.strides]


def _prepare() -> None:
    """Have the interpreter copy its tensors from no device, round to bf16 where it truncates, and multiply bf16."""
    import triton.language as tl
    from triton.runtime.interpreter import (
        GridExecutor,
        InterpreterBuilder,
        TensorHandle,
    )

    GridExecutor._init_args_hst = lambda self, args, words: ([*args], {**words})
    GridExecutor._restore_args_dev = lambda self, *args: None
    cast = InterpreterBuilder.cast_impl

    def rounded(self: Any, source: Any, to: Any) -> Any:
        if (source.dtype.scalar, to.scalar) == (tl.float32, tl.bfloat16):
            return TensorHandle(to_bits(source.data, "bf16"), tl.bfloat16)
        return cast(self, source, to)

    multiply = InterpreterBuilder.create_dot

    def multiplied(self: Any, left: Any, right: Any, *more: Any) -> Any:
        operands = (
            self.cast_impl(one, tl.float32) if one.dtype.scalar == tl.bfloat16 else one
            for one in (left, right)
        )
        return multiply(self, *operands, *more)

    InterpreterBuilder.cast_impl = rounded
    InterpreterBuilder.create_dot = multiplied


def _launched(
    source: Path,
    text: str | None,
    entry: str,
    grid: Sequence[int],
    arguments: Sequence[Any],
    boxes: Mapping[int, Sequence[int]],
    constants: Mapping[str, Any],
) -> list[Any]:
    """The arguments behind a launch; those that are arrays and have a box are passed as tensor descriptors."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    given = [_Tensor(one) if isinstance(one, np.ndarray) else one for one in arguments]
    passed = [
        TensorDescriptor(one, [*one.shape], one.stride(), boxes[place])
        if place in boxes
        else one
        for place, one in enumerate(given)
    ]
    sys.path.insert(0, str(source.parent))
    with tempfile.TemporaryDirectory() as folder:
        # Triton reads the source of a function again when it is launched.
        path = Path(shutil.copy(source, folder))
        if text is not None:
            path.write_text(text)
        spec = importlib.util.spec_from_file_location(source.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        getattr(module, entry)[grid](*passed, **constants)
    tensors = [one for one in given if isinstance(one, _Tensor)]
    if any((one.room[one.end :] != 0xFF).any() for one in tensors):
        raise Fault("it writes behind its output")
    return [one.array if isinstance(one, _Tensor) else one for one in given]

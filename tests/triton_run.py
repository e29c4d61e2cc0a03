"""Launches of kernels in Triton by Triton's interpreter, in NumPy, as their descriptions say.

As a program it carries out pickled launches: Triton decides whether to interpret when it is imported.
"""

from __future__ import annotations

import importlib.util
import math
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulator.tensor_ptx import to_bits
from ladder.build.triton_request import compiler
from ladder.catalogue.kernels import load_kernel
from ladder.model.expressions import whole
from ladder.model.kernel import Argument

_TYPES = {"float32": "float32", "float16": "float16", "uint16": "bfloat16"}
"""What Triton calls an array's type; NumPy has no bf16, whose bits are kept."""
_BROKEN = "only 0-dimensional arrays can be converted"
"""What the interpreter of older versions of Triton says with NumPy from 2.4 on."""
_found_broken: list[bool] = []
"""Once it has said so: every process would import Triton for nothing."""
_SKIPS = "this version of Triton cannot interpret with this version of NumPy"
_ALIGNMENT = 64  # bytes


@dataclass(frozen=True)
class Launch:
    """A variant of the kernel at `path` at a size, on the problem's buffers; `scalars` are those that no size has."""

    path: Path
    dtype: str
    size: Mapping[str, int]
    buffers: Mapping[str, np.ndarray]
    params: Mapping[str, Any] = field(default_factory=dict)
    layout: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)


def interpreted(launches: Sequence[Launch]) -> list[dict[str, np.ndarray]]:
    """What each launch leaves in its buffers, and in `zeroed` and `scratch` where it has such a workspace.

    Skips the test without Triton. Raises AssertionError where a launch fails.
    """
    if not compiler():
        pytest.skip("Triton is not installed")
    if _found_broken:
        pytest.skip(_SKIPS)
    there = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": ":".join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, __file__],
        input=pickle.dumps(launches),
        env=there,
        capture_output=True,
        check=False,
    )
    if _BROKEN.encode() in done.stderr:
        _found_broken.append(True)
        pytest.skip(_SKIPS)
    assert done.returncode == 0, done.stderr.decode()
    found: list[dict[str, np.ndarray]] = pickle.loads(done.stdout)
    return found


def with_mistake(source: Path, folder: Path, right: str, mistaken: str) -> Path:
    """A folder with a copy of a kernel, its description beside it, that has a mistake."""
    folder.mkdir()
    shutil.copy(source.with_suffix(".yaml"), folder)
    text = source.read_text()
    assert right in text, right
    (folder / source.name).write_text(text.replace(right, mistaken))
    return folder


class _Dtype(str):
    """What Triton asks a torch.dtype."""

    itemsize = 0


class _Tensor:
    """An array as Triton's interpreter takes tensors."""

    def __init__(self, values: np.ndarray) -> None:
        room = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
        self.array = room[-room.ctypes.data % _ALIGNMENT :][: values.nbytes].view(
            values.dtype
        )
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


def _launched(given: Launch) -> dict[str, np.ndarray]:
    from triton.tools.tensor_descriptor import TensorDescriptor

    variant = load_kernel(given.path).variant(
        given.params, given.dtype, given.layout or None
    )
    assert (why := variant.absent(given.size)) is None, why
    names = {**variant.names(given.size), **given.scalars}
    tensors = {name: _Tensor(values) for name, values in given.buffers.items()}

    def argument(one: Argument) -> Any:
        if one.workspace:
            begins = 0.0 if one.workspace == "zeroed" else math.nan
            tensors[one.workspace] = _Tensor(
                np.full(whole(one.bytes, names) // 4, begins, np.float32)
            )
            return tensors[one.workspace]
        if one.kind == "scalar":
            return names[one.name]
        tensor = tensors[one.name]
        if one.pointer:
            return tensor
        shape, box = (
            [whole(extent, names) for extent in of or ()] for of in (one.shape, one.box)
        )
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        assert shape == [*tensor.shape], "a descriptor is made of a buffer as it is"
        return TensorDescriptor(tensor, shape, strides, box)

    source = variant.kernel.source
    sys.path.insert(0, str(source.parent))
    spec = importlib.util.spec_from_file_location(source.stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    arguments = [argument(one) for one in variant.kernel.arguments]
    getattr(module, variant.entry)[variant.geometry(given.size).grid](
        *arguments, **variant.constants
    )
    return {name: tensor.array for name, tensor in tensors.items()}


if __name__ == "__main__":
    _prepare()
    asked = pickle.load(sys.stdin.buffer)
    sys.stdout.buffer.write(pickle.dumps([_launched(one) for one in asked]))

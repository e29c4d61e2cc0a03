"""Kernels ready to launch, loaded from cubins, with their arguments: numbers, pointers and TMA tensor maps."""

import ctypes
import functools
import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import Kernel, LaunchConfig, ObjectCode, launch
from cuda.core._tensor_map import (
    TensorMapDataType,
    TensorMapL2Promotion,
    TensorMapSwizzle,
)
from cuda.core.utils import StridedMemoryView

from ladder.gpu.device import checked
from ladder.gpu.instance import Instance
from ladder.gpu.tensor import Tensor
from ladder.model.errors import LadderError
from ladder.model.plan import Launch
from ladder.model.problem import ELEMENT_BYTES

_CTYPES: dict[str, type[Any]] = {
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "float32": ctypes.c_float,
}
_MAP_TYPES = {
    "fp16": TensorMapDataType.FLOAT16,
    "bf16": TensorMapDataType.BFLOAT16,
    "fp8": TensorMapDataType.UINT8,
    "int32": TensorMapDataType.INT32,
}
"""Others: FLOAT32."""

Loaded = functools.partial[None]
"""A kernel with its launch configuration and arguments: calling it enqueues one launch, on the first of its `args`."""


def tensor_map(tensor: Tensor, box: list[int], swizzle: str, l2_promotion: str) -> Any:
    """The descriptor of tiled copies of `box` elements, outermost extent first; swizzle "rows" is as wide as its rows.

    Elements outside the tensor read as zero. Raises LadderError where the driver refuses, such as for rows that are no
    multiple of 16 bytes.
    """
    if len(box) != len(tensor.shape):
        raise LadderError(
            f"a box of {len(box)} extents for a tensor of {len(tensor.shape)}"
        )
    size = ELEMENT_BYTES[tensor.dtype]
    width = f"{box[-1] * size}B" if swizzle == "rows" else swizzle
    if width not in ("none", "32B", "64B", "128B"):
        raise LadderError(
            f"no swizzle is {width} wide, as rows of the box {box} are: 32B, 64B and 128B are"
        )
    view = StridedMemoryView.from_buffer(
        tensor.buffer, tensor.shape, itemsize=size, dtype=np.dtype(f"u{size}")
    )
    fetched = "NONE" if l2_promotion == "none" else f"L2_{l2_promotion}"
    swizzled = "NONE" if width == "none" else f"SWIZZLE_{width}"
    try:
        return view.as_tensor_map(
            tuple(box),
            data_type=_MAP_TYPES.get(tensor.dtype, TensorMapDataType.FLOAT32),
            swizzle=TensorMapSwizzle[swizzled],
            l2_promotion=TensorMapL2Promotion[fetched],
        )
    except (ValueError, RuntimeError) as error:
        raise LadderError(
            f"no tensor map for a box {box} of a tensor {tensor.shape}: {error}"
        ) from error


def _argument(argument: Mapping[str, Any], instance: Instance) -> Any:
    if "pointer" in argument:
        return instance.pointer(argument["pointer"])
    if "tensor_map" in argument:
        tensor = instance.tensors[argument["tensor_map"]]
        return tensor_map(
            tensor, argument["box"], argument["swizzle"], argument["l2_promotion"]
        )
    kind = _CTYPES[argument["type"]]
    if "scalar" in argument:
        return kind(instance.scalars[argument["scalar"]])
    return kind(argument["value"])


@functools.lru_cache(maxsize=1)
def _kernel(cubin: bytes) -> Kernel:
    """The one kernel of a cubin, which stays loaded while the same cubin is used."""
    code = ObjectCode.from_cubin(cubin)
    handle = checked(driver.cuLibraryEnumerateKernels(1, code.handle))[0]
    return code.get_kernel(checked(driver.cuKernelGetName(handle)))


def static_shared_bytes(cubin: bytes) -> int:
    """Static shared memory in bytes of the kernel in a cubin."""
    return int(_kernel(cubin).attributes.shared_size_bytes)


def load(cubin: bytes, plan: Launch, instance: Instance) -> Loaded:
    """The kernel, ready to launch, with its workspaces. The scalars are read now: load again after a change.

    Raises LadderError, OutOfDeviceMemory.
    """
    for argument in plan.arguments:
        if "workspace" in argument:
            instance.provide_workspace(argument)
    kernel, grid, gpu = _kernel(cubin), plan.grid, instance.gpu
    # Else the first launch loads it, and waits for a stream that is held.
    checked(driver.cuFuncLoad(checked(driver.cuKernelGetFunction(int(kernel.handle)))))
    if plan.shared_bytes > 48 * 1024:
        gpu.allow_shared(kernel, plan.shared_bytes)
    if plan.cluster:
        if math.prod(plan.cluster) > 8:
            gpu.allow_large_clusters(kernel)
        # cuda.core counts the grid in clusters.
        x, y, z = map(operator.floordiv, plan.grid, plan.cluster)
        grid = x, y, z
    config = LaunchConfig(
        grid=grid, block=plan.block, cluster=plan.cluster, shmem_size=plan.shared_bytes
    )
    arguments = [_argument(argument, instance) for argument in plan.arguments]
    loaded = Loaded(launch, gpu.stream, config, kernel, *arguments)
    if kernel.attributes.local_size_bytes:
        loaded()  # for a larger stack the driver waits as well
    return loaded

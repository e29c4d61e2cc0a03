"""Kernels ready to launch, loaded from cubins."""

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cuda.bindings import driver
from cuda.core import Kernel, LaunchConfig, ObjectCode, Stream, launch

from ladder.gpu.driver import checked
from ladder.gpu.instance import Instance
from ladder.gpu.tensor_maps import tensor_map
from ladder.model.plan import Launch

_CTYPES: dict[str, type[Any]] = {"int32": ctypes.c_int32, "int64": ctypes.c_int64, "float32": ctypes.c_float}


@dataclass(frozen=True)
class Loaded:
    """A kernel with its launch configuration and arguments: calling it enqueues one launch."""

    stream: Stream
    kernel: Kernel
    config: LaunchConfig
    arguments: tuple[Any, ...]

    def __call__(self) -> None:
        launch(self.stream, self.config, self.kernel, *self.arguments)


def _argument(argument: Mapping[str, Any], instance: Instance) -> Any:
    if "pointer" in argument:
        return instance.pointers[argument["pointer"]]
    if "tensor_map" in argument:
        tensor = instance.tensors[argument["tensor_map"]]
        return tensor_map(tensor, argument["box"], argument["swizzle"], argument["l2_promotion"])
    value = argument["value"] if "value" in argument else instance.scalars[argument["scalar"]]
    return _CTYPES[argument["type"]](value)


@functools.lru_cache(maxsize=1)
def _kernel(cubin: bytes) -> Kernel:
    """The one kernel of a cubin, which stays loaded while the same cubin is asked for."""
    code = ObjectCode.from_cubin(cubin)
    handle = checked(driver.cuLibraryEnumerateKernels(1, code.handle))[0]
    return code.get_kernel(checked(driver.cuKernelGetName(handle)))


class Loader:
    """Loads kernels onto a device."""

    def __init__(self, stream: Stream, device: int) -> None:
        self._stream, self._device = stream, device

    def static_shared_bytes(self, cubin: bytes) -> int:
        """Static shared memory in bytes of the kernel in a cubin."""
        return int(_kernel(cubin).attributes.shared_size_bytes)

    def load(self, cubin: bytes, plan: Launch, instance: Instance) -> Loaded:
        """The kernel, ready to launch on an instance as the plan says.

        The instance's scalars are read at once: load again after changing one. Raises LadderError from the driver.
        """
        kernel, grid = _kernel(cubin), plan.grid
        if plan.shared_bytes > 48 * 1024:
            limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            where = (driver.CUkernel(int(kernel.handle)), driver.CUdevice(self._device))
            checked(driver.cuKernelSetAttribute(limit, plan.shared_bytes, *where))
        if plan.cluster:
            # cuda.core counts the grid in clusters.
            x, y, z = (blocks // size for blocks, size in zip(plan.grid, plan.cluster, strict=True))
            grid = x, y, z
        config = LaunchConfig(grid=grid, block=plan.block, cluster=plan.cluster, shmem_size=plan.shared_bytes)
        arguments = tuple(_argument(argument, instance) for argument in plan.arguments)
        return Loaded(self._stream, kernel, config, arguments)

"""Device memory around which nothing is mapped: what a kernel accesses beyond its ends is an error.

By the driver's virtual memory management (CUDA driver API, "Virtual Memory Management"): more addresses are reserved
than memory is mapped to.
"""

import contextlib
from collections.abc import Iterator

from cuda.bindings import driver
from cuda.core import Buffer

from ladder.gpu.device import Gpu, checked

_FAR = 2**30  # bytes of addresses without memory, ahead and behind
_ALIGNED = 256  # bytes: as buffers are that a GPU allocates


@contextlib.contextmanager
def mapped(gpu: Gpu, size: int) -> Iterator[tuple[int, int]]:
    """Memory for `size` bytes beyond which nothing is mapped: addresses of its first byte and behind its last.

    Inside, the memory is there. It is given back once all work is done, also where that has failed. Raises LadderError
    where the device has no such memory, or not enough.
    """
    device = gpu.device.device_id
    where = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type, wanted.location.id = where, device
    access = driver.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    page = int(checked(driver.cuMemGetAllocationGranularity(wanted, least)))
    whole = -(-size // page) * page
    # Where the context is lost, the calls that undo say so and do not raise.
    with contextlib.ExitStack() as undo:
        first = int(checked(driver.cuMemAddressReserve(whole + 2 * _FAR, page, 0, 0)))
        undo.callback(driver.cuMemAddressFree, first, whole + 2 * _FAR)
        memory = checked(driver.cuMemCreate(whole, wanted, 0))
        undo.callback(driver.cuMemRelease, memory)
        begin = first + _FAR
        checked(driver.cuMemMap(begin, whole, 0, memory, 0))
        undo.callback(driver.cuMemUnmap, begin, whole)
        checked(driver.cuMemSetAccess(begin, whole, [access], 1))
        try:
            yield begin, begin + whole
        finally:
            # What the context was lost by is on its way.
            with contextlib.suppress(Exception):
                gpu.sync()


def at_ends(begin: int, end: int, size: int) -> tuple[Buffer, Buffer]:
    """Buffers in such memory: at its first byte, and ending with it, or so few bytes earlier that it is aligned."""
    last = (end - size) // _ALIGNED * _ALIGNED
    return Buffer.from_handle(begin, size), Buffer.from_handle(last, size)

"""Device memory around which nothing is mapped: what a kernel accesses beyond its ends is an error.

By the driver's virtual memory management (CUDA driver API, "Virtual Memory Management"): more addresses are reserved
than memory is mapped to.
"""

import contextlib
from collections.abc import Iterator, Sequence

from cuda.bindings import driver
from cuda.core import Buffer

from ladder.gpu.device import Gpu, checked

_FAR = 2**30  # bytes of addresses without memory, ahead of all and behind all
_ALIGNED = 256  # bytes: as buffers are that a GPU allocates


@contextlib.contextmanager
def mapped(gpu: Gpu, buffers: Sequence[Buffer]) -> Iterator[list[tuple[int, int]]]:
    """Memory in place of each buffer, around which nothing is mapped: its first address, and the one behind its last.

    All lies in one range of addresses, in the order and at the distances of the buffers, so that a kernel cannot tell
    which it has. Guards lie between buffers, so that whole pages between them have no memory.

    Inside, the memory is there. It is given back once all work is done, also where that has failed. Raises LadderError
    where the device has no such memory, or not enough.
    """
    wanted = driver.CUmemAllocationProp()
    wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = gpu.device.device_id
    access = driver.CUmemAccessDesc()
    access.location = wanted.location
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    page = int(checked(driver.cuMemGetAllocationGranularity(wanted, least)))
    whole_pages = []
    for buffer in buffers:
        begin, end = int(buffer.handle), int(buffer.handle) + buffer.size
        whole_pages.append((begin // page * page, -(-end // page) * page))
    lowest = min(begin for begin, _ in whole_pages) - _FAR
    size = max(end for _, end in whole_pages) + _FAR - lowest
    # Where the context is lost, the calls that undo say so and do not raise.
    with contextlib.ExitStack() as undo:
        first = int(checked(driver.cuMemAddressReserve(size, page, 0, 0)))
        undo.callback(driver.cuMemAddressFree, first, size)
        areas = []
        for begin, end in whole_pages:
            moved, length = begin - lowest + first, end - begin
            memory = checked(driver.cuMemCreate(length, wanted, 0))
            undo.callback(driver.cuMemRelease, memory)
            checked(driver.cuMemMap(moved, length, 0, memory, 0))
            undo.callback(driver.cuMemUnmap, moved, length)
            checked(driver.cuMemSetAccess(moved, length, [access], 1))
            areas.append((moved, moved + length))
        try:
            yield areas
        finally:
            # What the context was lost by is on its way.
            with contextlib.suppress(Exception):
                gpu.sync()


def at_ends(begin: int, end: int, size: int) -> tuple[Buffer, Buffer]:
    """Buffers in such memory: at its first byte, and ending with it, or so few bytes earlier that it is aligned."""
    last = (end - size) // _ALIGNED * _ALIGNED
    return Buffer.from_handle(begin, size), Buffer.from_handle(last, size)

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
def mapped(
    gpu: Gpu, buffers: Sequence[Buffer]
) -> Iterator[tuple[list[Buffer], list[Buffer]]]:
    """Others in place of some buffers, in memory around which nothing is mapped. Each begins with its memory, or ends.

    What ends with it does so but for up to 255 bytes, so that it is aligned. All memory is in one range of addresses,
    in the order and at the distances of the buffers, so that a kernel cannot tell which it has. Guards lie around
    buffers, hence whole pages are between them.

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
    first_pages = [int(buffer.handle) // page for buffer in buffers]
    ends = [-(-(int(buffer.handle) + buffer.size) // page) for buffer in buffers]
    lowest = min(first_pages) * page - _FAR
    size = max(ends) * page + _FAR - lowest
    # Where the context is lost, the calls that undo say so and do not raise.
    with contextlib.ExitStack() as undo:
        reserved = int(checked(driver.cuMemAddressReserve(size, page, 0, 0)))
        undo.callback(driver.cuMemAddressFree, reserved, size)
        at_begin, at_end = list[Buffer](), list[Buffer]()
        for buffer, first, end in zip(buffers, first_pages, ends, strict=True):
            begin, length = reserved + first * page - lowest, (end - first) * page
            memory = checked(driver.cuMemCreate(length, wanted, 0))
            undo.callback(driver.cuMemRelease, memory)
            checked(driver.cuMemMap(begin, length, 0, memory, 0))
            undo.callback(driver.cuMemUnmap, begin, length)
            checked(driver.cuMemSetAccess(begin, length, [access], 1))
            last = (begin + length - buffer.size) // _ALIGNED * _ALIGNED
            at_begin.append(Buffer.from_handle(begin, buffer.size))
            at_end.append(Buffer.from_handle(last, buffer.size))
        try:
            yield at_begin, at_end
        finally:
            # What the context was lost by is on its way.
            with contextlib.suppress(Exception):
                gpu.sync()

// The 32-bit address of a pointer into shared memory, as instructions in PTX take it.
#pragma once

__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

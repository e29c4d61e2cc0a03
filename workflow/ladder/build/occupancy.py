"""Theoretical occupancy from registers, shared memory and threads, without a GPU.

Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the occupancy calculator
(registers per warp in units of 256; shared memory in units of 128 bytes, 1 KiB of each block is the system's from 8.0).
"""

from typing import Any

from ladder.model.architecture import Architecture
from ladder.model.expressions import align_up, ceil_div

WARP = 32
_BLOCK_THREADS = 1024  # the most of a block, on every compute capability


def occupancy(
    limits: Architecture, threads: int, registers: int, shared_bytes: int
) -> dict[str, Any]:
    """Blocks an SM holds at once, the share of its warps they fill, and what limits them: columns of resources.csv.

    From registers a thread and shared bytes a block (static + dynamic); 0 blocks if one block is too large.
    """
    warps = ceil_div(threads, WARP)
    by = {
        "warps": limits.warps // warps if threads <= _BLOCK_THREADS else 0,
        "blocks": limits.blocks,
    }
    if registers:
        # The register file is split between the SM's four schedulers, each serving whole warps.
        per_warp = align_up(registers * WARP, 256)
        by["registers"] = limits.registers // 4 // per_warp * 4 // warps
    reserved = limits.shared_bytes - limits.block_shared_bytes
    held = align_up(max(shared_bytes + reserved, 1), 128)
    by["shared memory"] = limits.shared_bytes // held
    limit = min(by, key=by.__getitem__)
    share = by[limit] * warps / limits.warps
    return {"blocks_per_sm": by[limit], "occupancy": share, "occupancy_limit": limit}

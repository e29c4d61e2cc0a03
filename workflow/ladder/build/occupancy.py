"""Theoretical occupancy from registers, shared memory and threads, without a GPU.

Limits and allocation units per compute capability: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability", and the occupancy calculator's allocation rules (registers per warp in units of 256, shared memory in
units of 128 bytes plus 1 KiB the system keeps per block from 8.0 on).
"""

from dataclasses import dataclass

from ladder.model.expressions import align_up, ceil_div

WARP = 32
_BLOCK_THREADS = 1024  # the most of a block, on every compute capability


@dataclass(frozen=True)
class SmLimits:
    """What one SM holds: warps, blocks, 32-bit registers, shared bytes, and the bytes a block loses to the system."""

    warps: int
    blocks: int
    registers: int
    shared_bytes: int
    reserved_shared_bytes: int


_KIB = 1024
LIMITS = {
    75: SmLimits(32, 16, 65536, 64 * _KIB, 0),
    80: SmLimits(64, 32, 65536, 164 * _KIB, _KIB),
    86: SmLimits(48, 16, 65536, 100 * _KIB, _KIB),
    87: SmLimits(48, 16, 65536, 164 * _KIB, _KIB),
    89: SmLimits(48, 24, 65536, 100 * _KIB, _KIB),
    90: SmLimits(64, 32, 65536, 228 * _KIB, _KIB),
    100: SmLimits(64, 32, 65536, 228 * _KIB, _KIB),
    103: SmLimits(64, 32, 65536, 228 * _KIB, _KIB),
    120: SmLimits(48, 24, 65536, 100 * _KIB, _KIB),
}
"""By architecture: 90 for sm_90a."""


@dataclass(frozen=True)
class Occupancy:
    """Blocks an SM holds at once, the share of its warps they fill, and what limits them."""

    blocks_per_sm: int
    occupancy: float
    occupancy_limit: str


def occupancy(limits: SmLimits, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Occupancy of a block of `threads` with `registers` per thread and `shared_bytes` (static + dynamic).

    blocks_per_sm is 0 where a block exceeds what an SM or a block may have.
    """
    warps = ceil_div(threads, WARP)
    by = {"warps": limits.warps // warps if threads <= _BLOCK_THREADS else 0, "blocks": limits.blocks}
    if registers:
        # The register file is split between the SM's four schedulers, each serving whole warps.
        per_warp = align_up(registers * WARP, 256)
        by["registers"] = limits.registers // 4 // per_warp * 4 // warps
    held = align_up(max(shared_bytes + limits.reserved_shared_bytes, 1), 128)
    by["shared memory"] = limits.shared_bytes // held
    limit = min(by, key=lambda name: by[name])
    return Occupancy(by[limit], by[limit] * warps / limits.warps, limit)

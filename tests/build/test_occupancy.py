"""Theoretical occupancy, against cases worked out by NVIDIA's rules on paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ladder.build.occupancy import occupancy
from ladder.model.architecture import ARCHITECTURES

KIB = 1024


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "expected"),
    [
        # 8 warps of 32 x 128 registers: 32768 of 65536 a block.
        (90, 256, 128, 0, (2, 16 / 64, "registers")),
        # One register more is rounded up to 136 a thread: 15 warps would fit, 12 in whole schedulers.
        (90, 256, 129, 0, (1, 8 / 64, "registers")),
        # 32 registers fill the warps exactly.
        (80, 256, 32, 0, (8, 1.0, "warps")),
        # 33 are rounded to 40: 12 x 4 warps, not 15 x 4.
        (90, 128, 33, 0, (12, 48 / 64, "registers")),
        # A quarter of the registers each: 5 warps of 3072 a scheduler, though 21 would fit the whole file.
        (90, 32, 96, 0, (20, 20 / 64, "registers")),
        # Small blocks run out of block slots first: 32 of one warp, 16 on sm_86.
        (86, 32, 16, 0, (16, 16 / 48, "blocks")),
        # 48 KiB and the system's 1 KiB: 49 of 164, 100 and 228.
        (90, 128, 32, 48 * KIB, (4, 16 / 64, "shared memory")),
        # Above 48 KiB, as dynamic shared memory allows: two blocks of 113 KiB fill sm_90's 228.
        (90, 128, 32, 113 * KIB, (2, 8 / 64, "shared memory")),
        (90, 128, 32, 113 * KIB + 1, (1, 4 / 64, "shared memory")),
        # The most a block may have, and a byte more.
        (80, 128, 32, 163 * KIB + 1, (0, 0.0, "shared memory")),
        # 8.8 is as 8.6.
        (88, 32, 16, 0, (16, 16 / 48, "blocks")),
        # 32 warps of 72 registers a thread do not fit the register file.
        (90, 1024, 65, 0, (0, 0.0, "registers")),
    ],
)
def test_cases_on_paper(
    arch: int,
    threads: int,
    registers: int,
    shared: int,
    expected: tuple[int, float, str],
) -> None:
    found = occupancy(ARCHITECTURES[arch], threads, registers, shared)
    assert tuple(found.values()) == expected


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_block_of_more_than_1024_threads_does_not_exist(arch: int) -> None:
    assert occupancy(ARCHITECTURES[arch], 1024, 16, 0)["blocks_per_sm"] >= 1
    assert occupancy(ARCHITECTURES[arch], 1056, 16, 0)["blocks_per_sm"] == 0


@given(
    st.sampled_from([80, 86, 90]),
    st.integers(1, 32),
    st.integers(16, 247),
    st.integers(0, 99 * KIB),
)
def test_more_of_anything_never_raises_the_number_of_blocks(
    arch: int, warps: int, registers: int, shared: int
) -> None:
    def blocks(warps: int, registers: int, shared: int) -> int:
        found = occupancy(ARCHITECTURES[arch], 32 * warps, registers, shared)
        return int(found["blocks_per_sm"])

    here = blocks(warps, registers, shared)
    assert blocks(warps + 1, registers, shared) <= here
    assert blocks(warps, registers + 8, shared) <= here
    assert blocks(warps, registers, shared + 4096) <= here

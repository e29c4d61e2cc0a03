"""Where TMA, wgmma and stmatrix look for a value: operands and results in shared memory, sums in registers."""

from __future__ import annotations

import itertools

import pytest
from hopper import hold
from ladder.errors import LadderError

LINE, BOX = 128, 64 * 128
"""Bytes of a swizzled line and of a box of 64."""

# Operands in shared memory: the copy engine's rule, the descriptor's rule, and the source's formulas agree.


def by_copy_engine(line: int, byte: int) -> int:
    """Offset in a box that the copy engine writes a byte to: address bits 4-6 are XORed with bits 7-9."""
    plain = line * LINE + byte
    return plain ^ (plain >> 7 & 7) << 4


def decoded(descriptor: int) -> dict[str, int]:
    """Fields of a matrix descriptor in bytes (PTX ISA 9.7.15.5.1.2.2)."""
    return {
        "start": (descriptor & 0x3FFF) * 16,
        "leading": (descriptor >> 16 & 0x3FFF) * 16,
        "stride": (descriptor >> 32 & 0x3FFF) * 16,
        "base_offset": descriptor >> 49 & 7,
        "mode": descriptor >> 62,
    }


def by_tensor_core(fields: dict[str, int], major: str, along: int, k: int, size: int) -> int:
    """Address that the tensor cores read element (along M or N, k) of one product from, with 128-byte swizzle.

    The canonical layouts of the PTX ISA (strides in bytes): along K ((8, m), k): ((128, stride), size); along
    N ((64, n), (8, k)): ((size, leading), (128, stride)).
    """
    if major == "k":
        plain = along % 8 * 128 + along // 8 * fields["stride"] + k * size
    else:
        plain = along % 64 * size + along // 64 * fields["leading"] + k % 8 * 128 + k // 8 * fields["stride"]
    address = fields["start"] + plain
    return address ^ (address >> 7 & 7) << 4


@pytest.mark.parametrize(
    ("element", "size", "major", "extent"),
    [
        ("__nv_bfloat16", 2, "k", 128),
        ("__half", 2, "k", 256),
        ("__half", 2, "mn", 128),
        ("__nv_bfloat16", 2, "mn", 256),
        ("Tf32", 4, "k", 128),
        ("E4m3", 1, "k", 256),
    ],
)
def test_tensor_cores_read_what_the_copy_engine_wrote(
    element: str, size: int, major: str, extent: int
) -> None:
    base, depth = 5 * 1024, 32 // size
    tile = f"OperandTile<{element}, Major::{major}, {extent}>"
    descriptors = []
    for step in range(4):
        if major == "k":
            start, leading = base + step * 32, 16
        else:
            start, leading = base + step * depth * LINE, BOX
        descriptors.append(start >> 4 | leading >> 4 << 16 | 1024 >> 4 << 32 | 1 << 62)
        fields = decoded(descriptors[-1])
        assert (fields["mode"], fields["base_offset"]) == (1, 0)
        for along, k in itertools.product(range(extent), range(depth)):
            deep = step * depth + k
            if major == "k":
                written = base + along // 64 * BOX + by_copy_engine(along % 64, deep * size)
            else:
                written = base + along // 64 * BOX + by_copy_engine(deep, along % 64 * size)
            assert by_tensor_core(fields, major, along, k, size) == written
    hold(
        '#include "operand_tile.cuh"',
        *(f"{tile}::descriptor_at({base}, {step}) == {value}ull" for step, value in enumerate(descriptors)),
        f"{tile}::bytes == {extent * LINE} && {tile}::depth == {LINE // size}",
    )


def test_the_descriptor_keeps_addresses_within_its_field() -> None:
    top = 227 * 1024 - 1024
    hold(
        '#include "wgmma.cuh"',
        f"swizzled_descriptor({top}, 16, 1024) == {top >> 4 | 1 << 16 | 64 << 32 | 1 << 62}ull",
        "swizzled_descriptor(0x1000400, 16, 1024) == swizzled_descriptor(0x400, 16, 1024)",
    )


def test_only_16_bit_operands_run_along_n() -> None:
    with pytest.raises(LadderError, match="16-bit elements"):
        hold('#include "operand_tile.cuh"', "sizeof(OperandTile<Tf32, Major::mn, 64>) > 0")


# Results on their way: registers -> box -> C.

BOX_OF_RESULTS = """
#include "accumulator_store.cuh"

template <class Value>
__host__ __device__ constexpr bool engine_order() {
    for (int line = 0; line < 64; ++line) {
        for (int byte = 0; byte < 128; ++byte) {
            const int plain = line * 128 + byte;
            if (swizzled(line, byte) != (plain ^ (plain >> 7 & 7) << 4)) return false;
        }
    }
    return true;
}

// Word w of a stmatrix: lane l holds row l / 4, columns 2 (l % 4) on, of matrix w, whose row r lies where lane 8 w + r
// of the warp points.
__host__ __device__ constexpr bool matrices_land_in_place() {
    using Ring = StoreRing<__nv_bfloat16, 1>;
    for (int thread = 0; thread < 128; ++thread) {
        const int warp = thread / 32 * 32, lane = thread % 32;
        for (int i = 0; i < 32; i += 8) {
            for (int w = 0; w < 4; ++w) {
                const int to = Ring::matrix_line(warp + 8 * w + lane / 4, i) + lane % 4 * 4;
                if (to != swizzled(sum_row(thread, i + 2 * w), 2 * sum_column(thread, i + 2 * w))) return false;
            }
        }
    }
    return true;
}

// The eight lanes that address one matrix reach all 32 banks.
__host__ __device__ constexpr bool matrices_are_conflict_free() {
    for (int first = 0; first < 128; first += 8) {
        for (int i = 0; i < 32; i += 8) {
            unsigned seen = 0;
            for (int lane = 0; lane < 8; ++lane) {
                seen |= 1u << StoreRing<__half, 1>::matrix_line(first + lane, i) / 16 % 8;
            }
            if (seen != 0xff) return false;
        }
    }
    return true;
}

template <int N>
__host__ __device__ constexpr bool registers_cover() {
    bool seen[64][N] = {};
    for (int thread = 0; thread < 128; ++thread) {
        for (int i = 0; i < N / 2; ++i) {
            bool& here = seen[sum_row(thread, i)][sum_column(thread, i)];
            if (here) return false;
            here = true;
        }
    }
    return true;
}
"""


def test_results_land_where_the_copy_engine_looks_for_them() -> None:
    hold(
        BOX_OF_RESULTS,
        "engine_order<float>()",
        "matrices_land_in_place()",
        "matrices_are_conflict_free()",
        "registers_cover<64>()",
        "registers_cover<16>()",
    )


def test_registers_are_where_the_isa_says() -> None:
    # Figure of fragment D of wgmma: row 0 holds T0 d0 d1, T1 d0 d1, ...; row 8 T0 d2 d3; column 8 T0 d4 d5; row 16 T32.
    hold(
        '#include "wgmma.cuh"',
        "sum_row(0, 0) == 0 && sum_column(0, 1) == 1 && sum_column(1, 0) == 2 && sum_row(4, 0) == 1",
        "sum_row(0, 2) == 8 && sum_column(0, 3) == 1",
        "sum_row(0, 4) == 0 && sum_column(0, 4) == 8",
        "sum_row(32, 0) == 16 && sum_row(127, 127) == 63 && sum_column(127, 127) == 255",
    )

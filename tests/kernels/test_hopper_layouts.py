"""Where TMA, wgmma and stmatrix look for a value: operands and results in shared memory, sums in registers."""

from __future__ import annotations

import itertools
import re

import pytest
from compiling import compile_ptx
from emulator.hopper import INCLUDE, WIDTHS, hold, refute
from ladder.model.errors import LadderError

LINE = 128
BOX = 64 * 128
"""Bytes of a swizzled line and of a box of 64 lines."""


def by_copy_engine(line: int, byte: int) -> int:
    """Offset at which TMA stores a byte of a box with 128-byte swizzle."""
    plain = line * LINE + byte
    return plain ^ (plain >> 7 & 7) << 4


# Operands in shared memory: TMA's rule, the descriptor's rule, and the source's formulas agree.


def decoded(descriptor: int) -> dict[str, int]:
    """Fields of a matrix descriptor in bytes (PTX ISA 9.7.15.5.1.2.2)."""
    return {
        "start": (descriptor & 0x3FFF) * 16,
        "leading": (descriptor >> 16 & 0x3FFF) * 16,
        "stride": (descriptor >> 32 & 0x3FFF) * 16,
        "base_offset": descriptor >> 49 & 7,
        "mode": descriptor >> 62,
    }


def by_tensor_core(
    fields: dict[str, int], major: str, along: int, k: int, size: int
) -> int:
    """Address that the tensor cores read element (along M or N, k) of one WGMMA from, with 128-byte swizzle.

    The canonical layouts of the PTX ISA (strides in bytes): along K ((8, m), k): ((128, stride), size); along
    N ((64, n), (8, k)): ((size, leading), (128, stride)).
    """
    if major == "k":
        plain = along % 8 * 128 + along // 8 * fields["stride"] + k * size
    else:
        plain = (
            along % 64 * size
            + along // 64 * fields["leading"]
            + k % 8 * 128
            + k // 8 * fields["stride"]
        )
    address = fields["start"] + plain
    return address ^ (address >> 7 & 7) << 4


@pytest.mark.parametrize(
    ("element", "size", "major", "extent"),
    [
        ("__nv_bfloat16", 2, "k", 32),
        ("__half", 2, "k", 448),
        ("__nv_bfloat16", 2, "mn", 384),
        ("Tf32", 4, "k", 176),
        ("E4m3", 1, "k", 256),
    ],
)
def test_tensor_cores_read_what_the_copy_engine_wrote(
    element: str, size: int, major: str, extent: int
) -> None:
    # Along K a box is as long as the block's share of the tile, which are whole swizzles. Along N it holds 64 columns.
    base = 5 * 1024
    depth = 32 // size
    tile = f"OperandTile<{element}, Major::{major}, {extent}>"
    descriptors = []
    for step in range(4):
        if major == "k":
            start = base + step * 32
            leading = 16
        else:
            start = base + step * depth * LINE
            leading = BOX
        descriptors.append(start >> 4 | leading >> 4 << 16 | 1024 >> 4 << 32 | 1 << 62)
        fields = decoded(descriptors[-1])
        assert (fields["mode"], fields["base_offset"]) == (1, 0)
        for along, k in itertools.product(range(extent), range(depth)):
            deep = step * depth + k
            if major == "k":
                written = base + by_copy_engine(along, deep * size)
            else:
                written = (
                    base + along // 64 * BOX + by_copy_engine(deep, along % 64 * size)
                )
            assert by_tensor_core(fields, major, along, k, size) == written
    hold(
        '#include "mma/operand_tile.cuh"',
        *(
            f"{tile}::at_step({tile}::descriptor_at({base}), {step}) == {value}ull"
            for step, value in enumerate(descriptors)
        ),
        f"{tile}::bytes == {extent * LINE} && {tile}::depth == {LINE // size}",
    )


@pytest.fixture(scope="module", params=["__half", "Tf32"])
def wgmmas(request: pytest.FixtureRequest) -> dict[int, str]:
    """PTX of a kernel with one wgmma, by its width; all of one source."""
    kernels = [
        f"""
extern "C" __global__ void kernel_{width}(float* sums, unsigned long long a, unsigned long long b, int add) {{
    float d[{width // 2}];
    for (int i = 0; i < {width // 2}; ++i) d[i] = sums[i];
    Wgmma<{request.param}, {width}>::wgmma<false>(d, a, b, add);
    for (int i = 0; i < {width // 2}; ++i) sums[i] = d[i];
}}
"""
        for width in WIDTHS
    ]
    text = '#include "ptx/wgmma.cuh"\n' + "".join(kernels)
    ptx = compile_ptx(INCLUDE / "one.cu", f"kernel_{WIDTHS[0]}", [INCLUDE], text)
    _, *parts = re.split(r"\.entry kernel_(\d+)", ptx)
    return dict(zip(map(int, parts[::2]), parts[1::2], strict=True))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_wgmma_names_the_registers_of_its_sums_in_order(
    wgmmas: dict[int, str], width: int
) -> None:
    ptx = wgmmas[width]
    (wgmma,) = re.findall(
        r"wgmma\.mma_async\.\S*\.m64n(\d+)k\S* \{(.*?)\}, (%\w+), (%\w+), add,", ptx
    )
    (add,) = re.findall(r"setp\.ne\.b32 add, (%\w+), 0", ptx)
    sums = wgmma[1].split(", ")
    assert wgmma[0] == str(width)
    loads = re.findall(r"ld\.global\.f32\s+(%f\d+), \[%rd\d+(?:\+(\d+))?\]", ptx)
    stores = re.findall(r"st\.global\.f32\s+\[%rd\d+(?:\+(\d+))?\], (%f\d+)", ptx)
    for accesses in (loads, [(register, offset) for offset, register in stores]):
        places = {register: int(offset or 0) // 4 for register, offset in accesses}
        assert [places[register] for register in sums] == list(range(width // 2))
    given = dict(
        re.findall(r"ld\.param\.u\d+\s+(%\w+), \[kernel_\d+_param_(\d)\]", ptx)
    )
    assert [given[register] for register in (*wgmma[2:], add)] == ["1", "2", "3"]


def test_the_descriptor_keeps_addresses_within_its_field() -> None:
    top = 227 * 1024 - 1024
    hold(
        '#include "ptx/wgmma.cuh"',
        f"swizzled_descriptor({top}, 16, 1024) == {top >> 4 | 1 << 16 | 64 << 32 | 1 << 62}ull",
        "swizzled_descriptor(0x1000400, 16, 1024) == swizzled_descriptor(0x400, 16, 1024)",
        # Only the low word moves: its sum must not carry into the strides.
        f"moved(swizzled_descriptor({top}, 16, 1024), 992) == swizzled_descriptor({top + 992}, 16, 1024)",
        f"moved(swizzled_descriptor({top}, 8192, 1024), -{top}) == swizzled_descriptor(0, 8192, 1024)",
    )


def test_only_16_bit_operands_run_along_n() -> None:
    with pytest.raises(LadderError, match="16-bit elements"):
        hold(
            '#include "mma/operand_tile.cuh"',
            "sizeof(OperandTile<Tf32, Major::mn, 64>) > 0",
        )


# Results on their way: registers -> box -> C.

BOX_OF_RESULTS = """
#include "epilogue/warpgroup_store.cuh"

// Address bits from 4 on are XORed with as many from 7 on: three for lines of 128 bytes, two for 64,
// one for 32.
template <int Line>
__host__ __device__ constexpr bool engine_order() {
    for (int line = 0; line < 64; ++line) {
        for (int byte = 0; byte < Line; ++byte) {
            const int plain = line * Line + byte;
            if (swizzled<Line>(line, byte) != (plain ^ (plain >> 7 & (Line / 16 - 1)) << 4)) return false;
        }
    }
    return true;
}

// Word w of a stmatrix: lane l holds row l / 4, columns 2 (l % 4) on, of matrix w, whose row r lies where lane 8 w + r
// of the warp points.
template <int Columns>
__host__ __device__ constexpr bool matrices_land_in_place() {
    using Ring = TmaStoreRing<__nv_bfloat16, Columns, 1>;
    for (int thread = 0; thread < 128; ++thread) {
        const int warp = thread / 32 * 32, lane = thread % 32;
        for (int i = 0; i < Ring::box_columns / 2; i += 8) {
            for (int w = 0; w < 4; ++w) {
                const int to = Ring::matrix_line(warp + 8 * w + lane / 4, i) + lane % 4 * 4;
                const int row = accumulator_row(thread, i + 2 * w), byte = 2 * accumulator_column(thread, i + 2 * w);
                if (to != swizzled<Ring::line>(row, byte)) return false;
            }
        }
    }
    return true;
}

// The eight lanes that address one matrix reach all 32 banks.
template <int Columns>
__host__ __device__ constexpr bool matrices_are_conflict_free() {
    using Ring = TmaStoreRing<__half, Columns, 1>;
    for (int first = 0; first < 128; first += 8) {
        for (int i = 0; i < Ring::box_columns / 2; i += 8) {
            unsigned seen = 0;
            for (int lane = 0; lane < 8; ++lane) seen |= 1u << Ring::matrix_line(first + lane, i) / 16 % 8;
            if (seen != 0xff) return false;
        }
    }
    return true;
}

// The copies of a consumer's boxes, filled with its sums from register `first` on, are its columns one after the other.
template <class Value, int Columns>
__host__ __device__ constexpr bool boxes_cover() {
    using Ring = TmaStoreRing<Value, Columns, 1>;
    bool seen[Columns] = {};
    int next = 0;
    for (int first = 0; first < Columns / 2; first += Ring::box_columns / 2) {
        if (first * 2 != next) return false;
        for (int thread = 0; thread < 128; ++thread) {
            for (int i = 0; i < Ring::box_columns / 2; ++i) {
                const int column = first * 2 + accumulator_column(thread, i);
                if (column != accumulator_column(thread, first + i)) return false;
                if (accumulator_row(thread, i) != accumulator_row(thread, first + i)) return false;
                if (column < next || column >= next + Ring::box_columns) return false;
                seen[column] = true;
            }
        }
        next += Ring::box_columns;
    }
    for (const bool here : seen) {
        if (!here) return false;
    }
    return next == Columns;
}

template <int N>
__host__ __device__ constexpr bool registers_cover() {
    bool seen[64][N] = {};
    for (int thread = 0; thread < 128; ++thread) {
        for (int i = 0; i < N / 2; ++i) {
            bool& here = seen[accumulator_row(thread, i)][accumulator_column(thread, i)];
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
        *(f"engine_order<{line}>()" for line in (128, 64, 32)),
        *(f"matrices_land_in_place<{columns}>()" for columns in WIDTHS),
        *(f"matrices_are_conflict_free<{columns}>()" for columns in WIDTHS),
        # One box and several, with lines of each width.
        *(
            f"boxes_cover<{value}, {columns}>()"
            for value in ("__half", "float")
            for columns in (32, 48, 64, 96, 256)
        ),
        "registers_cover<96>()",
        "registers_cover<80>()",
        "registers_cover<64>()",
        "registers_cover<16>()",
    )


def test_boxes_of_the_wrong_swizzle_are_caught() -> None:
    for columns, wrong in ((64, 64), (80, 64)):
        text = BOX_OF_RESULTS.replace(
            "swizzled<Ring::line>(row", f"swizzled<{wrong}>(row"
        )
        refute(text, f"matrices_land_in_place<{columns}>()")


def line_of(columns: int, size: int) -> int:
    """Bytes of the widest lines that whole copies of `columns` results of `size` bytes have."""
    return next(line for line in (128, 64, 32) if columns * size % line == 0)


@pytest.mark.parametrize(("value", "size"), [("__half", 2), ("float", 4)])
def test_boxes_hold_as_many_copies_as_fit(value: str, size: int) -> None:
    assertions = []
    for columns, boxes in itertools.product(WIDTHS, (1, 3)):
        ring = f"TmaStoreRing<{value}, {columns}, {boxes}>"
        line = line_of(columns, size)
        assertions += [
            f"{ring}::line == {line} && {ring}::box_columns == {line // size}",
            f"{ring}::box_bytes == {64 * line} && {ring}::per_buffer == {LINE // line}",
            f"sizeof({ring}) == {boxes * BOX} && alignof({ring}) == 1024",
        ]
    hold(BOX_OF_RESULTS, *assertions)


def test_a_box_is_whole() -> None:
    with pytest.raises(LadderError, match="a box of TMA is whole"):
        hold(BOX_OF_RESULTS, "sizeof(TmaStoreRing<__half, 72, 1>) > 0")


def test_registers_are_where_the_isa_says() -> None:
    # Figure of fragment D of wgmma: row 0 holds T0 d0 d1, T1 d0 d1, ...; row 8 T0 d2 d3; column 8 T0 d4 d5; row 16 T32.
    hold(
        '#include "ptx/wgmma.cuh"',
        "accumulator_row(0, 0) == 0 && accumulator_column(0, 1) == 1",
        "accumulator_column(1, 0) == 2 && accumulator_row(4, 0) == 1",
        "accumulator_row(0, 2) == 8 && accumulator_column(0, 3) == 1",
        "accumulator_row(0, 4) == 0 && accumulator_column(0, 4) == 8",
        "accumulator_row(32, 0) == 16 && accumulator_row(127, 127) == 63 && accumulator_column(127, 127) == 255",
    )

"""The probes of broadcasts, writes, wide accesses and ldmatrix: instructions, addresses and sums, without a GPU."""

from __future__ import annotations

from typing import Any

from checkout import ROOT, catalog
from compiling import compiled_without_spills, opcodes
from emulator.hopper import hold
from ladder.build.banks import matrix_wavefronts
from ladder.problems.banks.instance import (
    expected_sums,
    predicted_wavefronts,
    words_read,
)

FOLDER = ROOT / "kernels/shared_memory"
SHARED = ("LDS", "LDSM", "STS", "LDL", "STL")
ACCESSES: list[tuple[str, dict[str, Any], str]] = [
    ("bank_stride", {"stride": 32}, "LDS"),
    ("bank_column", {"tile_layout": "xor"}, "LDS"),
    ("bank_access", {}, "LDS"),
    ("bank_access", {"width": 8, "stride": 16}, "LDS.64"),
    ("bank_access", {"width": 16, "same_bits": 31}, "LDS.128"),
    ("bank_access", {"access": "write", "stride": 0}, "STS"),
    ("bank_access", {"access": "write", "width": 8, "same_bits": 31}, "STS.64"),
    ("bank_access", {"access": "write", "width": 16}, "STS.128"),
    ("bank_broadcast", {"pattern": "bank_row"}, "LDS"),
    ("bank_matrix", {"matrices": 1, "row_bytes": 64}, "LDSM.16.M88"),
    ("bank_matrix", {"matrices": 4, "tile_layout": "xor"}, "LDSM.16.M88.4"),
]


def timed(opcodes: list[str]) -> list[str]:
    """Shared-memory instructions of the timed part: after the barrier that follows the first clock, up to the next."""
    names = [opcode.split(".")[0] for opcode in opcodes]
    begin = names.index("BAR", names.index("CS2R"))
    end = names.index("BAR", begin + 1)
    return [opcodes[at] for at in range(begin, end) if names[at] in SHARED]


def test_the_timed_loop_is_one_access_per_pattern() -> None:
    """None is joined with another one, or dropped."""
    variants = [
        catalog()[name].variant(params, "int32") for name, params, _ in ACCESSES
    ]
    cubins = compiled_without_spills(variants)
    for one, cubin, (*_, opcode) in zip(variants, cubins, ACCESSES, strict=True):
        assert timed(opcodes(cubin, "sm_90a")) == [opcode] * 32, one.id


ADDRESSES = """
// Distinct words of the busiest bank over the lanes [first, last), each taking `width` words, or -1 for a bad address.
template <class Access>
__host__ __device__ constexpr int turns(int first, int last, int width, int pattern) {
    int busiest = 0, seen[32][32] = {}, count[32] = {};  // by bank
    for (int lane = first; lane < last; ++lane) {
        const int word = Access::word(lane, pattern);
        if (word < 0 || word % width || word + width > Access::words) return -1;
        for (int wanted = word; wanted < word + width; ++wanted) {
            const int bank = wanted % 32;
            bool known = false;
            for (int i = 0; i < count[bank]; ++i) known = known || seen[bank][i] == wanted;
            if (!known) seen[bank][count[bank]++] = wanted;
            busiest = count[bank] > busiest ? count[bank] : busiest;
        }
    }
    return busiest;
}

// Every pattern takes `expected` turns in every group of `lanes` lanes.
template <class Access>
__host__ __device__ constexpr bool takes(int expected, int lanes, int width) {
    for (int pattern = 0; pattern < patterns; ++pattern) {
        for (int first = 0; first < 32; first += lanes) {
            if (turns<Access>(first, first + lanes, width, pattern) != expected) return false;
        }
    }
    return true;
}

template <class Access>
__host__ __device__ constexpr bool no_two_patterns_are_alike() {
    for (int one = 0; one < patterns; ++one) {
        for (int other = 0; other < one; ++other) {
            if (Access::word(0, one) == Access::word(0, other)) return false;
        }
    }
    return true;
}
"""


def hold_in(name: str, *assertions: str) -> None:
    """Static assertions about the addresses of a kernel's source."""
    hold((FOLDER / f"{name}.cu").read_text() + ADDRESSES, *assertions)


def test_addresses_of_the_broadcasts() -> None:
    hold_in(
        "bank_broadcast",
        "takes<pattern_one_word>(1, 32, 1)",
        "takes<pattern_groups>(1, 32, 1)",
        "takes<pattern_bank_row>(1, 32, 1)",
        "takes<pattern_two_words>(2, 32, 1)",
        # Random words of a row repeat: fewer than 32 different ones.
        "pattern_bank_row::word(0, 0) != pattern_bank_row::word(1, 0)",
    )


def test_addresses_of_strides_and_shared_vectors() -> None:
    hold_in(
        "bank_access",
        "takes<VectorAccess<1, 0, 0>>(1, 32, 1)",
        "takes<VectorAccess<1, 2, 0>>(2, 32, 1)",
        "takes<VectorAccess<1, 32, 0>>(32, 32, 1)",
        "takes<VectorAccess<1, 33, 0>>(1, 32, 1)",
        "takes<VectorAccess<2, 16, 0>>(16, 16, 2)",
        "takes<VectorAccess<4, 2, 0>>(2, 8, 4)",
        "takes<VectorAccess<4, 1, 31>>(1, 32, 4)",
        # Halves that share make one conflict-free warp of 8-byte vectors, quarters that share one of 16-byte vectors.
        "takes<VectorAccess<2, 1, 16>>(1, 32, 2)",
        "takes<VectorAccess<4, 1, 24>>(1, 32, 4)",
        "squeezed(31, 1) == 15 && squeezed(6, 2) == 2 && squeezed(21, 0) == 21",
    )


def test_addresses_of_matrix_rows() -> None:
    """Eight rows 128 bytes apart meet in the same banks, 64 bytes apart by fours; padding and XOR spread them."""
    for chunks in (8, 4):
        for layout, turns in (("plain", chunks), ("padded", 1), ("xor", 1)):
            rows = f"MatrixRows<tile_{layout}<{chunks}>, {chunks}>"
            takes = f"takes<{rows}>({turns}, 8, 4)"
            hold_in("bank_matrix", takes, f"no_two_patterns_are_alike<{rows}>()")


# What the check demands of a kernel.


def test_a_lane_reads_all_words_of_its_vector() -> None:
    offsets = [16 * lane for lane in range(32)]
    assert words_read(offsets, 2, {"width": 16}) == [8, 9, 10, 11]
    assert words_read(offsets, 2, {"width": 8}) == [8, 9]
    assert words_read(offsets, 2, {}) == [8]


def test_a_lane_of_ldmatrix_reads_a_word_of_each_matrix() -> None:
    rows = [1000 * 16 + 16 * lane for lane in range(32)]
    # Lane 6 holds word 2 of row 1: rows 1, 9, 17 and 25 of the address list.
    assert words_read(rows, 6, {"matrices": 4}) == [
        4000 + 4 * row + 2 for row in (1, 9, 17, 25)
    ]
    assert words_read(rows, 31, {"matrices": 1}) == [4000 + 4 * 7 + 3]


def test_sums_count_every_round() -> None:
    patterns = [[4 * (lane + pattern) for lane in range(32)] for pattern in range(32)]
    sums = expected_sums(patterns, 64, {})
    assert sums[1] == 2 * sum(range(1, 33)) * 2654435761 % 2**32
    assert len(set(sums)) == 32


def test_predictions_follow_the_kind_of_access() -> None:
    rows = [128 * (lane % 16) + 16 * (lane // 16) for lane in range(32)]
    for matrices, count in ((1, 8), (2, 16), (4, 32)):
        assert predicted_wavefronts(rows, {"matrices": matrices}) == count
    assert matrix_wavefronts([144 * row for row in range(8)]) == 1
    assert predicted_wavefronts([16 * lane for lane in range(32)], {"width": 16}) == 4
    # As counted on an H200: reads of one vector by all lanes merge in pairs of phases, writes do not.
    for width, access, count in (
        (8, "read", 1),
        (8, "write", 2),
        (16, "read", 2),
        (16, "write", 4),
    ):
        params = {"width": width, "access": access}
        assert predicted_wavefronts([0] * 32, params) == count

"""The probes of broadcasts, writes, wide accesses and ldmatrix: instructions, addresses and sums, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from checkout import catalog, facts_of
from compiling import compile_text, compiled_without_spills, opcodes
from ladder.build.banks import matrix_wavefronts
from ladder.problems.banks.instance import (
    expected_sums,
    predicted_wavefronts,
    words_read,
)
from ladder.results.statistics import access_costs, records

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "kernels" / "include"
FOLDER = ROOT / "kernels" / "shared_memory"
ARCH = "sm_90a"


def timed(opcodes: list[str]) -> list[str]:
    """Shared-memory instructions of the timed part: after the barrier that follows the first clock, up to the next."""
    clock = next(
        place for place, opcode in enumerate(opcodes) if opcode.startswith("CS2R")
    )
    bars = [
        place
        for place, opcode in enumerate(opcodes)
        if opcode.startswith("BAR") and place > clock
    ]
    part = opcodes[bars[0] : bars[1]]
    return [
        opcode
        for opcode in part
        if opcode.split(".")[0] in ("LDS", "LDSM", "STS", "LDL", "STL")
    ]


ACCESSES: list[tuple[str, dict[str, Any], str]] = [
    ("bank_access", {}, "LDS"),
    ("bank_access", {"width": 8, "stride": 16}, "LDS.64"),
    ("bank_access", {"width": 16, "stride": 3}, "LDS.128"),
    ("bank_access", {"width": 16, "same_bits": 31}, "LDS.128"),
    ("bank_access", {"access": "write", "stride": 33}, "STS"),
    ("bank_access", {"access": "write", "stride": 0}, "STS"),
    ("bank_access", {"access": "write", "width": 8, "same_bits": 31}, "STS.64"),
    ("bank_access", {"access": "write", "width": 16}, "STS.128"),
    ("bank_broadcast", {"pattern": "one_word"}, "LDS"),
    ("bank_broadcast", {"pattern": "bank_row"}, "LDS"),
    ("bank_matrix", {"matrices": 1, "row_bytes": 64}, "LDSM.16.M88"),
    ("bank_matrix", {"matrices": 2, "tile_layout": "padded"}, "LDSM.16.M88.2"),
    ("bank_matrix", {"matrices": 4, "tile_layout": "xor"}, "LDSM.16.M88.4"),
]


def test_the_timed_loop_is_one_access_per_pattern() -> None:
    variants = [
        catalog()[name].variant(params, "int32") for name, params, _ in ACCESSES
    ]
    for one, cubin, (*_, opcode) in zip(
        variants, compiled_without_spills(variants), ACCESSES, strict=True
    ):
        assert timed(opcodes(cubin, ARCH)) == [opcode] * 32, one.id


def test_a_written_word_is_read_back_after_the_clock() -> None:
    facts = facts_of(
        catalog()["bank_access"].variant({"access": "write", "width": 16}, "int32")
    )
    assert facts["lds_128"] == 32


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

__global__ void addresses() {
    ASSERTIONS
}
"""


def hold(name: str, *assertions: str) -> None:
    """Compile a kernel's source with static assertions about its addresses."""
    text = (FOLDER / f"{name}.cu").read_text(encoding="utf-8")
    text += ADDRESSES.replace(
        "ASSERTIONS", "\n    ".join(f'static_assert({one}, "");' for one in assertions)
    )
    compile_text(text, ["addresses"], [INCLUDE], ARCH)


def test_addresses_of_the_broadcasts() -> None:
    hold(
        "bank_broadcast",
        "takes<pattern_one_word>(1, 32, 1)",
        "takes<pattern_groups>(1, 32, 1)",
        "takes<pattern_bank_row>(1, 32, 1)",
        "takes<pattern_two_words>(2, 32, 1)",
        # Random words of a row repeat: fewer than 32 different ones.
        "pattern_bank_row::word(0, 0) != pattern_bank_row::word(1, 0)",
    )


def test_addresses_of_strides_and_shared_vectors() -> None:
    hold(
        "bank_access",
        *(
            f"takes<VectorAccess<1, {stride}, 0>>({turns}, 32, 1)"
            for stride, turns in ((0, 1), (1, 1), (2, 2))
        ),
        "takes<VectorAccess<1, 32, 0>>(32, 32, 1)",
        "takes<VectorAccess<1, 33, 0>>(1, 32, 1)",
        "takes<VectorAccess<2, 1, 0>>(1, 16, 2)",
        "takes<VectorAccess<2, 16, 0>>(16, 16, 2)",
        "takes<VectorAccess<4, 1, 0>>(1, 8, 4)",
        "takes<VectorAccess<4, 2, 0>>(2, 8, 4)",
        "takes<VectorAccess<4, 1, 31>>(1, 32, 4)",
        # Halves that share make one conflict-free warp of 8-byte vectors, quarters that share one of 16-byte vectors.
        "takes<VectorAccess<2, 1, 16>>(1, 32, 2)",
        "takes<VectorAccess<4, 1, 24>>(1, 32, 4)",
        "squeezed(31, 1) == 15 && squeezed(6, 2) == 2 && squeezed(31, 31) == 0 && squeezed(21, 0) == 21",
    )


def test_addresses_of_matrix_rows() -> None:
    """Eight rows 128 bytes apart meet in the same banks, 64 bytes apart by fours; padding and XOR spread them."""
    for chunks, plain in ((8, 8), (4, 4)):
        layouts = (("plain", plain), ("padded", 1), ("xor", 1))
        rows = {
            layout: f"MatrixRows<tile_{layout}<{chunks}>, {chunks}>"
            for layout, _ in layouts
        }
        hold(
            "bank_matrix",
            *(f"takes<{rows[layout]}>({turns}, 8, 4)" for layout, turns in layouts),
            *(f"no_two_patterns_are_alike<{access}>()" for access in rows.values()),
        )


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
    assert [predicted_wavefronts(rows, {"matrices": count}) for count in (1, 2, 4)] == [
        8,
        16,
        32,
    ]
    assert matrix_wavefronts([144 * row for row in range(8)]) == 1
    assert predicted_wavefronts([16 * lane for lane in range(32)], {"width": 16}) == 4
    # As counted on an H200: reads of one vector by all lanes merge in pairs of phases, writes do not.
    for width, read, written in ((8, 1, 2), (16, 2, 4)):
        assert (
            predicted_wavefronts([0] * 32, {"width": width, "access": "read"}) == read
        )
        assert (
            predicted_wavefronts([0] * 32, {"width": width, "access": "write"})
            == written
        )


def test_a_writing_kernel_is_counted_by_its_stores() -> None:
    row = {"sweep": "s", "variant": "v", "elements": 4096}
    waves, requests = (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared",
        "smsp__inst_executed_op_shared",
    )
    counts = {
        f"{waves}_op_ld": 256,
        f"{waves}_op_st": 65536,
        f"{requests}_ld": 256,
        f"{requests}_st": 32768,
    }
    metrics = pd.DataFrame(
        [
            {**row, "metric": f"{name}.sum", "value": float(value)}
            for name, value in counts.items()
        ]
    )
    (costs,) = records(access_costs(pd.DataFrame([row]), metrics))
    assert costs["wavefronts"] == 2

"""Where a ladder's rungs stand in the code: the lines of a file that the one before does not have, or parameters."""

from __future__ import annotations

import re

import pytest
from checkout import every_sweep
from conftest import ROOT
from ladder.model.sweep import Entry
from ladder.report.code_links import (
    changed_lines,
    code_links,
    file_before,
    file_of,
    new_code,
)

SWEEPS = every_sweep()


def lines_of(href: str) -> list[str]:
    path, _, ends = href.partition("#")
    lines = (ROOT / path.removeprefix("../")).read_text(encoding="utf-8").splitlines()
    numbers = (
        [int(one.removeprefix("L")) for one in ends.split("-")]
        if ends
        else [1, len(lines)]
    )
    return lines[numbers[0] - 1 : numbers[-1]]


def entry_of(ladder: str, rung: str) -> Entry:
    (entry,) = [
        one for one in SWEEPS[ladder].entries if one.rung.partition(" ")[0] == rung
    ]
    return entry


def new_lines(ladder: str, rung: str) -> tuple[str, list[str]]:
    """The file before that of a rung, and the lines that it lacks."""
    entry = entry_of(ladder, rung)
    own, before = file_of(entry, SWEEPS), file_before(entry, SWEEPS[ladder], SWEEPS)
    assert own is not None
    assert before is not None
    return before.kernel.name, [
        line.strip()
        for one in changed_lines(own, before.kernel, ROOT)
        for line in lines_of(one.href)
    ]


@pytest.mark.parametrize(("ladder", "rung", "before", "lines"), [
    ("hopper_ladder", "1b", "1_tma_wgmma", ["if (threadIdx.x == 0 && step + 1 < steps) copy(step + 1);"]),
    ("hopper_ladder", "3", "2_ring", ["ring.init(consumers * 4)", "shrink_registers", "grow_registers"]),
    ("hopper_ladder", "5", "4_persistent", ["ring.init(ClusterM", "cluster_barrier();", "load<ClusterM>"]),
    ("hopper_ladder", "6", "5_multicast", ["if (thread == 0) wait_for_stores();", "shared.c[consumer].store("]),
    ("hopper_ladder", "6c", "6_tma_store", ["barrier<2>(start_barrier);", "arrive<2>(start_barrier);"]),
    ("hopper_ladder", "6d", "6c_stagger", ["const int k_of_step = (backwards ? steps - 1 - step : step) * depth;"]),
    ("hopper_ladder", "6f", "6d_serpentine", ["load<1, Evict::first>"]),
    ("hopper_ladder", "7", "6_tma_store", ["warpgroup_barrier<2>(turn_barrier", "warpgroup_arrive<2>(turn_barrier"]),
    ("hopper_ladder", "8", "6_tma_store", ["leave_sums<threads>(", "take_sums<threads, added>("]),
    ("fp32_ladder", "2b", "1_naive", ["threadIdx.x / Columns;"]),
    ("fp32_ladder", "3", "2_coalesced", ["__syncthreads();"]),
    ("fp32_ladder", "11", "5_vectors", ["fetch(0);", "store_to_shared();"]),
    ("fp32_ladder", "15", "6_register_staging", ["wait_for_copies<Stages - 2>();", "copy_async<4>("]),
    ("fp32_ladder", "20c", "7_async_ring", ["shrink_registers", "mbarrier_arrive_after_copies(stage.full);"]),
    ("reduction", "3", "2_interleaved_tree", ["if (thread < left) sums[thread] += sums[thread + left];"]),
    ("reduction", "8", "7_fixed_order", ["bulk_load(stage, input + width * first,"]),
    ("transpose_fp32", "3", "2_tile", ["__shared__ Element tile[32][32 + 1];"]),
    ("transpose_bf16", "7", "6_tma_squares", ["ldmatrix_trans(", "stmatrix("]),
])  # fmt: skip
def test_the_lines_that_make_a_rung_are_among_those_that_the_file_before_lacks(
    ladder: str, rung: str, before: str, lines: list[str]
) -> None:
    name, found = new_lines(ladder, rung)
    assert name == before
    assert [line for line in lines if not any(line in one for one in found)] == []


def test_heads_and_braces_alone_are_no_new_lines() -> None:
    for ladder in (
        "fp32_ladder",
        "hopper_ladder",
        "reduction",
        "transpose_fp32",
        "transpose_bf16",
    ):
        for entry in SWEEPS[ladder].entries:
            own, before = (
                file_of(entry, SWEEPS),
                file_before(entry, SWEEPS[ladder], SWEEPS),
            )
            if own is None or before is None:
                continue
            for one in changed_lines(own, before.kernel, ROOT):
                first, *_, last = [*lines_of(one.href), lines_of(one.href)[-1]]
                for line in (first, last):
                    assert re.search(r"\w", line.partition("//")[0]), (
                        own.name,
                        one.text,
                    )
                    assert not line.startswith(
                        ("template", "struct", "#include", "__global__")
                    ), (
                        own.name,
                        one.text,
                    )


def test_the_first_file_of_a_ladder_has_none_before_it() -> None:
    assert (
        file_before(entry_of("hopper_ladder", "1"), SWEEPS["hopper_ladder"], SWEEPS)
        is None
    )
    assert (
        file_before(entry_of("fp32_ladder", "1"), SWEEPS["fp32_ladder"], SWEEPS) is None
    )


@pytest.mark.parametrize(("ladder", "rung", "file", "line"), [
    ("hopper_ladder", "6", "6_tma_store.cu", ""),
    ("hopper_ladder", "4b", "4_persistent.cu", "params: {raster: 0}"),
    ("hopper_ladder", "6c", "hopper_gemm.cu", "params: {stagger: 1}"),
    ("hopper_ladder", "3b", "hopper_gemm.cu", "rung: 3b two consumers"),
    ("fp32_ladder", "11", "gemm_staged.cu", "rung: 11 register prefetch"),
])  # fmt: skip
def test_a_rung_links_to_the_kernel_that_is_measured_and_its_parameters(
    ladder: str, rung: str, file: str, line: str
) -> None:
    whole, *rest = code_links(entry_of(ladder, rung), SWEEPS[ladder], ROOT)
    assert whole.text == file
    lines = [text.strip() for one in rest for text in lines_of(one.href)]
    assert (line in lines) if line else rest == []


def test_each_rung_of_a_ladder_has_links_that_lead_somewhere() -> None:
    for name in ("fp32_ladder", "tensor_ladder_bf16", "hopper_ladder"):
        for entry in SWEEPS[name].entries:
            for one in code_links(entry, SWEEPS[name], ROOT):
                assert any(line.strip() for line in lines_of(one.href)), (
                    entry.rung,
                    one,
                )


@pytest.mark.parametrize(("ladder", "rung", "files"), [
    ("attention", "9", ["lean_softmax.cuh"]),  # a type of its own in the file of rung 8
    ("attention_64", "6a", []),  # a number
    ("attention", "8", ["8_persistent.cu"]),
    ("softmax_fp32", "7b", ["7_ring.cu"]),  # over another file
])  # fmt: skip
def test_a_rung_with_the_file_of_the_one_that_it_changes_has_the_header_of_what_its_parameters_name(
    ladder: str, rung: str, files: list[str]
) -> None:
    found = new_code(entry_of(ladder, rung), SWEEPS[ladder], SWEEPS, ROOT)
    assert [
        *dict.fromkeys(one.href.partition("#")[0].rpartition("/")[2] for one in found)
    ] == files
    assert all(lines_of(one.href) for one in found)

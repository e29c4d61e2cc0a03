"""Where a ladder's rungs stand in the code: the lines of a file that the one before does not have, or parameters."""

from __future__ import annotations

import pytest
from conftest import ROOT
from ladder.catalogue.runs import load
from ladder.catalogue.settings import set_up
from ladder.report.code_links import code_links

SWEEPS = load(set_up(ROOT)).every_sweep


def lines_of(href: str) -> list[str]:
    path, _, ends = href.partition("#")
    lines = (ROOT / path.removeprefix("../")).read_text(encoding="utf-8").splitlines()
    numbers = [int(one.removeprefix("L")) for one in ends.split("-")] if ends else [1, len(lines)]
    return lines[numbers[0] - 1 : numbers[-1]]


def linked(ladder: str, rung: str) -> tuple[str, list[str]]:
    """The file that is linked first, and the lines of all links after it."""
    sweep = SWEEPS[ladder]
    (entry,) = [one for one in sweep.entries if one.rung.partition(" ")[0] == rung]
    whole, *parts = code_links(entry, sweep, SWEEPS, ROOT)
    return whole.text, [line.strip() for one in parts for line in lines_of(one.href)]


@pytest.mark.parametrize(("ladder", "rung", "file", "line"), [
    ("hopper_ladder", "6", "6_tma_store.cu", "if (thread == 0) wait_for_stores();  // it started them"),
    ("hopper_ladder", "6c", "6c_stagger.cu", "if (leads) warpgroup_arrive<2>(start);  // the other one may begin"),
    ("hopper_ladder", "6d", "6d_serpentine.cu", "const int k_of_step = (backwards ? steps - 1 - step : step) * depth;"),
    ("hopper_ladder", "4b", "4_persistent.cu", "params: {raster: 0}"),
    ("hopper_ladder", "3b", "hopper_gemm.cu", "rung: 3b two consumers"),
    ("fp32_ladder", "11", "6_register_staging.cu", "fetch(0);"),
    ("fp32_ladder", "9", "gemm_staged.cu", "rung: 9 lane map"),
])  # fmt: skip
def test_a_rung_links_to_its_file_and_the_lines_that_are_new_in_it_or_to_its_parameters(
    ladder: str, rung: str, file: str, line: str
) -> None:
    name, lines = linked(ladder, rung)
    assert (name, line in lines) == (file, True), lines


def test_the_first_rung_links_to_its_file_alone_and_no_line_is_only_the_name_of_the_kernel() -> None:
    assert linked("hopper_ladder", "1") == ("1_tma_wgmma.cu", [])
    assert not [line for line in linked("hopper_ladder", "6f")[1] if "__global__" in line]


def test_each_rung_of_a_ladder_has_links_that_lead_somewhere() -> None:
    for name in ("fp32_ladder", "tensor_ladder_bf16", "hopper_ladder"):
        for entry in SWEEPS[name].entries:
            for one in code_links(entry, SWEEPS[name], SWEEPS, ROOT):
                assert any(line.strip() for line in lines_of(one.href)), (entry.rung, one)

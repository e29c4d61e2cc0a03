"""The kernels compile for AMD GPUs, docs/texts/hip.csv has what comes of it, and docs/texts/hip.md says so."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import hip_table
import numpy as np
import pandas as pd
import pytest
from amd_isa import main_loop, resources, waits
from ladder.model.errors import LadderError

ROWS = pd.read_csv(hip_table.TABLE, dtype={"vmcnt": str})
ROWS["number"] = ROWS["rung"].str.split(" ").str[0]
AGAIN = "run `PYTHONPATH=workflow python tools/hip_table.py` on Debian 12"
STATIC = "; Occupancy: 3\n; NumSgprs: 20\n; NumVgprs: 70\n; NumAgprs: 0\n; TotalNumVgprs: 90\n"
METADATA = "    .group_segment_fixed_size: 0\n    .private_segment_fixed_size: 0\n"
SPILLS = "    .sgpr_spill_count: 0\n    .vgpr_spill_count: 0\n"

DIRECT = """
.LBB0_2:                                ;   in Loop: Header=BB0_3 Depth=1
	s_or_b64 exec, exec, s[2:3]
	s_waitcnt vmcnt(0)
	ds_write_b32 v1, v2
	s_barrier
	v_fmac_f32_e32 v3, v4, v5
	v_pk_fma_f32 v[6:7], v[8:9], v[10:11], v[6:7]
	s_cbranch_scc0 .LBB0_5
.LBB0_3:                                ; =>This Inner Loop Header: Depth=1
	s_cbranch_execz .LBB0_2
; %bb.4:                                ;   in Loop: Header=BB0_3 Depth=1
	global_load_dword v2, v[0:1], off
	s_branch .LBB0_2
.LBB0_5:
	v_fma_f32 v0, v0, v0, v0
	global_store_dword v[0:1], v2, off
"""
"""A loop whose header stands behind its latch, with the load behind a guard."""

AHEAD = """
.LBB0_1:                                ; =>This Inner Loop Header: Depth=1
	s_waitcnt vmcnt(1)
	ds_write_b32 v1, v2
	global_load_dword v2, v[0:1], off
	global_load_dword v8, v[0:1], off
	v_fmac_f32_e32 v3, v4, v5
	s_waitcnt lgkmcnt(0)
	v_fmac_f32_e32 v3, v4, v5
	flat_load_dword v9, v[0:1]
	s_cbranch_scc1 .LBB0_1
; %bb.2:
	s_endpgm
"""
"""A loop that loads for its next pass; the wait leaves the newest access alone."""


def of(*numbers: str, **given: str) -> pd.DataFrame:
    """Rows of rungs of the ladder, with launch bounds where nothing else is said."""
    rows = ROWS[ROWS["number"].isin(numbers)]
    wanted = {"sweep": "fp32_ladder", "launch_bounds": "yes"} | given
    for column, value in wanted.items():
        rows = rows[rows[column] == value]
    assert {*rows["number"]} == {*numbers}
    return rows


def test_a_load_that_is_used_at_once_is_waited_for_at_once() -> None:
    path = main_loop(DIRECT)
    assert [line.split()[0] for line in path][:2] == [
        "s_cbranch_execz",
        "global_load_dword",
    ], "as it runs"
    found = waits(path)
    assert (found["loop_fmas"], found["loop_loads"], found["vmcnt"]) == (3, 1, "0")
    assert (found["fmas_before_wait"], found["wait_ahead_of"]) == (0, "ds_write_b32")


def test_a_load_for_the_next_pass_is_waited_for_behind_the_fmas() -> None:
    found = waits(main_loop(AHEAD))
    assert found["loop_flat_loads"] == 1, "its wait may be for shared memory"
    # Of three accesses, vmcnt(1) waits for the two loads: the newest is the flat one.
    assert (found["loop_loads"], found["vmcnt"], found["fmas_before_wait"]) == (
        2,
        "1",
        2,
    )


@pytest.mark.parametrize(("newer", "fmas"), [(7, 6), (63, None)])
def test_a_wait_that_leaves_a_load_under_way_is_not_its_own(
    newer: int, fmas: int | None
) -> None:
    """Three accesses a pass: seven newer ones than the first load are there in the third pass behind its own."""
    path = main_loop(AHEAD.replace("vmcnt(1)", f"vmcnt({newer})"))
    assert waits(path)["fmas_before_wait"] == fmas


def test_a_kernel_without_fmas_has_no_main_loop() -> None:
    assert main_loop(DIRECT.replace("_fma", "_max")) == []


@pytest.mark.parametrize(
    ("threads", "shared_bytes", "blocks", "waves"),
    [
        (256, 0, 3, "3"),
        (1024, 0, 0, "0"),
        (128, 16384, 4, "2"),
    ],
)
def test_blocks_are_whole_and_find_registers_and_shared_memory(
    threads: int, shared_bytes: int, blocks: int, waves: str
) -> None:
    found = resources(STATIC + METADATA + SPILLS, threads, shared_bytes)
    assert (found["blocks_per_cu"], found["waves_per_simd"]) == (blocks, waves)
    assert (found["vgprs"], found["lds_bytes"]) == (70, shared_bytes)


def test_what_apt_says_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "E: Unable to locate package clang-15"
    done = subprocess.CompletedProcess([], 100, "", said)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(LadderError, match=said):
        hip_table.unpack(tmp_path)


def test_the_page_shows_the_table() -> None:
    part = hip_table.page_part(hip_table.TABLE.read_text())
    assert part in hip_table.PAGE.read_text(), AGAIN


def test_a_pass_of_the_main_loop_multiplies_a_whole_tile() -> None:
    staged = ROWS["variant"].str.startswith("gemm_staged")
    tiled = ROWS[staged & ROWS["left_out"].isna()]
    assert len(tiled) > 40
    fmas = np.where(tiled["sweep"] == "fp32_tiles", 4 * 4 * 16, 8 * 8 * 8)
    assert (tiled["loop_fmas"] == fmas).all()
    assert tiled["fmas_before_wait"].notna().all()


# What docs/texts/hip.md says.


def late(rows: pd.DataFrame) -> bool:
    """Whether loads are waited for behind nearly all FFMAs of a pass."""
    return bool((rows["fmas_before_wait"] > 3 / 4 * rows["loop_fmas"]).all())


def test_the_direct_loop_waits_right_behind_its_loads() -> None:
    rows = of("3", "4", "5", "5b", "6", "7", "7c", "8", "8b", "9", "10")
    assert (rows["fmas_before_wait"] == 0).all()
    assert rows["wait_ahead_of"].str.startswith("ds_write").all()
    older = of("3", "7", "8", "9", "10", arch="gfx908")
    assert {*older["vmcnt"]} == {"0 0"}, "for A, and then for B"


def test_loads_ahead_of_their_tile_are_hidden_behind_the_fmas() -> None:
    fragments, tiles = of("11"), of("12", "13")
    assert (fragments["fmas_before_wait"] == fragments["loop_fmas"]).all()
    assert late(tiles)
    assert tiles["wait_ahead_of"].str.startswith("ds_write").all()
    none = of("11", "12", "13", "13b")[
        ["vmcnt", "vgpr_spills", "scratch_bytes", "agprs"]
    ]
    assert (none.astype(float) == 0).all(axis=None)


def test_without_launch_bounds_the_overlap_is_gone() -> None:
    older = of("12", arch="gfx908", launch_bounds="no")
    lost = pd.concat([older, of("13", launch_bounds="no")])
    assert len(lost) == 3
    assert (lost["fmas_before_wait"] == 0).all()
    assert (lost[["vgpr_spills", "scratch_bytes"]] > 0).all(axis=None)
    assert late(of("12", arch="gfx90a", launch_bounds="no"))


def test_a_fetch_behind_the_fmas_spills_on_gfx908_alone() -> None:
    rows = of("11b")
    assert ((rows["vgpr_spills"] > 100) == (rows["arch"] == "gfx908")).all()
    assert (rows["fmas_before_wait"] == 0).all()


def test_volatile_reads_of_shared_memory_lose_their_address_space() -> None:
    flat = {*ROWS[ROWS["loop_flat_loads"] > 0]["number"]}
    assert flat == {"5", "5b", "6"}
    assert (of(*flat, arch="gfx90a")["vgpr_spills"] > 0).all()


def test_the_tile_of_the_text_fits_without_launch_bounds() -> None:
    tiles = ROWS[ROWS["sweep"] == "fp32_tiles"]
    assert len(tiles) == 2 * len(hip_table.ARCHITECTURES)
    alike = tiles.drop(columns="launch_bounds").drop_duplicates()
    assert [*alike["arch"]] == [*hip_table.ARCHITECTURES]
    assert (tiles["vgpr_spills"] == 0).all()


def test_the_larger_tile_does_not_fit_without_launch_bounds() -> None:
    large = of("10", arch="gfx908")
    spilling = of("10", arch="gfx908", launch_bounds="no")
    assert large["waves_per_simd"].item() == 2
    assert spilling["vgpr_spills"].item() > 0


def test_one_stencil_spills() -> None:
    stencils = ROWS[ROWS["variant"].str.startswith("stencil")]
    assert stencils["variant"].str.partition("-")[0].nunique() == 4
    spills = stencils[(stencils[["vgpr_spills", "scratch_bytes"]] != 0).any(axis=1)]
    large = "stencil_register_cache-int32-radius=32-coarsen=8-block=1024"
    shown = spills[["arch", "variant", "vgpr_spills"]].to_numpy().tolist()
    assert shown == [["gfx90a", large, 2]]


# With the compiler.


@pytest.fixture(scope="module")
def compiler() -> Path:
    try:
        return hip_table.unpack()
    except LadderError as error:
        pytest.skip(str(error))


def variants(text: str) -> list[list[str]]:
    """Architecture, sweep, rung, variant, launch bounds and why it is left out, of each row."""
    return [line[:6] for line in csv.reader(text.splitlines())]


@pytest.mark.slow
def test_every_variant_compiles_and_the_table_is_what_this_compiler_makes(
    compiler: Path,
) -> None:
    """Another compiler may need other registers: then it is enough that all compile."""
    made = hip_table.table(compiler)
    assert variants(made) == variants(hip_table.TABLE.read_text()), AGAIN
    if hip_table.compiler_of(compiler) != ROWS["compiler"][0]:
        pytest.skip(
            f"all compile; the numbers of the table are of {ROWS['compiler'][0]}"
        )
    assert made == hip_table.TABLE.read_text(), AGAIN


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["14 cp.async", "15c split K"])
def test_a_kernel_of_ptx_is_refused(compiler: Path, rung: str) -> None:
    job = next(job for job in hip_table.selected() if job.rung == rung)
    assert job.ptx == "cp.async"
    with pytest.raises(LadderError, match="has PTX, which gfx908 does not execute"):
        hip_table.compiled(compiler, job)

"""A rung is held against the rung it changes, and the counter named beside its gain is one that speaks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ladder.catalogue.kernels import load_catalog
from ladder.model.kernel import Variant
from ladder.report.steps import moved_most, rungs_below
from ladder.results.statistics import Estimate

ROOT = Path(__file__).resolve().parent.parent

FASTER, SLOWER, ALIKE = Estimate(1.5, 1.4, 1.6), Estimate(0.8, 0.7, 0.9), Estimate(1.0, 0.9, 1.1)
READ = "dram__bytes_read.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
SLOTS = "smsp__issue_active.avg.pct_of_peak_sustained_active"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


def test_an_ablation_is_held_against_the_whole_and_a_ladder_against_the_rung_it_changes() -> None:
    kernel = load_catalog(ROOT / "kernels")["gemm_staged"]

    def variant(**params: int | str) -> Variant:
        return kernel.variant(params, "fp32")

    whole = {"loader": "async", "stages": 3, "buffers": 2}
    less = [variant(**whole | change) for change in ({}, {"stages": 2}, {"buffers": 1}, {"min_blocks": 1})]
    assert rungs_below(less) == [less[0]] * 3
    ladder = [variant(**given) for given in ({}, {"bk": 16}, {"bk": 16, "bn": 64}, {"bk": 16, "pad": 4})]
    assert rungs_below(ladder) == [ladder[0], ladder[1], ladder[1]]


@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (FASTER, "bank conflicts of shared loads fall from 40.0 M to 1.00 M"),
        (SLOWER, "bytes read from DRAM rise from 100 MB to 1.20 GB"),
        (ALIKE, "bytes read from DRAM rise from 100 MB to 1.20 GB"),
    ],
)
def test_what_is_named_speaks_for_the_faster_rung(gain: Estimate, said: str) -> None:
    below = {READ: 1e8, WAVEFRONTS: 1e8, CONFLICTS: 4e7}
    above = {READ: 1.2e9, WAVEFRONTS: 6e7, CONFLICTS: 1e6}
    assert str(moved_most(gain, below, above)) == said


def test_trifles_do_not_move_many_times_over() -> None:
    below = {WAVEFRONTS: 1e8, CONFLICTS: 1e6, READ: 2e8}
    above = {WAVEFRONTS: 1e8, CONFLICTS: 0.0, READ: 1e8}
    assert str(moved_most(FASTER, below, above)) == "bytes read from DRAM fall from 200 MB to 100 MB"
    waits = {
        STALL.format(reason): 0.001 for reason in ("long_scoreboard", "short_scoreboard", "mio_throttle")
    }
    waits |= {STALL.format(reason): 0.0 for reason in ("lg_throttle", "barrier", "wait")}
    shorter = {name: value / 100 for name, value in waits.items()}
    assert moved_most(FASTER, waits, shorter) is None


def test_bytes_count_alike_whoever_loads_them() -> None:
    sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    copied = "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"
    by_threads, by_engine = {sectors: 1e6, copied: 0.0}, {sectors: 0.0, copied: 3.2e7}
    assert moved_most(ALIKE, by_threads, by_engine) is None
    assert str(moved_most(SLOWER, by_threads, {sectors: 1e6, copied: 3.2e7})) == (
        "bytes loaded by threads and TMA rise from 32.0 MB to 64.0 MB"
    )


def test_busy_pipes_are_named_where_no_cause_moved() -> None:
    below = {READ: 1e8, TENSOR: 59.2, SLOTS: 11.0}
    above = {READ: 1.01e8, TENSOR: 73.6, SLOTS: 15.8}
    assert str(moved_most(FASTER, below, above)) == (
        "busy cycles of the tensor cores rise from 59.2 % to 73.6 %"
    )
    assert str(moved_most(FASTER, below | {TENSOR: 0.0}, above | {TENSOR: 0.0})) == (
        "used issue slots rise from 11.0 % to 15.8 %"
    )
    assert moved_most(SLOWER, below, above) is None
    assert moved_most(FASTER, below, below | {TENSOR: 59.3}) is None


def test_without_counters_nothing_is_named() -> None:
    assert moved_most(FASTER, {}, {READ: 1e8}) is None

"""A rung is held against the rung it changes, and the counter named beside its gain is one that speaks for it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from conftest import edit_yaml
from factory import Lab
from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.sweeps import load_sweeps
from ladder.model.kernel import Variant
from ladder.report.steps import Step, is_branch, moved_most, rungs_below, steps
from ladder.report.sweep_data import of_sweep
from ladder.results.statistics import Estimate, at_size, estimate, ratio, records

ROOT = Path(__file__).resolve().parent.parent

FASTER, SLOWER, ALIKE = Estimate(1.5, 1.4, 1.6), Estimate(0.8, 0.7, 0.9), Estimate(1.0, 0.9, 1.1)
READ = "dram__bytes_read.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
SLOTS = "smsp__issue_active.avg.pct_of_peak_sustained_active"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"


SIZE = {"m": 4096, "n": 4096, "k": 4096}
LADDERS_OF_NUMBERS = ("fp32_ladder", "tensor_ladder_bf16", "tensor_ladder_fp16", "tensor_ladder_tf32")


@pytest.mark.parametrize("name", LADDERS_OF_NUMBERS)
def test_rungs_are_numbered_as_they_are_read_and_each_changes_the_one_before(name: str) -> None:
    """A branch stands behind the rung whose number it has, and changes that one."""
    own = load_sweeps(ROOT / "config" / "sweeps", load_catalog(ROOT / "kernels"), [name])[name]
    entries = {entry.rung: entry.baseline.rung if entry.baseline else None for entry in own.entries}
    path = [rung for rung in entries if not is_branch(rung)]
    assert [rung.split()[0] for rung in path] == [str(number) for number in range(1, len(path) + 1)]
    assert [entries[rung] for rung in path] == [None, *path[:-1]]
    last, letters = path[0], ""
    for rung in entries:
        if not is_branch(rung):
            last, letters = rung, ""
            continue
        letters += rung.split()[0][-1]
        assert (entries[rung], rung.split()[0][:-1]) == (last, last.split()[0])
        assert letters == "bcdefg"[: len(letters)]


def test_an_ablation_is_held_against_the_whole_and_a_ladder_against_the_rung_it_changes() -> None:
    kernel = load_catalog(ROOT / "kernels")["gemm_staged"]

    def variant(**params: int | str) -> Variant:
        return kernel.variant(params, "fp32")

    whole = {"loader": "async", "stages": 3, "buffers": 2}
    less = [variant(**whole | change) for change in ({}, {"stages": 2}, {"buffers": 1}, {"min_blocks": 1})]
    assert rungs_below(less) == [less[0]] * 3
    ladder = [variant(**given) for given in ({}, {"bk": 16}, {"bk": 16, "bn": 64}, {"bk": 16, "pad": 4})]
    assert rungs_below(ladder) == [ladder[0], ladder[1], ladder[1]]


def test_a_gain_is_of_pairs_with_the_baseline_else_of_the_same_library_else_unknown(tmp_path: Path) -> None:
    lab, name = Lab(tmp_path), "fp32_transpose"
    variants = [
        {"kernel": "gemm_register_tile", "params": {"transpose_a": 0}, "rung": "1 plain A"},
        {"kernel": "gemm_naive", "rung": "1b naive", "baseline": "1 plain A"},
        {"kernel": "gemm_register_tile", "rung": "2 transposed A", "baseline": "1 plain A"},
    ]
    edit_yaml(
        lab.project.sweeps / f"{name}.yaml",
        lambda sweep: sweep.update(variants=variants, references=["cublas"]),
    )
    lab.record([name])
    sweep, frames = lab.sweeps([name])[name], lab.frames(name)
    timings = frames["timings"]

    def last_step(rows: pd.DataFrame) -> Step:
        data = of_sweep(sweep, {**frames, "timings": rows}, {})
        found = steps(data)[-1]
        assert (found.entry.rung, found.below) == ("2 transposed A", first)
        return found

    first = sweep.entries[0].variant.id
    paired = last_step(timings)
    (pair,) = records(
        at_size(timings[(timings["rung"] == "2 transposed A") & (timings["reference"] == first)], SIZE)
    )
    assert (paired.direct, paired.gain) == (True, estimate(pair, "speedup"))
    against_library = timings[timings["baseline"].isna()]
    quotient = last_step(against_library)
    assert not quotient.direct
    rows = {row["variant"]: row for row in records(at_size(against_library, SIZE))}
    own, other = (estimate(rows[variant], "speedup") for variant in (quotient.row["variant"], first))
    assert quotient.gain == ratio(own, other)
    assert not last_step(against_library[against_library["variant"] != first]).gain.known


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

"""Which cells are measured in several sessions: those that claims and headlines rest on, and some of each kind."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from checkout import loaded
from conftest import ROOT
from ladder.catalogue.runs import Run
from ladder.claims.ledger import CLAIMS, decided
from ladder.model.plan import Task
from ladder.problems.registry import PROBLEMS
from ladder.results import statistics as stats
from ladder.results import tables
from ladder.results.run_data import RunData, read_frames

PUBLISHED = ROOT / "results/published/nvidia-h200"
Cell = tuple[Any, ...]  # sweep, variant, and the size's fields


@pytest.fixture(scope="module")
def run() -> Run:
    return loaded()


@pytest.fixture(scope="module")
def repeated(run: Run) -> dict[Cell, list[Task]]:
    """Tasks of the repeated cells: one against the sweep's reference, and where there is a baseline one against it."""
    found: dict[Cell, list[Task]] = {}
    for plan in run.plans.values():
        for task in plan.tasks:
            if task.repeated:
                found.setdefault(
                    (plan.sweep, task.variant, *task.cell.size.items()), []
                ).append(task)
    return found


def test_a_session_repeats_a_few_hundred_pairs(
    repeated: dict[Cell, list[Task]],
) -> None:
    """A session of them takes some minutes. Each ladder of memory-bound kernels may have about 25 pairs of them."""
    assert 300 <= sum(map(len, repeated.values())) <= 880


@pytest.mark.published
def test_every_pair_that_a_verdict_rests_on_is_repeated(
    run: Run, repeated: dict[Cell, list[Task]]
) -> None:
    """A claim about the best of many rests on the best one: it may be another after new measurements."""
    data, missing, parts = (
        RunData(run.every_sweep, read_frames(PUBLISHED)),
        Counter[str](),
        0,
    )
    for claim in CLAIMS:
        for part in decided(claim, data)[0]:
            timed = [row for value in part.values.values for row in value.timed]
            parts += bool(timed)
            for row in timed:
                if (row["sweep"], row["variant"], *row.size.items()) not in repeated:
                    missing[
                        f"{claim.id}: {row['sweep']}: {row['variant']} at {dict(row.size)}"
                    ] += 1
    assert parts > 20
    assert not missing, "to be added to `repeated` of its sweep"


@pytest.mark.published
def test_the_fastest_of_each_dtype_at_each_large_size_is_repeated(
    repeated: dict[Cell, list[Task]],
) -> None:
    timings = stats.ok_rows(tables.read("timings", PUBLISHED), "cold")
    timings = timings[timings["baseline"].isna()]
    sizes, found = (2048, 4096, 8192, 16384), 0
    # A cell may be published under an earlier sweep's name.
    known = {cell[1:] for cell in repeated}
    together = (
        ("fp32_ladder",),
        ("hopper_dtypes", "hopper_fp8"),
        ("hopper_ladder",),
        ("hopper_fp8_promoted",),
    )
    for sweeps in together:
        own = timings[timings["sweep"].isin(sweeps) & timings["m"].isin(sizes)]
        own = own[(own["m"] == own["n"]) & (own["n"] == own["k"])]
        for _, rows in own.groupby(["dtype", "m"]):
            # Of those that differ by less, any.
            best = rows[rows["speedup"] > 0.99 * rows["speedup"].max()]
            found += 1
            assert any(
                stats.cell_of(row)[1:] in known for row in stats.records(best)
            ), best["variant"].tolist()
    assert found == 4 * (1 + 4 + 1 + 1)


def test_the_rungs_that_readme_prints_are_repeated(
    run: Run, repeated: dict[Cell, list[Task]]
) -> None:
    size = (("m", 4096), ("n", 4096), ("k", 4096))
    for name in ("fp32_ladder", "tensor_ladder_bf16", "hopper_ladder"):
        rungs = [entry.variant.id for entry in run.every_sweep[name].entries]
        assert [
            variant for variant in rungs if (name, variant, *size) not in repeated
        ] == []


@pytest.mark.published
def test_each_kind_of_reference_and_duration_is_repeated(
    repeated: dict[Cell, list[Task]],
) -> None:
    """Components of variance are of a kind: without cells of it there are none."""
    timings = stats.ok_rows(tables.read("timings", PUBLISHED), "cold")
    libraries = {
        name for problem in PROBLEMS.values() for name in problem.libraries
    } - {"copy"}
    edges, found = (10, 50, 500), Counter[tuple[str, int]]()
    for row in stats.records(timings):
        if stats.cell_of(row) in repeated:
            kind = "library" if row["reference"] in libraries else "kernel"
            found[kind, sum(row["median_us"] >= edge for edge in edges)] += 1
    for kind in itertools.product(("kernel", "library"), range(4)):
        assert found[kind] >= 8, found


def test_repeated_cells_are_of_every_problem_that_is_measured(
    run: Run, repeated: dict[Cell, list[Task]]
) -> None:
    measured = {plan.problem for plan in run.plans.values()}
    again = {run.plans[sweep].problem for sweep, *_ in repeated}
    assert again == measured, "a sweep of each problem has `repeated`"

"""Collecting: raw records in, tidy tables out, whatever became of a cell."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import factory
import pandas as pd
import pytest
from conftest import edit_yaml
from factory import CUBLAS_TFLOPS, ENDS, SESSION, Fields, Lab, Place, failed
from ladder.catalogue.plans import plan_sweep
from ladder.cli.app import main
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import Records, read_store
from ladder.model.errors import LadderError
from ladder.model.plan_file import read_plan
from ladder.model.record import Conditions, Record
from ladder.model.schemas import SWEEP_TABLES
from ladder.model.sweep import Sweep
from ladder.results import tables
from ladder.results.collect import collect_sweep, merge, summarised
from ladder.results.published_records import write_archive
from ladder.results.statistics import at_size, rate_column


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.record_and_collect()
    return lab


@pytest.fixture
def fresh(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def timings(lab: Lab, sweep: str) -> pd.DataFrame:
    return lab.frames(sweep)["timings"]


def collected(lab: Lab, sweep: str, *change: Any) -> pd.DataFrame:
    """timings.csv of a sweep, after it was measured."""
    lab.record_and_collect([sweep], *change)
    return timings(lab, sweep)


def test_a_row_per_cell_and_regime_in_the_sweeps_order(lab: Lab) -> None:
    rows = timings(lab, "fp32_ladder")
    warm = rows[rows["regime"] == "warm"]
    assert len(rows) == 25 + len(warm)
    assert len(warm) > 0
    for _, cell in rows.groupby(["variant", "n"], sort=False):
        assert list(cell["regime"]) in (["cold"], ["cold", "warm"])


def test_rates_follow_from_the_median_time(lab: Lab) -> None:
    rows = at_size(timings(lab, "fp32_ladder"), {"m": 4096, "n": 4096, "k": 4096})
    best = rows[(rows["rung"] == "transposed A") & (rows["regime"] == "cold")].iloc[0]
    assert best["tflops"] == pytest.approx(2 * 4096**3 / best["median_us"] / 1e6)
    assert best["tflops"] == pytest.approx(0.66 * CUBLAS_TFLOPS["fp32"], rel=0.01)
    assert best["peak_fraction"] == pytest.approx(best["tflops"] / 66.9)
    assert best["gbytes_per_s"] == pytest.approx(
        3 * 4096**2 * 4 / best["median_us"] / 1e3
    )
    assert best["median_us_low"] < best["median_us"] < best["median_us_high"]
    assert 0 < best["cv"] < 0.01


def test_three_products_in_tf32_count_in_the_share_of_the_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ladder.results.collect.PRODUCTS_SWEEP", "fp32_ladder")
    gpu = {**SESSION.gpu, "tensor_peak_tflops": {"tf32": 494.7}}
    lab = Lab(tmp_path, session=replace(SESSION, gpu=gpu))
    rows = collected(lab, "fp32_ladder").dropna(subset="tflops")
    shares = [*(3 * rows["tflops"] / 494.7)]
    assert [*rows["peak_fraction"]] == pytest.approx(shares)


def test_integers_have_no_tflops_but_a_share_of_the_copy(lab: Lab) -> None:
    rows = timings(lab, "stencil_reach")
    assert rows["tflops"].isna().all()
    assert rows["copy_fraction"].iloc[0] == pytest.approx(
        503.0 / rows["median_us"].iloc[0]
    )
    assert list(rows["taps"].unique()) == [3, 5, 9, 13, 17, 25, 33]


@pytest.mark.parametrize(
    ("events", "mhz", "throttled"),
    [
        (["EVENT_REASON_SW_POWER_CAP"], 1980, True),
        (["EVENT_REASON_SW_THERMAL_SLOWDOWN"], 1500, True),
        (["EVENT_REASON_RELIABILITY"], 1980, False),  # the most that its voltage allows
        (None, 1500, None),
    ],
)
def test_a_cell_is_throttled_where_nvml_says_so_whatever_the_clock(
    events: list[str] | None, mhz: float, throttled: bool | None, fresh: Lab
) -> None:
    def change(_: Place, record: Fields) -> Fields:
        record["device"] |= {"clock_events": events, "sm_clock_mhz": mhz}
        return record

    rows = collected(fresh, "fp32_transpose", change)
    assert {None if value is pd.NA else bool(value) for value in rows["throttled"]} == {
        throttled
    }


def test_the_longer_one_of_both_floors_says_which_rate_is_shown(tmp_path: Path) -> None:
    """A product of matrices takes its operations, one of a matrix and a vector its bytes; near the ridge TFLOP/s."""
    lab = Lab(
        tmp_path,
        session=replace(
            SESSION, gpu={**SESSION.gpu, "memory_peak_gbytes_per_s": 4800.0}
        ),
    )
    rows = collected(lab, "fp32_ladder")
    moved = rows[rows["gbytes_per_s"].notna()]
    assert [*moved["memory_fraction"]] == pytest.approx([*moved["gbytes_per_s"] / 4800])
    assert rate_column(rows) == ("tflops", "TFLOP/s")
    rows = moved[moved["tflops"].notna()]
    for share, rate in ((0.99, "tflops"), (3.99, "tflops"), (4.01, "gbytes_per_s")):
        shown = rate_column(rows.assign(memory_fraction=share * rows["peak_fraction"]))
        assert shown is not None
        assert shown[0] == rate


def test_what_the_kernel_and_the_profiler_report_becomes_metrics(lab: Lab) -> None:
    rows = lab.frames("bank_stride")["metrics"]
    stride = rows[rows["variant"] == "bank_stride-int32-stride=16"].set_index("metric")[
        "value"
    ]
    assert stride["predicted_wavefronts"] == 16
    assert stride["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 16_000_000


def test_of_several_sessions_a_counter_is_the_median(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, made = Lab(tmp_path), factory.make_profile
    for factor in (1.0, 9.0, 2.0, None):
        lab.session = replace(SESSION, id=f"session {factor}")

        def make_profile(place: Place, factor: float | None = factor) -> list[Fields]:
            return [
                {**one, "value": factor and factor * one["value"]}
                for one in made(place)
            ]

        monkeypatch.setattr(factory, "make_profile", make_profile)
        lab.record(["bank_stride"])
    rows = lab.frames("bank_stride")["metrics"]
    stride = rows[rows["variant"] == "bank_stride-int32-stride=16"]
    values = stride.set_index("metric")["value"]
    assert values["predicted_wavefronts"] == 16
    assert values["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 32_000_000


def test_merging_keeps_every_row_and_each_variant_once_a_sweep(lab: Lab) -> None:
    merged = tables.read("timings", lab.folder.tables)
    assert set(merged["sweep"]) == set(lab.sweeps())
    resources = tables.read("resources", lab.folder.tables)
    sweeps = lab.sweeps().items()
    asked = [(name, variant.id) for name, sweep in sweeps for variant in sweep.variants]
    assert sorted(
        resources[["sweep", "variant"]].itertuples(index=False, name=None)
    ) == sorted(asked)


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        (lambda text: text[: text.rindex(",")] + "\n", ".*Expected 11 columns, got 10"),
        (lambda text: text.rstrip("\n"), "its last line is cut short"),
        (lambda text: text.partition("\n")[0] + "\n", r"0 rows, and [1-9]\d* in"),
        (lambda text: text.replace("fp32_ladder", "\udcff", 1), ".*0xff"),
        (lambda text: text.replace("83", "nan", 1), ".* float64"),
        (lambda text: text.replace("kept", "keeps", 1), "are not .* jobs: keeps, kept"),
    ],
)
def test_a_damaged_table_is_refused_by_name(
    lab: Lab, tmp_path: Path, damaged: Callable[[str], str], says: str
) -> None:
    frame = tables.read("jobs", lab.folder.tables)
    tables.write({"jobs": frame}, tmp_path)
    assert len(tables.read("jobs", tmp_path)) == len(frame)
    path = tmp_path / "jobs.csv"
    path.write_bytes(damaged(path.read_text()).encode(errors="surrogateescape"))
    about = "the columns" if "keeps" in says else "not a CSV table of jobs:"
    with pytest.raises(LadderError, match=rf"jobs\.csv: {about} {says}"):
        tables.read("jobs", tmp_path)


@pytest.mark.parametrize("status", ["incorrect", "timeout"])
def test_a_failed_cell_keeps_its_reason_and_has_no_time(
    fresh: Lab, status: str
) -> None:

    def change(place: Any, record: Fields) -> Fields:
        return (
            failed(status, "because")(record)
            if place.variant.kernel.name == "gemm_naive"
            else record
        )

    rows = collected(fresh, "fp32_ladder", change)
    bad = rows[rows["kernel"] == "gemm_naive"]
    assert set(bad["status"]) == {status}
    assert set(bad["reason"]) == {"because"}
    assert bad[["median_us", "speedup", "tflops"]].isna().all(axis=None)
    assert not bad.duplicated(["variant", "n"]).any()


def test_a_variant_that_does_not_compile_has_rows_without_being_measured(
    fresh: Lab,
) -> None:

    def broken(variant: Any, facts: Fields) -> Fields:
        if variant.kernel.name != "gemm_shared_tile":
            return facts
        lost = {
            "status": "compile_error",
            "reason": "error: expected a ';'",
            "registers": None,
        }
        return {
            name: value for name, value in facts.items() if name != "machine_code"
        } | lost

    fresh.record_and_collect(["fp32_ladder"], facts=broken)
    bad = timings(fresh, "fp32_ladder").query("kernel == 'gemm_shared_tile'")
    assert list(bad["status"]) == ["compile_error"] * 5
    assert set(bad["reason"]) == {"error: expected a ';'"}
    resources = tables.read("resources", fresh.folder.tables).set_index("variant")
    assert resources.loc["gemm_shared_tile-fp32", "status"] == "compile_error"


def test_where_a_compiler_is_missing_published_records_stand_in_and_own_cells_are_unsupported(
    tmp_path: Path,
) -> None:
    lab, missing = (
        Lab(tmp_path),
        {"status": "unsupported", "reason": "Triton is not installed"},
    )
    lab.record(["tensor_ladder"])
    (sweep,) = lab.sweeps(["tensor_ladder"]).values()
    lab.compile(
        sweep,
        lambda variant, facts: (
            {**facts, **missing} if variant.kernel.name == "wmma_naive" else facts
        ),
    )
    view = PlanRecords(
        read_plan(lab.folder.plan(sweep.name)), read_store(lab.folder.records)
    )
    here = collect_sweep(view)["timings"]
    there = collect_sweep(replace(view, fall_back=True))["timings"]
    assert set(here[here["kernel"] == "wmma_naive"]["reason"]) == {
        "Triton is not installed"
    }
    assert set(here[here["kernel"] != "wmma_naive"]["status"]) == {"ok"}
    assert set(there["status"]) == {"ok"}
    nothing = collect_sweep(replace(view, records=Records(), fall_back=True))["timings"]
    assert set(nothing["status"]) == {"unsupported"}, "where there is none, the reason"


def test_of_records_of_other_conditions_the_latest_stands_in_and_the_sweeps_own_first(
    tmp_path: Path,
) -> None:
    lab = Lab(tmp_path)
    lab.record(["tensor_ladder"])
    view = lab.view("tensor_ladder")
    _, task = next(view.launched())
    today = view.current_record(task)
    assert today
    old, new = (
        replace(today, time=time, sweep="other", conditions=Conditions())
        for time in ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
    )
    own = replace(old, sweep=view.plan.sweep)

    def standing_in(*records: Record) -> Record | None:
        past = replace(view, records=Records().add(records), fall_back=True)
        return past.current_record(task)

    assert standing_in(old, new) == new
    assert standing_in(own, new) == own
    assert standing_in() is None


def test_a_size_the_kernel_does_not_support_is_recorded(fresh: Lab) -> None:
    path = fresh.project.sweeps / "fp32_ladder.yaml"
    path.write_text(
        path.read_text()
        .replace("- 512\n", "- 500\n")
        .replace(
            "kernel: gemm_register_tile",
            "unsupported: record\n  kernel: gemm_register_tile",
        )
    )
    rows = collected(fresh, "fp32_ladder")
    bad = rows[rows["status"] == "unsupported"]
    assert set(bad["n"]) == {500}
    assert set(bad["reason"]) == {"M must be a multiple of BM"}


def test_a_size_the_sweep_leaves_out_is_recorded_with_its_reason(
    fresh: Lab,
) -> None:
    left_out = {"where": "m <= 4096", "reason": "a launch takes a second"}
    edit_yaml(
        fresh.project.sweeps / "fp32_ladder.yaml",
        lambda sweep: sweep["variants"][2].update(left_out),
    )
    rows = collected(fresh, "fp32_ladder")
    bad = rows[rows["status"] == "unsupported"]
    assert list(bad["kernel"]) == ["gemm_shared_tile"]
    assert list(bad["n"]) == [8192]
    assert list(bad["reason"]) == ["a launch takes a second"]


def narrow_when_deep(kernel: Fields) -> None:
    """A constraint on parameters alone."""
    kernel["constraints"].append(
        {"expr": "bm * bk <= 1024", "reason": "deep tiles are narrow"}
    )


def edited(lab: Lab, change: Callable[[Fields], object]) -> None:
    """Change the sweep of tiles."""
    edit_yaml(lab.project.sweeps / "fp32_transpose.yaml", change)


def kept_where(lab: Lab, expression: str, **change: object) -> Sweep:
    """The sweep of tiles with a `where`, and what else is changed of its only entry."""
    edited(lab, lambda sweep: sweep["variants"][0].update(where=expression, **change))
    return lab.sweep_of("fp32_transpose")


def asked(sweep: Sweep) -> dict[tuple[object, object], list[int]]:
    """Sizes of the cells by bm and bk."""
    found: dict[tuple[object, object], list[int]] = {}
    for entry, size in sweep.cells:
        params = entry.variant.params
        found.setdefault((params["bm"], params["bk"]), []).append(size["n"])
    return found


def test_where_over_sizes_asks_for_a_combination_at_some_only(fresh: Lab) -> None:
    sweep = kept_where(fresh, "bm == 128 if m > 1024 else bk == 8")
    assert asked(sweep) == {(64, 8): [1024], (128, 8): [1024, 4096], (128, 16): [4096]}
    assert sweep.excluded == 1, "of bm=64, bk=16 nothing is asked"
    assert [
        task.absent for task in plan_sweep(sweep, fresh.config(), "sm_90a").tasks
    ] == [None] * 4
    rows = collected(fresh, "fp32_transpose")
    assert len(rows[rows["regime"] == "cold"]) == 4
    assert set(rows["status"]) == {"ok"}
    assert fresh.frames("fp32_transpose")["notes"].query("stage == 'measure'").empty
    assert (
        not tables.read("resources", fresh.folder.tables)["variant"]
        .str.contains("bm=64-bk=16")
        .any()
    )


def absences(sweep: Sweep) -> list[tuple[object, int, str | None]]:
    """(bm, size, why there is no cell) of every row of the sweep."""
    return [
        (entry.variant.params["bm"], size["m"], entry.absent(size))
        for entry, size in sweep.cells
    ]


def test_what_a_constraint_excludes_is_recorded_at_the_sizes_asked_for(
    fresh: Lab,
) -> None:
    edit_yaml(fresh.project.kernels / "gemm_register_tile.yaml", narrow_when_deep)
    sweep = kept_where(fresh, "bk == 16 and m > 1024", unsupported="record")
    assert absences(sweep) == [(64, 4096, None), (128, 4096, "deep tiles are narrow")]


def test_a_size_without_support_is_no_mistake_where_nothing_is_asked(
    fresh: Lab,
) -> None:
    edited(fresh, lambda sweep: sweep["sizes"].append(1000))
    with pytest.raises(LadderError, match=r"no variant of variants\[0\]"):
        fresh.sweep_of("fp32_transpose")
    sweep = kept_where(fresh, "m != 1000")
    assert [size["m"] for size in sweep.sizes] == [1024, 4096], (
        "those at which it has variants"
    )


def test_counters_are_of_the_first_size_asked_for(fresh: Lab) -> None:
    fresh.update("fp32_transpose", counters={"groups": ["banks"]})
    assert {size["m"] for _, size in kept_where(fresh, "m > 1024").counted} == {4096}


def named_rungs(lab: Lab, at: int = 1, **changed: object) -> None:
    """fp32_transpose of two rungs, one of them with these fields, and without those that are None."""
    variants = [
        {
            "kernel": "gemm_register_tile",
            "params": {"transpose_a": flag},
            "rung": f"rung {flag}",
        }
        for flag in (0, 1)
    ]
    variants[at] = {
        name: value
        for name, value in (variants[at] | changed).items()
        if value is not None
    }
    lab.update("fp32_transpose", variants=variants)


def test_a_rung_is_paired_with_the_rung_it_changes_besides_the_reference(
    fresh: Lab,
) -> None:
    named_rungs(fresh, baseline="rung 0")
    plan = fresh.plan(fresh.sweep_of("fp32_transpose"))
    assert not any(task.baseline for task in plan.tasks), (
        "the sweep's reference is that rung"
    )
    fresh.update("fp32_transpose", references=["cublas"])
    fresh.record(["fp32_transpose"])
    plan = fresh.view("fp32_transpose").plan
    pairs = [task for task in plan.tasks if task.baseline]
    assert len(pairs) == len(plan.tasks) // 3
    rungs = {(task.rung, task.baseline) for task in pairs}
    assert rungs == {("rung 1", "rung 0")}
    timings = fresh.frames("fp32_transpose")["timings"]
    paired = timings[timings["baseline"].notna()]
    assert set(paired["reference"]) == {
        task.reference.variant for task in pairs if task.reference
    }
    assert list(paired["regime"]) == ["cold"] * len(pairs)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"baseline": "rung 2"},
            "variants[1].baseline: 'rung 2' is not accepted (did you mean",
        ),
        ({"at": 0, "baseline": "rung 1"}, "the sweep has no such rung above it"),
        (
            {"baseline": "rung 0", "rung": None},
            "accepted: a baseline beside `rung` only",
        ),
    ],
)
def test_a_baseline_is_a_rung_above(
    changed: dict[str, Any], says: str, fresh: Lab
) -> None:
    named_rungs(fresh, **changed)
    with pytest.raises(LadderError) as error:
        fresh.sweep_of("fp32_transpose")
    assert says in str(error.value)


def test_chosen_cells_are_sustained_and_repeated(fresh: Lab) -> None:
    chosen = {"sizes": [4096], "where": "bk == 8"}
    fresh.update("fp32_transpose", sustained=chosen, repeated=chosen)
    plan = fresh.plan(fresh.sweep_of("fp32_transpose"))
    found = [task for task in plan.tasks if task.sustained]
    assert found
    assert found == [task for task in plan.tasks if task.repeated]
    assert {(task.cell.size["m"], task.cell.params["bk"]) for task in found} == {
        (4096, 8)
    }
    assert plan.regimes_of(found[0]) == (*plan.regimes, "sustained")


def test_an_unreadable_line_in_the_middle_is_noted(fresh: Lab) -> None:
    fresh.record(["tensor_ladder"])
    (path,) = fresh.folder.records.glob("*.jsonl")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:40], *lines[1:]]) + "\n")
    fresh.collect(["tensor_ladder"])
    notes = fresh.frames("tensor_ladder")["notes"]
    assert f"1 unreadable lines were left out: {path}: line 2" in set(notes["reason"])
    assert set(timings(fresh, "tensor_ladder")["status"]) == {"ok"}


def again(lab: Lab, speedup: float, **session: Any) -> None:
    """Measure tensor_ladder once more, a day later."""
    lab.session = replace(
        SESSION, id=f"session {speedup}", started="2026-11-21T10:00:00Z", **session
    )
    lab.finished = "2026-11-21T10:20:00Z"

    def change(place: Any, record: Fields) -> Fields:
        for regime in record["regimes"].values():
            regime["speedup"] = speedup
        return record

    lab.record_and_collect(["tensor_ladder"], change)


def test_the_algorithm_of_the_reference_stands_beside_its_name(tmp_path: Path) -> None:
    lab, names = Lab(tmp_path), iter(["id 66 tile 20", "id 66 tile 30"])

    def change(place: Any, record: Fields) -> Fields:
        for regime, name in zip(
            record["regimes"].values(), ("", next(names, "")), strict=False
        ):
            regime["algorithm"] = name
        return record

    rows = collected(lab, "tensor_ladder", change).set_index("regime")["algorithm"]
    assert list(rows.dropna()) == ["id 66 tile 20", "id 66 tile 30"]
    assert rows["cold"].isna().all(), "cuBLAS does not tell"


def test_of_two_records_of_a_cell_the_later_counts_and_both_are_shown(
    fresh: Lab,
) -> None:
    fresh.record(["tensor_ladder"])
    again(fresh, 3.0, gpu={**SESSION.gpu, "uuid": "GPU-2"})
    assert set(
        timings(fresh, "tensor_ladder").query("regime == 'cold'")["speedup"]
    ) == {3.0}
    sessions = tables.read("sessions", fresh.folder.tables).query("regime == 'cold'")
    assert list(sessions["gpu_uuid"]) == ["GPU-1", "GPU-2"] * 2
    assert list(sessions["session"].unique()) == [SESSION.id, "session 3.0"]
    environment = json.loads(fresh.folder.environment.read_text())
    assert [gpu["uuid"] for gpu in environment["gpus"]] == ["GPU-1", "GPU-2"]
    assert [gpu["cells"] for gpu in environment["gpus"]] == [4, 4]


def test_of_three_sessions_that_with_the_median_time_stands_for_the_columns_of_one(
    tmp_path: Path,
) -> None:
    lab, seen = Lab(tmp_path), dict[float, list[float]]()
    for factor in (1.0, 3.0, 2.0):
        lab.session = replace(SESSION, id=f"session {factor}")

        def change(place: Any, record: Fields, factor: float = factor) -> Fields:
            for regime in record["regimes"].values():
                regime["variant_us"] = [factor * one for one in regime["variant_us"]]
            return record

        lab.record_and_collect(["tensor_ladder"], change)
        found = timings(lab, "tensor_ladder").query("regime == 'cold'")["median_us"]
        seen[factor] = found.tolist()
    assert seen[3.0] == pytest.approx([3 * one for one in seen[1.0]]), (
        "of two the later"
    )
    assert seen[2.0] == pytest.approx([2 * one for one in seen[1.0]])


def test_records_under_other_conditions_are_not_shown_as_sessions(
    fresh: Lab,
) -> None:
    fresh.record(["tensor_ladder"])
    fresh.settings = {"measure": {"precision": 0.01}}
    again(fresh, 3.0)
    assert set(tables.read("sessions", fresh.folder.tables)["session"]) == {
        "session 3.0"
    }


def test_the_environment_names_every_tree_driver_and_the_whole_time(
    fresh: Lab,
) -> None:
    fresh.record(["tensor_ladder"])
    again(
        fresh,
        3.0,
        tree={"digest": "e" * 64, "commit": None, "clean": None},
        versions={"driver": "590.1"},
    )
    environment = json.loads(fresh.folder.environment.read_text())
    assert [tree["digest"][0] for tree in environment["trees"]] == ["d", "e"]
    assert (environment["tree"]["digest"][0], environment["driver"]) == ("e", "590.1")
    assert (environment["started"], environment["finished"]) == (
        "2026-11-20T10:00:00Z",
        "2026-11-21T10:20:00Z",
    )
    (gpu,) = environment["gpus"]
    assert (gpu["sessions"], gpu["cells"], gpu["clock_floor_us"]) == (2, 8, 2.1)


@pytest.fixture(scope="module")
def published_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a publication; to look at only."""
    measured = Lab(tmp_path_factory.mktemp("published"))
    measured.record_and_collect()
    published = measured.project.published("nvidia-h200")
    tables.write(
        {name: tables.read(name, measured.folder.tables) for name in SWEEP_TABLES},
        published.tables,
    )
    shutil.copy(measured.folder.environment, published.environment)
    store = read_store(measured.folder.records)
    write_archive(
        published.records / "one.parquet", list(store), store.sessions.values()
    )
    return measured.root


class TestWithoutAGpu:
    """Timings of published records, resources of what was compiled here."""

    @pytest.fixture
    def here(self, published_once: Path, tmp_path: Path) -> Lab:
        return Lab(
            Path(shutil.copytree(published_once, tmp_path, dirs_exist_ok=True)),
            device="no-gpu",
        )

    def collect(
        self, here: Lab, name: str, device: str = "nvidia-h200", **compiled: Any
    ) -> dict[str, pd.DataFrame]:
        """The tables of a sweep from what is published of a device."""
        here.compile(here.sweep_of(name), **compiled)
        published = str(here.project.published(device).root)
        Path(published).mkdir(exist_ok=True)
        into = str(here.folder.sweep(name))
        given = [str(here.folder.root), name, "--published", published, "--into", into]
        assert main(["--root", str(here.root), "collect", *given]) == 0
        return {
            table: tables.read(table, here.folder.sweep(name))
            for table in ("timings", "notes", "metrics", "resources")
        }

    def test_the_published_numbers_stand_in(self, here: Lab) -> None:
        frames = self.collect(here, "fp32_ladder")
        published = tables.read("timings", here.project.published("nvidia-h200").tables)
        pd.testing.assert_frame_equal(
            frames["timings"],
            published.query("sweep == 'fp32_ladder'").reset_index(drop=True),
        )
        assert set(frames["notes"]["stage"]) == {"predict"}
        sweep = here.sweep_of("fp32_ladder")
        assert set(frames["resources"]["variant"]) == {
            variant.id for variant in sweep.variants
        }

    def test_what_the_sweep_no_longer_has_is_dropped_and_what_is_new_is_noted(
        self, here: Lab
    ) -> None:
        path = here.project.sweeps / "fp32_ladder.yaml"
        path.write_text(path.read_text().replace("- 512\n", "- 640\n"))
        frames = self.collect(here, "fp32_ladder")
        assert 512 not in set(frames["timings"]["n"])
        missing = frames["notes"][
            frames["notes"]["reason"] == "not in the published run"
        ]
        assert len(missing) == 5
        assert missing["subject"].str.contains("640").all()

    def test_machine_code_that_changed_since_then_is_noted_and_a_comment_is_not(
        self, here: Lab
    ) -> None:
        def changed(variant: Any, facts: Fields) -> Fields:
            comment = {"source_sha256": "b" * 64}
            code = {"machine_code": "b" * 64, "cubin_sha256": "b" * 64}
            return (
                facts
                | comment
                | (code if variant.kernel.name == "gemm_shared_tile" else {})
            )

        notes = self.collect(here, "fp32_ladder", facts=changed)["notes"]
        notes = notes[notes["stage"] == "published"]
        assert list(notes["subject"]) == ["gemm_shared_tile"]
        assert list(notes["reason"]) == [
            "machine code differs from the published run's (1 variant)"
        ]

    def test_nothing_published_is_a_note_not_an_error(self, here: Lab) -> None:
        frames = self.collect(here, "fp32_ladder", "nvidia-b200")
        assert len(frames["timings"]) == 0
        assert list(frames["notes"]["reason"]) == [
            "no published measurements in nvidia-b200"
        ]
        assert len(frames["resources"]) == 5


@pytest.mark.parametrize(
    ("samples", "cv"), [([1.0], None), ([1.0, 1.0], 0.0), ([1.0, 3.0], 2**0.5 / 2)]
)
def test_times_come_with_their_spread(samples: list[float], cv: float | None) -> None:
    alike = dict.fromkeys(ENDS, 1.0)
    found = summarised({"variant_us": samples, "reference_us": samples, **alike})
    assert found["cv"] == (None if cv is None else pytest.approx(cv))
    assert (found["samples"], found["median_us"]) == (
        len(samples),
        sum(samples) / len(samples),
    )
    assert found["median_us_low"] <= found["median_us"] <= found["median_us_high"]


def test_text_that_a_spreadsheet_would_run_is_marked_and_no_carriage_return_breaks_a_line(
    tmp_path: Path,
) -> None:
    texts = ['=HYPERLINK("http://evil/","x")', "+1", "-1", "@x", "plain = 1"]
    texts.append("one\r\ntwo\rthree")
    notes = tables.frame("notes", [{"sweep": "s", "reason": text} for text in texts])
    marked = [*(f"'{text}" for text in texts[:4]), "plain = 1", "one \ntwo three"]
    for _ in range(2):
        tables.write({"notes": notes}, tmp_path)
        notes = tables.read("notes", tmp_path)
        assert list(notes["reason"]) == marked


def test_a_cell_that_several_sweeps_count_has_one_count() -> None:
    cell = factory.ONE_CELL | {"metric": "waits"}
    rows = {
        "ladder": [cell | {"value": 18.0}],
        "files": [
            cell | {"value": 20.0},
            cell | {"value": 7.0, "metric": "bytes"},
            cell | {"value": 5.0, "k": 8192},
        ],
    }
    frames = {
        sweep: {name: tables.frame(name, []) for name in SWEEP_TABLES}
        | {"metrics": tables.frame("metrics", counts).assign(sweep=sweep)}
        for sweep, counts in rows.items()
    }
    counted = merge(frames)["metrics"]
    assert counted["value"].tolist() == [19.0, 19.0, 7.0, 5.0]
    assert counted["sweep"].tolist() == ["ladder", "files", "files", "files"]

"""Collecting: raw records in, tidy tables out, whatever became of a cell."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import edit_yaml
from factory import CUBLAS_TFLOPS, Lab, failed
from ladder.catalogue.plans import plan_sweep
from ladder.model.errors import LadderError
from ladder.model.files import read_json
from ladder.model.sweep import Sweep
from ladder.results import tables
from ladder.results.archive import collect_published
from ladder.results.collect import collect_sweep, read_lines, write_tables
from ladder.results.statistics import at_size, coefficient_of_variation


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.record()
    lab.collect()
    return lab


def timings(lab: Lab, sweep: str) -> pd.DataFrame:
    return tables.read("timings", lab.folder.sweep(sweep))


def test_a_row_per_cell_and_regime_with_cold_first(lab: Lab) -> None:
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
    assert best["gbytes_per_s"] == pytest.approx(3 * 4096**2 * 4 / best["median_us"] / 1e3)
    assert best["median_us_low"] < best["median_us"] < best["median_us_high"]
    assert 0 < best["cv"] < 0.01


def test_integers_have_no_tflops_but_a_share_of_the_copy(lab: Lab) -> None:
    rows = timings(lab, "stencil_reach")
    assert rows["tflops"].isna().all()
    assert rows["copy_fraction"].iloc[0] == pytest.approx(503.0 / rows["median_us"].iloc[0])
    assert list(rows["taps"].unique()) == [3, 5, 9, 13, 17, 25, 33]


def test_an_unknown_peak_leaves_the_share_empty(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.environment["gpu"]["fp32_peak_tflops"] = None
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    assert timings(lab, "fp32_ladder")["peak_fraction"].isna().all()


def test_what_the_kernel_and_the_profiler_report_becomes_metrics(lab: Lab) -> None:
    rows = tables.read("metrics", lab.folder.sweep("bank_stride"))
    stride = rows[rows["variant"] == "bank_stride-int32-stride=16"].set_index("metric")["value"]
    assert stride["predicted_wavefronts"] == 16
    assert stride["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] == 16_000_000


def test_the_notes_of_the_profiler_are_kept(lab: Lab) -> None:
    notes = tables.read("notes", lab.folder.sweep("fp32_transpose"))
    assert ("profile", "ncu", "ncu was not found") in set(
        notes[["stage", "subject", "reason"]].itertuples(index=False, name=None)
    )


def test_a_job_knows_its_gpu_share(lab: Lab) -> None:
    job = tables.read("jobs", lab.folder.sweep("bank_stride")).iloc[0]
    assert job["gpu_share"] == pytest.approx(0.83)


def test_merging_keeps_every_row_and_each_variant_once(lab: Lab) -> None:
    merged = tables.read("timings", lab.folder.tables)
    assert set(merged["sweep"]) == set(lab.sweeps())
    resources = tables.read("resources", lab.folder.tables)
    assert not resources["variant"].duplicated().any()
    shared = {variant.id for sweep in lab.sweeps().values() for variant in sweep.variants}
    assert set(resources["variant"]) == shared


def test_parquet_says_the_same_as_csv(lab: Lab) -> None:
    csv = tables.read("timings", lab.folder.tables)
    parquet = pd.read_parquet(lab.folder.tables / "timings.parquet")
    assert list(parquet.columns) == list(csv.columns)
    assert parquet["median_us"].to_numpy() == pytest.approx(csv["median_us"].to_numpy(), rel=1e-6)


@pytest.mark.parametrize("status", ["launch_error", "incorrect", "timeout", "unsupported"])
def test_a_failed_cell_keeps_its_reason_and_has_no_time(tmp_path: Path, status: str) -> None:
    lab = Lab(tmp_path)

    def change(cell, record):  # type: ignore[no-untyped-def]
        return failed(status, "because")(record) if cell.variant.kernel.name == "gemm_naive" else record

    lab.record(["fp32_ladder"], change)
    lab.collect(["fp32_ladder"])
    rows = timings(lab, "fp32_ladder")
    bad = rows[rows["kernel"] == "gemm_naive"]
    assert set(bad["status"]) == {status}
    assert set(bad["reason"]) == {"because"}
    assert bad[["median_us", "speedup", "tflops"]].isna().all(axis=None)
    assert not bad.duplicated(["variant", "n"]).any()


def test_a_variant_that_does_not_compile_has_rows_without_being_measured(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    def broken(variant, facts):  # type: ignore[no-untyped-def]
        if variant.kernel.name != "gemm_shared_tile":
            return facts
        return {"variant": variant.id, "status": "compile_error", "reason": "error: expected a ';'"}

    lab.record(["fp32_ladder"], lambda cell, record: None if "shared" in cell.variant.id else record, broken)
    lab.collect(["fp32_ladder"])
    bad = timings(lab, "fp32_ladder").query("kernel == 'gemm_shared_tile'")
    assert list(bad["status"]) == ["compile_error"] * 5
    assert set(bad["reason"]) == {"error: expected a ';'"}
    resources = tables.read("resources", lab.folder.tables).set_index("variant")
    assert resources.loc["gemm_shared_tile-fp32", "status"] == "compile_error"


def test_a_size_the_kernel_does_not_support_is_recorded(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.project.sweeps / "fp32_ladder.yaml"
    path.write_text(
        path.read_text()
        .replace("- 512\n", "- 500\n")
        .replace("kernel: gemm_register_tile", "unsupported: record\n  kernel: gemm_register_tile")
    )
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    rows = timings(lab, "fp32_ladder")
    bad = rows[rows["status"] == "unsupported"]
    assert set(bad["n"]) == {500}
    assert set(bad["reason"]) == {"M must be a multiple of BM"}


def test_a_combination_that_a_constraint_excludes_is_recorded_where_asked(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    kernel = lab.project.kernels / "gemm_register_tile.yaml"
    kernel.write_text(
        kernel.read_text() + "constraints:\n- {expr: bm * bk <= 1024, reason: deep tiles are narrow}\n"
    )
    sweep = lab.project.sweeps / "fp32_transpose.yaml"
    plain = sweep.read_text()
    head, variants = plain.split("\nvariants:\n")
    recording = variants.replace("- kernel:", "- excluded: record\n  kernel:", 1)
    sweep.write_text(f"{head}\nvariants:\n{recording}")
    lab.record(["fp32_transpose"])
    lab.collect(["fp32_transpose"])
    rows = timings(lab, "fp32_transpose")
    bad = rows[rows["status"] == "unsupported"]
    assert set(bad["variant"]) == {"gemm_register_tile-fp32-bk=16"}
    assert set(bad["reason"]) == {"deep tiles are narrow"}
    assert sorted(bad["n"]) == [1024, 4096]
    assert "gemm_register_tile-fp32-bk=16" not in set(tables.read("resources", lab.folder.tables)["variant"])
    sweep.write_text(plain)
    again = lab.sweeps(["fp32_transpose"])["fp32_transpose"]
    assert (len(again.entries), again.excluded) == (3, 1)


def test_a_size_the_sweep_leaves_out_is_recorded_with_its_reason(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.project.sweeps / "fp32_ladder.yaml"
    left_out = "sizes: [{expr: m <= 4096, reason: a launch takes a second}]"
    path.write_text(
        path.read_text().replace("kernel: gemm_shared_tile", f"{left_out}\n  kernel: gemm_shared_tile")
    )
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    rows = timings(lab, "fp32_ladder")
    bad = rows[rows["status"] == "unsupported"]
    assert list(bad["kernel"]) == ["gemm_shared_tile"]
    assert list(bad["n"]) == [8192]
    assert list(bad["reason"]) == ["a launch takes a second"]


def kept_where(lab: Lab, expression: str, **change: object) -> Sweep:
    """The sweep of tiles with a `where`, and what else is changed of its only entry."""
    path = lab.project.sweeps / "fp32_transpose.yaml"
    edit_yaml(path, lambda sweep: sweep["variants"][0].update(where=expression, **change))
    return lab.sweeps(["fp32_transpose"])["fp32_transpose"]


def asked(sweep: Sweep) -> dict[tuple[object, object], list[int]]:
    """Sizes of the cells by bm and bk."""
    found: dict[tuple[object, object], list[int]] = {}
    for cell in sweep.cells():
        params = cell.variant.params
        found.setdefault((params["bm"], params["bk"]), []).append(cell.size["n"])
    return found


def test_where_over_parameters_drops_combinations(tmp_path: Path) -> None:
    sweep = kept_where(Lab(tmp_path), "bm == 128 or bk == 8")
    both = [1024, 4096]
    assert asked(sweep) == {(64, 8): both, (128, 8): both, (128, 16): both}
    assert sweep.excluded == 1


def test_where_over_sizes_asks_for_a_combination_at_some_only(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    sweep = kept_where(lab, "bm == 128 if m > 1024 else bk == 8")
    assert asked(sweep) == {(64, 8): [1024], (128, 8): [1024, 4096], (128, 16): [4096]}
    assert sweep.excluded == 1, "of bm=64, bk=16 nothing is asked"
    assert all(cell.unsupported is None for cell in sweep.cells())
    cells = plan_sweep(sweep, lab.config(), "sm_90a")["cells"]
    assert len(cells) == 4
    lab.record(["fp32_transpose"])
    lab.collect(["fp32_transpose"])
    rows = timings(lab, "fp32_transpose")
    assert len(rows[rows["regime"] == "cold"]) == 4
    assert set(rows["status"]) == {"ok"}
    assert tables.read("notes", lab.folder.sweep("fp32_transpose")).query("stage == 'measure'").empty
    assert not tables.read("resources", lab.folder.tables)["variant"].str.contains("bm=64-bk=16").any()


def test_sizes_and_where_leave_out_with_and_without_a_row(tmp_path: Path) -> None:
    left_out = [{"expr": "m <= 1024", "reason": "takes long"}]
    sweep = kept_where(Lab(tmp_path), "bm == 128 or m == 1024", sizes=left_out)
    assert [(cell.variant.params["bm"], cell.size["m"], cell.unsupported) for cell in sweep.cells()] == [
        (64, 1024, None),
        (64, 1024, None),
        (128, 1024, None),
        (128, 1024, None),
        (128, 4096, "takes long"),
        (128, 4096, "takes long"),
    ]


def test_what_a_constraint_excludes_is_recorded_at_the_sizes_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    reason = "deep tiles are narrow"
    edit_yaml(
        lab.project.kernels / "gemm_register_tile.yaml",
        lambda kernel: kernel.update(constraints=[{"expr": "bm * bk <= 1024", "reason": reason}]),
    )
    sweep = kept_where(lab, "bk == 16 and m > 1024", excluded="record")
    found = [(cell.variant.params["bm"], cell.size["m"], cell.unsupported) for cell in sweep.cells()]
    assert found == [(64, 4096, None), (128, 4096, reason)]


def test_a_size_without_support_is_no_mistake_where_nothing_is_asked(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    edit_yaml(lab.project.sweeps / "fp32_transpose.yaml", lambda sweep: sweep["sizes"].append(1000))
    with pytest.raises(LadderError, match=r"no variant of variants\[0\]"):
        lab.sweeps(["fp32_transpose"])
    sweep = kept_where(lab, "m != 1000")
    assert [size["m"] for size in sweep.sizes] == [1024, 4096], "those at which it asks for something"


def test_counters_are_of_the_first_size_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.project.sweeps / "fp32_transpose.yaml"
    edit_yaml(path, lambda sweep: sweep.update(counters={"groups": ["banks"]}))
    assert [size["m"] for size in kept_where(lab, "m > 1024").counter_sizes] == [4096]


def test_where_is_asked_of_each_dtype(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    edit_yaml(
        lab.project.kernels / "gemm_register_tile.yaml", lambda kernel: kernel["dtypes"].update(fp16={})
    )
    edit_yaml(lab.project.sweeps / "fp32_transpose.yaml", lambda sweep: sweep.update(dtypes=["fp32", "fp16"]))
    sweep = kept_where(lab, "bm == 128 and bk == 16 and m * element_bytes <= 8192")
    shapes = [("fp32", 1024), ("fp16", 1024), ("fp16", 4096)]
    assert [(cell.variant.dtype, cell.size["m"]) for cell in sweep.cells()] == shapes
    assert [(dtype, size["m"]) for dtype, size in sweep.shapes()] == shapes
    assert sweep.excluded == 6


def test_a_truncated_last_line_is_a_cell_not_yet_there(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["tensor_ladder"])
    path = lab.folder.cells("tensor_ladder")
    path.write_text(path.read_text()[:-200])
    lab.collect(["tensor_ladder"])
    rows = timings(lab, "tensor_ladder")
    assert set(rows["rung"]) == {"WMMA naive"}
    notes = tables.read("notes", lab.folder.sweep("tensor_ladder"))
    assert "not measured" in set(notes["reason"])


def test_an_unreadable_line_in_the_middle_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text('{"a": 1}\n{"a": 2, "b"\n{"a": 3}\n{"a"')
    assert read_lines(path) == ([{"a": 1}, {"a": 3}], 1)


def test_of_two_records_of_a_cell_the_later_counts(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["tensor_ladder"])
    path = lab.folder.cells("tensor_ladder")
    again = json.loads(path.read_text().splitlines()[0])
    again["regimes"]["cold"]["speedup"] = 3.0
    path.write_text(path.read_text() + json.dumps(again) + "\n")
    lab.collect(["tensor_ladder"])
    rows = timings(lab, "tensor_ladder").query("regime == 'cold' and rung == 'WMMA naive'")
    assert list(rows["speedup"]) == [3.0]


def test_a_plan_of_another_sweep_is_refused(lab: Lab) -> None:
    sweep = lab.sweeps(["fp32_ladder"])["fp32_ladder"]
    plan = read_json(lab.folder.plan("tensor_ladder"))
    assert plan is not None
    with pytest.raises(LadderError, match="make it anew"):
        collect_sweep(sweep, plan, lab.folder)


def test_a_variant_never_compiled_is_named(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["tensor_ladder"])
    lab.folder.facts("wmma_naive-fp16").unlink()
    with pytest.raises(LadderError, match="compile the variant wmma_naive-fp16 first"):
        lab.collect(["tensor_ladder"])


class TestWithoutAGpu:
    """Timings of a published run, resources of what was compiled here."""

    @pytest.fixture
    def here(self, tmp_path: Path) -> Lab:
        measured = Lab(tmp_path)
        measured.record()
        measured.collect()
        published = measured.project.published("nvidia-h200")
        write_tables(
            {
                name: tables.read(name, measured.folder.tables)
                for name in ("timings", "metrics", "resources", "notes", "jobs")
            },
            published,
        )
        here = Lab(tmp_path, device="no-gpu")
        here.record(["fp32_ladder", "bank_stride"])
        here.folder.cells("fp32_ladder").unlink()
        return here

    def test_the_published_numbers_stand_in(self, here: Lab) -> None:
        published = here.project.published("nvidia-h200")
        sweep = here.sweeps(["fp32_ladder"])["fp32_ladder"]
        frames = collect_published(sweep, here.folder, published)
        assert len(frames["timings"]) == len(
            tables.read("timings", published).query("sweep == 'fp32_ladder'")
        )
        assert len(frames["notes"]) == 0
        assert set(frames["resources"]["variant"]) == {variant.id for variant in sweep.variants}

    def test_what_the_sweep_no_longer_has_is_dropped_and_what_is_new_is_noted(self, here: Lab) -> None:
        path = here.project.sweeps / "fp32_ladder.yaml"
        path.write_text(path.read_text().replace("- 512\n", "- 640\n"))
        sweep = here.sweeps(["fp32_ladder"])["fp32_ladder"]
        frames = collect_published(sweep, here.folder, here.project.published("nvidia-h200"))
        assert 512 not in set(frames["timings"]["n"])
        missing = frames["notes"][frames["notes"]["reason"] == "not in the published run"]
        assert len(missing) == 5
        assert missing["subject"].str.contains("640").all()

    def test_a_sweep_without_metrics_has_an_empty_table(self, here: Lab) -> None:
        here.record(["fp32_transpose"])
        sweep = here.sweeps(["fp32_transpose"])["fp32_transpose"]
        frames = collect_published(sweep, here.folder, here.project.published("nvidia-h200"))
        assert len(frames["metrics"]) == 0
        assert list(frames["metrics"].columns) == list(tables.METRICS)

    def test_a_source_changed_since_then_is_noted(self, here: Lab) -> None:
        path = here.folder.facts("gemm_shared_tile-fp32")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"source_sha256": "b" * 64}))
        sweep = here.sweeps(["fp32_ladder"])["fp32_ladder"]
        notes = collect_published(sweep, here.folder, here.project.published("nvidia-h200"))["notes"]
        assert list(notes["subject"]) == ["gemm_shared_tile"]
        assert "source differs" in notes["reason"].iloc[0]

    def test_nothing_published_is_a_note_not_an_error(self, here: Lab) -> None:
        sweep = here.sweeps(["fp32_ladder"])["fp32_ladder"]
        frames = collect_published(sweep, here.folder, here.project.published("nvidia-b200"))
        assert len(frames["timings"]) == 0
        assert list(frames["notes"]["reason"]) == ["no published measurements in nvidia-b200"]
        assert len(frames["resources"]) == 5


@pytest.mark.parametrize(
    ("samples", "expected"), [([1.0], None), ([1.0, 1.0], 0.0), ([1.0, 3.0], 2**0.5 / 2)]
)
def test_coefficient_of_variation(samples: list[float], expected: float | None) -> None:
    assert coefficient_of_variation(samples) == (None if expected is None else pytest.approx(expected))

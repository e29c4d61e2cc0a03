"""Configuration: layers, devices, the cells of a run, and what of it is kept between steps."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkout import loaded
from conftest import ROOT
from ladder.catalogue import settings
from ladder.catalogue.config import Config
from ladder.catalogue.documents import parse_yaml
from ladder.catalogue.runs import Run, load
from ladder.catalogue.settings import (
    choose_device,
    parse_over,
    read_settings,
    set_up,
)
from ladder.cli.app import main
from ladder.gpu import discovery
from ladder.gpu.discovery import FoundGpu, visible
from ladder.model.errors import LadderError
from ladder.model.folders import Project
from ladder.results.published_records import read_archive

H200 = FoundGpu(0, "NVIDIA H200", "GPU-0aa1", (9, 0))
L4 = FoundGpu(1, "NVIDIA L4", "GPU-1bb2", (8, 9))
QUICK = ROOT / "config/quick.yaml"


def asked(*layers: Path, **over: Any) -> Config:
    """The checkout's configuration with files and values over it."""
    return read_settings(Project(ROOT), layers, over)


def test_layers_are_merged_field_by_field_and_words_of_the_command_line_are_yaml(
    tmp_path: Path,
) -> None:
    layer = tmp_path / "layer.yaml"
    layer.write_text("measure: {precision: 0.05, cell_seconds: 0.2}\nsweeps: [one]\n")
    over = parse_over(["measure={precision: 0.125, lock_clocks: 1400}", "run=r1"])
    config = asked(layer, **over)
    measure = config.measure
    assert (measure.precision, measure.cell_seconds) == (0.125, 0.2)
    assert (measure.lock_clocks, config.run, config.sweeps) == (1400, "r1", ["one"])
    usual = asked().measure
    assert measure.deadline_s == usual.deadline_s


def test_a_date_is_a_word_like_any_other() -> None:
    for date in ("2026-11-29", "2026-13-45"):
        assert parse_yaml(f"title: {date}", "here") == {"title": date}


@pytest.mark.parametrize(
    ("gpu", "slug", "arch"),
    [
        (H200, "nvidia-h200", "sm_90a"),
        (L4, "nvidia-l4", "sm_89"),
        (replace(L4, name="NVIDIA A1-SXM4-80GB"), "nvidia-a1-sxm4-80gb", "sm_89"),
        (replace(H200, capability=(12, 0)), "nvidia-h200", "sm_120a"),
    ],
)
def test_a_folder_is_named_after_the_model_and_code_from_9_0_up_is_for_the_very_gpu(
    gpu: FoundGpu, slug: str, arch: str
) -> None:
    assert (gpu.slug, gpu.arch) == (slug, arch)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, [H200, L4]),
        ("1,0", [L4, H200]),
        ("GPU-0aa1", [H200]),
        ("GPU-1", [L4]),
        ("", []),
        ("NoDevFiles", []),
        ("1,-1,0", [L4]),
    ],
)
def test_only_visible_gpus_are_found(
    chosen: str | None, expected: list[FoundGpu]
) -> None:
    environment = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert (
        visible([H200, L4], environment | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        == expected
    )


@pytest.mark.parametrize("chosen", ["1,7,0", "GPU-", "h200"])
def test_a_name_that_no_gpu_has_is_refused_and_not_taken_for_no_gpu(
    chosen: str,
) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": chosen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    wrong = "7" if "7" in chosen else chosen
    accepted = "a number from 0 to 1, or a UUID.*GPU-0aa1 .NVIDIA H200., GPU-1bb2"
    with pytest.raises(
        LadderError,
        match=f"CUDA_VISIBLE_DEVICES: '{wrong}' is not accepted.*{accepted}",
    ):
        visible([H200, L4], environment)
    assert visible([], environment) == [], "a host without a GPU may have any"


def test_where_gpus_differ_a_number_is_taken_only_in_the_order_that_cuda_has_too() -> (
    None
):
    environment = {"CUDA_VISIBLE_DEVICES": "0"}
    with pytest.raises(
        LadderError,
        match=r"'0' is not accepted.*by speed.*CUDA_DEVICE_ORDER=PCI_BUS_ID",
    ):
        visible([H200, L4], environment)
    alike = replace(H200, index=1, uuid="GPU-2cc3")
    assert visible([H200, alike], environment) == [H200]


def test_a_gpu_in_mig_mode_is_not_measured_since_a_slice_would_pass_for_the_whole_model() -> (
    None
):
    sliced = replace(H200, index=1, uuid="GPU-2cc3", mig=True)
    assert visible([H200, sliced], {}) == [H200]
    with pytest.raises(
        LadderError, match=r"NVIDIA H200: it is in MIG mode.*-mig 0.*device=none"
    ):
        visible([sliced], {})
    for chosen in ("1", "GPU-2cc3", "MIG-0fe3"):
        with pytest.raises(
            LadderError,
            match=f"CUDA_VISIBLE_DEVICES: '{chosen}' is not accepted.*MIG mode",
        ):
            visible([H200, sliced], {"CUDA_VISIBLE_DEVICES": chosen})


def nvml(version: int) -> Any:
    """The driver's management library as far as it says its versions."""
    return SimpleNamespace(
        init_v2=lambda: None,
        system_get_cuda_driver_version=lambda: version,
        system_get_driver_version=lambda: "550.54",
    )


class Mig:
    """Of a GPU that cannot be cut into slices."""

    @property
    def mode(self) -> bool:
        raise RuntimeError("Not Supported")


def test_a_driver_of_cuda_12_is_refused_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = SimpleNamespace(
        name="NVIDIA H200", uuid="GPU-0aa1", cuda_compute_capability=(9, 0), mig=Mig()
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(discovery.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(
        "cuda.core.system.Device", SimpleNamespace(get_all_devices=lambda: [gpu])
    )
    monkeypatch.setattr("cuda.bindings.nvml", nvml(12040))
    needed = r"driver 550.54 is for CUDA 12.4; needed is CUDA 13, driver 580 or later .*device=none"
    with pytest.raises(LadderError, match=needed):
        discovery.find_gpus()
    monkeypatch.setattr("cuda.bindings.nvml", nvml(13000))
    assert discovery.find_gpus() == [H200]


@pytest.mark.parametrize(
    ("device", "arch_", "gpus", "expected"),
    [
        ("auto", "auto", [H200, L4], ("nvidia-h200", "sm_90a")),
        ("auto", "auto", [], ("no-gpu", "sm_90a")),
        ("none", "auto", [H200], ("no-gpu", "sm_90a")),
        ("nvidia-l4", "auto", [H200, L4], ("nvidia-l4", "sm_89")),
        ("nvidia-h200", "sm_90a", [], ("nvidia-h200", "sm_90a")),
    ],
)
def test_the_run_is_for_the_device_asked_for_or_found(
    device: str,
    arch_: str,
    gpus: list[FoundGpu],
    expected: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "find_gpus", lambda: gpus)
    assert choose_device(asked(device=device, arch=arch_)) == expected


def test_a_device_of_another_host_needs_its_architecture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "find_gpus", list)
    with pytest.raises(
        LadderError,
        match=r"arch: 'auto' is not accepted.*no nvidia-b200.*such as sm_90a",
    ):
        choose_device(asked(device="nvidia-b200"))


def test_a_host_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(discovery.ctypes, "CDLL", no_library)
    assert discovery.find_gpus() == []


@pytest.mark.parametrize("on_the_bus", [True, False])
def test_a_driver_that_does_not_answer_is_an_error_where_there_is_a_gpu(
    on_the_bus: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("NVML_ERROR_LIB_RM_VERSION_MISMATCH")

    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n" if on_the_bus else "0x8086\n")
    monkeypatch.setattr(discovery, "_PCI", tmp_path)
    monkeypatch.setattr(discovery.ctypes, "CDLL", lambda name: None)
    monkeypatch.setattr(
        "cuda.core.system.Device", SimpleNamespace(get_all_devices=broken)
    )
    if not on_the_bus:
        assert discovery.find_gpus() == []
        return
    with pytest.raises(
        LadderError, match=r"does not answer: NVML_ERROR_LIB_RM.*device=none"
    ):
        choose_device(asked())
    without = asked(device="none")
    assert choose_device(without) == ("no-gpu", "sm_90a")
    config = asked(device="nvidia-h200", arch="sm_90a")
    assert choose_device(config) == ("nvidia-h200", "sm_90a")


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The checkout; what else is loaded of it shares its kernels and sweeps."""
    run = loaded()
    monkeypatch.setattr("ladder.catalogue.runs.load_kernels", lambda _: run.catalog)
    monkeypatch.setattr("ladder.catalogue.runs.load_sweeps", lambda *_: run.every_sweep)
    return run


def test_the_checkout_and_its_quick_configuration_are_accepted(everything: Run) -> None:
    quick = load(set_up(ROOT, [QUICK], {"device": "none"}))
    assert set(quick.sweeps) < set(everything.sweeps)
    few, every = (
        {variant.id for sweep in run.sweeps.values() for variant in sweep.variants}
        for run in (quick, everything)
    )
    assert few < every
    assert quick.folder.root == everything.folder.root, (
        "what it measures counts for all"
    )


def test_a_run_of_some_cells_plans_and_compiles_these_alone_for_the_same_records(
    everything: Run,
) -> None:
    kept = {
        "fp32_ladder": "m == 4096 and (rung == '20 warp-specialised' or regime == 'cold' and kernel == 'gemm_tma')"
    }
    some = load(set_up(ROOT, over={"device": "none", "sweeps": kept}))
    assert list(some.sweeps) == ["fp32_ladder"]
    plan, whole = some.plans["fp32_ladder"], everything.plans["fp32_ladder"]
    assert plan.settings == whole.settings
    cells = {task.cell.id: task for task in whole.tasks}
    assert 2 < len(plan.tasks) < len(whole.tasks)
    for task in plan.tasks:
        assert task.cell.size["m"] == 4096
        assert task.cell.kernel == "gemm_tma"
        assert task == replace(cells[task.cell.id], sustained=task.sustained)
    assert {task.rung for task in plan.tasks if task.sustained} == {
        "20 warp-specialised"
    }
    launched = {task.reference.variant for task in plan.tasks if task.reference}
    assert launched <= {one.id for one in some.sweeps["fp32_ladder"].variants}, (
        "no baseline stays out"
    )
    assert some.plans["fp32_tiles"] == everything.plans["fp32_tiles"], (
        "targets may name it"
    )


@pytest.mark.published
def test_the_first_screen_takes_two_minutes_of_measuring(everything: Run) -> None:
    """Of five: compiling, starting processes and drawing take the rest. By the times of the published records."""
    quick = load(set_up(ROOT, [QUICK], {"device": "none"}))
    seconds = {}
    for record in read_archive(quick.project.published("nvidia-h200").records):
        spent = record.result.get("spent")
        if spent and spent["regimes"]:
            seconds[record.cell.id] = spent["wall_s"] / spent["regimes"]
    cells = list[str]()
    for plan in (quick.plans[name] for name in quick.sweeps):
        cells += [choice.id for choice in plan.choices]
        for task in plan.tasks:
            if task.launch:
                regimes = plan.regimes_of(task)
                cells += [task.cell.in_regime(regime).id for regime in regimes]
    known = [seconds[cell] for cell in cells if cell in seconds]
    assert len(known) > 0.9 * len(cells), (
        "sweeps that nobody has measured yet are not part of it"
    )
    assert sum(known) < 150


def test_what_the_rules_need_is_kept_while_nothing_changes(project: Path) -> None:
    made = []

    def make() -> dict[str, Any]:
        made.append(1)
        return {"external": {}, "count": len(made)}

    def read() -> Any:
        return set_up(project, over={"device": "none"}).cached_on_disk(make)["count"]

    assert (read(), read()) == (1, 1)
    (path,) = (project / ".snakemake").iterdir()
    path.write_text(path.read_text()[:-5])
    assert (read(), read()) == (2, 2), "a file cut short is no reason to fail"
    (project / "kernels/new.cuh").write_text("// another")
    assert (read(), read()) == (3, 3)


def test_hidden_files_of_editors_are_no_documents(project: Path) -> None:
    folder = next(project.glob("kernels/*/*.yaml")).parent
    (folder / ".#mine.yaml").symlink_to("me@host.123")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints/mine.yaml").write_text("")
    assert main(["--root", str(project), "check"]) == 0


def test_a_file_name_that_is_not_utf_8_counts_as_any_other(project: Path) -> None:
    (project / "kernels" / os.fsdecode(b"\xff.txt")).write_text("")
    assert main(["--root", str(project), "check"]) == 0
    set_up(project).cached_on_disk(lambda: {"external": {}})

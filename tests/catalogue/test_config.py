"""Configuration: layers, devices, and one source for schemas and their documentation."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml
from checkout import PUBLISHED, loaded, published_data
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st
from ladder.catalogue import settings
from ladder.catalogue.field_docs import BEGIN, END, field_reference
from ladder.catalogue.runs import Run, load
from ladder.catalogue.settings import choose_device, merged, read_settings, set_up
from ladder.claims.ledger import CLAIMS
from ladder.cli.app import STEPS, main
from ladder.cli.inspect import KINDS
from ladder.gpu import discovery
from ladder.gpu.discovery import FoundGpu, visible
from ladder.model.errors import LadderError
from ladder.model.expressions import FUNCTIONS, evaluate
from ladder.model.folders import Project
from ladder.report.document import learnt
from ladder.report.ladder_page import ladders, names_of
from ladder.results.published_records import read_archive

H200 = FoundGpu(0, "NVIDIA H200", "GPU-0aa1", (9, 0))
L4 = FoundGpu(1, "NVIDIA L4", "GPU-1bb2", (8, 9))

SETTINGS = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), SETTINGS, max_size=3)


@given(MAPPINGS, MAPPINGS)
def test_merging_keeps_what_only_one_side_says_and_prefers_the_upper_layer(
    base: dict[str, Any], over: dict[str, Any]
) -> None:
    result = merged(base, over)
    assert list(result) == list(dict.fromkeys([*base, *over]))
    for key, value in result.items():
        if key not in over:
            assert value == base[key]
        elif isinstance(base.get(key), dict) and isinstance(over[key], dict):
            assert value == merged(base[key], over[key])
        else:
            assert value == over[key]


def test_layers_are_merged_field_by_field_and_words_of_the_command_line_take_the_fields_type(
    tmp_path: Path,
) -> None:
    layer = tmp_path / "layer.yaml"
    layer.write_text("measure: {precision: 0.05, cell_seconds: 0.2}\nsweeps: [one]\n")
    over = {"measure": {"precision": "0.125", "lock_clocks": "1400"}, "run": "r1"}
    config = read_settings(Project(ROOT), [layer], over)
    assert (config.measure.precision, config.measure.cell_seconds) == (0.125, 0.2)
    assert (config.measure.lock_clocks, config.run, config.sweeps) == (1400, "r1", ["one"])
    assert config.measure.deadline_s == read_settings(Project(ROOT), [], {}).measure.deadline_s


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("H200", "nvidia-h200"),
        ("NVIDIA GeForce RTX 3090 Ti", "nvidia-geforce-rtx-3090-ti"),
        ("NVIDIA A100-SXM4-80GB", "nvidia-a100-sxm4-80gb"),
    ],
)
def test_a_gpu_models_folder_is_named_after_it(name: str, expected: str) -> None:
    assert FoundGpu(0, name, "GPU-1", (9, 0)).slug == expected


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((12, 0), "sm_120a")],
)
def test_the_architecture_of_a_device_carries_its_own_features_from_9_0_up(
    capability: tuple[int, int], expected: str
) -> None:
    assert FoundGpu(0, "a GPU", "GPU-1", capability).arch == expected


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, [H200, L4]),
        ("1", [L4]),
        ("1,0", [L4, H200]),
        ("GPU-0aa1", [H200]),
        ("GPU-1", [L4]),
        ("", []),
        ("-1", []),
        ("1,7,0", [L4]),
    ],
)
def test_only_visible_gpus_are_found(chosen: str | None, expected: list[FoundGpu]) -> None:
    environment = {} if chosen is None else {"CUDA_VISIBLE_DEVICES": chosen}
    assert visible([H200, L4], environment) == expected


@pytest.mark.parametrize(
    ("device", "arch_", "gpus", "expected"),
    [
        ("auto", "auto", [H200, L4], ("nvidia-h200", "sm_90a")),
        ("auto", "auto", [L4], ("nvidia-l4", "sm_89")),
        ("auto", "auto", [], ("no-gpu", "sm_90a")),
        ("auto", "sm_80", [], ("no-gpu", "sm_80")),
        ("none", "auto", [H200], ("no-gpu", "sm_90a")),
        ("nvidia-l4", "auto", [H200, L4], ("nvidia-l4", "sm_89")),
        ("nvidia-h200", "sm_90a", [], ("nvidia-h200", "sm_90a")),
    ],
)
def test_the_run_is_for_the_device_asked_for_or_found(
    device: str, arch_: str, gpus: list[FoundGpu], expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "find_gpus", lambda: gpus)
    assert choose_device(read_settings(Project(ROOT), [], {"device": device, "arch": arch_})) == expected


def test_a_device_of_another_host_needs_its_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_gpus", list)
    with pytest.raises(LadderError, match=r"arch: 'auto' is not accepted.*no nvidia-b200.*such as sm_90a"):
        choose_device(read_settings(Project(ROOT), [], {"device": "nvidia-b200"}))


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
    monkeypatch.setattr("cuda.core.system.Device", SimpleNamespace(get_all_devices=broken))
    if not on_the_bus:
        assert discovery.find_gpus() == []
        return
    with pytest.raises(LadderError, match=r"does not answer: NVML_ERROR_LIB_RM.*device=none"):
        choose_device(read_settings(Project(ROOT), [], {}))
    assert choose_device(read_settings(Project(ROOT), [], {"device": "none"})) == ("no-gpu", "sm_90a")
    cluster = {"device": "nvidia-h200", "arch": "sm_90a"}
    assert choose_device(read_settings(Project(ROOT), [], cluster)) == ("nvidia-h200", "sm_90a")


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The checkout; what else is loaded of it shares its kernels and sweeps."""
    run = loaded()
    monkeypatch.setattr("ladder.catalogue.runs.load_catalog", lambda _: run.catalog)
    monkeypatch.setattr("ladder.catalogue.runs.load_sweeps", lambda *_: run.every_sweep)
    return run


def test_the_checkout_and_its_quick_configuration_are_accepted(everything: Run) -> None:
    quick = load(set_up(ROOT, [ROOT / "config" / "quick.yaml"], {"device": "none"}))
    assert set(quick.sweeps) < set(everything.sweeps)
    few, all_of_them = (
        {variant.id for sweep in run.sweeps.values() for variant in sweep.variants}
        for run in (quick, everything)
    )
    assert few < all_of_them
    assert quick.config.run != everything.config.run


FIRST = ROOT / "config" / "first.yaml"


def test_a_run_of_some_cells_plans_and_compiles_these_alone_for_the_same_records(everything: Run) -> None:
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
    assert {task.rung for task in plan.tasks if task.sustained} == {"20 warp-specialised"}
    assert len([task for task in whole.tasks if task.sustained and task.cell.size["m"] == 4096]) > 2
    launched = {task.reference.variant for task in plan.tasks if task.reference}
    assert launched <= {one.id for one in some.sweeps["fp32_ladder"].variants}, "no baseline stays out"
    assert len(some.sweeps["fp32_ladder"].variants) < len(everything.sweeps["fp32_ladder"].variants)
    assert some.plans["fp32_tiles"] == everything.plans["fp32_tiles"], "targets may name it"


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"alone": "elements == 3"}, "sweeps.alone: 'elements == 3' .* an expression that keeps a cell"),
        ({"alone": "size == 4096"}, "sweeps.alone: .*'size' is not defined; known names:.* regime"),
        ({"alnoe": "elements == 4096"}, "sweeps: .*alnoe"),
        ({"alone": 4096}, "all, a list of sweep names, or a mapping of sweep names to expressions"),
        ({}, "all, a list of sweep names, or a mapping of sweep names to expressions"),
    ],
)
def test_a_choice_of_cells_that_makes_no_sense_is_refused(
    choice: dict[str, Any], message: str, project: Path
) -> None:
    with pytest.raises(LadderError, match=message):
        load(set_up(project, over={"device": "none", "sweeps": choice}))


def test_the_first_screen_takes_at_most_three_minutes_of_measuring(everything: Run) -> None:
    """Of five: compiling, starting processes and drawing take the rest. By the times of the published records."""
    first = load(set_up(ROOT, [FIRST], {"device": "none"}))
    archive = first.project.published("nvidia-h200").records
    if not archive.is_dir():
        pytest.skip("nothing is published")
    kernels = {task.cell.kernel for name in first.sweeps for task in first.plans[name].tasks}
    records = read_archive(archive, kernels)
    spent = {one.cell.id: one.result["spent"] for one in records if one.result.get("spent")}
    seconds = {cell: one["wall_s"] / one["regimes"] for cell, one in spent.items() if one["regimes"]}

    def lasts(run: Run) -> tuple[float, float]:
        """Seconds of the cells that have records, and their share of all."""
        plans = [run.plans[name] for name in run.sweeps]
        timed = [(plan, task) for plan in plans for task in plan.tasks if task.launch]
        cells = [task.cell.in_regime(regime).id for plan, task in timed for regime in plan.regimes_of(task)]
        known = [seconds[cell] for cell in cells if cell in seconds]
        return sum(known), len(known) / len(cells)

    shortly, share = lasts(first)
    assert share > 0.9, "sweeps that nobody has measured yet are not part of it"
    assert shortly < 180 < 1800 < lasts(everything)[0], "those that lack records would only add"
    assert first.folder.root == everything.folder.root, "so that what it measures counts for all"
    sustained = [name for name in first.sweeps if any(task.sustained for task in first.plans[name].tasks)]
    assert sustained == ["hopper_dtypes"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_document_is_described(kind: str) -> None:
    schema = KINDS[kind][1].model_json_schema()
    assert schema["description"]
    for line in field_reference(kind, *KINDS[kind]).splitlines():
        if line.startswith("| `"):
            assert line.split("|")[-2].strip(), f"no description: {line}"


def between_marks(readme: Path) -> str:
    return readme.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def test_the_numbers_of_readme_are_those_of_the_published_tables() -> None:
    lines = learnt(PUBLISHED, published_data(), ROOT).strip()
    assert between_marks(ROOT / "README.md") == lines, "run `make reference`"


def test_the_ladders_in_docs_are_drawn_from_sweeps_and_published_tables() -> None:
    text, sweeps = ladders(PUBLISHED, published_data(), ROOT), loaded().every_sweep
    assert (ROOT / "docs" / "ladder.md").read_text(encoding="utf-8") == text, "run `make reference`"
    assert {"gemv_bf16", "reduction", "transpose_fp32"} < {*names_of(sweeps)}
    for name in names_of(sweeps):
        for entry in sweeps[name].entries:
            line = rf"^\| \W*{re.escape(entry.rung)}\W* \| .{re.escape(entry.technique[1:])}\. \|"
            assert re.search(line, text, re.MULTILINE), entry.rung
    assert len(re.findall(r"\| \d[\d.]* \[\d[\d.]*, \d[\d.]*\] \| \[\d[\d.]*, \d[\d.]*\] \|", text)) > 50


def test_the_readme_holds_the_reference_the_schemas_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reference"]) == 0
    printed = capsys.readouterr().out
    assert between_marks(ROOT / "config" / "README.md") == printed.strip(), "run `make reference`"
    assert printed == "\n".join(field_reference(kind, *KINDS[kind]) for kind in KINDS)


FILES = {
    "config": ["config/config.yaml"],
    "sweep": ["config/sweeps/*.yaml"],
    "kernel": ["kernels/**/*.yaml"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_editors_find_the_schema_of_every_document(kind: str) -> None:
    schema = json.loads((ROOT / "config" / "schemas" / f"{kind}.json").read_text())
    assert schema == KINDS[kind][1].model_json_schema(), "run `make reference`"
    checked = jsonschema.Draft202012Validator(schema)
    files = [path for pattern in FILES[kind] for path in ROOT.glob(pattern)]
    assert files
    for path in files:
        document = yaml.safe_load(path.read_text())
        assert not list(checked.iter_errors(document)), path
        assert list(checked.iter_errors({**document, "misspelt": 1})), path
    editor = json.loads((ROOT / ".vscode" / "settings.json").read_text())["yaml.schemas"]
    assert editor[f"config/schemas/{kind}.json"] == FILES[kind][0]


def test_the_reference_names_every_setting_of_the_configuration() -> None:
    def paths(document: Mapping[str, Any], above: str = "") -> Iterator[str]:
        for key, value in document.items():
            yield above + key
            if isinstance(value, Mapping):
                yield from paths(value, f"{above}{key}.")

    text = field_reference("config", *KINDS["config"])
    document = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    for path in paths(document):
        assert f"| `{path}` |" in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "") for text in ("m = 128", "m == 1; m == 2", "m == 1\nm == 2", "m ==", "")),
        ("2^24", r"2\*\*24"),
        ("m.real", "Attribute"),
        ("f'{m:999999999}'", "JoinedStr"),
        ("name[9]", "Subscript"),
        ("max(*m)", "Starred"),
        ("'%999999999d' % m", "divmod"),
        ("name % 2", "divmod"),
        ("name", "not str"),
        ("None", "NoneType"),
        ("1e400", "inf"),
        ("1e400 - 1e400", "nan"),
        ("10**400", "too large"),
        ("10**10**8", "evaluate"),
        ("m / 0", "zero"),
        ("log2(0)", "math domain|positive"),
        ("gcd(1.5)", "float"),
        ("is_power_of_two(name)", "not supported"),
        ("(-1)**0.5", "complex"),
        ("1(2)", "not implemented"),
        ("m + " * 250 + "1", "longer than 1000"),
        ("-" * 900 + "m", "recursion"),
        ("(" * 400 + "m" + ")" * 400, "parentheses"),
    ],
)
def test_what_is_no_one_expression_of_a_number_is_refused(text: str, why: str) -> None:
    with pytest.raises(LadderError, match=f"(?s)expression.*{why}"):
        evaluate(text, {"m": 128, "name": "NN"})


def test_the_readme_names_every_function_of_expressions() -> None:
    readme = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+)`", readme.split("The functions are")[1].split(";")[0])) == set(FUNCTIONS)


def test_every_step_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for step in STEPS:
        assert re.search(rf"^  {step} +\w+", text, re.MULTILINE), "with its first line"
        assert main([step, "--help"]) == 0
        assert f"Usage: python -m ladder {step}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["collcet"],
        ["collect"],
        ["collect", "--nothing"],
        ["prepare", "a", "b", "c"],
        ["prepare", "a", "b", "--jobs", "0"],
        ["figures", "a", "b", "--jobs", "-1"],
        ["clock", "a", "--jobs", "0"],
    ],
)
def test_what_the_command_line_does_not_know_is_a_mistake(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert "Usage: python -m ladder" in capsys.readouterr().err


def test_a_crash_of_the_program_has_an_exit_code_of_its_own_and_leaves_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr("ladder.cli.inspect.run_of", crash)
    assert main(["check"]) == 3
    assert "RuntimeError: a bug" in caplog.text


def test_check_names_the_sizes_that_nothing_is_asked_for_at(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "config" / "sweeps" / "alone.yaml"
    document = yaml.safe_load(path.read_text())
    for entry in document["variants"]:
        entry["where"] = "elements > 2**16"
    path.write_text(yaml.safe_dump(document))
    assert main(["--root", str(project), "check"]) == 0
    text = capsys.readouterr().out
    assert "alone: 2 variants, 1 sizes, 2 cells\n    nothing is asked for at 2^16\n" in text


def test_check_says_what_a_run_would_do(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(project), "check"]) == 0
    text = capsys.readouterr().out
    assert f"2 kernels; 4 variants to compile; {len(CLAIMS)} claims" in text
    assert len(CLAIMS) > 30
    assert "alone: 2 variants, 2 sizes, 4 cells" in text


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
    (project / "kernels" / "new.cuh").write_text("// another")
    assert (read(), read()) == (3, 3)


def test_a_cache_that_others_may_write_runs_nothing(project: Path, tmp_path: Path) -> None:
    class Command:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    for name in ("run", "rules"):
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(("key", Command())))
    assert main(["--root", str(project), "check", "--config", f"compile={{cache: {tmp_path}}}"]) == 0
    assert not (tmp_path / "ran").exists()


def test_a_file_name_that_is_not_utf_8_counts_as_any_other(project: Path) -> None:
    (project / "kernels" / os.fsdecode(b"\xff.txt")).write_text("")
    assert main(["--root", str(project), "check"]) == 0
    set_up(project).cached_on_disk(lambda: {"external": {}})

"""`ladder choose` and `params: best`: each shape gets the configuration that is expected to be fastest in its class."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, edit_yaml
from factory import Lab, failed
from ladder import choices, documents, tables
from ladder.__main__ import main
from ladder.catalog import load_catalog, load_kernel
from ladder.choices import choose, load_choices
from ladder.errors import LadderError
from ladder.plan import plan_sweep
from ladder.sections import headline, sweep_section
from ladder.sweep_data import SweepData
from ladder.sweeps import Cell, Sweep

KERNEL = "gemm_register_tile"
# Rounds of tiles on 64 multiprocessors x what a tile takes: at 1024 x 1024 both tiles fill whole rounds.
WORK = "ceil_div(ceil_div(m, bm) * ceil_div(n, bm), 64) * bm * bm * k"
SMALL, LARGE = {"m": 1024, "n": 1024, "k": 1024}, {"m": 4096, "n": 4096, "k": 512}
TIMES = {
    (1024, 128, 8): 0.9,
    (1024, 128, 16): 0.95,
    (1024, 64, 8): 1.0,
    (1024, 64, 16): 1.25,
    (4096, 128, 8): 1.0,
    (4096, 128, 16): 0.8,
    (4096, 64, 8): 1.25,
    (4096, 64, 16): 1.6,
}
"""Time relative to the reference by m, bm and bk."""
SHAPES: dict[str, Any] = {
    "title": "Shapes",
    "question": "q?",
    "problem": "gemm",
    "dtypes": ["fp32"],
    "sizes": [SMALL, {"m": 1152, "n": 1024, "k": 1024}, {"m": 3072, "n": 4096, "k": 256}],
    "variants": [{"kernel": KERNEL, "params": "best", "technique": "suits the shape"}],
    "references": ["cublas"],
}


def timed(cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
    """The record with the time that TIMES gives it; in the other regime the order is the opposite."""
    params = cell.variant.params
    time = TIMES[cell.size["m"], int(params["bm"]), int(params["bk"])]
    for regime, measured in record["regimes"].items():
        speedup = 1 / time if regime == "cold" else time
        measured |= {
            "speedup": speedup,
            "speedup_low": speedup * 0.999,
            "speedup_high": speedup * 1.001,
        }
    return record


class Chosen(Lab):
    """A project whose sweep `tiles` has been measured, and what is chosen from it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        edit_yaml(self.project.kernels / f"{KERNEL}.yaml", lambda kernel: kernel.update(work=WORK))
        self.write("tiles", variants=[{"kernel": KERNEL, "params": {"bm": [64, 128], "bk": [8, 16]}}])

    def write(self, name: str, **change: Any) -> None:
        """A sweep, by default of the shapes that `tiles` measures."""
        self._write(self.project.sweeps / f"{name}.yaml", SHAPES | {"sizes": [SMALL, LARGE]} | change)

    def measure(self, change: Callable[[Cell, dict[str, Any]], dict[str, Any] | None] = timed) -> None:
        self.record(["tiles"], change)
        self.collect(["tiles"])

    @property
    def best(self) -> Path:
        return self.project.best / f"{KERNEL}.yaml"

    def choose(self) -> int:
        words = ["--sweep", "tiles", "--tables", str(self.folder.tables)]
        return main(["--root", str(self.root), "choose", *words])

    def loaded(self) -> choices.Choices:
        return load_choices(self.best, load_catalog(self.project.kernels)[KERNEL])

    def at(self, m: int, n: int, k: int) -> tuple[int | str, int | str]:
        """bm and bk chosen for a shape."""
        params = self.loaded().at({"m": m, "n": n, "k": k}, "fp32", None).params
        return params["bm"], params["bk"]


@pytest.fixture
def lab(tmp_path: Path) -> Chosen:
    lab = Chosen(tmp_path)
    lab.measure()
    assert lab.choose() == 0
    return lab


def test_what_is_chosen_is_what_was_measured_fastest_first(lab: Chosen) -> None:
    found = lab.loaded()
    assert [dict(size) for size, _ in found.classes] == [SMALL, LARGE]
    for size, configurations in found.classes:
        params = [
            lab.sweeps(["tiles"])["tiles"].entries[0].variant.kernel.variant(one.params, "fp32").params
            for one in configurations
        ]
        times = [TIMES[size["m"], int(given["bm"]), int(given["bk"])] for given in params]
        assert len(times) == 4
        assert times == sorted(times)
        assert [one.time for one in configurations] == pytest.approx(times, abs=1e-4)
    document = documents.load(lab.best, "choices")
    assert document["source"] == {
        "sweep": "tiles",
        "gpu": "NVIDIA H200",
        "started": lab.environment["started"],
        "tree": lab.environment["tree"]["digest"],
    }
    assert document["classes"][0]["configurations"][0] == {"time": 0.9, "params": {}}, (
        "defaults go without saying"
    )
    assert lab.best.read_text().startswith(
        "# Written by `ladder choose` from the timings of tiles: do not edit.\n"
    )
    before = lab.best.read_bytes()
    assert lab.choose() == 0
    assert lab.best.read_bytes() == before


def test_a_shape_takes_after_the_nearest_class(lab: Chosen) -> None:
    assert lab.at(**SMALL) == (128, 8)
    assert lab.at(**LARGE) == (128, 16)
    # In octaves from 1024 x 1024 x 1024 and from 4096 x 4096 x 512.
    assert lab.at(2048, 1024, 1024) == (128, 8)
    assert lab.at(2048, 4096, 512) == (128, 16)
    assert lab.at(1024, 1024, 8192) == (128, 8)


def test_where_the_first_needs_another_round_the_second_is_chosen(lab: Chosen) -> None:
    # 9 x 8 tiles of 128 take two rounds: 0.9 * 2. 18 x 16 of 64 take five instead of four: 1.0 * 5 / 4.
    assert lab.at(1152, 1024, 1024) == (64, 8)
    # Two full rounds, and eight: as at the measured size.
    assert lab.at(2048, 1024, 1024) == (128, 8)


def test_configurations_that_do_not_support_a_shape_are_passed_over(lab: Chosen) -> None:
    # M must be a multiple of BM, and 960 is one of 64 only.
    assert lab.at(960, 1024, 1024) == (64, 8)
    with pytest.raises(LadderError, match=r"no configuration of the class .*1024.* supports .*'m': 1000"):
        lab.at(1000, 1024, 1024)


def test_only_the_fastest_few_of_a_class_are_kept(lab: Chosen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "MOST", 1)
    assert lab.choose() == 0
    assert [[one.time for one in kept] for _, kept in lab.loaded().classes] == [[0.9], [0.8]]
    assert lab.at(1152, 1024, 1024) == (128, 8)


def test_what_gave_no_right_result_is_not_chosen(lab: Chosen) -> None:
    def change(cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
        wrong = (cell.size["m"], cell.variant.params["bm"], cell.variant.params["bk"]) == (1024, 128, 8)
        return failed("incorrect", "wrong")(record) if wrong else timed(cell, record)

    lab.measure(change)
    assert lab.choose() == 0
    assert lab.at(**SMALL) == (128, 16)
    assert [len(kept) for _, kept in lab.loaded().classes] == [3, 4]


def test_timings_of_another_sweep_do_not_count(lab: Chosen) -> None:
    frame = tables.read("timings", lab.folder.sweep("tiles"))
    sweep = lab.sweeps(["tiles"])["tiles"]
    with pytest.raises(LadderError, match="no result at"):
        choose(sweep, frame.assign(sweep="others"), {})


def only(sweep: Sweep) -> dict[str, list[dict[str, int]]]:
    """Sizes by dtype, in measuring order."""
    found: dict[str, list[dict[str, int]]] = {dtype: [] for dtype in sweep.dtypes}
    for cell in sweep.cells():
        assert cell.unsupported is None
        found[cell.variant.dtype].append(dict(cell.size))
    return found


def test_a_sweep_of_the_best_has_each_size_once_per_dtype(lab: Chosen) -> None:
    path = lab.project.kernels / f"{KERNEL}.yaml"
    edit_yaml(path, lambda kernel: kernel["dtypes"].update(fp16={}))
    lab.write("shapes", sizes=SHAPES["sizes"], dtypes=["fp32", "fp16"])
    sweep = lab.sweeps(["shapes"])["shapes"]
    assert only(sweep) == dict.fromkeys(("fp32", "fp16"), SHAPES["sizes"])
    chosen = [(cell.variant.params["bm"], cell.variant.params["bk"]) for cell in sweep.cells()]
    assert chosen == 2 * [(128, 8), (64, 8), (128, 16)]
    assert {entry.technique for entry in sweep.entries} == {"suits the shape"}
    assert len(sweep.entries) == len(sweep.variants) == 6
    cells = plan_sweep(sweep, lab.config(), "sm_90a")["cells"]
    assert [(cell["dtype"], cell["size"]) for cell in cells] == [
        (dtype, size) for dtype in sweep.dtypes for size in SHAPES["sizes"]
    ]
    assert all("launch" in cell for cell in cells)


def test_one_configuration_for_several_shapes_is_compiled_once(lab: Chosen) -> None:
    sizes = [SMALL, {"m": 1024, "n": 1024, "k": 512}, LARGE, {"m": 4096, "n": 4096, "k": 256}]
    lab.write("shapes", sizes=sizes)
    sweep = lab.sweeps(["shapes"])["shapes"]
    assert len(sweep.variants) == 2
    assert only(sweep)["fp32"] == sizes


def test_the_report_counts_the_cells_there_are(lab: Chosen) -> None:
    lab.write("shapes", sizes=SHAPES["sizes"])
    lab.record(["shapes"])
    lab.collect(["shapes"])
    names = ("timings", "resources", "metrics")
    frames = {name: tables.read(name, lab.folder.sweep("shapes")) for name in names}
    data = SweepData(sweep=lab.sweeps(["shapes"])["shapes"], environment=lab.environment, **frames)
    assert len(data.sweep.entries) == 3
    assert sweep_section(data)["cells"] == sweep_section(data)["ok"] == 3
    assert "3 of 3" in headline([data])


# What goes wrong is told by file, field, value and what is accepted.


def refused(lab: Chosen, change: Callable[[dict[str, Any]], object], name: str = "shapes") -> str:
    """The error of loading a changed sweep."""
    lab.write(name, sizes=SHAPES["sizes"])
    edit_yaml(lab.project.sweeps / f"{name}.yaml", change)
    with pytest.raises(LadderError) as error:
        lab.sweeps([name])
    return str(error.value)


def test_a_missing_file_says_who_writes_it(lab: Chosen) -> None:
    lab.best.unlink()
    said = refused(lab, lambda sweep: None)
    assert said == f"{lab.best}: cannot be read: `ladder choose` writes it from a sweep's timings"


def test_a_kernel_without_work_cannot_be_chosen_for(lab: Chosen) -> None:
    path = lab.project.kernels / f"{KERNEL}.yaml"
    edit_yaml(path, lambda kernel: kernel.pop("work"))
    assert refused(lab, lambda sweep: None).startswith(f"{path}: the field 'work' is missing")
    with pytest.raises(LadderError, match=rf"{re.escape(str(path))}: the field 'work' is missing"):
        choose(lab.sweeps(["tiles"])["tiles"], tables.read("timings", lab.folder.sweep("tiles")), {})


def test_work_that_is_no_expression_names_the_kernel(lab: Chosen) -> None:
    path = lab.project.kernels / f"{KERNEL}.yaml"
    for wrong, said in (("rounds * k", "rounds"), ("m *", "m *")):
        edit_yaml(path, functools.partial(dict.update, work=wrong))
        with pytest.raises(LadderError, match=rf"{KERNEL}\.yaml: work: .*{re.escape(said)}"):
            load_kernel(path)


def test_the_file_of_another_kernel_is_refused(lab: Chosen) -> None:
    edit_yaml(lab.best, lambda document: document.update(kernel="gemm_naive"))
    said = refused(lab, lambda sweep: None)
    assert said == f"{lab.best}: kernel: 'gemm_naive' is not accepted; accepted: {KERNEL}"


def test_a_parameter_that_the_kernel_has_no_more_is_named_with_its_class(lab: Chosen) -> None:
    edit_yaml(lab.best, lambda document: document["classes"][1]["configurations"][0]["params"].update(bk=32))
    said = refused(lab, lambda sweep: None)
    assert said.startswith(f"{lab.best}: {LARGE}: params.bk: 32 is not accepted")
    assert said.endswith("accepted: 8, 16")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("where", "bm == 64"),
        ("rung", "best"),
        ("sizes", [{"expr": "m > 1024", "reason": "r"}]),
    ],
)
def test_the_best_stands_alone(lab: Chosen, field: str, value: Any) -> None:
    said = refused(lab, lambda sweep: sweep["variants"][0].update({field: value}))
    path = lab.project.sweeps / "shapes.yaml"
    assert said.startswith(f"{path}: variants[0].{field}: {value!r} is not accepted")
    assert said.endswith("accepted: nothing beside `params: best`")


def test_another_word_than_best_is_refused(lab: Chosen) -> None:
    said = refused(lab, lambda sweep: sweep["variants"][0].update(params="fastest"))
    assert f"{lab.project.sweeps / 'shapes.yaml'}: variants[0].params: 'fastest'" in said
    assert said.endswith("accepted: a mapping of parameters, or best")


def test_a_size_without_a_result_is_named(lab: Chosen, caplog: pytest.LogCaptureFixture) -> None:
    lab.measure(
        lambda cell, record: timed(cell, record) if cell.size["m"] == 1024 else failed("timeout", "t")(record)
    )
    before = lab.best.read_bytes()
    assert lab.choose() == 2
    assert f"{lab.project.sweeps / 'tiles.yaml'}: no result at {LARGE} to choose from" in caplog.text
    assert lab.best.read_bytes() == before


def test_a_choice_is_of_one_kernel_and_dtype(lab: Chosen) -> None:
    lab.write("tiles", variants=[{"kernel": KERNEL}, {"kernel": "gemm_shared_tile"}])
    with pytest.raises(LadderError, match="one kernel in one dtype"):
        choose(lab.sweeps(["tiles"])["tiles"], tables.read("timings", lab.folder.sweep("tiles")), {})


def test_tables_without_an_environment_are_refused(lab: Chosen, caplog: pytest.LogCaptureFixture) -> None:
    lab.folder.environment.rename(lab.folder.tables / "environment.json")
    assert lab.choose() == 0, "beside the tables, as in published results"
    (lab.folder.tables / "environment.json").unlink()
    assert lab.choose() == 2
    assert f"{lab.folder.tables}: no environment.json" in caplog.text


# L2 promotion by parameter.


def promoted(tmp_path: Path, promotion: str, values: list[str]) -> Path:
    document = {
        "summary": "s",
        "problem": "gemm",
        "rows": [],
        "origin": ["tests"],
        "entry": "kernel",
        "dtypes": {"bf16": {}},
        "min_arch": "sm_90a",
        "parameters": {"fetch": {"values": values, "default": values[0], "description": "d"}},
        "launch": {"grid": [1], "block": [32]},
        "arguments": [
            {"pointer": "c"},
            {"tensor_map": "a", "box": [64, 64], "swizzle": "rows", "l2_promotion": promotion},
        ],
    }
    path = tmp_path / "promoted.yaml"
    path.write_text(yaml.safe_dump(document))
    path.with_suffix(".cu").write_text("// the tests compile nothing\n")
    return path


def test_l2_promotion_is_a_word_or_a_parameter_of_such_words(tmp_path: Path) -> None:
    for promotion, values in (("256B", ["x"]), ("none", ["x"]), ("fetch", ["none", "64B", "128B", "256B"])):
        kernel = load_kernel(promoted(tmp_path, promotion, values))
        assert kernel.arguments[1].l2_promotion == promotion


@pytest.mark.parametrize(
    ("promotion", "values", "value", "hint"),
    [
        ("512B", ["none"], "'512B'", ""),
        ("fetsh", ["none"], "'fetsh'", " (did you mean 'fetch'?)"),
        ("fetch", ["none", "512B"], "'512B'", ""),
    ],
)
def test_a_wrong_l2_promotion_is_refused(
    tmp_path: Path, promotion: str, values: list[str], value: str, hint: str
) -> None:
    path = promoted(tmp_path, promotion, values)
    with pytest.raises(LadderError) as error:
        load_kernel(path)
    said = str(error.value)
    assert said.startswith(f"{path}: arguments[1].l2_promotion: {value} is not accepted")
    assert hint in said
    assert said.endswith("accepted: none, 64B, 128B, 256B, fetch")


def test_the_choices_that_ship_are_those_of_the_published_run(tmp_path: Path) -> None:
    made = tmp_path / "best.yaml"
    step = ["--root", str(ROOT), "choose", "--sweep", "hopper_tiles", "--out", str(made)]
    assert main([*step, "--tables", str(ROOT / "results" / "published" / "nvidia-h200")]) == 0
    assert made.read_text() == (ROOT / "config" / "best" / "hopper_gemm.yaml").read_text()

"""`ladder choose` and `params: best`: each shape gets what was fastest there, or else what is expected to be."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, edit_yaml
from factory import Lab, failed
from ladder.catalogue import documents
from ladder.catalogue.kernels import load_catalog, load_kernel
from ladder.catalogue.plans import plan_sweep
from ladder.cli.app import main
from ladder.model.errors import LadderError
from ladder.model.kernel import Variant
from ladder.model.sweep import Cell, Sweep
from ladder.report.sections import headline, sweep_section
from ladder.report.sweep_data import SweepData
from ladder.results import choose as choices
from ladder.results import tables
from ladder.results.choose import choose, load_choices

KERNEL = "gemm_register_tile"
# Rounds of tiles on 64 multiprocessors x what a tile takes: at 1024 x 1024 both tiles fill whole rounds.
WORK = "ceil_div(ceil_div(m, bm) * ceil_div(n, bm), 64) * bm * bm * k"
UNIT = 1024**3 / 64
SMALL, LARGE = {"m": 1024, "n": 1024, "k": 1024}, {"m": 4096, "n": 4096, "k": 512}
"""One unit of work, and eight."""
MIDDLE = {"m": 2048, "n": 2048, "k": 1024}
"""Four units."""
COSTS = {(128, 8): (2.0, 7.0), (128, 16): (4.0, 5.5), (64, 8): (1.5, 9.0), (64, 16): (3.5, 9.0)}
"""Start and time of a unit of work (us) by bm and bk: at 1024 (128, 8) is fastest, from 1.3 units on (128, 16)."""
SHAPES: dict[str, Any] = {
    "title": "Shapes",
    "question": "q?",
    "problem": "gemm",
    "dtypes": ["fp32"],
    "sizes": [SMALL, {"m": 1152, "n": 1024, "k": 1024}, {"m": 3072, "n": 4096, "k": 256}],
    "variants": [{"kernel": KERNEL, "params": "best", "technique": "suits the shape"}],
    "references": ["cublas"],
}


def work(variant: Variant, size: Mapping[str, int]) -> float:
    """WORK in units."""
    tiles = math.ceil(size["m"] / variant.params["bm"]) * math.ceil(size["n"] / variant.params["bm"])
    return math.ceil(tiles / 64) * variant.params["bm"] ** 2 * size["k"] / UNIT


def timed(cell: Cell, record: dict[str, Any], factor: float = 1) -> dict[str, Any]:
    """The record with `factor` x the time of COSTS; in the other regime the order is the opposite."""
    start, slope = COSTS[cell.variant.params["bm"], cell.variant.params["bk"]]
    time = factor * (start + slope * work(cell.variant, cell.size))
    for regime, measured in record["regimes"].items():
        speedup = 20 / time if regime == "cold" else time / 20
        measured |= {
            "speedup": speedup,
            "speedup_low": speedup * 0.999,
            "speedup_high": speedup * 1.001,
            "reference_us": [20.0] * 20,
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


def test_what_was_fastest_and_what_each_costs_is_written_down(lab: Chosen) -> None:
    found = lab.loaded()
    assert [(dict(size), dict(params)) for size, params in found.fastest] == [
        (SMALL, {}),
        (LARGE, {"bk": 16}),
    ]
    kernel = load_catalog(lab.project.kernels)[KERNEL]
    costs = {}
    for one in found.configurations:
        params = kernel.variant(one.params, "fp32").params
        costs[params["bm"], params["bk"]] = (one.start_us, one.us_per_work * UNIT)
        assert one.where == ""
    assert costs.keys() == COSTS.keys()
    for key, cost in COSTS.items():
        assert costs[key] == pytest.approx(cost, rel=1e-4)
    document = documents.load(lab.best, "choices")
    assert document["source"] == {
        "sweep": "tiles",
        "gpu": "NVIDIA H200",
        "started": lab.environment["started"],
        "tree": lab.environment["tree"]["digest"],
    }
    assert document["fastest"][0]["params"] == {}, "defaults go without saying"
    assert lab.best.read_text().startswith(
        "# Written by `ladder choose` from the timings of tiles: do not edit.\n"
    )
    before = lab.best.read_bytes()
    assert lab.choose() == 0
    assert lab.best.read_bytes() == before


def test_between_and_beyond_measured_sizes_the_least_time_expected_is_chosen(lab: Chosen) -> None:
    # Units of work: one, where it was measured and where not; half a one; two; four; eight.
    assert lab.at(**SMALL) == (128, 8)
    assert lab.at(2048, 1024, 512) == (128, 8)
    assert lab.at(1024, 1024, 512) == (128, 8)
    assert lab.at(2048, 1024, 1024) == (128, 16)
    assert lab.at(**MIDDLE) == (128, 16)
    assert lab.at(**LARGE) == (128, 16)


def test_where_the_first_needs_another_round_the_second_is_chosen(lab: Chosen) -> None:
    # 9 x 8 tiles of 128 take two rounds: 2 + 7 * 2. 18 x 16 of 64 take five instead of four: 1.5 + 9 * 5 / 4.
    assert lab.at(1152, 1024, 1024) == (64, 8)


def test_configurations_that_do_not_support_a_shape_are_passed_over(lab: Chosen) -> None:
    # M must be a multiple of BM, and 960 is one of 64 only.
    assert lab.at(960, 1024, 1024) == (64, 8)
    with pytest.raises(LadderError, match=r"no configuration supports .*'m': 1000"):
        lab.at(1000, 1024, 1024)
    edit_yaml(lab.best, lambda document: document["fastest"][0]["size"].update(m=960))
    assert lab.at(960, 1024, 1024) == (64, 8), "not even what is said to be fastest there"


def test_configurations_that_the_kernel_excludes_by_now_are_passed_over(lab: Chosen) -> None:
    assert lab.at(**LARGE) == (128, 16)
    constraints = [{"expr": "bk == 8 or bm == 32", "reason": "registers"}]
    edit_yaml(lab.project.kernels / f"{KERNEL}.yaml", lambda kernel: kernel.update(constraints=constraints))
    # 2 + 8 * 7 against 1.5 + 8 * 9: so that the sweep they are chosen from can be run again.
    assert lab.at(**LARGE) == (128, 8)
    edit_yaml(lab.best, lambda document: document.update(configurations=document["configurations"][1:2]))
    assert [one.params for one in lab.loaded().configurations] == [{"bm": 64, "bk": 16}], "which it excludes"
    with pytest.raises(LadderError, match="no configuration supports"):
        lab.at(**LARGE)


def test_a_configuration_is_expected_to_be_fast_where_the_sweep_would_try_it(lab: Chosen) -> None:
    large = [{"expr": "m >= 2048", "reason": "a choice for large products"}]
    lab.write(
        "tiles",
        sizes=[SMALL, LARGE, {"m": 4096, "n": 4096, "k": 1024}],
        variants=[
            {"kernel": KERNEL, "params": {"bm": 128, "bk": 8}, "where": "n >= bm * bk"},
            {"kernel": KERNEL, "params": {"bm": 128, "bk": 16}, "where": "k <= 2048", "sizes": large},
        ],
    )
    lab.measure()
    assert lab.choose() == 0
    assert [one.where for one in lab.loaded().configurations] == [
        "(n >= bm * bk)",
        "(k <= 2048) and (m >= 2048)",
    ]
    # Two units of work or more each, of which (128, 16) takes less.
    assert lab.at(2048, 2048, 1024) == (128, 16)
    assert lab.at(1920, 4096, 1024) == (128, 8), "too few rows"
    assert lab.at(4096, 4096, 2304) == (128, 8), "too deep"
    assert lab.at(2048, 1024, 1024) == (128, 16)
    assert lab.at(1920, 896, 4096) == (128, 16), "none would be tried there: both count"
    edit_yaml(lab.best, lambda document: document["configurations"][1].update(where="rows > 4"))
    with pytest.raises(LadderError, match=r"configurations\[1\].where: .*'rows' is not defined"):
        lab.loaded()


@pytest.mark.parametrize("part", ["fastest", "configurations"])
@pytest.mark.parametrize(("params", "found"), [({"bmm": 64}, "did you mean 'bm'"), ({"bm": 65}, "65")])
def test_mistakes_are_found_where_nothing_is_chosen_too(
    lab: Chosen, part: str, params: dict[str, int], found: str
) -> None:
    edit_yaml(lab.best, lambda document: document[part][1].update(params=params))
    with pytest.raises(LadderError, match=rf"{part}\[1\].*{found}"):
        lab.loaded()


def test_a_size_without_one_of_its_fields_is_refused(lab: Chosen) -> None:
    edit_yaml(lab.best, lambda document: document["fastest"][1]["size"].pop("k"))
    with pytest.raises(LadderError, match=r"fastest\[1\].size: .* accepted: m, n, k"):
        lab.loaded()


def test_at_a_measured_size_the_measured_time_counts(lab: Chosen) -> None:
    sizes = [SMALL, MIDDLE, LARGE]
    lab.write("tiles", sizes=sizes, variants=[{"kernel": KERNEL, "params": {"bm": [64, 128], "bk": [8, 16]}}])

    def change(cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
        odd = cell.size == MIDDLE and (cell.variant.params["bm"], cell.variant.params["bk"]) == (64, 8)
        return timed(cell, record, 25 / 37.5 if odd else 1)

    lab.measure(change)
    assert lab.choose() == 0
    assert lab.at(**MIDDLE) == (64, 8), "25 us, where (128, 16) takes 26"
    assert lab.at(2048, 2048, 960) == (128, 16)


def test_the_fit_is_of_relative_errors_with_nothing_negative(lab: Chosen) -> None:
    sizes = [SMALL, MIDDLE, LARGE]
    lab.write("tiles", sizes=sizes, variants=[{"kernel": KERNEL, "params": {"bk": [8, 16]}}])
    # Of 9, 30 and 58 us, and of 9.5, 26 and 48: more in the middle, and so much less at first that no start is left.
    factors = {8: (1, 1.2, 1), 16: (0.3, 1, 1)}

    def change(cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
        return timed(cell, record, factors[cell.variant.params["bk"]][sizes.index(dict(cell.size))])

    lab.measure(change)
    assert lab.choose() == 0
    first, second = (
        (one.start_us, one.us_per_work * UNIT)
        for one in sorted(lab.loaded().configurations, key=lambda one: one.params.get("bk", 0))
    )
    units = (1, 4, 8)
    times = (9, 36, 58)
    # Where the sum of squares is least, the errors are perpendicular to what each coefficient adds to them.
    errors = [(first[0] + first[1] * unit) / time - 1 for unit, time in zip(units, times, strict=True)]
    assert max(map(abs, errors)) > 0.05
    for terms in ([1, 1, 1], units):
        assert sum(
            e * term / time for e, term, time in zip(errors, terms, times, strict=True)
        ) == pytest.approx(0, abs=1e-4)
    shares = [unit / time for unit, time in zip(units, (0.3 * 9.5, 26, 48), strict=True)]
    assert second == (0, pytest.approx(sum(shares) / sum(share**2 for share in shares), rel=1e-4))


def test_what_gave_no_right_result_is_not_chosen(lab: Chosen) -> None:
    def change(cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
        wrong = (cell.size["m"], cell.variant.params["bm"], cell.variant.params["bk"]) == (1024, 128, 8)
        return failed("incorrect", "wrong")(record) if wrong else timed(cell, record)

    lab.measure(change)
    assert lab.choose() == 0
    assert lab.at(**SMALL) == (128, 16)
    assert len(lab.loaded().configurations) == 3
    assert lab.at(1024, 1024, 512) == (64, 8), "one size says nothing of other ones"


def test_what_the_sweep_asks_for_no_more_is_not_chosen(lab: Chosen) -> None:
    params = {"bm": [64, 128], "bk": [8, 16]}
    where = "bm == 64 or bk == 16 or m > 1024"
    lab.write("tiles", variants=[{"kernel": KERNEL, "params": params, "where": where}])
    assert lab.choose() == 0, "from the tables of before"
    assert lab.at(**SMALL) == (128, 16)
    assert len(lab.loaded().configurations) == 3


def test_without_a_configuration_at_two_sizes_nothing_is_chosen(
    lab: Chosen, caplog: pytest.LogCaptureFixture
) -> None:
    lab.measure(
        lambda cell, record: (
            timed(cell, record)
            if (cell.size["m"] == 1024) == (cell.variant.params["bm"] == 128)
            else failed("incorrect", "wrong")(record)
        )
    )
    before = lab.best.read_bytes()
    assert lab.choose() == 2
    assert f"{lab.project.sweeps / 'tiles.yaml'}: no configuration has results at two sizes" in caplog.text
    assert lab.best.read_bytes() == before


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


LEFT = {
    "first": [{"kernel": KERNEL, "technique": "plain"}, *SHAPES["variants"]],
    "last": [*SHAPES["variants"], {"kernel": KERNEL, "technique": "plain"}],
}
"""The defaults, (128, 8), which are chosen for the first of the shapes; before the best and after it."""


@pytest.mark.parametrize("place", LEFT)
def test_the_best_leaves_a_size_to_the_entry_that_has_what_is_chosen(lab: Chosen, place: str) -> None:
    lab.write("shapes", sizes=SHAPES["sizes"], variants=LEFT[place])
    sweep = lab.sweeps(["shapes"])["shapes"]
    techniques = ["plain", "suits the shape", "suits the shape"]
    assert [entry.technique for entry in sweep.entries] == techniques[:: 1 if place == "first" else -1]
    cells = {(cell.entry.technique, cell.size["m"]) for cell in sweep.cells()}
    plain = {("plain", size["m"]) for size in SHAPES["sizes"]}
    assert cells == plain | {("suits the shape", 1152), ("suits the shape", 3072)}
    assert len(list(sweep.cells())) == 5, "the chosen one stands beside it at two of three sizes"


def test_the_best_is_left_to_an_entry_that_asks_for_that_size(lab: Chosen) -> None:
    variants = [{"kernel": KERNEL, "where": "m == 1024"}, *SHAPES["variants"]]
    lab.write("shapes", sizes=SHAPES["sizes"], variants=variants)
    assert only(lab.sweeps(["shapes"])["shapes"])["fp32"] == SHAPES["sizes"]


def test_the_best_may_be_left_to_others_at_every_size(lab: Chosen) -> None:
    lab.write("shapes", sizes=[SMALL], variants=[*SHAPES["variants"], {"kernel": KERNEL}])
    sweep = lab.sweeps(["shapes"])["shapes"]
    assert [(entry.variant.params["bk"], entry.technique) for entry in sweep.entries] == [(8, "")]
    assert only(sweep)["fp32"] == [SMALL]


@pytest.mark.parametrize(
    "other",
    [
        {"where": "m > 1024"},
        {"sizes": [{"expr": "m > 1024", "reason": "known"}]},
        {"params": "best"},
    ],
    ids=["where", "sizes", "best"],
)
def test_the_best_is_not_left_to_an_entry_that_does_not_measure_it(
    lab: Chosen, other: dict[str, Any]
) -> None:
    said = refused(lab, lambda sweep: sweep["variants"].append({"kernel": KERNEL, **other}))
    place = 1 if "params" in other else 0
    assert said.startswith(f"{lab.project.sweeps / 'shapes.yaml'}: variants[{place}]: '{KERNEL}-fp32'")
    assert said.endswith("accepted: each variant once")


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


@pytest.mark.parametrize("part", ["fastest", "configurations"])
def test_a_parameter_that_the_kernel_has_no_more_is_named_with_its_place(lab: Chosen, part: str) -> None:
    edit_yaml(lab.best, lambda document: document[part][1]["params"].update(bk=32))
    with pytest.raises(LadderError) as error:
        lab.at(**(LARGE if part == "fastest" else MIDDLE))
    said = str(error.value)
    assert said.startswith(f"{lab.best}: {part}[1].params.bk: 32 is not accepted")
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


def test_the_choices_that_ship_are_those_of_the_published_run(tmp_path: Path) -> None:
    made = tmp_path / "best.yaml"
    step = ["--root", str(ROOT), "choose", "--sweep", "hopper_tiles", "--out", str(made)]
    assert main([*step, "--tables", str(ROOT / "results" / "published" / "nvidia-h200")]) == 0
    assert made.read_text() == (ROOT / "config" / "best" / "hopper_gemm.yaml").read_text()

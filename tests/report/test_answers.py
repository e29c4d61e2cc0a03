"""Answers: one function and one template each; what they say is what the tables hold, in few words."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from checkout import PUBLISHED, catalog, every_sweep, published_data, published_of
from conftest import edit_yaml, environment
from factory import SESSION, Lab, over
from ladder.catalogue.plans import plan_sweep
from ladder.catalogue.settings import set_up
from ladder.catalogue.sweeps import chosen_cells
from ladder.model.architecture import lacking
from ladder.model.cell import size_label
from ladder.report import answers as module
from ladder.report.answers import Answer, answers, unsaid
from ladder.report.choices import choices, slowed
from ladder.report.document import NOT_HERE, claim_lines, render
from ladder.report.figures import registry
from ladder.report.ladder_steps import climb
from ladder.report.links import Links
from ladder.report.lookups import OTHER_GPU, Lookups
from ladder.report.titles import message
from ladder.report.words import amount, numbers, speed
from ladder.results import tables
from ladder.results.run_data import Gain, RunData
from ladder.results.statistics import UNKNOWN, Estimate, records, size_of
from rendering import cells, made, report, section

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 4350
"""Of the report."""


def gain(value: float, low: float, high: float) -> Gain:
    return Gain(Estimate(value, value, value), Estimate(value, low, high))


@pytest.fixture(scope="module")
def published() -> RunData:
    return published_data()


@pytest.fixture(scope="module")
def pages(published: RunData) -> dict[str, str]:
    front = itertools.islice(render(PUBLISHED, published, {}), 3)
    return {path.stem: text for path, text in front} | {
        "README": (ROOT / "README.md").read_text(encoding="utf-8")
    }


@pytest.fixture(scope="module")
def found(published: RunData) -> dict[str, Answer]:
    return {
        one.name: one
        for one in answers(published, Links(PUBLISHED, PUBLISHED.root, published))
    }


NINTH = """

QUESTIONS += (Question("ninth", "What is the ninth?", "fp32", "fp32_ladder", "ladder"),)
"""
SAID = """
{% macro headline() %}It has {{ climb("fp32_ladder") | length }} lives.{% endmacro %}
{% macro also() %}{{ expect(false, "It has none.") }}{% endmacro %}
{% macro title() %}All the lives{% endmacro %}
"""
READ = """
import sys
from dataclasses import replace
from pathlib import Path
from ladder.catalogue.kernels import Catalog
from ladder.catalogue.sweeps import load_sweeps
from ladder.model.folders import Project, RunFolder
from ladder.page.document import render as page
from ladder.report.answers import titles
from ladder.report.document import learnt, render
from ladder.report.links import Links
from ladder.report.lookups import OTHER_GPU, Lookups
from ladder.results.run_data import RunData
root, folder = Path(sys.argv[1]), RunFolder(Path(sys.argv[2]))
project = Project(root)
data = RunData.read(folder, load_sweeps(project.sweeps, Catalog(project.kernels), sys.argv[3:]))
readme, (_, report) = learnt(folder, data, root), next(render(folder, data, {}))
print(readme, report, page(folder, data, root), titles(data, Links(folder, root, data)), sep="\\x00")
"""


def test_a_ninth_question_is_a_line_and_a_template_and_stands_everywhere(
    lab: Lab, tmp_path: Path
) -> None:
    """In a copy of the package: in README, report and page, and above the figure that shows it."""
    copy = tmp_path / "copy"
    shutil.copytree(
        ROOT / "workflow", copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    with (copy / "ladder/report/answers.py").open("a", encoding="utf-8") as answering:
        answering.write(NINTH)
    (copy / "report/answers/ninth.j2").write_text(SAID)
    command = [
        sys.executable,
        "-c",
        READ,
        str(lab.root),
        str(lab.folder.root),
        "fp32_ladder",
    ]
    there = environment() | {"PYTHONPATH": str(copy)}
    done = subprocess.run(
        command, env=there, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    readme, written, page, titled = done.stdout.split("\x00")
    assert re.search(r"\| What is the ninth\? \| It has \d lives\. \|", readme)
    assert re.search(r"What is the ninth\? \*\*It has \d lives\.\*\*", written)
    assert re.search(r"It has \d lives\.", page)
    assert "'fp32_ladder-1-ladder.png': 'All the lives'" in titled
    assert "It has none." not in readme + written + page, "nothing bears it out"


def test_what_was_not_measured_says_so_and_why(lab: Lab) -> None:
    part = section(report(lab)["report"], "Findings")
    assert (
        "**Does double buffering pay?** Not measured: the sweep fp32_as_written is not part of this run."
        in part
    )
    assert (
        "Which three steps matter most in FP32? **Coalesced (6.0 times), then" in part
    )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return made(tmp_path_factory.mktemp("lab"), ["fp32_ladder", "fp32_transpose"])


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (gain(1.03, 1.009, 1.05), "3 % faster than cuBLAS (0.9 to 5 %)"),
        (gain(0.7, 0.69, 0.71), "30 % slower than cuBLAS (29 to 31 %)"),
        (gain(1.01, 0.98, 1.03), "as fast as cuBLAS (-2 to +3 %)"),
        (gain(1.02, 0.98, 1.06), "undecided against cuBLAS (-2 to +6 %)"),
        (gain(1.02, 0.95, 1.01), "undecided against cuBLAS (-5 to +1 %)"),
        (gain(2.6, 2.57, 2.62), "2.6 times as fast as cuBLAS (2.57 to 2.62)"),
        (Gain(Estimate(1.03, 1.02, 1.04), UNKNOWN), "3 % faster than cuBLAS"),
    ],
)
def test_a_speed_up_is_in_percent_below_two_and_where_the_range_holds_1_a_tie_or_undecided(
    of: Gain, said: str
) -> None:
    assert speed(of, "cuBLAS") == said


def test_what_a_step_brings_and_where() -> None:
    assert [amount(gain(value, 1, 2)) for value in (12.1, 2.72, 1.38, 0.94)] == [
        "12 times",
        "2.7 times",
        "38 %",
        "6 %",
    ]
    assert numbers([2048, 4096, 8192]) == "2048 to 8192"
    assert numbers([256, 1024]) == "256 and 1024"


def test_what_to_use_has_a_column_a_size_names_ties_and_leaves_out_what_is_far_behind(
    tmp_path: Path,
) -> None:
    """The ladder's fastest rung ties with the library at 1024, wins at 2048, and is far behind elsewhere."""
    factors = {1024: 0.66, 2048: 0.5}

    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        return over(record, factors.get(cell.size.get("m", 0), 1.0))

    lab = Lab(tmp_path)
    lab.record(["fp32_ladder"], change)
    lab.collect(["fp32_ladder"])
    part = section(report(lab)["report"], "What to use")
    large, small = (line for line in part.splitlines() if line.startswith("|fp32 NN|"))
    assert "|dtype, layout|2048|" in part
    assert large.startswith("|fp32 NN|▲ +32 %")
    assert "(transposed A)" in large or "transposed A]" in large
    assert small.startswith("|fp32 NN|= +0")
    assert "over 10 % slower, so use cuBLAS: fp32 NN at 512, 4096 and 8192." in part


def test_a_configuration_has_one_name_wherever_it_was_measured(
    published: RunData,
) -> None:
    best = {one.row["variant"]: one.row for one in choices(published)}
    for variant, row in best.items():
        others = [
            sweep
            for sweep, part in published.parts.items()
            if variant in set(part.ok["variant"])
        ]
        names = {
            published.configuration(published.rows(sweep, variant=variant)[0])
            for sweep in others
        }
        assert names == {published.configuration(row)}, variant


def test_what_to_use_does_not_depend_on_the_order_of_sweeps(published: RunData) -> None:
    backwards = dict(reversed(published.sweeps.items()))
    other = RunData(backwards, published.frames, published.environment)

    def said(data: RunData) -> list[tuple[Any, ...]]:
        return [
            (
                one.kind,
                one.layout,
                one.size,
                row["sweep"],
                row["variant"],
                data.configuration(row),
            )
            for one in choices(data)
            for row in one.rows
        ]

    assert said(other) == said(published)


def test_the_same_configuration_is_timed_in_single_launches_and_for_seconds(
    published: RunData,
) -> None:
    pairs = [pair for _, pair in slowed(published)]
    assert len(pairs) > 10
    for pair in pairs:
        assert pair.row["variant"] == pair.cold["variant"]
        assert (pair.row["regime"], pair.cold["regime"]) == ("sustained", "cold")


def test_a_speed_up_over_one_of_two_libraries_alone_does_not_count() -> None:
    def row(sweep: str, regime: str, variant: str, value: float) -> dict[str, Any]:
        size = {"m": 4096, "n": 4096, "k": 4096}
        about = {"sweep": sweep, "regime": regime, "variant": variant, "speedup": value}
        return {
            **about,
            **size,
            "dtype": "fp8",
            "layout": "TN",
            "status": "ok",
            "params": "{}",
        }

    rows = [
        row("promoted", "cold", "a", 1.04),
        row("fast", "cold", "b", 1.01),
        row("promoted", "sustained", "a", 1.04),
        row("fast", "sustained", "b", 0.99),
    ]
    libraries = {"promoted": ("cublaslt",), "fast": ("cublaslt", "cublaslt_fast")}
    sweeps: Any = {
        name: SimpleNamespace(
            name=name,
            problem=SimpleNamespace(name="gemm"),
            reference=SimpleNamespace(kernel=None, libraries=own),
            regimes=("cold",),
            tuning=False,
            entries=(),
        )
        for name, own in libraries.items()
    }
    data = RunData(sweeps, {"timings": tables.frame("timings", rows)})
    (choice,) = choices(data)
    assert choice.row["variant"] == "b"
    assert choice.held is not None
    assert choice.held["speedup"] == 0.99


def test_what_is_fastest_for_seconds_is_chosen_apart(tmp_path: Path) -> None:
    """Whatever it does in single launches; what the power limit takes is said of what was launched both ways."""

    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any] | None:
        record["regimes"]["sustained"] = dict(record["regimes"]["cold"])
        if cell.size.get("m") == 4096 and cell.entry.rung == "register tile":
            over({"regimes": {"one": record["regimes"]["sustained"]}}, 0.5)
            record["regimes"] = {"sustained": record["regimes"]["sustained"]}
        return over(record, 0.6)

    lab = Lab(tmp_path)
    held = {"sizes": [4096], "where": "kernel == 'gemm_register_tile'"}
    edit_yaml(
        lab.project.sweeps / "fp32_ladder.yaml",
        lambda sweep: sweep.update(sustained=held),
    )
    lab.record(["fp32_ladder"], change)
    lab.collect(["fp32_ladder"])
    data = RunData.read(lab.folder, lab.sweeps(["fp32_ladder"]))
    choice = next(
        one for one in choices(data) if (one.kind, one.size) == ("fp32", 4096)
    )
    assert choice.held is not None
    assert (choice.row["rung"], choice.held["rung"]) == (
        "transposed A",
        "register tile",
    )
    assert [pair.row["rung"] for one, pair in slowed(data) if one.kind == "fp32"] == [
        "transposed A"
    ]
    pages = report(lab)
    once, held = (
        section(pages["report"], "What to use"),
        section(pages["evidence"], "For seconds"),
    )
    assert ["register tile" in part for part in (once, held)] == [False, True]
    assert (
        "Where another configuration is the fastest for seconds: [numbers](evidence.md#for-seconds)."
        in once
    )
    assert ["|8192|" in part for part in (once, held)] == [True, False], (
        "none was held for seconds there"
    )
    needed = section(pages["methodology"], "Recommended configurations")
    assert all(rung in needed for rung in ("transposed A", "register tile"))


@pytest.mark.published
def test_the_published_numbers_bear_out_every_sentence_of_an_answer(
    found: dict[str, Answer],
) -> None:
    assert unsaid([*found.values()]) == []


def test_a_sentence_that_the_numbers_do_not_bear_out_is_left_out_and_named(
    published: RunData,
) -> None:
    """Lane maps without bank conflicts, whose tiles are slower here, are faster on a made-up GPU."""
    timings = published.frames["timings"].copy()
    lanes = timings["sweep"] == "fp32_lane_maps"
    interleaved = lanes & timings["params"].str.contains("interleaved")
    for name in ("speedup", "speedup_low", "speedup_high"):
        timings.loc[interleaved, name] *= 1.5
    timings.loc[lanes, ["predicted_low", "predicted_high"]] = float("nan")
    data = RunData(
        published.sweeps,
        {**published.frames, "timings": timings},
        published.environment,
    )
    here, there = (
        next(
            one
            for one in answers(of, Links(PUBLISHED, PUBLISHED.root, of))
            if one.name == "lane_maps"
        )
        for of in (published, data)
    )
    assert "No conflicts are no guarantee" in here.exceptions
    assert there.headline
    assert there.exceptions == ""
    assert [sentence.partition(":")[0] for sentence in there.unsaid] == [
        "No conflicts are no guarantee"
    ]
    assert unsaid([there])[0].startswith("lane_maps: No conflicts are no guarantee")


CAP = ["EVENT_REASON_SW_POWER_CAP"]


@pytest.mark.parametrize(
    ("events", "power_w", "why"),
    [
        (CAP, 445, "Power reaches its limit of 450 W; the clock is then 2.67 GHz."),
        (CAP, 300, ""),  # heat may hold it down
        ([], 445, ""),
        (None, 445, ""),
    ],
)
def test_power_is_the_reason_where_nvml_named_it_and_the_gpu_drew_it(
    events: list[str] | None, power_w: float, why: str, tmp_path: Path
) -> None:
    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        cold = record["regimes"]["cold"]
        steady = {"variant": {"sm_clock_mhz": 2671.0, "power_w": power_w}}
        slower = {
            "variant_us": [1.1 * us for us in cold["variant_us"]],
            "sustained": steady,
        }
        record["regimes"]["sustained"] = cold | slower
        record["device"] |= {"clock_events": events}
        return record

    gpu = {**SESSION.gpu, "boost_clock_mhz": 2700, "power_limit_w": 450.0}
    lab = Lab(tmp_path, session=replace(SESSION, gpu=gpu))
    path = lab.project.sweeps / "tensor_ladder.yaml"
    edit_yaml(path, lambda sweep: sweep.update(sustained={"sizes": [4096]}))
    lab.record(["tensor_ladder"], change)
    lab.collect(["tensor_ladder"])
    data = RunData.read(lab.folder, lab.sweeps(["tensor_ladder"]))
    answer = next(
        one
        for one in answers(data, Links(lab.folder, lab.root, data))
        if one.name == "power_limit"
    )
    assert (
        "tensor-core GEMMs at 4096 are 9 % slower than one at a time" in answer.headline
    )
    assert answer.why == why


def test_what_fails_of_a_text_about_another_gpu_is_not_refuted() -> None:
    def line(
        name: str, source: str, part: str, verdict: str, effect: float
    ) -> dict[str, Any]:
        about = {
            "id": name,
            "source": source,
            "statement": "It pays.",
            "part": part,
            "verdict": verdict,
        }
        return about | {"effect": effect}

    rows = [
        line("one", "hip-gemm (#1)", "gain: at least 1", "holds", 1.2),
        line("one", "hip-gemm (#1)", "gain: at least 1", "refuted", 0.9),
        line("two", "gemm-practice", "gain: at least 1", "refuted", 0.8),
        line("three", "hip-gemm", "gain: at least 1", "holds", 1.1),
    ]
    found = {one["id"]: one for one in claim_lines(tables.frame("claims", rows))}
    assert [found[name]["verdict"] for name in ("one", "two", "three")] == [
        NOT_HERE,
        "refuted",
        "holds",
    ]
    assert found["one"]["number"] == "0.900 gain", "of the part that decides"
    assert [*found] == ["two", "one", "three"], "what fails stands first"
    assert claim_lines(tables.frame("claims", [])) == []


def test_the_report_lists_claims_that_do_not_hold_and_the_evidence_every_part_of_all(
    lab: Lab,
) -> None:
    pages = report(lab)
    part = section(pages["report"], "Claims")
    assert "1 hold. Those that hold, and every part" in part
    assert "Transposing pays." not in part
    evidence = pages["evidence"].partition("### transpose-pays")[2]
    assert (
        "- **holds** at n = 1024, 4096: gain: at least 1. All 8 are 1.25 x." in evidence
    )
    assert "What to do: Transpose: 1.25 x." in evidence


def test_every_claim_that_does_not_hold_has_a_line_with_the_number_of_its_worst_part(
    published: RunData, pages: dict[str, str]
) -> None:
    failing = [
        one
        for one in claim_lines(published.frames["claims"])
        if one["verdict"] not in ("holds", "holds and more", "not measured")
    ]
    rows = [
        line
        for line in section(pages["report"], "Claims").splitlines()
        if "](evidence.md#" in line
    ]
    shown = [line for line in rows if line.startswith("|")]
    assert len(shown) == len(failing) > 10
    for one, line in zip(failing, shown, strict=True):
        assert f"|[{one['verdict']}](evidence.md#{one['id']})" in line
        assert one["number"].count(";") == 0


def test_the_report_is_short(pages: dict[str, str]) -> None:
    words = len(pages["report"].split())
    assert words <= MOST_WORDS, (
        f"{words} words; say something shorter, or show less, for what is new"
    )


def test_every_answer_has_a_headline_or_says_why_not(found: dict[str, Answer]) -> None:
    for one in found.values():
        assert bool(one.headline) != bool(one.absent), one.name
        for said in (one.headline, one.also, one.why, one.exceptions, one.title):
            assert not re.search(r" [,.;]|  ", said), (one.name, said)


def column(answer: Answer, head: str) -> list[str]:
    return [row[head] for row in cells(answer.table)]


def test_a_title_of_a_figure_is_a_view_of_the_answer_that_it_shows(
    found: dict[str, Answer],
) -> None:
    """Each number in it stands in the answer, and what is drawn has it."""
    titled = {one.figure: one for one in found.values() if one.figure}
    assert len(titled) > 7
    for one in titled.values():
        counted = [word for word in one.title.split() if re.search(r"\w", word)]
        assert 3 < len(counted) <= 12, one.title
        said = f"{one.headline} {one.also} {one.why} {one.exceptions}"
        assert {*NUMBER.findall(one.title)} <= {*NUMBER.findall(said)} | {
            "2048",
            "4096",
            "8192",
        }, one.name
    assert found["three_steps"].title == "Three steps bring 45 of the 108 times"


def test_a_figure_is_drawn_with_its_answers_title(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = dict[str, str]()
    monkeypatch.setattr(
        registry,
        "render",
        lambda given: drawn.update({given.figure.kind: message(given)}) or b"",
    )
    monkeypatch.setattr(registry, "replace_file", lambda path, text: None)
    part = RunData.read(lab.folder, lab.sweeps(["fp32_ladder"])).parts["fp32_ladder"]
    registry.draw_sweep(
        part, lab.folder.figures, {"fp32_ladder-1-ladder.png": "Said by the answer"}
    )
    assert drawn.pop("ladder") == "Said by the answer"
    assert drawn
    assert "Said by the answer" not in drawn.values()


def test_no_headline_contradicts_its_table(found: dict[str, Answer]) -> None:
    """Every percentage of a headline is one of the table's."""
    for name, head in (
        ("double_buffering", "speed [95 %]"),
        ("attention_speed", "speed over it [95 %]"),
    ):
        values = [
            100 * abs(float(cell.split()[0]) - 1) for cell in column(found[name], head)
        ]
        said = re.sub(r"\(.*?\)", "", found[name].headline)
        percents = [
            int(one)
            for pair in re.findall(r"(\d+)(?: to (\d+))? %", said)
            for one in pair
            if one
        ]
        assert percents
        for one in percents:
            assert min(abs(one - value) for value in values) < 0.6, found[name].headline
    losses = {*column(found["power_limit"], "slower by")}
    assert {
        f"{one} %"
        for one in re.findall(r"(\d+) (?:to|%)", found["power_limit"].headline)
    } <= losses
    ranges = {}
    for dtype, radius, ends in zip(
        *(
            column(found["register_cache"], head)
            for head in ("dtype", "radius", "another GPU")
        ),
        strict=True,
    ):
        ranges.setdefault(dtype, {})[radius] = float(ends.split()[0])
    for dtype, least in ranges.items():
        ahead = sum(low > 1 for low in least.values())
        assert (
            f"{dtype} it is ahead at {ahead} of {len(least)} radii"
            in found["register_cache"].headline
        )


def test_the_power_answer_shows_power_of_launches_for_seconds_alone(
    found: dict[str, Answer],
) -> None:
    """Between single launches the GPU rests, so that an average of its power says nothing."""
    watts = [float(cell) for cell in column(found["power_limit"], "power, W")]
    assert min(watts) > 500


def test_the_gains_along_a_path_make_up_the_whole(published: RunData) -> None:
    """Each is over the rung before it there; those that were not launched in turn with it are quotients."""
    for name in ("fp32_ladder", "tensor_ladder_bf16", "hopper_ladder"):
        first, *found = climb(published.parts[name])
        whole = found[-1].row["speedup"] / first.row["speedup"]
        assert math.prod(step.gain.value for step in found) == pytest.approx(
            whole, rel=0.04
        ), name
        for below, step in itertools.pairwise([first, *found]):
            assert step.below == below.row["variant"]
            changed = step.entry.baseline
            assert step.direct == (
                changed is not None and changed.variant.id == step.below
            ), step.entry.rung
    assert (
        sum(not step.direct for step in climb(published.parts["fp32_ladder"])[1:]) == 2
    )


def test_double_buffering_is_told_by_the_kernel_of_its_text(
    found: dict[str, Answer], published: RunData
) -> None:
    answer = found["double_buffering"]
    lookups = Lookups(published)
    whole = lookups.gains("fp32_as_written", "double buffer", "kernel 6")
    assert {*whole} == {1024, 2048, 4096, 8192}
    assert all(gain.verdict == "faster" for gain in whole.values())
    rungs = ("kernel 6", "prefetch", "double buffer")
    waited = [
        lookups.waits("long_scoreboard", lookups.row("fp32_as_written", rung))
        for rung in rungs
    ]
    assert waited == sorted(waited, reverse=True), (
        "each hides more of the wait for global memory"
    )
    assert f"{waited[0]:.2f} cycles an instruction in kernel 6" in answer.why
    other = published_of("fp32_buffering")
    absent = next(
        one
        for one in answers(other, Links(PUBLISHED, PUBLISHED.root, other))
        if one.name == answer.name
    )
    assert absent.absent == "the sweep fp32_as_written is not part of this run"


def test_only_thin_shapes_count_as_thin(published: RunData) -> None:
    shown = {
        tuple(row.size.values())
        for row in Lookups(published).fastest_shapes("fp32_shapes", 128)
    }
    every = {tuple(row.size.values()) for row in published.rows("fp32_shapes")}
    assert shown == {size for size in every if min(size) <= 128} < every


NUMBER = re.compile(r"(?<![\w./])\d+(?:\.\d+)?(?![\w/])")


def test_the_cells_measured_first_answer_the_first_screen(
    published: RunData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the words of all cells; numbers differ a little where a configuration was measured twice, or in more dtypes.

    What is published of variants that no sweep has any more counts for neither.
    """
    run = set_up(ROOT, [ROOT / "config" / "quick.yaml"])
    assert not isinstance(run.config.sweeps, str)
    sweeps = {
        name: chosen_cells(every_sweep()[name], run.config.sweeps)
        for name in run.config.sweeps
    }
    plans = [plan_sweep(sweep, run.config, run.arch) for sweep in sweeps.values()]
    asked = {
        (plan.sweep, task.variant, size_label(task.cell.size), regime)
        for plan in plans
        for task in plan.tasks
        for regime in plan.regimes_of(task)
    }
    timings = published.frames["timings"]
    cells = [
        (row["sweep"], row["variant"], size_label(size_of(row)), row["regime"])
        for row in records(timings)
    ]
    frames = {**published.frames, "timings": timings[[cell in asked for cell in cells]]}
    data = RunData(sweeps, frames, published.environment)
    variants = {
        (name, one.id)
        for name, sweep in published.sweeps.items()
        for one in sweep.variants
    }
    frames = {
        **published.frames,
        "timings": timings[[cell[:2] in variants for cell in cells]],
    }
    everything = RunData(published.sweeps, frames, published.environment)
    assert len(data.frames["timings"]) < len(timings) / 10
    folder = run.project.published("nvidia-h200")
    links = [Links(folder, folder.root, each) for each in (data, everything)]
    monkeypatch.setattr(
        module, "QUESTIONS", [one for one in module.QUESTIONS if one.front]
    )
    for one, other in zip(
        answers(data, links[0]), answers(everything, links[1]), strict=True
    ):
        said, whole = (f"{each.headline} {each.also}" for each in (one, other))
        assert not one.absent
        assert NUMBER.sub("_", said) == NUMBER.sub("_", whole), one.name
        numbers = [float(each) for each in NUMBER.findall(whole)]
        assert [float(each) for each in NUMBER.findall(said)] == pytest.approx(
            numbers, rel=0.1
        ), one.name


def test_what_was_not_decided_is_no_statement_that_was_tried(
    published: RunData,
) -> None:
    claims = published.frames["claims"].copy()
    decided = claims[claims["verdict"] != "not measured"]
    here = decided[~decided["source"].str.startswith(OTHER_GPU)]
    gone = here["id"].iloc[0]
    claims.loc[claims["id"] == gone, "verdict"] = "not measured"
    data = RunData(
        published.sweeps, {**published.frames, "claims": claims}, published.environment
    )
    assert Lookups(data).decided()["claims"] == here["id"].nunique() - 1


def test_links_of_readme_and_report_lead_to_sources(pages: dict[str, str]) -> None:
    assert "](kernels/gemm/hopper/" in pages["README"]
    assert "](../../../kernels/gemm/hopper/" in pages["report"]
    commands = re.findall(r"ladder reproduce '([^']+)'", pages["methodology"])
    assert len(commands) > 10
    timed = pd.read_csv(
        ROOT / "results/published/nvidia-h200/timings.csv", usecols=["variant"]
    )
    assert {one.partition("/")[2].partition("@")[0] for one in commands} <= set(
        timed["variant"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_on_another_architecture_the_report_says_what_cannot_run_and_answers_the_rest(
    published: RunData, arch: str
) -> None:
    """Kernels for Hopper are unsupported there; nothing is predicted after one session, and no clock is known."""
    reasons = {
        kernel.name: why
        for kernel in catalog().values()
        if (why := lacking(kernel.min_arch, arch)) is not None
    }
    timings = published.frames["timings"].copy()
    hopper = timings["kernel"].isin(reasons)
    assert 0 < hopper.sum() < len(timings)
    results = [
        "median_us",
        "tflops",
        "speedup",
        "speedup_low",
        "speedup_high",
        "peak_fraction",
    ]
    timings.loc[hopper, results] = float("nan")
    timings.loc[hopper, "status"] = "unsupported"
    timings.loc[hopper, "reason"] = timings["kernel"].map(reasons)
    unknown = ["predicted_low", "predicted_high", "sm_clock_mhz", "power_w"]
    timings[unknown] = float("nan")
    data = RunData(
        published.sweeps,
        {**published.frames, "timings": timings},
        published.environment,
    )
    _, report = next(render(PUBLISHED, data, {}))
    first = report.partition("## What to use")[0]
    assert re.search(
        rf"\d+ kernels cannot run here \(needs sm_90a, the device is {arch}", first
    )
    bf16 = next(
        line for line in report.splitlines() if "Which bf16 GEMM is fastest?" in line
    )
    assert "kernels/gemm/warp_mma/" in bf16
    assert "wgmma" not in bf16
    assert "There are no ranges" in first
    assert "Is fp8 faster than cuBLASLt?" not in report
    fp8 = next(
        one
        for one in answers(data, Links(PUBLISHED, PUBLISHED.root, data))
        if one.name == "fp8"
    )
    assert fp8.absent == "no fp8 GEMM at 4096 has a result against a library"
    fp32 = next(
        line for line in report.splitlines() if "Which FP32 GEMM is fastest?" in line
    )
    assert "On CUDA cores" in fp32
    assert "TF32" not in fp32
    power = next(
        line
        for line in report.splitlines()
        if "What does the power limit take?" in line
    )
    assert re.search(
        r"tensor-core GEMMs at 4096 are .*\d % slower than one at a time", power
    )
    assert (
        "Which three steps matter most in FP32? **Coalesced loads (12 times)" in report
    )


TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
ISSUED = "smsp__issue_active.avg.pct_of_peak_sustained_active"


def counted_in_triton(place: Any) -> list[dict[str, Any]]:
    """Counters of a cell: kernels in Triton keep tensor cores busy for less of the time."""
    busy = (
        {TENSOR: 81.0, ISSUED: 20.0}
        if place.variant.kernel.triton
        else {TENSOR: 95.0, ISSUED: 30.0}
    )
    return [
        {"metric": name, "unit": "%", "value": value} for name, value in busy.items()
    ]


@pytest.mark.parametrize("counted", [False, True])
def test_what_triton_costs_is_over_libraries_and_over_cuda_beside_it(
    counted: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("factory.make_profile", counted_in_triton)
    speeds = {
        "triton_gemm": 0.8,
        "triton_persistent": 0.9,
        "hopper_gemm": 1.03,
        "hopper_ping_pong": 1.0,
    }
    speeds |= {"4_vectors": 1.1, "7_ring": 0.9, "triton_softmax": 1.05}
    speeds |= {
        "6_overlap": 0.8,
        "7_causal": 0.8,
        "8_persistent": 0.8,
        "triton_attention": 0.6,
    }
    monkeypatch.setattr("factory.SPEED", speeds)
    monkeypatch.setattr("factory.CUBLAS_TFLOPS", {"bf16": 750.0})
    lab, names = (
        Lab(tmp_path),
        ["triton_gemm", "softmax_libraries", "attention_libraries"],
    )
    shutil.copytree(ROOT / "config" / "references", tmp_path / "config" / "references")
    for name in ("gemm/triton", "gemm/hopper", "memory_bound/softmax", "attention"):
        shutil.copytree(ROOT / "kernels" / name, lab.project.kernels / name)
    for name in names:
        shutil.copy(ROOT / "config" / "sweeps" / f"{name}.yaml", lab.project.sweeps)

    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        """Causal attention in CUDA is 1.25 times as fast over the library, that in Triton is not. For seconds all are
        twice as fast over it."""
        variant = cell.entry.variant
        if variant.params.get("causal") and not variant.kernel.name.startswith(
            "triton"
        ):
            over(record, 0.8)
        record["regimes"]["sustained"] = dict(record["regimes"]["cold"])
        over({"regimes": {"one": record["regimes"]["sustained"]}}, 0.5)
        return record

    lab.record(names, change, metrics=counted)
    lab.collect(names)
    data = RunData.read(lab.folder, lab.sweeps(names))
    found = {
        one.name: one for one in answers(data, Links(lab.folder, lab.folder.root, data))
    }["triton"]
    said = r"\[triton_persistent\]\([./]*kernels/gemm/triton/triton_persistent.py\) \(.*\): 67\d TFLOP/s in bf16, "
    assert re.match(
        said + r"10 % slower than cuBLAS, 13 % slower than our CUDA\.", found.headline
    )
    assert (
        found.exceptions
        == "Against cuBLAS -10 % at 1024, -10 % at 2048, -10 % at 8192, -10 % at 16384."
    )
    assert [*dict.fromkeys(column(found, "what"))] == [
        "GEMM in bf16",
        "softmax in bf16",
        "softmax in fp32",
        "attention in bf16",
        "attention in bf16, causal",
    ]
    over_cuda = {
        what: float(cell.split()[0])
        for what, cell in zip(
            column(found, "what"),
            column(found, "over our fastest CUDA [95 %]"),
            strict=True,
        )
    }
    assert over_cuda["attention in bf16"] == pytest.approx(0.75, rel=0.02)
    assert over_cuda["attention in bf16, causal"] == pytest.approx(0.6, rel=0.02), (
        "of the same mask"
    )
    assert found.figure == "triton_gemm-1-curves.png"
    assert found.why == ("Tensor cores: 81 % busy, CUDA's 95 %." if counted else "")
    (empty,) = [
        one
        for one in answers(
            RunData.read(lab.folder, {}), Links(lab.folder, tmp_path, data)
        )
        if one.name == "triton"
    ]
    assert empty.absent == "the sweep triton_gemm is not part of this run"


def test_what_triton_costs_is_said_where_its_compiler_is_missing() -> None:
    """All numbers of the answer are times and counters."""
    data = published_of("triton_gemm")

    def answered(of: RunData) -> Answer:
        links = Links(PUBLISHED, PUBLISHED.root, of)
        return next(one for one in answers(of, links) if one.name == "triton")

    resources = data.frames["resources"]
    compiled = resources[~resources["variant"].str.startswith("triton_")]
    assert 0 < len(compiled) < len(resources)
    without = answered(
        RunData(
            data.sweeps, dict(data.frames) | {"resources": compiled}, data.environment
        )
    )
    assert without == answered(data)

"""The report says where its numbers are from, shows results only, and draws its sentences from the data."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from checkout import PUBLISHED, every_sweep, published_of
from factory import Lab, failed, over
from ladder.cli.app import main
from ladder.model.files import replace_file, write_json
from ladder.model.folders import RunFolder
from ladder.model.sweep import Figure
from ladder.report import sections
from ladder.report.document import render
from ladder.report.ladder_steps import steps
from ladder.report.markdown import spread
from ladder.report.words import ends
from ladder.results import tables
from ladder.results.environment import read_environment
from ladder.results.run_data import RunData
from ladder.results.statistics import Estimate, estimate, fastest, ratio, records
from ladder.results.sweep_data import shown_value
from ladder.results.verdicts import Gain
from markdown_it import MarkdownIt
from rendering import SWEEPS, claim, made, report, section

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return made(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def pages(lab: Lab) -> dict[str, str]:
    return report(lab)


def test_the_first_lines_say_what_was_run_where_and_when(pages: dict[str, str]) -> None:
    first = pages["report"].splitlines()[2]
    assert first.startswith(
        "Measured on **NVIDIA H200** on 2026-11-20: [GPUs, versions and code](methodology.md#"
    )
    environment = section(pages["methodology"], "Environment")
    assert "| GPU-1 | 2026-11-20 10:00 | 2026-11-20 10:20 |" in environment
    assert f"- Commit `{'c' * 12}`, tree digest `{'d' * 16}`." in environment


def test_without_a_gpu_the_first_lines_say_that_timings_are_published_and_what_was_compiled(
    lab: Lab, tmp_path: Path
) -> None:
    here = {"timings_from": "published", "published": lab.environment(), "gpu": None}
    here |= {
        "started": "2026-12-24T08:00:00Z",
        "reproduced_cubins": {"same": 41, "of": 42},
    }
    pages = without_tables(tmp_path, lab.environment() | here)
    head = " ".join(pages["report"].split("\n|", 1)[0].replace(">", "").split())
    assert "This host has no GPU" in head
    assert "published ones of NVIDIA H200" in head
    assert "measured on 2026-11-20." in head
    assert "of 42 cubins 41 are byte-identical" in head


@pytest.mark.parametrize("source", ["measured", "published"])
@pytest.mark.parametrize(
    ("cards", "says", "row"),
    [
        ([{}], "on a day that is not known", "| not known | not known | not known |"),
        (
            [{"started": "2026-11-20T10:00:00Z"}],
            "on 2026-11-20",
            "| not known | 2026-11-20 10:00 | not known |",
        ),
        (
            [{"uuid": "GPU-1"}],
            "on a day that is not known",
            "| GPU-1 | not known | not known |",
        ),
        (
            [
                {"started": "2026-11-21T10:00:00Z"},
                {"uuid": "GPU-2", "started": "2026-11-20T11:00:00Z"},
            ],
            "from 2026-11-20 to 2026-11-21 with 2 GPUs",
            "| GPU-2 | 2026-11-20 11:00 | not known |",
        ),
    ],
)
def test_when_and_where_it_was_measured_is_a_sentence_whatever_is_known(
    lab: Lab,
    tmp_path: Path,
    source: str,
    cards: list[dict[str, Any]],
    says: str,
    row: str,
) -> None:
    about = {**lab.environment(), "gpus": cards}
    over = {"published": about} if source == "published" else about
    pages = without_tables(
        tmp_path, {**lab.environment(), **over, "timings_from": source}
    )
    head = pages["report"].split("\n|", 1)[0].replace(">", "")
    start, end = (
        ("Measured on **NVIDIA H200**", ":")
        if source == "measured"
        else ("of NVIDIA H200**, measured", ".")
    )
    assert f"{start} {says}{end}" in " ".join(head.split())
    assert row in section(pages["methodology"], "Environment")


def without_tables(root: Path, environment: dict[str, Any]) -> dict[str, str]:
    """The pages of a run of which only environment.json is there."""
    folder = RunFolder(root)
    write_json(folder.environment, environment)
    data = RunData({}, {}, read_environment(folder))
    return {path.stem: text for path, text in render(folder, data, {})}


def test_without_any_measurement_nothing_is_claimed(tmp_path: Path) -> None:
    lab = made(tmp_path, ["fp32_ladder"], change=lambda cell, record: None)
    lab.write_environment(timings_from="none", gpu=None)
    pages = report(lab)
    assert "no published measurements stand in" in pages["report"]
    assert "1 not measured. Those that hold, and every part" in section(
        pages["report"], "Claims"
    )
    assert "### transpose-pays" in pages["evidence"]
    assert "No cell gave a result." in pages["fp32_ladder"]
    assert "boost clock that CUDA gives. Where" in pages["methodology"]


def test_peaks_name_the_clock_they_are_of(lab: Lab, pages: dict[str, str]) -> None:
    methodology = " ".join(pages["methodology"].split())
    assert (
        "`peak_fraction` are those at the boost clock that CUDA gives, 1980 MHz. Where"
        in methodology
    )
    assert "| tensor peaks at that clock, dense | fp16 989 TFLOP/s |" in section(
        pages["methodology"], "Environment"
    )


def test_every_sweep_has_question_figure_findings_and_table(
    lab: Lab, pages: dict[str, str]
) -> None:
    for sweep in lab.sweeps(SWEEPS).values():
        part = pages[sweep.name]
        assert part.startswith(f"# {sweep.title}\n")
        assert f"**{sweep.question}**" in part
        assert f"(../figures/{sweep.name}-1-" in part
        assert "| time µs [95 %] |" in part
        assert "(../tables/timings.csv)" in part


def test_findings_come_from_the_data(pages: dict[str, str]) -> None:
    ladder = pages["fp32_ladder"]
    best = r"the fastest is transposed A with 3[34]\.\d TFLOP/s, 0\.660 \[0\.65\d, 0\.66\d\] times the speed of cublas"
    assert re.search(best, ladder)
    assert re.search(
        r"The largest step is coalesced, 6\.00 \[5\.9\d, 6\.\d+\] times as fast as naive",
        ladder,
    )
    assert "faster in 8 of 8 cells" in pages["fp32_transpose"]
    assert "within 1.0 % in all 33 cells" in pages["bank_stride"]
    stencil = pages["stencil_reach"]
    assert "at radius 12, 16 no variant is ahead of it" in stencil
    assert (
        "coarsened too, it is ahead in int32 at radius 1, 2, 4, 6, 8 of 1, 2, 4, 6, 8, 12, 16."
        in stencil
    )
    assert "Registers spill in 2 variants" in stencil


def test_every_rung_of_a_ladder_has_a_sentence_of_its_own(
    lab: Lab, pages: dict[str, str]
) -> None:
    ladder = pages["fp32_ladder"]
    lines = [line for line in ladder.splitlines() if line.startswith("- **")]
    names = [line.split("**")[1] for line in lines]
    assert names == [
        entry.rung for entry in lab.sweeps(["fp32_ladder"])["fp32_ladder"].entries
    ]
    assert re.match(
        r"- \*\*naive\*\* \(uncoalesced\): 0.77\d TFLOP/s, 0.0150\d? \[", lines[0]
    )
    assert re.search(
        r"\(lanes walk along a row\): 6.0\d+ \[5.9\d+, 6.0\d+\] times as fast as naive",
        lines[1],
    )
    assert "- **" not in pages["fp32_transpose"].split("<details>")[0]


def test_findings_change_with_the_data(tmp_path: Path) -> None:
    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        # The pair of a rung with its baseline changes with the rung.
        factor = {"naive": 1000, "coalesced": 1 / 1000}.get(cell.entry.rung, 1)
        for regime in record["regimes"].values():
            regime["variant_us"] = [value / factor for value in regime["variant_us"]]
        return over(record, 1 / factor)

    part = report(made(tmp_path, ["fp32_ladder"], change=change))["fp32_ladder"]
    assert "the fastest is naive" in part
    assert "One rung is slower than the rung it changes: coalesced, 0.00600" in part


def test_fastest_is_the_largest_speed_up_and_who_has_the_most_tflops_is_said_beside_it(
    tmp_path: Path, pages: dict[str, str]
) -> None:
    """A higher clock shortens the times of a variant and of its reference alike."""

    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        if cell.entry.rung == "register tile":
            for regime in record["regimes"].values():
                for side in ("variant_us", "reference_us"):
                    regime[side] = [value / 4 for value in regime[side]]
        return record

    part = report(made(tmp_path, ["fp32_ladder"], change=change))["fp32_ladder"]
    said = re.search(
        r"fastest is transposed A .* The most TFLOP/s has register tile: (\d+\.\d+), but 0\.\d+ times",
        part,
    )
    assert said
    assert float(said[1]) > 50
    assert "so the speed-up decides" in part
    assert "The most TFLOP/s has" not in pages["fp32_ladder"]


def test_rungs_that_change_none_are_listed_against_the_reference(
    lab: Lab, pages: dict[str, str]
) -> None:
    data = RunData.read(lab.folder, lab.sweeps(["fp32_ladder"]))
    (ladder,), timings = data.sweeps.values(), data.frames["timings"]
    bare = replace(
        ladder, entries=tuple(replace(entry, baseline=None) for entry in ladder.entries)
    )
    frames = {**data.frames, "timings": timings[timings["baseline"].isna()]}
    data = RunData({ladder.name: bare}, frames, data.environment)
    part = dict(render(lab.folder, data, {}))[lab.folder.sweep_page(ladder.name)]
    assert (
        "\nEach rung against cublas, at M\u00a0=\u00a0N\u00a0=\u00a0K\u00a0=\u00a04096:\n"
        in part
    )
    assert "against the rung that it changes" not in part
    assert "Each rung against the rung that it changes" in pages["fp32_ladder"]


def test_a_large_ratio_to_a_slow_baseline_makes_nothing_the_fastest() -> None:
    rows = pd.DataFrame(
        {
            "variant": ["baseline", "half as fast"],
            "reference": ["kernel-fp32", "kernel-fp32-slow=1"],
            "dtype": "fp32",
            "speedup": [1.0, 1.3],
            "median_us": [48.0, 40.0],
            "sm_clock_mhz": [1500, 1980],
            "fresh": None,
        }
    )
    assert fastest(rows)["variant"] == "baseline"
    # A slower clock takes longer for the same cycles. Of libraries and one baseline the paired ratio decides.
    assert fastest(rows.assign(reference="cublas"))["variant"] == "half as fast"


def test_a_baseline_is_not_counted_against_itself(
    lab: Lab, pages: dict[str, str]
) -> None:
    timed = lab.frames("fp32_transpose")["timings"]
    cold = timed[(timed["regime"] == "cold") & (timed["status"] == "ok")]
    own = int((cold["variant"] != cold["reference"]).sum())
    assert f"faster in {own} of {own} cells, slower in 0" in pages["fp32_transpose"]


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pages of a ladder with a result of its register tile alone, and of a sweep that was measured in part."""

    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any] | None:
        if cell.variant.params.get("bm") == 64:
            return None
        if cell.entry.rung in ("naive", "coalesced"):
            return failed("unsupported", "takes too long")(record)
        check = {"max_error": 3.0, "error_bound": 1e-5}
        wrong = failed("incorrect", "7 elements | wrong")(record) | {"check": check}
        return wrong if cell.entry.rung == "transposed A" else record

    def facts(variant: Any, given: dict[str, Any]) -> dict[str, Any]:
        if variant.kernel.name != "gemm_shared_tile":
            return given
        reason = "x.cu(1): error: no\n" * 200
        known = {
            name: given[name]
            for name in ("variant", "kernel", "params", "dtype", "layout", "arch")
        }
        return known | {"status": "compile_error", "reason": reason}

    root = tmp_path_factory.mktemp("failing")
    return report(
        made(root, ["fp32_ladder", "fp32_transpose"], change=change, facts=facts)
    )


def failures(page: str, reason: str) -> list[str]:
    """Lines about a reason of a page's cells without a result."""
    return [
        line
        for line in section(page, "Cells without a result").splitlines()
        if reason in line
    ]


def test_an_incorrect_variant_is_listed_with_its_reason_and_never_ranked(
    failing: dict[str, str],
) -> None:
    part = failing["fp32_ladder"]
    table = part.split("<details>", 1)[0].split("| time µs", 1)[1]
    assert "transposed A" not in table
    assert "the fastest is register tile" in part
    (line,) = failures(part, "transposed A")
    assert "7 elements \\| wrong; error 3.00 over the bound 1e-05" in line
    assert "512, 1024, 2048, 4096, 8192" in line


def test_what_a_sweep_leaves_out_for_one_reason_shares_a_line(
    failing: dict[str, str],
) -> None:
    (line,) = failures(failing["fp32_ladder"], "takes too long")
    assert "| naive; coalesced | 512, 1024, 2048, 4096, 8192 | unsupported |" in line
    assert re.search(r"Cells without a result: \d+ unsupported", failing["report"])


def test_a_cell_that_was_not_measured_is_listed_as_such(
    failing: dict[str, str], pages: dict[str, str]
) -> None:
    part = failing["fp32_transpose"]
    (line,) = failures(part, "not measured")
    assert re.search(
        r"\| `gemm_register_tile-fp32-bm=64.*` \| 1024, 4096 \| not measured \|", line
    )
    assert "Every cell gave" not in part
    assert "[6 cells without a result]" in part, (
        "two are of the variant that is incorrect as a rung"
    )
    assert re.search(
        r"without a result: .*, 4 not measured \(reasons", failing["report"]
    )
    assert "Every cell gave a verified result." in pages["fp32_transpose"]


def test_a_long_compiler_message_is_cut(failing: dict[str, str]) -> None:
    (line,) = failures(failing["fp32_ladder"], "compile_error")
    assert len(line) < 400
    assert "x.cu(1): error: no" in line
    assert "Variants compiled: 10 of 11." in failing["report"]


def test_a_large_sweep_shows_its_best_and_worst(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.project.sweeps / "stencil_reach.yaml"
    document = yaml.safe_load(path.read_text())
    document["variants"][0]["params"]["coarsen"] = [1, 2, 4, 8]
    path.write_text(yaml.safe_dump(document))
    lab.record(["stencil_reach"])
    lab.collect(["stencil_reach"])
    part = report(lab)["stencil_reach"]
    assert (
        "the 10 farthest ahead of their reference and the 3 farthest behind of 56 variants"
        in part
    )
    rows = [
        line for line in part.split("<details>")[0].splitlines() if "| 2^28 |" in line
    ]
    assert len(rows) == 13
    speeds = [float(row.split("|")[5].split("[")[0]) for row in rows]
    assert speeds == sorted(speeds, reverse=True)


def test_a_sweep_over_shapes_shows_the_fastest_at_each(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.project.sweeps / "fp32_ladder.yaml"
    document = yaml.safe_load(path.read_text())
    document["figures"] = [{"kind": "shapes", "caption": "Every size."}]
    document["regimes"] = ["cold", "warm"]
    path.write_text(yaml.safe_dump(document))
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    part = report(lab)["fp32_ladder"]
    timed = lab.frames("fp32_ladder")["timings"]
    cold = timed[(timed["regime"] == "cold") & (timed["status"] == "ok")]
    shapes = int(cold["m"].nunique())
    assert (
        f"Shown: the fastest at each of {shapes} shapes; {len(cold)} cells in all"
        in part
    )
    lines = part.split("<details>")[0].splitlines()
    rows = [line.split("|") for line in lines if re.match(r"\| .* \| \d+ \|", line)]
    assert [int(row[2]) for row in rows] == sorted(
        int(size) for size in cold["m"].unique()
    )
    best = cold.groupby("m")["median_us"].min().sort_index()
    assert [float(row[3].split("[")[0]) for row in rows] == pytest.approx(
        list(best), rel=1e-3
    )
    # The same variants in the other regime stand beside them, and the means of both below.
    fastest = cold.loc[cold.groupby("m")["median_us"].idxmin()].sort_values("m")
    warm = timed[timed["regime"] == "warm"].merge(
        fastest[["variant", "m"]], on=["variant", "m"]
    )
    assert 0 < len(warm) < shapes, (
        "short kernels alone are measured in a second regime here"
    )
    header = next(line for line in lines if "time µs" in line).split("|")
    column = header.index(" warm: time µs ")
    beside = {int(row[2]): row[column] for row in rows}
    assert {
        m: float(text) for m, text in beside.items() if text.strip()
    } == pytest.approx(
        dict(zip(warm["m"].astype(int), warm["median_us"], strict=True)), rel=1e-3
    )
    means = [math.exp(rows["speedup"].map(math.log).mean()) for rows in (fastest, warm)]
    found = re.search(
        r"over the shapes: (\S+) \[(\S+), (\S+)\] \(cold\), (\S+) \[", part
    )
    assert found is not None
    value, low, high, warm_value = map(float, found.groups())
    assert (value, warm_value) == pytest.approx(means, rel=1e-3)
    # The factory's intervals are 0.2 % to either side of every speed; one session of a library adds 1.96 x 0.59 %.
    half = math.hypot(0.002, 1.96 * 0.0059)
    assert (low / value, high / value) == pytest.approx(
        (math.exp(-half), math.exp(half)), abs=5e-4
    )


def test_a_sweep_over_shapes_without_any_result_says_so(lab: Lab) -> None:
    (ladder,) = lab.sweeps(["fp32_ladder"]).values()
    shapes = replace(
        ladder,
        figures=(Figure.model_validate({"kind": "shapes", "caption": "Every size."}),),
    )
    data = RunData({ladder.name: shapes}, {}, lab.environment())
    assert (
        "No cell gave a result."
        in dict(render(lab.folder, data, {}))[lab.folder.sweep_page(ladder.name)]
    )


def test_the_clock_section_shows_what_the_jobs_took(tmp_path: Path) -> None:
    lab = made(tmp_path, ["fp32_transpose"])
    (lab.folder.root / "throughput.json").write_text(
        json.dumps(
            {
                "sweep": "fp32_tiles",
                "variants": 144,
                "cells": 288,
                "wall_s": 41.3,
                "measure_wall_s": 25.0,
                "gpu_s": 20.0,
                "gpu_share": 0.8,
            }
        )
    )
    part = section(report(lab)["methodology"], "How good is this clock?")
    assert "| fp32_transpose | 8 | 0 | 8 | 100 | 83.0 | 83 % | 10 % | 1 |" in part
    assert "took 41.3 s from an empty cache" in part
    assert "80 % were GPU time" in part


def test_cells_of_a_kernel_against_itself_hold_the_timer_against_1(lab: Lab) -> None:
    found = tables.read("sessions", lab.folder.tables)
    (first, *_) = found.index
    rows = found.loc[[first] * 40].reset_index(drop=True)
    itself = rows.assign(
        reference=rows["variant"], sweep=["one"] * 10 + ["two"] * 30, speedup=1.0
    )
    others = found[found["reference"] != found["variant"]]
    itself = itself.assign(speedup_low=0.999, speedup_high=1.003, m=[64, 128] * 20)
    itself["session"] = [f"session {number}" for number in range(40)]
    itself.loc[[3, 20], ["speedup", "speedup_low", "speedup_high"]] = [0.98, 0.97, 0.99]
    again = itself.head(5).assign(sweep="another")  # shows what the first has measured
    part = clock(lab.folder, sessions=pd.concat([others, itself, again]))
    assert (
        "| `one` | 2 | 9 of 10 (90 % [60, 98]) | 1.00000 [1.00000, 1.00000] | 2.00 % | 0.20 % |"
        in part
    )
    assert "| `two` | 2 | 29 of 30 (97 % [83, 99]) |" in part
    assert "`another`" not in part
    assert "| all | 4 | 38 of 40 (95 % [83, 99]) |" in part
    assert "against itself" not in clock(lab.folder, sessions=others)


def clock(folder: RunFolder, **frames: pd.DataFrame) -> str:
    """What the methodology of a folder says of the timer; `frames` stand in for its tables."""
    data = RunData.read(folder, {})
    pages = dict(
        render(folder, RunData({}, {**data.frames, **frames}, data.environment), {})
    )
    return section(pages[folder.methodology], "How good is this clock?")


def test_the_methodology_states_the_numbers_of_the_plan(
    lab: Lab, pages: dict[str, str]
) -> None:
    settings = lab.config().measure
    part = pages["methodology"]
    assert f"below {100 * settings.precision:g} %" in part
    assert f"{settings.max_pairs} pairs" in part
    assert "sm_90a" in part
    assert (
        f"of the first {settings.lt_heuristics} algorithms of cuBLASLt's heuristic list"
        in part
    )


def test_the_methodology_says_how_many_configurations_a_tuning_sweep_tries() -> None:
    """Those that compute the same at one dtype and size: 49 stencils of 7 radii are no 49 competitors."""
    data = published_of("hopper_tiles", "stencil_best", "fp32_ladder")
    tiles, stencils, _ = data.parts.values()
    most = tiles.ok.groupby(["m", "n", "k"])["variant"].nunique().max()
    assert tiles.most_competitors == most > 40
    assert (
        1
        < stencils.most_competitors
        < stencils.ok.groupby("elements")["variant"].nunique().max()
    )
    without_rows = {"fp32_tiles": every_sweep()["fp32_tiles"]}
    some = RunData({**data.sweeps, **without_rows}, data.frames, data.environment)
    _, _, (_, methodology) = itertools.islice(render(PUBLISHED, some, {}), 3)
    said = methodology.partition("configurations have a result: ")[2]
    named = said.partition(".\n")[0].split(",\n")
    assert named == [
        f"{most} in `hopper_tiles`",
        f"{stencils.most_competitors} in `stencil_best`",
    ]


def test_notes_have_their_reasons(pages: dict[str, str]) -> None:
    assert "| fp32_transpose | profile | `ncu` | ncu was not found |" in section(
        pages["methodology"], "Notes"
    )


def test_links_lead_somewhere(lab: Lab) -> None:
    for step in ("claims", "report"):
        assert main(["--root", str(lab.root), step, str(lab.folder.root), *SWEEPS]) == 0
    for name in (
        name for sweep in lab.sweeps(SWEEPS).values() for name in sweep.figure_names()
    ):
        replace_file(
            lab.folder.figures / name, b""
        )  # the step writes these: see test_figures
    files = [
        lab.folder.report,
        lab.folder.evidence,
        lab.folder.methodology,
        *map(lab.folder.sweep_page, SWEEPS),
    ]
    headings = {}
    for path in files:
        titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
        headings[path] = {
            re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
        }
    for path in files:
        targets = re.findall(r"\]\(([^)]+)\)", path.read_text())
        assert targets
        for target in targets:
            name, _, title = target.partition("#")
            there = (path.parent / name).resolve() if name else path
            assert there.is_file(), f"{path}: {target}"
            assert not title or title in headings[there], f"{path}: {target}"


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ((1.0, 0.9, 1.1), "1.00 [0.900, 1.10]"),
        ((12.39, 12.38, 12.41), "12.39 [12.38, 12.41]"),
        ((1.034, 1.0339, 1.0344), "1.0340 [1.0339, 1.0344]"),
        ((2.0, 2.0, 2.0), "2.00 [2.00, 2.00]"),
    ],
)
def test_an_interval_has_digits_enough_to_tell_its_ends_apart(
    ends: tuple[float, float, float], shown: str
) -> None:
    assert spread(Estimate(*ends), 3) == shown


def test_a_rung_is_held_against_its_baseline_by_their_own_pairs(lab: Lab) -> None:
    frames = {
        name: tables.read(name, lab.folder.tables)
        for name in ("timings", "resources", "metrics", "notes")
    }
    data = RunData(lab.sweeps(SWEEPS), frames, lab.environment())
    timed = frames["timings"]
    (pair,) = records(
        timed[
            timed["baseline"].eq("naive")
            & timed["m"].eq(1024)
            & timed["regime"].eq("cold")
        ]
    )
    own, other = (
        data.rows("fp32_ladder", variant=pair[name], m=1024)[0]
        for name in ("variant", "reference")
    )
    direct, quotient = data.over(own, other), data.over(other, own)
    assert direct.measured == estimate(pair, "speedup")
    assert quotient.measured == ratio(
        estimate(other, "speedup"), estimate(own, "speedup")
    )


def test_what_pages_say_of_the_order_of_rungs_is_so() -> None:
    """Rungs 17 and 18 cost speed, rung 19 is slower without what they add, and 20b is slower than rung 19."""
    data = published_of("fp32_ladder", "fp32_ablation")
    ladder, ablation = (
        {step.entry.rung: step for step in steps(data.parts[name])}
        for name in ("fp32_ladder", "fp32_ablation")
    )
    assert all(
        ladder[rung].gain.measured.high < 1
        for rung in ("17 snake", "18 five-stage pipeline")
    )
    assert all(
        ablation[rung].gain.measured.high < 1 for rung in ("no snake", "two stages")
    )
    assert (
        ladder["19 any size"].entry.variant.params
        == ablation["all"].entry.variant.params
    )
    fastest, shallow, tuned = (
        ladder[rung].row["speedup"]
        for rung in ("20 warp-specialised", "20b shallow tiles", "19 any size")
    )
    assert shallow < tuned < fastest


def test_rows_that_are_padded_by_no_word_are_plain() -> None:
    found = [shown_value("tiles", {"tiles": "padded", "pad": pad}) for pad in (0, 4)]
    assert found == ["plain", "padded"]
    assert shown_value("tiles", {"tiles": "declared", "pad": 0}) == "declared"
    assert shown_value("pad", {"tiles": "padded", "pad": 0}) == "0"


def test_tables_are_whole(pages: dict[str, str]) -> None:
    """A blank line ends a table, and every line of one has as many cells as its header, whatever stands in them."""
    for name, text in pages.items():
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            lines = block.splitlines()
            assert re.fullmatch(
                r"\|(\s*:?-+:?\s*\|)+", lines[1] if len(lines) > 1 else ""
            ), (name, lines[0])
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, (
                name,
                lines,
            )


def test_text_of_documents_shows_as_it_is(tmp_path: Path) -> None:
    hostile = "a | b < c *d* `e` ](http://x) **g** &amp; $j$ ~k~ <b>\\nl"
    lab, shown = Lab(tmp_path), " ".join(hostile.split())
    path = lab.project.sweeps / "fp32_ladder.yaml"
    document = yaml.safe_load(path.read_text())
    document |= {"title": f"T {hostile}", "question": f"Q {hostile}?"}
    document["figures"][0]["caption"] = f"C {hostile}"
    document["variants"][0] |= {"rung": f"R {hostile}", "technique": f"K {hostile}"}
    path.write_text(yaml.safe_dump(document))

    def change(place: Any, record: dict[str, Any]) -> dict[str, Any]:
        spoilt = place.size.get("m") == 512 and place.entry.rung.startswith("R ")
        return failed("launch_error", f"E {hostile}")(record) if spoilt else record

    lab.record(["fp32_ladder", "fp32_transpose"], change)
    lab.collect(["fp32_ladder", "fp32_transpose"])
    environment = lab.environment()
    lab.write_environment(
        gpu={**environment["gpu"], "name": f"G {hostile}"}, nvrtc=f"N {hostile}"
    )
    pages = report(lab, claim(f"O {hostile}", f"S {hostile}", f"L {hostile}"))
    markdown = MarkdownIt().enable("table").enable("strikethrough")
    page = "".join(
        markdown.render(pages[name])
        for name in ("report", "evidence", "methodology", "fp32_ladder")
    )
    for element, letter in (
        ("<h1>Kernel Ladder: ", "G"),
        ("<p>Measured on <strong>", "G"),
        ("<h1>", "T"),
        ("<p><strong>", "Q"),
        ('alt="', "T"),
        ("<em>", "C"),
        ("<li><strong>", "R"),
        ("</strong> \\(", "K"),
        ("<td>", "R"),
        ("<td>", "E"),
        ("Source: ", "O"),
        ("<p>", "S"),
        ("at n = 1024, 4096: ", "L"),
        ("<td>", "N"),
    ):
        assert re.search(f"{element}{letter} {re.escape(escape(shown))}", page), (
            element,
            letter,
        )
    assert "http://x" not in re.findall('href="([^"]*)"', page)
    assert not re.search(r"<b>|<s>", page)


def test_a_variant_that_does_not_compile_is_listed_where_nothing_was_timed() -> None:
    broken = {
        "kernel": "k",
        "variant": "k-fp32",
        "status": "compile_error",
        "reason": "k.cu(3): error: no",
    }
    fine = {"kernel": "k", "variant": "k-fp32-bm=64", "status": "ok"}
    (row,) = sections.group_failures(
        tables.frame("timings", []), tables.frame("resources", [broken, fine])
    )
    assert row["variant"] == "`k-fp32`"
    assert row["reason"] == "k.cu(3): error: no"


def test_deviations_of_two_speeds_add_up_as_squares_in_their_quotient() -> None:
    own = Gain(Estimate(1.1, 1.09, 1.11), Estimate(1.1, 1.0, 1.2))
    other = Gain(Estimate(1.0, 0.99, 1.01), Estimate(1.0, 0.9, 1.1))
    ratio = own.over(other)
    low, high = (
        math.hypot(math.log(1.1 / 1.09), math.log(1.01)),
        math.hypot(math.log(1.11 / 1.1), math.log(1 / 0.99)),
    )
    assert (ratio.measured.low, ratio.measured.high) == pytest.approx(
        (1.1 * math.exp(-low), 1.1 * math.exp(high))
    )
    low, high = (
        math.hypot(math.log(1.1), math.log(1.1)),
        math.hypot(math.log(1.2 / 1.1), math.log(1 / 0.9)),
    )
    assert (ratio.predicted.low, ratio.predicted.high) == pytest.approx(
        (1.1 * math.exp(-low), 1.1 * math.exp(high))
    )
    assert (ratio.verdict, ends(ratio.predicted)) == ("tied", "0.961 to 1.26")

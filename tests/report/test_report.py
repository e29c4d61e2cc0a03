"""The report says where its numbers are from, shows results only, and draws its sentences from the data."""

from __future__ import annotations

import math
import re
from dataclasses import astuple, replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from checkout import PUBLISHED, published_of
from conftest import edit_yaml
from factory import ENDS, SESSION, Fields, Lab, failed
from ladder.cli.app import main
from ladder.model.files import replace_file, write_json
from ladder.model.folders import RunFolder
from ladder.report.document import render
from ladder.report.ladder_steps import steps
from ladder.report.markdown import spread
from ladder.results import tables
from ladder.results.environment import read_environment
from ladder.results.run_data import RunData
from ladder.results.statistics import Estimate, ratio
from markdown_it import MarkdownIt
from rendering import LEFT_BEHIND, SWEEPS, cells, claim, made, report, section


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


@pytest.mark.parametrize(
    ("source", "start", "end"),
    [
        ("measured", "Measured on **NVIDIA H200**", ":"),
        (
            "published",
            "This host has no GPU. All timings and counters below are the published ones of NVIDIA H200**, measured",
            ". Kernels were compiled and analysed here: of 42 cubins 41 are byte-identical",
        ),
    ],
)
@pytest.mark.parametrize(
    ("cards", "says", "row"),
    [
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
    start: str,
    end: str,
    cards: list[Fields],
    says: str,
    row: str,
) -> None:
    about = {**lab.environment(), "gpus": cards}
    if source == "published":
        cubins = {"same": 41, "of": 42}
        about = {**about, "published": about, "reproduced_cubins": cubins}
    pages = without_tables(tmp_path, {**about, "timings_from": source})
    head = pages["report"].split("\n|", 1)[0].replace(">", "")
    assert f"{start} {says}{end}" in " ".join(head.split())
    assert row in section(pages["methodology"], "Environment")


def without_tables(root: Path, environment: Fields) -> dict[str, str]:
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
    assert "1 not measured. All others, and every part" in section(
        pages["report"], "Claims"
    )
    assert "### transpose-pays" in pages["evidence"]
    assert "No cell gave a result." in pages["fp32_ladder"]
    assert "boost clock that CUDA gives. Where" in pages["methodology"]


def test_peaks_name_the_clock_they_are_of(pages: dict[str, str]) -> None:
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
    assert "a baseline of its own, stencil_shared (coarsen=1), with" in stencil


def test_every_rung_of_a_ladder_has_a_sentence_of_its_own(
    lab: Lab, pages: dict[str, str]
) -> None:
    ladder = pages["fp32_ladder"]
    lines = [line for line in ladder.splitlines() if line.startswith("- **")]
    names = [line.split("**")[1] for line in lines]
    assert names == [entry.rung for entry in lab.sweep_of("fp32_ladder").entries]
    assert re.match(
        r"- \*\*naive\*\* \(uncoalesced\): 0.77\d TFLOP/s, 0.0150\d? \[", lines[0]
    )
    assert re.search(
        r"\(lanes walk along a row\): 6.0\d+ \[5.9\d+, 6.0\d+\] times as fast as naive",
        lines[1],
    )
    assert "- **" not in pages["fp32_transpose"].split("<details>")[0]


def test_fastest_is_the_largest_speed_up_and_who_has_the_most_tflops_is_said_beside_it(
    tmp_path: Path, pages: dict[str, str]
) -> None:
    """A higher clock shortens the times of a variant and of its reference alike."""

    def change(cell: Any, record: Fields) -> Fields:
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


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pages of a ladder with a result of its register tile alone, and of a sweep that was measured in part."""

    def change(cell: Any, record: Fields) -> Fields | None:
        if cell.variant.params.get("bm") == 64:
            return None
        if cell.entry.rung in ("naive", "coalesced"):
            return failed("unsupported", "takes too long")(record)
        check = {"max_error": 3.0, "error_bound": 1e-5}
        wrong = failed("incorrect", "7 elements | wrong")(record) | {"check": check}
        return wrong if cell.entry.rung == "transposed A" else record

    def facts(variant: Any, given: Fields) -> Fields:
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
        r"\| gemm_register_tile-fp32-bm=64.* \| 1024, 4096 \| not measured \|", line
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


def _against_mine(lab: Lab) -> str:
    """The page of a ladder against cuBLAS and a Python callable, which imports torch."""
    (lab.root / "mine.py").write_text("import math\n\nimport torch\n")
    mine = {"python": "mine.py", "entry": "f", "name": "mine"}
    lab.update("fp32_ladder", references=["cublas", mine])
    lab.record_and_collect(["fp32_ladder"])
    return report(lab)["fp32_ladder"]


def test_the_build_of_what_a_reference_imports_is_named_where_sessions_tell(
    tmp_path: Path,
) -> None:
    told = {"torch": "2.11.0+cu130", "flash-attn-4": "4.0", "quack-kernels": None}
    session = replace(SESSION, versions={**SESSION.versions, "packages": told})
    page = _against_mine(Lab(tmp_path / "told", session=session))
    reference = "Reference: the faster of cublas and mine."
    assert f"{reference} Builds, where sessions tell: torch 2.11.0+cu130.\n" in page
    assert f"{reference}\n" in _against_mine(Lab(tmp_path / "silent"))


def test_a_large_sweep_shows_its_best_and_worst(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    edit_yaml(
        lab.project.sweeps / "stencil_reach.yaml",
        lambda sweep: sweep["variants"][0]["params"].update(coarsen=[1, 2, 4, 8]),
    )
    lab.record_and_collect(["stencil_reach"])
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
    figures = [{"kind": "shapes", "caption": "Every size."}]
    lab.update("fp32_ladder", figures=figures, regimes=["cold", "warm"])
    lab.record_and_collect(["fp32_ladder"])
    part = report(lab)["fp32_ladder"]
    timed = lab.frames("fp32_ladder")["timings"]
    cold = timed[(timed["regime"] == "cold") & (timed["status"] == "ok")]
    shapes = int(cold["m"].nunique())
    assert (
        f"Shown: the fastest at each of {shapes} shapes; {len(cold)} cells in all"
        in part
    )
    table = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert table
    rows = cells(table[0])
    best = cold.loc[cold.groupby("m")["median_us"].idxmin()].sort_values("m")
    assert [int(row["size"]) for row in rows] == list(best["m"])
    times = [float(row["time µs [95 %]"].split()[0]) for row in rows]
    assert times == pytest.approx(list(best["median_us"]), rel=1e-3)
    # The same variants in the other regime stand beside them, and the means of both below.
    warm = timed[timed["regime"] == "warm"].merge(best[["variant", "m"]])
    beside = [float(row["warm: time µs"]) for row in rows if row["warm: time µs"]]
    assert beside == pytest.approx(list(warm["median_us"]), rel=1e-3)
    means = [math.exp(rows["speedup"].map(math.log).mean()) for rows in (best, warm)]
    found = re.search(r"over the shapes: (\S+) \[.*\] \(cold\), (\S+) \[", part)
    assert found is not None
    assert [float(mean) for mean in found.groups()] == pytest.approx(means, rel=1e-3)


def test_the_clock_section_shows_what_the_jobs_took(tmp_path: Path) -> None:
    lab = made(tmp_path, ["fp32_transpose"])
    part = section(report(lab)["methodology"], "How good is this clock?")
    assert "took 100 s, and the GPU worked for 83 % of them" in part
    assert "took 10 % of the GPU's time: [jobs.csv](tables/jobs.csv)" in " ".join(
        part.split()
    )


def test_cells_of_a_kernel_against_itself_hold_the_timer_against_1(lab: Lab) -> None:
    found = tables.read("sessions", lab.folder.tables)
    rows = found.iloc[[0] * 40].reset_index(drop=True)
    itself = rows.assign(
        reference=rows["variant"],
        sweep=["one"] * 10 + ["two"] * 30,
        speedup=1.0,
        speedup_low=0.999,
        speedup_high=1.003,
        m=[64, 128] * 20,
        session=[f"session {number}" for number in range(40)],
    )
    itself.loc[[3, 20], [*ENDS]] = [0.98, 0.97, 0.99]
    again = itself.head(5).assign(sweep="another")  # shows what the first has measured
    part = clock(lab.folder, sessions=pd.concat([itself, again]))
    assert (
        "| `one` | 2 | 9 of 10 (90 % [60, 98]) | 1.00000 [1.00000, 1.00000] | 2.00 % | 0.20 % |"
        in part
    )
    assert "`another`" not in part
    assert "| all | 4 | 38 of 40 (95 % [83, 99]) |" in part
    others = found[found["reference"] != found["variant"]]
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


def test_notes_have_their_reasons(pages: dict[str, str]) -> None:
    assert "| profile | 2 | 2 | ncu was not found |" in section(
        pages["methodology"], "Notes"
    )


def test_links_lead_somewhere(lab: Lab) -> None:
    for step in ("claims", "report"):
        assert main(["--root", str(lab.root), step, str(lab.folder.root), *SWEEPS]) == 0
    for name in (
        name for sweep in lab.sweeps(SWEEPS).values() for name in sweep.figure_names()
    ):
        # The step writes these: see test_figures.
        replace_file(lab.folder.figures / name, b"")

    def headings(path: Path) -> set[str]:
        titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
        return {
            re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
        }

    files = [*lab.folder.root.rglob("*.md")]
    assert len(files) == 3 + len(SWEEPS)
    for path in files:
        targets = re.findall(r"\]\(([^)]+)\)", path.read_text())
        assert targets
        for target in targets:
            name, _, title = target.partition("#")
            there = (path.parent / name).resolve() if name else path
            assert there.is_file(), f"{path}: {target}"
            assert not title or title in headings(there), f"{path}: {target}"


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


def test_what_pages_say_of_the_order_of_rungs_is_so() -> None:
    """Rungs 17 and 18 cost speed, and rung 19 is slower without what they add: the caption of fp32_ablation."""
    data = published_of("fp32_ladder", "fp32_ablation")
    rungs = {
        step.entry.rung: step for part in data.parts.values() for step in steps(part)
    }
    for rung in ("17 snake", "18 five-stage pipeline", "no snake", "two stages"):
        assert rungs[rung].gain.measured.high < 1, rung
    assert rungs["19 any size"].entry.variant == rungs["all"].entry.variant


def test_tables_are_whole(pages: dict[str, str]) -> None:
    """A blank line ends a table, and every line of one has as many cells as its header, whatever stands in them.

    Of the pages made here and of the published ones, which have rows that these lack.
    """
    published = {str(path): path.read_text() for path in PUBLISHED.root.rglob("*.md")}
    assert published
    for name, text in (pages | published).items():
        for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            lines = block.splitlines()
            assert re.fullmatch(
                r"\|(\s*:?-+:?\s*\|)+", lines[1] if len(lines) > 1 else ""
            ), (name, lines[0])
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1, (
                name,
                lines,
            )


def test_what_a_missing_value_leaves_is_found_and_words_are_not() -> None:
    for said in ("speed nan x", "over None keys", "| <NA> |", "cost?** No registers."):
        assert LEFT_BEHIND.search(said), said
    words = "Nonetheless, **no difference** at 4096: nanoseconds."
    assert not LEFT_BEHIND.search(words)


PLACES = """<h1>Kernel Ladder: G
<p>Measured on <strong>G
<h1>T
<p><strong>Q
alt="T
<em>C
<li><strong>R
</strong> \\(K
<td>R
<td>E
Source: O
<p>S
at n = 1024, 4096: L
<td>N"""
"""Where text of documents shows, each with the letter that begins the text there."""


def test_text_of_documents_shows_as_it_is(tmp_path: Path) -> None:
    hostile = "a | b < c *d* `e` ](http://x) **g** &amp; $j$ ~k~ <b>\\nl"
    lab, shown = Lab(tmp_path), " ".join(hostile.split())
    path = lab.project.sweeps / "fp32_ladder.yaml"
    document = yaml.safe_load(path.read_text())
    document |= {"title": f"T {hostile}", "question": f"Q {hostile}?"}
    document["figures"][0]["caption"] = f"C {hostile}"
    document["variants"][0] |= {"rung": f"R {hostile}", "technique": f"K {hostile}"}
    path.write_text(yaml.safe_dump(document))

    def change(place: Any, record: Fields) -> Fields:
        spoilt = place.size.get("m") == 512 and place.entry.rung.startswith("R ")
        return failed("launch_error", f"E {hostile}")(record) if spoilt else record

    lab.record_and_collect(["fp32_ladder", "fp32_transpose"], change)
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
    for place in PLACES.splitlines():
        assert re.search(f"{place} {re.escape(escape(shown))}", page), place
    assert "http://x" not in re.findall('href="([^"]*)"', page)
    assert not re.search(r"<b>|<s>", page)


def test_deviations_of_two_speeds_add_up_as_squares_in_their_quotient() -> None:
    def speed(value: float, half: float) -> Estimate:
        return Estimate(value, value * math.exp(-half), value * math.exp(half))

    quotient = ratio(speed(1.1, 0.03), speed(1.0, 0.04))
    assert astuple(quotient) == pytest.approx(astuple(speed(1.1, 0.05)))

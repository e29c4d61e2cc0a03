"""Figures show results only, with intervals and the reference, and say so where there is nothing to show."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import yaml
from checkout import published_data
from conftest import edit_yaml, environment
from factory import Lab, failed
from ladder.cli.app import main
from ladder.model.folders import Project, RunFolder
from ladder.model.sweep import Figure, Reference
from ladder.report import sections
from ladder.report.answers import titles
from ladder.report.document import TEMPLATES
from ladder.report.figures import lines, style
from ladder.report.figures.base import factor_axis
from ladder.report.figures.curves import BELOW
from ladder.report.figures.registry import FIGURES, render
from ladder.report.links import Links
from ladder.report.titles import message
from ladder.results.run_data import RunData, gain
from ladder.results.statistics import parameter, records
from ladder.results.sweep_data import FigureData, NoDataError, SweepData
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Rectangle
from matplotlib.text import Text

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """No drawing outlives its test."""
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.record()
    lab.collect()
    return lab


Sweeps = Mapping[str, SweepData]


def read(lab: Lab) -> Sweeps:
    """The tables of a run, sweep by sweep."""
    sweeps = {name: sweep for name, sweep in lab.sweeps().items() if lab.folder.sweep(name).is_dir()}
    return RunData.read(lab.folder, sweeps).parts


@pytest.fixture(scope="module")
def parts(lab: Lab) -> Sweeps:
    """Read once: look at it only."""
    return read(lab)


def data(parts: Sweeps, sweep: str, kind: str, **asked: Any) -> FigureData:
    part = parts[sweep]
    other = Figure.model_validate({"kind": kind, "caption": "A figure."})
    figure = next((figure for figure in part.sweep.figures if figure.kind == kind), other)
    return part.drawn(figure.model_copy(update=asked))


def with_status(given: FigureData, status: str, reason: str, where: Any = True) -> FigureData:
    """The same where those rows gave no result."""
    rows = pd.Series(where, given.timings.index).astype(bool)
    fields = {"status": status, "reason": reason}
    timings = given.timings.assign(
        **{name: given.timings[name].mask(rows, to) for name, to in fields.items()}
    )
    return dataclasses.replace(given, timings=timings)


def findings(data: FigureData) -> list[str]:
    return TEMPLATES.get_template("findings.md.j2").render(data=data).strip().split("\n")


def words(drawing: Drawing) -> str:
    return "\n".join(text.get_text() for text in drawing.findobj(Text)).replace("\N{NO-BREAK SPACE}", " ")


def line_names(axis: Axes) -> list[Text]:
    """Names at the ends of lines."""
    return [text for text in axis.texts if text.get_text() and text.get_gid() != BELOW]


def size_of_png(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


CASES = [
    ("fp32_ladder", "ladder"),
    ("fp32_ladder", "curves"),
    ("fp32_ladder", "roofline"),
    ("fp32_transpose", "heatmap"),
    ("bank_stride", "banks"),
    ("stencil_reach", "stencil"),
    ("fp32_ladder", "shapes"),
]


@pytest.mark.parametrize(("sweep", "kind"), CASES)
def test_every_kind_names_device_and_date_and_a_dollar_is_no_mathematics(
    parts: Sweeps, sweep: str, kind: str
) -> None:
    given = data(parts, sweep, kind)
    titled = dataclasses.replace(given, sweep=dataclasses.replace(given.sweep, title="$5 _ $6"))
    drawing = FIGURES[kind](titled)
    drawing.draw_without_rendering()
    assert "NVIDIA H200, 2026-11-20" in words(drawing)
    shown = [
        text.get_text() for text in drawing.findobj(Text) if "$" in text.get_text() and text.get_visible()
    ]
    assert [text.partition(" ·")[0] for text in shown] == ["$5 _ $6"], "no tick needs it"
    width, height = drawing.get_size_inches() * drawing.dpi
    assert width == 1152
    assert 400 < height < 2000


@pytest.mark.parametrize(("sweep", "kind"), CASES)
def test_a_title_of_any_length_leaves_room_for_the_figure(parts: Sweeps, sweep: str, kind: str) -> None:
    given = data(parts, sweep, kind)
    long = dataclasses.replace(given, sweep=dataclasses.replace(given.sweep, title="A long title. " * 200))
    assert size_of_png(render(long))[0] == 1152
    # The heading, and the picture that says why there is none, are the same of all kinds.
    if kind == "ladder":
        assert size_of_png(render(with_status(long, "timeout", "t")))[0] == 1152
        gpu = {**given.gpu, "name": "A long name " * 250}
        assert size_of_png(render(dataclasses.replace(long, environment={"gpu": gpu})))[0] == 1152


@pytest.mark.parametrize(("sweep", "kind"), CASES)
def test_a_sweep_that_failed_altogether_gives_a_picture_that_says_why(
    parts: Sweeps, sweep: str, kind: str
) -> None:
    given = with_status(data(parts, sweep, kind), "timeout", "t")
    with pytest.raises(NoDataError, match="timeout"):
        FIGURES[kind](given)
    assert size_of_png(render(given))[0] == 1152


@pytest.mark.parametrize(("sweep", "kind"), CASES)
def test_without_a_result_at_the_size_that_a_figure_shows_its_title_is_the_sweeps(
    parts: Sweeps, sweep: str, kind: str
) -> None:
    largest = data(parts, sweep, kind).size
    given = data(parts, sweep, kind, at={name: extent - 1 for name, extent in largest.items()})
    if kind in ("curves", "banks", "shapes"):  # of all sizes
        assert message(given) != given.sweep.title
        return
    with pytest.raises(NoDataError):
        FIGURES[kind](given)
    assert message(given) == given.sweep.title


def test_every_kind_the_schema_knows_can_be_drawn() -> None:
    kinds = Figure.model_json_schema()["properties"]["kind"]["enum"]
    assert sorted(kinds) == sorted(FIGURES) == sorted({kind for _, kind in CASES})


def test_a_ladder_is_drawn_whole(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "ladder")
    names = [entry.rung for entry in given.sweep.entries]
    shown = words(FIGURES["ladder"](given))
    assert [name for name in names if name not in shown] == []


def test_an_incorrect_rung_is_named_but_has_no_bar(parts: Sweeps) -> None:
    ladder, curves = (
        with_status(given, "incorrect", "wrong", given.timings["kernel"].eq("gemm_shared_tile"))
        for given in (data(parts, "fp32_ladder", kind) for kind in ("ladder", "curves"))
    )
    drawing = FIGURES["ladder"](ladder)
    assert len(marks(drawing.axes[-1])) == 4
    assert "no result: incorrect" in words(drawing)
    assert "shared tile" not in words(FIGURES["curves"](curves))


def marks(axis: Axes) -> list[tuple[float, float]]:
    """Places of an axis's round marks."""
    found = [line for line in axis.lines if line.get_marker() == "o"]
    return [(float(x), float(y)) for line in found for x, y in zip(*line.get_data(), strict=True)]


def test_bars_are_the_gains_over_the_rung_that_each_changes_on_a_logarithmic_axis(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.project.sweeps / "fp32_ladder.yaml"
    document = yaml.safe_load(path.read_text())
    below = [None, "naive", "coalesced", "coalesced", "register tile"]  # the shared tile is a branch
    for rung, name in zip(document["variants"], below, strict=True):
        rung |= {"baseline": name} if name else {}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    drawing = FIGURES["ladder"](data(read(lab), "fp32_ladder", "ladder"))
    gains, speeds = drawing.axes
    labels = [label.get_text() for label in gains.get_yticklabels()]
    assert [label.strip() for label in labels] == [
        "naive",
        "coalesced",
        "shared tile",
        "register tile",
        "transposed A",
    ], "the order of the sweep"
    assert [label != label.strip() for label in labels] == [False, False, True, False, False]
    bars = {int(bar.get_y() + 0.5): bar for bar in gains.patches if isinstance(bar, Rectangle)}
    assert [1 + bars[place].get_width() for place in range(1, 5)] == pytest.approx(
        [6.0, 0.16 / 0.09, 0.528 / 0.09, 1.25], rel=1e-3
    )
    assert (gains.get_xscale(), speeds.get_xscale()) == ("log", "log")
    colors = {place: bars[place].get_facecolor() for place in bars}
    assert colors[2] != colors[1] == colors[3] == colors[4], "a branch is pale"
    assert sorted(x for x, _ in marks(speeds)) == pytest.approx([0.015, 0.09, 0.16, 0.528, 0.66])
    said = words(drawing)
    assert "“coalesced” and “register tile” bring 35 of the 44 times" in said.replace("\n", " ")
    assert {"6.0 times", "+78 %", "5.9 times", "+25 %"} <= set(said.split("\n"))


def test_a_rung_whose_gain_another_gpu_may_not_read_is_a_tie(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "ladder")
    here = given.here.iloc[[0]].assign(speedup=1.02, speedup_low=1.01, speedup_high=1.03)
    assert gain(records(here)[0]).verdict == "faster"
    wide = here.assign(predicted_low=0.99, predicted_high=1.05)
    assert gain(records(wide)[0]).verdict == "tied"


def test_titles_are_short_and_name_cublas_as_people_do(published: RunData) -> None:
    folder = RunFolder(ROOT / "results/published/nvidia-h200")
    said = titles(published, Links(folder, folder.root, published))
    for part in published.parts.values():
        files = part.sweep.figure_names() if len(part.ok) else []
        for figure, file in zip(part.sweep.figures, files, strict=False):
            title = message(part.drawn(figure, said.get(file, "")))
            counted = [word for word in title.split() if re.search(r"\w", word)]
            assert len(counted) <= 13, title
            assert not re.search(r"\bcublas|the faster of", title), title
            assert title != part.sweep.title


def test_curves_show_ratios_at_their_true_sizes_with_the_fastest_rate_below(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "curves")
    (axis,) = FIGURES["curves"](given).axes
    assert axis.get_ylabel() == "speed relative to\ncuBLAS"
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    shown = {(x, round(y, 6)) for x, y in marks(axis)}
    assert shown == {
        (float(n), round(float(value), 6))
        for n, value in zip(given.ok["n"], given.ok["speedup"], strict=True)
    }
    best = given.ok[given.ok["n"] == 4096]["tflops"].max()
    assert f"4096\n{best:.1f}" in [label.get_text() for label in axis.get_xticklabels()]
    assert axis.get_ylim()[1] < 1, "the axis does not reach to a reference that is far from all lines"
    near = given.timings.assign(**{name: 1.4 * given.timings[name] for name in ENDS})
    low, high = FIGURES["curves"](dataclasses.replace(given, timings=near)).axes[0].get_ylim()
    assert low < 1 < high


ENDS = ["speedup", "speedup_low", "speedup_high"]


def test_the_axis_of_curves_is_where_the_fastest_differ(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "curves")
    low, high = FIGURES["curves"](given).axes[0].get_ylim()
    best = given.ok.groupby("n")["speedup"].max().min()
    assert given.ok["speedup"].min() < low < best, "what is far slower leaves it"
    assert high > given.ok["speedup"].max()


def test_a_line_is_named_at_its_end_and_no_two_names_touch(parts: Sweeps) -> None:
    drawing = FIGURES["curves"](data(parts, "fp32_ladder", "curves"))
    (axis,) = drawing.axes
    drawing.draw_without_rendering()
    named = line_names(axis)
    assert len(named) == 5, "cuBLAS is far above these lines"
    lines = {line.get_label(): line.get_color() for line in axis.lines}
    assert all(text.get_color() == lines[text.get_text()] for text in named if text.get_text() != "cuBLAS")
    boxes = sorted((text.get_window_extent() for text in named), key=lambda box: float(box.y0))
    assert all(lower.y1 <= upper.y0 + 2 for lower, upper in itertools.pairwise(boxes))
    width = drawing.get_size_inches()[0] * drawing.dpi
    assert all(box.x1 <= width for box in boxes)


def test_what_leaves_the_axis_of_curves_below_has_its_number_at_the_edge(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "curves")
    largest = given.timings["n"] == given.timings["n"].max()
    slow = largest & (given.timings["rung"] == "naive")
    only = given.timings.assign(speedup=given.timings["speedup"].mask(slow, 0.0123).mask(~slow, 0.9))
    for end in ("low", "high"):
        only[f"speedup_{end}"] = only["speedup"]
    (axis,) = FIGURES["curves"](dataclasses.replace(given, timings=only)).axes
    (own,) = [text for text in axis.texts if text.get_gid() == BELOW]
    assert own.get_text() == "0.012"
    assert own.xy == (only[slow]["n"].iloc[0], axis.get_ylim()[0])
    edge = [line for line in axis.lines if line.get_marker() == "v"]
    assert [line.get_color() for line in edge] == [own.get_color()]


def test_a_rung_that_changes_another_than_the_one_it_stands_under_names_it(published: RunData) -> None:
    drawing = FIGURES["ladder"](own_figure(published, "fp32_ladder", "ladder"))
    names = {label.get_text().strip(): label for label in drawing.axes[0].get_yticklabels()}
    weights = {name: label.get_fontweight() for name, label in names.items()}
    assert weights["14 cp.async (on 13)"] == "normal"
    assert "bold" in {weight for name, weight in weights.items() if "(on " in name}, "also on the path"
    assert "20 warp-specialised" in names
    assert "or over the one named: (on …)" in drawing.axes[0].get_xlabel()
    drawn = {tuple(bar.get_facecolor()) for bar in drawing.axes[0].patches if isinstance(bar, Rectangle)}
    (legend,) = drawing.legends
    assert drawn == {tuple(patch.get_facecolor()) for patch in legend.get_patches()}, "every colour has a key"
    assert {to_rgba(color) for color in style.PALE.values()} <= drawn


def test_of_many_curves_those_are_drawn_that_are_ahead_somewhere(
    parts: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST", 2)
    given = data(parts, "fp32_ladder", "curves")
    small = given.timings["n"] == 512
    speeds = given.timings["speedup"].mask(small, 0.1 * given.timings["speedup"])
    naive = small & (given.timings["rung"] == "naive")  # slow, but at 512 all others are slower
    ahead = given.timings.assign(speedup=speeds.mask(naive, 0.2))
    drawing = FIGURES["curves"](dataclasses.replace(given, timings=ahead))
    names = [text.get_text() for text in line_names(drawing.axes[0])]
    assert {*names} - {"cuBLAS"} == {"naive", "transposed A"}
    assert " 2 of 5 variants" in words(drawing)


def test_parameters_that_change_together_are_named_once(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "curves")
    before = given.names
    timings = given.timings.copy()
    texts = [json.loads(text) for text in timings["params"]]
    timings["params"] = [json.dumps(params | {"twice_bk": 2 * params["bk"]}) for params in texts]
    more = dataclasses.replace(given, timings=timings)
    assert more.names == before
    assert "twice_bk" in more.unnamed()[0]
    assert len(set(before.values())) == len(before)


def test_of_many_parameters_those_are_named_that_are_no_default(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "curves")
    kernel = given.sweep.entries[0].variant.kernel
    defaults = {name: axis.default for name, axis in kernel.parameters.items()}
    # Each of eight variants has one parameter of its own, so that it takes seven to distinguish them.
    own = [f"p{place}" for place in range(8)]
    params = [
        {"p": place % 2} | {axis: place if axis == mine else None for axis in own} | defaults
        for place, mine in enumerate(own)
    ]
    first = given.timings.iloc[[0]]
    rows = pd.concat(
        [first.assign(variant=mine, params=json.dumps(each)) for mine, each in zip(own, params, strict=True)]
    )
    many = dataclasses.replace(given, timings=rows)
    assert many.unnamed() == ([], True)
    for place, mine in enumerate(own):
        named = many.names[mine].split(", ")
        assert named == [f"p={place % 2}", f"{mine}={place}"], "and no default"
    assert not given.unnamed()[1]


def in_tf32_too(given: FigureData) -> FigureData:
    """With the same rows in a second type."""
    other = given.timings.assign(dtype="tf32", variant=given.timings["variant"] + "-tf32")
    both = pd.concat([given.timings, other], ignore_index=True)
    return dataclasses.replace(
        given, timings=both, sweep=dataclasses.replace(given.sweep, dtypes=("fp32", "tf32"))
    )


def test_a_panel_with_one_of_the_sizes_has_the_axis_of_all(parts: Sweeps) -> None:
    """Else the end of its reference, at the largest size of all, would lie far beyond it."""
    given = in_tf32_too(data(parts, "fp32_ladder", "curves"))
    near = given.timings.assign(**{name: 1.4 * given.timings[name] for name in ENDS})
    few = near[(near["dtype"] == "fp32") | (near["n"] == 1024)]
    drawing = FIGURES["curves"](dataclasses.replace(given, timings=few))
    first, second = drawing.axes
    assert first.get_xlim() == second.get_xlim()
    assert "cuBLAS" in [text.get_text() for text in second.texts]
    drawing.draw_without_rendering()  # which warns, and fails, where there is no room for the panels


def test_panels_name_their_dtype_once_and_a_name_has_one_colour_in_all(parts: Sweeps) -> None:
    drawing = FIGURES["curves"](in_tf32_too(data(parts, "fp32_ladder", "curves")))
    assert [axis.get_title() for axis in drawing.axes] == ["fp32", "tf32"]
    shown = [{text.get_text(): text.get_color() for text in line_names(axis)} for axis in drawing.axes]
    assert not any("fp32" in name for names in shown for name in names)
    common = {*shown[0]} & {*shown[1]}
    assert len(common) >= 4
    assert all(shown[0][name] == shown[1][name] for name in common)
    assert len({*shown[0].values()}) == len(shown[0]), "no colour twice"


def test_variants_of_several_baselines_are_shares_of_the_fastest(parts: Sweeps) -> None:
    """A speed-up over one baseline and one over another do not compare."""
    (axis,) = FIGURES["curves"](data(parts, "fp32_transpose", "curves")).axes
    assert axis.get_ylabel() == "share of the speed\nof the fastest"
    assert max(y for _, y in marks(axis)) == pytest.approx(1.0)


def test_element_types_of_one_peak_share_a_roof(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "roofline")
    peaks = {"tf32": 500.0, "fp16": 1000.0, "bf16": 1000.0}
    gpu = dict(given.gpu) | {"tensor_peak_tflops": peaks}
    both = dataclasses.replace(
        given,
        environment={"gpu": gpu},
        sweep=dataclasses.replace(given.sweep, dtypes=("fp32", "bf16", "fp16")),
    )
    text = words(FIGURES["roofline"](both))
    assert text.count("1000 TFLOP/s") == 1
    assert "peaks at the boost clock, 1980 MHz" in text.replace("\n", " ")
    assert "fp16, bf16 peak" in text or "bf16, fp16 peak" in text


def test_a_heatmap_shows_the_best_and_says_why_a_cell_is_empty(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    bm, bk = (parameter(given.timings, name) for name in ("bm", "bk"))
    drawing = FIGURES["heatmap"](with_status(given, "launch_error", "no", bm.eq(64) & bk.eq(8)))
    shown = [text.get_text() for text in drawing.axes[0].texts]
    assert [text for text in shown if text] == [*["1.25\n1.24 to 1.26"] * 3, "a"]
    assert "a: launch error: no" in words(drawing)


def test_the_scale_of_a_heatmap_reaches_as_far_below_1_as_above(parts: Sweeps) -> None:
    given = changed(data(parts, "fp32_transpose", "heatmap"), "gemm_register_tile-fp32", speedup=0.7)
    norm = FIGURES["heatmap"](given).axes[0].collections[0].norm
    assert (norm.vmin, norm.vmax) == pytest.approx((1 / 1.25, 1.25)), "though the slowest cell has 0.875"
    slow = given.timings.assign(reference="cublas")
    slow[["speedup", "speedup_low", "speedup_high"]] /= 2
    shares = FIGURES["heatmap"](dataclasses.replace(given, timings=slow)).axes[0].collections[0].norm
    assert (shares.vmin, shares.vmax) == pytest.approx((0.4375, 0.625)), "none reaches 1"


def test_a_heatmap_leaves_out_values_that_were_not_tried(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    small = parameter(given.timings, "bm").eq(64)
    figure = FIGURES["heatmap"](with_status(given, "unsupported", "too small", small))
    assert "64" not in words(figure).split()


def test_a_heatmap_neither_shows_nor_names_a_kernel_without_its_parameters(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    other = given.here.head(1).assign(variant="other", params="{}")
    other[["speedup", "speedup_low", "speedup_high"]] *= 9.0
    both = dataclasses.replace(given, timings=pd.concat([given.timings, other], ignore_index=True))
    assert message(both) == message(given)
    drawings = [FIGURES["heatmap"](one) for one in (both, given)]
    assert words(drawings[0]) == words(drawings[1])


def changed(given: FigureData, variant: str, **factors: float) -> FigureData:
    """The same with columns of a variant at 4096 times a factor."""
    timings = given.timings.copy()
    one = (timings["variant"] == variant) & (timings["m"] == 4096)
    assert one.any()
    for name, factor in factors.items():
        timings.loc[one, name] *= factor
    return dataclasses.replace(given, timings=timings)


def test_a_heatmap_names_the_best_choice(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    assert re.fullmatch(r"Best with b. = \d+, b. = \d+: 25 % faster than its baseline", message(given))


def test_curves_say_what_gains_most_and_where(parts: Sweeps) -> None:
    given = changed(data(parts, "fp32_transpose", "curves"), "gemm_register_tile-fp32", speedup=2)
    assert message(given) == "“bm 128, bk 8” gains most: 2.5 times at 4096"


def test_curves_do_not_praise_what_is_slower_than_the_baseline(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "curves")
    one = given.timings.copy()
    one[["speedup", "speedup_low", "speedup_high"]] /= 2
    slow = message(dataclasses.replace(given, timings=one))
    assert slow == "No choice is faster than its baseline at any size"


def test_a_heatmap_needs_its_axes(parts: Sweeps) -> None:
    with pytest.raises(NoDataError, match="no x and y"):
        FIGURES["heatmap"](data(parts, "fp32_transpose", "heatmap", x=None))


def test_the_stencil_figure_says_where_registers_spill(parts: Sweeps) -> None:
    drawing = FIGURES["stencil"](data(parts, "stencil_reach", "stencil"))
    assert "hollow: registers spill to local memory" in words(drawing)
    hollow = {
        float(x)
        for axis in drawing.axes
        for line in axis.lines
        for x in line.get_xdata()
        if line.get_marker() == "o" and line.get_markerfacecolor() == "white"
    }
    assert hollow == {12.0, 16.0}


def test_the_stencil_figure_has_a_panel_a_dtype_and_its_lines_are_around_one(parts: Sweeps) -> None:
    one = data(parts, "stencil_reach", "stencil")
    faster = one.timings.assign(
        dtype="fp32", **{name: 1.1 * one.timings[name] for name in ("speedup", "speedup_low", "speedup_high")}
    )
    given = dataclasses.replace(
        one,
        timings=pd.concat([one.timings, faster], ignore_index=True),
        sweep=dataclasses.replace(one.sweep, dtypes=("int32", "fp32")),
    )
    axes = FIGURES["stencil"](given).axes
    assert {axis.get_title().split(",")[0] for axis in axes} == {"int32", "fp32"}
    rows = given.here[given.here["kernel"] == "stencil_register_cache"]
    shown = {round(y, 6) for axis in axes for _, y in marks(axis)}
    assert {round(float(value), 6) for value in rows["speedup"]} <= shown
    for axis in axes:
        low, high = axis.get_ylim()
        assert 0 < low < 1 < rows["speedup_high"].max() < high
        assert (
            len({line.get_label() for line in axis.lines if not str(line.get_label()).startswith("_")}) <= 6
        )


def test_a_stencil_against_a_copy_shows_the_paired_speed_of_every_kind_of_variant(parts: Sweeps) -> None:
    given = data(parts, "stencil_reach", "stencil", hue=None)
    cached = given.timings["kernel"] == "stencil_register_cache"
    alone = dataclasses.replace(
        given,
        timings=given.timings[cached],
        sweep=dataclasses.replace(
            given.sweep,
            entries=tuple(
                entry
                for entry in given.sweep.entries
                if entry.variant.kernel.name == "stencil_register_cache"
            ),
            reference=Reference(libraries=("copy",)),
        ),
    )
    drawing = FIGURES["stencil"](alone)
    left = drawing.axes[0]
    assert left.get_ylabel() == "speed relative to\na copy"
    assert {f"coarsen {value}" for value in (1, 2, 4, 8)} <= set(words(drawing).split("\n"))
    cold = given.timings[cached & (given.timings["regime"] == "cold") & (given.timings["status"] == "ok")]
    assert {round(float(value), 6) for value in cold["speedup"]} <= {round(y, 6) for _, y in marks(left)}


def test_three_views_of_a_bank_conflict_agree(parts: Sweeps) -> None:
    axis = FIGURES["banks"](data(parts, "bank_stride", "banks")).axes[0]
    model = [float(dash[0][1]) for dash in axis.collections[0].get_segments()]  # type: ignore[attr-defined]
    waves, cycles = ([float(value) for value in line.get_ydata()] for line in axis.lines[:2])
    assert waves == pytest.approx(model)
    assert cycles == pytest.approx(model, rel=0.02)
    assert max(model) == 32


def test_banks_take_a_panel_per_other_parameter(parts: Sweeps) -> None:
    given = data(parts, "bank_stride", "banks")
    halves = []
    for width in (8, 16):
        rows = given.timings.copy()
        rows["params"] = [json.dumps(json.loads(text) | {"width": width}) for text in rows["params"]]
        halves.append(rows)
    wide = dataclasses.replace(given, timings=pd.concat(halves, ignore_index=True))
    axes = FIGURES["banks"](wide).axes
    assert [axis.get_title() for axis in axes] == ["width 8", "width 16"]
    assert all(len(axis.collections[0].get_segments()) == 33 for axis in axes)  # type: ignore[attr-defined]


def test_counted_bytes_move_a_mark_of_the_roofline(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "roofline")
    assert "each operand moved once" in FIGURES["roofline"](given).axes[0].get_xlabel()
    key = given.timings[given.timings["n"] == 4096].drop_duplicates("variant")
    counted = pd.concat(
        [
            key[["sweep", "variant", "m", "n", "k", "elements", "taps"]].assign(
                metric=name, unit="byte", value=1e9
            )
            for name in ("dram__bytes_read.sum", "dram__bytes_write.sum")
        ]
    )
    moved = dataclasses.replace(given, metrics=counted)
    axis = FIGURES["roofline"](moved).axes[0]
    assert "counted by the profiler" in axis.get_xlabel()
    marks = {round(float(line.get_xdata()[0]), 2) for line in axis.lines if len(line.get_xdata()) == 1}
    assert marks == {round(2 * 4096**3 / 2e9, 2)}


def shown_ticks(drawing: Drawing, upright: bool = False) -> list[str]:
    """Labels on the first x axis, or y axis, as they are drawn."""
    drawing.draw_without_rendering()
    axis = drawing.axes[0]
    own, ends = (axis.yaxis, axis.get_ylim()) if upright else (axis.xaxis, axis.get_xlim())
    ticks = [*own.get_major_ticks(), *own.get_minor_ticks()]
    inside = [tick.label1 for tick in ticks if min(ends) <= tick.get_loc() <= max(ends)]
    return [label.get_text() for label in inside if label.get_visible() and label.get_text()]


def test_a_roofline_of_one_intensity_has_an_axis_that_people_read(parts: Sweeps) -> None:
    """No peak is known, and all bytes are the fewest: the marks lie within less than a decade."""
    given = dataclasses.replace(data(parts, "fp32_ladder", "roofline"), environment={"gpu": {}})
    few = given.timings[given.timings["rung"] == "naive"]
    drawing = FIGURES["roofline"](dataclasses.replace(given, timings=few))
    for upright in (False, True):
        labels = shown_ticks(drawing, upright)
        assert len(labels) >= 3
        assert all(re.fullmatch(r"\d+(\.\d+)?", label) for label in labels)
        assert len({*labels}) == len(labels)


def test_the_roof_is_in_the_picture_of_what_memory_bounds(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "roofline")
    slow = given.timings.assign(gbytes_per_s=given.timings["gbytes_per_s"] * 1e4)
    axis = FIGURES["roofline"](dataclasses.replace(given, timings=slow)).axes[0]
    ridge = given.gpu["fp32_peak_tflops"] / given.gpu["copy_gbytes_per_s"] * 1e3
    assert axis.get_xlim()[0] < ridge < axis.get_xlim()[1]


LONG = "warp tiles with double buffered loads and swizzled stores, 00"
"""As long as the name of a rung may be, but for one."""


def long_names(lab: Lab) -> Sweeps:
    """The ladder under names that are as long as they may be, each but the first with a baseline."""
    path = lab.project.sweeps / "fp32_ladder.yaml"
    document = yaml.safe_load(path.read_text())
    names = [f"{LONG[:-2]}{place}" for place in range(len(document["variants"]))]
    assert {len(name) for name in names} == {60}
    for place, rung in enumerate(document["variants"]):
        rung["rung"] = names[place]
        if place:
            rung["baseline"] = names[max(0, place - 2)]
    path.write_text(yaml.safe_dump(document))
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    return read(lab)


def test_the_longest_names_leave_room_for_the_axes(tmp_path: Path) -> None:
    """Warnings of the layout are errors here."""
    parts = long_names(Lab(tmp_path))
    for kind in ("ladder", "curves", "roofline"):
        drawing = FIGURES[kind](data(parts, "fp32_ladder", kind))
        assert not cut_off(drawing), kind
        width = drawing.axes[0].get_window_extent().width / drawing.dpi
        assert width > 0.3 * style.WIDTH, kind
    ranked = dataclasses.replace(data(parts, "fp32_ladder", "ladder").sweep, tuning=True)
    given = dataclasses.replace(data(parts, "fp32_ladder", "ladder"), sweep=ranked)
    assert not cut_off(FIGURES["ladder"](given))


def test_a_figure_of_one_size_names_it(parts: Sweeps, tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    edit_yaml(lab.project.sweeps / "fp32_ladder.yaml", lambda sweep: sweep.update(sizes=[4096]))
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    assert message(data(read(lab), "fp32_ladder", "curves")) == "34 % slower than cuBLAS at 4096"
    assert message(data(parts, "fp32_ladder", "curves")).endswith("at all 5 sizes")


def test_ends_that_are_nearly_alike_have_different_labels(parts: Sweeps) -> None:
    axis = FIGURES["curves"](data(parts, "fp32_ladder", "curves")).axes[0]
    factor_axis(axis, 0.00046479, 0.00046502)
    labels = [text.get_text() for text in axis.get_xticklabels()]
    assert len(labels) >= 3
    assert len({*labels}) == len(labels)


def test_what_is_wrong_with_a_picture_is_said_by_the_step(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lab = Lab(tmp_path)
    rung = "\N{CJK UNIFIED IDEOGRAPH-53CC}\N{CJK UNIFIED IDEOGRAPH-7F13}"
    edit_yaml(lab.project.sweeps / "tensor_ladder.yaml", lambda sweep: sweep["variants"][0].update(rung=rung))
    lab.record(["tensor_ladder"])
    lab.collect(["tensor_ladder"])
    command = [sys.executable, "-m", "ladder", "--root", str(lab.root), "figures", str(lab.folder.root)]
    there = environment() | {"PYTHONPATH": str(ROOT / "workflow")}
    subprocess.run([*command, "tensor_ladder"], env=there, check=True)
    (said,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning: ")]
    picture = lab.folder.figures / "tensor_ladder-1-ladder.png"
    assert said.startswith(f"warning: {picture}: Glyph 21452 ")
    assert said.endswith(" and 1 more")
    assert picture.is_file()


SHAPES = [
    {"m": 64, "n": 4096, "k": 4096},
    {"m": 1024, "n": 4096, "k": 1024},
    {"m": 64, "n": 1024, "k": 16384},
    {"m": 1024, "n": 1024, "k": 1024},
    {"m": 64, "n": 1024, "k": 1024},
]
FASTEST = {(64, 1024, 1024): 1.25, (64, 1024, 16384): 0.8, (1024, 1024, 1024): 1.001, (1024, 4096, 1024): 1.1}
"""Speed of the fastest variant, BM = 64 and BK = 16; the others are slower. 64 x 4096 x 4096 has no result."""


def shapes_data(root: Path, **change: Any) -> FigureData:
    """A sweep over rectangles."""
    lab = Lab(root)
    sweep: dict[str, Any] = {
        "title": "Shapes",
        "question": "q?",
        "problem": "gemm",
        "dtypes": ["fp32"],
        "sizes": SHAPES,
        "variants": [
            {
                "kernel": "gemm_register_tile",
                "params": {"bm": [64, 128], "bk": [8, 16], "transpose_a": [0, 1]},
            }
        ],
        "references": ["cublas"],
        "regimes": ["cold"],
        "figures": [{"kind": "shapes", "caption": "c"}],
    }
    path = lab.project.sweeps / "shapes.yaml"
    path.write_text(yaml.safe_dump(sweep | change))

    def timed(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        speed = FASTEST.get(tuple(cell.size.values()))
        if speed is None:
            return failed("timeout", "t")(record)
        params = cell.variant.params
        speed *= (1 if params["bm"] == 64 else 0.9) * (1 if params["bk"] == 16 else 0.9)
        speed *= 1 if params["transpose_a"] else 0.9
        ends = {"speedup": speed, "speedup_low": speed * 0.99, "speedup_high": speed * 1.01}
        record["regimes"]["cold"] |= ends
        return record

    lab.record(["shapes"], timed)
    lab.collect(["shapes"])
    return data(read(lab), "shapes", "shapes")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> FigureData:
    """Made once: look at it only."""
    return shapes_data(tmp_path_factory.mktemp("shapes"))


def test_every_shape_has_a_row_with_its_fastest_variant(shapes: FigureData) -> None:
    (left,) = FIGURES["shapes"](shapes).axes
    shapes = [label.get_text() for label in left.get_yticklabels()]
    assert shapes == [
        "64 x 1024 x 1024",
        "64 x 1024 x 16384",
        "64 x 4096 x 4096",
        "1024 x 1024 x 1024",
        "1024 x 4096 x 1024",
    ]
    rows = dict(zip([float(place) for place in left.get_yticks()], shapes, strict=True))
    shown = {rows[y]: x for x, y in drawn(left)}
    assert shown == pytest.approx({" x ".join(map(str, size)): speed for size, speed in FASTEST.items()})
    (words_,) = [text for text in left.texts if text.get_text() == "no result"]
    assert rows[words_.get_position()[1]] == "64 x 4096 x 4096"


def drawn(axis: Axes) -> list[tuple[float, float]]:
    """Places of the marks with a verdict."""
    found = [line for line in axis.lines if line.get_marker() in ("o", "s", "D")]
    return [(float(x), float(y)) for line in found for x, y in zip(*line.get_data(), strict=True)]


def test_a_shape_that_was_not_asked_for_is_not_missing(tmp_path: Path) -> None:
    variants = [{"kernel": "gemm_register_tile", "params": {"bm": 64}, "where": "m > 64 or k != 4096"}]
    given = shapes_data(tmp_path, variants=variants)
    # A shape counts in the dtypes it is asked for in: of fp16 there is no variant here.
    other = dataclasses.replace(given, sweep=dataclasses.replace(given.sweep, dtypes=("fp32", "fp16")))
    for one in (given, other):
        drawing = FIGURES["shapes"](one)
        assert "no result" not in words(drawing)
        assert len(drawing.axes[0].get_yticklabels()) == len(FASTEST)
        assert findings(one)[0].startswith("Over 4 shapes the fastest")


def test_rows_of_one_m_stand_together(shapes: FigureData) -> None:
    (left,) = FIGURES["shapes"](shapes).axes
    steps = [float(step) for step in np.diff(left.get_yticks())]
    assert steps[2] > 1.2 * steps[0]
    assert steps == pytest.approx([steps[0], steps[0], steps[2], steps[0]])


def test_the_mean_of_the_shapes_is_the_geometric_one(shapes: FigureData) -> None:
    left = FIGURES["shapes"](shapes).axes[0]
    mean = math.prod(FASTEST.values()) ** (1 / len(FASTEST))
    uprights = {
        line.get_linestyle(): float(line.get_xdata()[0])
        for line in left.lines
        if len(set(line.get_xdata())) == 1 and list(line.get_ydata()) == [0, 1]
    }
    assert uprights == pytest.approx({"-": 1.0, "--": mean})
    assert f"geometric mean of 4: {mean:.3f}" in words(left.figure)


def test_shapes_differ_by_verdict_in_colour_and_mark(shapes: FigureData) -> None:
    drawing = FIGURES["shapes"](shapes)
    assert [text.get_text() for text in drawing.legends[0].get_texts()] == [
        "faster: 2",
        "slower: 1",
        "tied: 1",
    ]
    looks = {
        (line.get_color(), line.get_marker())
        for line in drawing.axes[0].lines
        if line.get_marker() in ("o", "s", "D")
    }
    assert len({color for color, _ in looks}) == len({marker for _, marker in looks}) == 3


@pytest.mark.parametrize("factor", [1.0, 0.3, 3.0])
def test_ratios_stand_on_a_logarithmic_axis_that_shows_one(shapes: FigureData, factor: float) -> None:
    timings = shapes.timings.assign(**{end: factor * shapes.timings[end] for end in ENDS})
    axis = FIGURES["shapes"](dataclasses.replace(shapes, timings=timings)).axes[0]
    low, high = axis.get_xlim()
    assert axis.get_xscale() == "log"
    assert low < min(1, factor * 0.8 * 0.99)
    assert high > max(1, factor * 1.25 * 1.01)
    ticks = [tick for tick in axis.get_xticks() if low <= tick <= high]
    assert len(ticks) >= 3


def test_no_name_of_forty_shapes_is_cut_off(shapes: FigureData) -> None:
    sizes = [{"m": 64 * 2**i, "n": 57344, "k": 28672 + 64 * j} for i in range(5) for j in range(8)]
    rows = shapes.timings[shapes.timings["status"] == "ok"]
    each = [rows.iloc[[place % len(rows)]].assign(**size) for place, size in enumerate(sizes)]
    asked = (*sizes, *SHAPES[:2])
    entry = dataclasses.replace(shapes.sweep.entries[0], sizes=asked)
    sweep = dataclasses.replace(shapes.sweep, sizes=asked, entries=(entry,))
    many = dataclasses.replace(shapes, sweep=sweep, timings=pd.concat(each, ignore_index=True))
    drawing = FIGURES["shapes"](many)
    drawing.draw_without_rendering()
    width, height = drawing.get_size_inches() * drawing.dpi
    assert height < 1600
    assert min(label.get_fontsize() for label in drawing.axes[0].get_yticklabels()) >= 9.5, (
        "legible at 800 pixels"
    )
    (left,) = drawing.axes
    boxes = [label.get_window_extent() for label in left.get_yticklabels()]
    for box in boxes:
        assert 0 <= box.x0 <= box.x1 <= width
        assert 0 <= box.y0 <= box.y1 <= height
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in itertools.pairwise(boxes)), "none covers another"


def test_a_parameter_on_the_axis_has_a_panel_a_size_and_a_line_for_what_else_differs(parts: Sweeps) -> None:
    drawing = FIGURES["curves"](data(parts, "fp32_transpose", "curves", x="bk"))
    assert [axis.get_title() for axis in drawing.axes] == ["1024", "4096"]
    for axis in drawing.axes:
        assert [label.get_text() for label in axis.get_xticklabels()] == ["8", "16"]
    names = [text.get_text() for text in drawing.legends[0].get_texts()]
    assert {"bm 64", "bm 128"} <= {part for name in names for part in name.split(", ")}
    assert "(bk)" in drawing.legends[0].get_title().get_text(), "the axis in words"


def test_a_sweep_over_shapes_is_summed_up_by_their_mean(shapes: FigureData) -> None:
    given = shapes
    first, second = findings(given)
    mean = math.prod(FASTEST.values()) ** (1 / len(FASTEST))
    assert first == (
        f"Over 4 of 5 shapes the fastest variant has {mean:.3f} times the speed of cublas in the geometric mean: "
        "it is faster at 2, slower at 1, and tied at 1."
    )
    assert second == "The ratio runs from 0.800 (64x1024x16384) to 1.25 (64x1024x1024)."
    whole = dataclasses.replace(
        given,
        sweep=dataclasses.replace(
            given.sweep, sizes=tuple(size for size in given.sweep.sizes if size != SHAPES[0])
        ),
    )
    assert findings(whole)[0].startswith("Over 4 shapes the fastest")
    assert (
        "geometric"
        not in findings(dataclasses.replace(given, sweep=dataclasses.replace(given.sweep, figures=())))[0]
    )


def test_equal_data_give_equal_files(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    assert render(given) == render(given)


def test_a_published_figure_says_so(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "ladder")
    here = {"gpu": None, "timings_from": "published", "published": dict(given.environment)}
    published = dataclasses.replace(given, environment=here)
    assert "NVIDIA H200, published run, 2026-11-20" in words(FIGURES["ladder"](published))


def test_a_figure_of_several_days_names_the_first_and_the_last(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "ladder")
    later = given.sessions.assign(started="2026-11-28T08:00:00Z")
    several = dataclasses.replace(given, sessions=pd.concat([later, given.sessions]))
    assert "NVIDIA H200, 2026-11-20 to 2026-11-28" in words(FIGURES["ladder"](several))


def test_the_step_writes_what_the_workflow_expects(lab: Lab) -> None:
    sweep = lab.sweeps(["fp32_ladder"])["fp32_ladder"]
    expected = [lab.folder.figures / name for name in sweep.figure_names()]
    assert [path.name for path in expected] == [
        "fp32_ladder-1-ladder.png",
        "fp32_ladder-2-curves.png",
        "fp32_ladder-3-roofline.png",
    ]
    assert main(["--root", str(lab.root), "figures", str(lab.folder.root), "fp32_ladder"]) == 0
    assert all(path.is_file() for path in expected)


def test_asking_for_names_imports_no_plotting() -> None:
    code = "import sys, ladder.model.sweep; assert not {'matplotlib', 'seaborn', 'pandas'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "workflow", check=False)
    assert done.returncode == 0


@pytest.fixture(scope="module")
def published() -> RunData:
    return published_data()


def own_figure(data: RunData, sweep: str, kind: str) -> FigureData:
    part = data.parts[sweep]
    return part.drawn(next(figure for figure in part.sweep.figures if figure.kind == kind))


def test_a_variant_with_a_slow_baseline_of_its_own_says_so_and_heads_nothing(published: RunData) -> None:
    """Stores between the FFMAs are timed against a baseline with one block per multiprocessor."""
    given = own_figure(published, "fp32_buffering", "curves")
    assert set(given.own_baselines.values()) == {"min_blocks=1"}
    (own,) = (variant for variant in given.own_baselines if "deposits=between" in variant)
    assert given.here.set_index("variant")["speedup"].idxmax() == own
    assert "deposits=between" not in message(given)
    shown = words(FIGURES["curves"](given)).replace("\n", " ")
    assert "whose baseline is slower" in shown, "left out, and said"
    ranked = [
        row["variant"]
        for row in sections.timings(published.parts["fp32_buffering"])["by_regime"]["cold"].values()
    ]
    assert ranked.index(own) > 5
    # Where as many variants have one baseline as have another, none is a variant's own.
    assert not published.parts["fp32_padding"].own_baselines
    assert not published.parts["fp32_ladder"].own_baselines


def test_a_ladder_without_a_path_is_ranked_by_speed_or_by_what_costs_most(published: RunData) -> None:
    small = own_figure(published, "hopper_small", "ladder")
    assert re.match(r"“64 x 32[^”]*” (ties with cuBLAS|is fastest)", message(small))
    (axis,) = FIGURES["ladder"](small).axes
    speeds = [x for x, _ in sorted(marks(axis), key=lambda one: one[1])]
    assert speeds == sorted(speeds, reverse=True)
    ablation = own_figure(published, "fp32_ablation", "ladder")
    assert re.match(r"Without quadrants: \N{MINUS SIGN}\d+ %, the most of 14 changes", message(ablation))
    gains = FIGURES["ladder"](ablation).axes[0]
    assert gains.get_xlabel() == "speed with the change, over that of “all”"
    widths = [bar.get_width() for bar in gains.patches if isinstance(bar, Rectangle)]
    assert len(widths) == 14
    assert widths == sorted(widths), "what costs most first"


def cut_off(drawing: Drawing) -> list[str]:
    """Texts that reach over the edge. A tick outside of its axis is not drawn."""
    drawing.draw_without_rendering()
    width, height = drawing.get_size_inches() * drawing.dpi
    hidden = {
        id(tick.label1)
        for axis in drawing.axes
        for own, limits in ((axis.xaxis, axis.get_xlim()), (axis.yaxis, axis.get_ylim()))
        for tick in (*own.get_major_ticks(), *own.get_minor_ticks())
        if not min(limits) <= tick.get_loc() <= max(limits)
    }
    return [
        text.get_text()
        for text in drawing.findobj(Text)
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden
        for box in [text.get_window_extent()]
        if not (-1 <= box.x0 <= box.x1 <= width + 1 and -1 <= box.y0 <= box.y1 <= height + 1)
    ]


@pytest.fixture(scope="module")
def names(published: RunData) -> Mapping[str, str]:
    folder = Project(ROOT).published("nvidia-h200")
    return titles(published, Links(folder, folder.root, published))


@pytest.mark.parametrize("kind", FIGURES)
def test_no_published_figure_has_a_text_that_is_cut_off(
    published: RunData, names: Mapping[str, str], kind: str
) -> None:
    drawn = 0
    for part in published.parts.values():
        for figure, name in zip(part.sweep.figures, part.sweep.figure_names(), strict=True):
            if figure.kind == kind:
                assert not cut_off(FIGURES[kind](part.drawn(figure, names.get(name, "")))), name
                drawn += 1
    assert drawn

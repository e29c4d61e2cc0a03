"""Figures show results only, with intervals and the reference, and say so where there is nothing to show."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml
from checkout import published_data
from conftest import edit_yaml
from factory import Lab, failed
from ladder.cli.app import main
from ladder.model.folders import RunFolder
from ladder.model.sweep import Figure
from ladder.report.answers import titles
from ladder.report.document import TEMPLATES
from ladder.report.figures import lines, registry
from ladder.report.figures.base import factor_axis
from ladder.report.figures.curves import BELOW
from ladder.report.figures.registry import FIGURES, render
from ladder.report.links import Links
from ladder.report.titles import message
from ladder.results.run_data import RunData
from ladder.results.statistics import parameter
from ladder.results.sweep_data import FigureData, NoDataError, SweepData
from matplotlib.axes import Axes
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
    sweeps = {
        name: sweep
        for name, sweep in lab.sweeps().items()
        if lab.folder.sweep(name).is_dir()
    }
    return RunData.read(lab.folder, sweeps).parts


@pytest.fixture(scope="module")
def parts(lab: Lab) -> Sweeps:
    """Read once: look at it only."""
    return read(lab)


def data(parts: Sweeps, sweep: str, kind: str, **asked: Any) -> FigureData:
    part = parts[sweep]
    other = Figure.model_validate({"kind": kind, "caption": "A figure."})
    figure = next(
        (figure for figure in part.sweep.figures if figure.kind == kind), other
    )
    return part.drawn(figure.model_copy(update=asked))


def with_status(
    given: FigureData, status: str, reason: str, where: Any = True
) -> FigureData:
    """The same where those rows gave no result."""
    rows = pd.Series(where, given.timings.index).astype(bool)
    fields = {"status": status, "reason": reason}
    timings = given.timings.assign(
        **{name: given.timings[name].mask(rows, to) for name, to in fields.items()}
    )
    return dataclasses.replace(given, timings=timings)


def findings(data: FigureData) -> list[str]:
    return (
        TEMPLATES.get_template("findings.md.j2").render(data=data).strip().split("\n")
    )


def words(drawing: Drawing) -> str:
    return "\n".join(text.get_text() for text in drawing.findobj(Text)).replace(
        "\N{NO-BREAK SPACE}", " "
    )


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
    titled = dataclasses.replace(
        given, sweep=dataclasses.replace(given.sweep, title="$5 _ $6")
    )
    drawing = FIGURES[kind](titled)
    drawing.draw_without_rendering()
    assert "NVIDIA H200, 2026-11-20" in words(drawing)
    shown = [
        text.get_text()
        for text in drawing.findobj(Text)
        if "$" in text.get_text() and text.get_visible()
    ]
    assert [text.partition(" ·")[0] for text in shown] == ["$5 _ $6"], (
        "no tick needs it"
    )
    width, height = drawing.get_size_inches() * drawing.dpi
    assert width == 1152
    assert 400 < height < 2000


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
    given = data(
        parts, sweep, kind, at={name: extent - 1 for name, extent in largest.items()}
    )
    if kind in ("curves", "banks", "shapes"):  # of all sizes
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
        with_status(
            given, "incorrect", "wrong", given.timings["kernel"].eq("gemm_shared_tile")
        )
        for given in (data(parts, "fp32_ladder", kind) for kind in ("ladder", "curves"))
    )
    drawing = FIGURES["ladder"](ladder)
    assert len(marks(drawing.axes[-1])) == 4
    assert "no result: incorrect" in words(drawing)
    assert "shared tile" not in words(FIGURES["curves"](curves))


def marks(axis: Axes) -> list[tuple[float, float]]:
    """Places of an axis's round marks."""
    found = [line for line in axis.lines if line.get_marker() == "o"]
    return [
        (float(x), float(y))
        for line in found
        for x, y in zip(*line.get_data(), strict=True)
    ]


def test_bars_are_the_gains_over_the_rung_that_each_changes(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    path = lab.project.sweeps / "fp32_ladder.yaml"
    document = yaml.safe_load(path.read_text())
    changed = [
        "naive",
        "coalesced",
        "coalesced",
        "register tile",
    ]  # the shared tile is a branch
    for rung, name in zip(document["variants"][1:], changed, strict=True):
        rung["baseline"] = name
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    lab.record(["fp32_ladder"])
    lab.collect(["fp32_ladder"])
    drawing = FIGURES["ladder"](data(read(lab), "fp32_ladder", "ladder"))
    gains, speeds = drawing.axes
    labels = [label.get_text().strip() for label in gains.get_yticklabels()]
    assert labels == [
        "naive",
        "coalesced",
        "shared tile",
        "register tile",
        "transposed A",
    ]
    assert {"6.0 times", "+78 %", "5.9 times", "+25 %"} <= set(
        words(drawing).split("\n")
    )
    assert "or over the one named: (on …)" in gains.get_xlabel()
    assert sorted(x for x, _ in marks(speeds)) == pytest.approx(
        [0.015, 0.09, 0.16, 0.528, 0.66]
    )
    assert (gains.get_xscale(), speeds.get_xscale()) == ("log", "log")
    bars = {
        tuple(bar.get_facecolor())
        for bar in gains.patches
        if isinstance(bar, Rectangle)
    }
    (legend,) = drawing.legends
    assert bars == {tuple(patch.get_facecolor()) for patch in legend.get_patches()}, (
        "every colour has a key"
    )


@pytest.mark.published
def test_titles_are_short_and_name_cublas_as_people_do(published: RunData) -> None:
    folder = RunFolder(ROOT / "results/published/nvidia-h200")
    said = titles(published, Links(folder, folder.root, published))
    for part in published.parts.values():
        files = part.sweep.figure_names() if len(part.ok) else []
        for figure, file in zip(part.sweep.figures, files, strict=False):
            title = message(part.drawn(figure, said.get(file, "")))
            assert len(title.split()) <= 12, title
            assert not re.search(r"\bcublas|the faster of", title), title


def test_curves_show_ratios_at_their_true_sizes_with_the_fastest_rate_below(
    parts: Sweeps,
) -> None:
    given = data(parts, "fp32_ladder", "curves")
    (axis,) = FIGURES["curves"](given).axes
    assert axis.get_ylabel() == "speed relative to\ncuBLAS"
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    wanted = zip(given.ok["n"], given.ok["speedup"], strict=True)
    assert {(x, round(y, 6)) for x, y in marks(axis)} == {
        (n, round(speed, 6)) for n, speed in wanted
    }
    best = given.ok[given.ok["n"] == 4096]["tflops"].max()
    assert f"4096\n{best:.1f}" in [label.get_text() for label in axis.get_xticklabels()]


ENDS = ["speedup", "speedup_low", "speedup_high"]


def test_a_line_is_named_at_its_end_in_its_colour(parts: Sweeps) -> None:
    (axis,) = FIGURES["curves"](data(parts, "fp32_ladder", "curves")).axes
    colors = {line.get_label(): line.get_color() for line in axis.lines}
    names = line_names(axis)
    assert len(names) == 5, "cuBLAS is far above these lines"
    assert all(text.get_color() == colors[text.get_text()] for text in names)


def test_what_leaves_the_axis_of_curves_below_has_its_number_at_the_edge(
    parts: Sweeps,
) -> None:
    given = data(parts, "fp32_ladder", "curves")
    slow = (given.timings["n"] == given.timings["n"].max()) & (
        given.timings["rung"] == "naive"
    )
    speed = given.timings["speedup"].mask(slow, 0.0123).mask(~slow, 0.9)
    timings = given.timings.assign(**dict.fromkeys(ENDS, speed))
    (axis,) = FIGURES["curves"](dataclasses.replace(given, timings=timings)).axes
    assert [text.get_text() for text in axis.texts if text.get_gid() == BELOW] == [
        "0.012"
    ]
    assert [line.get_marker() for line in axis.lines].count("v") == 1


def test_of_many_curves_those_are_drawn_that_are_ahead_somewhere(
    parts: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST", 2)
    given = data(parts, "fp32_ladder", "curves")
    small = given.timings["n"] == 512
    speeds = given.timings["speedup"].mask(small, 0.1 * given.timings["speedup"])
    naive = small & (
        given.timings["rung"] == "naive"
    )  # slow, but at 512 all others are slower
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
    timings["params"] = [
        json.dumps(params | {"twice_bk": 2 * params["bk"]}) for params in texts
    ]
    more = dataclasses.replace(given, timings=timings)
    assert more.names == before
    assert "twice_bk" in more.unnamed()[0]
    assert len(set(before.values())) == len(before)


def test_panels_name_their_dtype_once_and_a_name_has_one_colour_in_all(
    parts: Sweeps,
) -> None:
    given = data(parts, "fp32_ladder", "curves")
    other = given.timings.assign(
        dtype="tf32", variant=given.timings["variant"] + "-tf32"
    )
    both = dataclasses.replace(
        given,
        timings=pd.concat([given.timings, other], ignore_index=True),
        sweep=dataclasses.replace(given.sweep, dtypes=("fp32", "tf32")),
    )
    axes = FIGURES["curves"](both).axes
    assert [axis.get_title() for axis in axes] == ["fp32", "tf32"]
    first, second = (
        {text.get_text(): text.get_color() for text in line_names(axis)}
        for axis in axes
    )
    assert len(first) >= 4
    assert first == second, "and no name has its dtype"
    assert len({*first.values()}) == len(first), "no colour twice"


def test_variants_of_several_baselines_are_shares_of_the_fastest(parts: Sweeps) -> None:
    """A speed-up over one baseline and one over another do not compare."""
    (axis,) = FIGURES["curves"](data(parts, "fp32_transpose", "curves")).axes
    assert axis.get_ylabel() == "share of the speed\nof the fastest"
    assert max(y for _, y in marks(axis)) == pytest.approx(1.0)


def test_a_heatmap_shows_the_best_and_says_why_a_cell_is_empty(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    bm, bk = (parameter(given.timings, name) for name in ("bm", "bk"))
    drawing = FIGURES["heatmap"](
        with_status(given, "launch_error", "no", bm.eq(64) & bk.eq(8))
    )
    shown = [text.get_text() for text in drawing.axes[0].texts]
    assert [text for text in shown if text] == [*["1.25\n1.24 to 1.26"] * 3, "a"]
    assert "a: launch error: no" in words(drawing)


def test_a_heatmap_leaves_out_values_that_were_not_tried(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    small = parameter(given.timings, "bm").eq(64)
    figure = FIGURES["heatmap"](with_status(given, "unsupported", "too small", small))
    assert "64" not in words(figure).split()


def test_a_heatmap_neither_shows_nor_names_a_kernel_without_its_parameters(
    parts: Sweeps,
) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    other = given.here.head(1).assign(variant="other", params="{}")
    other[["speedup", "speedup_low", "speedup_high"]] *= 9.0
    both = dataclasses.replace(
        given, timings=pd.concat([given.timings, other], ignore_index=True)
    )
    drawings = [FIGURES["heatmap"](one) for one in (both, given)]
    assert words(drawings[0]) == words(drawings[1])


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


def test_the_stencil_figure_has_a_panel_a_dtype(parts: Sweeps) -> None:
    one = data(parts, "stencil_reach", "stencil")
    sweep = dataclasses.replace(one.sweep, dtypes=("int32", "fp32"))
    timings = pd.concat(
        [one.timings, one.timings.assign(dtype="fp32")], ignore_index=True
    )
    given = dataclasses.replace(one, timings=timings, sweep=sweep)
    axes = FIGURES["stencil"](given).axes
    assert {axis.get_title().split(",")[0] for axis in axes} == {"int32", "fp32"}
    rows = given.here[given.here["kernel"] == "stencil_register_cache"]
    shown = {round(y, 6) for axis in axes for _, y in marks(axis)}
    assert {round(float(value), 6) for value in rows["speedup"]} <= shown


def test_three_views_of_a_bank_conflict_agree(parts: Sweeps) -> None:
    axis = FIGURES["banks"](data(parts, "bank_stride", "banks")).axes[0]
    model = [float(dash[0][1]) for dash in axis.collections[0].get_segments()]  # type: ignore[attr-defined]
    waves, cycles = (
        [float(value) for value in line.get_ydata()] for line in axis.lines[:2]
    )
    assert waves == pytest.approx(model)
    assert cycles == pytest.approx(model, rel=0.02)
    assert max(model) == 32


def test_banks_take_a_panel_per_other_parameter(parts: Sweeps) -> None:
    given = data(parts, "bank_stride", "banks")
    halves = []
    for width in (8, 16):
        rows = given.timings.copy()
        rows["params"] = [
            json.dumps(json.loads(text) | {"width": width}) for text in rows["params"]
        ]
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
    marks = {
        round(float(line.get_xdata()[0]), 2)
        for line in axis.lines
        if len(line.get_xdata()) == 1
    }
    assert marks == {round(2 * 4096**3 / 2e9, 2)}


def test_the_roof_is_in_the_picture_of_what_memory_bounds(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "roofline")
    slow = given.timings.assign(gbytes_per_s=given.timings["gbytes_per_s"] * 1e4)
    axis = FIGURES["roofline"](dataclasses.replace(given, timings=slow)).axes[0]
    ridge = given.gpu["fp32_peak_tflops"] / given.gpu["copy_gbytes_per_s"] * 1e3
    assert axis.get_xlim()[0] < ridge < axis.get_xlim()[1]


def test_ends_that_are_nearly_alike_have_different_labels(parts: Sweeps) -> None:
    axis = FIGURES["curves"](data(parts, "fp32_ladder", "curves")).axes[0]
    factor_axis(axis, 0.00046479, 0.00046502)
    labels = [text.get_text() for text in axis.get_xticklabels()]
    assert len(labels) >= 3
    assert len({*labels}) == len(labels)


def test_what_is_wrong_with_a_picture_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path)
    rung = "\N{CJK UNIFIED IDEOGRAPH-53CC}\N{CJK UNIFIED IDEOGRAPH-7F13}"
    edit_yaml(
        lab.project.sweeps / "tensor_ladder.yaml",
        lambda sweep: sweep["variants"][0].update(rung=rung),
    )
    lab.record(["tensor_ladder"])
    lab.collect(["tensor_ladder"])
    lab.folder.figures.mkdir()
    registry.draw_sweep(read(lab)["tensor_ladder"], lab.folder.figures, {})
    picture = lab.folder.figures / "tensor_ladder-1-ladder.png"
    (said,) = caplog.messages
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
FASTEST = {
    (64, 1024, 1024): 1.25,
    (64, 1024, 16384): 0.8,
    (1024, 1024, 1024): 1.001,
    (1024, 4096, 1024): 1.1,
}
"""Speed of the fastest variant, BM = 64 and BK = 16; the others are slower. 64 x 4096 x 4096 has no result."""


def shapes_data(root: Path, **variant: Any) -> FigureData:
    """A sweep over rectangles."""
    lab = Lab(root)
    params = {"bm": [64, 128], "bk": [8, 16], "transpose_a": [0, 1]}
    sweep: dict[str, Any] = {
        "title": "Shapes",
        "question": "q?",
        "problem": "gemm",
        "dtypes": ["fp32"],
        "sizes": SHAPES,
        "variants": [{"kernel": "gemm_register_tile", "params": params} | variant],
        "references": ["cublas"],
        "regimes": ["cold"],
        "figures": [{"kind": "shapes", "caption": "c"}],
    }
    (lab.project.sweeps / "shapes.yaml").write_text(yaml.safe_dump(sweep))

    def timed(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        speed = FASTEST.get(tuple(cell.size.values()))
        if speed is None:
            return failed("timeout", "t")(record)
        for name, best in (("bm", 64), ("bk", 16), ("transpose_a", 1)):
            speed *= 1 if cell.variant.params[name] == best else 0.9
        ends = {
            "speedup": speed,
            "speedup_low": speed * 0.99,
            "speedup_high": speed * 1.01,
        }
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
    (axis,) = FIGURES["shapes"](shapes).axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names == [
        " x ".join(map(str, size.values()))
        for size in sorted(SHAPES, key=lambda size: [*size.values()])
    ]
    rows = dict(zip(map(float, axis.get_yticks()), names, strict=True))
    lines = [
        line.get_data() for line in axis.lines if line.get_marker() in ("o", "s", "D")
    ]
    shown = {
        rows[float(y)]: float(x)
        for xs, ys in lines
        for x, y in zip(xs, ys, strict=True)
    }
    assert shown == pytest.approx(
        {" x ".join(map(str, size)): speed for size, speed in FASTEST.items()}
    )
    (missing,) = [text for text in axis.texts if text.get_text() == "no result"]
    assert rows[float(missing.xy[1])] == "64 x 4096 x 4096"


def test_a_shape_that_was_not_asked_for_is_not_missing(tmp_path: Path) -> None:
    given = shapes_data(tmp_path, params={"bm": 64}, where="m > 64 or k != 4096")
    # A shape counts in the dtypes it is asked for in: of fp16 there is no variant here.
    other = dataclasses.replace(
        given, sweep=dataclasses.replace(given.sweep, dtypes=("fp32", "fp16"))
    )
    for one in (given, other):
        assert "no result" not in words(FIGURES["shapes"](one))
        assert findings(one)[0].startswith("Over 4 shapes the fastest")


def test_the_mean_of_the_shapes_is_the_geometric_one(shapes: FigureData) -> None:
    mean = math.prod(FASTEST.values()) ** (1 / len(FASTEST))
    assert f"geometric mean of 4: {mean:.3f}" in words(FIGURES["shapes"](shapes))


def test_shapes_differ_by_verdict(shapes: FigureData) -> None:
    (legend,) = FIGURES["shapes"](shapes).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "faster: 2",
        "slower: 1",
        "tied: 1",
    ]


def test_a_parameter_on_the_axis_has_a_panel_a_size_and_a_line_for_what_else_differs(
    parts: Sweeps,
) -> None:
    drawing = FIGURES["curves"](data(parts, "fp32_transpose", "curves", x="bk"))
    assert [axis.get_title() for axis in drawing.axes] == ["1024", "4096"]
    for axis in drawing.axes:
        assert [label.get_text() for label in axis.get_xticklabels()] == ["8", "16"]
    names = [text.get_text() for text in drawing.legends[0].get_texts()]
    assert {"bm 64", "bm 128"} <= {part for name in names for part in name.split(", ")}
    assert "(bk)" in drawing.legends[0].get_title().get_text(), "the axis in words"


def test_a_sweep_over_shapes_is_summed_up_by_their_mean(shapes: FigureData) -> None:
    mean = math.prod(FASTEST.values()) ** (1 / len(FASTEST))
    assert findings(shapes) == [
        f"Over 4 of 5 shapes the fastest variant has {mean:.3f} times the speed of cublas in the geometric mean: "
        "it is faster at 2, slower at 1, and tied at 1.",
        "The ratio runs from 0.800 (64x1024x16384) to 1.25 (64x1024x1024).",
    ]


def test_equal_data_give_equal_files(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    assert render(given) == render(given)


def test_a_published_figure_says_so(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "ladder")
    here = {
        "gpu": None,
        "timings_from": "published",
        "published": dict(given.environment),
    }
    published = dataclasses.replace(given, environment=here)
    assert "NVIDIA H200, published run, 2026-11-20" in words(
        FIGURES["ladder"](published)
    )


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
    assert (
        main(["--root", str(lab.root), "figures", str(lab.folder.root), "fp32_ladder"])
        == 0
    )
    assert all(path.is_file() for path in expected)


@pytest.fixture(scope="module")
def published() -> RunData:
    return published_data()


def own_figure(data: RunData, sweep: str, kind: str) -> FigureData:
    part = data.parts[sweep]
    return part.drawn(
        next(figure for figure in part.sweep.figures if figure.kind == kind)
    )


def test_a_variant_with_a_slow_baseline_of_its_own_says_so_and_heads_nothing(
    published: RunData,
) -> None:
    """Stores between the FFMAs are timed against a baseline with one block per multiprocessor."""
    given = own_figure(published, "fp32_buffering", "curves")
    (own,) = (
        variant for variant in given.own_baselines if "deposits=between" in variant
    )
    assert given.here.set_index("variant")["speedup"].idxmax() == own
    shown = words(FIGURES["curves"](given)).replace("\n", " ")
    assert "whose baseline is slower" in shown, "left out, and said"


def test_a_ladder_without_a_path_is_ranked_by_speed_or_by_what_costs_most(
    published: RunData,
) -> None:
    (axis,) = FIGURES["ladder"](own_figure(published, "hopper_small", "ladder")).axes
    speeds = [x for x, _ in sorted(marks(axis), key=lambda mark: mark[1])]
    assert speeds == sorted(speeds, reverse=True)
    gains = FIGURES["ladder"](own_figure(published, "fp32_ablation", "ladder")).axes[0]
    assert gains.get_xlabel() == "speed with the change, over that of “all”"
    widths = [bar.get_width() for bar in gains.patches if isinstance(bar, Rectangle)]
    assert len(widths) == 14
    assert widths == sorted(widths), "what costs most first"

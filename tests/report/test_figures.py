"""Figures show results only, with intervals and the reference, and say so where there is nothing to show."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from checkout import PUBLISHED, published_data
from conftest import edit_yaml
from factory import ENDS, Lab
from ladder.cli.app import main
from ladder.model.sweep import Figure
from ladder.report.answers import titles
from ladder.report.document import TEMPLATES
from ladder.report.figures import lines, registry
from ladder.report.figures.registry import FIGURES, render
from ladder.report.ladder_steps import steps
from ladder.report.links import Links
from ladder.report.titles import change_label, title_of
from ladder.results.run_data import RunData
from ladder.results.statistics import parameter
from ladder.results.sweep_data import FigureData, NoDataError, SweepData
from ladder.results.verdicts import verdicts
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.patches import Rectangle
from matplotlib.text import Text

CASES = [
    ("fp32_ladder", "ladder"),
    ("fp32_ladder", "curves"),
    ("fp32_ladder", "roofline"),
    ("fp32_transpose", "heatmap"),
    ("bank_stride", "banks"),
    ("fp32_ladder", "shapes"),
]
Sweeps = Mapping[str, SweepData]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.record_and_collect()
    return lab


@pytest.fixture(scope="module")
def parts(lab: Lab) -> Sweeps:
    """Read once: look at it only."""
    return RunData.read(lab.folder, lab.sweeps()).parts


@pytest.fixture(scope="module")
def published() -> RunData:
    return published_data()


def data(parts: Sweeps, sweep: str, kind: str, **asked: Any) -> FigureData:
    part = parts[sweep]
    figure = Figure.model_validate({"kind": kind, "caption": "A figure."})
    for of_sweep in part.sweep.figures:
        if of_sweep.kind == kind:
            figure = of_sweep
    return part.drawn(figure.model_copy(update=asked))


def with_timings(given: FigureData, *more: pd.DataFrame, **columns: Any) -> FigureData:
    timings = pd.concat([given.timings.assign(**columns), *more], ignore_index=True)
    return dataclasses.replace(given, timings=timings)


def with_status(
    given: FigureData, status: str, reason: str, where: Any = True
) -> FigureData:
    """The same where those rows gave no result."""
    rows = pd.Series(where, given.timings.index).astype(bool)
    return with_timings(
        given,
        status=given.timings["status"].mask(rows, status),
        reason=given.timings["reason"].mask(rows, reason),
    )


def words(drawing: Drawing) -> str:
    texts = [text.get_text() for text in drawing.findobj(Text)]
    return "\n".join(texts).replace("\N{NO-BREAK SPACE}", " ")


def marks(axis: Axes) -> list[tuple[float, float]]:
    """Places of an axis's marks."""
    places = list[tuple[float, float]]()
    for line in axis.lines:
        if line.get_marker() in ("o", "s", "D"):
            places += zip(*line.get_data(), strict=True)
    return places


def legend_of(drawing: Drawing) -> list[str]:
    (legend,) = drawing.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(("sweep", "kind"), CASES)
def test_every_kind_names_device_and_date_and_a_dollar_is_no_mathematics(
    parts: Sweeps, sweep: str, kind: str
) -> None:
    given = data(parts, sweep, kind)
    titled = dataclasses.replace(given.sweep, title="$5 _ $6")
    drawing = FIGURES[kind](dataclasses.replace(given, sweep=titled))
    drawing.draw_without_rendering()
    assert "$5 _ $6" in words(drawing)
    assert "NVIDIA H200, 2026-11-20" in words(drawing)
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
    assert title_of(given).partition(":")[0] == given.sweep.title
    assert render(given).startswith(b"\x89PNG")


def test_no_two_figures_of_a_sweep_have_the_same_title(published: RunData) -> None:
    for part in published.parts.values():
        titled = [title_of(part.drawn(figure)) for figure in part.sweep.figures]
        assert len({*titled}) == len(titled), titled
    drawn = data(published.parts, "fp32_tiles", "heatmap")
    assert title_of(drawn) == "144 tiles: tn by tm by bk, 4096"


def test_every_kind_the_schema_knows_can_be_drawn() -> None:
    kinds = Figure.model_json_schema()["properties"]["kind"]["enum"]
    assert sorted(kinds) == sorted(FIGURES) == sorted({kind for _, kind in CASES})


def test_a_ladder_is_drawn_whole_but_an_incorrect_rung_has_no_bar(
    parts: Sweeps,
) -> None:
    given = data(parts, "fp32_ladder", "ladder")
    wrong = given.timings["kernel"].eq("gemm_shared_tile")
    drawing = FIGURES["ladder"](with_status(given, "incorrect", "wrong", wrong))
    shown = words(drawing)
    assert all(entry.rung in shown for entry in given.sweep.entries)
    assert "no result: incorrect" in shown
    assert len(marks(drawing.axes[-1])) == 4
    curves = data(parts, "fp32_ladder", "curves")
    drawing = FIGURES["curves"](with_status(curves, "incorrect", "wrong", wrong))
    assert "shared tile" not in words(drawing)


def test_bars_are_the_gains_over_the_rung_that_each_changes(
    published: RunData,
) -> None:
    given = data(published.parts, "fp32_ladder", "ladder")
    drawing = FIGURES["ladder"](given)
    gains, speeds = drawing.axes
    assert (gains.get_xscale(), speeds.get_xscale()) == ("log", "log")
    known = [step.gain.value for step in steps(given) if step.gain.known]
    widths = [bar.get_width() for bar in gains.patches if isinstance(bar, Rectangle)]
    assert sorted(1 + width for width in widths) == pytest.approx(sorted(known))
    shown = {text.get_text() for text in gains.texts}
    assert {change_label(gain) for gain in known} == shown
    from_top = sorted(marks(speeds), key=lambda mark: mark[1])
    assert [x for x, _ in from_top] == pytest.approx(
        [step.row["speedup"] for step in steps(given)]
    )
    (legend,) = drawing.legends
    colours = {patch.get_facecolor() for patch in legend.get_patches()}
    assert {bar.get_facecolor() for bar in gains.patches} == colours
    assert len(colours) == 2, "the path and the branches"


def test_rungs_with_baselines_of_their_own_are_shown_by_their_rates(
    published: RunData,
) -> None:
    """Causal attention is timed over a causal rung: 2 times its speed is no place beside the others."""
    for sweep in ("attention", "attention_64"):
        given = data(published.parts, sweep, "ladder")
        speeds = FIGURES["ladder"](given).axes[-1]
        from_top = sorted(marks(speeds), key=lambda mark: mark[1])
        assert [x for x, _ in from_top] == pytest.approx(
            [step.row["tflops"] for step in steps(given)]
        )
        assert speeds.get_xlabel() == "TFLOP/s"


@pytest.mark.published
def test_titles_are_short_and_name_cublas_as_people_do(published: RunData) -> None:
    said = titles(published, Links(PUBLISHED, PUBLISHED.root, published))
    for part in published.parts.values():
        files = part.sweep.figure_names() if len(part.ok) else []
        for figure, file in zip(part.sweep.figures, files, strict=False):
            title = title_of(part.drawn(figure, said.get(file, "")))
            assert len(title.split()) <= 12, title
            assert not re.search(r"\bcublas|the faster of", title), title


def test_curves_show_ratios_at_their_true_sizes(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "curves")
    drawing = FIGURES["curves"](given)
    (axis,) = drawing.axes
    assert axis.get_ylabel() == "speed relative to cuBLAS"
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")
    drawn = given.ok[given.ok["rung"].isin(legend_of(drawing))]
    wanted = zip(drawn["n"], drawn["speedup"], strict=True)
    assert {*marks(axis)} == {*wanted}


def test_a_line_that_is_far_slower_at_every_size_is_neither_drawn_nor_named(
    parts: Sweeps,
) -> None:
    given = data(parts, "fp32_ladder", "curves")
    drawing = FIGURES["curves"](given)
    (axis,) = drawing.axes
    fastest = given.ok.groupby("rung")["speedup"].max()
    bottom = 0.85 * min(given.ok.groupby("n")["speedup"].max().min(), 1)
    near = {*fastest[fastest >= bottom].index}
    assert {*legend_of(drawing)} == {*near, "cuBLAS"}
    assert f"{len(near)} of {len(fastest)} variants" in words(drawing)
    assert all(max(line.get_ydata()) >= axis.get_ylim()[0] for line in axis.lines)


def test_of_many_curves_those_are_drawn_that_are_ahead_somewhere(
    parts: Sweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST", 2)
    given = data(parts, "fp32_ladder", "curves")
    small = given.timings["n"] == 512
    speeds = given.timings["speedup"].mask(small, 0.1 * given.timings["speedup"])
    # Slow, but at 512 all others are slower.
    naive = small & (given.timings["rung"] == "naive")
    drawing = FIGURES["curves"](with_timings(given, speedup=speeds.mask(naive, 0.2)))
    assert legend_of(drawing) == ["transposed A", "naive", "cuBLAS"]
    assert "2 of 5 variants" in words(drawing)


def test_parameters_that_change_together_are_named_once(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "curves")
    params = [json.loads(text) for text in given.timings["params"]]
    more = with_timings(
        given,
        params=[json.dumps(each | {"twice_bk": 2 * each["bk"]}) for each in params],
    )
    assert more.names == given.names
    assert "twice_bk" in more.unnamed()[0]


def test_curves_have_a_panel_a_dtype_and_no_name_has_its_dtype(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "curves")
    variants = given.timings["variant"] + "-tf32"
    other = given.timings.assign(dtype="tf32", variant=variants)
    both = dataclasses.replace(
        with_timings(given, other),
        sweep=dataclasses.replace(given.sweep, dtypes=("fp32", "tf32")),
    )
    drawing = FIGURES["curves"](both)
    assert [axis.get_title() for axis in drawing.axes] == ["fp32", "tf32"]
    assert legend_of(drawing) == legend_of(FIGURES["curves"](given))


def test_variants_of_several_baselines_are_shares_of_the_fastest(parts: Sweeps) -> None:
    """A speed-up over one baseline and one over another do not compare."""
    (axis,) = FIGURES["curves"](data(parts, "fp32_transpose", "curves")).axes
    assert axis.get_ylabel().replace("\n", " ") == "share of the speed of the fastest"
    assert max(y for _, y in marks(axis)) == pytest.approx(1.0)


def test_a_parameter_on_the_axis_has_a_panel_a_size_and_a_line_for_what_else_differs(
    parts: Sweeps,
) -> None:
    drawing = FIGURES["curves"](data(parts, "fp32_transpose", "curves", x="bk"))
    assert [axis.get_title() for axis in drawing.axes] == ["1024", "4096"]
    for axis in drawing.axes:
        assert [label.get_text() for label in axis.get_xticklabels()] == ["8", "16"]
    assert {"bm 64", "bm 128"} <= {*legend_of(drawing)}
    assert "(bk)" in drawing.legends[0].get_title().get_text(), "the axis in words"


def test_curves_over_a_parameter_say_where_registers_spill(parts: Sweeps) -> None:
    drawing = FIGURES["curves"](data(parts, "stencil_reach", "curves"))
    assert {axis.get_title().partition(",")[0] for axis in drawing.axes} == {
        "coarsen 1",
        "coarsen 2",
        "coarsen 4",
        "coarsen 8",
    }
    label = "hollow: registers spill to local memory"
    assert label in legend_of(drawing)
    radii = {1, 2, 4, 6, 8, 12, 16}
    hollow = {
        sorted(radii)[int(place)]
        for axis in drawing.axes
        for line in axis.lines
        if line.get_label() == label
        for place in line.get_xdata()
    }
    assert hollow == {12, 16}


def test_a_heatmap_shows_the_best_and_says_why_a_cell_is_empty(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    bm, bk = (parameter(given.timings, name) for name in ("bm", "bk"))
    failing = with_status(given, "launch_error", "no", bm.eq(64) & bk.eq(8))
    drawing = FIGURES["heatmap"](failing)
    shown = [text.get_text() for text in drawing.axes[0].texts]
    assert sorted(shown) == [*["1.25\n1.24 to 1.26"] * 3, "a"]
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
    other[[*ENDS]] *= 9.0
    both = with_timings(given, other)
    assert title_of(both) == title_of(given)
    assert words(FIGURES["heatmap"](both)) == words(FIGURES["heatmap"](given))


def test_three_views_of_a_bank_conflict_agree(parts: Sweeps) -> None:
    (axis,) = FIGURES["banks"](data(parts, "bank_stride", "banks")).axes
    dashes = axis.collections[0].get_segments()  # type: ignore[attr-defined]
    model = [float(dash[0][1]) for dash in dashes]
    waves, cycles = (line.get_ydata() for line in axis.lines)
    assert waves == pytest.approx(model)
    assert cycles == pytest.approx(model, rel=0.02)
    assert max(model) == 32


def test_banks_take_a_panel_per_other_parameter(parts: Sweeps) -> None:
    given = data(parts, "bank_stride", "banks")
    params = [json.loads(text) for text in given.timings["params"]]
    narrow, wide = (
        [json.dumps(each | {"width": width}) for each in params] for width in (8, 16)
    )
    other = given.timings.assign(params=wide)
    axes = FIGURES["banks"](with_timings(given, other, params=narrow)).axes
    assert [axis.get_title() for axis in axes] == ["width 8", "width 16"]


def test_a_roofline_says_whether_its_bytes_were_counted(
    parts: Sweeps, published: RunData
) -> None:
    drawing = FIGURES["roofline"](data(parts, "fp32_ladder", "roofline"))
    assert "each operand moved once" in drawing.axes[0].get_xlabel()
    given = data(published.parts, "fp32_ladder", "roofline")
    (axis,) = FIGURES["roofline"](given).axes
    assert "counted by the profiler" in axis.get_xlabel()
    rates = {round(rate, 6) for rate in given.here["tflops"]}
    assert {round(y, 6) for _, y in axis.collections[0].get_offsets()} <= rates


def test_the_roof_is_in_the_picture_of_what_memory_bounds(parts: Sweeps) -> None:
    given = data(parts, "fp32_ladder", "roofline")
    slow = with_timings(given, gbytes_per_s=given.timings["gbytes_per_s"] * 1e4)
    (axis,) = FIGURES["roofline"](slow).axes
    ridge = given.gpu["fp32_peak_tflops"] / given.gpu["copy_gbytes_per_s"] * 1e3
    assert axis.get_xlim()[0] < ridge < axis.get_xlim()[1]


def test_what_is_wrong_with_a_picture_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(tmp_path)
    rung = "\N{CJK UNIFIED IDEOGRAPH-53CC}\N{CJK UNIFIED IDEOGRAPH-7F13}"
    edit_yaml(
        lab.project.sweeps / "tensor_ladder.yaml",
        lambda sweep: sweep["variants"][0].update(rung=rung),
    )
    lab.record_and_collect(["tensor_ladder"])
    parts = RunData.read(lab.folder, lab.sweeps(["tensor_ladder"])).parts
    registry.draw_sweep(parts["tensor_ladder"], tmp_path, {})
    picture = tmp_path / "tensor_ladder-1-ladder.png"
    (said,) = caplog.messages
    assert said.startswith(f"warning: {picture}: Glyph 21452 ")
    assert said.endswith(" and 1 more")
    assert picture.is_file()


def findings(data: FigureData) -> list[str]:
    text = TEMPLATES.get_template("findings.md.j2").render(data=data)
    return text.strip().split("\n")


def test_every_shape_has_a_row_with_its_fastest_variant_and_the_mean_is_geometric(
    published: RunData,
) -> None:
    given = data(published.parts, "fp32_shapes", "shapes")
    missing = given.timings["m"].eq(33)
    given = with_status(given, "timeout", "t", missing)
    drawing = FIGURES["shapes"](given)
    (axis,) = drawing.axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert len(names) == len(given.sweep.shapes())
    best = given.fastest_by_size
    sizes = best[["m", "n", "k"]].astype(int).astype(str).agg(" x ".join, axis=1)
    shown = {names[int(place)]: speed for speed, place in marks(axis)}
    assert shown == dict(zip(sizes, best["speedup"], strict=True))
    (text,) = axis.texts
    assert names[int(text.get_position()[1])] == "33 x 37 x 7"
    mean = math.prod(best["speedup"]) ** (1 / len(best))
    assert f"geometric mean of {len(best)}: {mean:.3f}" in legend_of(drawing)
    for verdict, count in verdicts(best).value_counts().items():
        assert f"{verdict}: {count}" in legend_of(drawing)
    first = findings(given)[0]
    assert first.startswith(f"Over {len(best)} of {len(names)} shapes the fastest")
    assert f"{mean:.3f} times the speed of" in first


def test_equal_data_give_equal_files(parts: Sweeps) -> None:
    given = data(parts, "fp32_transpose", "heatmap")
    assert render(given) == render(given)


def test_a_published_figure_says_so_and_names_the_first_and_the_last_day(
    parts: Sweeps,
) -> None:
    given = data(parts, "fp32_ladder", "ladder")
    later = given.sessions.assign(started="2026-11-28T08:00:00Z")
    published = dataclasses.replace(
        given,
        environment={"timings_from": "published", "published": given.environment},
        sessions=pd.concat([later, given.sessions]),
    )
    shown = words(FIGURES["ladder"](published))
    assert "NVIDIA H200, published run, 2026-11-20 to 2026-11-28" in shown


def test_the_step_writes_what_the_workflow_expects(lab: Lab) -> None:
    command = ["--root", str(lab.root), "figures", str(lab.folder.root), "fp32_ladder"]
    assert main(command) == 0
    for name in ("1-ladder", "2-curves", "3-roofline"):
        assert (lab.folder.figures / f"fp32_ladder-{name}.png").is_file()


def test_a_variant_with_a_slow_baseline_of_its_own_says_so_and_heads_nothing(
    published: RunData,
) -> None:
    """Stores between the FFMAs are timed against a baseline with one block per multiprocessor."""
    given = data(published.parts, "fp32_buffering", "curves")
    fastest = given.here.set_index("variant")["speedup"].idxmax()
    assert "deposits=between" in fastest
    assert fastest in given.own_baselines
    assert "whose baseline is slower" in words(FIGURES["curves"](given))


def test_a_ladder_without_a_path_is_ranked_by_speed_or_by_what_costs_most(
    published: RunData,
) -> None:
    ranked = FIGURES["ladder"](data(published.parts, "hopper_small", "ladder"))
    (axis,) = ranked.axes
    speeds = [x for x, _ in sorted(marks(axis), key=lambda mark: mark[1])]
    assert speeds == sorted(speeds, reverse=True)
    ablation = FIGURES["ladder"](data(published.parts, "fp32_ablation", "ladder"))
    gains = ablation.axes[0]
    assert gains.get_xlabel() == "speed with the change, over that of “all”"
    widths = [bar.get_width() for bar in gains.patches if isinstance(bar, Rectangle)]
    assert len(widths) == 14
    assert widths == sorted(widths), "what costs most first"

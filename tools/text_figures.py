"""The figures of docs/texts and docs/ladders, drawn from published tables, machine code and the kernels' headers.

`PYTHONPATH=workflow python tools/text_figures.py` writes docs/texts/*.png and docs/ladders/*.png. It needs a C++
compiler and NVRTC. With names of figures it writes these alone.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from ladder.build.cubin import disassemble
from ladder.build.variants import variant_request
from ladder.claims.gemm_practice import WMMA
from ladder.model.folders import Project
from ladder.report.figures import style
from ladder.results.run_data import Row, RunData
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from text_pages import FOLDERS, Numbers, numbers

ARCH = "sm_90a"
# Outputs along the tile's edge, and along that of the squares in which a thread owns them.
TILE, EDGE = (
    128,
    4,
)


# How lanes and warps lie over a tile.

MAPS = {
    "2 x 16, outputs adjacent (kernel 6)": ("rows_2x16", "adjacent", 128),
    "zigzag, four pieces (maxas)": ("zigzag_8x4", "quadrants", 128),
    "4 x 8, four pieces (sgemm_v3)": ("rows_4x8", "quadrants", 128),
    "4 x 8, one piece, 128 threads (kernel 10)": ("rows_4x8", "contiguous", 64),
}
"""Title -> the lane map, how a thread's outputs are split, and the rows of the tile."""

_OWNERS = """
#include <cstdio>
#define __host__
#define __device__
#define __forceinline__ inline
#include "simt/thread_map.cuh"
int main() {{
    using Map = ThreadMap<LaneMap::{lane_map}, {rows} / 8, 128 / 8>;
    using AlongA = Edge<OutputMap::{split}, 8, {rows} / 8, Map::group_rows>;
    using AlongB = Edge<OutputMap::{split}, 8, 128 / 8, Map::group_columns>;
    for (int thread = 0; thread < {rows} * 128 / 64; ++thread)
        for (int y = 0; y < 8; y += 4)
            for (int x = 0; x < 8; x += 4)
                std::printf("%d %d %d\\n", thread, AlongA::position(Map::row(thread), y),
                            AlongB::position(Map::column(thread), x));
}}
"""


def owners(
    include: Path, lane_map: str, split: str, rows: int
) -> list[tuple[int, int, int]]:
    """(thread, row, column) of each square of 4 x 4 outputs, as the kernel's own header computes it on this host."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "owners.cpp", Path(folder) / "owners"
        source.write_text(_OWNERS.format(lane_map=lane_map, split=split, rows=rows))
        subprocess.run(
            ["c++", "-std=c++17", "-I", include, source, "-o", program], check=True
        )
        printed = subprocess.run(
            [program], check=True, capture_output=True, text=True
        ).stdout
    return [
        (int(thread), int(row), int(column))
        for thread, row, column in map(str.split, printed.splitlines())
    ]


def _draw_map(axes: Axes, title: str, squares: Sequence[tuple[int, int, int]]) -> None:
    rows = 1 + max(row for _, row, _ in squares) // EDGE
    picture = [[(1.0, 1.0, 1.0)] * (TILE // EDGE) for _ in range(rows)]
    for thread, row, column in squares:
        warp, lane = divmod(thread, 32)
        colour = to_rgb(style.PALETTE[warp])
        shade = 0.35 if warp else 0.75
        red, green, blue = (1 - shade * (1 - part) for part in colour)
        picture[row // EDGE][column // EDGE] = (red, green, blue)
        if warp == 0:
            axes.text(
                column // EDGE,
                row // EDGE,
                str(lane),
                ha="center",
                va="center",
                fontsize=4.5,
                color="white",
            )
    axes.imshow(picture, interpolation="none")
    axes.set(title=title, xticks=range(0, 32, 8), yticks=range(0, rows, 8))
    axes.set_xticklabels([str(EDGE * at) for at in range(0, 32, 8)])
    axes.set_yticklabels([str(EDGE * at) for at in range(0, rows, 8)])
    axes.title.set_fontsize(9)
    axes.grid(visible=False)


def lanes(project: Project) -> Figure:
    """Which lanes and warps own which outputs of a tile, map by map."""
    drawing, axes = plt.subplots(2, 2, figsize=(8, 7), layout="constrained")
    for place, (title, (lane_map, split, rows)) in zip(
        axes.flat, MAPS.items(), strict=True
    ):
        _draw_map(
            place, title, owners(project.kernels / "include", lane_map, split, rows)
        )
    drawing.suptitle(
        "Numbers: lanes of warp 0; a square is 4 x 4 outputs; colours: warps",
        fontsize=11,
    )
    return drawing


# In which order a warp issues the instructions of one tile.

LOOPS = {
    "kernel 6": "kernel 6",
    "prefetch": "prefetch",
    "double buffer": "double buffer (sgemm_v1)",
}
"""Rung of fp32_as_written -> what the figure calls it."""
KINDS = {
    "LDG": ("load from global memory", "#d55e00"),
    "STS": ("store to shared memory", "#00805c"),
    "BAR": ("barrier", "#111111"),
    "LDS": ("load from shared memory", "#56b4e9"),
    "FFMA": ("multiplication", "#e4e4e4"),
}
_JUMP = re.compile(r"BRA (0x[0-9a-f]+)")
_OPCODE = re.compile(r"(?:@!?U?P\w+\s+)?([A-Z0-9]+)")


def main_loop(instructions: Sequence[str]) -> list[str]:
    """Opcodes of the loop with most multiplications, without modifiers, in the order in which they are issued."""
    loops = []
    for last, text in enumerate(instructions):
        if (jump := _JUMP.search(text)) and (first := int(jump[1], 16) // 16) < last:
            loops.append(
                [
                    match[1]
                    for line in instructions[first : last + 1]
                    if (match := _OPCODE.match(line))
                ]
            )
    return max(loops, key=lambda loop: loop.count("FFMA"))


def on_the_way(loop: Sequence[str]) -> str:
    """Multiplications between a load from global memory and the next store to shared memory: of the load with fewest,
    and of that with most. A pass of the loop is a circle: the store may stand ahead of the load.
    """
    counts = []
    for at in (place for place, opcode in enumerate(loop) if opcode == "LDG"):
        turned = [*loop[at:], *loop[:at]]
        counts.append(turned[: turned.index("STS")].count("FFMA"))
    return " to ".join(str(count) for count in sorted({min(counts), max(counts)}))


def loops(project: Project, data: RunData) -> Mapping[str, list[str]]:
    """Opcodes of the main loop of each kernel in LOOPS."""
    found = {}
    for entry in data.sweeps["fp32_as_written"].entries:
        if entry.rung in LOOPS:
            cubin, _ = variant_request(
                entry.variant, project.kernels / "include", ARCH
            ).compile()
            found[entry.rung] = main_loop(disassemble([cubin], ARCH)[0])
    return found


def order(project: Project, data: RunData) -> Figure:
    """The order of loads, stores, barriers and multiplications in one pass of the loop."""
    found = loops(project, data)
    drawing, axes = plt.subplots(
        len(LOOPS), 1, figsize=(8, 4.2), sharex=True, layout="constrained"
    )
    for place, (rung, title) in zip(axes, LOOPS.items(), strict=True):
        loop = found[rung]
        for kind, (_, colour) in KINDS.items():
            at = [start for start, opcode in enumerate(loop) if opcode == kind]
            width = 1.0 if kind in ("FFMA", "LDS") else 4.0
            place.bar(
                at,
                [1] * len(at),
                width=width,
                color=colour,
                zorder=1 if width == 1.0 else 2,
            )
        place.set(yticks=[], ylim=(0, 1))
        place.set_title(
            f"{title}: {on_the_way(loop)} multiplications while a tile is on its way",
            loc="left",
            fontsize=10,
        )
        place.grid(visible=False)
    axes[-1].set_xlabel(
        "instruction of one pass over a tile, in the order a warp issues them"
    )
    legend = [Patch(color=colour, label=label) for label, colour in KINDS.values()]
    drawing.legend(handles=legend, loc="outside lower center", ncols=3, frameon=False)
    return drawing


# Speed over the size, and over the stages.


def _fastest(found: Numbers, sweep: str, kernel: Any = None) -> dict[int, float]:
    """TFLOP/s of the fastest kernel of a sweep at each size; of some kernels alone where they are given."""
    rows = found.fastest_each(["n"], sweep, kernel)
    return {int(row["n"]): float(row["tflops"]) for row in rows}


def _library(found: Numbers, sweep: str) -> dict[int, float]:
    """TFLOP/s of the faster of cuBLAS and cuBLASLt, timed in turn with the sweep's fastest kernel at each size."""
    return {
        int(row["n"]): float(
            row["tflops"] * row["median_us"] / row["reference_median_us"]
        )
        for row in found.fastest_each(["n"], sweep)
    }


def rates(found: Numbers) -> Figure:
    """TFLOP/s over the size: FP32 and TF32, the text's rungs, our fastest and the libraries, in one chart."""
    lines = {
        "TF32 library": (_library(found, "tensor_ladder_tf32"), style.PALETTE[1], "--"),
        "TF32 ladder, fastest": (
            _fastest(found, "tensor_ladder_tf32"),
            style.PALETTE[1],
            "-",
        ),
        "TF32 by WMMA": (
            _fastest(found, "tensor_ladder_tf32", WMMA),
            style.PALETTE[7],
            "-",
        ),
        "FP32 library": (_library(found, "fp32_ladder"), style.PALETTE[0], "--"),
        "FP32 ladder, fastest": (_fastest(found, "fp32_ladder"), style.PALETTE[0], "-"),
        "FP32, one output a thread": (
            _fastest(found, "fp32_ladder", ("gemm_naive",)),
            style.PALETTE[6],
            "-",
        ),
    }
    drawing, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for label, (line, colour, dashes) in lines.items():
        axes.plot(
            [*line],
            [*line.values()],
            dashes,
            color=colour,
            marker="o",
            markersize=4,
            label=label,
        )
    sizes = [*lines["FP32 library"][0]]
    axes.set(xscale="log", yscale="log", xlabel="M = N = K", ylabel="TFLOP/s")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=9)
    return drawing


def _over_stages(axes: Axes, title: str, lines: Mapping[str, Sequence[Row]]) -> None:
    for place, (label, rows) in enumerate(lines.items()):
        rows = sorted(rows, key=lambda row: int(row["stages"]))
        stages, speeds = (
            [int(row["stages"]) for row in rows],
            [float(row["tflops"]) for row in rows],
        )
        axes.plot(
            stages, speeds, "-", color=style.PALETTE[place], marker="o", label=label
        )
        for row, x, y in zip(rows, stages, speeds, strict=True):
            blocks = str(row["blocks_per_sm"])
            axes.annotate(
                blocks,
                (x, y),
                (0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=10,
            )
    axes.set(title=title, xlabel="stages", xticks=range(2, 6))
    axes.margins(y=0.25)
    axes.title.set_fontsize(10)
    axes.legend(frameon=False, fontsize=9, loc="best")


def stages(data: RunData, size: int = 4096) -> Figure:
    """TFLOP/s over the number of stages, with the blocks a multiprocessor at each point."""
    cores = data.timed("fp32_async_stages", n=size, loader="async", buffers=2).rows
    tensor = data.timed("tensor_stages_swizzle", "12_tuned", n=size, strip=8).rows
    drawing, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
    by_depth = {
        f"bk = {bk}": [row for row in cores if row["bk"] == bk] for bk in (8, 16, 32)
    }
    _over_stages(left, "FP32 by cp.async, tiles of 128 x 128", by_depth)
    _over_stages(right, "TF32 by mma.sync, tiles of 256 x 128", {"strips of 8": tensor})
    left.set_ylabel(f"TFLOP/s at {size}")
    drawing.suptitle("Numbers at the points: blocks a multiprocessor", fontsize=11)
    return drawing


# The tensor-core ladders: tiles, and the pipeline over time.

_BF16, _HOPPER = "tensor_ladder_bf16", "hopper_ladder"
_LINE = 128  # bytes of a row of a tile that TMA brings: 64 elements of bf16
_COPY, _FULL, _MULTIPLY, _STORE = "#e69f00", "#f6deae", "#0072b2", "#009e73"
_STEPS = 7  # of K that the picture of the pipeline shows of a tile


@dataclass(frozen=True)
class Tiles:
    """How a kernel cuts C: block and warp tiles in elements, and who copies."""

    title: str
    rows: int
    columns: int
    depth: int
    stages: int
    warp_rows: int
    warp_columns: int
    copies: str
    multiplies: str


_CUT = re.compile(r"\b(BM|BN|WM|WN) = (\d+)")


def _cut(found: Numbers, kernel: str) -> dict[str, int]:
    """BM, BN, WM and WN of a kernel: constants of its file."""
    (source,) = found.project.kernels.rglob(f"{kernel}.cu")
    return {name: int(value) for name, value in _CUT.findall(source.read_text())}


def _tiles(found: Numbers) -> list[Tiles]:
    """Of a kernel whose warps all copy, of one with a warp for that, and of one with warpgroups."""
    early, late, last = (
        found.at(*rung) for rung in ((_BF16, "5"), (_BF16, "13"), (_HOPPER, "6f"))
    )
    first, second = (_cut(found, row["kernel"]) for row in (early, late))
    warps = [
        cut["BM"] // cut["WM"] * (cut["BN"] // cut["WN"]) for cut in (first, second)
    ]
    consumers = last["consumers"]
    depth = _LINE // 2
    return [
        Tiles(
            "rung 5: WMMA",
            first["BM"],
            first["BN"],
            depth // 2,
            early["stages"],
            first["WM"],
            first["WN"],
            f"all {32 * warps[0]} threads copy (cp.async)",
            f"{warps[0]} warps multiply {first['WM']} x {first['WN']} each",
        ),
        Tiles(
            "rung 13: mma.sync",
            second["BM"],
            second["BN"],
            depth,
            late["stages"],
            second["WM"],
            second["WN"],
            "one thread copies (TMA)",
            f"{warps[1]} warps multiply {second['WM']} x {second['WN']} each",
        ),
        Tiles(
            "rung 6f: wgmma",
            last["bm"],
            last["bn"],
            depth,
            last["stages"],
            last["bm"] // consumers,
            last["bn"],
            "one thread copies (TMA)",
            f"{consumers} warpgroups multiply {last['bm'] // consumers} x {last['bn']} each",
        ),
    ]


def _draw_tiles(axes: Axes, tiles: Tiles) -> None:
    """A to the left of C and B above it, as deep as a stage; behind them the other stages of the ring."""
    gap, shift = 24, 9
    for stage in reversed(range(tiles.stages)):
        moved = stage * shift
        colour = _COPY if stage == 0 else _FULL
        a = (-gap - tiles.depth - moved, -moved)
        b = (-moved, tiles.rows + gap + moved)
        axes.add_patch(
            Rectangle(a, tiles.depth, tiles.rows, facecolor=colour, edgecolor="white")
        )
        axes.add_patch(
            Rectangle(
                b, tiles.columns, tiles.depth, facecolor=colour, edgecolor="white"
            )
        )
    across = tiles.columns // tiles.warp_columns
    for place in range(tiles.rows // tiles.warp_rows * across):
        row, column = divmod(place, across)
        corner = (column * tiles.warp_columns, row * tiles.warp_rows)
        shade = to_rgb(_MULTIPLY)
        light = 0.25 if (row + column) % 2 else 0.45
        red, green, blue = (1 - (1 - part) * (1 - light) for part in shade)
        axes.add_patch(
            Rectangle(
                corner,
                tiles.warp_columns,
                tiles.warp_rows,
                facecolor=(red, green, blue),
                edgecolor="white",
            )
        )
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
    axes.text(-gap - tiles.depth / 2, tiles.rows / 2, "A", **middle)
    axes.text(tiles.columns / 2, tiles.rows + gap + tiles.depth / 2, "B", **middle)
    axes.text(
        tiles.columns / 2,
        tiles.rows / 2,
        f"C: {tiles.rows} x {tiles.columns}",
        color="white",
        bbox={"facecolor": _MULTIPLY, "edgecolor": "none"},
        **middle,
    )
    kibibytes = tiles.stages * tiles.depth * 2 * (tiles.rows + tiles.columns) / 1024
    said = [
        tiles.copies,
        f"{tiles.stages} stages, {tiles.depth} deep: {kibibytes:.0f} KiB of A and B",
        tiles.multiplies,
    ]
    axes.text(-gap - tiles.depth, -46, "\n".join(said), va="top", fontsize=9)
    axes.set(xlim=(-150, 262), ylim=(-120, 370), aspect="equal", title=tiles.title)
    axes.axis("off")


def tiles(found: Numbers) -> Figure:
    """The block tile, its warp tiles and the ring of stages of three kernels."""
    drawing, axes = plt.subplots(1, 3, figsize=(9, 4.2), layout="constrained")
    for place, each in zip(axes, _tiles(found), strict=True):
        _draw_tiles(place, each)
    drawing.suptitle(
        "Orange: copied for one step of K. Blue: a tile for each warp, or warpgroup, that multiplies",
        fontsize=10,
    )
    return drawing


@dataclass(frozen=True)
class Event:
    """Something that takes time: from when to when, in microseconds, in which row of the picture."""

    row: str
    start: float
    end: float
    colour: str


def schedule(
    buffers: Sequence[str],
    steps: int,
    copy: float,
    multiply: float,
    store: float,
    overlapped: bool,
) -> list[Event]:
    """Copies, multiplications and stores of three tiles of some steps; a copy starts as soon as its buffer is free.

    Times in microseconds. Buffers are filled in turn. Where stores are not `overlapped`, nothing is multiplied
    meanwhile. Without a store there is one long tile.
    """
    events = list[Event]()
    free, pipe = dict.fromkeys(buffers, 0.0), 0.0
    for step in range(3 * steps):
        buffer = buffers[step % len(buffers)]
        filled = free[buffer] + copy
        start = max(filled, pipe)
        pipe = free[buffer] = start + multiply
        events += [
            Event(buffer, filled - copy, filled, _COPY),
            Event(buffer, filled, start, _FULL),
            Event(buffer, start, pipe, _MULTIPLY),
            Event("tensor pipe", start, pipe, _MULTIPLY),
        ]
        if store and step % steps == steps - 1:
            events.append(Event("store", pipe, pipe + store, _STORE))
            pipe += 0 if overlapped else store
    return events


def pipeline(found: Numbers) -> Figure:
    """What one multiprocessor copies, multiplies and stores over time, in four rungs of the Hopper ladder.

    Durations are from the tables. A multiplication takes the time that the tensor pipe is busy, shared out to the steps
    of K; a copy what else a step of a block of rung 1 takes; a store what rung 6 saves over rung 5 for each tile.
    """
    rows = {number: found.at(_HOPPER, number) for number in ("1", "2", "4", "5", "6")}
    sms, depth = found.gpu("sms"), _LINE // 2

    def tiles_of(row: Row) -> float:
        """Tiles for each multiprocessor."""
        tiles: float = row["m"] // row["bm"] * (row["n"] // row["bn"]) / sms
        return tiles

    def step_of(row: Row) -> float:
        """Microseconds that a multiprocessor takes for a step of K of one tile."""
        microseconds: float = row["median_us"] / tiles_of(row) / (row["k"] // depth)
        return microseconds

    multiply = {
        number: step_of(row) * found.busy(row)["tensor cores"]
        for number, row in rows.items()
    }
    resident = rows["1"]["blocks_per_sm"]
    copy = resident * step_of(rows["1"]) - multiply["1"]
    store = (rows["5"]["median_us"] - rows["6"]["median_us"]) / tiles_of(rows["6"])
    ring = [f"stage {stage + 1}" for stage in range(rows["2"]["stages"])]
    blocks = [f"block {block + 1}" for block in range(resident)]
    panels = {
        "rung 1: three blocks, each copies, then multiplies": schedule(
            blocks, 20, copy, multiply["1"], 0, overlapped=False
        ),
        "rung 2: one block, a ring of four stages": schedule(
            ring, 20, copy, multiply["2"], 0, overlapped=False
        ),
        "rung 4: a wide tile, stored by the warps that multiply": schedule(
            ring, _STEPS, copy, multiply["4"], store, overlapped=False
        ),
        "rung 6: the same, stored by TMA": schedule(
            ring, _STEPS, copy, multiply["6"], store, overlapped=True
        ),
    }
    drawing, axes = plt.subplots(
        4, 1, figsize=(9, 7), sharex=True, layout="constrained"
    )
    for place, (title, events) in zip(axes, panels.items(), strict=True):
        names = [
            *dict.fromkeys(
                event.row
                for event in events
                if event.row not in ("tensor pipe", "store")
            )
        ]
        names += ["tensor pipe"] + (["store"] if events[-1].row == "store" else [])
        for event in events:
            place.barh(
                names.index(event.row),
                event.end - event.start,
                left=event.start,
                color=event.colour,
                edgecolor="white",
                linewidth=0.4,
                height=0.8,
            )
        place.set(yticks=range(len(names)), yticklabels=names, xlim=(0, 15))
        place.invert_yaxis()
        place.set_title(title, loc="left", fontsize=10)
        place.grid(visible=False)
    steps = rows["6"]["k"] // depth
    axes[-1].set_xlabel(
        f"microseconds; of the {steps} steps of a tile {_STEPS} are drawn"
    )
    labels = {
        "copy": _COPY,
        "full, waits": _FULL,
        "multiply": _MULTIPLY,
        "store": _STORE,
    }
    legend = [Patch(color=colour, label=label) for label, colour in labels.items()]
    drawing.legend(handles=legend, loc="outside lower center", ncols=4, frameon=False)
    return drawing


def drawings(found: Numbers) -> dict[Path, Callable[[], Figure]]:
    """What draws each figure, by its file."""
    project, data = found.project, found.data
    texts, ladders = FOLDERS.values()
    return {
        texts / "lanes.png": lambda: lanes(project),
        texts / "order.png": lambda: order(project, data),
        texts / "rates.png": lambda: rates(found),
        texts / "stages.png": lambda: stages(data),
        ladders / "tiles.png": lambda: tiles(found),
        ladders / "pipeline.png": lambda: pipeline(found),
    }


def main(only: Sequence[str]) -> None:
    style.apply()
    for path, draw in drawings(numbers()).items():
        if not only or path.stem in only:
            draw().savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1:])

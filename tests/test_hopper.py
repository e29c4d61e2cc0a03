"""The Hopper kernels without a GPU: machine code, descriptors, swizzle, ring, tile order and shared memory."""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from ladder.catalog import Kernel, Variant, load_kernel
from ladder.compiler import compile_source, compile_variant
from ladder.cubin import sass
from ladder.errors import LadderError

ROOT = Path(__file__).resolve().parent.parent
HOPPER = ROOT / "kernels" / "gemm" / "hopper"
INCLUDE = ROOT / "kernels" / "include"
ARCH = "sm_90a"
LINE, BOX = 128, 64 * 128
"""Bytes of a swizzled line and of a box of 64."""

ONE = "hopper_tma_wgmma"
RING = "hopper_gemm"
VARIANTS: list[tuple[str, str, str, dict[str, int | str]]] = [
    (ONE, "bf16", "NN", {}),
    (ONE, "fp16", "TN", {"bm": 64, "bn": 256}),
    (RING, "bf16", "NN", {}),
    (RING, "bf16", "TN", {"cluster_m": 2, "boxes": 4, "stages": 3}),
    (RING, "fp16", "NN", {"cluster_n": 2, "raster": "hilbert"}),
    (RING, "bf16", "TN", {"bm": 256, "bn": 128, "cluster_m": 2, "cluster_n": 2}),
    (RING, "bf16", "NN", {"bn": 128, "store": "direct", "reallocate": 0, "stages": 5, "raster": 0}),
    (RING, "bf16", "NN", {"bn": 128, "consumers": 1, "reallocate": 0}),
    (RING, "bf16", "TN", {"bm": 256, "bn": 192, "stages": 3}),
    (RING, "bf16", "TN", {"bm": 192, "bn": 192, "consumers": 3, "boxes": 1, "raster": "hilbert"}),
    (RING, "tf32", "TN", {"cluster_m": 2}),
    (RING, "fp8", "TN", {"bm": 256, "bn": 128, "cluster_n": 2}),
    (RING, "bf16", "TN", {"stagger": 1, "serpentine": 1}),
    (RING, "fp16", "NN", {"store": "direct", "blocks": 0, "split_k": 4, "stagger": 1}),
    (
        RING,
        "tf32",
        "TN",
        {
            "bm": 64,
            "bn": 64,
            "stages": 8,
            "consumers": 1,
            "reallocate": 0,
            "store": "direct",
            "blocks": 0,
            "split_k": 3,
        },
    ),
]
PRODUCT = {
    "bf16": "HGMMA.64x{}x16.F32.BF16",
    "fp16": "HGMMA.64x{}x16.F32 ",
    "tf32": "HGMMA.64x{}x8.F32.TF32",
    "fp8": "QGMMA.64x{}x32.F32.E4M3.E4M3",
}


@functools.cache
def kernel(name: str) -> Kernel:
    return load_kernel(HOPPER / f"{name}.yaml")


def variant(name: str, dtype: str = "bf16", layout: str = "NN", **params: int | str) -> Variant:
    return kernel(name).variant(params, dtype, layout)


@functools.cache
def _compiled(name: str, dtype: str, layout: str, params: str) -> tuple[dict[str, Any], list[str]]:
    cubin, facts = compile_variant(variant(name, dtype, layout, **json.loads(params)), INCLUDE, ARCH)
    assert facts["status"] == "ok", facts["reason"]
    code = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(.+?) ;", sass(cubin), re.MULTILINE)
    return facts, code


def compiled(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> tuple[dict[str, Any], list[str]]:
    """Facts and the instructions in their order, compiled once per test process."""
    return _compiled(name, dtype, layout, json.dumps(params, sort_keys=True))


def hold(text: str, *assertions: str) -> None:
    """Compile `text` with static assertions. Raises LadderError with the compiler's message where one fails."""
    inside = "\n".join(f'static_assert({assertion}, "");' for assertion in assertions)
    source = f"{text}\n__global__ void holds() {{\n{inside}\n}}\n"
    compile_source(source, "holds.cu", ["holds"], [INCLUDE], ARCH)


# Machine code.


@pytest.mark.parametrize(("name", "dtype", "layout", "params"), VARIANTS)
def test_products_are_issued_back_to_back(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> None:
    facts, code = compiled(name, dtype, layout, params)
    assert (facts["local_bytes"], facts["spill_store_bytes"], facts["ldl"], facts["stl"]) == (0, 0, 0, 0)
    fixed = variant(name, dtype, layout, **params).params
    consumers, bm, bn = int(fixed.get("consumers", 1)), int(fixed["bm"]), int(fixed["bn"])
    places = [index for index, line in enumerate(code) if "GMMA" in line]
    products = [code[index] for index in places]
    # Four products of 32 bytes in 128 bytes of K, for each block of 64 rows; the loop over K is their only copy.
    assert len(products) == 4 * bm // 64 // consumers
    assert all(product.startswith(PRODUCT[dtype].format(bn)) for product in products)
    assert all((".tnspB" in product) == (layout == "NN") for product in products)
    between = code[places[0] : places[-1]]
    assert not [line for line in between if "WARPGROUP" in line or "BRA" in line], "nothing waits among them"
    assert [product.endswith("gsb0") for product in products] == [False] * (len(products) - 1) + [True]


@pytest.mark.parametrize(("name", "dtype", "layout", "params"), VARIANTS)
def test_copies_and_registers_are_what_the_parameters_say(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> None:
    _, code = compiled(name, dtype, layout, params)
    fixed = variant(name, dtype, layout, **params).params
    cluster_m, cluster_n = int(fixed.get("cluster_m", 1)), int(fixed.get("cluster_n", 1))
    boxes_a, boxes_b = int(fixed["bm"]) // 64 // cluster_n, int(fixed["bn"]) // 64 // cluster_m
    loads = [line for line in code if "UTMALDG.2D" in line]
    assert len(loads) == boxes_a + boxes_b
    multicast = (boxes_a if cluster_n > 1 else 0) + (boxes_b if cluster_m > 1 else 0)
    assert sum(".MULTICAST" in line for line in loads) == multicast
    staged = fixed.get("store") == "staged"
    assert any("UTMASTG" in line for line in code) == staged
    assert any("STSM" in line for line in code) == (staged and dtype != "tf32"), "fp32 has no stmatrix"
    assert sum("USETMAXREG" in line for line in code) == (2 if fixed.get("reallocate") else 0)
    cluster = cluster_m * cluster_n * int(fixed.get("split_k", 1))
    assert any("UCGABAR" in line for line in code) == (cluster > 1)


@pytest.mark.parametrize(("name", "dtype", "layout", "params"), VARIANTS)
def test_no_step_fences_all_memory(name: str, dtype: str, layout: str, params: dict[str, int | str]) -> None:
    _, code = compiled(name, dtype, layout, params)
    # Barriers of the cluster do, at the beginning and the end; a release in the loop did so once and cost 40 %.
    fences = sum("MEMBAR.ALL.GPU" in line for line in code)
    assert fences <= sum("UCGABAR_ARV" in line for line in code)


PIPELINE = """
#include "wgmma.cuh"
__global__ void __launch_bounds__(128, 1) kernel(float* out, unsigned long long a, unsigned long long b, int n) {
    float d[128];
    for (int i = 0; i < 128; ++i) d[i] = i;
    for (int j = 0; j < n; ++j) {
        wgmma_fence();
        Wgmma<__half, 256>::multiply<false>(d, a, b + j, 1);
        // touch
        Wgmma<__half, 256>::multiply<false>(d, a + 2, b + j + 2, 1);
        wgmma_commit();
        wgmma_wait<0>();
    }
    for (int i = 0; i < 128; ++i) out[threadIdx.x + i * 128] = d[i];
}
"""
PIPELINE_YAML = """
summary: Touches a sum while products are under way.
problem: stencil
rows: []
origin: [tests]
entry: kernel
dtypes: {fp32: {}}
min_arch: sm_90a
parameters:
  k: {values: [2], default: 2, description: unused}
launch: {grid: [1], block: [128]}
arguments: [{pointer: input}]
"""


def test_serialised_products_are_a_compile_error(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(PIPELINE)
    (tmp_path / "kernel.yaml").write_text(PIPELINE_YAML)
    one = load_kernel(tmp_path / "kernel.yaml").variant({}, "fp32")
    assert compile_variant(one, INCLUDE, ARCH)[1]["reason"] == ""
    (tmp_path / "kernel.cu").write_text(PIPELINE.replace("// touch", "d[3] += 1.0f;"))
    cubin, facts = compile_variant(one, INCLUDE, ARCH)
    assert (cubin, facts["status"]) == (b"", "compile_error")
    assert re.match(r"C75\d\d: the compiler did not do what the source asks", facts["reason"])


# Operands in shared memory: the copy engine's rule, the descriptor's rule, and the source's formulas agree.


def by_copy_engine(line: int, byte: int) -> int:
    """Offset in a box that the copy engine writes a byte to: address bits 4-6 are XORed with bits 7-9."""
    plain = line * LINE + byte
    return plain ^ (plain >> 7 & 7) << 4


def decoded(descriptor: int) -> dict[str, int]:
    """Fields of a matrix descriptor in bytes (PTX ISA 9.7.15.5.1.2.2)."""
    return {
        "start": (descriptor & 0x3FFF) * 16,
        "leading": (descriptor >> 16 & 0x3FFF) * 16,
        "stride": (descriptor >> 32 & 0x3FFF) * 16,
        "base_offset": descriptor >> 49 & 7,
        "mode": descriptor >> 62,
    }


def by_tensor_core(fields: dict[str, int], major: str, along: int, k: int, size: int) -> int:
    """Address that the tensor cores read element (along M or N, k) of one product from, with 128-byte swizzle.

    The canonical layouts of the PTX ISA (strides in bytes): along K ((8, m), k): ((128, stride), size); along
    N ((64, n), (8, k)): ((size, leading), (128, stride)).
    """
    if major == "k":
        plain = along % 8 * 128 + along // 8 * fields["stride"] + k * size
    else:
        plain = along % 64 * size + along // 64 * fields["leading"] + k % 8 * 128 + k // 8 * fields["stride"]
    address = fields["start"] + plain
    return address ^ (address >> 7 & 7) << 4


@pytest.mark.parametrize(
    ("element", "size", "major", "extent"),
    [
        ("__nv_bfloat16", 2, "k", 128),
        ("__half", 2, "k", 256),
        ("__half", 2, "mn", 128),
        ("__nv_bfloat16", 2, "mn", 256),
        ("Tf32", 4, "k", 128),
        ("E4m3", 1, "k", 256),
    ],
)
def test_tensor_cores_read_what_the_copy_engine_wrote(
    element: str, size: int, major: str, extent: int
) -> None:
    base, depth = 5 * 1024, 32 // size
    tile = f"OperandTile<{element}, Major::{major}, {extent}>"
    descriptors = []
    for step in range(4):
        if major == "k":
            start, leading = base + step * 32, 16
        else:
            start, leading = base + step * depth * LINE, BOX
        descriptors.append(start >> 4 | leading >> 4 << 16 | 1024 >> 4 << 32 | 1 << 62)
        fields = decoded(descriptors[-1])
        assert (fields["mode"], fields["base_offset"]) == (1, 0)
        for along, k in itertools.product(range(extent), range(depth)):
            deep = step * depth + k
            if major == "k":
                written = base + along // 64 * BOX + by_copy_engine(along % 64, deep * size)
            else:
                written = base + along // 64 * BOX + by_copy_engine(deep, along % 64 * size)
            assert by_tensor_core(fields, major, along, k, size) == written
    hold(
        '#include "operand_tile.cuh"',
        *(f"{tile}::descriptor_at({base}, {step}) == {value}ull" for step, value in enumerate(descriptors)),
        f"{tile}::bytes == {extent * LINE} && {tile}::depth == {LINE // size}",
    )


def test_the_descriptor_keeps_addresses_within_its_field() -> None:
    top = 227 * 1024 - 1024
    hold(
        '#include "wgmma.cuh"',
        f"swizzled_descriptor({top}, 16, 1024) == {top >> 4 | 1 << 16 | 64 << 32 | 1 << 62}ull",
        "swizzled_descriptor(0x1000400, 16, 1024) == swizzled_descriptor(0x400, 16, 1024)",
    )


def test_only_16_bit_operands_run_along_n() -> None:
    with pytest.raises(LadderError, match="16-bit elements"):
        hold('#include "operand_tile.cuh"', "sizeof(OperandTile<Tf32, Major::mn, 64>) > 0")


# Results on their way: registers -> box -> C.

BOX_OF_RESULTS = """
#include "accumulator_store.cuh"

template <class Value>
__host__ __device__ constexpr bool engine_order() {
    for (int line = 0; line < 64; ++line) {
        for (int byte = 0; byte < 128; ++byte) {
            const int plain = line * 128 + byte;
            if (swizzled(line, byte) != (plain ^ (plain >> 7 & 7) << 4)) return false;
        }
    }
    return true;
}

// Word w of a stmatrix: lane l holds row l / 4, columns 2 (l % 4) on, of matrix w, whose row r lies where lane 8 w + r
// of the warp points.
__host__ __device__ constexpr bool matrices_land_in_place() {
    using Ring = StoreRing<__nv_bfloat16, 1>;
    for (int thread = 0; thread < 128; ++thread) {
        const int warp = thread / 32 * 32, lane = thread % 32;
        for (int i = 0; i < 32; i += 8) {
            for (int w = 0; w < 4; ++w) {
                const int to = Ring::matrix_line(warp + 8 * w + lane / 4, i) + lane % 4 * 4;
                if (to != swizzled(sum_row(thread, i + 2 * w), 2 * sum_column(thread, i + 2 * w))) return false;
            }
        }
    }
    return true;
}

// The eight lanes that address one matrix reach all 32 banks.
__host__ __device__ constexpr bool matrices_are_conflict_free() {
    for (int first = 0; first < 128; first += 8) {
        for (int i = 0; i < 32; i += 8) {
            unsigned seen = 0;
            for (int lane = 0; lane < 8; ++lane) {
                seen |= 1u << StoreRing<__half, 1>::matrix_line(first + lane, i) / 16 % 8;
            }
            if (seen != 0xff) return false;
        }
    }
    return true;
}

template <int N>
__host__ __device__ constexpr bool registers_cover() {
    bool seen[64][N] = {};
    for (int thread = 0; thread < 128; ++thread) {
        for (int i = 0; i < N / 2; ++i) {
            bool& here = seen[sum_row(thread, i)][sum_column(thread, i)];
            if (here) return false;
            here = true;
        }
    }
    return true;
}
"""


def test_results_land_where_the_copy_engine_looks_for_them() -> None:
    hold(
        BOX_OF_RESULTS,
        "engine_order<float>()",
        "matrices_land_in_place()",
        "matrices_are_conflict_free()",
        "registers_cover<64>()",
        "registers_cover<16>()",
    )


def test_registers_are_where_the_isa_says() -> None:
    # Figure of fragment D of wgmma: row 0 holds T0 d0 d1, T1 d0 d1, ...; row 8 T0 d2 d3; column 8 T0 d4 d5; row 16 T32.
    hold(
        '#include "wgmma.cuh"',
        "sum_row(0, 0) == 0 && sum_column(0, 1) == 1 && sum_column(1, 0) == 2 && sum_row(4, 0) == 1",
        "sum_row(0, 2) == 8 && sum_column(0, 3) == 1",
        "sum_row(0, 4) == 0 && sum_column(0, 4) == 8",
        "sum_row(32, 0) == 16 && sum_row(127, 127) == 63 && sum_column(127, 127) == 255",
    )


# Tiles: each exactly once, neighbours next to each other.

TILES = """
#include "tile_scheduler.cuh"

template <int Raster, int ClusterM, int ClusterN>
__host__ __device__ constexpr bool covers(int m, int n, int clusters) {
    using Cluster = ClusterShape<ClusterM, ClusterN>;
    const TileScheduler<128, 256, Cluster, Raster> scheduler(m, n);
    const int rows = scheduler.rows * ClusterM, columns = scheduler.columns * ClusterN;
    if (rows * 128 < m || columns * 256 < n || (scheduler.rows - 1) * ClusterM * 128 >= m) return false;
    bool seen[1024] = {};
    int count = 0;
    for (int cluster = 0; cluster < clusters; ++cluster) {
        for (int tile = cluster; tile < scheduler.tiles(); tile += clusters) {
            for (int rank = 0; rank < Cluster::size; ++rank) {
                const TilePosition at = scheduler.origin(tile, rank);
                if (at.row % 128 != 0 || at.column % 256 != 0) return false;
                const int row = at.row / 128, column = at.column / 256;
                if (row < 0 || row >= rows || column < 0 || column >= columns) return false;
                bool& here = seen[row * columns + column];
                if (here) return false;
                here = true;
                ++count;
            }
        }
    }
    return count == rows * columns;
}

__host__ __device__ constexpr bool curve_is_connected(int rows, int columns) {
    TilePosition last = hilbert_position(0, rows, columns);
    for (int tile = 1; tile < rows * columns; ++tile) {
        const TilePosition at = hilbert_position(tile, rows, columns);
        const int down = at.row - last.row, right = at.column - last.column;
        if (down > 1 || down < -1 || right > 1 || right < -1) return false;
        last = at;
    }
    return true;
}

__host__ __device__ constexpr bool all_curves(int most) {
    for (int rows = 1; rows <= most; ++rows) {
        for (int columns = 1; columns <= most; ++columns) {
            if (!curve_is_connected(rows, columns)) return false;
        }
    }
    return true;
}

template <int Rows, int Columns>
__host__ __device__ constexpr bool shares() {
    using Cluster = ClusterShape<Rows, Columns>;
    for (int rank = 0; rank < Cluster::size; ++rank) {
        int partners = 0;
        for (int other = 0; other < Cluster::size; ++other) {
            const bool same_row = rank / Columns == other / Columns, same_column = rank % Columns == other % Columns;
            if ((Cluster::row_mask(rank) >> other & 1) != same_row) return false;
            if ((Cluster::column_mask(rank) >> other & 1) != same_column) return false;
            if (Cluster::are_partners(rank, other) != (same_row || same_column)) return false;
            partners += same_row || same_column;
        }
        if (partners != Cluster::partners) return false;
        if (Cluster::row_mask(rank) >> Cluster::size || Cluster::column_mask(rank) >> Cluster::size) return false;
    }
    return true;
}
"""


def test_every_tile_has_one_block() -> None:
    sizes = [(1, 8, 1), (128, 256, 3), (1000, 1000, 5), (129, 2056, 2), (2304, 776, 66)]
    hold(
        TILES,
        *(
            f"covers<{raster}, {rows}, {columns}>({m}, {n}, {clusters})"
            for raster in (0, 2, 8, "hilbert")
            for rows, columns in ((1, 1), (2, 1), (1, 2), (2, 2))
            for m, n, clusters in sizes
        ),
    )


def test_the_curve_never_jumps() -> None:
    hold(TILES, "all_curves(12)", "curve_is_connected(31, 17)", "curve_is_connected(8, 32)")
    with pytest.raises(LadderError, match="static assertion failed"):
        hold(TILES.replace("hilbert_position(tile", "tile_position<0>(tile"), "all_curves(12)")


def test_blocks_of_a_cluster_know_whom_they_share_with() -> None:
    hold(TILES, "shares<1, 1>()", "shares<2, 1>()", "shares<1, 2>()", "shares<2, 2>()", "shares<4, 2>()")


# Slices of K.


def test_slices_cover_k_and_each_has_a_step() -> None:
    for split_k in (2, 3, 4, 6, 8):
        one = variant(RING, split_k=split_k, blocks=0, store="direct")
        for k in (64 * split_k, 64 * split_k + 8, 4096, 5000):
            assert one.unsupported({"m": 64, "n": 64, "k": k}) is None
            steps = -(-k // 64)
            slices = [(s * steps // split_k, (s + 1) * steps // split_k) for s in range(split_k)]
            assert (slices[0][0], slices[-1][1]) == (0, steps)
            assert all(begin < end for begin, end in slices)
        assert "every slice" in str(one.unsupported({"m": 64, "n": 64, "k": 64 * split_k - 64}))
        geometry = one.geometry({"m": 300, "n": 600, "k": 4096})
        assert (geometry.grid, geometry.cluster) == ((3 * 3 * split_k, 1, 1), (split_k, 1, 1))


def test_sums_of_a_slice_are_laid_down_without_conflicts() -> None:
    text = """
#include "slice_sum.cuh"
template <int Columns>
__host__ __device__ constexpr bool conflict_free() {
    for (int first = 0; first < 128; first += 16) {
        for (int i = 0; i < Columns / 2; i += 2) {
            unsigned long long seen = 0;
            for (int thread = first; thread < first + 16; ++thread) {
                const int word = sum_row(thread, i) * SliceSum<64, Columns>::stride + sum_column(thread, i);
                if (word % 2 != 0 || seen >> word % 32 & 3) return false;
                seen |= 3ull << word % 32;
            }
        }
    }
    return true;
}
"""
    hold(text, *(f"conflict_free<{columns}>()" for columns in (64, 128, 192, 256)))
    with pytest.raises(LadderError, match="static assertion failed"):
        hold(text.replace("SliceSum<64, Columns>::stride", "Columns"), "conflict_free<128>()")


# The ring, with barriers as the PTX ISA describes them and threads in any order.


class Barrier:
    """An mbarrier: the phase flips when all arrivals are there; a wait for a parity passes once that phase ended."""

    def __init__(self, arrivals: int) -> None:
        self.arrivals = self.pending = arrivals
        self.phase = 0

    def arrive(self) -> None:
        assert self.pending > 0, "more arrivals than the phase expects"
        self.pending -= 1
        if self.pending == 0:
            self.phase, self.pending = self.phase + 1, self.arrivals

    def passes(self, parity: int) -> bool:
        return self.phase & 1 != parity


def run_ring(
    stages: int, steps: int, readers: int, blocks: int, seed: int, flip: int = 1, stagger: int = 0
) -> None:
    """Blocks of a cluster, each with a producer that writes a part of every block's stage, and readers.

    A reader begins when the one before it has started `stagger` steps. Fails where a stage is written while somebody
    reads it, a reader finds another round's data, or nobody can go on.
    """
    chance = random.Random(seed)
    full = [[Barrier(blocks) for _ in range(stages)] for _ in range(blocks)]
    empty = [[Barrier(blocks * readers) for _ in range(stages)] for _ in range(blocks)]
    held = [[[-1] * blocks for _ in range(stages)] for _ in range(blocks)]
    reading = [[0] * stages for _ in range(blocks)]
    producers, consumers = [0] * blocks, [[0] * readers for _ in range(blocks)]

    def produce(block: int) -> bool:
        step = producers[block]
        stage, parity = step % stages, step // stages % 2
        if step == steps or not empty[block][stage].passes(parity ^ flip):
            return False
        for target in range(blocks):
            assert reading[target][stage] == 0, "written while it is read"
            held[target][stage][block] = step
            full[target][stage].arrive()
        producers[block] += 1
        return True

    def consume(block: int, reader: int) -> bool:
        # Even moments start reading, odd ones release: the stage is in use in between.
        moment = consumers[block][reader]
        step = moment // 2
        stage, parity = step % stages, step // stages % 2
        if step == steps:
            return False
        if moment == 0 and reader > 0 and consumers[block][reader - 1] < 2 * min(stagger, steps) - 1:
            return False
        if moment % 2 == 0:
            if not full[block][stage].passes(parity):
                return False
            assert held[block][stage] == [step] * blocks, "another round's data"
            reading[block][stage] += 1
        else:
            reading[block][stage] -= 1
            for target in range(blocks):
                empty[target][stage].arrive()
        consumers[block][reader] += 1
        return True

    actors: list[Any] = [functools.partial(produce, block) for block in range(blocks)]
    actors += [functools.partial(consume, b, r) for b in range(blocks) for r in range(readers)]
    while producers != [steps] * blocks or any(count != [2 * steps] * readers for count in consumers):
        chance.shuffle(actors)
        moved = [actor() for actor in actors[: chance.randint(1, len(actors))]]
        if not any(moved):
            assert any(actor() for actor in actors), "nobody can go on"


def test_the_ring_walks_stages_and_parities_as_simulated() -> None:
    walk = """
#include "ring.cuh"
template <int Stages>
__host__ __device__ constexpr bool walks() {
    RingPosition<Stages> at;
    for (int step = 0; step < 5 * Stages; ++step, at.advance()) {
        if (at.stage != step % Stages || at.parity != step / Stages % 2) return false;
    }
    return true;
}
"""
    hold(walk, "walks<2>()", "walks<3>()", "walks<4>()", "walks<7>()")


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_no_stage_is_written_while_it_is_read(stages: int, blocks: int) -> None:
    for seed in range(20):
        run_ring(stages, steps=23, readers=3, blocks=blocks, seed=seed)


@pytest.mark.parametrize("steps", [1, 2, 23])
@pytest.mark.parametrize("stagger", [1, 2, 3])
def test_consumers_may_run_ahead_as_far_as_there_are_stages(stagger: int, steps: int) -> None:
    for seed in range(10):
        run_ring(stagger, steps, readers=3, blocks=2, seed=seed, stagger=stagger)
    if steps > stagger:
        with pytest.raises(AssertionError, match="nobody can go on"):
            run_ring(stagger, steps, readers=3, blocks=1, seed=0, stagger=stagger + 1)


def test_a_producer_with_the_wrong_parity_is_caught() -> None:
    with pytest.raises(AssertionError, match="nobody can go on"):
        run_ring(3, steps=23, readers=3, blocks=1, seed=0, flip=0)


# What the YAML says against what the source makes.


@pytest.mark.parametrize(("name", "dtype", "layout", "params"), VARIANTS)
def test_shared_bytes_hold_what_the_kernel_declares(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> None:
    one = variant(name, dtype, layout, **params)
    given = one.geometry({"m": 1024, "n": 1024, "k": 1024}).shared_bytes
    element = kernel(name).dtypes[dtype]["element"]
    axes = [element, layout, *(str(one.params[axis]) for axis in ("bm", "bn"))]
    if name == RING:
        axes += [str(one.params[axis]) for axis in ("stages", "consumers", "boxes")]
    text = (HOPPER / f"{name}.cu").read_text()
    shared = f"Shared<{', '.join(axes)}>"
    hold(
        text, f"sizeof({shared}) <= {given} && alignof({shared}) == 1024 && {given} - sizeof({shared}) < 1024"
    )


def test_grids_are_whole_clusters_and_never_more_than_the_tiles() -> None:
    for params in ({}, {"cluster_m": 2}, {"cluster_n": 2, "blocks": 0}, {"cluster_m": 2, "cluster_n": 2}):
        one = variant(RING, **params)
        rows, columns = (int(one.params[axis]) for axis in ("cluster_m", "cluster_n"))
        for m, n in ((1, 8), (1000, 1000), (4096, 4096), (16384, 8192)):
            geometry = one.geometry({"m": m, "n": n, "k": 64})
            tiles = -(-m // (128 * rows)) * -(-n // (256 * columns))
            limit = 132 // (rows * columns) if one.params["blocks"] else tiles
            assert (geometry.cluster or (1, 1, 1)) == (rows * columns, 1, 1)
            assert geometry.grid == (min(tiles, limit) * rows * columns, 1, 1)


@pytest.mark.parametrize("name", [ONE, RING])
def test_rows_must_be_whole_sixteen_bytes(name: str) -> None:
    one = variant(name)
    assert one.unsupported({"m": 33, "n": 40, "k": 72}) is None
    for size in ({"m": 33, "n": 36, "k": 72}, {"m": 33, "n": 40, "k": 70}):
        assert "multiples of 16 bytes" in str(one.unsupported(size))


def test_rows_of_other_widths() -> None:
    tf32, fp8 = variant(RING, "tf32", "TN"), variant(RING, "fp8", "TN")
    assert tf32.unsupported({"m": 33, "n": 36, "k": 68}) is None
    assert fp8.unsupported({"m": 33, "n": 40, "k": 80}) is None
    assert "16 bytes" in str(fp8.unsupported({"m": 33, "n": 40, "k": 72}))
    assert "16 bytes" in str(fp8.unsupported({"m": 33, "n": 36, "k": 80}))
    for dtype in ("tf32", "fp8"):
        with pytest.raises(LadderError, match="only along K"):
            variant(RING, dtype, "NN")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"bm": 64}, "whole blocks of 64 rows"),
        ({"bm": 256, "bn": 256}, "registers"),
        ({"consumers": 1, "bn": 128}, "nothing to move"),
        ({"bn": 192, "cluster_m": 2}, "equal numbers"),
        ({"stages": 5}, "227 KiB"),
        ({"split_k": 2}, "cluster of their own"),
        ({"split_k": 2, "blocks": 0, "store": "direct", "cluster_m": 2}, "cluster of their own"),
        (
            {"bn": 128, "split_k": 2, "blocks": 0, "store": "direct", "stages": 2},
            "take the place of the ring",
        ),
        ({"bn": 128, "consumers": 1, "reallocate": 0, "stagger": 1}, "ahead of another"),
        ({"stages": 2, "stagger": 3}, "released a stage"),
    ],
)
def test_impossible_combinations_are_refused_with_the_reason(params: dict[str, int], reason: str) -> None:
    with pytest.raises(LadderError, match=reason):
        variant(RING, **params)

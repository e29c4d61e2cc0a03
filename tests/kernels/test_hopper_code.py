"""Machine code of the Hopper kernels: WGMMAs, copies, registers and fences, and what the compiler must not do."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from compiling import compile_ptx, compile_text, compile_variant
from emulator.hopper import (
    ARCH,
    INCLUDE,
    PING_PONG,
    PROMOTED,
    RING,
    RUNGS,
    SHARING,
    SPLIT,
    STREAM_K,
    TURNS,
    TWO_STAGES,
    VARIANTS,
    as_ring,
    box,
    compiled,
    slow_beside_files,
    variant,
)
from ladder.catalogue.kernels import load_kernel

WGMMA = {
    "bf16": "HGMMA.64x{}x16.F32.BF16",
    "fp16": "HGMMA.64x{}x16.F32 ",
    "tf32": "HGMMA.64x{}x8.F32.TF32",
    "fp8": "QGMMA.64x{}x32.F32.E4M3.E4M3",
}


@pytest.mark.parametrize(("name", "dtype", "layout", "params"), slow_beside_files(VARIANTS))
def test_wgmmas_are_issued_back_to_back(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> None:
    facts, code = compiled(name, dtype, layout, params)
    assert (facts["local_bytes"], facts["spill_store_bytes"], facts["ldl"], facts["stl"]) == (0, 0, 0, 0)
    fixed = as_ring(variant(name, dtype, layout, **params))
    consumers, along_n = int(fixed["consumers"]), int(fixed["consumers_n"])
    bm, bn = int(fixed["bm"]), int(fixed["bn"])
    places = [index for index, line in enumerate(code) if "GMMA" in line]
    wgmmas = [code[index] for index in places]
    # Four WGMMAs of 32 bytes in 128 bytes of K, for each block of 64 rows of a consumer, as wide as its columns; the
    # loop over K is their only copy.
    assert len(wgmmas) == 4 * bm // 64 // (consumers // along_n)
    assert all(one.startswith(WGMMA[dtype].format(bn // along_n)) for one in wgmmas)
    assert all((".tnspB" in one) == (layout == "NN") for one in wgmmas)
    between = code[places[0] : places[-1]]
    assert not [line for line in between if "WARPGROUP" in line or "BRA" in line], "nothing waits among them"
    assert [one.endswith("gsb0") for one in wgmmas] == [False] * (len(wgmmas) - 1) + [True]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp8"])
@pytest.mark.parametrize(("name", "params", "widths"), [
    (RING, {"stagger": 1, "serpentine": 1, "narrow": 240}, ("240", "256")),
    (TURNS, {"bn": 192, "stages": 5, "boxes": 1, "serpentine": 1, "narrow": 176}, ("176", "192")),
])  # fmt: skip
def test_each_of_two_widths_has_a_loop_of_its_own_in_the_same_registers(
    name: str, params: dict[str, int | str], widths: tuple[str, str], dtype: str
) -> None:
    facts, code = compiled(name, dtype, "TN", params)
    plain, _ = compiled(name, dtype, "TN", {**params, "narrow": 0})
    assert (facts["local_bytes"], facts["ldl"], facts["stl"]) == (0, 0, 0), (
        "no accumulators of both at a time"
    )
    assert facts["registers"] == plain["registers"]
    places = [index for index, line in enumerate(code) if "GMMA" in line]
    half = 8 if name == TURNS else 4  # a consumer has both fragments of its tile
    for width, loop in zip(widths, (places[:half], places[half:]), strict=True):
        assert all(code[index].startswith(WGMMA[dtype].format(width)) for index in loop)
        between = code[loop[0] : loop[-1]]
        assert not [line for line in between if "WARPGROUP" in line or "BRA" in line], (
            "nothing waits among them"
        )
    assert len(places) == 2 * half
    assert sum("WARPGROUP.DEPBAR" in line for line in code) == 4, (
        "a wait per step and one per tile, for each width"
    )


@pytest.mark.parametrize(("name", "dtype", "layout", "params"), slow_beside_files(VARIANTS))
def test_copies_and_registers_are_what_the_parameters_say(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> None:
    _, code = compiled(name, dtype, layout, params)
    one = variant(name, dtype, layout, **params)
    fixed = as_ring(one)
    cluster_m, cluster_n = int(fixed["cluster_m"]), int(fixed["cluster_n"])
    # A block loads its share of a tile. Lines are rows of A, and columns of B but where B lies along N: those of K.
    share_a, share_b = int(fixed["bm"]) // cluster_n, int(fixed["bn"]) // cluster_m
    along_n = layout == "NN"
    boxes_a, boxes_b = share_a // box(one, "a")[0], share_b // box(one, "b")[along_n]
    assert (boxes_a * box(one, "a")[0], boxes_b * box(one, "b")[along_n]) == (share_a, share_b)
    loads = [line for line in code if "UTMALDG.2D" in line]
    copies = 2 if name == TWO_STAGES else 1  # those ahead of the loop are written once more
    assert len(loads) == copies * (boxes_a + boxes_b)
    multicast = (boxes_a if cluster_n > 1 else 0) + (boxes_b if cluster_m > 1 else 0)
    assert sum(".MULTICAST" in line for line in loads) == multicast
    # A hint is one more operand, a policy in uniform registers.
    hinted = {name: fixed[f"evict_{name}"] != "normal" for name in "abc"}
    assert sum("desc[" in line for line in loads) == boxes_a * hinted["a"] + boxes_b * hinted["b"]
    stores = [line for line in code if "UTMASTG.2D" in line]
    assert ["desc[" in line for line in stores] == [hinted["c"]] * len(stores)
    staged = fixed["store"] == "staged"
    assert any("UTMASTG" in line for line in code) == staged
    assert any("STSM" in line for line in code) == (staged and dtype != "tf32"), "fp32 has no stmatrix"
    if staged:
        consumers_n, consumers = int(fixed["consumers_n"]), int(fixed["consumers"])
        rows, columns = int(fixed["bm"]) // (consumers // consumers_n), int(fixed["bn"]) // consumers_n
        if name == SPLIT:  # a band of them, and the code of one that is narrower
            band = 16 * -(-columns // (16 * int(fixed["split_k"])))
            columns = band + columns % band
        lines, width = box(one, "c")
        assert len(stores) * lines * width == rows * columns
    assert sum("USETMAXREG" in line for line in code) == (2 if fixed["reallocate"] else 0)
    cluster = cluster_m * cluster_n * int(fixed.get("split_k", 1))
    # Kernels about clusters have their barriers in a cluster of one block as well.
    about = name in (SPLIT, "5_multicast", "6_tma_store", PING_PONG)
    assert any("UCGABAR" in line for line in code) == (cluster > 1 or about)


PROMOTIONS: list[dict[str, int | str]] = [
    {},
    {"stagger": 0, "cluster_m": 2, "serpentine": 1},
    {"split": 2, "partials": 2},
    {"split": 2, "partials": 2, "chain": 4, "stagger": 2},
    {"bn": 128, "stages": 6, "buffers": 2},
    {"bn": 128, "stages": 6, "buffers": 2, "partials": 2, "chain": 8},
    {"bn": 208, "stages": 5},
    {"bm": 256, "bn": 128, "stages": 4, "buffers": 2},
    {"bn": 256, "split": 2, "stages": 4, "buffers": 2},
    {"bn": 256, "split": 4, "partials": 2, "stages": 4},
    {"bn": 256, "split": 2, "stages": 4, "every": 256},
    {"bm": 256, "bn": 64, "every": 512, "stages": 5},
    {"bm": 192, "bn": 128, "consumers": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("params", PROMOTIONS)
def test_partial_sums_are_promoted_each_step(params: dict[str, int | str]) -> None:
    facts, code = compiled(PROMOTED, "fp8", "TN", params)
    assert (facts["local_bytes"], facts["spill_store_bytes"], facts["ldl"], facts["stl"]) == (0, 0, 0, 0)
    fixed = variant(PROMOTED, "fp8", "TN", **params).params
    bm, bn, consumers, split = (int(fixed[name]) for name in ("bm", "bn", "consumers", "split"))
    parts = bm // 64 // consumers * split
    assert sum("USETMAXREG" in line for line in code) == 2
    wgmmas = [line for line in code if "QGMMA" in line]
    assert all(one.startswith(WGMMA["fp8"].format(bn // split)) for one in wgmmas)
    # With two partial sums the next part is under way while one is added, until the end of the chain, which is
    # a loop of its own before that of one interval.
    chains = [*{int(fixed["chain"]): 0, 1: 0}]
    ahead = "0x1" if fixed["partials"] == 2 else "0x0"
    waits = [wait for chain in chains for wait in [ahead] * (chain * parts - 1) + ["0x0"]]
    if fixed["every"] == 128:
        # The first of a part begins at zero; its D is not read.
        begins = sum(" RZ, !UPT" in one for one in wgmmas)
        assert (len(wgmmas), begins) == (4 * len(waits), len(waits))
    # A wait for each part and none between its wgmma (C7514 says so in the log alone), and then its additions.
    after_waits = "\n".join(code).split("WARPGROUP.DEPBAR.LE gsb0, ")[1:]
    assert [one.split()[0] for one in after_waits] == waits
    assert [one.count("FADD") for one in after_waits] == [bn // split // 2] * len(waits)
    assert sum("FADD" in line for line in code) == len(waits) * bn // split // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_is_hopper_gemm_with_its_parameters(name: str) -> None:
    """But for integers: its consumers compute the position of a tile themselves."""
    matter = "GMMA|WARPGROUP|UTMA|SYNCS|USETMAXREG|ELECT|BAR.SYNC|UCGABAR|STSM|LDG|STG|LDL|STL"
    found = []
    for facts, code in (compiled(name, "bf16", "NN", {}), compiled(RING, "bf16", "NN", RUNGS[name])):
        counts = Counter(op for line in code for op in re.findall(rf"\b(?:{matter})[\w.]*", line))
        moved = [line.split()[-1] for line in code if "USETMAXREG" in line]
        found.append(
            (counts, sorted(moved), facts["registers"], facts["spill_store_bytes"], facts["blocks_per_sm"])
        )
    (own, *fixed), (other, *wanted) = found
    # Where there is one tile nobody waits for the release of the last stage, which hopper_gemm has all the same.
    once = Counter({"SYNCS.ARRIVE.TRANS64.A1T0": 1} if RUNGS[name].get("blocks") == 0 else {})
    assert own + once == other
    if "USETMAXREG" in " ".join(own):
        assert fixed == wanted
    else:  # the compiler allocates registers of the epilogue otherwise, which costs no block
        assert fixed[2:] == wanted[2:]
        assert fixed[2] == 0


@pytest.mark.parametrize(("name", "dtype", "layout", "params"), slow_beside_files(VARIANTS))
def test_no_step_fences_all_memory(name: str, dtype: str, layout: str, params: dict[str, int | str]) -> None:
    _, code = compiled(name, dtype, layout, params)
    # Barriers of the cluster do, at the beginning and the end; a release in the loop did so once and cost 40 %.
    fences = sum("MEMBAR.ALL.GPU" in line for line in code)
    handed_over = name == STREAM_K  # once for a tile that two blocks share
    assert fences <= sum("UCGABAR_ARV" in line for line in code) + handed_over


def hints(text: str) -> dict[str, set[tuple[bool, str]]]:
    """Of the copies of A, B and C in a kernel's PTX: whether they are multicast, and the priority of their policy."""
    where = dict(re.findall(r"mov\.b64\s+(%\w+), \w+_param_(\d+);", text))
    maps = {to: "abc"[int(where[of])] for to, of in re.findall(r"cvta\.param\.u64\s+(%\w+), (%\w+);", text)}
    made = re.findall(r"createpolicy\.fractional\.L2::evict_(\w+)\.b64 (%\w+), 1\.0;", text)
    policies = {register: priority for priority, register in made}
    assert len(policies) == len(made) == text.count("createpolicy"), "a register each"
    found: dict[str, set[tuple[bool, str]]] = {name: set() for name in "abc"}
    for opcode, rest in re.findall(r"(cp\.async\.bulk\.tensor\S+) (.+);", text):
        (name,) = (maps[register] for register in re.findall(r"\[(%\w+), \{", rest))
        assert (".global.shared" in opcode) == (name == "c"), "results go out, operands come in"
        policy = policies[rest.split(", ")[-1]] if opcode.endswith(".L2::cache_hint") else "normal"
        found[name].add((".multicast::cluster" in opcode, policy))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "params"),
    [("TN", {**SHARING, "bn": 80, "boxes": 1}), ("TN", {"bn": 176, "cluster_m": 2, "stages": 3}), ("NN", {})],
)
@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("normal", "normal", "normal"),
        ("first", "normal", "normal"),
        ("normal", "first", "normal"),
        ("normal", "normal", "first"),
        ("last", "first", "normal"),
        ("first", "last", "last"),
    ],
)
def test_hints_reach_the_copies_of_their_operand(
    layout: str, params: dict[str, int | str], a: str, b: str, c: str
) -> None:
    one = variant(RING, "bf16", layout, **params, evict_a=a, evict_b=b, evict_c=c)
    assert hints(compile_ptx(one.kernel.source, one.entry, [INCLUDE])) == {
        "a": {(one.params["cluster_n"] != 1, a)},
        "b": {(one.params["cluster_m"] != 1, b)},
        "c": {(False, c)},
    }


def test_hints_are_told_apart_by_what_they_belong_to(tmp_path: Path) -> None:
    # The test above must see them in the wrong place: operands, priorities, multicast copies.
    include = tmp_path / "include"
    shutil.copytree(INCLUDE, include)
    header = include / "schedule" / "producer.cuh"
    text = header.read_text()
    assert "load<Cluster::rows, Ring::evict_b" in text
    header.write_text(text.replace("load<Cluster::rows, Ring::evict_b", "load<Cluster::rows, Ring::evict_a"))
    one = variant(RING, "bf16", "NN", evict_a="last", evict_b="first")
    found = hints(compile_ptx(one.kernel.source, one.entry, [include]))
    assert found == {"a": {(False, "last")}, "b": {(False, "last")}, "c": {(False, "normal")}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hint", "loads", "stores"),
    [
        ({"evict_a": "normal", "evict_b": "normal", "evict_c": "normal"}, 0, 0),
        ({"evict_a": "first"}, 1, 0),
        ({"evict_b": "first"}, 4, 0),
        ({"evict_c": "last"}, 0, 4),
        ({"evict_a": "last", "evict_b": "first"}, 5, 0),
    ],
)
def test_hints_reach_the_machine_code(hint: dict[str, int | str], loads: int, stores: int) -> None:
    # B is four boxes of 64 columns and A one of 128 rows, so that their number says whose the hints are.
    _, code = compiled(RING, "bf16", "NN", hint)
    _, plain = compiled(RING, "bf16", "NN", {})
    for opcode, wanted, all_ in (("UTMALDG", loads, 5), ("UTMASTG", stores, 4)):
        copies = [line for line in code if opcode in line]
        assert (len(copies), sum("desc[" in line for line in copies)) == (all_, wanted)
    assert (code == plain) == (set(hint.values()) == {"normal"})


WITHOUT = """
#include "ptx/tma.cuh"
extern "C" __global__ void kernel(const __grid_constant__ TensorMap map, int row, int column, unsigned blocks) {
    __shared__ alignas(128) unsigned char box[128];
    __shared__ Mbarrier full;
    COPY
}
"""
LOAD = "cp.async.bulk.tensor.2d.shared::{}.global.tile.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("call", "instruction", "operands"),
    [
        (
            "tma_load<{}>(box, map, row, column, full);",
            f"{LOAD.format('cta')} [%0], [%1, {{%2, %3}}], [%4];",
            '"r"(shared_address(box)), "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full))',
        ),
        (
            "tma_load_multicast<{}>(box, map, row, column, full, blocks);",
            f"{LOAD.format('cluster')}.multicast::cluster [%0], [%1, {{%2, %3}}], [%4], %5;",
            '"r"(shared_address(box)), "l"(&map), "r"(column), "r"(row), "r"(shared_address(&full)),'
            ' "h"(static_cast<unsigned short>(blocks))',
        ),
        (
            "tma_store<{}>(map, row, column, box);",
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];",
            '"l"(&map), "r"(column), "r"(row), "r"(shared_address(box))',
        ),
    ],
)
def test_a_normal_copy_is_the_instruction_without_a_hint(call: str, instruction: str, operands: str) -> None:
    def cubin(copy: str) -> bytes:
        return compile_text(WITHOUT.replace("COPY", copy), ["kernel"], [INCLUDE], ARCH)

    bare = cubin(f'asm volatile("{instruction}" ::{operands} : "memory");')
    assert cubin(call.format("Evict::normal")) == cubin(call.replace("<{}>", "")) == bare
    hinted = {cubin(call.format(f"Evict::{when}")) for when in ("first", "last")}
    assert len(hinted) == 2
    assert bare not in hinted


PIPELINE = """
#include "ptx/wgmma.cuh"
__global__ void __launch_bounds__(128, 1) kernel(const float*, float* out, long long a, long long b, int n) {
    float d[32];
    for (int i = 0; i < 32; ++i) d[i] = i;
    for (int j = 0; j < n; ++j) {
        wgmma_fence();
        Wgmma<__half, 64>::wgmma<false>(d, a, b + j, 1);
        // touch
        Wgmma<__half, 64>::wgmma<false>(d, a + 2, b + j + 2, 1);
        wgmma_commit();
        wgmma_wait<0>();
    }
    for (int i = 0; i < 32; ++i) out[threadIdx.x + i * 128] = d[i];
}
"""
PIPELINE_YAML = """
summary: Touches a sum while WGMMAs are under way.
problem: stencil
origin: [tests]
entry: kernel
dtypes: {fp32: {}}
min_arch: sm_90a
parameters:
  radius: {values: [2], default: 2, description: unused}
launch: {grid: [1], block: [128]}
arguments:
  - {pointer: input}
  - {pointer: output}
  - {scalar: elements, type: int64}
  - {scalar: elements, type: int64}
  - {scalar: elements, type: int32}
"""


def test_serialised_wgmmas_are_a_compile_error(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(PIPELINE)
    (tmp_path / "kernel.yaml").write_text(PIPELINE_YAML)
    one = load_kernel(tmp_path / "kernel.yaml").variant({}, "fp32")
    assert compile_variant(one, INCLUDE, ARCH)[1]["reason"] == ""
    (tmp_path / "kernel.cu").write_text(PIPELINE.replace("// touch", "d[3] += 1.0f;"))
    cubin, facts = compile_variant(one, INCLUDE, ARCH)
    assert (cubin, facts["status"]) == (b"", "compile_error")
    assert re.match(r"C75\d\d: the compiler did not do what the source says", facts["reason"])

"""Machine code of the Hopper kernels: WGMMAs, copies, registers and fences, and what the compiler must not do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from compiling import compile_ptx, compile_variant
from emulator.hopper import (
    ARCH,
    INCLUDE,
    RING,
    SHARING,
    STREAM_K,
    VARIANTS,
    compiled,
    slow_beside_files,
    variant,
)
from ladder.catalogue.kernels import load_kernel


@pytest.mark.parametrize(
    ("name", "dtype", "layout", "params"), slow_beside_files(VARIANTS)
)
def test_wgmmas_are_issued_back_to_back_and_no_step_fences_all_memory(
    name: str, dtype: str, layout: str, params: dict[str, int | str]
) -> None:
    facts, code = compiled(name, dtype, layout, params)
    assert (
        facts["local_bytes"],
        facts["spill_store_bytes"],
        facts["ldl"],
        facts["stl"],
    ) == (0, 0, 0, 0)
    places = [index for index, line in enumerate(code) if "GMMA" in line]
    between = code[places[0] : places[-1]]
    assert not [line for line in between if "WARPGROUP" in line or "BRA" in line], (
        "nothing waits among them"
    )
    assert [code[place].endswith("gsb0") for place in places] == [False] * (
        len(places) - 1
    ) + [True]
    # Barriers of the cluster do, at the beginning and the end; a release in the loop did so once and cost 40 %.
    fences = sum("MEMBAR.ALL.GPU" in line for line in code)
    handed_over = name == STREAM_K  # once for a tile that two blocks share
    assert fences <= sum("UCGABAR_ARV" in line for line in code) + handed_over


def hints(text: str) -> dict[str, set[tuple[bool, str]]]:
    """Of the copies of A, B and C in a kernel's PTX: whether they are multicast, and the priority of their policy."""
    where = dict(re.findall(r"mov\.b64\s+(%\w+), \w+_param_(\d+);", text))
    maps = {
        to: "abc"[int(where[of])]
        for to, of in re.findall(r"cvta\.param\.u64\s+(%\w+), (%\w+);", text)
    }
    made = re.findall(
        r"createpolicy\.fractional\.L2::evict_(\w+)\.b64 (%\w+), 1\.0;", text
    )
    policies = {register: priority for priority, register in made}
    assert len(policies) == len(made) == text.count("createpolicy"), "a register each"
    found: dict[str, set[tuple[bool, str]]] = {name: set() for name in "abc"}
    for opcode, rest in re.findall(r"(cp\.async\.bulk\.tensor\S+) (.+);", text):
        (name,) = (maps[register] for register in re.findall(r"\[(%\w+), \{", rest))
        assert (".global.shared" in opcode) == (name == "c"), (
            "results go out, operands come in"
        )
        policy = (
            policies[rest.split(", ")[-1]]
            if opcode.endswith(".L2::cache_hint")
            else "normal"
        )
        found[name].add((".multicast::cluster" in opcode, policy))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "params"),
    [
        ("TN", {**SHARING, "bn": 80, "boxes": 1}),
        ("TN", {"bn": 176, "cluster_m": 2, "stages": 3}),
        ("NN", {}),
    ],
)
@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("normal", "normal", "normal"),
        ("first", "normal", "normal"),
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
    header.write_text(
        text.replace(
            "load<Cluster::rows, Ring::evict_b", "load<Cluster::rows, Ring::evict_a"
        )
    )
    one = variant(RING, "bf16", "NN", evict_a="last", evict_b="first")
    found = hints(compile_ptx(one.kernel.source, one.entry, [include]))
    assert found == {
        "a": {(False, "last")},
        "b": {(False, "last")},
        "c": {(False, "normal")},
    }


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
    assert re.match(
        r"C75\d\d: the compiler did not do what the source says", facts["reason"]
    )

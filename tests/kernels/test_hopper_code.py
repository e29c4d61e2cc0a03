"""Machine code of the Hopper kernels: what the compiler must not do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiling import compile_variant, compiled_without_spills, instructions
from emulator.hopper import (
    ARCH,
    INCLUDE,
    ONE,
    PING_PONG,
    RING,
    RUNGS,
    SPLIT,
    STREAM_K,
    TURNS,
    TWO_STAGES,
    slow_beside_files,
    variant,
)
from ladder.catalogue.kernels import load_kernel

# 6e_two_widths has a loop for each of its widths.
FILES = [rung for rung in RUNGS if rung != "6e_two_widths"]
EACH = (ONE, TWO_STAGES, *FILES, PING_PONG, STREAM_K, RING, TURNS, SPLIT)


@pytest.mark.parametrize("name", slow_beside_files([(name,) for name in EACH]))
def test_wgmmas_are_issued_back_to_back_and_no_step_fences_all_memory(
    name: str,
) -> None:
    (cubin,) = compiled_without_spills([variant(name)])
    code = instructions(cubin, ARCH)
    places = [index for index, line in enumerate(code) if "GMMA" in line]
    between = code[places[0] : places[-1]]
    waits = [line for line in between if "WARPGROUP" in line or "BRA" in line]
    assert waits == [], "nothing waits among them"
    ends = [code[place].endswith("gsb0") for place in places]
    assert ends == [False] * (len(places) - 1) + [True]
    # Barriers of the cluster do, at the beginning and the end; a release in the loop did so once and cost 40 %.
    fences = sum("MEMBAR.ALL.GPU" in line for line in code)
    handed_over = name == STREAM_K  # once for a tile that two blocks share
    assert fences <= sum("UCGABAR_ARV" in line for line in code) + handed_over


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

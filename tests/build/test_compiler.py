"""Compiling one variant: what its facts say, when it is refused, and what its digests follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from compiling import instructions, listings
from conftest import ROOT
from factory import axis, kernel_document
from ladder.build.cache import Cache
from ladder.build.cubin import instruction_counts
from ladder.build.nvrtc import CompileError, Request, compile_source
from ladder.build.variants import variant_facts, variant_request
from ladder.catalogue.kernels import load_kernel
from ladder.model.files import sha256
from ladder.model.kernel import Variant

DOCUMENT = kernel_document(
    "stencil",
    ["fp32"],
    {"radius": axis(2, 4)},
    entry="kernel<{T}, {radius}>",
    launch={"grid": ["ceil_div(elements, 256)"], "block": [256]},
)
DOCUMENT["dtypes"]["fp32"]["T"] = "float"
DOCUMENT["arguments"].append({"scalar": "elements", "type": "int32"})

SIMPLE = """\
#include "scale.cuh"
// Twice the input.
template <typename T, int radius>
__global__ void kernel(const T* input, T* output, int elements) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < elements - radius) output[i] = scale(input[i + radius]);
}
"""
SCALE = """\
#pragma once
// A factor.
template <typename T>
__device__ T scale(T value) { return T(2) * value; }
"""
SHARED = """\
template <typename T, int radius>
__global__ void kernel(const T* input, T* output, int elements) {
  __shared__ T fixed[100 * radius];
  extern __shared__ T given[];
  fixed[threadIdx.x % (100 * radius)] = input[threadIdx.x];
  given[threadIdx.x] = input[threadIdx.x + 1];
  __syncthreads();
  output[threadIdx.x] = fixed[threadIdx.x / 2] + given[threadIdx.x ^ 1];
}
"""
SPILLING = """\
template <typename T, int radius>
__global__ void __launch_bounds__(1024, 2) kernel(const T* input, T* output, int elements) {
  T live[96];
#pragma unroll
  for (int n = 0; n < 96; ++n) live[n] = input[n * elements + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int n = 0; n < 96; ++n) output[n * elements + threadIdx.x] = live[95 - n] * live[n];
}
"""
IGNORED_SETMAXNREG = """\
template <typename T, int radius>
__global__ void __launch_bounds__(384) kernel(const T* input, T* output, int elements) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  output[threadIdx.x] = input[threadIdx.x];
}
"""


class Workshop:
    """A folder with one kernel and one header."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.include = folder / "include"
        self.include.mkdir()
        self.write("include/scale.cuh", SCALE)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def asked(
        self,
        source: str,
        arch: str = "sm_90a",
        options: tuple[str, ...] = (),
        **changes: Any,
    ) -> tuple[Variant, Request]:
        self.write("kernel.cu", source)
        self.write("kernel.yaml", yaml.safe_dump(DOCUMENT | changes))
        variant = load_kernel(self.folder / "kernel.yaml").variant({}, "fp32")
        return variant, variant_request(variant, self.include, arch, options)

    def compile(
        self,
        source: str,
        arch: str = "sm_90a",
        options: tuple[str, ...] = (),
        **changes: Any,
    ) -> tuple[bytes, dict[str, Any]]:
        variant, request = self.asked(source, arch, options, **changes)
        cubin, found = request.compile()
        facts = variant_facts(variant, request, found)
        return cubin if facts["status"] == "ok" else b"", facts


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def test_facts_say_what_was_compiled_for_what_and_with_what_result(
    workshop: Workshop,
) -> None:
    cubin, facts = workshop.compile(SIMPLE)
    assert cubin.startswith(b"\x7fELF")
    assert facts["cubin_sha256"] == sha256(cubin)
    expected = {
        "variant": "kernel-fp32",
        "kernel": "kernel",
        "params": {"radius": 2},
        "dtype": "fp32",
        "arch": "sm_90a",
        "entry": "kernel<float, 2>",
        "status": "ok",
        "reason": "",
        "threads_per_block": 256,
        "blocks_per_sm": 8,
        "occupancy": 1.0,
        "occupancy_limit": "warps",
        "spill_store_bytes": 0,
        "local_bytes": 0,
    }
    assert {name: facts[name] for name in expected} == expected
    counts = instruction_counts(instructions(cubin, "sm_90a"))
    assert (counts["ldg"], counts["stg"]) == (1, 1)
    assert 0 < facts["registers"] <= 32
    assert facts["compile_s"] > 0


def test_static_and_dynamic_shared_bytes_are_told_apart_and_both_limit_occupancy(
    workshop: Workshop,
) -> None:
    launch = DOCUMENT["launch"] | {"shared_bytes": "60 * 1024 + 4 * radius"}
    _, facts = workshop.compile(SHARED, launch=launch)
    assert facts["status"] == "ok", facts["reason"]
    assert facts["shared_bytes_static"] == 100 * 2 * 4
    assert facts["shared_bytes_dynamic"] == 60 * 1024 + 4 * 2
    # 800 + 61448 and the system's 1024 bytes are 63272: three of them in 228 KiB.
    assert (facts["blocks_per_sm"], facts["occupancy_limit"]) == (3, "shared memory")
    _, older = workshop.compile(SHARED, "sm_80", launch=launch)
    assert (older["shared_bytes_static"], older["blocks_per_sm"]) == (800, 2)


def test_a_compile_error_is_data_with_the_compilers_words(workshop: Workshop) -> None:
    cubin, facts = workshop.compile(
        SIMPLE.replace("elements - radius", "elments - radius")
    )
    assert cubin == b""
    assert facts["status"] == "compile_error"
    assert 'identifier "elments" is undefined' in facts["reason"]
    assert "kernel.cu(6)" in facts["reason"], "file and line"
    assert facts["variant"] == "kernel-fp32"
    assert "registers" not in facts
    assert "cubin_sha256" not in facts


def test_what_only_the_assembler_refuses_is_a_compile_error_too(
    workshop: Workshop, tmp_path: Path
) -> None:
    """In a process of the pool, as in a run: in one that has done much else NVRTC says "internal error" at times."""
    _, request = workshop.asked(SHARED.replace("100 * radius", "100000"))
    cache = Cache(tmp_path / "cache")
    facts = cache.fill([request], 1, 60)[request.key]
    assert (facts["status"], "cubin_sha256" in facts) == ("compile_error", False)
    assert "too much shared" in facts["reason"]


def test_spills_are_refused_on_the_architecture_kernels_are_tuned_for_unless_declared(
    workshop: Workshop,
) -> None:
    cubin, refused = workshop.compile(SPILLING)
    assert (cubin, refused["status"]) == (b"", "compile_error")
    assert refused["spill_store_bytes"] > 0
    assert (
        f"spills {refused['spill_store_bytes']} bytes of registers" in refused["reason"]
    )
    assert "kernel.yaml does not say `spills: allowed`" in refused["reason"]
    _, elsewhere = workshop.compile(SPILLING, "sm_86")
    assert elsewhere["status"] == "ok", "it is not tuned for that"
    cubin, allowed = workshop.compile(SPILLING, spills="allowed")
    assert (bool(cubin), allowed["status"], allowed["reason"]) == (True, "ok", "")
    assert allowed["spill_store_bytes"] == refused["spill_store_bytes"]


def test_an_instruction_that_the_assembler_ignores_is_a_compile_error(
    workshop: Workshop,
) -> None:
    _, facts = workshop.compile(IGNORED_SETMAXNREG)
    assert facts["status"] == "compile_error"
    assert facts["reason"].startswith(
        "C7508: the compiler did not do what the source says"
    )
    bounded = IGNORED_SETMAXNREG.replace("(384)", "(384, 1)")
    assert workshop.compile(bounded)[1]["status"] == "ok"


def test_two_compiles_give_the_same_cubin_also_in_another_folder(
    workshop: Workshop, tmp_path: Path
) -> None:
    first, facts = workshop.compile(SIMPLE)
    second, again = workshop.compile(SIMPLE)
    assert first == second
    assert facts["source_sha256"] == again["source_sha256"]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert (
        Workshop(elsewhere).compile(SIMPLE)[1]["cubin_sha256"] == facts["cubin_sha256"]
    )


def test_a_comment_changes_the_sources_digest_and_not_the_cubin(
    workshop: Workshop,
) -> None:
    _, before = workshop.compile(SIMPLE)
    _, source = workshop.compile(
        SIMPLE.replace("// Twice the input.", "// Twice the input,\n// as it says.")
    )
    workshop.write("include/scale.cuh", SCALE.replace("A factor", "The factor"))
    _, header = workshop.compile(SIMPLE)
    assert before["cubin_sha256"] == source["cubin_sha256"] == header["cubin_sha256"]
    assert len({facts["source_sha256"] for facts in (before, source, header)}) == 3


def test_options_and_architecture_reach_the_compiler(workshop: Workshop) -> None:
    fused = SIMPLE.replace(
        "scale(input[i + radius])", "scale(input[i + radius]) * input[i] + T(1)"
    )
    cubin, plain = workshop.compile(fused)
    unfused, _ = workshop.compile(fused, options=("--fmad=false",))
    assert [
        instruction_counts(one)["ffma"] for one in listings([cubin, unfused], "sm_90a")
    ] == [1, 0]
    _, older = workshop.compile(fused, "sm_80")
    assert older["cubin_sha256"] != plain["cubin_sha256"]
    _, refused = workshop.compile(fused, options=("--no-such-option",))
    assert refused["status"] == "compile_error"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"#include <algorithm>\n{SIMPLE}", "cannot open source file"),
        (
            f"{SIMPLE}\n__device__ float low() {{ return -INFINITY; }}",
            'identifier "INFINITY" is undefined',
        ),
        (f"{SIMPLE}\nvoid launch() {{}}", "is considered a host function"),
    ],
)
def test_what_the_host_has_is_told_with_the_page_that_names_others(
    workshop: Workshop, source: str, message: str
) -> None:
    _, facts = workshop.compile(source)
    assert facts["status"] == "compile_error"
    assert message in facts["reason"]
    assert facts["reason"].endswith("see 'From nvcc to NVRTC' in docs/add-a-kernel.md")
    page = (ROOT / "docs/add-a-kernel.md").read_text()
    assert "## From nvcc to NVRTC\n" in page


def test_an_entry_that_a_source_does_not_have_is_told_with_those_that_it_has() -> None:
    source = 'extern "C" __global__ void __launch_bounds__(64, 2) my_gemm(float* c) {}'
    with pytest.raises(CompileError) as refused:
        compile_source(source, "mine.cu", ["my_gem"], [], "sm_90a")
    assert str(refused.value) == (
        "mine.cu: entry: 'my_gem' is not accepted (did you mean 'my_gemm'?); accepted: my_gemm"
    )


@pytest.mark.parametrize("entry", ["tiled", "tiled<1>"])
def test_an_entry_that_is_no_instance_of_its_template_is_told_so(entry: str) -> None:
    source = "template <int M, int N> __global__ void tiled(float* c) { c[M] = N; }"
    with pytest.raises(CompileError) as refused:
        compile_source(source, "mine.cu", [entry], [], "sm_90a")
    assert str(refused.value) == (
        f"mine.cu: entry: {entry!r} is not accepted; accepted: tiled<…> with every argument of the template"
    )


def test_what_the_page_names_in_place_of_headers_of_the_host_compiles() -> None:
    stays = (
        "cuda_runtime.h",
        "cuda_fp16.h",
        "mma.h",
        "cooperative_groups.h",
        "cuda/barrier",
    )
    headers = ("cuda/std/cstdint", "cuda/std/limits", "math_constants.h", *stays)
    page = (ROOT / "docs/add-a-kernel.md").read_text()
    lines = [f"#include <{header}>" for header in headers if f"<{header}>" in page]
    assert len(lines) == len(headers)
    kernel = """
    using cuda::std::uint32_t;
    __global__ void kernel(float* out, uint32_t n) {
      assert(n > 0);
      out[n] = fmaxf(-CUDART_INF_F, cuda::std::numeric_limits<float>::lowest());
    }
    """
    assert compile_source(
        "\n".join(lines) + kernel, "k.cu", ["kernel"], [], "sm_90a"
    ).symbols

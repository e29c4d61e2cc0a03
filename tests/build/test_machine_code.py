"""The digest of machine code: it follows what a cubin makes the GPU do, and not what its parts are called."""

from __future__ import annotations

import re

import pytest
from ladder.build.cubin import machine_code_digest
from ladder.build.nvrtc import compile_source

SOURCE = """\
// Scales the input by a table, by way of shared memory.
__constant__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};

__device__ __noinline__ float scaled(float value, int place) { return value * table[place % 4]; }

__global__ void __launch_bounds__(128) scale(const float* input, float* output, int elements) {
  __shared__ float kept[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  kept[threadIdx.x] = i < elements ? input[i] : 0.0f;  // zeros behind the end
  __syncthreads();
  if (i < elements) output[i] = scaled(kept[127 - threadIdx.x], i) + 0.5f;
}
"""


def digest(
    text: str, entry: str = "scale", file: str = "scale.cu", arch: str = "sm_90a"
) -> str:
    return machine_code_digest(compile_source(text, file, [entry], [], arch)[0])


def changed(old: str, new: str) -> str:
    assert old in SOURCE
    return SOURCE.replace(old, new)


def test_the_same_kernel_under_another_name_has_the_same_digest() -> None:
    longer = re.sub(r"\bscale\b", "a_much_longer_name_of_the_kernel", SOURCE)
    assert digest(longer, "a_much_longer_name_of_the_kernel") == digest(SOURCE)
    # Another parameter of a template is another name as well.
    templated = changed("__global__", "template <int unused>\n__global__")
    assert digest(templated, "scale<7>") == digest(templated, "scale<123456>")


def test_comments_empty_lines_and_the_name_of_the_file_do_not_count() -> None:
    commented = changed(
        "// zeros behind the end", "// what lies behind the end counts as zero"
    )
    commented = commented.replace("// Scales", "\n\n// On top of the file.\n// Scales")
    assert (
        digest(commented) == digest(SOURCE, file="elsewhere/other.cu") == digest(SOURCE)
    )


def test_names_of_what_the_kernel_uses_do_not_count() -> None:
    renamed = re.sub(r"\bkept\b", "line_in_shared_memory", SOURCE)
    renamed = re.sub(r"\bscaled\b", "value_times_factor", renamed)
    assert digest(renamed) == digest(SOURCE)


CHANGES = [
    pytest.param("+ 0.5f", "+ 0.25f", id="a constant in an instruction"),
    pytest.param("3.0f, 4.0f}", "3.0f, 5.0f}", id="a value of constant memory"),
    pytest.param("(128) scale", "(256) scale", id="launch bounds: threads"),
    pytest.param("(128) scale", "(128, 8) scale", id="launch bounds: blocks"),
    pytest.param("float kept[128]", "float kept[256]", id="bytes of shared memory"),
    pytest.param("int elements)", "int elements, int unused)", id="an argument"),
    pytest.param("value * table", "value + table", id="an instruction"),
    pytest.param("127 - threadIdx.x", "126 - threadIdx.x", id="an address"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_what_a_launch_does_or_takes_counts(old: str, new: str) -> None:
    assert digest(changed(old, new)) != digest(SOURCE)

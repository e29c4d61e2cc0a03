"""A description's arguments held against the parameters of the cubin: what a launch would read wrongly is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from compiling import compile_request
from factory import axis, kernel_document
from ladder.build.cubin import parameter_bytes
from ladder.build.nvrtc import compile_source
from ladder.build.variants import variant_facts, variant_request
from ladder.catalogue.kernels import load_kernel

DOCUMENT = kernel_document("gemm", ["fp32"], {"tile": axis(16)}, entry="mine<{tile}>")
DOCUMENT["launch"]["block"] = ["tile"]
DOCUMENT["arguments"][3:3] = ({"scalar": name, "type": "int32"} for name in "mnk")
"""A product of one row and one column, and of no more."""
SOURCE = """
template <int Tile> __global__ void mine(const float* a, const float* b, float* c, {sizes}, float alpha, float beta) {{
  if (threadIdx.x < m && threadIdx.x < n && threadIdx.x < k) c[threadIdx.x] = alpha * a[0] * b[0] + beta;
}}
"""
INTS, LONGS = "int m, int n, int k", "long long m, long long n, long long k"

Arguments = list[dict[str, Any]]


def described(
    folder: Path, sizes: str, change: Callable[[Arguments], object]
) -> dict[str, Any]:
    """Facts of the variant whose source takes `sizes`, for arguments that are changed."""
    arguments = [dict(one) for one in DOCUMENT["arguments"]]
    change(arguments)
    (folder / "mine.cu").write_text(SOURCE.format(sizes=sizes))
    (folder / "mine.yaml").write_text(
        yaml.safe_dump(DOCUMENT | {"arguments": arguments})
    )
    variant = load_kernel(folder / "mine.yaml").variant({}, "fp32")
    request = variant_request(variant, folder, "sm_90a")
    return variant_facts(variant, request, compile_request(request)[1])


def swap(arguments: Arguments) -> None:
    arguments[2], arguments[3] = arguments[3], arguments[2]


MISTAKES: dict[str, tuple[str, Callable[[Arguments], object], str]] = {
    "one missing": (
        INTS,
        lambda arguments: arguments.pop(5),
        "7 arguments of 8, 8, 8, 4, 4, 4, 4 bytes: add 1, in the order of the source",
    ),
    "one too many": (
        INTS,
        lambda arguments: arguments.append({"scalar": "m", "type": "int32"}),
        "9 arguments of 8, 8, 8, 4, 4, 4, 4, 4, 4 bytes: leave out 1",
    ),
    "too wide": (
        INTS,
        lambda arguments: arguments[5].update(type="int64"),
        "8 arguments of 8, 8, 8, 4, 4, 8, 4, 4 bytes: arguments[5] is the scalar k as int64; accepted, of 4 bytes: "
        "int32 or float32",
    ),
    "swapped": (
        INTS,
        swap,
        "8 arguments of 8, 8, 4, 8, 4, 4, 4, 4 bytes: arguments[2] is the scalar m as int32; accepted, of 8 bytes: "
        "int64, a pointer or a workspace",
    ),
    "a tensor map for a pointer": (
        INTS,
        lambda arguments: arguments.__setitem__(
            0, {"tensor_map": "a", "box": [8, 8], "swizzle": "none"}
        ),
        "8 arguments of 128, 8, 8, 4, 4, 4, 4, 4 bytes: arguments[0] is the tensor_map a; accepted, of 8 bytes: ",
    ),
    "a type that no argument has": (
        "int m, int n, short k",
        lambda arguments: None,
        "arguments[5] is the scalar k as int32; accepted, of 2 bytes: none, so that the source must take another",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_other_arguments_than_the_source_takes_are_a_compile_error_that_says_which(
    name: str, tmp_path: Path
) -> None:
    sizes, change, says = MISTAKES[name]
    facts = described(tmp_path, sizes, change)
    assert facts["status"] == "compile_error"
    assert facts["reason"].startswith("mine.yaml: arguments: mine takes 8 arguments of")
    assert says in facts["reason"]


@pytest.mark.parametrize("sizes", [INTS, LONGS])
def test_the_arguments_that_a_source_takes_are_accepted(
    sizes: str, tmp_path: Path
) -> None:
    width = "int32" if sizes == INTS else "int64"
    facts = described(
        tmp_path,
        sizes,
        lambda arguments: [one.update(type=width) for one in arguments[3:6]],
    )
    assert (facts["status"], facts["reason"]) == ("ok", "")


def test_what_is_published_without_its_parameters_is_taken_as_it_is(
    tmp_path: Path,
) -> None:
    facts = described(tmp_path, INTS, lambda arguments: arguments.pop(5))
    assert facts["status"] == "compile_error"
    variant = load_kernel(tmp_path / "mine.yaml").variant({}, "fp32")
    published = {
        name: value for name, value in facts.items() if name != "parameter_bytes"
    } | {"status": "ok"}
    assert (
        variant_facts(variant, variant_request(variant, tmp_path, "sm_90a"), published)[
            "status"
        ]
        == "ok"
    )


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_parameters_of_every_type_are_read_in_order_also_those_that_no_code_uses(
    arch: str,
) -> None:
    source = """
    struct Three { int x, y, z; };
    struct alignas(64) Map { char bytes[128]; };
    template <class T> __global__ void k(const T* a, int m, const __grid_constant__ Map map, long long n, float alpha,
                                         Three unused, char c, double d) {
      if (m < c) *const_cast<T*>(a) = map.bytes[n];
    }
    __global__ void none() {}
    """
    entries = ["k<float>", "none"]
    cubin, symbols, *_ = compile_source(source, "k.cu", entries, [], arch)
    found = {entry: parameter_bytes(cubin, symbols[entry]) for entry in entries}
    assert found == {"k<float>": [8, 4, 128, 8, 4, 12, 1, 8], "none": []}

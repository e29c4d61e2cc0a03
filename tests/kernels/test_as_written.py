"""The texts' own kernels: right at whole tiles, refused elsewhere, and what the texts say of their machine code."""

from __future__ import annotations

from typing import Any

import pytest
from checkout import catalog, facts_without_spills
from emulator.hopper import wrong_in_fp32
from ladder.model.kernel import Variant

HIP: dict[str, dict[str, Any]] = {
    "4": {"operands": "shared"},
    "5": {},
    "7": {"depth": 2},
    "7.2": {"depth": 2, "access": "helper"},
    "7.7": {"depth": 2, "lanes": "warp"},
    "9": {"depth": 2, "pieces": 4},
    "9, lanes of a warp": {"lanes": "warp", "pieces": 4},
}
"""Step of hip-gemm -> parameters of hip_tile."""
PRACTICE = {"practice_plain_a": [{}], "practice_transposed_a": [{}, {"offset": 4}]}
EVERY = [("hip_tile", params) for params in HIP.values()]
EVERY += [(name, params) for name, several in PRACTICE.items() for params in several]


def variant(name: str, **params: Any) -> Variant:
    return catalog()[name].variant(params, "fp32", "NN")


@pytest.mark.parametrize(("name", "params"), EVERY)
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_results_are_right(name: str, params: dict[str, Any], beta: float) -> None:
    for size in ((128, 128, 32), (256, 128, 16), (128, 384, 48)):
        assert wrong_in_fp32(variant(name, **params), size, None, beta) == 0, size


@pytest.mark.parametrize("name", ["hip_tile", *PRACTICE])
def test_sizes_without_whole_tiles_are_refused(name: str) -> None:
    for size in (
        {"m": 127, "n": 128, "k": 16},
        {"m": 128, "n": 130, "k": 16},
        {"m": 128, "n": 128, "k": 12},
    ):
        assert "as in the text" in (variant(name).absent(size, "sm_90a") or "")


def test_the_compiler_reads_plain_a_by_as_many_vectors_as_transposed_a() -> None:
    plain, transposed = (facts_without_spills(variant(name)) for name in PRACTICE)
    assert plain["lds_128"] == transposed["lds_128"] == 32
    assert plain["lds_32"] == transposed["lds_32"] == 0


def test_a_helper_function_is_the_same_machine_code() -> None:
    by_index, by_helper = (
        facts_without_spills(variant("hip_tile", **HIP[step])) for step in ("7", "7.2")
    )
    assert by_index["machine_code"] == by_helper["machine_code"]


def test_reading_registers_first_loads_no_less_than_naming_shared_memory() -> None:
    named, first = (
        facts_without_spills(variant("hip_tile", **HIP[step])) for step in ("4", "5")
    )
    assert named["lds_128"] == first["lds_128"]
    assert named["registers"] == first["registers"]

"""The texts' own kernels: right at whole tiles, and refused elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from checkout import catalog, facts_without_spills
from emulator.launching import wrong

EVERY: list[tuple[str, dict[str, Any]]] = [
    # hip_tile with its parameters in the steps of hip-gemm.
    ("hip_tile", {"operands": "shared"}),
    ("hip_tile", {}),
    ("hip_tile", {"depth": 2}),
    ("hip_tile", {"depth": 2, "access": "helper"}),
    ("hip_tile", {"depth": 2, "lanes": "warp"}),
    ("hip_tile", {"depth": 2, "pieces": 4}),
    ("hip_tile", {"lanes": "warp", "pieces": 4}),
    ("practice_plain_a", {}),
    ("practice_transposed_a", {}),
    ("practice_transposed_a", {"offset": 4}),
]


@pytest.mark.parametrize(("name", "params"), EVERY)
def test_results_are_right_at_whole_tiles_and_other_sizes_are_refused(
    name: str, params: dict[str, Any]
) -> None:
    one = catalog()[name].variant(params, "fp32", "NN")
    for size in ((128, 128, 32), (256, 128, 16), (128, 384, 48)):
        for beta in (0.0, 0.5):
            assert wrong(one, size, beta) == 0, (size, beta)
    for m, n, k in ((127, 128, 16), (128, 130, 16), (128, 128, 12)):
        why = one.absent({"m": m, "n": n, "k": k}, "sm_90a")
        assert "as in the text" in str(why)


def test_a_helper_function_is_the_same_machine_code() -> None:
    by_index, by_helper = (
        facts_without_spills(catalog()["hip_tile"].variant(params, "fp32", "NN"))
        for params in ({"depth": 2}, {"depth": 2, "access": "helper"})
    )
    assert by_index["machine_code"] == by_helper["machine_code"]

"""Attention in Triton: right as far as Triton's interpreter tells, and what is compiled of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from checkout import facts_without_spills, in_triton
from conftest import ROOT
from emulator.attention_rule import errors_over_bound, given
from ladder.build.triton_request import compiler
from ladder.model.kernel import Variant
from triton_run import Launch, interpreted, with_mistake

FOLDER = ROOT / "kernels/attention"
KINDS = ("uniform", "positive", "integers", "wide", "equal", "spikes")
Case = tuple[str, tuple[int, int, int], int, str]
CASES: list[Case] = [
    *(
        ("fp16", (2, sequence, 64), causal, "uniform")
        for sequence in (1, 31, 64, 191)
        for causal in (0, 1)
    ),
    *(
        (dtype, (3, 65, 128), causal, "positive")
        for dtype in ("bf16", "fp16")
        for causal in (0, 1)
    ),
    *(("fp16", (2, 96, 64), at % 2, kind) for at, kind in enumerate(KINDS)),
]
"""Dtype, shape (heads, sequence, depth), whether causal, and kind of inputs: parts of tiles, and more than one."""


def errors(folders: Sequence[Path], cases: list[Case]) -> list[float]:
    """The largest error of each case over what is allowed; infinite too where something else is written.

    Each case has the kernel of a folder of its own.
    """
    launches = []
    for folder, (dtype, (heads, sequence, d), causal, kind) in zip(
        folders, cases, strict=True
    ):
        drawn = [
            np.ascontiguousarray(one)
            for one in given(dtype, (heads, sequence, d), kind, 5)
        ]
        drawn = [one.view(np.float16) if dtype == "fp16" else one for one in drawn]
        # One head more, of which nothing may be written.
        poison = np.full((heads + 1, sequence, d), 0xFFFF, np.uint16).view(
            drawn[0].dtype
        )
        buffers = dict(zip("qkvo", [*drawn, poison], strict=True))
        size = {"sequence": sequence, "heads": heads, "d": d}
        params = {"depth": d, "causal": causal, "bm": 64, "bn": 32, "warps": 4}
        launches.append(
            Launch(folder / "triton_attention.yaml", dtype, size, buffers, params)
        )
    found = []
    for made, (dtype, shape, causal, kind) in zip(
        interpreted(launches), cases, strict=True
    ):
        bits = made["o"].view(np.uint16)
        error = float(
            errors_over_bound(
                bits[:-1], given(dtype, shape, kind, 5), dtype, causal, kind
            ).max()
        )
        found.append(error if (bits[-1] == 0xFFFF).all() else np.inf)
    return found


def test_outputs_are_right() -> None:
    found = errors([FOLDER] * len(CASES), CASES)
    assert all(error < 1 for error in found), [*zip(found, CASES, strict=True)]


MISTAKES = [
    ("seen = key[None, :] < keys", "seen = key[None, :] < keys + 1", 0),
    ("key[None, :] <= row[:, None]", "key[None, :] < row[:, None] + 2", 1),
    ("whole, end, sequence", "whole, whole, sequence", 0),
    ("first_row if CAUSAL else", "first_row + BN if CAUSAL else", 1),
    ("min(first_row + BM, sequence)", "first_row + 1", 1),
    ("tl.num_programs(1) - 1 - ", "tl.num_programs(1) - 2 + ", 1),
    ("sums = sums * factor + ", "sums = sums + ", 0),
    ("        output = output * factor[:, None]\n", "", 0),
    ("1.4426950408889634", "1.0", 0),
    ("mask=(row < sequence)", "mask=(row < sequence + 1)", 0),
]


def test_mistakes_show(tmp_path: Path) -> None:
    folders = [
        with_mistake(FOLDER / "triton_attention.py", tmp_path / str(at), *change)
        for at, (*change, _) in enumerate(MISTAKES)
    ]
    cases: list[Case] = [
        ("fp16", (2, 159, 64), causal, "uniform") for *_, causal in MISTAKES
    ]
    for error, mistake in zip(errors(folders, cases), MISTAKES, strict=True):
        assert error > 1, mistake


@pytest.mark.skipif(not compiler(), reason="Triton is not installed")
@pytest.mark.parametrize(
    "variant",
    [*in_triton("attention_libraries"), *in_triton("attention_libraries_64")],
    ids=lambda one: one.id,
)
def test_each_of_the_sweeps_multiplies_by_wgmma_from_tiles_of_tma_and_spills_nothing(
    variant: Variant,
) -> None:
    found = facts_without_spills(variant)
    keys = int(variant.params["bn"])
    assert [one["box"] for one in found["tensor_maps"]] == [
        [1, 128, 64],
        *[[1, keys, 64]] * 2,
    ]
    assert found["hgmma"] > 0
    assert found["utmaldg"] > 0
    assert found["hmma"] == found["ldg"] == found["ldgsts"] == 0

"""What the YAML of the Hopper kernels says against what the source makes: bytes, grids, and what is refused."""

from __future__ import annotations

import pytest
from hopper import HOPPER, ONE, RING, VARIANTS, hold, kernel, variant
from ladder.errors import LadderError


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

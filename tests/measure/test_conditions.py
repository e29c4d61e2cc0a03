"""What a record stands on besides its cell, and what it was called before versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ladder.measure.conditions import code_versions
from ladder.model.cell import COUNTERS, size_label
from ladder.model.record import Record, from_text

Fields = dict[str, Any]


def test_counters_do_not_depend_on_the_check() -> None:
    assert code_versions("gemm", "cold") == {"check": 1, "timing": 1}
    assert code_versions("gemm", COUNTERS) == {"timing": 2}


def read(schema: int, cell: Fields, **fields: Any) -> Record:
    """A record of another release as it is read."""
    cell = {"dtype": "fp32", "layout": "", "regime": "cold", "reference": {}, **cell}
    record = {
        "sweep": "s",
        "session": "a",
        "time": "2026-11-20T10:00:00Z",
        "cell": cell,
        "conditions": {},
        "variant": "k-fp32",
        "status": "incorrect",
        **fields,
    }
    found = from_text(json.dumps({"schema": schema, "record": record}), "here")
    assert isinstance(found, Record)
    return found


def tree(schema: int, regime: str = "cold", **tree: Any) -> Fields:
    """Conditions of a record as they are read."""
    cell = {"kernel": "k", "params": {}, "size": {"m": 1}, "regime": regime}
    conditions = {"tree": tree, "host": {}}
    return dict(read(schema, cell, conditions=conditions).conditions.tree)


def test_the_digests_of_the_third_release_are_version_1() -> None:
    timing = "72c671e8b9ebecef"
    known = tree(
        1, check="cd96bce3182450b3", timing=timing, harness="a", machine_code="b"
    )
    assert known == {"check": 1, "timing": 1, "machine_code": "b"}
    assert tree(1, COUNTERS, check="82cf65a9b0178f45", timing=timing) == {"timing": 1}


def test_a_digest_of_any_other_code_is_no_version() -> None:
    assert (
        tree(1, check="0123456789abcdef", timing="72c671e8b9ebecef")["check"]
        == "0123456789abcdef"
    )
    assert tree(2, check=1, timing=1, harness="stays") == {
        "check": 1,
        "timing": 1,
        "harness": "stays",
    }


def read_stencil(k: int, schema: int = 1) -> Record:
    """A record of the third release as it is read, whose parameter k was the whole halo."""
    own = {"k": k, "coarsen": 4, "block": 256}
    halo = "" if k == 2 else f"-k={k}"
    cell = {
        "kernel": "stencil_register_cache",
        "params": own,
        "size": {"elements": 64},
        "reference": {"kernel": "stencil_shared", "params": {**own, "coarsen": 1}},
    }
    return read(
        schema,
        cell,
        variant=f"stencil_register_cache-int32{halo}-coarsen=4",
        result={"reference": f"stencil_shared-int32{halo}", "variant_us": [2.0]},
    )


@pytest.mark.parametrize(
    ("k", "radius", "named"), [(2, 1, ""), (4, 2, "-radius=2"), (32, 16, "-radius=16")]
)
def test_the_halo_of_the_third_release_is_twice_the_radius(
    k: int, radius: int, named: str
) -> None:
    found = read_stencil(k)
    assert found.cell.params == {"radius": radius, "coarsen": 4, "block": 256}
    assert found.cell.reference.params == {"radius": radius, "coarsen": 1, "block": 256}
    assert found.variant == f"stencil_register_cache-int32{named}-coarsen=4"
    assert found.result["reference"] == f"stencil_shared-int32{named}"
    assert found.result["variant_us"] == [2.0]


def test_an_odd_halo_has_no_radius_and_stays() -> None:
    found = read_stencil(25)
    assert found.cell.params["k"] == found.cell.reference.params["k"] == 25
    assert found.variant == "stencil_register_cache-int32-k=25-coarsen=4"
    assert read_stencil(4, schema=2).cell.params["k"] == 4, (
        "k of a later record is whatever its kernel calls k"
    )


def test_a_size_is_written_as_people_do() -> None:
    cube = {"m": 4096, "n": 4096, "k": 4096}
    sizes = {}, cube, {"elements": 2**28}, cube | {"m": 512, "k": 64}
    labels = [size_label(size) for size in sizes]
    assert labels == ["", "4096", "2^28", "512x4096x64"]

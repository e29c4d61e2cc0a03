"""What a record stands on besides its cell, and what it was called before versions."""

from __future__ import annotations

from typing import Any

import pytest
from ladder.measure.conditions import code_versions, host_conditions
from ladder.model.cell import COUNTERS
from ladder.model.record import Record, from_json


@pytest.mark.parametrize(
    "package", ["cuda-core", "cuda-bindings", "nvmath-python", "cupti-python", "nvidia-cublas"]
)
def test_what_launches_and_answers_is_a_condition(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {package: "1.0"}
    monkeypatch.setattr("ladder.measure.conditions.package_version", versions.get)
    before = host_conditions("gemm", "NVIDIA H200", "580")
    versions[package] = "1.1"
    assert host_conditions("gemm", "NVIDIA H200", "580") != before


def test_counters_do_not_depend_on_the_check() -> None:
    assert code_versions("gemm", "cold") == {"check": 1, "timing": 1}
    assert code_versions("gemm", COUNTERS) == {"timing": 1}


def read(schema: int, regime: str = "cold", **tree: Any) -> dict[str, Any]:
    """Conditions of a record as they are read."""
    cell: dict[str, Any] = {"kernel": "k", "params": {}, "dtype": "fp32", "layout": "", "size": {"m": 1}}
    record = {"cell": {**cell, "regime": regime, "reference": {}}, "conditions": {"tree": tree, "host": {}}}
    record |= {"variant": "k-fp32", "sweep": "s", "session": "a", "time": "2026-11-20T10:00:00Z"}
    found = from_json({"schema": schema, "record": {**record, "status": "incorrect"}}, "here")
    assert isinstance(found, Record)
    return dict(found.conditions.tree)


def test_the_digests_of_the_third_release_are_version_1() -> None:
    timing = "72c671e8b9ebecef"
    known = read(1, check="cd96bce3182450b3", timing=timing, harness="a", machine_code="b")
    assert known == {"check": 1, "timing": 1, "machine_code": "b"}
    assert read(1, COUNTERS, check="82cf65a9b0178f45", timing=timing) == {"timing": 1}


def test_a_digest_of_any_other_code_is_no_version() -> None:
    assert read(1, check="0123456789abcdef", timing="72c671e8b9ebecef")["check"] == "0123456789abcdef"
    assert read(2, check=1, timing=1, harness="stays") == {"check": 1, "timing": 1, "harness": "stays"}

"""Verdicts come from the data alone: they flip when the data flip, and say so when the data are missing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from factory import Lab, failed
from ladder.catalogue.kernels import load_catalog
from ladder.catalogue.sweeps import load_sweeps
from ladder.claims.ledger import load_claims
from ladder.claims.verdicts import combine, judge
from ladder.cli.app import main
from ladder.model.errors import LadderError
from ladder.results import tables
from ladder.results.statistics import Estimate

ROOT = Path(__file__).resolve().parent.parent
WAVES = 'metric("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum")'
REQUESTS = 'metric("smsp__inst_executed_op_shared_ld.sum")'
RATIO = {"value": "speedup", "low": "speedup_low", "high": "speedup_high"}

STRIDES = {
    "label": "wavefronts",
    "sweep": "bank_stride",
    "value": f"{WAVES} / {REQUESTS}",
    "equals": "gcd(stride, 32)",
    "tolerance": "0.05 * gcd(stride, 32)",
    "noise_percent": 0,
}
TRANSPOSE = {"label": "gain", "sweep": "fp32_transpose", **RATIO, "at_least": 1, "per": ["n"]}
CACHE = {
    "label": "gain",
    "unit": "x",
    "sweep": "stencil_reach",
    "kernel": "stencil_register_cache",
    **RATIO,
    "at_least": 1,
    "noise_percent": 0.5,
    "per": ["k"],
    "require": "any",
}


def decide(lab: Lab, *tests: dict[str, Any], because: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The row of claims.csv for one claim made of `tests`, explained by the measures `because`."""
    document = {
        "claims": [
            {
                "id": "it",
                "source": "a text",
                "statement": "It is so.",
                "decided_by": "tests",
                "tests": list(tests),
                **({"because": because} if because else {}),
            }
        ]
    }
    path = lab.root / "claims.yaml"
    path.write_text(yaml.safe_dump(document))
    assert main(["--root", str(lab.root), "claims", *lab.collected(), "--claims", str(path)]) == 0
    return {str(name): value for name, value in tables.read("claims", lab.folder.tables).iloc[0].items()}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.record()
    lab.collect()
    return lab


def changed(root: Path, change: Callable[[Any, dict[str, Any]], dict[str, Any] | None], **more: Any) -> Lab:
    lab = Lab(root)
    lab.record(None, change, **more)
    lab.collect()
    return lab


def scaled(record: dict[str, Any], factor: float) -> dict[str, Any]:
    """The record with its ratio set to `factor`, 0.2 % wide on either side."""
    for regime in record["regimes"].values():
        regime |= {"speedup": factor, "speedup_low": factor * 0.998, "speedup_high": factor * 1.002}
    return record


@pytest.mark.parametrize(
    ("condition", "value", "verdict"),
    [
        ("at_least", Estimate(1.10, 1.09, 1.11), "holds"),
        ("at_least", Estimate(0.90, 0.89, 0.91), "refuted"),
        ("at_least", Estimate(1.00, 0.99, 1.01), "inconclusive"),
        ("at_least", Estimate(1.003, 1.002, 1.004), "inconclusive"),  # 0.5 % of noise could flip it
        ("at_most", Estimate(0.90, 0.89, 0.91), "holds"),
        ("at_most", Estimate(1.10, 1.09, 1.11), "refuted"),
        ("equals", Estimate(1.01, 1.00, 1.02), "holds"),
        ("equals", Estimate(1.20, 1.19, 1.21), "refuted"),
        ("equals", Estimate(1.05, 1.03, 1.07), "inconclusive"),
    ],
)
def test_one_value_against_a_condition(condition: str, value: Estimate, verdict: str) -> None:
    assert judge(condition, value, 1.0, 0.05, 0.005) == verdict


@pytest.mark.parametrize(
    ("verdicts", "every", "some"),
    [
        (["holds", "holds"], "holds", "holds"),
        (["holds", "refuted"], "refuted", "holds"),
        (["holds", "inconclusive"], "inconclusive", "holds"),
        (["inconclusive", "refuted"], "refuted", "inconclusive"),
        (["holds", "not measured"], "not measured", "holds"),
        (["refuted", "not measured"], "refuted", "not measured"),
    ],
)
def test_several_verdicts_combine(verdicts: list[str], every: str, some: str) -> None:
    assert combine(verdicts, "all") == every
    assert combine(verdicts, "any") == some


def test_a_claim_holds_where_the_data_agree(lab: Lab) -> None:
    row = decide(lab, STRIDES)
    assert row["verdict"] == "holds"
    assert "33 of 33 cells are equal to gcd(stride, 32)" in row["evidence"]
    assert "32 at stride=32" in row["evidence"]


def test_the_verdict_flips_with_the_data(tmp_path: Path) -> None:
    lab = changed(tmp_path, lambda _, record: record)
    (path,) = lab.folder.records.glob("bank_stride-*.jsonl")
    path.write_text(path.read_text().replace('"value": 2000000', '"value": 3000000'))
    lab.collect()
    row = decide(lab, STRIDES)
    assert row["verdict"] == "refuted"
    assert "25 of 33 cells are equal to gcd(stride, 32) (8 refuted)" in row["evidence"]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.25, "holds"), (0.8, "refuted"), (1.002, "inconclusive")])
def test_paired_time_decides(tmp_path: Path, ratio: float, verdict: str) -> None:
    lab = changed(tmp_path, lambda _, record: scaled(record, ratio))
    assert decide(lab, TRANSPOSE)["verdict"] == verdict


def test_a_claim_that_depends_on_the_size_says_where(tmp_path: Path) -> None:
    lab = changed(tmp_path, lambda cell, record: scaled(record, 0.9 if cell.size.get("n") == 1024 else 1.2))
    row = decide(lab, TRANSPOSE)
    assert row["verdict"] == "holds"
    assert row["where"] == "holds at n = 4096; refuted at n = 1024"
    assert decide(lab, TRANSPOSE | {"scope": "everywhere"})["verdict"] == "refuted"


def test_a_claim_holds_only_where_all_its_tests_do(tmp_path: Path) -> None:
    lab = changed(tmp_path, lambda cell, record: scaled(record, 0.9 if cell.size.get("n") == 1024 else 1.2))
    fast = TRANSPOSE | {"at_least": 2}
    assert decide(lab, TRANSPOSE, fast)["where"] == "refuted at n = 1024 … 4096"
    overall = {name: value for name, value in fast.items() if name != "per"}
    row = decide(lab, TRANSPOSE, overall)
    assert row["verdict"] == "refuted"
    assert row["where"] == "refuted at n = 1024 … 4096", "a test that depends on no size counts at each"


def test_tests_that_hold_at_different_sizes_hold_together_at_none(tmp_path: Path) -> None:
    lab = changed(tmp_path, lambda cell, record: scaled(record, 0.9 if cell.size.get("n") == 1024 else 1.2))
    slower = {name: value for name, value in TRANSPOSE.items() if name != "at_least"} | {"at_most": 1}
    assert decide(lab, TRANSPOSE)["where"] == "holds at n = 4096; refuted at n = 1024"
    assert decide(lab, slower)["where"] == "holds at n = 1024; refuted at n = 4096"
    row = decide(lab, TRANSPOSE, slower)
    assert (row["verdict"], row["where"]) == ("refuted", "refuted at n = 1024 … 4096")


def test_a_parameter_called_like_a_size_is_the_parameter(lab: Lab) -> None:
    row = decide(lab, CACHE)
    assert row["where"] == "holds at k <= 16; refuted at k >= 24"
    assert "16 of 28 cells are at least 1" in row["evidence"]
    assert "at k=2, coarsen=8, size 2^28" in row["evidence"]


def test_all_tests_must_hold(lab: Lab) -> None:
    ambitious = {**CACHE, "at_least": 1.8, "per": []}
    row = decide(lab, CACHE, ambitious)
    assert row["verdict"] == "refuted"
    assert "0 of 28 cells are at least 1.8" in row["evidence"]


def test_static_facts_are_held_against_a_partner(lab: Lab) -> None:
    wide = {
        "label": "LDS.128 more",
        "sweep": "fp32_transpose",
        "rows": "resources",
        "where": "transpose_a == 1",
        "against": {"where": "transpose_a == 0", "match": ["bm", "bk"]},
        "value": "lds_128 - other_lds_128",
        "at_least": 1,
        "noise_percent": 0,
    }
    row = decide(lab, wide)
    assert row["verdict"] == "holds"
    assert "4 of 4 cells" in row["evidence"]
    assert decide(lab, wide | {"at_least": 17})["verdict"] == "refuted"
    vague = copy.deepcopy(wide)
    vague["against"]["match"] = ["bm"]  # type: ignore[index]
    with pytest.raises(AssertionError):  # exit code 2: a row has two partners
        decide(lab, vague)


def test_neighbours_of_two_rows_with_one_reference_compare_by_their_ratios(lab: Lab) -> None:
    test = {
        "label": "register tile over shared tile",
        "sweep": "fp32_ladder",
        "kernel": "gemm_register_tile",
        "where": "transpose_a == 1",
        "against": {"kernel": "gemm_shared_tile", "match": ["n"]},
        "value": "speedup / other_speedup",
        "low": "speedup_low / other_speedup_high",
        "high": "speedup_high / other_speedup_low",
        "equals": 0.66 / 0.16,
        "tolerance": 0.1,
    }
    assert decide(lab, test)["verdict"] == "inconclusive", "the tolerance is less than GPUs differ by"
    assert decide(lab, test | {"noise_percent": 0.5})["verdict"] == "holds"
    best = test | {
        "noise_percent": 0.5,
        "kernel": "gemm_shared_tile",
        "where": "n == 4096",
        "against": {"match": ["n"], "pick": "speedup"},
        "equals": 0.16 / 0.66,
        "tolerance": 0.01,
    }
    assert decide(lab, best)["verdict"] == "holds"


def test_a_claim_says_what_was_counted_beside_it(lab: Lab) -> None:
    because = [
        {
            "label": "wavefronts a request",
            "sweep": "bank_stride",
            "where": "stride == 8 or stride == 2",
            "value": f"{WAVES} / {REQUESTS}",
        },
        {"label": "temperature", "unit": "K", "sweep": "bank_stride", "value": 'metric("temperature")'},
    ]
    explained = decide(lab, STRIDES, because=because)
    alone = decide(lab, STRIDES)
    assert explained["verdict"] == alone["verdict"] == "holds", "what is counted beside it decides nothing"
    assert explained["evidence"] == (
        f"{alone['evidence']} Counted beside it: wavefronts a request: 2 at stride=2, 8 at stride=8; "
        "temperature: not measured: no metric temperature."
    )


def test_what_was_counted_names_kernels_where_there_are_several(lab: Lab) -> None:
    measure = {
        "label": "reach",
        "unit": "words",
        "sweep": "stencil_reach",
        "where": 'coarsen == 1 and dtype == "int32" and (k == 2 or k == 12)',
        "value": "k",
    }
    shared, cache = "stencil_shared, k", "stencil_register_cache, k"
    assert decide(lab, CACHE, because=[measure])["evidence"].endswith(
        f"Counted beside it: reach: 2 words at {cache}=2, 12 words at {cache}=12, "
        f"2 words at {shared}=2, 12 words at {shared}=12."
    )


def test_a_missing_counter_is_not_measured_with_the_profilers_reason(tmp_path: Path) -> None:
    lab = changed(tmp_path, lambda _, record: record, metrics=False)
    row = decide(lab, STRIDES)
    assert row["verdict"] == "not measured"
    assert "no metric l1tex" in row["evidence"]
    assert "ncu was not found" in row["evidence"]


def test_cells_that_failed_decide_nothing(tmp_path: Path) -> None:
    lab = changed(tmp_path, lambda _, record: failed("incorrect", "wrong")(record))
    row = decide(lab, TRANSPOSE)
    assert row["verdict"] == "not measured"
    assert "8 incorrect" in row["evidence"]


def test_a_sweep_outside_the_run_is_not_measured(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.record(["bank_stride"])
    lab.collect(["bank_stride"])
    row = decide(lab, TRANSPOSE)
    assert row["verdict"] == "not measured"
    assert row["evidence"] == "Gain: not measured: the sweep fp32_transpose is not part of this run."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sweep": "bank_strides"}, r"tests\[0\].sweep: 'bank_strides' .*did you mean 'bank_stride'"),
        ({"kernel": "bank_column"}, r"tests\[0\].kernel: 'bank_column' is not accepted"),
        ({"value": "cycles"}, r"tests\[0\].value: 'cycles' is not accepted"),
        ({"value": "metrics('x')"}, r"tests\[0\].value: 'metrics' is not accepted .*did you mean 'metric'"),
        ({"value": "1 +"}, r"tests\[0\].value: expression '1 \+'"),
        ({"equals": "gcd(strid, 32)"}, r"tests\[0\].equals: 'strid' .*did you mean 'stride'"),
        ({"tolerance": "tol"}, r"tests\[0\].tolerance: 'tol'"),
        ({"where": "n ="}, r"tests\[0\].where: expression 'n ='"),
        ({"per": ["size"]}, r"tests\[0\].per: 'size' is not accepted"),
        ({"at_least": 1}, "exactly one of at_least, at_most and equals"),
        ({"require": "most"}, r"require: 'most' is not accepted"),
        ({"noise": 1}, r"tests\[0\]: 'noise' is not accepted.*noise_percent"),
        ({"regime": "hot"}, r"regime: 'hot' is not accepted"),
        ({"against": {"match": ["strid"]}}, r"against.match: 'strid'"),
        ({"against": {"match": ["stride"], "pick": "speed"}}, r"against.pick: 'speed'"),
    ],
)
def test_a_mistake_in_the_ledger_is_named(
    lab: Lab, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    document = {
        "claims": [
            {
                "id": "it",
                "source": "s",
                "statement": "S.",
                "decided_by": "d",
                "tests": [{**STRIDES, **change}],
            }
        ]
    }
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(LadderError, match=message) as caught:
        load_claims(path, lab.sweeps())
    assert str(path) in str(caught.value)


def test_a_mistake_in_what_is_counted_is_named(lab: Lab, tmp_path: Path) -> None:
    measure = {"label": "waves", "sweep": "bank_stride", "value": "cycles"}
    claim = {"id": "it", "source": "s", "statement": "S.", "decided_by": "d", "tests": [STRIDES]}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [{**claim, "because": [measure]}]}))
    with pytest.raises(LadderError, match=r"claims\[0\].because\[0\].value: 'cycles' is not accepted"):
        load_claims(path, lab.sweeps())


def test_an_id_twice_is_refused(lab: Lab, tmp_path: Path) -> None:
    claim = {"id": "it", "source": "s", "statement": "S.", "decided_by": "d", "tests": [STRIDES]}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [claim, dict(claim)]}, default_flow_style=False))
    with pytest.raises(LadderError, match=r"claims\[1\].id: 'it'"):
        load_claims(path, lab.sweeps())


def test_the_projects_own_ledger_fits_its_sweeps() -> None:
    sweeps = load_sweeps(ROOT / "config" / "sweeps", load_catalog(ROOT / "kernels"), None)
    claims = load_claims(ROOT / "config" / "claims.yaml", sweeps)
    wanted = {"stride-gcd", "tiled-gemm-conflict-free", "transpose-pays", "register-cache-speedup"}
    assert wanted <= {claim.id for claim in claims}


def test_cells_may_be_asked_for_their_status(tmp_path: Path) -> None:
    asked = {"label": "without", "sweep": "fp32_transpose", "value": 'status == "launch_error"', "equals": 1}
    large = {**asked, "rows": "cells", "where": "n == 4096", "noise_percent": 0}

    def change(cell: Any, record: dict[str, Any]) -> dict[str, Any]:
        return failed("launch_error", "too large")(record) if cell.size.get("n") == 4096 else record

    lab = changed(tmp_path, change)
    assert decide(lab, large)["verdict"] == "holds"
    assert decide(lab, {**large, "where": "n == 1024"})["verdict"] == "refuted"
    assert decide(lab, {**large, "rows": "timings"})["verdict"] == "not measured"

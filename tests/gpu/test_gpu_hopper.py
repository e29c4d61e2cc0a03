"""What only a GPU can show of the kernels that load by TMA: results that stay right, however often."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT, output_of
from emulator.hopper import RING, RUNGS
from ladder.model.record import Record
from measuring import GPUS, PACKAGES, measured

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not GPUS or GPUS[0].arch != "sm_90a", reason="needs a Hopper GPU"
    ),
]


@pytest.fixture
def project(project: Path) -> Path:
    """With the kernels that load by TMA."""
    shutil.copytree(ROOT / "kernels/gemm/hopper", project / "kernels/gemm")
    shutil.copytree(
        ROOT / "kernels/include", project / "kernels/include", dirs_exist_ok=True
    )
    return project


def test_two_hundred_repetitions_on_fresh_inputs_are_right() -> None:
    command = [
        sys.executable,
        str(ROOT / "tests/repetitions.py"),
        GPUS[0].arch,
        "200",
    ]
    output_of(command, ROOT, PYTHONPATH=PACKAGES)


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_takes_as_long_as_hopper_gemm_with_its_parameters(
    project: Path, name: str
) -> None:
    against = {"dtypes": ["bf16"], "regimes": ["cold"]}
    against["references"] = [{"kernel": RING, "params": RUNGS[name]}]
    (record,) = measured(
        project, [{"kernel": name}], [4096], "{deadline_s: 60}", **against
    )
    assert record.status == "ok", record.reason
    assert 0.98 < record.result["speedup"] < 1.02


def test_fp8_is_timed_with_and_without_fast_accumulation(project: Path) -> None:
    both = {
        "dtypes": ["fp8"],
        "layout": "TN",
        "references": ["cublaslt", "cublaslt_fast"],
    }
    both["regimes"] = ["cold"]
    wide = {"kernel": "hopper_gemm", "params": {"stagger": 1}}
    narrow = {"kernel": "hopper_gemm", "params": {"bn": 128, "stages": 6, "stagger": 1}}

    chosen, first = in_order(
        measured(project, [wide], [4096], "{deadline_s: 60}", **both)
    )
    assert chosen.status == first.status == "ok", first.reason
    times = chosen.result["references"]
    assert set(times) == {"cublaslt", "cublaslt_fast"}
    assert times["cublaslt_fast"] < times["cublaslt"] / 0.95
    assert chosen.result["notes"] == []
    assert all(
        one["algorithm"].startswith("id ") for one in chosen.result["candidates"]
    )
    assert chosen.result["reference"] == first.result["reference"] == "cublaslt_fast"
    assert chosen.result["algorithm"] == first.result["algorithm"]

    records = in_order(
        measured(project, [wide, narrow], [4096], "{deadline_s: 60}", **both)
    )
    assert [bool(record.cell.kernel) for record in records] == [False, True, True], (
        "the choice stands"
    )
    assert len({record.session for record in records}) == 2
    assert (
        len(
            {
                (record.result["reference"], record.result["algorithm"])
                for record in records
            }
        )
        == 1
    )


def in_order(records: list[Record]) -> list[Record]:
    """Choices first."""
    return sorted(records, key=lambda record: bool(record.cell.kernel))

"""Kernels with a workspace: their description, their plan, and which code their records depend on."""

from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from ladder.catalogue.kernels import load_kernel
from ladder.catalogue.plans import _launch
from ladder.measure.conditions import has_workspace, measuring_code
from ladder.model.cell import COUNTERS
from ladder.model.errors import LadderError

KERNEL = ROOT / "tests" / "gpu_kernels" / "workspace.yaml"
SIZE = {"m": 64, "n": 96, "k": 32}


def test_a_plan_has_the_bytes_of_each_size() -> None:
    variant = load_kernel(KERNEL).variant({}, "fp32", "NN")
    launch = _launch(variant, SIZE)
    scratch, zeroed = (one for one in launch.arguments if "workspace" in one)
    assert (scratch["workspace"], scratch["bytes"]) == ("scratch", 4 * 64 * 96)
    assert (zeroed["workspace"], zeroed["bytes"]) == ("zeroed", 4 * 68)
    assert zeroed["pointer"] != _launch(variant, SIZE | {"m": 65}).arguments[4]["pointer"], "each has its own"
    assert has_workspace(launch)
    assert not has_workspace(None)


@pytest.mark.parametrize("regime", ["cold", COUNTERS])
def test_only_records_of_kernels_with_a_workspace_depend_on_its_code(regime: str) -> None:
    assert measuring_code("gemm", regime) != measuring_code("gemm", regime, workspace=True)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ({"workspace": "scratch"}, "{workspace: zeroed|scratch, bytes: ...}"),
        ({"workspace": "random", "bytes": 4}, "accepted: zeroed, scratch"),
        ({"workspace": "zeroed", "bytes": "4 * mm"}, "arguments[9].bytes: 'mm'"),
        ({"pointer": "c", "bytes": 4}, "{workspace: zeroed|scratch, bytes: ...}"),
    ],
)
def test_mistakes_name_what_is_accepted(tmp_path: Path, argument: dict[str, object], says: str) -> None:
    document = yaml.safe_load(KERNEL.read_text())
    document["arguments"][9] = argument
    path = tmp_path / KERNEL.name
    path.write_text(yaml.safe_dump(document))
    path.with_suffix(".cu").write_text("")
    with pytest.raises(LadderError) as raised:
        load_kernel(path)
    assert says in str(raised.value)

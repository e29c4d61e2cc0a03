"""Kernels with a workspace: their description and their plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from ladder.catalogue.kernels import load_kernel
from ladder.catalogue.plans import launch_of
from ladder.model.errors import LadderError

KERNEL = ROOT / "tests/gpu_kernels/workspace.yaml"
SIZE = {"m": 64, "n": 96, "k": 32}


def test_a_plan_has_the_bytes_of_each_size() -> None:
    variant = load_kernel(KERNEL).variant({}, "fp32", "NN")
    launch = launch_of(variant, SIZE)
    scratch, zeroed = (one for one in launch.arguments if "workspace" in one)
    assert (scratch["workspace"], scratch["bytes"]) == ("scratch", 4 * 64 * 96)
    assert (zeroed["workspace"], zeroed["bytes"]) == ("zeroed", 4 * 68)
    assert (
        zeroed["pointer"]
        != launch_of(variant, SIZE | {"m": 65}).arguments[4]["pointer"]
    ), "each has its own"


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ({"workspace": "scratch"}, "{workspace: zeroed|scratch, bytes: ...}"),
        ({"workspace": "random", "bytes": 4}, "accepted: zeroed, scratch"),
        (
            {"workspace": "zeroed", "bytes": "4 * mm"},
            "'4 * mm': name: 'mm' is not accepted",
        ),
        ({"pointer": "c", "bytes": 4}, "{workspace: zeroed|scratch, bytes: ...}"),
    ],
)
def test_mistakes_name_what_is_accepted(
    tmp_path: Path, argument: dict[str, object], says: str
) -> None:
    document = yaml.safe_load(KERNEL.read_text())
    document["arguments"].append(argument)
    path = tmp_path / KERNEL.name
    path.write_text(yaml.safe_dump(document))
    path.with_suffix(".cu").write_text("")
    with pytest.raises(LadderError) as raised:
        load_kernel(path)
    assert says in str(raised.value)

"""Kernels with a workspace: their description and their plan."""

from __future__ import annotations

from conftest import ROOT
from ladder.catalogue.kernels import load_kernel
from ladder.catalogue.plans import launch_of

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

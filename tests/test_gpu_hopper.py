"""What only a GPU can show of the kernels that load by TMA: results that stay right, however often."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import ROOT
from ladder.gpu.discovery import find_gpus

GPUS = find_gpus()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not GPUS or GPUS[0].arch != "sm_90a", reason="needs a Hopper GPU"),
]


def test_two_hundred_repetitions_on_fresh_inputs_are_right() -> None:
    command = [sys.executable, str(ROOT / "tests" / "hopper_repetitions.py"), GPUS[0].arch, "200"]
    path = os.environ | {"PYTHONPATH": f"{ROOT / 'workflow'}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

"""A sweep measured by itself, on one GPU of this host, in a folder that does not outlive it."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ladder.catalogue.settings import choose_device, read_settings
from ladder.cli.build import compiled, write_plan
from ladder.gpu.discovery import find_gpus
from ladder.measure import job
from ladder.measure.store import read_store
from ladder.measure.view import View
from ladder.model.errors import LadderError
from ladder.model.folders import Project, RunFolder
from ladder.model.sweep import Sweep


def measured_alone(own: Project, sweep: Sweep, over: Mapping[str, Any]) -> tuple[View, str]:
    """Compile and measure a sweep: its plan with the records, and the GPU's name.

    Raises LadderError without a GPU, or where a kernel that others are timed against does not compile.
    """
    settings = read_settings(own, (), {**over, "device": "auto"})
    if not (gpus := find_gpus()):
        raise LadderError("no GPU is visible, and this step measures on one")
    plan = compiled(own, sweep, settings, choose_device(settings)[1], os.cpu_count() or 1)
    for name, facts in plan.variants.items():
        if name != plan.tasks[0].variant and facts["status"] != "ok":
            raise LadderError(f"the reference {name}: {facts['status']}: {facts['reason']}")
    with tempfile.TemporaryDirectory(prefix="ladder-alone-") as place:
        folder = RunFolder(Path(place))
        job.measure(write_plan(plan, folder), plan, folder, own.root)
        return View(plan, read_store(folder.records)), gpus[0].name

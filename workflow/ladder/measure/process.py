"""The programs that a job runs on a GPU, each in a process of its own.

Started by `ladder.measure.gpu_job` as `python -m ladder.measure.process PROGRAM PLAN CUBINS REQUEST`. REQUEST is
JSON, which each program describes.
"""

import importlib
import json
import logging
import sys
from pathlib import Path

from ladder.measure.process_lifetime import die_with_parent
from ladder.model.plan_file import read_plan

PROGRAMS = {
    "measure": "worker",
    "profile": "traced",
    "sanitize": "traced",
}
"""Program -> the module of this folder that has it as a function of plan, folder of cubins, and request.

Imported by name, so that none loads what another one needs.
"""


def main() -> int:
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    name, plan, cubins, request = sys.argv[1:]
    module = importlib.import_module(f"ladder.measure.{PROGRAMS[name]}")
    run = getattr(module, name)
    run(read_plan(Path(plan)), Path(cubins), json.loads(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())

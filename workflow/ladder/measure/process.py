"""The one program that runs a task of a job on a GPU, in a process of its own.

Started by `ladder.measure.gpu_job` as `python -m ladder.measure.process TASK PLAN CUBINS REQUEST`. REQUEST is
JSON, which each task describes.
"""

import importlib
import json
import logging
import sys
from pathlib import Path

from ladder.measure.process_lifetime import die_with_parent
from ladder.model.plan_file import read_plan

TASKS = {
    "measure": "worker",
    "profile": "traced",
    "sanitize": "traced",
}
"""Task -> the module of this folder that has it as a function of plan, folder of cubins, and request.

Imported by name, so that what one task runs is in no other's digest.
"""


def main() -> int:
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    task, plan, cubins, request = sys.argv[1:]
    run = getattr(importlib.import_module(f"ladder.measure.{TASKS[task]}"), task)
    run(read_plan(Path(plan)), Path(cubins), json.loads(request))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The one program that runs a task of a job on a GPU, in a process of its own.

Started by `ladder.measure.gpu_job` as `python -m ladder.measure.process TASK PLAN CUBINS REQUEST [ANSWER]`. REQUEST is
JSON, which each task describes. What the task returns, a mapping, is written to the file ANSWER, if there is one.
"""

import importlib
import json
import logging
import sys
from pathlib import Path

from ladder.measure.process_lifetime import die_with_parent
from ladder.model.files import write_json
from ladder.model.plan_file import read_plan

TASKS = {
    "measure": "worker",
    "profile": "traced",
    "sanitize": "traced",
    "zeros": "zeros",
}
"""Task -> the module of this folder that has it as a function of plan, folder of cubins, and request.

Imported by name, so that what one task runs is in no other's digest.
"""


def main() -> int:
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    task, plan, cubins, request, *answer = sys.argv[1:]
    run = getattr(importlib.import_module(f"ladder.measure.{TASKS[task]}"), task)
    found = run(read_plan(Path(plan)), Path(cubins), json.loads(request))
    for path in answer:
        write_json(Path(path), found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

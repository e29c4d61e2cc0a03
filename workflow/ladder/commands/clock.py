"""Hold the timer against NVBench and against itself."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--plan", type=Path, required=True, help="plan whose cells serve as subjects")
    parser.add_argument("--cells", type=Path, required=True, help="its measured cells")
    parser.add_argument("--cubins", type=Path, required=True)
    parser.add_argument("--harness", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=100, help="trials of a kernel against itself")
    parser.add_argument(
        "--out-folder", type=Path, required=True, help="folder for clock_nvbench and clock_aa"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the two tables; without cuda-bench the first is empty and the message says so."""
    import logging
    import os

    from ladder import tables
    from ladder.cells import read_records
    from ladder.discovery import find_gpus
    from ladder.errors import LadderError
    from ladder.gpu_lock import one_gpu
    from ladder.plan import read_plan

    plan = read_plan(arguments.plan)
    with one_gpu(find_gpus()) as (gpu, _):
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu.uuid
        from ladder import clock
        from ladder.timing import StoppingRule
        from ladder.worker import Worker

        worker = Worker(plan, arguments.cubins, arguments.harness)
        records = read_records(arguments.cells)
        settings = plan["settings"]
        rule = StoppingRule(
            settings["precision"], settings["min_pairs"], settings["max_pairs"], settings["cell_seconds"]
        )
        itself = [
            row
            for subject in clock.subjects(plan, records, clock.AA_TARGETS_US)
            for row in clock.against_itself(worker, subject, arguments.trials, rule)
        ]
        try:
            compared = clock.against_nvbench(worker, clock.subjects(plan, records), rule)
        except LadderError as error:
            logging.warning("%s", error)
            compared = []
    tables.write("clock_aa", tables.frame("clock_aa", itself), arguments.out_folder)
    tables.write("clock_nvbench", tables.frame("clock_nvbench", compared), arguments.out_folder)
    return 0

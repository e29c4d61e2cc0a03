"""The job that times kernels with zeros in place of random numbers: which ones, and on which GPU."""

import logging
from pathlib import Path
from typing import Any

from ladder.gpu.discovery import find_gpus, of_one_model
from ladder.measure.gpu_job import run_on_gpu
from ladder.measure.plan_records import PlanRecords
from ladder.measure.store import read_store
from ladder.measure.subjects import TableRow
from ladder.model.cell import size_label
from ladder.model.errors import refuse
from ladder.model.folders import RunFolder
from ladder.model.intervals import median
from ladder.model.plan import Plan


def fastest(view: PlanRecords, dtype: str) -> list[dict[str, Any]]:
    """The kernels to time: of a dtype the fastest over libraries at each size and layout, in the plan's order."""
    best = dict[tuple[Any, ...], tuple[float, dict[str, Any]]]()
    for index, task in view.launched():
        record = view.current_record(task) if task.cell.dtype == dtype and not task.beside else None
        known = record.result if record is not None and record.status == "ok" else {}
        if "variant_us" not in known or not task.cell.reference.libraries:
            continue
        asked = {"index": index, "us": median(known["variant_us"])}
        asked |= {"reference": known["reference"], "algorithm": known.get("algorithm") or ""}
        asked |= {"reference_us": median(known["reference_us"])}
        other = best.get(task.cell.operands)
        if other is None or known["speedup"] > other[0]:
            best[task.cell.operands] = known["speedup"], asked
    return [asked for _, asked in best.values()]


def time_zeros(path: Path, plan: Plan, folder: RunFolder, root: Path, dtype: str) -> list[TableRow]:
    """Rows of the table zeros. Raises LadderError without a GPU, or where the plan has no such kernel with a record."""
    request = fastest(PlanRecords(plan, read_store(folder.records)), dtype)
    if not request:
        known = sorted({task.cell.dtype for task in plan.tasks})
        why = f"the run has no result of it over a library in {plan.sweep}"
        raise refuse("command line", "--dtype", dtype, known, why=why)
    gpus = of_one_model(find_gpus(), folder.root.name)
    gpu, answer = run_on_gpu("zeros", path, plan, root, gpus, request)
    rows = answer["zeros"]
    for row in rows:
        size = size_label({name: row[name] for name in plan.tasks[0].cell.size})
        said = (row["subject"], size, row["regime"], row["speedup"], row["zeros_mhz"], row["random_mhz"])
        logging.info("%s at %s, %s: %.3f times as fast with zeros, at %.0f and %.0f MHz", *said)
    return [{"gpu_uuid": gpu.uuid, "sweep": plan.sweep, **row} for row in rows]

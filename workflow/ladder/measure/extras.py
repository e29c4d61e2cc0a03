"""The job behind what no sweep measures: errors against fp64 by kind of inputs, and launches with beta = 1."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ladder.gpu.discovery import find_gpus
from ladder.measure.gpu_job import run_on_gpu
from ladder.model.extras import EXTRAS
from ladder.model.plan import Plan
from ladder.model.problem import Size

TABLES = EXTRAS
EXACT = "fp32"  # whose inputs errors are looked at with, whatever the kernel's dtype

Row = dict[str, Any]


def tasks_of(plan: Plan, sizes: Sequence[Size], dtypes: Sequence[str] | None = None) -> list[int]:
    """Launched tasks at some sizes, of some dtypes or of any, by their index in the plan."""
    launched = [(index, task.cell) for index, task in enumerate(plan.tasks) if task.launch is not None]
    return [
        index for index, cell in launched if cell.size in sizes and (dtypes is None or cell.dtype in dtypes)
    ]


def measure_extras(
    path: Path, plan: Plan, root: Path, asked: Mapping[str, Sequence[int]], inputs: Sequence[str]
) -> dict[str, list[Row]]:
    """Rows of both tables, of the tasks `asked` for by table, from a process on one GPU.

    Raises LadderError without a GPU, or where the process fails.
    """
    request = {**{table: [*asked[table]] for table in TABLES}, "inputs": [*inputs]}
    gpu, rows = run_on_gpu("extras", path, plan, root, find_gpus(), request)
    return {table: [{"gpu_uuid": gpu.uuid, **row} for row in rows[table]] for table in TABLES}

"""Collect Nsight Compute counters for a sweep."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the step's arguments."""
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--cubins", type=Path, required=True)
    parser.add_argument("--harness", type=Path, required=True)
    parser.add_argument("--cells", type=Path, required=True, help="the sweep's measured cells")
    parser.add_argument("--out", type=Path, required=True, help="record to update")
    parser.add_argument("--timeout-s", type=float, default=540.0)
    parser.add_argument("--disabled", action="store_true", help="only record that the configuration says so")


def run(arguments: argparse.Namespace) -> int:
    """Keep the counters of unchanged cells, collect the others; what cannot be had becomes a note."""
    import os

    from ladder.cells import read_records, write_records
    from ladder.digest import sha256
    from ladder.discovery import find_gpus
    from ladder.gpu_lock import one_gpu
    from ladder.plan import read_plan
    from ladder.profiler import ProfilerUnavailable, profile, profiled_cells, wanted_metrics
    from ladder.supervisor import end_with_parent

    end_with_parent(os.getppid())
    plan = read_plan(arguments.plan)
    records = read_records(arguments.cells)
    keys = {
        (record["variant"], tuple(record["size"].items())): sha256(
            (record["key"] + ",".join(wanted_metrics(plan["counter_groups"]))).encode()
        )
        for record in records
    }
    indices = profiled_cells(plan, records)
    by_index = {
        index: keys[(plan["cells"][index]["variant"], tuple(plan["cells"][index]["size"].items()))]
        for index in indices
    }
    old_records = read_records(arguments.out)
    old = {record["key"]: record for record in old_records if "key" in record}
    todo = [index for index in indices if by_index[index] not in old]
    notes = [record for record in old_records if "note" in record] if not todo else []
    if not plan["counter_groups"]:
        todo, notes = [], []
    elif arguments.disabled:
        notes = [{"note": {"subject": "counters", "reason": "profile.enabled is false in the configuration"}}]
        todo = []
    if todo:
        try:
            with one_gpu(find_gpus()) as (gpu, lock):
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid}
                found, said = profile(
                    arguments.plan,
                    plan,
                    arguments.cubins,
                    arguments.harness,
                    todo,
                    arguments.timeout_s,
                    environment,
                    lock,
                )
        except ProfilerUnavailable as error:
            found, said = [], [{"subject": "counters", "reason": str(error)}]
        notes = [{"note": note} for note in said]
        for entry in found:
            cell = plan["cells"][entry["cell"]]
            key = by_index[entry["cell"]]
            old[key] = {
                "key": key,
                "variant": cell["variant"],
                "dtype": cell["dtype"],
                "size": cell["size"],
                "metrics": entry["metrics"],
            }
    ordered = [old[by_index[index]] for index in indices if by_index[index] in old]
    write_records(arguments.out, [*ordered, *notes])
    return 0

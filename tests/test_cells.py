"""Records of measured cells: what a cell's key depends on, and that a kill loses at most the cell in flight."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ladder.measure.store import RecordFile, cell_key, read_records, write_records
from ladder.measure.supervisor import cubin_digests, finish, split_cells
from ladder.model.errors import LadderError

CUBINS = {"tile-fp32": "aa", "naive-fp32": "bb", "other-fp32": "cc"}
HOST = {"gpu": "NVIDIA H200", "driver": "580.1", "cublas": "13.0"}


def make_plan() -> dict[str, Any]:
    """A plan of one cell: a variant against cuBLAS and against another variant."""
    cell = {
        "variant": "tile-fp32",
        "kernel": "tile",
        "dtype": "fp32",
        "layout": "NN",
        "size": {"m": 64, "n": 32, "k": 16},
        "launch": {
            "variant": "tile-fp32",
            "params": {"bm": 64, "bk": 8},
            "grid": [4, 1, 1],
            "block": [256, 1, 1],
            "cluster": None,
            "shared_bytes": 0,
            "arguments": [{"pointer": "a"}],
        },
        "references": [{"library": "cublas"}, {"variant": "naive-fp32", "params": {}, "grid": [1, 1, 1]}],
    }
    return {
        "sweep": "tiles",
        "problem": "gemm",
        "protocol": 1,
        "arch": "sm_90a",
        "regimes": ["cold", "warm"],
        "settings": {"precision": 0.0025, "min_pairs": 24, "seed": 1},
        "counter_groups": ["banks"],
        "counter_sizes": [{"m": 64, "n": 32, "k": 16}],
        "cells": [cell],
    }


def key(change: Callable[[dict[str, Any], dict[str, str], dict[str, str]], object] | None = None) -> str:
    """Key of the plan's cell after a change to (plan, cubins, host)."""
    plan, cubins, host = make_plan(), dict(CUBINS), dict(HOST)
    if change is not None:
        change(plan, cubins, host)
    return cell_key(plan["cells"][0], plan, cubins, host)


@pytest.mark.parametrize(
    "change",
    [
        lambda plan, cubins, host: cubins.update({"tile-fp32": "changed"}),
        lambda plan, cubins, host: cubins.update({"naive-fp32": "changed"}),
        lambda plan, cubins, host: plan["cells"][0]["size"].update(m=128),
        lambda plan, cubins, host: plan["cells"][0].update(layout="TN"),
        lambda plan, cubins, host: plan["cells"][0]["launch"].update(grid=[8, 1, 1]),
        lambda plan, cubins, host: plan["cells"][0]["launch"].update(shared_bytes=1024),
        lambda plan, cubins, host: plan["cells"][0]["references"].pop(0),
        lambda plan, cubins, host: plan["settings"].update(precision=0.01),
        lambda plan, cubins, host: plan["settings"].update(seed=2),
        lambda plan, cubins, host: plan.update(regimes=["cold"]),
        lambda plan, cubins, host: plan.update(protocol=2),
        lambda plan, cubins, host: plan.update(problem="stencil"),
        lambda plan, cubins, host: host.update(gpu="NVIDIA H100"),
        lambda plan, cubins, host: host.update(driver="590.0"),
        lambda plan, cubins, host: host.update(cublas="13.1"),
    ],
)
def test_the_key_changes_with_what_the_measurement_depends_on(change: Callable[..., object]) -> None:
    assert key(change) != key()


def reorder(value: Any) -> Any:
    """The same value with every mapping in the reverse order."""
    if isinstance(value, dict):
        return {name: reorder(part) for name, part in reversed(value.items())}
    return [reorder(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "change",
    [
        lambda plan, cubins, host: cubins.update({"other-fp32": "changed"}),
        lambda plan, cubins, host: plan.update(counter_groups=[]),
        lambda plan, cubins, host: plan.update(counter_variants=[]),
        lambda plan, cubins, host: plan.update(sweep="renamed"),
        lambda plan, cubins, host: plan["cells"].append({"variant": "other-fp32"}),
        lambda plan, cubins, host: plan.update(reorder(copy.deepcopy(plan))),
    ],
)
def test_the_key_does_not_change_with_the_rest(change: Callable[..., object]) -> None:
    assert key(change) == key()


def test_a_last_line_cut_short_is_left_out_and_swallows_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text('{"key": "a"}\n{"key": "b", "regimes": {"cold": [1.0, 2', encoding="utf-8")
    assert read_records(path) == [{"key": "a"}]
    record_file = RecordFile(path)
    record_file.append({"key": "c"})
    record_file.append({"key": "d"})
    record_file.close()
    assert [record["key"] for record in read_records(path)] == ["a", "c", "d"]


def test_a_whole_last_line_gets_no_empty_one_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "sweeps" / "tiles" / "cells.jsonl"
    for name in ("a", "b"):
        record_file = RecordFile(path)
        record_file.append({"key": name})
        record_file.close()
    assert path.read_text() == '{"key": "a"}\n{"key": "b"}\n'


def test_a_record_is_on_the_disk_before_the_next_cell_begins(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    record_file = RecordFile(path)
    record_file.append({"key": "a"})
    assert read_records(path) == [{"key": "a"}], "without closing or flushing the file"
    record_file.close()


def test_no_file_is_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / "cells.jsonl") == []


def test_finishing_orders_the_records_drops_stale_ones_and_keeps_the_latest(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    written = [("c", 1), ("stale", 1), ("a", 1), ("c", 2)]
    write_records(path, [{"key": name, "try": attempt} for name, attempt in written])
    finish(path, ["a", "b", "c"])
    assert read_records(path) == [{"key": "a", "try": 1}, {"key": "c", "try": 2}]


def test_only_cells_of_another_key_are_measured_again(tmp_path: Path) -> None:
    plan = make_plan()
    for size in (128, 256):
        cell = copy.deepcopy(plan["cells"][0])
        cell["size"]["m"] = size
        plan["cells"].append(cell)
    plan["cells"].append({"variant": "tile-fp32", "unsupported": "m is no multiple of 64"})
    keys = [cell_key(cell, plan, CUBINS, HOST) for cell in plan["cells"][:3]]
    path = tmp_path / "cells.jsonl"
    write_records(path, [{"key": keys[1], "status": "timeout"}, {"key": "stale"}])
    todo, kept = split_cells(plan, CUBINS, HOST, path, remeasure=False)
    assert todo == [(0, keys[0]), (2, keys[2])]
    assert kept == {keys[1]: {"key": keys[1], "status": "timeout"}}
    todo, kept = split_cells(plan, CUBINS, HOST, path, remeasure=True)
    assert todo == list(enumerate(keys))
    assert kept == {}


def test_every_cubin_of_a_plan_is_digested_once_and_a_missing_one_named(tmp_path: Path) -> None:
    plan = make_plan()
    for variant in ("tile-fp32", "naive-fp32"):
        (tmp_path / f"{variant}.cubin").write_bytes(variant.encode())
    digests = cubin_digests(plan, tmp_path)
    assert sorted(digests) == ["naive-fp32", "tile-fp32"]
    assert digests["tile-fp32"] != digests["naive-fp32"]
    (tmp_path / "naive-fp32.cubin").unlink()
    with pytest.raises(LadderError, match=r"naive-fp32\.cubin: the cubin is missing"):
        cubin_digests(plan, tmp_path)


def test_records_are_one_json_object_a_line(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    write_records(path, [{"reason": "line one\nline two"}, {"reason": "µs"}])
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["line one\nline two", "µs"]

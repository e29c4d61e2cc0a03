"""Plans, accounts and environment.json of a run that hold another thing than a step wrote."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import assert_says
from factory import Lab
from ladder.cli.app import main


def without(field: str) -> Callable[[Any], Any]:
    """Drop a field of a JSON object."""
    return lambda document: {
        name: value for name, value in document.items() if name != field
    }


def facts(**fields: Any) -> Callable[[Any], Any]:
    """Change facts of a variant of a plan."""

    def change(plan: Any) -> Any:
        plan["variants"]["wmma_naive-fp16"] |= fields
        return plan

    return change


JSON_MISTAKES: list[tuple[str, Callable[[Any], Any] | str, str]] = [
    *[("plans/S.json", damage, "S.json: the document: ") for damage in ("", "\xff")],
    ("plans/S.json", lambda plan: [plan], "S.json: the document: "),
    (
        "plans/S.json",
        lambda plan: plan | {"sweep": "o"},
        "S.json: sweep: 'o' is not accepted; accepted: S",
    ),
    (
        "plans/S.json",
        lambda plan: plan | {"tasks": [{}]},
        "S.json: tasks[0]: the field 'variant' is missing",
    ),
    (
        "plans/S.json",
        lambda plan: plan | {"variants": {}},
        "S.json: tasks: launch.variant: 'wmma_naive-fp16'",
    ),
    *[
        (
            "plans/S.json",
            facts(**{field: value}),
            f"S.json: variants.wmma_naive-fp16.{field}",
        )
        for field, value in (
            ("registers", "x"),
            ("layout", None),
            ("cubin", "../../x"),
            ("status", "fine"),
        )
    ],
    *[
        (f"sweeps/S/{name}.json", "[" * 100_000, "not valid JSON")
        for name in ("measured", "profiled")
    ],
    ("environment.json", "[" * 100_000, "environment.json: not valid JSON"),
    ("sweeps/S/measured.json", "", "measured.json: not valid JSON"),
    ("sweeps/S/profiled.json", "[]", "profiled.json: a JSON object"),
    (
        "sweeps/S/measured.json",
        lambda job: job | {"wall_s": "long"},
        "measured.json: wall_s: 'long' is not accepted",
    ),
    (
        "sweeps/S/measured.json",
        lambda job: job | {"wall_s": math.nan},
        "measured.json: not valid JSON",
    ),
    (
        "sweeps/S/profiled.json",
        lambda job: {"notes": 3},
        "profiled.json: notes: 3 is not accepted",
    ),
    (
        "environment.json",
        lambda document: document | {"timings_from": "here"},
        "timings_from: 'here' is not",
    ),
    *[
        (
            "environment.json",
            without(name),
            f"environment.json: the document: the field {name!r} is missing",
        )
        for name in ("device", "gpu", "packages")
    ],
    (
        "environment.json",
        lambda document: document | {"gpu": {"power_limit_w": "x"}},
        "gpu.power_limit_w: 'x' is",
    ),
    (
        "environment.json",
        lambda document: document | {"trees": [{"commit": 3}]},
        "trees[0].commit: 3 is not",
    ),
]


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.record_and_collect(["tensor_ladder"])
    return lab


@pytest.mark.parametrize(("file", "change", "says"), JSON_MISTAKES)
def test_a_json_file_that_is_another_thing_is_refused_by_file_field_and_value(
    measured_once: Lab,
    tmp_path: Path,
    file: str,
    change: Callable[[Any], Any] | str,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, name = tmp_path / "run", "tensor_ladder"
    shutil.copytree(measured_once.folder.root, folder)
    path = folder / file.replace("S", name)
    given = (
        change
        if isinstance(change, str)
        else json.dumps(change(json.loads(path.read_text())))
    )
    path.write_bytes(given.encode("latin-1"))
    step = "collect" if "/" in file else "report"
    assert main(["--root", str(measured_once.root), step, str(folder), name]) == 2
    (message,) = caplog.messages
    assert_says(message, ("error: ", re.sub(r"\bS\b", name, says)))
    assert len(message) < 800

"""Plans, accounts and environment.json of a run that hold another thing than a step wrote."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import assert_says
from factory import Lab
from ladder.cli.app import main

PLAN, MEASURED, PROFILED = (
    "plans/S.json",
    "sweeps/S/measured.json",
    "sweeps/S/profiled.json",
)
ENVIRONMENT, DEEP = "environment.json", "[" * 100_000
VARIANT = "wmma_naive-fp16"
FACTS = {"params": {}, "layout": "NN", "status": "ok"}
JSON_MISTAKES: list[tuple[str, dict[str, Any] | str, str]] = [
    *((PLAN, text, "S.json: the document: ") for text in ("", "\xff", "[]")),
    (PLAN, {"sweep": "o"}, "S.json: sweep: 'o' is not accepted; accepted: S"),
    (PLAN, {"tasks": [{}]}, "S.json: tasks[0]: the field 'variant' is missing"),
    (PLAN, {"variants": {}}, f"S.json: tasks: launch.variant: '{VARIANT}'"),
    *(
        (
            PLAN,
            {"variants": {VARIANT: FACTS | {field: value}}},
            f"S.json: variants.{VARIANT}.{field}",
        )
        for field, value in (
            ("registers", "x"),
            ("layout", None),
            ("cubin", "../../x"),
            ("status", "fine"),
        )
    ),
    *((file, DEEP, "not valid JSON") for file in (MEASURED, PROFILED, ENVIRONMENT)),
    (MEASURED, "", "measured.json: not valid JSON"),
    (PROFILED, "[]", "profiled.json: a JSON object"),
    (MEASURED, {"wall_s": "long"}, "measured.json: wall_s: 'long' is not accepted"),
    (MEASURED, {"wall_s": math.nan}, "measured.json: not valid JSON"),
    (PROFILED, {"notes": 3}, "profiled.json: notes: 3 is not accepted"),
    (ENVIRONMENT, {"timings_from": "here"}, "timings_from: 'here' is not"),
    *(
        (
            ENVIRONMENT,
            {name: None},
            f"environment.json: the document: the field {name!r} is missing",
        )
        for name in ("device", "gpu", "packages")
    ),
    (ENVIRONMENT, {"gpu": {"power_limit_w": "x"}}, "gpu.power_limit_w: 'x' is"),
    (ENVIRONMENT, {"trees": [{"commit": 3}]}, "trees[0].commit: 3 is not"),
]
"""A file, its text or other values of its fields (None: it has none), and what is said."""


@pytest.fixture(scope="module")
def measured_once(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("lab"))
    lab.record_and_collect(["tensor_ladder"])
    return lab


@pytest.mark.parametrize(("file", "given", "says"), JSON_MISTAKES)
def test_a_json_file_that_is_another_thing_is_refused_by_file_field_and_value(
    measured_once: Lab,
    tmp_path: Path,
    file: str,
    given: dict[str, Any] | str,
    says: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder, name = tmp_path / "run", "tensor_ladder"
    shutil.copytree(measured_once.folder.root, folder)
    path = folder / file.replace("S", name)
    if isinstance(given, dict):
        fields = json.loads(path.read_text()) | given
        kept = {field: value for field, value in fields.items() if value is not None}
        given = json.dumps(kept)
    path.write_bytes(given.encode("latin-1"))
    step = "collect" if "/" in file else "report"
    assert main(["--root", str(measured_once.root), step, str(folder), name]) == 2
    (message,) = caplog.messages
    assert_says(message, ("error: ", re.sub(r"\bS\b", name, says)))
    assert len(message) < 800
